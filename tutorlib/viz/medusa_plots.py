"""Figures about heads that guess ahead: what they guess, how often they are right, trees of ranks, sizes, thresholds.

Functions that take an axes, draw on it, and return it, as in `plots.py`. Nothing here runs a model or reads a clock:
guesses, accuracies and results come in. Trees of tokens and their masks are drawn by `draft_plots`.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ..arguments import takes_iterators
from .palette import HATCHES, LIGHT, LINES, MARKS, check_kind, color
from .plots import _box, _pale, _titled, token_label

_LETTER = 0.62  # width of a letter, in the data units of the drawings of boxes


@takes_iterators
def guesses(
    ax, text: Sequence[str], columns: Mapping[str, Sequence[tuple[str, float]]], said: Sequence[str], title=None
):
    """Draw what the heads guess at one place: a column for each head, over the place of the text that it guesses.

    Parameters
    ----------
    text : sequence of str
        The last tokens of the text.
    columns : mapping from names of heads to sequences of (token, probability)
        Their guesses, the likeliest first, in the order of the places: the model's own head first.
    said : sequence of str
        What came in these places: a guess that was right is marked ✓, the others ✗.

    Raises
    ------
    ValueError
        If there is not one token for each column.
    """
    if len(said) != len(columns):
        raise ValueError(f"there are {len(columns)} columns of guesses, but {len(said)} tokens that came")
    x = 0.0
    for token in text:
        wide = _width(token_label(token, 12))
        _box(ax, x, 0, wide, "context")
        _word(ax, x + wide / 2, 0.4, token_label(token, 12))
        x += wide + 0.2
    start, x = x - 0.2, x + 1.2
    rows = max(map(len, columns.values()))
    for place, ((name, column), came) in enumerate(zip(columns.items(), said, strict=True)):
        shown = [f"{MARKS[_fate(token, came)]} {token_label(token, 10)} {prob:.2f}" for token, prob in column]
        wide = max(_width(line) for line in [*shown, name])
        for row, ((token, _), line) in enumerate(zip(column, shown, strict=True)):
            _box(ax, x, 1.1 * row, wide, _fate(token, came))
            _word(ax, x + wide / 2, 1.1 * row + 0.4, line)
        head = {"ha": "center", "fontsize": 9, "color": LIGHT["target" if place == 0 else "draft"], "weight": "bold"}
        ax.text(x + wide / 2, -0.75, name, va="bottom", **head)
        ax.text(x + wide / 2, -0.65, f"t + {place + 1}", ha="center", va="top", fontsize=9, color=LIGHT["neutral"])
        x += wide + 0.45
    arrow = {"arrowstyle": "->", "color": LIGHT["text"], "linewidth": 1.6}
    ax.annotate("", (start + 1.25, 0.4), (start + 0.05, 0.4), arrowprops=arrow)
    ax.set_xlim(-0.3, x)
    ax.set_ylim(1.1 * rows, -1.6)
    ax.set_axis_off()
    return _titled(ax, title)


def _fate(token, came):
    return "accepted" if token == came else "rejected"


def _width(text):
    return _LETTER * len(text) + 0.9


def _word(ax, x, y, text, **style):
    look = {"family": ["DejaVu Sans Mono", "DejaVu Sans"], "fontsize": 9, "parse_math": False, "zorder": 4}
    ax.text(x, y, text, ha="center", va="center", **{**look, **style})


@takes_iterators
def accuracy_bars(
    ax, accuracies: Sequence[Sequence[float]], *, groups=(1, 3, 10), names: Sequence[str] = (), title=None
):
    """Draw how often each head's guesses are right: the best one, and how much the next ones add.

    Parameters
    ----------
    accuracies : sequence of sequences of floats
        ``accuracies[i][rank]``: how often head i's guess of that rank is the right token.
    groups : sequence of int
        Ranks are added up to each of these; at most four.
    names : sequence of str
        What to write below the bars; by default "head 0", "head 1", ...

    Raises
    ------
    ValueError
        If there are more groups than looks for them, or another number of names than heads.
    """
    kinds = ("accepted", "target", "draft", "neutral")
    names = list(names) or [f"head {head}" for head in range(len(accuracies))]
    if len(groups) > len(kinds):
        raise ValueError(f"there are looks for {len(kinds)} groups of ranks, got {len(groups)}")
    if len(names) != len(accuracies):
        raise ValueError(f"there are {len(accuracies)} heads, but {len(names)} names")
    places, start = np.arange(len(accuracies)), 0
    bottom = np.zeros(len(accuracies))
    for kind, end in zip(kinds, groups, strict=False):
        height = np.array([math.fsum(row[start:end]) for row in accuracies])
        label = "the best guess" if end == 1 else f"the next, up to the {_ordinal(end)}"
        look = {"facecolor": _pale(color(kind)), "edgecolor": color(kind), "hatch": HATCHES[kind], "linewidth": 1.3}
        bars = ax.bar(places, height, bottom=bottom, width=0.66, label=label, **look)
        for bar, part in zip(bars, height, strict=True):
            if part >= 0.04:
                box = {"boxstyle": "round,pad=0.12", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
                middle = bar.get_y() + part / 2
                place = bar.get_x() + bar.get_width() / 2
                ax.text(place, middle, f"{part:.2f}", ha="center", va="center", fontsize=9, bbox=box)
        bottom, start = bottom + height, end
    ax.set_xticks(places, names)
    ax.set(ylabel="share of places where it is right", ylim=(0, 1))
    ax.grid(axis="x", visible=False)
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    return _titled(ax, title)


def _ordinal(number):
    return {1: "1st", 2: "2nd", 3: "3rd"}.get(number, f"{number}th")


@takes_iterators
def rank_tree(ax, choices: Sequence[tuple[int, ...]], accuracies: Sequence[Sequence[float]] = (), *, title=None):
    """Draw a tree of ranks, from the root above down to the deepest guesses.

    Parameters
    ----------
    choices : sequence of tuples of int
        Paths of ranks, with every beginning of a path among them.
    accuracies : sequence of sequences of floats, optional
        How often each head's guess of each rank is right: the likelier a node, the larger it is drawn. What is likelier
        than the median of the nodes has the colour of what is accepted, the others that of drafts.
    """
    nodes = sorted({tuple(path) for path in choices})
    missing = [path for path in nodes if len(path) > 1 and path[:-1] not in nodes]
    if missing or not nodes:
        raise ValueError(f"a tree needs every beginning of its paths as a node; {missing or 'there are no nodes'}")
    children: dict[tuple, list[tuple]] = {}
    for path in nodes:
        children.setdefault(path[:-1], []).append(path)
    places, leaves = {}, 0

    def place(path):
        nonlocal leaves
        below = children.get(path, [])
        for child in below:
            place(child)
        if below:
            places[path] = (places[below[0]] + places[below[-1]]) / 2
        else:
            places[path], leaves = float(leaves), leaves + 1

    place(())
    chances = {path: _chance(path, accuracies) for path in nodes}
    middle = float(np.median(list(chances.values())))
    for path in nodes:
        ends = (places[path[:-1]], places[path]), (len(path) - 1, len(path))
        ax.plot(*ends, color=LIGHT["line"], linewidth=1.1, zorder=1)
    few = leaves <= 24
    for path in nodes:
        kind = "accepted" if accuracies and chances[path] >= middle else "draft"
        size = (220 if few else 90) * (0.35 + 0.65 * math.sqrt(chances[path]) if accuracies else 1.0)
        look = {"facecolor": _pale(color(kind)), "edgecolor": color(kind), "linestyle": LINES[kind], "linewidth": 1.4}
        ax.scatter([places[path]], [len(path)], s=size if few else size / 2.2, zorder=2, **look)
        if few:
            ax.text(places[path], len(path), str(path[-1]), ha="center", va="center", fontsize=8.5, zorder=3)
    ax.scatter([places[()]], [0], s=60, color=LIGHT["text"], zorder=2)
    deepest = max(map(len, nodes))
    ax.set_yticks(range(deepest + 1), ["text", *(f"head {head}" for head in range(deepest))])
    ax.set_xticks([])
    ax.set(xlim=(-0.8, leaves - 0.2), ylim=(deepest + 0.4, -0.4))
    ax.grid(visible=False)
    ax.spines["bottom"].set_visible(False)
    return _titled(ax, title)


def _chance(path, accuracies):
    """How often a whole path is right; 1 where nobody has measured it."""
    if not accuracies:
        return 1.0
    return math.prod(accuracies[head][rank] for head, rank in enumerate(path))


@takes_iterators
def size_curves(
    ax,
    lines: Mapping[str, Mapping[int, float]],
    marks: Mapping[str, Mapping[int, float]] | None = None,
    *,
    ylabel: str,
    best: int | None = None,
    level: float | None = None,
    title=None,
):
    """Draw something against the number of nodes in a tree, on an axis of powers of 2: foretold lines, measured marks.

    Parameters
    ----------
    lines, marks : mappings from names to mappings from nodes to values
        At most four of each.
    best : int, optional
        A size to be marked by a vertical line.
    level : float, optional
        A value to be marked by a horizontal line: what the plain loop has.
    """
    looks = [("target", "o"), ("draft", "s"), ("accepted", "^"), ("resampled", "D")]
    marks = marks or {}
    if max(len(lines), len(marks)) > len(looks):
        raise ValueError(f"there are looks for {len(looks)} curves, got {len(lines)} lines and {len(marks)} of marks")
    for (kind, _), (name, values) in zip(looks, lines.items(), strict=False):
        ax.plot(list(values), list(values.values()), color=color(kind), linestyle=LINES[kind], label=name)
    for (kind, mark), (name, values) in zip(looks, marks.items(), strict=False):
        look = {"marker": mark, "linestyle": "none", "markersize": 8, "markeredgecolor": "white", "zorder": 4}
        ax.plot(list(values), list(values.values()), color=color(kind), **look, label=name)
    if level is not None:
        ax.axhline(level, color=LIGHT["text"], linewidth=1.2, linestyle=":", label="plain loop")
    if best is not None:
        ax.axvline(best, color=LIGHT["accepted"], linewidth=1.6, linestyle="--", label=f"the best: {best} nodes")
    ax.set_xscale("log", base=2)
    sizes = sorted({size for values in [*lines.values(), *marks.values()] for size in values})
    ticks = [2**power for power in range(12) if sizes[0] <= 2**power <= sizes[-1]]
    ax.set_xticks(ticks, [str(tick) for tick in ticks])
    ax.minorticks_off()
    ax.set(xlabel="nodes in the tree", ylabel=ylabel)
    ax.legend()
    return _titled(ax, title)


@takes_iterators
def threshold_curves(
    ax,
    curves: Mapping[str, tuple[float, float]],
    points: Mapping[str, Sequence[tuple[float, float]]] | None = None,
    *,
    most: float = 5.0,
    title=None,
):
    """Draw what typical acceptance asks of a candidate's probability, against the target's entropy.

    Parameters
    ----------
    curves : mapping from names to (epsilon, delta)
        min(ε, δ·exp(-H)), one curve each; at most four.
    points : mapping from kinds of the palette to sequences of (entropy in nats, probability)
        Candidates, each with what became of it. A probability below 0.0001 is drawn there.
    most : float
        How far the axis of entropies goes.
    """
    looks = ["text", "resampled", "target", "draft"]
    if len(curves) > len(looks):
        raise ValueError(f"there are looks for {len(looks)} curves, got {len(curves)}")
    least = 1e-4
    for kind, found in (points or {}).items():
        check_kind(kind)
        marker = {"accepted": "o", "rejected": "x"}.get(kind, "s")
        face = {"facecolors": "none", "edgecolors": color(kind)} if marker != "x" else {"color": color(kind)}
        xs, ys = [entropy for entropy, _ in found], [max(prob, least) for _, prob in found]
        ax.scatter(xs, ys, marker=marker, s=22, linewidths=1.1, alpha=0.75, label=f"{MARKS[kind]} {kind}", **face)
    entropies = np.linspace(0, most, 201)
    for name, style, (label, (epsilon, delta)) in zip(looks, ("-", "--", ":", "-."), curves.items(), strict=False):
        asked = np.minimum(epsilon, delta * np.exp(-entropies))
        ax.plot(entropies, asked, color=LIGHT[name], linestyle=style, linewidth=2.4, label=label, zorder=4)
    ax.set_yscale("log")
    ax.set(xlabel="entropy of the target (nats)", ylabel="probability of the candidate")
    ax.set(xlim=(-0.05, most), ylim=(least / 1.5, 1.5))
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    return _titled(ax, title)


@takes_iterators
def learning_curves(ax, steps: Sequence[int], curves: Mapping[str, Sequence[float]], *, ylabel: str, title=None):
    """Draw figures of a training run against its steps.

    Parameters
    ----------
    steps : sequence of int
    curves : mapping from names to sequences of floats, one for each step
        At most six.

    Raises
    ------
    ValueError
        If there are more curves than looks for them, or a curve has another length than `steps`.
    """
    kinds = ("target", "draft", "accepted", "rejected", "resampled", "bonus")
    if len(curves) > len(kinds):
        raise ValueError(f"there are looks for {len(kinds)} curves, got {len(curves)}")
    for kind, marker, (name, values) in zip(kinds, "osD^v*", curves.items(), strict=False):
        if len(values) != len(steps):
            raise ValueError(f"{name!r} has {len(values)} values for {len(steps)} steps")
        look = {"marker": marker, "markersize": 4.5, "linestyle": LINES[kind], "color": color(kind)}
        look["markevery"] = max(1, len(steps) // 10)  # a mark at every step would hide the line
        ax.plot(list(steps), list(values), **look, label=name)
    ax.set(xlabel="training steps", ylabel=ylabel)
    if len(curves) > 1:
        ax.legend()
    return _titled(ax, title)
