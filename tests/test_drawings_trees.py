"""Trees as outlines, and beside their mask."""

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from tutorlib import TokenTree
from tutorlib.course.drawings.tree_and_mask import tree_and_mask
from tutorlib.course.drawings.tree_outline import in_outline, tree_outline
from tutorlib.viz.palette import LIGHT
from tutorlib.viz.style import pale

pytestmark = pytest.mark.usefixtures("figures")

TREE = TokenTree([5, 6, 7, 8], [-1, -1, 0, 2])
NAMES = ["a", "$b$", "c", "日"]


def test_children_stand_under_their_parents_and_further_to_the_right():
    assert in_outline(TREE) == [0, 2, 3, 1]
    ax = tree_outline(plt.subplots(figsize=(6, 3))[1], TREE, NAMES, notes=["0.1", "0.2", "0.3", "0.4"], root="…")
    at = {text.get_text(): text.get_position() for text in ax.texts}
    shown = ["…", "◇ a", "◇ c", "◇ ⟨U+65E5⟩", "◇ $b$"]
    assert [at[text][1] for text in shown] == [0.5, 1.5, 2.5, 3.5, 4.5]
    assert at["◇ a"][0] < at["◇ c"][0] < at["◇ ⟨U+65E5⟩"][0] and at["0.2"][1] == at["◇ $b$"][1]
    with pytest.raises(ValueError, match="4 nodes .* got 3 names"):
        tree_outline(plt.subplots()[1], TREE, NAMES[:3])


def test_a_row_of_the_mask_is_filled_where_its_node_attends_and_green_where_it_is_kept():
    ax = tree_and_mask(plt.subplots(figsize=(6, 3))[1], TREE, NAMES, [0, 2], root="…")
    cells = [patch for patch in ax.patches if type(patch) is Rectangle]
    kinds = {"": "white", **{kind: pale(LIGHT[kind]) for kind in ("accepted", "context", "target")}}
    looks = {to_hex(color): kind[:1] or "." for kind, color in kinds.items()}
    rows = {}
    for cell in sorted(cells, key=lambda cell: (round(cell.get_y()), cell.get_x())):
        rows.setdefault(round(cell.get_y()), []).append(looks[to_hex(cell.get_facecolor())])
    # Columns: the text, then the nodes in the order of the rows: a, c, 日, b.
    assert ["".join(row) for row in rows.values()] == ["aa...", "aaa..", "cttt.", "c...t"]
