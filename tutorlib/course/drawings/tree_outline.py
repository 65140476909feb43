"""A tree of guesses as an outline: one row per node, and deeper nodes are further to the right."""

from collections.abc import Sequence

from ...arguments import takes_iterators
from ...model.tree import ROOT, TokenTree
from ...viz.palette import LIGHT
from ...viz.style import drawing, marked, outlined, slot, word

SIZE = 11
INDENT = 2.4  # how far a child stands to the right of its parent, in letters


@takes_iterators
def tree_outline(
    ax,
    tree: TokenTree,
    names: Sequence[str],
    *,
    kinds: Sequence[str] = (),
    notes: Sequence[str] = (),
    root="",
    title=None,
):
    """Draw a tree as an outline, with children under their parents and siblings in node order.

    The data unit is a letter to the right, and a row downwards. Give the axes about 0.36 inches of height for each node
    and for the root.

    Parameters
    ----------
    tree : TokenTree
    names : sequence of str
        The text of each node.
    kinds : sequence of str, optional
        The kind of each node, from the palette; by default all are drafted.
    notes : sequence of str, optional
        What to write to the right of each node, such as its probability.
    root : str
        The end of the text, which the tree continues.
    """
    rows, _ = outline_rows(ax, tree, names, kinds=kinds, notes=notes, root=root)
    return drawing(ax, (-0.3, letters(ax) - 0.3), (len(rows) + 1.05, -0.05), title)


def outline_rows(ax, tree, names, *, kinds=(), notes=(), root=""):
    """Draw the rows of an outline; return the row of each node (0 is the root's), and where the widest row ends."""
    kinds, notes = list(kinds) or ["draft"] * len(tree), list(notes) or [""] * len(tree)
    if not len(tree) == len(names) == len(kinds) == len(notes):
        raise ValueError(
            f"a tree of {len(tree)} nodes needs a name, a kind and a note for each; got {len(names)} names, "
            f"{len(kinds)} kinds, {len(notes)} notes"
        )
    rows = {node: row for row, node in enumerate(in_outline(tree), 1)}
    widest = _row(ax, 0, 0, root, "context")
    for node, row in rows.items():
        parent, left = tree.parents[node], INDENT * (tree.depths[node] + 1)
        above = 0 if parent == ROOT else rows[parent]
        look = {"color": LIGHT["neutral"], "linewidth": 1.3, "zorder": 1}
        if kinds[node] == "accepted":
            look = {"color": LIGHT["accepted"], "linewidth": 2.6, "zorder": 1.5}
        bend = left - INDENT + 1.0
        ax.plot([bend, bend, left], [above + 0.9, row + 0.5, row + 0.5], **look)
        widest = max(widest, end := _row(ax, left, row, marked(names[node], kinds[node]), kinds[node]))
        ax.text(end + 0.7, row + 0.5, notes[node], ha="left", va="center", fontsize=SIZE)
    return rows, widest


def in_outline(tree: TokenTree) -> list[int]:
    """The nodes in the order of an outline: after each node come all nodes below it."""
    order, waiting = [], tree.children(ROOT)[::-1]
    while waiting:
        order.append(waiting.pop())
        waiting += tree.children(order[-1])[::-1]
    return order


def letters(ax) -> float:
    """How many letters of the outline's font size fit across the axes."""
    return 72 * ax.get_window_extent().width / ax.figure.dpi / (0.602 * SIZE)


def _row(ax, left, row, text, kind) -> float:
    """Draw a node's box; return its right end."""
    wide = len(text) + 1.2
    slot(ax, left, row + 0.1, wide, **outlined(kind))
    word(ax, left + wide / 2, row + 0.5, text, fontsize=SIZE)
    return left + wide
