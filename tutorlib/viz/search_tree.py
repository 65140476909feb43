"""The tree of a search: what it kept at each length, what it dropped, what it finished, and what won.

`search_tree` draws it on an axes and returns the axes. What is drawn is read off a trace's hypotheses or off plain
lists; no method is known here by name, and nothing is run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.lines import Line2D

from ..arguments import takes_iterators
from .labels import Labels
from .palette import LIGHT, LINES, MARKS, color
from .plots import _pale, _titled, token_label

# What became of a hypothesis -> the kind of token whose colour, mark and line it is drawn in.
FATES = {"kept": "target", "finished": "accepted", "dropped": "rejected", "given up": "neutral"}
_LEGEND = {
    "kept": "kept, and leads on",
    "finished": "finished",
    "given up": "kept, then given up",
    "dropped": "seen, not kept",
}


@dataclass
class Node:
    """One hypothesis of a search: a beginning of new tokens.

    Attributes
    ----------
    score : float or None
        The last one that the search gave to it; None if it never said.
    fate : {"kept", "finished", "dropped", "given up"}
        "given up" was kept once, and nothing that goes on from it is held or finished any more; "dropped" never was.
    won : bool
        Whether the winner is this hypothesis or goes on from it.
    """

    score: float | None
    fate: str
    won: bool = False


@takes_iterators
def search_nodes(search, *, dropped=(), finished=None, winner=None, until=None) -> dict[tuple, Node]:
    """Sort the hypotheses of a search by what became of them.

    Parameters
    ----------
    search : Trace, or sequence of lists of hypotheses
        What the search held after each of its steps, each hypothesis as ``[tokens, score]``. A trace's steps are read
        so; its last step, if it has tokens, holds the finished ones and the winner.
    dropped : iterable of hypotheses
        What was looked at and not kept; a trace does not say that.
    finished : iterable of hypotheses, optional
    winner : tokens, optional
        For plain lists: what came to its end, and what won.
    until : int, optional
        Look at the first so many steps only, as if the search were still going on.

    Returns
    -------
    dict from tuples of tokens to Node
        Beginnings of hypotheses are in it, too, except the empty one.

    Raises
    ------
    ValueError
        If the winner is not among what the search kept or finished.
    """
    if hasattr(search, "steps"):
        levels = [step.hypotheses for step in search.steps if not step.tokens]
        last = search.steps[-1] if search.steps and search.steps[-1].tokens and search.steps[-1].hypotheses else None
        if finished is None and last is not None:
            finished = last.hypotheses
        if winner is None and last is not None:
            winner = last.tokens
    else:
        levels = list(search)
    ended = until is None or until > len(levels)
    levels = levels if until is None else levels[:until]
    held = {tuple(tokens) for tokens, _ in levels[-1]} if levels and not (ended and winner is not None) else set()
    done = {tuple(tokens): score for tokens, score in finished or ()}
    nodes: dict[tuple, Node] = {}
    for level in levels:
        for tokens, score in level:
            _add(nodes, tuple(tokens), score, "given up")
    deepest = max(map(len, nodes), default=0)
    for tokens, score in done.items():
        if ended or len(tokens) <= deepest:
            _add(nodes, tokens, score, "finished")
    for tokens, score in dropped:
        tokens = tuple(tokens)
        if tokens not in nodes and (ended or len(tokens) <= deepest):
            _add(nodes, tokens, score, "dropped")
    for tokens, node in list(nodes.items()):
        if tokens in held or node.fate == "finished":
            for length in range(len(tokens) - (node.fate == "finished"), 0, -1):
                if nodes[tokens[:length]].fate == "kept":
                    break  # and so are its own beginnings
                nodes[tokens[:length]].fate = "kept"
    if winner is not None and ended:
        winner = tuple(winner)
        if winner not in nodes or nodes[winner].fate == "dropped":
            raise ValueError(f"the winner {winner!r} is not among what the search kept or finished")
        for length in range(1, len(winner) + 1):
            nodes[winner[:length]].won = True
        nodes[winner].fate = "finished"
    return nodes


def _add(nodes, tokens, score, fate):
    """Put a hypothesis into the tree, after its beginnings. The empty one is the prompt, which is always there."""
    if not tokens:
        return
    for length in range(len(tokens) - 1, 0, -1):
        if tokens[:length] in nodes:
            break
        nodes[tokens[:length]] = Node(None, "given up")
    nodes[tokens] = Node(score, fate)


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
    legend=True,
    title=None,
):
    """Draw a search as a tree that grows to the right, one column a length, each hypothesis with its score.

    Parameters
    ----------
    ax : matplotlib axes
        Give it about 0.5 inches of height a leaf and 1.3 inches of width a column.
    search, dropped, finished, winner, until
        As for `search_nodes`.
    labels : Labels, LM, tokenizer, sequence of str, or dict, optional
        What knows the text of a token id, as for `tutorlib.viz.labels.Labels`; a trace knows its own. Tokens that are
        text already stay as they are.
    numbers : mapping from tuples of tokens to int, optional
        A number to draw at a hypothesis, such as when it was scored.
    paths : mapping from str to tokens, optional
        Names to write beside hypotheses, such as ``{"greedy": (3, 1, 4)}``.
    frame : mapping from tuples of tokens to anything, optional
        The whole tree, as `search_nodes` returns it, to keep the places of while `until` grows.
    root : str
        What to write where the tree begins.
    digits : int
        How many decimals of the scores to write.

    Returns
    -------
    ax

    Raises
    ------
    ValueError
        If there is nothing to draw, or a name of `paths` belongs to no hypothesis.

    Examples
    --------
    >>> search_tree(ax, [[["a"], -0.5], [["b"], -1.0]], [[["b", "c"], -1.1]]], labels=None)      # doctest: +SKIP
    """
    nodes = search_nodes(search, dropped=dropped, finished=finished, winner=winner, until=until)
    if not nodes:
        raise ValueError("there is no hypothesis to draw: the search's steps hold none")
    names: dict[tuple, list[str]] = {}
    for name, path in (paths or {}).items():
        if tuple(path) not in nodes:
            raise ValueError(f"the path {name!r} is {tuple(path)!r}, which the search never held")
        names.setdefault(tuple(path), []).append(name)
    heights = _heights(frame or nodes)
    for tokens, node in nodes.items():
        _edge(ax, tokens, node, heights)
    write = _writer(search, labels)
    _node(ax, (), root, "context", heights)
    for tokens, node in nodes.items():
        text = write(tokens[-1])
        if node.score is not None:
            text += f"\n{node.score:.{digits}f}".replace("-", "−")
        if numbers and tokens in numbers:
            text = f"{numbers[tokens]}: {text}"
        _node(ax, tokens, text, FATES[node.fate], heights, bold=node.won)
        beside = [*names.get(tokens, ()), *(["wins"] if node.won and not _goes_on(nodes, tokens) else [])]
        if beside:
            hue = color("accepted" if node.won else FATES[node.fate])
            style = {"ha": "left", "va": "center", "weight": "bold", "color": hue, "fontsize": 10}
            ax.text(len(tokens) + 0.36, heights[tokens], "◂ " + ", ".join(beside), **style)
    whole = frame or nodes
    deepest, lowest = max(map(len, whole)), min(heights.values())
    for length in range(1, deepest + 1):
        style = {"ha": "center", "va": "bottom", "fontsize": 9.5, "color": LIGHT["neutral"]}
        ax.text(length, 0.52, f"length {length}", **style)
    ax.set_xlim(-0.45, deepest + 0.75)
    ax.set_ylim(lowest - 0.6, 0.9)
    ax.set_axis_off()
    if legend:
        _legend(ax, {node.fate for node in nodes.values()})
    return _titled(ax, title)


def _goes_on(nodes, tokens) -> bool:
    """Whether the winner goes on from this hypothesis."""
    return any(node.won and len(other) > len(tokens) for other, node in nodes.items())


def _heights(nodes) -> dict[tuple, float]:
    """How high each hypothesis is drawn: leaves one below the other, likelier ones higher, parents amid their children.

    Without recursion: real searches are deep.
    """
    children: dict[tuple, list[tuple]] = {tokens: [] for tokens in [(), *nodes]}
    for tokens in nodes:
        children[tokens[:-1]].append(tokens)
    for below in children.values():
        below.sort(key=lambda tokens: -(nodes[tokens].score if nodes[tokens].score is not None else -1e9))
    heights: dict[tuple, float] = {}
    stack, order, leaf = [()], [], 0
    while stack:
        tokens = stack.pop()
        order.append(tokens)
        stack.extend(reversed(children[tokens]))
        if not children[tokens]:
            heights[tokens], leaf = -float(leaf), leaf + 1
    for tokens in reversed(order):
        if children[tokens]:
            heights[tokens] = (heights[children[tokens][0]] + heights[children[tokens][-1]]) / 2
    return heights


def _writer(search, labels):
    """A function from a token to what is written for it."""
    if not isinstance(labels, Labels):
        source = labels
        if source is None and hasattr(search, "steps"):
            source = search.lm if getattr(search, "lm", None) is not None else getattr(search, "piece", None)
        labels = Labels(source)

    def write(token):
        return token_label(token if isinstance(token, str) else labels.visible(token), 12)

    return write


def _edge(ax, tokens, node, heights):
    kind = FATES[node.fate]
    ends = (len(tokens) - 1, len(tokens)), (heights[tokens[:-1]], heights[tokens])
    if node.won:
        ax.plot(*ends, color=color("accepted"), linewidth=4.5, alpha=0.9, solid_capstyle="round", zorder=3)
    style = {"linestyle": LINES[kind], "linewidth": 1.7 if node.fate in ("kept", "finished") else 1.2}
    ax.plot(*ends, color="white" if node.won else color(kind), zorder=2, **style)


def _node(ax, tokens, text, kind, heights, bold=False):
    """A hypothesis in a box: the mark of what became of it, its last token, its score."""
    box = {"boxstyle": "round,pad=0.25", "facecolor": _pale(LIGHT[kind]), "edgecolor": LIGHT[kind]}
    box |= {"linestyle": LINES[kind], "linewidth": 2.4 if bold else 1.3}
    style = {"ha": "center", "va": "center", "fontsize": 9.5, "linespacing": 1.15, "parse_math": False, "zorder": 5}
    if bold:
        style["weight"] = "bold"
    ax.text(len(tokens), heights[tokens], f"{MARKS[kind]} {text}".strip(), bbox=box, **style)


def _legend(ax, fates):
    handles, texts = [], []
    for fate, meaning in _LEGEND.items():
        if fate in fates:
            kind = FATES[fate]
            handles.append(Line2D([], [], color=color(kind), linestyle=LINES[kind], linewidth=1.8))
            texts.append(f"{MARKS[kind]} {meaning}")
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.02), "ncols": len(texts), "frameon": False}
    ax.legend(handles, texts, **place)
