"""Figures about warps: what is kept is filled, what is dropped is crossed out, and the numbers are those given."""

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex

from tutorlib.viz import palette, warp_plots

NAMES = ["$x_1$", " b", "\n", "日", "e"]
BEFORE = [0.1, 0.4, 0.3, 0.15, 0.05]
TOP_2 = [0, 4 / 7, 3 / 7, 0, 0]


pytestmark = pytest.mark.usefixtures("figures")


def texts(ax):
    """Everything written in an axes, drawn first so that matplotlib has read it."""
    ax.figure.canvas.draw()
    return [text.get_text() for text in ax.findobj(matplotlib.text.Text) if text.get_text()]


def bars(ax, look):
    """The lengths of the bars of one look, by their row."""
    return {
        round(bar.get_y() + bar.get_height() / 2): bar.get_width()
        for container in ax.containers
        if container.get_label() == look
        for bar in container
    }


def test_bars_show_what_is_kept_what_it_had_and_what_is_dropped():
    _, ax = plt.subplots()
    assert warp_plots.warp_bars(ax, NAMES, BEFORE, TOP_2, title="top-k 2") is ax
    assert [label.get_text() for label in ax.get_yticklabels()] == ["␣b", "↵", "⟨U+65E5⟩", "$x_1$", "e"]
    assert not any(label.get_parse_math() for label in ax.get_yticklabels())
    assert bars(ax, "kept: now") == pytest.approx({0: 4 / 7, 1: 3 / 7})
    assert bars(ax, "kept: before") == pytest.approx({0: 0.4, 1: 0.3})
    assert bars(ax, "dropped") == pytest.approx({2: 0.15, 3: 0.1, 4: 0.05})
    assert {"top-k 2", "keeps 2 tokens: 0.700"} <= set(texts(ax))
    assert ax.get_xlabel() == "probability" and ax.get_ylabel() == "next token"


def test_kept_and_dropped_differ_without_colour():
    _, ax = plt.subplots()
    warp_plots.warp_bars(ax, NAMES, BEFORE, TOP_2, legend=True)
    kept, dropped, outline = (container[0] for container in ax.containers)
    assert to_hex(kept.get_facecolor()) == palette.LIGHT["target"] and not kept.get_hatch()
    assert dropped.get_hatch() and outline.get_facecolor()[3] == 0
    assert {"kept: now", "kept: before", "dropped"} <= set(texts(ax))


def test_the_tokens_beyond_the_top_share_a_bar():
    _, ax = plt.subplots()
    warp_plots.warp_bars(ax, NAMES, BEFORE, [0.2, 0.5, 0.3, 0, 0], top=2)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["␣b", "↵", "3 others"]
    # Of the three others one is kept: the bar shows what they have together.
    assert bars(ax, "kept: now")[2] == pytest.approx(0.2) and bars(ax, "kept: before")[2] == pytest.approx(0.3)
    _, ax = plt.subplots()
    warp_plots.warp_bars(ax, NAMES, BEFORE, TOP_2, top=2)
    assert bars(ax, "dropped") == pytest.approx({2: 0.3})


def test_a_warp_that_drops_nothing_says_so():
    _, ax = plt.subplots()
    assert "keeps all tokens" in texts(warp_plots.warp_bars(ax, NAMES, BEFORE, [0.2] * 5))
    _, ax = plt.subplots()
    assert "keeps 1 token: 0.400" in texts(warp_plots.warp_bars(ax, NAMES, BEFORE, [0, 1.0, 0, 0, 0]))


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        (BEFORE, [0.5, 0.5], "5 tokens and"),
        (BEFORE, [0.5] * 5, "`after` must sum to 1, got 2.5"),
        ([0.5, 0.4, 0, 0, 0], TOP_2, "`before` must sum to 1, got 0.9"),
        ([0, 0.4, 0.6, 0, 0], [0.1, 0.4, 0.5, 0, 0], "had no probability and got some"),
        (BEFORE, [float("nan")] * 5, "between 0 and 1"),
    ],
)
def test_what_is_no_warp_of_a_distribution_is_refused(before, after, complaint):
    _, ax = plt.subplots()
    with pytest.raises(ValueError, match=complaint):
        warp_plots.warp_bars(ax, NAMES, before, after)


def test_on_a_logarithmic_axis_small_probabilities_are_seen():
    _, ax = plt.subplots()
    warp_plots.warp_bars(ax, NAMES, [0.99, 0.009, 0.001, 0, 0], [1, 0, 0, 0, 0], log=True)
    assert ax.get_xscale() == "log" and ax.get_xlim()[0] == warp_plots.FAINTEST
    assert bars(ax, "dropped") == pytest.approx({1: 0.009, 2: 0.001, 3: 0, 4: 0})


def test_the_grid_has_one_scale_and_names_its_tokens_once():
    _, axes = plt.subplots(2, 2)
    afters = {"as it is": BEFORE, "top-k 2": TOP_2, "top-k 1": [0, 1.0, 0, 0, 0]}
    used = warp_plots.warp_grid(axes, NAMES, BEFORE, afters)
    assert [ax.get_title(loc="left") for ax in used] == list(afters)
    assert len({ax.get_xlim() for ax in used}) == 1 and used[0].get_xlim()[1] >= 1
    named = [any(label.get_text() for label in ax.get_yticklabels()) for ax in used]
    assert named == [True, False, True]
    assert [ax.get_xlabel() for ax in used] == ["", "probability", "probability"]
    assert not axes[1, 1].axison
    with pytest.raises(ValueError, match="3 warps, but only 1 axes"):
        warp_plots.warp_grid(axes[:1, :1], NAMES, BEFORE, afters)


def test_the_strip_marks_where_the_numbers_fall():
    _, ax = plt.subplots()
    warp_plots.draw_strip(ax, NAMES, BEFORE, [0.05, 0.3])
    assert [bar.get_x() for bar in ax.patches] == pytest.approx([0, 0.1, 0.5, 0.8, 0.95])
    assert [bar.get_width() for bar in ax.patches] == pytest.approx(BEFORE)
    assert list(ax.lines[-1].get_xdata()) == [0.05, 0.3]
    assert {"$x_1$", "␣b"} <= set(texts(ax))
    with pytest.raises(ValueError, match=r"\[0, 1\), got 0.5 to 1"):
        warp_plots.draw_strip(ax, NAMES, BEFORE, [0.5, 1.0])
    with pytest.raises(ValueError, match="must sum to 1"):
        warp_plots.draw_strip(ax, NAMES[:2], [0.1, 0.2])


def test_the_strip_writes_only_where_there_is_room():
    _, ax = plt.subplots()
    warp_plots.draw_strip(ax, NAMES, BEFORE, named=0.2)
    assert [text.get_text() for text in ax.texts] == ["␣b", "↵"]


def test_kept_tokens_against_the_entropy():
    _, ax = plt.subplots()
    warp_plots.kept_counts(ax, [0.0, 1.0, 2.0], [1, 3, 8], vocab_size=20, title="top-p")
    line, marks, everything = ax.lines
    np.testing.assert_allclose(line.get_ydata(), np.exp(line.get_xdata()))
    assert list(marks.get_ydata()) == [1, 3, 8] and set(everything.get_ydata()) == {20}
    assert ax.get_xlabel() == "entropy (nats)" and ax.get_yscale() == "log"
    with pytest.raises(ValueError, match="one count for each entropy"):
        warp_plots.kept_counts(ax, [0.0], [1, 2])
    with pytest.raises(ValueError, match="got a count of 0"):
        warp_plots.kept_counts(ax, [0.0], [0])


def row(x, y):
    return {"x": x, "y": y, "x_interval": [x - 0.1, x + 0.2], "y_interval": [y - 0.3, y + 0.4]}


def test_the_trade_off_draws_a_curve_a_filter_with_intervals_and_single_points():
    _, ax = plt.subplots()
    curves = {"top-k": {"10": row(0.8, 0.5), "2": row(0.4, 0.7)}, "top-p": {"0.9": row(0.7, 0.6)}}
    warp_plots.trade_off(ax, curves, {"greedy": row(0.1, 0.9)}, x="x", y="y")
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["top-k", "top-p", "greedy"]
    drawn = {line.get_label(): line for line in ax.lines if not line.get_label().startswith("_")}
    assert list(drawn["top-k"].get_xdata()) == [0.8, 0.4] and list(drawn["top-k"].get_ydata()) == [0.5, 0.7]
    assert drawn["top-k"].get_marker() != drawn["top-p"].get_marker()
    assert {"2", "0.9"} <= set(texts(ax)) and "10" not in [text.get_text() for text in ax.texts]
    across = ax.collections[0].get_segments()[0]
    assert across[:, 0].tolist() == pytest.approx([0.7, 1.0]) and across[:, 1].tolist() == pytest.approx([0.5, 0.5])


def test_rows_without_intervals_are_drawn_without_lines():
    _, ax = plt.subplots()
    warp_plots.trade_off(ax, {"top-k": {"10": {"x": 0.8, "y": 0.5}}}, {"greedy": row(0.1, 0.9)}, x="x", y="y")
    assert [len(lines.get_segments()) for lines in ax.collections] == [1, 1]  # greedy's two


def test_there_are_as_many_looks_as_filters_and_no_two_alike():
    _, ax = plt.subplots()
    for key in ("color", "marker", "linestyle"):
        assert len({look[key] for look in warp_plots.LOOKS}) == 5
    with pytest.raises(ValueError, match="5 curves and 3 points, got 6 and 0"):
        warp_plots.trade_off(ax, {str(i): {} for i in range(6)}, {}, x="x", y="y")
