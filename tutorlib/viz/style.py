"""What all figures share: boxes, words, fills, looks of curves, legends, titles, and checks of what is drawn.

Every figure labels its axes with units, takes its colours from `palette`, and repeats in shape what it shows in colour.
Token texts are drawn as they are: for them, matplotlib does not read ``$`` and ``_`` as mathematics.
"""

import textwrap
from functools import cache

import numpy as np
from matplotlib import font_manager
from matplotlib.patches import FancyBboxPatch, Rectangle

from .labels import visible
from .palette import HATCHES, KINDS, LIGHT, LINES, MARKS, color, rgb

# One look for each curve of a figure. Looks differ in colour, mark and line, so that any one of these is enough to tell
# them apart. Only the colours of the kinds are used; their meaning for tokens does not matter for curves.
_MARKERS = ("o", "s", "^", "D", "v", "*")
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (6, 1.5)))
LOOKS = tuple(
    {"color": LIGHT[kind], "marker": marker, "linestyle": dashes}
    for kind, marker, dashes in zip(KINDS, _MARKERS, _DASHES, strict=True)
)

# The order in which rows of bars and curves get the colours of the kinds: that of rejected tokens comes last.
LAST_REJECTED = ("target", "draft", "resampled", "accepted", "bonus", "rejected")
ROW_LOOKS = tuple(LOOKS[KINDS.index(kind)] for kind in LAST_REJECTED)

# Places outside the axes for legends that would cover what is drawn.
ABOVE = {"loc": "lower left", "bbox_to_anchor": (0, 1.0), "frameon": False}
BELOW = {"loc": "upper left", "bbox_to_anchor": (0, -0.16), "frameon": False}
BESIDE = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "frameon": False}

MONOSPACED = {"family": ["DejaVu Sans Mono", "DejaVu Sans"], "parse_math": False}


def token_label(text: str, longest: int = 16) -> str:
    """The text of a token for a figure: on one line, with invisible characters made visible, at most `longest` long.

    Characters that the figures' font does not have become their code point, such as ``⟨U+4E2D⟩``, because matplotlib
    would draw an empty box and print a warning. Draw the result with ``parse_math=False``.
    """
    shown = "".join(c if ord(c) in drawable() else f"⟨U+{ord(c):04X}⟩" for c in visible(text))
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


@cache
def drawable():
    """The code points that DejaVu Sans, the font of the figures, can draw."""
    return frozenset(font_manager.get_font(font_manager.findfont("DejaVu Sans")).get_charmap())


def marked(text, kind, longest=12):
    """A token's label, with the mark of its kind in front."""
    return f"{MARKS[kind]} {token_label(text, longest)}".strip()


def titled(ax, title):
    """Set the title of an axes, in lines of at most 80 characters; return the axes."""
    if title:
        ax.set_title("\n".join(textwrap.wrap(str(title), 80)))
    return ax


def drawing(ax, xlim, ylim, title):
    """Finish a drawing: set its limits and its title, and hide the axes; return the axes object."""
    ax.set(xlim=xlim, ylim=ylim)
    ax.set_axis_off()
    return titled(ax, title)


def rows_down(ax, names):
    """Make the vertical axis a list of token names from the top down, one for each bar."""
    ax.set_yticks(range(len(names)), names, parse_math=False)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.grid(axis="y", visible=False)


def beside(ax, text, point, shift, **style):
    """Write a text beside a point, shifted by `shift` (to the right, up) in printer's points."""
    ax.annotate(text, point, shift, textcoords="offset points", **style)


def number_patch():
    """The white box behind a number on a bar."""
    return patch("white", 0.12, alpha=0.85)


def pale(hue):
    """The colour mixed with three parts of white, as a fill behind dark text."""
    return "#" + "".join(f"{round(0.25 * channel + 0.75 * 255):02x}" for channel in rgb(hue))


def bar_style(kind, **more):
    """The look of a bar: pale inside, with the border colour and the hatch of its kind."""
    return {"facecolor": pale(color(kind)), "edgecolor": color(kind), "hatch": HATCHES[kind], "linewidth": 1.2, **more}


def outlined(kind, **more):
    """The look of a token's box: pale inside, with the border colour and the line style of its kind."""
    border = {"edgecolor": LIGHT[kind], "linestyle": LINES[kind], "linewidth": 1.6}
    return {"facecolor": pale(LIGHT[kind]), **border, **more}


def patch(face, pad, edge="none", **more):
    """The box around a text, for the argument ``bbox``."""
    return {"boxstyle": f"round,pad={pad}", "facecolor": face, "edgecolor": edge, "linewidth": 1.0, **more}


def slot(ax, x, y, wide, *, high=0.8, rounding=0.2, **look):
    """Draw a box with round corners."""
    shape = f"round,pad=0,rounding_size={rounding}"
    ax.add_patch(FancyBboxPatch((x, y), wide, high, boxstyle=shape, **{"zorder": 2, **look}))


def token_box(ax, x, y, wide, kind, text=None):
    """Draw a token's box in the look of its kind, with its text inside."""
    slot(ax, x, y, wide, **outlined(kind))
    if text is not None:
        word(ax, x + wide / 2, y + 0.4, text)


def word(ax, x, y, text, **style):
    """Write a text in the monospaced font, centred on a point and not read as mathematics."""
    ax.text(x, y, text, ha="center", va="center", **{**MONOSPACED, "fontsize": 9, "zorder": 4, **style})


def box_width(text):
    """The width of a token's box that fits its text, in the data units of the drawings with boxes."""
    return 0.62 * len(text) + 0.9


def swatches(looks):
    """Small rectangles for a legend, one for each look."""
    return [Rectangle((0, 0), 1, 1, **look) for look in looks]


def arrow(ax, start, end, hue=LIGHT["text"], **style):
    """Draw an arrow from one point to another."""
    ax.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": hue, "linewidth": 1.6, **style})


def looks_for(rows, looks=LOOKS, what="curves"):
    """Pairs of a look and an item of `rows`; ValueError if there are no items, or more items than looks."""
    if not 1 <= len(rows) <= len(looks):
        raise ValueError(f"this figure can show 1 to {len(looks)} {what}, got {len(rows)}")
    return list(zip(looks, rows.items(), strict=False))


def error_sizes(values, intervals):
    """How far intervals reach below and above their values, in the form that `errorbar` takes: shape (2, n)."""
    values, ends = np.asarray(values, dtype=float), np.asarray(intervals, dtype=float).T
    return np.clip([values - ends[0], ends[1] - values], 0, None)


def size_axis(ax, sizes):
    """Make the horizontal axis logarithmic, with a tick at each size if they are few, otherwise at powers of 2."""
    sizes = sorted(set(sizes))
    few = len(sizes) <= 10
    ticks = sizes if few else [2**power for power in range(12) if sizes[0] <= 2**power <= sizes[-1]]
    ax.set_xscale("log", base=2)
    ax.set_xticks(ticks, [str(tick) for tick in ticks])
    ax.minorticks_off()


def checked_probabilities(probs, tokens=None):
    """Return probabilities as an array; raise ValueError unless they are from 0 to 1, and one for each token."""
    probs = np.asarray(probs, dtype=float)
    if tokens is not None and probs.shape != (len(tokens),):
        raise ValueError(f"there must be one probability for each token, got {len(tokens)} tokens and {probs.shape}")
    if probs.size and not (np.isfinite(probs).all() and probs.min() >= 0 and probs.max() <= 1 + 1e-6):
        raise ValueError(f"probabilities must lie between 0 and 1, got {probs.min():g} to {probs.max():g}")
    return probs


def checked_distribution(probs, tokens, name):
    """Like `checked_probabilities`, but they must also sum to 1; `name` is what the error message calls them."""
    probs = checked_probabilities(probs, tokens)
    if abs(probs.sum() - 1) > 1e-4:
        raise ValueError(f"the probabilities of {name} must sum to 1, got {probs.sum():g}")
    return probs
