"""Trees of continuations, of a search and of candidates. All of them use the same `layout`.

They are drawn from a trace, a token tree or plain lists. Nothing here depends on a particular method or runs a model.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from matplotlib.lines import Line2D

from ..arguments import takes_iterators
from .labels import labels_of
from .palette import LIGHT, LINES, MARKS, color
from .search_nodes import Node, search_nodes
from .style import drawing, outlined, patch, token_label

# The fate of a hypothesis -> the kind of token whose colour, mark and line it gets.
FATES = {"kept": "target", "finished": "accepted", "dropped": "rejected", "given up": "neutral"}
_MEANINGS = {
    "kept": "kept",
    "finished": "finished",
    "given up": "kept, later dropped",
    "dropped": "considered, not kept",
}


_Name = TypeVar("_Name", bound=Hashable)


def layout(children: Mapping[_Name, Sequence[_Name]], root: _Name) -> dict[_Name, float]:
    """The position of each node of a tree: leaves at 0, 1, 2, ..., parents in the middle of their children.

    Parameters
    ----------
    children : mapping from nodes to their children in order
        Leaves may be left out.

    Examples
    --------
    >>> layout({"root": ["a", "b"], "a": ["c", "d"]}, "root")
    {'c': 0.0, 'd': 1.0, 'b': 2.0, 'a': 0.5, 'root': 1.25}
    """
    at, order, stack, leaves = {}, [], [root], 0
    while stack:  # without recursion, because a search can be deep
        node = stack.pop()
        order.append(node)
        stack.extend(reversed(children.get(node, ())))
    for node in order:
        if not children.get(node):
            at[node], leaves = float(leaves), leaves + 1
    for node in reversed(order):
        if below := children.get(node):
            at[node] = (at[below[0]] + at[below[-1]]) / 2
    return at


def _by_parent(paths):
    """The children of each path, in the order given, with the empty path as the root."""
    children: dict[tuple, list[tuple]] = {}
    for path in paths:
        children.setdefault(path[:-1], []).append(path)
    return children


def branches_of(texts: Mapping[tuple, float]) -> dict[tuple, float]:
    """The probability of each branch of a tree of texts, in the form that `probability_tree` takes.

    Parameters
    ----------
    texts : mapping from tuples to float
        The probability of each whole text, for example from `proof.exact_distribution`.

    Examples
    --------
    >>> branches_of({("a", "x"): 0.3, ("a", "y"): 0.3, ("b", "x"): 0.4})
    {('a',): 0.6, ('a', 'x'): 0.5, ('a', 'y'): 0.5, ('b',): 0.4, ('b', 'x'): 1.0}
    """
    totals: dict[tuple, float] = {(): sum(texts.values())}
    for text, prob in texts.items():
        for end in range(1, len(text) + 1):
            totals[text[:end]] = totals.get(text[:end], 0.0) + prob
    return {beginning: total / totals[beginning[:-1]] for beginning, total in totals.items() if beginning}


@takes_iterators
def probability_tree(ax, branches: Mapping[tuple, float], *, paths: Mapping[str, tuple] | None = None, title=None):
    """Draw continuations as a tree that grows to the right: probabilities on the edges, products at the leaves.

    Parameters
    ----------
    branches : mapping from tuple of str to float
        For each beginning, such as ``("the", "kite")``, the probability of its last token after the ones before it.
        With each beginning, its own beginnings must be there too, except the empty one.
    paths : mapping from str to tuple of str, optional
        Continuations to point out, at most three, such as ``{"greedy": ("a", "cat"), "best": ("the", "kite")}``. Each
        gets its own colour and line style, and its name at the leaf.

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
    children = _by_parent(branches)
    heights = {prefix: -at for prefix, at in layout(children, ()).items()}
    leaves = 1 - min(heights.values())
    depth = max(map(len, branches), default=0)
    for prefix, prob in branches.items():
        ends = (len(prefix) - 1, len(prefix)), (heights[prefix[:-1]], heights[prefix])
        ax.plot(*ends, color=LIGHT["line"], linewidth=1.6, zorder=1)
        for number, (name, (kind, dashes)) in enumerate(looks):
            if paths[name][: len(prefix)] == prefix:
                ax.plot(*ends, color=color(kind), linestyle=dashes, linewidth=3.2 - number * 0.6, zorder=2 + number)
        x, y = (0.42 * start + 0.58 * end for start, end in ends)
        ax.text(x, y, f"{prob:.2f}", ha="center", va="center", fontsize=11, zorder=6, bbox=patch("white", 0.15))
    nodes = {(): "prompt", **{prefix: token_label(prefix[-1]) for prefix in branches}}
    for prefix, shown in nodes.items():
        x, y = len(prefix), heights[prefix]
        box = patch("white", 0.3, LIGHT["neutral"])
        ax.text(x, y, shown, ha="center", va="center", zorder=7, bbox=box, fontsize=12, parse_math=False)
        if not children.get(prefix):
            product = float(np.prod([branches[prefix[:i]] for i in range(1, len(prefix) + 1)]))
            ax.text(x + 0.28, y, f"{product:.3f}", ha="left", va="center", fontsize=12)
            names = [(name, kind) for name, (kind, _) in looks if paths[name] == prefix]
            for number, (name, kind) in enumerate(names):
                style = {"va": "center", "weight": "bold", "fontsize": 12, "color": color(kind)}
                ax.text(x + 0.3, y - 0.42 * (number + 1), f"▴ {name}", **style)
    ax.text(depth + 0.28, 0.55, "product", va="bottom", fontsize=11, color=LIGHT["neutral"])
    _columns(ax, "token", depth, 0.55)
    return drawing(ax, (-0.35, depth + 0.95), (-leaves + 0.4, 0.9), title)


def _columns(ax, name, count, y):
    """Label the columns of a tree: token 1, token 2, ..."""
    for number in range(1, count + 1):
        style = {"ha": "center", "va": "bottom", "fontsize": 9.5, "color": LIGHT["neutral"]}
        ax.text(number, y, f"{name} {number}", **style)


@takes_iterators
def search_tree(
    ax,
    search,
    *,
    dropped=(),
    finished=None,
    winner=None,
    until: int | None = None,
    labels=None,
    numbers: Mapping[tuple, int] | None = None,
    paths: Mapping[str, Sequence] | None = None,
    frame: Mapping[tuple, Node] | None = None,
    root="prompt",
    digits=2,
    fontsize=9.5,
    legend=True,
    title=None,
):
    """Draw a search as a tree that grows to the right, with one column per length and the score of each hypothesis.

    Parameters
    ----------
    ax : matplotlib axes
        It needs about 0.5 inches of height per leaf and 1.3 inches of width per column.
    search, dropped, finished, winner, until
        As for `search_nodes`.
    labels : Labels, LM, tokenizer, sequence of str, or dict, optional
        The source of the tokens' texts, as for `tutorlib.viz.labels.Labels`; a trace has its own. Tokens that are
        already text stay as they are.
    numbers : mapping from tuples of tokens to int, optional
        Numbers to draw at hypotheses, such as the order in which they were scored.
    paths : mapping from str to tokens, optional
        Names to write beside hypotheses, such as ``{"greedy": (3, 1, 4)}``.
    frame : mapping from tuples of tokens to anything, optional
        The whole tree, as `search_nodes` returns it. With it, hypotheses keep their positions while `until` grows.
    root : str
        The text at the root of the tree.
    digits : int
        The number of decimals in the scores.
    fontsize : float
        The size of the texts in the boxes, in points.

    Examples
    --------
    >>> search_tree(ax, [[["a"], -0.5], [["b"], -1.0]], [[["b", "c"], -1.1]]], labels=None)      # doctest: +SKIP
    """
    nodes = search_nodes(search, dropped=dropped, finished=finished, winner=winner, until=until)
    if not nodes:
        raise ValueError("there is no hypothesis to draw: the steps of the search have none")
    names: dict[tuple, list[str]] = {}
    for name, path in (paths or {}).items():
        if tuple(path) not in nodes:
            raise ValueError(f"the path {name!r} is {tuple(path)!r}, which is not a hypothesis of the search")
        names.setdefault(tuple(path), []).append(name)
    whole = frame or nodes
    scores = {tokens: -1e9 if node.score is None else node.score for tokens, node in whole.items()}
    best_first = sorted(whole, key=lambda tokens: -scores[tokens])
    heights = {tokens: -at for tokens, at in layout(_by_parent(best_first), ()).items()}
    for tokens, node in nodes.items():
        kind, won = FATES[node.fate], node.won
        ends = (len(tokens) - 1, len(tokens)), (heights[tokens[:-1]], heights[tokens])
        if won:
            ax.plot(*ends, color=color("accepted"), linewidth=4.5, alpha=0.9, solid_capstyle="round", zorder=3)
        style = {"linestyle": LINES[kind], "linewidth": 1.7 if node.fate in ("kept", "finished") else 1.2}
        ax.plot(*ends, color="white" if won else color(kind), zorder=2, **style)
    write = _writer(search, labels)
    _node(ax, (), root, "context", heights, fontsize)
    furthest = max((len(tokens) for tokens, node in nodes.items() if node.won), default=0)
    for tokens, node in nodes.items():
        text = write(tokens[-1])
        if node.score is not None:
            text += f"\n{node.score:.{digits}f}".replace("-", "−")
        if numbers and tokens in numbers:
            text = f"{numbers[tokens]}: {text}"
        _node(ax, tokens, text, FATES[node.fate], heights, fontsize, bold=node.won)
        said = [*names.get(tokens, ()), *(["wins"] if node.won and len(tokens) == furthest else [])]
        if said:
            style = {
                "weight": "bold",
                "color": color("accepted" if node.won else FATES[node.fate]),
                "fontsize": fontsize + 0.5,
            }
            ax.text(len(tokens) + 0.36, heights[tokens], "◂ " + ", ".join(said), va="center", **style)
    deepest, lowest = max(map(len, whole)), min(heights.values())
    _columns(ax, "length", deepest, 0.52)
    if legend:
        _fate_legend(ax, {node.fate for node in nodes.values()})
    return drawing(ax, (-0.45, deepest + 0.75), (lowest - 0.6, 0.9), title)


def _writer(search, labels):
    """Return a function that gives the text to write for a token."""
    labels = labels_of(search, labels)

    def write(token):
        return token_label(token if isinstance(token, str) else labels.visible(token), 12)

    return write


def _node(ax, tokens, text, kind, heights, fontsize, bold=False):
    """Draw a hypothesis as a box with the mark of its fate, its last token and its score."""
    look = outlined(kind, linewidth=2.4 if bold else 1.3)
    box = {"boxstyle": "round,pad=0.25", **look}
    style = {
        "ha": "center",
        "va": "center",
        "fontsize": fontsize,
        "linespacing": 1.15,
        "parse_math": False,
        "zorder": 5,
    }
    if bold:
        style["weight"] = "bold"
    ax.text(len(tokens), heights[tokens], f"{MARKS[kind]} {text}".strip(), bbox=box, **style)


def _fate_legend(ax, fates):
    handles, texts = [], []
    for fate, meaning in _MEANINGS.items():
        if fate in fates:
            kind = FATES[fate]
            handles.append(Line2D([], [], color=color(kind), linestyle=LINES[kind], linewidth=1.8))
            texts.append(f"{MARKS[kind]} {meaning}")
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.02), "ncols": len(texts), "frameon": False}
    ax.legend(handles, texts, **place)
