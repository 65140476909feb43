"""Figures about contrast: the numbers drawn are those given, and what is cut out is crossed out."""

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex

from tutorlib.viz import contrast_plots, palette

NAMES = ["$x_1$", " b", "\n", "d", "e"]
EXPERT = [0.30, 0.40, 0.25, 0.02, 0.03]
AMATEUR = [0.05, 0.50, 0.30, 0.001, 0.149]


pytestmark = pytest.mark.usefixtures("figures")


def drawn(**options):
    _, axes = plt.subplots(1, 2)
    assert contrast_plots.contrast_bars(axes, NAMES, EXPERT, AMATEUR, **options) is axes
    axes[0].figure.canvas.draw()
    return axes


def test_the_bars_are_both_distributions_and_the_logarithm_of_their_ratio():
    left, right = drawn(alpha=0.1, title="a step")
    assert [label.get_text() for label in left.get_yticklabels()] == ["␣b", "$x_1$", "↵", "e", "d"]
    assert not any(label.get_parse_math() for label in left.get_yticklabels())
    ours, theirs = left.containers
    assert [bar.get_width() for bar in ours] == pytest.approx([0.4, 0.3, 0.25, 0.03, 0.02])
    assert [bar.get_width() for bar in theirs] == pytest.approx([0.5, 0.05, 0.3, 0.149, 0.001])
    by_hand = [np.log(0.4 / 0.5), np.log(6), np.log(0.25 / 0.3), np.log(0.03 / 0.149), np.log(20)]
    assert [bar.get_width() for bar in right.patches] == pytest.approx(by_hand)


def test_what_the_cut_takes_out_is_crossed_and_the_winner_among_the_rest_is_ticked():
    left, right = drawn(alpha=0.1)
    assert [bool(bar.get_hatch()) for bar in right.patches] == [False, False, False, True, True]
    (tick,) = right.texts
    assert tick.get_text() == "✓" and tick.xy[1] == 1  # x_1, and not the implausible d, whose score is highest
    assert to_hex(right.patches[1].get_facecolor()) == palette.LIGHT["accepted"]
    assert left.lines[0].get_xdata()[0] == pytest.approx(0.04)
    _, right = drawn(alpha=0.01)
    assert right.texts[0].xy[1] == 4


def test_the_winner_is_drawn_even_where_it_is_not_among_the_likeliest():
    left, right = drawn(alpha=0.01, top=2)
    assert [label.get_text() for label in left.get_yticklabels()] == ["␣b", "d"] and right.texts[0].xy[1] == 1


def test_the_amateurs_temperature_is_the_amateurs():
    left, _ = drawn(alpha=0.1, amateur_temperature=0.5)
    squares = np.array(AMATEUR) ** 2 / np.sum(np.array(AMATEUR) ** 2)
    ours, theirs = left.containers
    assert [bar.get_width() for bar in ours][0] == pytest.approx(0.4)
    assert [bar.get_width() for bar in theirs] == pytest.approx(squares[[1, 0, 2, 4, 3]].tolist())


@pytest.mark.parametrize(
    ("expert", "amateur", "complaint"),
    [
        (EXPERT[:2], AMATEUR, "5 tokens and"),
        (EXPERT, [0.1] * 5, "amateur must sum to 1, got 0.5"),
        ([0.5, 0.5, 0, 0, 0], AMATEUR, "expert gives '\\\\n' no probability"),
    ],
)
def test_what_has_no_logarithm_is_refused(expert, amateur, complaint):
    _, axes = plt.subplots(1, 2)
    with pytest.raises(ValueError, match=complaint):
        contrast_plots.contrast_bars(axes, NAMES, expert, amateur, alpha=0.1)


def test_the_similarity_map_shows_the_past_only():
    _, ax = plt.subplots()
    cosines = np.array([[1, 0.2, 0.3], [0.2, 1, 0.4], [0.3, 0.4, 1]])
    assert contrast_plots.similarity_map(ax, cosines, ["a", "$b$", " c"]) is ax
    shown = np.ma.filled(ax.images[0].get_array(), np.nan)
    assert shown[1, 0] == 0.2 and shown[2, 1] == 0.4 and np.isnan(shown[np.triu_indices(3)]).all()
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "$b$", "␣c"]
    ax.figure.canvas.draw()
    for wrong, complaint in ((np.ones((2, 3)), r"shape \(n, n\)"), (3 * cosines, "divide by the lengths")):
        with pytest.raises(ValueError, match=complaint):
            contrast_plots.similarity_map(ax, wrong)


def test_the_layer_map_has_a_row_a_layer_and_marks_the_chosen_one():
    _, ax = plt.subplots()
    distances = [[0.6, 0.1], [0.2, 0.3], [0.0, 0.05]]
    contrast_plots.layer_map(ax, distances, [" a", "b"], [2, 4, 6], chosen=[2, 4])
    assert ax.images[0].get_array().tolist() == distances and ax.images[0].get_clim() == (0, np.log(2))
    assert ax.lines[0].get_xydata().tolist() == [[0, 0], [1, 1]]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["2", "4", "6"] and not ax.yaxis_inverted()
    assert [label.get_text() for label in ax.get_xticklabels()] == ["␣a", "b"]
    with pytest.raises(ValueError, match=r"\(3, 2\); got \(2, 2\)"):
        contrast_plots.layer_map(ax, distances[:2], [" a", "b"], [2, 4, 6])


def row(y):
    return {"y": y, "y_interval": [y - 0.1, y + 0.2]}


def test_curves_over_a_setting_with_shaded_intervals_and_level_lines():
    _, ax = plt.subplots()
    curves = {"long": {"0": {"y": None, "y_interval": [None, None]}, "0.1": row(0.5), "1": row(0.7)}, "short": {}}
    curves["short"] = {"1": row(0.2)}
    contrast_plots.setting_curves(ax, curves, y="y", levels={"greedy": row(0.9)})
    long, short, level = ax.lines
    assert long.get_xydata().tolist() == [[1, 0.5], [2, 0.7]] and short.get_xydata().tolist() == [[2, 0.2]]
    assert set(level.get_ydata()) == {0.9}
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0", "0.1", "1"]
    heights = {round(float(y), 3) for _, y in ax.collections[0].get_paths()[0].vertices}
    assert heights == {0.4, 0.6, 0.7, 0.9}
    with pytest.raises(ValueError, match="not among"):
        contrast_plots.setting_curves(ax, {**curves, "strange": {"7": row(0.1)}}, y="y")
    with pytest.raises(ValueError, match="5 curves, got 6"):
        contrast_plots.setting_curves(ax, {str(i): {} for i in range(6)}, y="y")
