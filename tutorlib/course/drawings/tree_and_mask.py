"""A tree of guesses, the mask with which one call scores it, and the path that is kept."""

from collections.abc import Sequence
from typing import Any

from matplotlib.patches import Rectangle

from ...arguments import takes_iterators
from ...viz.palette import LIGHT
from ...viz.style import drawing, pale
from .tree_outline import SIZE, in_outline, letters, outline_rows


@takes_iterators
def tree_and_mask(ax, tree, names: Sequence[str], path: Sequence[int] = (), *, root="", title=None):
    """Draw a tree as an outline and, beside each node, its row of the attention mask.

    A coloured square means that the row's node attends to the column's node. The rows of the kept path are green. Give
    the axes about 0.36 inches of height for each node and for the root.

    Parameters
    ----------
    tree : TokenTree
    names : sequence of str
        The text of each node.
    path : sequence of int
        The nodes that the target accepted, from the text downwards.
    root : str
        The end of the text.
    """
    on, order, mask = set(path), in_outline(tree), tree.mask()
    kinds = ["accepted" if node in on else "draft" for node in range(len(tree))]
    rows, end = outline_rows(ax, tree, names, kinds=kinds, root=root)
    left, right = end + 4.0, letters(ax) - 0.6
    cell = (right - left) / (len(order) + 1)  # the first column is the text
    said = {"ha": "center", "va": "center", "fontsize": SIZE}
    for column, node in enumerate([None, *order]):
        x = left + cell * column
        ax.text(x + cell / 2, 0.5, "text" if node is None else column, **said)
        for other in order:
            look: dict[str, Any] = {"facecolor": "white", "edgecolor": LIGHT["line"], "linewidth": 1.0}
            if node is None or mask[other, node]:
                kind = "accepted" if other in on else "context" if node is None else "target"
                look = {"facecolor": pale(LIGHT[kind]), "edgecolor": LIGHT[kind], "linewidth": 1.4, "zorder": 2}
            ax.add_patch(Rectangle((x + 0.1, rows[other] + 0.1), cell - 0.2, 0.8, **look))
    for other in order:
        ax.text(left - 1.4, rows[other] + 0.5, rows[other], **said)
    return drawing(ax, (-0.3, right + 0.3), (len(rows) + 1.05, -0.05), title)
