"""Figures about speculative decoding: calls in time, two distributions and what they share, speed by γ, hard tokens.

Functions that take an axes, draw on it, and return it, as in `plots.py`. Nothing here runs a model or reads a clock:
times, probabilities and results come in.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.patches import FancyBboxPatch, Patch, Rectangle

from ..arguments import takes_iterators
from .palette import HATCHES, LIGHT, LINES, MARKS, check_kind, color
from .plots import _pale, _probabilities, _titled, token_label


@takes_iterators
def call_timeline(ax, lanes: Mapping[str, Sequence[tuple[float, str, str]]], *, ends=True, unit="ms", title=None):
    """Draw calls one after the other, a lane for each way to make a text: how long each takes is how wide its box is.

    Parameters
    ----------
    lanes : mapping from str to sequence of (duration, kind, text)
        For each lane its calls in order: how long it takes, whose it is ("target" or "draft", or another kind of the
        palette), and what to write on it. What does not fit on its box is written below, in a row with its neighbours.
    ends : bool
        Whether to write at each lane's end when it is done.
    unit : str
        Of the durations.

    Raises
    ------
    ValueError
        If a duration is not above 0, or a kind is not in the palette.
    """
    used = []
    longest = max((sum(duration for duration, _, _ in calls) for calls in lanes.values()), default=1.0)
    for row, calls in enumerate(lanes.values()):
        start, below = 0.0, []  # below: the texts that did not fit, and where the first of them should have been
        for duration, kind, text in calls:
            check_kind(kind)
            if not duration > 0:
                raise ValueError(f"a call must take some time, got {duration!r} for {text!r}")
            used.append(kind)
            look = {"facecolor": _pale(color(kind)), "edgecolor": color(kind), "linestyle": LINES[kind]}
            ax.add_patch(Rectangle((start, row - 0.32), duration, 0.64, linewidth=1.6, **look))
            shown = " ".join(token_label(word, 22) for word in text.split(" "))
            if len(shown) * 0.0115 <= duration / longest:
                style = {"ha": "center", "va": "center", "fontsize": 9.5, "parse_math": False}
                ax.text(start + duration / 2, row, shown, **style)
            else:
                below.append((start, shown))
            start += duration
        if below:
            style = {"ha": "left", "va": "top", "fontsize": 9.5, "parse_math": False}
            ax.text(below[0][0], row + 0.36, " · ".join(shown for _, shown in below), **style)
        if ends:
            ax.text(start + 0.012 * longest, row, f"{start:.1f} {unit}", va="center", weight="bold")
    ax.set_yticks(range(len(lanes)), list(lanes))
    ax.set(xlabel=f"time ({unit})", xlim=(0, 1.13 * longest if ends else longest), ylim=(len(lanes) - 0.35, -0.5))
    ax.grid(axis="y", visible=False)
    kinds = [kind for kind in LINES if kind in used]
    names = {"target": "one call of the target", "draft": "one call of the draft"}
    handles = [Patch(facecolor=_pale(color(k)), edgecolor=color(k), linestyle=LINES[k], linewidth=1.6) for k in kinds]
    labels = [f"{MARKS[kind]} {names.get(kind, kind)}" for kind in kinds]
    ax.legend(handles, labels, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=len(kinds), frameon=False)
    return _titled(ax, title)


@takes_iterators
def overlap_bars(ax, tokens: Sequence[str], target_probs, draft_probs, *, top=10, legend=True, title=None):
    """Draw what target and draft have in common, and what each has more: accepted, rejected, resampled.

    Each token has one bar. Its lower part is min(p, q), what is drafted and accepted. What comes on top is either what
    the draft has more, drafted and rejected, or what the target has more, resampled. A dot marks p, a diamond q.

    Parameters
    ----------
    tokens : sequence of str, length n
        The texts.
    target_probs, draft_probs : arrays of floats, shape (n,)
        p and q; each sums to 1.
    top : int
        How many tokens to draw at most: those with the largest max(p, q), in their own order if these are all, else
        sorted by p. What is below 0.005 is left out; the sums in the legend are over all tokens.
    legend : bool
        Whether to say below what is what, with the sums.

    Raises
    ------
    ValueError
        If the lengths differ or a row does not sum to 1.
    """
    rows = []
    for name, probs in (("target", target_probs), ("draft", draft_probs)):
        probs = _probabilities(probs, tokens)
        if abs(probs.sum() - 1) > 1e-4:
            raise ValueError(f"the probabilities of the {name} must sum to 1, got {probs.sum():g}")
        rows.append(probs)
    ours, theirs = rows
    larger = np.maximum(ours, theirs)
    shown = np.argsort(-larger, kind="stable")[:top]
    shown = shown[larger[shown] >= 0.005]  # lower bars would not be seen
    shown = np.sort(shown) if len(tokens) <= top else shown[np.argsort(-ours[shown], kind="stable")]
    common = np.minimum(ours, theirs)
    parts = {  # kind -> (from where, how much, what it says)
        "accepted": (np.zeros_like(ours), common, "min(p, q): drafted and accepted"),
        "rejected": (common, theirs - common, "q above p: drafted and rejected"),
        "resampled": (common, ours - common, "p above q: resampled"),
    }
    places = np.arange(len(shown))
    for kind, (bottom, height, words) in parts.items():
        look = {"facecolor": _pale(color(kind)), "edgecolor": color(kind), "hatch": HATCHES[kind], "linewidth": 1.3}
        label = f"{MARKS[kind]} {words}, together {height.sum():.2f}"
        some = height[shown] > 0
        ax.bar(places[some], height[shown][some], bottom=bottom[shown][some], width=0.72, label=label, **look)
    for probs, kind, marker, letter in ((ours, "target", "o", "p"), (theirs, "draft", "D", "q")):
        look = {"marker": marker, "linestyle": "none", "markersize": 6, "markeredgecolor": "white"}
        ax.plot(places, probs[shown], color=color(kind), **look, label=f"{letter}, the {kind}'s probability", zorder=4)
    names = [token_label(tokens[token]) for token in shown]
    ax.set_xticks(places, names, parse_math=False)
    ax.set(ylabel="probability", ylim=(0, 1.08 * max(ours.max(), theirs.max())))
    ax.grid(axis="x", visible=False)
    if legend:
        ax.legend(loc="upper left", bbox_to_anchor=(0, -0.16), ncols=1, frameon=False)
    return _titled(ax, title)


@takes_iterators
def expected_curves(
    ax, curves: Mapping[str, Sequence[float]], measured: Mapping[str, Mapping[int, float]] | None = None, *, title=None
):
    """Draw the expected tokens of a round against γ, and beside them what was measured.

    Parameters
    ----------
    curves : mapping from names to sequences of floats
        Tokens of a round for γ = 1, 2, 3, ...; at most five curves.
    measured : mapping from names to mappings from γ to float, optional
        Measured, at most two: marks without a line.

    Raises
    ------
    ValueError
        If there are more curves, or more that is measured, than looks for them.
    """
    dashes = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
    looks = (("o", "accepted"), ("s", "resampled"))
    measured = measured or {}
    if len(curves) > len(dashes) or len(measured) > len(looks):
        raise ValueError(
            f"there are looks for {len(dashes)} curves and {len(looks)} measurements, got {len(curves)} and "
            f"{len(measured)}"
        )
    for dash, (name, tokens) in zip(dashes, curves.items(), strict=False):
        ax.plot(range(1, len(tokens) + 1), tokens, linestyle=dash, color=LIGHT["neutral"], linewidth=1.8)
        ax.annotate(name, (len(tokens), tokens[-1]), (5, 0), textcoords="offset points", va="center", fontsize=9.5)
    for (marker, kind), (name, tokens) in zip(looks, measured.items(), strict=False):
        look = {"marker": marker, "linestyle": "none", "markersize": 8, "markeredgecolor": "white"}
        ax.plot(list(tokens), list(tokens.values()), color=color(kind), **look, label=name, zorder=4)
    most = max(map(len, curves.values()))
    ax.set(xlabel="γ: tokens drafted in a round", ylabel="tokens for each call of the target")
    ax.set(xlim=(0.5, most * 1.13), ylim=(0, None))
    ax.set_xticks(range(1, most + 1))
    if measured:
        ax.legend(loc="upper left")
    return _titled(ax, title)


@takes_iterators
def time_by_gamma(ax, results: Sequence, *, formula: Mapping[int, float] | None = None, title=None):
    """Draw the time of a token by γ as bars, beside the plain loop and what was predicted; lower is faster.

    Parameters
    ----------
    results : sequence of `tutorlib.bench.GammaResult`
        Each with `gamma`; `over_plain`, how many times as fast as the plain loop (median, low, high); and `predicted`,
        the same from the measured cost of calls.
    formula : mapping from γ to float, optional
        A second prediction, as a speed-up too.
    """
    gammas = np.array([result.gamma for result in results])
    heights = np.array([1 / result.over_plain.median for result in results])
    # The fastest quartile is the lower end of the bar's whisker.
    ends = np.array([[1 / result.over_plain.high, 1 / result.over_plain.low] for result in results]).T
    whiskers = np.clip([heights - ends[0], ends[1] - heights], 0, None)
    best = int(heights.argmin())
    faces = [color("accepted") if place == best else _pale(color("accepted")) for place in range(len(gammas))]
    bars = ax.bar(gammas, heights, width=0.74, color=faces, edgecolor=color("accepted"), linewidth=1.2)
    for place, bar in enumerate(bars):
        bar.set_hatch("" if place == best else HATCHES["accepted"])
    ax.errorbar(gammas, heights, yerr=whiskers, fmt="none", ecolor=LIGHT["text"], elinewidth=1.4, capsize=3)
    for gamma, result in zip(gammas, results, strict=True):
        style = {"ha": "center", "va": "bottom", "fontsize": 8.5, "weight": "bold"}
        box = {"boxstyle": "round,pad=0.12", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
        ax.text(gamma, 0.02, f"{result.over_plain.median:.2f}×", **style, bbox=box)
    ax.axhline(1, color=color("target"), linewidth=2.2, label="plain loop")
    predicted = [1 / result.predicted for result in results]
    look = {"linestyle": "--", "color": color("draft"), "markeredgecolor": "white"}
    ax.plot(gammas, predicted, marker="D", **look, label="predicted, measured cost of calls")
    if formula is not None:
        look = {"linestyle": ":", "color": color("resampled"), "linewidth": 2.2}
        times = [1 / factor for factor in formula.values()]
        ax.plot(list(formula), times, **look, label="predicted, every call of the target costs the same")
    ax.set(xlabel="γ: tokens drafted in a round", ylabel="time of a token (plain loop = 1)")
    ax.set_ylim(0, 1.12 * max(1.0, heights.max(), *predicted))
    ax.set_xticks(gammas)
    ax.grid(axis="x", visible=False)
    ax.legend(loc="upper left", bbox_to_anchor=(0, -0.16), ncols=1, frameon=False)
    return _titled(ax, title)


@takes_iterators
def kind_bars(ax, rows: Mapping[str, Mapping[str, Mapping]], *, y="acceptance", title=None):
    """Draw a figure for each kind of token, one bar for each way to decode, with its interval.

    Parameters
    ----------
    rows : mapping from names of ways to mappings from kinds of tokens to figures
        At most two ways; the kinds of the first are drawn, from above, with the number of their places.
    y : str
        Which figure: a share from 0 to 1. ``y_interval``, if it is there, is drawn as a whisker.
    """
    if not 1 <= len(rows) <= 2:
        raise ValueError(f"there are looks for two ways to decode, got {len(rows)}")
    kinds = list(next(iter(rows.values())))
    looks = (
        {"color": color("accepted"), "edgecolor": "white"},
        {"color": _pale(color("accepted")), "edgecolor": color("accepted"), "hatch": HATCHES["accepted"]},
    )
    thick = 0.8 / len(rows)
    for number, (look, (name, figures)) in enumerate(zip(looks, rows.items(), strict=False)):
        places = np.arange(len(kinds)) + (number - (len(rows) - 1) / 2) * thick
        values = np.array([figures[kind][y] for kind in kinds])
        ax.barh(places, values, height=0.92 * thick, label=name, linewidth=0.9, **look)
        if all(f"{y}_interval" in figures[kind] for kind in kinds):
            ends = np.array([figures[kind][f"{y}_interval"] for kind in kinds]).T
            spread = np.clip([values - ends[0], ends[1] - values], 0, None)
            ax.errorbar(values, places, xerr=spread, fmt="none", ecolor=LIGHT["text"], elinewidth=1.2, capsize=2)
    counts = [next(iter(rows.values()))[kind].get("places") for kind in kinds]
    names = [kind if count is None else f"{kind} ({count})" for kind, count in zip(kinds, counts, strict=True)]
    ax.set_yticks(range(len(kinds)), names)
    ax.set(xlim=(0, 1.02), ylim=(len(kinds) - 0.45, -0.55))
    ax.grid(axis="y", visible=False)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, frameon=False)
    return _titled(ax, title)


@takes_iterators
def acceptance_text(ax, tokens: Sequence[str], acceptance, *, hard=0.5, title=None):
    """Draw a text whose tokens are the darker, the less probable it is that one drafted in their place is accepted.

    The boxes fit the size that the axes have when this is called. Below `hard` a token also has a dashed border and the
    mark of a rejected one.

    Parameters
    ----------
    tokens : sequence of str
        The texts, in order.
    acceptance : array of floats, shape (n,)
        Σ min(p, q) at each.
    hard : float
        Below this a token is marked.
    """
    acceptance = _probabilities(acceptance, tokens)
    size = 9.5
    inches = ax.get_window_extent().size / ax.figure.dpi
    across, down = 72 * inches[0] / (0.602 * size), 72 * inches[1] / (2.4 * size)
    x, row = 0.0, 0
    hue = np.array([int(color("rejected")[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    for text, share in zip(tokens, acceptance, strict=True):
        is_hard = share < hard
        shown = (f"{MARKS['rejected']} " if is_hard else "") + token_label(text, 20)
        wide = len(shown) + 0.9
        if x and x + wide > across:
            x, row = 0.0, row + 1
        face = 1 - (1 - hue) * 0.55 * (1 - share)
        border = {"edgecolor": color("rejected") if is_hard else LIGHT["line"], "linewidth": 1.5 if is_hard else 0.8}
        box = {"boxstyle": "round,pad=0,rounding_size=0.15", "linestyle": "--" if is_hard else "-", **border}
        ax.add_patch(FancyBboxPatch((x, row), wide, 0.78, facecolor=tuple(face), zorder=2, **box))
        style = {"family": ["DejaVu Sans Mono", "DejaVu Sans"], "fontsize": size, "parse_math": False}
        ax.text(x + wide / 2, row + 0.39, shown, ha="center", va="center", zorder=3, **style)
        x += wide + 0.25
    rows = row + 1
    ax.set_xlim(-0.2, across)
    ax.set_ylim(max(rows, down) - 0.1, -0.1)
    ax.set_axis_off()
    shades = [tuple(1 - (1 - hue) * 0.55 * (1 - share)) for share in (1, 0.6, 0.1)]
    handles = [Patch(facecolor=shade, edgecolor=LIGHT["line"]) for shade in shades[:2]]
    handles.append(Patch(facecolor=shades[2], edgecolor=color("rejected"), linestyle="--"))
    names = ["always accepted", "accepted in 60 %", f"{MARKS['rejected']} accepted in less than {100 * hard:g} %"]
    place = {"loc": "upper left", "bbox_to_anchor": (0, 1 - rows / max(rows, down)), "borderaxespad": 0.2}
    ax.legend(handles, names, ncols=3, frameon=False, **place)
    return _titled(ax, title)
