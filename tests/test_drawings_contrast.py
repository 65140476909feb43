"""The drawing of two distributions, their contrast, and the cut."""

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest

from tutorlib.course.drawings.contrast import expert_minus_amateur

EXPERT, AMATEUR = [0.5, 0.4, 0.001], [0.5, 0.1, 1e-6]


def drawn(alpha, tokens=("$a$", "b", "c")):
    ax = plt.subplots()[1]
    assert expert_minus_amateur(ax, tokens, EXPERT, AMATEUR, alpha=alpha) is ax
    ax.figure.canvas.draw()
    plt.close(ax.figure)
    return ax


def ticked(ax):
    (tick,) = [text for text in ax.texts if text.get_text() == "✓"]
    return tick.get_position()[1]


def test_the_winner_is_the_plausible_token_with_the_largest_ratio():
    assert [ticked(drawn(alpha)) for alpha in (1, 0.1, 0)] == [0, 1, 2]


def test_scores_are_logarithms_of_the_ratio_and_what_the_cut_removes_is_crossed_out():
    ax = drawn(0.1)
    scores = [ax.containers[3 * row + 2][0] for row in range(3)]
    widths = np.array([bar.get_width() for bar in scores])
    expected = np.log(np.array(EXPERT) / np.array(AMATEUR))
    assert widths / widths.max() == pytest.approx(expected / expected.max())
    assert [bar.get_hatch() == "xxx" for bar in scores] == [False, False, True]


def test_what_has_no_probability_is_refused():
    with pytest.raises(ValueError, match="above 0"):
        expert_minus_amateur(plt.subplots()[1], ["a", "b"], [0.5, 0.5], [1.0, 0.0], alpha=0.1)
    plt.close("all")
