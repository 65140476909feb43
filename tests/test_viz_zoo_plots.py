"""Figures about exactness: bars and lines are the distributions given, sorted bars the distances."""

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import pytest
from matplotlib.colors import to_hex

from tutorlib.viz import palette, zoo_plots

MADE, DUE = {(0, 1): 0.75, (1, 1): 0.25}, {(0, 0): 0.5, (0, 1): 0.5}


pytestmark = pytest.mark.usefixtures("figures")


def axes():
    return plt.subplots()[1]


def test_a_bar_for_each_outcome_of_either_distribution_and_a_line_where_it_should_end():
    ax = axes()
    assert zoo_plots.outcome_bars(ax, MADE, DUE, name=lambda key: "".join("ab"[i] for i in key), title="two") is ax
    ax.figure.canvas.draw()
    assert [bar.get_height() for bar in ax.patches] == [0, 0.75, 0.25]
    (lines,) = ax.collections
    assert [segment[0][1] for segment in lines.get_segments()] == [0.5, 0.5, 0]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["aa", "ab", "bb"]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["what it does", "what it should do"]


def test_bars_are_hatched_and_lines_are_not_so_that_colour_is_not_needed():
    ax = zoo_plots.outcome_bars(axes(), MADE, DUE, legend=False)
    assert all(bar.get_hatch() for bar in ax.patches) and ax.get_legend() is None
    assert to_hex(ax.collections[0].get_color()[0]) == palette.LIGHT["target"]


def test_nothing_to_draw_is_said():
    with pytest.raises(ValueError, match="no outcomes"):
        zoo_plots.outcome_bars(axes(), {}, {})


def test_distances_are_sorted_the_largest_on_top_with_their_numbers():
    ax = zoo_plots.distance_bars(axes(), ["one", "two", "three"], [0.25, 1.0, 0.5], plain=["three"])
    ax.figure.canvas.draw()
    assert [label.get_text() for label in ax.get_yticklabels()] == ["one", "three", "two"]
    assert [bar.get_width() for bar in ax.patches] == [0.25, 0.5, 1.0]
    assert [text.get_text() for text in ax.texts] == ["0.250", "0.500", "1.000"]
    assert [bool(bar.get_hatch()) for bar in ax.patches] == [True, False, True]


@pytest.mark.parametrize(
    ("names", "distances", "complaint"),
    [(["one"], [0.1, 0.2], "1 names and 2 distances"), (["one"], [1.5], "that of one is 1.5"), (["x"], [-1], "of x")],
)
def test_distances_that_are_none_are_said(names, distances, complaint):
    with pytest.raises(ValueError, match=complaint):
        zoo_plots.distance_bars(axes(), names, distances)
