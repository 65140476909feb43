"""The drawings of what filters keep: brackets below a distribution, and shares of its probability."""

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import pytest

from tutorlib.course.drawings.kept_sets import kept_sets, kept_shares

NAMES, PROBS = ["$a$", " b", "c", "d", "e"], [0.1, 0.4, 0.3, 0.15, 0.05]  # in order: b, c, d, a, e
KEPT = {"two": [False, True, True, False, False], "middle": [True, False, True, True, False], "all": [True] * 5}


def drawn(draw, *args, **options):
    ax = plt.subplots()[1]
    assert draw(ax, *args, **options) is ax
    ax.figure.canvas.draw()
    plt.close(ax.figure)
    return ax


def texts(ax):
    return [text.get_text() for text in ax.texts]


def test_a_bracket_goes_around_the_bars_of_what_is_kept():
    ax = drawn(kept_sets, NAMES, PROBS, KEPT, top=4)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["␣b", "c", "d", "$a$", "1 others"]
    assert [bar.get_height() for bar in ax.patches] == pytest.approx([0.4, 0.3, 0.15, 0.1, 0.05])
    ends = [(round(line.get_xdata()[0]), round(line.get_xdata()[-1])) for line in ax.lines]
    assert ends == [(0, 1), (1, 3), (0, 4)] and texts(ax)[-3:] == list(KEPT)


def test_a_filter_that_leaves_a_gap_has_two_brackets():
    ax = drawn(kept_sets, NAMES, PROBS, {"gap": [True, True, True, False, False]})
    assert [(round(line.get_xdata()[0]), round(line.get_xdata()[-1])) for line in ax.lines] == [(0, 1), (3, 3)]


def test_a_filter_must_speak_of_every_token():
    with pytest.raises(ValueError, match="'two' must have one bool for each of the 5 tokens"):
        drawn(kept_sets, NAMES, PROBS, {"two": [True, True]})


def test_a_strip_is_filled_where_the_kept_tokens_lie_and_says_how_many_they_are():
    ax = drawn(kept_shares, PROBS, KEPT)
    filled = [(bar.get_x(), bar.get_width()) for bar in ax.patches if bar.get_hatch()]
    assert filled == [pytest.approx(one) for one in [(0, 0.7), (0.4, 0.55), (0, 1)]]
    assert texts(ax) == ["2 tokens", "3 tokens", "5 tokens"]
    assert texts(drawn(kept_shares, [1 / 250] * 250, {"most": [True] * 249 + [False]})) == ["200 tokens"]
