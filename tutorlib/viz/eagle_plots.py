"""Figures about EAGLE: what goes into a draft step and comes out, trees of one step, acceptance by place, costs.

Functions that take an axes, draw on it, and return it, as in `plots.py`. Nothing here runs a model or reads a clock:
tokens, trees, probabilities and results come in.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.patches import FancyBboxPatch

from ..arguments import takes_iterators
from ..tree import ROOT, TokenTree
from .draft_plots import token_tree
from .palette import HATCHES, LIGHT, LINES, MARKS, check_kind, color
from .plots import _box, _pale, _titled, token_label

_LETTER = 0.62  # width of a letter, in the data units of the drawings of boxes
# Looks of curves and rows in their order: kind and marker. What these stand for elsewhere does not matter there.
_LOOKS = (("target", "o"), ("draft", "s"), ("resampled", "^"), ("accepted", "D"), ("bonus", "v"), ("rejected", "*"))


@takes_iterators
def draft_step(
    ax, text: Sequence[str], drafted: Sequence[tuple[str, float]], *, fused: Sequence[int] = (), kept=None, title=None
):
    """Draw how a network drafts, a column for each place: a feature and the token after it go in, a guess comes out.

    Read a column from below. Where the target has been, the feature is its own; further on both are the network's.

    Parameters
    ----------
    text : sequence of str
        The last tokens of the text. Each stands beside the feature of the token before it.
    drafted : sequence of (str, float)
        What the network guesses after the text, one after the other, and how probable it thinks each. The first comes
        from the text's last column; the last goes in nowhere.
    fused : sequence of int
        EAGLE-3: the layers of which features go in; without them EAGLE-1 is drawn.
    kept : int, optional
        How many of the guesses the target accepts; by default nothing is said of it.

    Raises
    ------
    ValueError
        Without a text or a guess; for more kept than drafted.
    """
    if not text or not drafted:
        raise ValueError(f"a draft step needs tokens of a text and guesses, got {len(text)} and {len(drafted)}")
    if kept is not None and not 0 <= kept <= len(drafted):
        raise ValueError(f"of {len(drafted)} guesses from 0 to {len(drafted)} can be kept, got {kept}")
    fates = ["draft"] * len(drafted)
    if kept is not None:
        fates = ["accepted"] * kept + ["rejected"] + ["neutral"] * len(drafted)
    guesses = [f"{MARKS[fate]} {token_label(token, 12)}" for fate, (token, _) in zip(fates, drafted, strict=False)]
    tokens = [token_label(token, 12) for token in [*text, *(token for token, _ in drafted[:-1])]]
    wide = max(_LETTER * max(map(len, [*tokens, *guesses])) + 0.9, 3.4 if fused else 2.6)
    step, last = wide + 1.8, len(text) - 1
    state, reads = (r"\hat a", "own norm and head") if fused else (r"\hat f", "the target's head")
    feature = 1.6 if fused else 0.0
    token_at, band, out, head, guess = feature + 1.0, feature + 2.5, feature + 3.9, feature + 5.2, feature + 6.4
    right = step * (len(tokens) - 1) + wide
    for y, name, own in ((band, "draft network: one layer", True), (head, reads, bool(fused))):
        look = {"facecolor": LIGHT["surface"], "edgecolor": LIGHT["draft" if own else "target"], "linewidth": 1.4}
        style = "round,pad=0,rounding_size=0.2"
        # What goes round from one column to the next passes behind.
        ax.add_patch(FancyBboxPatch((-0.4, y), right + 0.8, 0.7, boxstyle=style, zorder=2, **look))
        ax.text(right / 2, y + 0.35, name, ha="center", va="center", fontsize=9.5, weight="bold", zorder=4)
    for column, token in enumerate(tokens):
        x, middle, ours = column * step, column * step + wide / 2, column > last
        pair = {"facecolor": LIGHT["surface"], "edgecolor": LIGHT["line"], "linewidth": 1.0, "zorder": 1.5}
        ax.add_patch(FancyBboxPatch((x - 0.15, feature - 0.15), wide + 0.3, 2.1, boxstyle="round,pad=0", **pair))
        if fused and not ours:
            each = wide / len(fused)
            for part, letter in zip(range(len(fused)), "lmhijk", strict=False):
                _box(ax, x + part * each + 0.05, 0, each - 0.1, "target")
                _formula(ax, x + (part + 0.5) * each, 0.4, letter, place=None)
            ax.text(middle + 0.25, 1.13, "fc", ha="left", va="center", fontsize=8.5, color=LIGHT["neutral"])
            _arrow(ax, (middle, 0.82), (middle, feature - 0.17))
        _box(ax, x, feature, wide, "draft" if ours else "target")
        _formula(ax, middle, feature + 0.4, state if ours else "g" if fused else "f", place=column - last)
        _box(ax, x, token_at, wide, "draft" if ours else "context")
        _word(ax, middle, token_at + 0.4, token)
        _arrow(ax, (middle, token_at + 0.97), (middle, band - 0.03))
        _arrow(ax, (middle, band + 0.72), (middle, out - 0.03))
        _box(ax, x, out, wide, "draft")
        _formula(ax, middle, out + 0.4, state, place=column - last + 1)
        if column < last:
            continue
        number = column - last
        _arrow(ax, (middle, out + 0.82), (middle, head - 0.03))
        _arrow(ax, (middle, head + 0.72), (middle, guess - 0.03))
        _box(ax, x, guess, wide, fates[number])
        _word(ax, middle, guess + 0.4, guesses[number])
        ax.text(middle, guess + 0.9, f"{drafted[number][1]:.2f}", ha="center", va="bottom", fontsize=9)
        if column + 1 < len(tokens):
            # What comes out goes in again, one column on: the feature as the feature, the token as the token.
            for y, into, bend in ((out, feature, 0.5), (guess, token_at, 1.05)):
                corners = [(x + wide, y + 0.4), (x + wide + bend, y + 0.4), (x + wide + bend, into + 0.4)]
                _pipe(ax, corners, (x + step, into + 0.4))
    lines = [(feature, "fused" if fused else "feature"), (token_at, "next token")]
    lines += [(out, "state" if fused else "guessed feature"), (guess, "guessed token")]
    lines += [(0, "layers " + ", ".join(map(str, fused)))] if fused else []
    for y, name in lines:
        ax.text(-0.8, y + 0.4, name, ha="right", va="center", fontsize=9, color=LIGHT["neutral"])
    ax.set_xlim(-0.8 - 0.5 * max(len(name) for _, name in lines), right + 0.6)
    ax.set_ylim(-0.3, guess + 1.6)
    ax.set_axis_off()
    return _titled(ax, title)


def _formula(ax, x, y, letter, *, place):
    """A letter with its place, counted from the last feature that the target has given: $f_{t+1}$ for 1."""
    below = "" if place is None else "_{t}" if place == 0 else f"_{{t{place:+d}}}"
    ax.text(x, y, f"${letter}{below}$", ha="center", va="center", fontsize=10.5, zorder=4)


def _word(ax, x, y, text):
    look = {"family": ["DejaVu Sans Mono", "DejaVu Sans"], "fontsize": 9, "parse_math": False, "zorder": 4}
    ax.text(x, y, text, ha="center", va="center", **look)


def _arrow(ax, start, end):
    ax.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": LIGHT["text"], "linewidth": 1.2, "shrinkA": 0,
                                            "shrinkB": 0})  # fmt: skip


def _pipe(ax, corners, end):
    """A line round corners that ends as an arrow."""
    ax.plot(*zip(*corners, strict=True), color=LIGHT["draft"], linewidth=1.4, zorder=1.8)
    look = {"arrowstyle": "->", "color": LIGHT["draft"], "linewidth": 1.4, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", end, corners[-1], arrowprops=look)


@takes_iterators
def fates(tree: TokenTree, path: Sequence[int]) -> list[str]:
    """What became of each node of a tree, as kinds of the palette.

    On the path: accepted. Beside it, where another token was drawn: rejected. Below those nobody looked: neutral.

    Examples
    --------
    >>> fates(TokenTree([5, 6, 7, 8], [-1, -1, 0, 1]), [0])
    ['accepted', 'rejected', 'rejected', 'neutral']
    """
    on, seen = set(path), {ROOT, *path}
    return [
        "accepted" if node in on else "rejected" if parent in seen else "neutral"
        for node, parent in enumerate(tree.parents)
    ]


@takes_iterators
def drafted_tree(
    ax,
    tree: TokenTree,
    names: Sequence[str],
    chances: Sequence[float],
    *,
    path: Sequence[int] | None = None,
    own="",
    root="",
    title=None,
):
    """Draw a drafted tree to the right: tokens, how probable the network thinks each path, and what the target takes.

    Parameters
    ----------
    tree : TokenTree
    names : sequence of str
        The text of each node.
    chances : sequence of floats
        The probability of the path that ends in each node, as the network has it.
    path : sequence of int, optional
        The nodes that were accepted; by default nothing is said of what became of them.
    own : str
        The target's own token after them, which is added in the tree where it comes.
    root : str
        What the tree hangs on.

    Raises
    ------
    ValueError
        If there is not one name and one probability for each node.
    """
    if not len(tree) == len(names) == len(chances):
        raise ValueError(f"a tree of {len(tree)} nodes; got {len(names)} names and {len(chances)} probabilities")
    kinds = ["draft"] * len(tree) if path is None else fates(tree, path)
    names, notes = list(names), [f"{chance:.2f}" for chance in chances]
    if own:
        last = path[-1] if path else ROOT
        # Where candidates hung, they were wrong, or it would have been one of them; where none did, it comes for free.
        kinds, names, notes = [*kinds, "resampled" if tree.children(last) else "bonus"], [*names, own], [*notes, ""]
        tree = TokenTree([*tree.tokens, -1], [*tree.parents, last])
    return token_tree(ax, tree, names, kinds=kinds, notes=notes, root=root, title=title)


@takes_iterators
def tree_shape(ax, tree: TokenTree, chances: Sequence[float], *, path: Sequence[int] = (), most=None, title=None):
    """Draw the shape of a tree too large for its tokens, downwards; the more probable a path, the larger its end.

    Parameters
    ----------
    tree : TokenTree
    chances : sequence of floats
        The probability of the path that ends in each node, as the network has it.
    path : sequence of int
        The nodes that were accepted: green, joined by a thick line.
    most : int, optional
        Levels to leave room for, so that two trees can be compared; by default as many as there are.
    """
    if len(tree) != len(chances):
        raise ValueError(f"a tree of {len(tree)} nodes needs as many probabilities, got {len(chances)}")
    places, leaves = {}, 0

    def place(node):
        nonlocal leaves
        below = tree.children(node)
        for child in below:
            place(child)
        if below:
            places[node] = (places[below[0]] + places[below[-1]]) / 2
        else:
            places[node], leaves = float(leaves), leaves + 1

    place(ROOT)
    accepted = set(path)
    for node, parent in enumerate(tree.parents):
        kept = node in accepted
        look = {"color": LIGHT["accepted" if kept else "line"], "linewidth": 3 if kept else 1.1}
        depth = tree.depths[node]
        ax.plot((places[parent], places[node]), (depth, depth + 1), zorder=1 if not kept else 2, **look)
    for node, chance in enumerate(chances):
        kind = "accepted" if node in accepted else "draft"
        look = {"facecolor": _pale(color(kind)), "edgecolor": color(kind), "linewidth": 1.2}
        size = (14 + 150 * math.sqrt(chance)) * min(1.0, 24 / leaves)
        ax.scatter([places[node]], [tree.depths[node] + 1], s=size, zorder=3, **look)
    ax.scatter([places[ROOT]], [0], s=60, color=LIGHT["text"], zorder=3)
    deepest = max(1 + max(tree.depths, default=0), most or 0)
    ax.set_yticks(range(deepest + 1), ["text", *map(str, range(1, deepest + 1))])
    ax.set_xticks([])
    ax.set(xlim=(-0.8, leaves - 0.2), ylim=(deepest + 0.5, -0.5), ylabel="level")
    ax.grid(visible=False)
    ax.spines["bottom"].set_visible(False)
    return _titled(ax, title)


@takes_iterators
def training_curves(ax, steps: Sequence[int], rows: Mapping[str, Sequence[float]], *, ylabel: str, title=None):
    """Draw shares by training step, one curve for each way to train, with the looks of `place_bars`.

    Parameters
    ----------
    steps : sequence of int
    rows : mapping from names to sequences of floats from 0 to 1, one for each step
        At most six.

    Raises
    ------
    ValueError
        If there are more rows than looks for them, or one has another length than `steps`.
    """
    _check_looks(rows)
    for (kind, marker), (name, shares) in zip(_LOOKS, rows.items(), strict=False):
        if len(shares) != len(steps):
            raise ValueError(f"{name!r} has {len(shares)} values for {len(steps)} steps")
        look = {"color": color(kind), "linestyle": LINES[kind], "marker": marker, "markersize": 6}
        ax.plot(list(steps), list(shares), markeredgecolor="white", **look, label=name)
    ax.set(xlabel="training steps", ylabel=ylabel, ylim=(0, 1))
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    return _titled(ax, title)


@takes_iterators
def place_bars(
    ax, rows: Mapping[str, Sequence[float]], *, ylabel: str, bounds=None, xlabel="guess", first=1, title=None
):
    """Draw shares by place in the draft as groups of bars, one bar for each row.

    Parameters
    ----------
    rows : mapping from names to sequences of floats from 0 to 1
        For the first place, the second, ...; at most six rows. Nothing is drawn for NaN.
    bounds : mapping from names to sequences of (low, high), optional
        Of each share: drawn as an upright line at the end of its bar.
    first : int
        The number of the first place.

    Raises
    ------
    ValueError
        If there are more rows than looks for them.
    """
    _check_looks(rows)
    thick = 0.84 / len(rows)
    for number, ((kind, _), (name, shares)) in enumerate(zip(_LOOKS, rows.items(), strict=False)):
        places = first + np.arange(len(shares)) + (number - (len(rows) - 1) / 2) * thick
        look = {"facecolor": _pale(color(kind)), "edgecolor": color(kind), "hatch": HATCHES[kind], "linewidth": 1.2}
        ax.bar(places, shares, width=0.9 * thick, label=name, **look)
        if bounds:
            ax.vlines(places, *zip(*bounds[name], strict=True), color=LIGHT["text"], linewidth=1.6, zorder=3)
    longest = max(map(len, rows.values()))
    ax.set_xticks(range(first, first + longest))
    ax.set(xlabel=xlabel, ylabel=ylabel, ylim=(0, 1))
    ax.grid(axis="x", visible=False)
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    return _titled(ax, title)


@takes_iterators
def place_curves(ax, rows: Mapping[str, Sequence[float]], *, ylabel: str, xlabel="level of the draft", title=None):
    """Draw shares by place in the draft as curves: for several methods, how often a place is accepted.

    Parameters
    ----------
    rows : mapping from names to sequences of floats from 0 to 1
        For the first place, the second, ...; at most six. A curve ends where NaN or nothing is.

    Raises
    ------
    ValueError
        If there are more rows than looks for them.
    """
    _check_looks(rows)
    for (kind, marker), (name, shares) in zip(_LOOKS, rows.items(), strict=False):
        look = {"color": color(kind), "linestyle": LINES[kind], "marker": marker, "markersize": 7}
        ax.plot(range(1, 1 + len(shares)), shares, markeredgecolor="white", **look, label=name)
    ax.set_xticks(range(1, 1 + max(map(len, rows.values()))))
    ax.set(xlabel=xlabel, ylabel=ylabel, ylim=(0, 1.02))
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    return _titled(ax, title)


@takes_iterators
def tree_sizes(
    ax, curves: Mapping[str, Mapping[int, float]], *, ylabel: str, level: float | None = None, legend=True, title=None
):
    """Draw something against the number of candidates in a step, on an axis of powers of 2.

    Parameters
    ----------
    curves : mapping from names to mappings from sizes to values
        At most six.
    level : float, optional
        What the plain loop has: a horizontal line.

    Raises
    ------
    ValueError
        If there are more curves than looks for them.
    """
    _check_looks(curves)
    for (kind, marker), (name, values) in zip(_LOOKS, curves.items(), strict=False):
        look = {"color": color(kind), "linestyle": LINES[kind], "marker": marker, "markersize": 7}
        ax.plot(list(values), list(values.values()), markeredgecolor="white", **look, label=name)
    if level is not None:
        ax.axhline(level, color=LIGHT["text"], linewidth=1.2, linestyle=":", label="plain loop")
    sizes = sorted({size for values in curves.values() for size in values})
    ax.set_xscale("log", base=2)
    ax.set_xticks(sizes, [str(size) for size in sizes])
    ax.minorticks_off()
    ax.set(xlabel="candidates in a step", ylabel=ylabel)
    if legend:
        ax.legend()
    return _titled(ax, title)


def _check_looks(rows):
    if not 1 <= len(rows) <= len(_LOOKS):
        raise ValueError(f"there are looks for 1 to {len(_LOOKS)} curves or rows, got {len(rows)}")


@takes_iterators
def method_dots(ax, rows: Mapping[str, Mapping[str, float]], *, xlabel: str, level: float | None = None, title=None):
    """Draw methods under each other, a mark for each figure of theirs, with its value beside it.

    Parameters
    ----------
    rows : mapping from methods to mappings from names to values
        Names such as "greedy" and "sampling", at most four in all. A method need not have them all.
    level : float, optional
        What the plain loop has: a vertical line.

    Raises
    ------
    ValueError
        If there are more names than looks for them.
    """
    looks = (("target", "o"), ("draft", "s"), ("accepted", "D"), ("resampled", "^"))
    names = list(dict.fromkeys(name for values in rows.values() for name in values))
    if len(names) > len(looks):
        raise ValueError(f"there are looks for {len(looks)} figures of each method, got {', '.join(names)}")
    for place, values in enumerate(rows.values()):
        ax.plot([min(values.values()), max(values.values())], [place] * 2, color=LIGHT["line"], linewidth=2, zorder=1)
    for (kind, marker), name in zip(looks, names, strict=False):
        places = [(values[name], place) for place, values in enumerate(rows.values()) if name in values]
        look = {"color": color(kind), "marker": marker, "markersize": 9, "markeredgecolor": "white"}
        ax.plot(*zip(*places, strict=True), linestyle="none", label=name, zorder=3, **look)
    span = max(max(values.values()) for values in rows.values())
    for place, values in enumerate(rows.values()):
        above, before = True, -math.inf
        for value, name in sorted((value, name) for name, value in values.items()):
            # Two that are close have their numbers on two sides.
            above, before = value - before > 0.07 * span or not above, value
            style = {"ha": "center", "va": "bottom" if above else "top", "fontsize": 8.5}
            hue = color(looks[names.index(name)][0])
            ax.annotate(f"{value:.2f}", (value, place), (0, 6 if above else -6), textcoords="offset points", color=hue,
                        **style)  # fmt: skip
    if level is not None:
        ax.axvline(level, color=LIGHT["text"], linewidth=1.2, linestyle=":", label="plain loop")
    ax.set_yticks(range(len(rows)), list(rows))
    ax.set(xlabel=xlabel, ylim=(len(rows) - 0.5, -0.75))
    ax.grid(axis="y", visible=False)
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    return _titled(ax, title)


PARTS = {"target": "calls of the target", "draft": "drafting", "neutral": "the rest"}


@takes_iterators
def cost_bars(
    ax, rows: Mapping[str, Mapping[str, float]], *, xlabel: str, notes: Mapping[str, str] | None = None, title=None
):
    """Draw what a token costs with each method, divided into what it is spent on.

    Parameters
    ----------
    rows : mapping from methods to mappings from kinds to numbers
        The kinds are those of `PARTS`: "target", "draft", "neutral" for calls of the target, drafting, the rest. A
        method need not have them all.
    notes : mapping from methods to str, optional
        What to write at the end of a method's bar: how many times as fast as the plain loop it is, say.

    Raises
    ------
    ValueError
        For a kind that is none of these.
    """
    unknown = {kind for parts in rows.values() for kind in parts} - PARTS.keys()
    if unknown:
        raise ValueError(f"costs are divided into {', '.join(PARTS)}; got {', '.join(sorted(unknown))}")
    left = np.zeros(len(rows))
    hatches = HATCHES | {"neutral": "---"}
    for kind, name in PARTS.items():
        check_kind(kind)
        values = np.array([parts.get(kind, 0.0) for parts in rows.values()])
        if values.any():
            look = {"facecolor": _pale(color(kind)), "edgecolor": color(kind), "hatch": hatches[kind], "linewidth": 1.3}
            ax.barh(range(len(rows)), values, left=left, height=0.66, label=name, **look)
        left = left + values
    for place, name in enumerate(rows):
        style = {"va": "center", "fontsize": 9.5, "weight": "bold"}
        ax.annotate((notes or {}).get(name, ""), (left[place], place), (6, 0), textcoords="offset points", **style)
    ax.set_yticks(range(len(rows)), list(rows))
    ax.set(xlabel=xlabel, xlim=(0, 1.16 * left.max()), ylim=(len(rows) - 0.5, -0.5))
    ax.grid(axis="y", visible=False)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=len(PARTS), frameon=False)
    return _titled(ax, title)


@takes_iterators
def calibration(ax, curves: Mapping[str, Sequence[tuple[float, float, int, float, float]]], *, title=None):
    """Draw how often candidates are accepted against how probable the network thought their paths.

    On the diagonal its confidence is what it is worth; above it the network is too modest, below too sure.

    Parameters
    ----------
    curves : mapping from names to sequences of (confidence, accepted, candidates, low, high)
        The mean confidence of some candidates, the share of them that was accepted, how many they are (the more, the
        larger the mark), and the bounds of the share, drawn as an upright line. At most six.

    Raises
    ------
    ValueError
        If there are more curves than looks for them.
    """
    _check_looks(curves)
    ax.plot([0, 1], [0, 1], color=LIGHT["text"], linewidth=1.2, linestyle=":", label="as sure as it is right")
    for (kind, marker), (name, points) in zip(_LOOKS, curves.items(), strict=False):
        confidences, shares, counts, lows, highs = zip(*points, strict=True)
        most = max(sum(counts), 1)
        sizes = [25 + 175 * math.sqrt(count / most) for count in counts]
        ax.plot(confidences, shares, color=color(kind), linestyle=LINES[kind], linewidth=1.6, zorder=2)
        ax.vlines(confidences, lows, highs, color=color(kind), linewidth=1.4, alpha=0.7, zorder=2)
        look = {"marker": marker, "edgecolors": "white", "linewidths": 0.8, "zorder": 3}
        ax.scatter(confidences, shares, s=sizes, color=color(kind), label=name, **look)
    ax.set(xlabel="the network's probability of the path", ylabel="share of candidates accepted")
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    return _titled(ax, title)
