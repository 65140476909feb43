"""Figures about speculation: the areas are those of the formulas, and nothing is said by colour alone."""

from types import SimpleNamespace

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import pytest
from matplotlib.colors import to_hex

from tutorlib import theory
from tutorlib.bench import GammaResult, Spread
from tutorlib.viz import palette, speculation_plots

NAMES = ["$x_1$", " b", "\n"]
P, Q = [0.4, 0.4, 0.2], [0.1, 0.3, 0.6]


pytestmark = pytest.mark.usefixtures("figures")


@pytest.fixture
def ax():
    return plt.subplots(figsize=(9, 3))[1]


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_calls_follow_each_other_and_are_as_wide_as_they_take_long(ax):
    lanes = {
        "plain": [(4.0, "target", "␣$x_1$"), (4.0, "target", "␣b")],
        "speculation": [(0.1, "draft", "␣$x_1$"), (0.1, "draft", "␣b"), (5.0, "target", "checks")],
    }
    assert speculation_plots.call_timeline(ax, lanes) is ax
    boxes = [(box.get_x(), box.get_width(), round(box.get_y() + 0.32)) for box in ax.patches]
    assert [tuple(map(pytest.approx, box)) for box in boxes] == [
        (0, 4, 0),
        (4, 4, 0),
        (0, 0.1, 1),
        (0.1, 0.1, 1),
        (0.2, 5, 1),
    ]
    ax.figure.canvas.draw()
    shown = [text.get_text() for text in ax.texts]
    assert "8.0 ms" in shown and "5.2 ms" in shown
    assert "␣$x_1$ · ␣b" in shown  # too wide for their boxes: below them, letter by letter
    assert legend(ax) == ["● one call of the target", "◇ one call of the draft"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["plain", "speculation"] and ax.yaxis_inverted()


def test_a_call_that_takes_no_time_or_is_of_no_kind_is_refused(ax):
    with pytest.raises(ValueError, match="must take some time, got 0 for 'a'"):
        speculation_plots.call_timeline(ax, {"lane": [(0, "target", "a")]})
    with pytest.raises(ValueError, match="'large' is not a kind of token"):
        speculation_plots.call_timeline(ax, {"lane": [(1, "large", "a")]})


def test_the_overlap_is_what_is_accepted_and_the_two_rests_are_of_one_size(ax):
    assert speculation_plots.overlap_bars(ax, NAMES, P, Q, title="three tokens") is ax
    accepted, rejected, resampled = ax.containers
    assert [bar.get_height() for bar in accepted] == pytest.approx([0.1, 0.3, 0.2])
    assert [(bar.get_y(), bar.get_height()) for bar in rejected] == [tuple(map(pytest.approx, (0.2, 0.4)))]
    assert [bar.get_height() for bar in resampled] == pytest.approx([0.3, 0.1])
    together = sum(bar.get_height() for bar in accepted)
    assert together == pytest.approx(theory.acceptance_rate(P, Q))
    assert [label[0] for label in legend(ax)[2:]] == ["✓", "✗", "↻"]
    assert all("together 0.60" in label or "together 0.40" in label for label in legend(ax)[2:])
    hatches = {bars[0].get_hatch() for bars in ax.containers}
    assert len(hatches) == 3 and None not in hatches  # not by colour alone
    marks = {line.get_label()[0]: list(line.get_ydata()) for line in ax.lines}
    assert marks == {"p": P, "q": Q}
    ax.figure.canvas.draw()
    assert [label.get_text() for label in ax.get_xticklabels()] == ["$x_1$", "␣b", "↵"]
    assert not any(label.get_parse_math() for label in ax.get_xticklabels())


def test_of_many_tokens_the_largest_are_drawn_and_the_sums_are_over_all(ax):
    p, q = [0.02, 0.48, 0.3, 0.2, 0.0], [0.0, 0.3, 0.5, 0.196, 0.004]
    speculation_plots.overlap_bars(ax, list("abcde"), p, q, top=3)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["b", "c", "d"]
    assert "together 0.80" in legend(ax)[2]
    _, other = plt.subplots()
    speculation_plots.overlap_bars(other, list("abcde"), p, q, legend=False)
    assert [label.get_text() for label in other.get_xticklabels()] == ["a", "b", "c", "d"]  # e could not be seen
    assert other.get_legend() is None


def test_what_is_no_distribution_is_refused(ax):
    with pytest.raises(ValueError, match="of the draft must sum to 1, got 0.5"):
        speculation_plots.overlap_bars(ax, ["a", "b"], [0.5, 0.5], [0.25, 0.25])
    with pytest.raises(ValueError, match="2 tokens and"):
        speculation_plots.overlap_bars(ax, ["a", "b"], [1.0], [0.5, 0.5])


def test_expected_curves_begin_at_gamma_1_and_measurements_are_marks(ax):
    curves = {f"α = {alpha}": [theory.expected_tokens(alpha, gamma) for gamma in (1, 2, 3)] for alpha in (0.5, 0.9)}
    assert speculation_plots.expected_curves(ax, curves, {"sampling": {1: 1.8, 3: 3.1}}) is ax
    half, _, marks = ax.lines
    assert half.get_xydata().tolist() == [[1, 1.5], [2, 1.75], [3, 1.875]]
    assert marks.get_xydata().tolist() == [[1, 1.8], [3, 3.1]] and marks.get_linestyle() == "None"
    assert len({line.get_linestyle() for line in ax.lines}) == 3
    with pytest.raises(ValueError, match="5 curves and 2 measurements, got 6 and 0"):
        speculation_plots.expected_curves(ax, {str(i): [1.0] for i in range(6)})


RESULTS = [
    GammaResult(1, Spread(1.25, 1.0, 1.6), 1.9, 0.9, 1.6),
    GammaResult(2, Spread(2.0, 1.6, 2.5), 2.7, 0.9, 2.5),
    GammaResult(3, Spread(0.8, 0.8, 0.8), 3.1, 0.9, 1.0),
]


def test_time_by_gamma_is_in_units_of_the_plain_loop(ax):
    assert speculation_plots.time_by_gamma(ax, RESULTS, formula={1: 1.8, 2: 2.5, 3: 4.0}, title="sampling") is ax
    assert [bar.get_height() for bar in ax.containers[0]] == pytest.approx([0.8, 0.5, 1.25])
    solid = [to_hex(bar.get_facecolor()) == palette.LIGHT["accepted"] for bar in ax.containers[0]]
    assert solid == [False, True, False]  # the best, which alone is not hatched
    assert [bool(bar.get_hatch()) for bar in ax.containers[0]] == [True, False, True]
    assert [text.get_text() for text in ax.texts] == ["1.25×", "2.00×", "0.80×"]
    lines = {line.get_label(): line for line in ax.lines}
    assert set(lines["plain loop"].get_ydata()) == {1}
    assert list(lines["predicted, measured cost of calls"].get_ydata()) == pytest.approx([0.625, 0.4, 1.0])
    (published,) = [line for label, line in lines.items() if label.endswith("costs the same")]
    assert list(published.get_ydata()) == pytest.approx([1 / 1.8, 0.4, 0.25])
    whiskers = ax.collections[0].get_segments()
    assert [sorted(segment[:, 1]) for segment in whiskers] == [
        pytest.approx(ends) for ends in ([0.625, 1.0], [0.4, 0.625], [1.25, 1.25])
    ]


def test_kinds_of_tokens_have_a_bar_for_each_way_and_their_number_of_places(ax):
    def kind(value, places):
        return {"places": places, "acceptance": value, "acceptance_interval": [value - 0.1, value + 0.05]}

    rows = {"sampling": {"$a$": kind(0.9, 10), "b": kind(0.4, 3)}, "greedy": {"$a$": kind(0.8, 10), "b": kind(0.5, 3)}}
    assert speculation_plots.kind_bars(ax, rows) is ax
    sampling, greedy = (container for container in ax.containers if hasattr(container, "patches"))
    assert [bar.get_width() for bar in sampling] == [0.9, 0.4] and [bar.get_width() for bar in greedy] == [0.8, 0.5]
    assert not sampling[0].get_hatch() and greedy[0].get_hatch()
    assert [label.get_text() for label in ax.get_yticklabels()] == ["$a$ (10)", "b (3)"] and ax.yaxis_inverted()
    with pytest.raises(ValueError, match="two ways to decode, got 3"):
        speculation_plots.kind_bars(ax, rows | {"third": {}})


def test_hard_tokens_are_darker_and_marked(ax):
    assert speculation_plots.acceptance_text(ax, ["$x$", " b", " c"], [1.0, 0.6, 0.2]) is ax
    ax.figure.canvas.draw()
    assert [text.get_text() for text in ax.texts] == ["$x$", "␣b", "✗ ␣c"]
    easy, middle, hard = ax.patches
    assert to_hex(easy.get_facecolor()) == "#ffffff"
    green = [patch.get_facecolor()[1] for patch in (easy, middle, hard)]
    assert green == sorted(green, reverse=True) and len(set(green)) == 3
    assert easy.get_linestyle() == "-" and hard.get_linestyle() == "--"
    with pytest.raises(ValueError, match="3 tokens and"):
        speculation_plots.acceptance_text(ax, list("abc"), [1.0])


def test_a_result_needs_no_more_than_three_of_its_fields(ax):
    few = [SimpleNamespace(gamma=2, over_plain=Spread(2, 2, 2), predicted=2)]
    assert len(speculation_plots.time_by_gamma(ax, few).containers[0]) == 1
