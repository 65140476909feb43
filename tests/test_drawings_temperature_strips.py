"""The drawing of what a temperature does."""

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import pytest

from tutorlib.course.drawings.temperature_strips import temperature_strips

NAMES = ["$a$", "b", "c", "d"]
ROWS = {"cold": [0.1, 0.85, 0.05, 0.0], "hot": [0.25, 0.4, 0.2, 0.15]}


def test_each_strip_is_cut_into_the_same_tokens_and_the_others():
    ax = plt.subplots(figsize=(7, 3))[1]
    assert temperature_strips(ax, NAMES, ROWS, top=2) is ax
    ax.figure.canvas.draw()
    plt.close(ax.figure)
    assert [bar.get_width() for bar in ax.patches] == pytest.approx([0.85, 0.1, 0.05, 0.4, 0.25, 0.35])
    assert [bool(bar.get_hatch()) for bar in ax.patches] == [False, False, True] * 2
    shown = [text.get_text() for text in ax.texts]
    assert "b\n0.85" in shown and "$a$\n0.25" in shown and "2 others\n0.35" in shown
    assert "2 others\n0.05" not in shown, "no room"
    assert [label.get_text() for label in ax.get_yticklabels()] == ["cold", "hot"]
    joined = [tuple(line.get_xdata()) for line in ax.lines]
    assert joined == [pytest.approx((0.85, 0.4)), pytest.approx((0.95, 0.65))]
