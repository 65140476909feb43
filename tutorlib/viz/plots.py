"""The book's figures: functions that take an axes, draw on it, and return it.

Every function labels its axes with units, uses the palette, and says the same in shape as in colour. Token text is
drawn letter by letter: matplotlib's own reading of ``$`` and ``_`` as mathematics is switched off for it. Nothing
here runs a model; what is drawn is given. `python -c "import tutorlib"` does not import this module.
"""

import textwrap
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
from matplotlib import font_manager
from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from ..arguments import takes_iterators
from .labels import visible
from .palette import HATCHES, LIGHT, LINES, MARKS, MEANINGS, check_kind, color


def token_label(text: str, longest: int = 16) -> str:
    """The text of a token for a figure: one line, everything invisible made visible, cut after `longest` characters.

    Letters that the figures' font does not have become their code point, such as ``⟨U+4E2D⟩``: matplotlib would draw
    an empty box and print a warning. Draw the result with ``parse_math=False``.
    """
    shown = "".join(c if ord(c) in _letters() else f"⟨U+{ord(c):04X}⟩" for c in visible(text))
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


@cache
def _letters():
    """The code points that DejaVu Sans, the font of the figures, can draw."""
    return frozenset(font_manager.get_font(font_manager.findfont("DejaVu Sans")).get_charmap())


@takes_iterators
def next_token_bars(ax, tokens: Sequence[str], probs, *, chosen=None, kind="target", top=12, title=None):
    """Draw a next-token distribution as horizontal bars, the likeliest on top, each with its probability.

    Parameters
    ----------
    ax : matplotlib axes
    tokens : sequence of str, length n
        The texts.
    probs : array of floats, shape (n,)
        Their probabilities. They need not sum to 1: show as few as you like.
    chosen : str or int, optional
        The token that was taken, by text or by index: its bar is filled and marked, the others are pale.
    kind : str
        Whose distribution it is: a kind of the palette.
    top : int
        How many to draw at most. What is left out is summed up in one last bar if the probabilities sum to 1.

    Returns
    -------
    ax

    Raises
    ------
    ValueError
        If the lengths differ, or a probability is negative, above 1, or not a number.
    """
    probs = _probabilities(probs, tokens)
    if isinstance(chosen, str):
        if chosen not in tokens:
            raise ValueError(f"chosen={chosen!r} is not among the tokens")
        chosen = list(tokens).index(chosen)
    order = np.argsort(-probs, kind="stable")
    shown = list(order[:top])
    if chosen is not None and chosen not in shown:
        shown[-1] = chosen
    names = [token_label(tokens[i]) for i in shown]
    values = [float(probs[i]) for i in shown]
    faces = [color(kind) if chosen is None or i == chosen else _pale(color(kind)) for i in shown]
    rest = float(probs.sum() - sum(values))
    if len(order) > len(shown) and abs(probs.sum() - 1) < 1e-3:
        names.append(f"{len(order) - len(shown)} others")
        values.append(max(rest, 0.0))
        faces.append(_pale(LIGHT["neutral"]))
    places = np.arange(len(names))
    bars = ax.barh(places, values, color=faces, edgecolor=color(kind), linewidth=0.8, height=0.72)
    if len(names) > len(shown):
        bars[-1].set_edgecolor(LIGHT["neutral"])
        bars[-1].set_hatch("...")
    for place, value, i in zip(places, values, [*shown, None], strict=False):
        picked = chosen is not None and i == chosen
        weight = "bold" if picked else "normal"
        ax.text(value + 0.012, place, _share(value) + ("  ◂ chosen" if picked else ""), va="center", weight=weight)
    ax.set_yticks(places, names, parse_math=False)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set_xlim(0, min(1.18, max([*values, 0.05]) * 1.3 + 0.05))
    ax.set_xticks([tick for tick in ax.get_xticks() if 0 <= tick <= 1])
    ax.set_xlim(0, min(1.18, max([*values, 0.05]) * 1.3 + 0.05))
    ax.grid(axis="y", visible=False)
    ax.set(xlabel="probability", ylabel="next token")
    return _titled(ax, title)


@takes_iterators
def probability_histogram(ax, probs, *, bins=20, kind="target", label=None, title=None):
    """Draw how often a model was how sure: a histogram of the probabilities it gave to the tokens that were taken.

    Parameters
    ----------
    probs : array of floats, any shape
        Probabilities from 0 to 1.
    label : str, optional
        For the legend; give one when two histograms share an axes.
    """
    probs = _probabilities(np.ravel(probs))
    edges = np.linspace(0, 1, bins + 1)
    shares = np.histogram(probs, edges)[0] / max(len(probs), 1)
    line = {"color": color(kind), "linestyle": LINES[kind]}
    ax.stairs(shares, edges, fill=True, color=_pale(color(kind)), alpha=0.6)
    ax.stairs(shares, edges, label=label, linewidth=1.8, **line)
    ax.set(xlabel="probability of the token", ylabel="share of tokens", xlim=(0, 1))
    ax.set_ylim(bottom=0)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    if label is not None:
        ax.legend()
    return _titled(ax, title)


@takes_iterators
def cost_curve(ax, widths, seconds, *, low=None, high=None, mark=None, title=None):
    """Draw the time of one call against the number of tokens in it, beside what the same tokens cost one call each.

    Parameters
    ----------
    widths : array of ints, shape (n,)
        Tokens in a call, ascending.
    seconds : array of floats, shape (n,)
        Time of a call, in seconds (drawn in milliseconds).
    low, high : arrays of floats, shape (n,), optional
        The spread of the measurement (quartiles, say), drawn as a band.
    mark : int, optional
        A width to point out with its cost relative to the first.
    """
    widths, times = np.asarray(widths, dtype=float), 1000 * np.asarray(seconds, dtype=float)
    if widths.shape != times.shape or widths.ndim != 1 or not len(widths):
        raise ValueError(f"widths and seconds must be two lists of one length, got {widths.shape} and {times.shape}")
    if low is not None and high is not None:
        band = {"color": _pale(color("target")), "label": "spread", "linewidth": 0}
        ax.fill_between(widths, 1000 * np.asarray(low), 1000 * np.asarray(high), **band)
    one_each = times[0] / widths[0] * widths
    ax.plot(widths, times, marker="o", color=color("target"), label="all tokens in one call")
    ax.plot(widths, one_each, linestyle=LINES["neutral"], color=LIGHT["neutral"], label="one call for each token")
    ax.set(xlabel="tokens in the call", ylabel="time of the call (ms)")
    ax.set_xlim(0, widths[-1] * 1.04)
    ax.set_ylim(0, max(times.max() * 1.7, one_each[min(len(one_each) - 1, 1)] * 1.1))
    if mark is not None:
        at = int(np.flatnonzero(widths == mark)[0])
        note = f"{mark:g} tokens: {times[at] / times[0]:.1f} times the time of {widths[0]:g}"
        arrow = {"arrowstyle": "->", "color": LIGHT["text"]}
        ax.annotate(note, (mark, times[at]), (0.30, 0.12), textcoords="axes fraction", arrowprops=arrow)
    ax.legend(loc="upper right")
    return _titled(ax, title)


@takes_iterators
def token_strip(ax, tokens: Sequence[str], kinds: Sequence[str] | None = None, *, legend=True, title=None):
    """Draw tokens as a row of boxes, each in the colour, line and mark of what became of it; long rows are wrapped.

    The boxes fit the size that the axes have when this is called: give them about 0.35 inches of height for each row.

    Parameters
    ----------
    tokens : sequence of str
        The texts, in order.
    kinds : sequence of str, optional
        What each is: ``"target"``, ``"draft"``, ``"accepted"``, ``"rejected"``, ``"resampled"``, ``"neutral"`` for
        drafted but never judged, or ``"context"``, which all are by default.

    Raises
    ------
    ValueError
        If the lengths differ or a kind is not in the palette.
    """
    kinds = ["context"] * len(tokens) if kinds is None else list(kinds)
    if len(kinds) != len(tokens):
        raise ValueError(f"there must be one kind for each token, got {len(tokens)} tokens and {len(kinds)} kinds")
    for kind in kinds:
        check_kind(kind)
    # Data units: letters of the monospaced font across (0.602 of its size each), rows of 2.6 times its size down.
    size = 9.5
    inches = ax.get_window_extent().size / ax.figure.dpi
    across, down = 72 * inches[0] / (0.602 * size), 72 * inches[1] / (2.6 * size)
    x, row = 0.0, 0
    for text, kind in zip(tokens, kinds, strict=True):
        shown = f"{MARKS[kind]} {token_label(text, 24)}".strip()
        wide = len(shown) + 1.3
        if x and x + wide > across:
            x, row = 0.0, row + 1
        _box(ax, x, row, wide, kind)
        style = {"family": ["DejaVu Sans Mono", "DejaVu Sans"], "fontsize": size, "parse_math": False}
        ax.text(x + wide / 2, row + 0.4, shown, ha="center", va="center", zorder=3, **style)
        x += wide + 0.6
    rows = row + 1
    ax.set_xlim(-0.2, across)
    ax.set_ylim(max(rows, down) - 0.1, -0.1)
    ax.set_axis_off()
    used = [kind for kind in MARKS if kind in kinds]
    if legend and used not in ([], ["context"]):
        handles = [_swatch(kind) for kind in used]
        names = [f"{MARKS[kind]} {MEANINGS[kind]}".strip() for kind in used]
        place = {"loc": "upper left", "bbox_to_anchor": (0, 1 - rows / max(rows, down)), "borderaxespad": 0.2}
        ax.legend(handles, names, ncols=2, frameon=False, **place)
    return _titled(ax, title)


@takes_iterators
def roofline(
    ax, widths, *, bytes_moved, operations_per_token, bandwidth, operations_per_second, measured=None, title=None
):
    """Draw the time of a call by what bounds it: reading the weights, or computing with them.

    Reading takes `bytes_moved` / `bandwidth` however many tokens are in the call; computing takes its time for each
    token. A call cannot be faster than the slower of the two, and where the lines cross, tokens stop being free.

    Parameters
    ----------
    widths : array of ints
        Tokens in a call.
    bytes_moved : float
        Bytes read from memory in one call: the weights (and the cache, if it is large).
    operations_per_token : float
        Floating-point operations for one token, about twice the number of weights.
    bandwidth : float
        Bytes a second.
    operations_per_second : float
        What the processor reaches on large matrices.
    measured : array of floats, optional
        Seconds measured for each of `widths`.

    Raises
    ------
    ValueError
        If a quantity is not positive.
    """
    given = {
        "bytes_moved": bytes_moved,
        "operations_per_token": operations_per_token,
        "bandwidth": bandwidth,
        "operations_per_second": operations_per_second,
    }
    for name, value in given.items():
        if not value > 0:
            raise ValueError(f"{name} must be positive, got {value!r}")
    widths = np.asarray(widths, dtype=float)
    fine = np.geomspace(widths.min(), widths.max(), 200)
    reading = np.full_like(fine, 1000 * bytes_moved / bandwidth)
    computing = 1000 * operations_per_token * fine / operations_per_second
    bound = np.maximum(reading, computing)
    ax.plot(fine, bound, color=_pale(LIGHT["neutral"]), linewidth=7, solid_capstyle="round", label="no call is faster")
    ax.plot(fine, reading, color=color("target"), linestyle="-", linewidth=1.8, label="reading the weights")
    ax.plot(fine, computing, color=color("draft"), linestyle="--", linewidth=1.8, label="computing with them")
    if measured is not None:
        ax.plot(widths, 1000 * np.asarray(measured, dtype=float), "o", color=LIGHT["text"], label="measured")
    cross = bytes_moved / bandwidth * operations_per_second / operations_per_token
    if widths.min() < cross < widths.max():
        ax.axvline(cross, color=LIGHT["neutral"], linestyle=":", linewidth=1.2, zorder=0)
        style = {"rotation": 90, "va": "bottom", "ha": "right", "color": LIGHT["neutral"], "fontsize": 9.5}
        ax.text(cross, 0.04, f"even at {cross:.0f} tokens ", transform=ax.get_xaxis_transform(), **style)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    plain_numbers = FuncFormatter(lambda value, _: f"{value:g}")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(plain_numbers)
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.set(xlabel="tokens in the call", ylabel="time of the call (ms)")
    ax.legend(loc="upper left")
    return _titled(ax, title)


@takes_iterators
def probability_tree(ax, branches: Mapping[tuple, float], *, paths: Mapping[str, tuple] | None = None, title=None):
    """Draw continuations as a tree that grows to the right: probabilities on the edges, products at the leaves.

    Parameters
    ----------
    branches : mapping from tuple of str to float
        For each beginning, such as ``("the", "kite")``, the probability of its last token after the ones before it.
        Every beginning's own beginning must be in it too, except the empty one.
    paths : mapping from str to tuple of str, optional
        Continuations to point out, such as ``{"greedy": ("a", "cat"), "best": ("the", "kite")}``; each gets its own
        colour, line style and name at the leaf. At most three.

    Raises
    ------
    ValueError
        If a beginning's own beginning is missing, or a path is not in the tree.

    Examples
    --------
    >>> tree = {("a",): 0.6, ("b",): 0.4, ("a", "x"): 0.5, ("a", "y"): 0.5, ("b", "z"): 0.9, ("b", "x"): 0.1}
    >>> probability_tree(ax, tree, paths={"greedy": ("a", "x"), "best": ("b", "z")})          # doctest: +SKIP
    """
    branches = {tuple(prefix): float(prob) for prefix, prob in branches.items()}
    paths = {name: tuple(path) for name, path in (paths or {}).items()}
    for prefix in branches:
        if prefix[:-1] and prefix[:-1] not in branches:
            raise ValueError(f"{prefix!r} is in the tree, but its beginning {prefix[:-1]!r} is not")
    for name, path in paths.items():
        if path not in branches:
            raise ValueError(f"the path {name!r} is {path!r}, which is not in the tree")
    looks = list(zip(paths, (("target", "-"), ("resampled", "--"), ("draft", "-.")), strict=False))
    children = {prefix: [other for other in branches if other[:-1] == prefix] for prefix in [(), *branches]}
    heights: dict[tuple, float] = {}
    leaves = 0

    def place(prefix):
        nonlocal leaves
        if not children[prefix]:
            heights[prefix], leaves = -float(leaves), leaves + 1
            return
        for child in children[prefix]:
            place(child)
        heights[prefix] = (heights[children[prefix][0]] + heights[children[prefix][-1]]) / 2

    place(())
    depth = max(map(len, branches), default=0)
    for prefix, prob in branches.items():
        ends = (len(prefix) - 1, len(prefix)), (heights[prefix[:-1]], heights[prefix])
        ax.plot(*ends, color=LIGHT["line"], linewidth=1.6, zorder=1)
        for number, (name, (kind, dashes)) in enumerate(looks):
            if paths[name][: len(prefix)] == prefix:
                ax.plot(*ends, color=color(kind), linestyle=dashes, linewidth=3.2 - number * 0.6, zorder=2 + number)
        x, y = (0.42 * start + 0.58 * end for start, end in ends)
        ax.text(x, y, f"{prob:.2f}", ha="center", va="center", fontsize=9.5, zorder=6, bbox=_patch("white", 0.15))
    nodes = {(): "prompt", **{prefix: token_label(prefix[-1]) for prefix in branches}}
    for prefix, shown in nodes.items():
        ends_here = not children[prefix]
        x, y = len(prefix), heights[prefix]
        box = _patch("white", 0.3, LIGHT["neutral"])
        ax.text(x, y, shown, ha="center", va="center", zorder=7, bbox=box, parse_math=False)
        if ends_here:
            product = float(np.prod([branches[prefix[:i]] for i in range(1, len(prefix) + 1)]))
            ax.text(x + 0.28, y, f"{product:.3g}", ha="left", va="center")
            names = [(name, look) for name, look in looks if paths[name] == prefix]
            for number, (name, (kind, _)) in enumerate(names):
                place_of_name = {"ha": "left", "va": "center", "weight": "bold", "color": color(kind)}
                ax.text(x + 0.62 + 0.45 * number, y, f"◂ {name}", **place_of_name)
    ax.set_xlim(-0.35, depth + 1.15)
    ax.set_ylim(-leaves + 0.4, 0.9)
    ax.set_axis_off()
    ax.text(depth + 0.28, 0.55, "product", ha="left", va="bottom", fontsize=9.5, color=LIGHT["neutral"])
    for level in range(1, depth + 1):
        style = {"ha": "center", "va": "bottom", "fontsize": 9.5, "color": LIGHT["neutral"]}
        ax.text(level, 0.55, f"token {level}", **style)
    return _titled(ax, title)


@takes_iterators
def kv_cache_picture(ax, prompt: Sequence[str], new: Sequence[str], *, cached=True, title=None):
    """Draw what every call computes, one row a call, one column a token: with a key-value cache, or without one.

    Call 1 takes in the prompt; each later call takes in the token that the call before it chose. With the cache it
    computes only that token and reads the keys and values of the others; without it, it computes them all again.

    Parameters
    ----------
    prompt, new : sequences of str
        Texts of the tokens. The last new token is chosen by the last call and not taken in by any.
    cached : bool
        Which of the two pictures to draw.
    """
    tokens, first = [*prompt, *new], len(prompt)
    calls = max(len(new), 1)
    computed = 0
    for call in range(calls):
        length = first + call
        for place in range(length):
            fresh = not cached or call == 0 or place == length - 1
            computed += fresh
            kind = "target" if fresh else "neutral"
            face = color("target") if fresh else _pale(LIGHT["neutral"])
            hatch = HATCHES["accepted"] if not fresh else ""
            square = {"facecolor": face, "edgecolor": "white", "hatch": hatch, "linewidth": 1.2}
            ax.add_patch(Rectangle((place + 0.06, -call + 0.12), 0.88, 0.76, **square))
            if fresh:
                style = {"ha": "center", "va": "center", "color": "white", "fontsize": 9}
                ax.text(place + 0.5, -call + 0.5, MARKS[kind], **style)
        if length < len(tokens):
            border = {"facecolor": "white", "edgecolor": color("target"), "linestyle": ":", "linewidth": 1.4}
            ax.add_patch(Rectangle((length + 0.08, -call + 0.14), 0.84, 0.72, **border))
            ax.text(length + 0.5, -call + 0.5, "?", ha="center", va="center", color=color("target"), weight="bold")
    ax.set_xlim(0, len(tokens))
    ax.set_ylim(-calls + 0.95, 1.05)
    names = [token_label(text, 10) for text in tokens]
    upright = {"rotation": 40, "ha": "left", "rotation_mode": "anchor", "parse_math": False, "fontsize": 9.5}
    ax.set_xticks(np.arange(len(tokens)) + 0.5, names, **upright)
    ax.xaxis.tick_top()
    ax.set_yticks([-call + 0.5 for call in range(calls)], [f"call {call + 1}" for call in range(calls)])
    ax.tick_params(length=0)
    ax.grid(visible=False)
    for spine in ax.spines.values():
        spine.set_visible(False)
    way = "with a cache" if cached else "without a cache"
    ax.set_xlabel(f"{way}: {computed} tokens computed")
    handles = [Rectangle((0, 0), 1, 1, facecolor=color("target"), edgecolor="white")]
    names = ["● computed in this call"]
    if cached:
        handles.append(Rectangle((0, 0), 1, 1, facecolor=_pale(LIGHT["neutral"]), edgecolor="white", hatch="//"))
        names.append("read from the cache")
    handles.append(Rectangle((0, 0), 1, 1, facecolor="white", edgecolor=color("target"), linestyle=":"))
    names.append("? chosen by it")
    ax.legend(handles, names, loc="upper left", bbox_to_anchor=(0, -0.12), ncols=3, frameon=False)
    return _titled(ax, title)


# -------------------------------------------------------------------------------------------------------- small parts


def _titled(ax, title):
    if title:
        ax.set_title("\n".join(textwrap.wrap(str(title), 80)))
    return ax


def _probabilities(probs, tokens=None):
    probs = np.asarray(probs, dtype=float)
    if tokens is not None and probs.shape != (len(tokens),):
        raise ValueError(f"there must be one probability for each token, got {len(tokens)} tokens and {probs.shape}")
    if probs.size and not (np.isfinite(probs).all() and probs.min() >= 0 and probs.max() <= 1 + 1e-6):
        raise ValueError(f"probabilities must lie between 0 and 1, got {probs.min():g} to {probs.max():g}")
    return probs


def _share(value):
    """A probability in two decimals, or that it is smaller."""
    return "<0.01" if 0 < value < 0.005 else f"{value:.2f}"


def _pale(hue):
    """The colour mixed with three parts of white: as a fill behind dark text."""
    channels = [int(hue[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(0.25 * channel + 0.75 * 255):02x}" for channel in channels)


def _patch(face, pad, edge="none"):
    return {"boxstyle": f"round,pad={pad}", "facecolor": face, "edgecolor": edge, "linewidth": 1.0}


def _box(ax, x, y, size, kind):
    """A token's box: its colour at the border, pale inside, with the line style that goes with it."""
    style = {"facecolor": _pale(LIGHT[kind]), "edgecolor": LIGHT[kind], "linestyle": LINES[kind], "linewidth": 1.6}
    ax.add_patch(FancyBboxPatch((x, y), size, 0.8, boxstyle="round,pad=0,rounding_size=0.2", zorder=2, **style))


def _swatch(kind):
    style = {"facecolor": _pale(LIGHT[kind]), "edgecolor": LIGHT[kind], "linestyle": LINES[kind], "linewidth": 1.6}
    return Rectangle((0, 0), 1, 1, **style)
