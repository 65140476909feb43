"""Figures about drafts: what is drawn is what was given, place by place, and what cannot be so is refused."""

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex

from tutorlib import TokenTree
from tutorlib.viz import draft_plots, palette

pytestmark = pytest.mark.usefixtures("figures")


@pytest.fixture
def ax():
    return plt.subplots(figsize=(8, 4))[1]


def texts(ax):
    return [text.get_text() for text in ax.texts if text.get_text()]


def test_the_strip_marks_what_was_said_before_what_followed_and_the_draft(ax):
    tokens = ["$a_1$", "b", "c", "d", "$a_1$", "b"]
    assert draft_plots.lookup_strip(ax, tokens, found=0, length=2, drafted=["c", "d", "$a_1$"], accepted=1) is ax
    ax.figure.canvas.draw()
    assert texts(ax)[:9] == [*tokens, "✓ c", "✗ d", "○ $a_1$"]
    assert not any(text.get_parse_math() for text in ax.texts[:9])
    assert texts(ax)[9:] == ["said before", "the text ends so", "what followed", "the draft"]
    braces = [line.get_xdata() for line in ax.lines]
    boxes = sorted(patch.get_x() for patch in ax.patches if hasattr(patch, "get_x"))
    assert [min(brace) for brace in braces] == [boxes[0], boxes[4], boxes[2], boxes[6]]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"found": 2, "length": 1}, "do not occur at place 2"),
        ({"found": 4, "length": 2}, "do not occur at place 4"),
        ({"drafted": ["d"]}, "did not follow"),
    ],
)
def test_a_strip_that_cannot_be_is_refused(ax, options, complaint):
    given = {"found": 0, "length": 2, "drafted": ["c"], "accepted": 0, **options}
    with pytest.raises(ValueError, match=complaint):
        draft_plots.lookup_strip(ax, ["a", "b", "c", "d", "a", "b"], **given)


def test_the_tree_has_a_box_a_node_and_a_note_an_edge(ax):
    tree = TokenTree([1, 2, 3, 4], [-1, 0, 0, -1])
    kinds = ["accepted", "rejected", "accepted", "neutral"]
    draft_plots.token_tree(
        ax, tree, ["p", "q", "r", "s"], kinds=kinds, notes=["3 of 4", "1 of 3", "2 of 3", ""], root="…"
    )
    ax.figure.canvas.draw()
    assert texts(ax) == ["3 of 4", "1 of 3", "2 of 3", "…", "✓ p", "✗ q", "✓ r", "○ s"]
    assert len(ax.lines) == 4 and len(ax.patches) == 5
    widths = [line.get_linewidth() for line in ax.lines]
    assert widths[0] == widths[2] > widths[1] == widths[3], "the path that was kept is bold"
    x = {text.get_text(): text.get_position()[0] for text in ax.texts}
    assert x["…"] < x["✓ p"] == x["○ s"] < x["✗ q"] == x["✓ r"]
    with pytest.raises(ValueError, match="a tree of 4 nodes; got 3 names"):
        draft_plots.token_tree(ax, tree, ["p", "q", "r"])


def test_the_window_is_a_staircase_and_shows_what_a_guess_was_made_from(ax):
    draft_plots.window_grid(ax, [["a", "b"], ["c", "d"], ["e", "f"]], ["x", "y", "z"], explain=1)
    boxes = [(box.get_x(), box.get_y(), box.get_linestyle()) for box in ax.patches]
    step = boxes[1][0] - boxes[0][0]
    assert [round(x / step) for x, _, _ in boxes] == [0, 1, 2, 1, 2, 3, 2, 3, 4]
    # Given: the first tokens of the columns before, and its own two; asked: its own new one.
    assert [style for _, _, style in boxes] == ["-", ":", ":", "-", "-", "-", ":", ":", ":"]
    assert texts(ax)[:3] == ["◇ a", "◇ b", "● x"] and texts(ax)[-1] == "place 5"
    with pytest.raises(ValueError, match="columns of one length"):
        draft_plots.window_grid(ax, [["a"], ["b", "c"]], ["x", "y"])


def test_the_mask_is_the_trees_with_the_text_before_it(ax):
    tree = TokenTree([5, 6, 7, 8], [-1, 0, -1, 2])
    draft_plots.tree_mask(ax, tree, ["$a_1$", "b", "c", "d"], {"tried": 2, "window": 2})
    ax.figure.canvas.draw()
    shown = np.asarray(ax.images[0].get_array())
    assert (shown[:, 0] == 1).all() and ((shown[:, 1:] == 2) == tree.mask().numpy()).all()
    assert [label.get_text() for label in ax.get_xticklabels()] == ["text", "$a_1$", "b", "c", "d"]
    assert texts(ax) == ["tried", "window"]
    with pytest.raises(ValueError, match="sum up to the 4 nodes"):
        draft_plots.tree_mask(ax, tree, ["a", "b", "c", "d"], {"tried": 3})
    with pytest.raises(ValueError, match="4 nodes, got 1"):
        draft_plots.tree_mask(ax, tree, ["a"])


def test_two_tokenizations_are_drawn_letter_under_letter(ax):
    rows = {"one": [" re", "d"], "two": [" ", "red"]}
    draft_plots.two_tokenizations(ax, rows, {"one": [True, False]})
    ax.figure.canvas.draw()
    assert texts(ax) == ["␣", "r", "e", "d", "one", "␣", "r", "e", "d", "two"]
    starts = [(round(box.get_x()), to_hex(box.get_edgecolor())) for box in ax.patches]
    fine, foul = palette.LIGHT["accepted"], palette.LIGHT["rejected"]
    assert starts == [(0, fine), (3, foul), (0, fine), (1, fine)]
    with pytest.raises(ValueError, match="must be one text"):
        draft_plots.two_tokenizations(ax, {"one": ["ab"], "two": ["a", "c"]})


def test_the_batch_has_a_square_for_each_slot(ax):
    draft_plots.batch_round(ax, [2, 3], [3, 1], [1, 0])
    squares = [(round(box.get_x()), round(box.get_y())) for box in ax.patches]
    assert squares == [(slot, row) for row in range(2) for slot in range(6)]
    hatches = [box.get_hatch() or "" for box in ax.patches]
    assert hatches == ["", "", "", "//", "xx", *[""] * 7]
    filler = [box.get_linestyle() == ":" for box in ax.patches]
    assert filler == [False] * 5 + [True] + [False] * 4 + [True] * 2
    with pytest.raises(ValueError, match="cannot keep more than it drafted"):
        draft_plots.batch_round(ax, [2], [3], [3])
    with pytest.raises(ValueError, match="one number for each row"):
        draft_plots.batch_round(ax, [2], [3, 1], [1])


def test_rounds_stand_where_they_begin_in_the_text(ax):
    draft_plots.gamma_rounds(ax, [(3, 3), (4, 1), (2, 0)], passages=[(0, 4, "easy")])
    bars = [(bar.get_x(), bar.get_y(), bar.get_height()) for bar in ax.patches if bar.get_height() != 1]
    kept, rest = ax.containers
    assert [(bar.get_x(), bar.get_height()) for bar in kept] == [(0, 3), (4, 1), (6, 0)]
    assert [(bar.get_y(), bar.get_height()) for bar in rest] == [(3, 0), (1, 3), (0, 2)]
    assert ax.lines[0].get_ydata().tolist() == [3, 4, 2] and ax.get_xlim() == (0, 7)
    assert texts(ax) == ["easy"] and bars
    with pytest.raises(ValueError, match="cannot accept more"):
        draft_plots.gamma_rounds(ax, [(1, 2)])


def test_break_even_has_the_cost_and_a_mark_for_each_setting(ax):
    points = {"a": {"x": (5, 2.0), "y": (3, 1.5)}, "b": {"z": (2, 1.1)}}
    draft_plots.break_even(ax, [1, 2, 5], [1.0, 1.2, 1.5], points)
    cost, one, other = ax.lines
    assert cost.get_ydata().tolist() == [1.0, 1.2, 1.5]
    assert one.get_xydata().tolist() == [[3, 1.5], [5, 2.0]] and other.get_xydata().tolist() == [[2, 1.1]]
    assert texts(ax) == ["x", "y", "z"]
    with pytest.raises(ValueError, match="4 curves, got 5"):
        draft_plots.break_even(ax, [1], [1], {str(i): {"x": (1, 1)} for i in range(5)})
