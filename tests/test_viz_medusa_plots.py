"""Figures about Medusa: what is drawn is what was given, and what cannot be so is refused."""

import math

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex

from tutorlib.checking import threshold
from tutorlib.heads.choices import full, grow
from tutorlib.viz import medusa_plots, palette

ACCURACIES = [[0.6, 0.2, 0.1], [0.5, 0.1, 0.02]]


pytestmark = pytest.mark.usefixtures("figures")


@pytest.fixture
def ax():
    return plt.subplots(figsize=(8, 4))[1]


def texts(ax):
    return [text.get_text() for text in ax.texts if text.get_text()]


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_each_head_has_a_column_over_its_place_and_what_was_right_is_ticked(ax):
    columns = {"own head": [("$b$", 0.9), ("c", 0.1)], "head 0": [("c", 0.5), ("d", 0.25)]}
    assert medusa_plots.guesses(ax, ["a"], columns, ["$b$", "d"]) is ax
    ax.figure.canvas.draw()
    shown = texts(ax)
    assert shown[0] == "a" and {"own head", "head 0", "t + 1", "t + 2"} <= set(shown)
    assert {"✓ $b$ 0.90", "✗ c 0.10", "✗ c 0.50", "✓ d 0.25"} <= set(shown)
    x = {text.get_text(): text.get_position()[0] for text in ax.texts}
    assert x["a"] < x["✓ $b$ 0.90"] == x["✗ c 0.10"] < x["✗ c 0.50"] == x["✓ d 0.25"]
    assert not any(text.get_parse_math() for text in ax.texts if "$" in text.get_text())
    with pytest.raises(ValueError, match="2 columns of guesses, but 1 tokens"):
        medusa_plots.guesses(ax, ["a"], columns, ["b"])


def test_accuracies_are_stacked_by_rank(ax):
    medusa_plots.accuracy_bars(ax, ACCURACIES, groups=(1, 3))
    best, rest = ax.containers
    assert [bar.get_height() for bar in best] == pytest.approx([0.6, 0.5])
    assert [bar.get_height() for bar in rest] == pytest.approx([0.3, 0.12])
    assert [bar.get_y() for bar in rest] == pytest.approx([0.6, 0.5])
    assert best[0].get_hatch() != rest[0].get_hatch()
    assert legend(ax) == ["the best guess", "the next, up to the 3rd"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["head 0", "head 1"]
    assert texts(ax) == ["0.60", "0.50", "0.30", "0.12"]
    with pytest.raises(ValueError, match="2 heads, but 1 names"):
        medusa_plots.accuracy_bars(ax, ACCURACIES, names=["a"])
    with pytest.raises(ValueError, match="looks for 4 groups"):
        medusa_plots.accuracy_bars(ax, ACCURACIES, groups=(1, 2, 3, 4, 5))


def test_a_tree_of_ranks_has_a_mark_a_node_and_the_likelier_are_larger(ax):
    choices = grow(ACCURACIES, 5)
    medusa_plots.rank_tree(ax, choices, ACCURACIES)
    assert len(ax.lines) == len(choices) == 5 and len(ax.collections) == 6
    assert texts(ax) == [str(path[-1]) for path in sorted(choices)]
    sizes = {path: mark.get_sizes()[0] for path, mark in zip(sorted(choices), ax.collections)}
    chance = {path: math.prod(ACCURACIES[head][rank] for head, rank in enumerate(path)) for path in choices}
    assert sorted(sizes, key=sizes.get) == sorted(chance, key=chance.get)
    depth = {path: mark.get_offsets()[0][1] for path, mark in zip(sorted(choices), ax.collections)}
    assert depth == {path: len(path) for path in choices}
    assert ax.yaxis_inverted()
    assert [label.get_text() for label in ax.get_yticklabels()] == ["text", "head 0", "head 1"]


def test_a_large_tree_has_no_numbers_and_one_without_its_upper_nodes_is_refused(ax):
    medusa_plots.rank_tree(ax, full([3, 3, 3, 3]))
    assert len(ax.lines) == 120 and texts(ax) == []
    with pytest.raises(ValueError, match=r"every beginning .* \[\(0, 1\)\]"):
        medusa_plots.rank_tree(ax, [(0, 1)])
    with pytest.raises(ValueError, match="there are no nodes"):
        medusa_plots.rank_tree(ax, [])


def test_sizes_are_drawn_over_powers_of_two(ax):
    lines, marks = {"foretold": {1: 1.6, 4: 2.0, 16: 2.4}}, {"measured": {1: 1.5, 16: 2.3}}
    medusa_plots.size_curves(ax, lines, marks, ylabel="tokens", best=16, level=1.0)
    assert ax.get_xscale() == "log" and [label.get_text() for label in ax.get_xticklabels()] == [
        "1",
        "2",
        "4",
        "8",
        "16",
    ]
    assert [list(line.get_ydata()) for line in ax.lines[:2]] == [[1.6, 2.0, 2.4], [1.5, 2.3]]
    assert ax.lines[1].get_linestyle() == "None"
    assert legend(ax) == ["foretold", "measured", "plain loop", "the best: 16 nodes"]
    with pytest.raises(ValueError, match="looks for 4 curves"):
        medusa_plots.size_curves(ax, {str(i): {1: 1} for i in range(5)}, ylabel="tokens")


def test_the_threshold_that_is_drawn_is_the_one_that_is_used(ax):
    import torch

    points = {"accepted": [(0.5, 0.4)], "rejected": [(0.1, 0.0)]}
    medusa_plots.threshold_curves(ax, {"usual": (0.09, 0.3)}, points)
    (curve,) = ax.lines
    for count in (1, 4, 20):  # evenly spread over so many tokens
        due = threshold(torch.full((count,), 1 / count, dtype=torch.float64), 0.09, 0.3)
        assert np.interp(math.log(count), curve.get_xdata(), curve.get_ydata()) == pytest.approx(due, rel=1e-3)
    assert [tuple(mark.get_offsets()[0]) for mark in ax.collections] == [(0.5, 0.4), (0.1, 1e-4)]
    assert legend(ax) == ["✓ accepted", "✗ rejected", "usual"]
    assert to_hex(ax.collections[0].get_edgecolors()[0][:3]) == palette.LIGHT["accepted"]
    with pytest.raises(ValueError, match="'kept' is not a kind"):
        medusa_plots.threshold_curves(ax, {}, {"kept": [(1, 1)]})
    with pytest.raises(ValueError, match="looks for 4 curves"):
        medusa_plots.threshold_curves(ax, {str(i): (0.1, 0.1) for i in range(5)})


def test_learning_curves_are_told_apart_without_colour(ax):
    curves = {"a": [3.0, 2.0], "b": [1.0, 0.5]}
    medusa_plots.learning_curves(ax, [0, 10], curves, ylabel="loss")
    assert [list(line.get_ydata()) for line in ax.lines] == list(curves.values())
    assert len({line.get_marker() for line in ax.lines}) == len({line.get_linestyle() for line in ax.lines}) == 2
    assert legend(ax) == ["a", "b"] and ax.get_ylabel() == "loss"
    with pytest.raises(ValueError, match="'c' has 1 values for 2 steps"):
        medusa_plots.learning_curves(ax, [0, 10], {"c": [1.0]}, ylabel="loss")
    with pytest.raises(ValueError, match="looks for 6"):
        medusa_plots.learning_curves(ax, [0], {str(i): [1.0] for i in range(7)}, ylabel="loss")
