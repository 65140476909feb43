"""The drawings of the chapters on the next token, greedy decoding and best-first search."""

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import pytest

from tutorlib.course.drawings.best_first import queue_tree
from tutorlib.course.drawings.choices import margin_bars, rising_loop
from tutorlib.course.drawings.next_token import one_round
from tutorlib.course.drawings.wide_call import wide_call
from tutorlib.measures import cost
from tutorlib.viz.trees import branches_of


def drawn(draw, *args, **options):
    ax = plt.subplots()[1]
    assert draw(ax, *args, **options) is ax
    ax.figure.canvas.draw()
    plt.close(ax.figure)
    return ax, [text.get_text() for text in ax.texts]


def bars(ax):
    return [patch for patch in ax.patches if type(patch).__name__ == "Rectangle"]


def test_a_round_ends_with_the_chosen_token_and_all_probability_is_drawn():
    ax, shown = drawn(one_round, ["a", "$b$"], {"c$_": 0.5, "d": 0.2}, 1000)
    assert shown[:3] == ["a", "$b$", "c$_"] and {"998 others", "0.30", "2  1,000 probabilities come out."} <= set(shown)
    widths = [bar.get_width() for bar in bars(ax)]
    assert sum(widths) == pytest.approx(widths[0] / 0.5)
    with pytest.raises(ValueError, match="needs a text"):
        one_round(ax, [], {"c": 0.5}, 9)


def test_a_wide_call_reads_as_long_as_a_narrow_one_and_computes_longer():
    ax, shown = drawn(wide_call, (1, 9))
    assert shown[0] == "A call with 1 token" and "A call with 9 tokens" in shown
    once, little, again, more = [bar.get_width() for bar in bars(ax) if bar.get_height() == 0.8]
    assert once == again > more == pytest.approx(9 * little)
    with pytest.raises(ValueError, match="1 to 12"):
        wide_call(ax, [0])


def test_close_choices_are_hatched_and_a_loop_has_a_line_for_each_repetition():
    ax, _ = drawn(margin_bars, ["a", "b", "c"], [0.1, 3.0, 0.7])
    assert [bool(bar.get_hatch()) for bar in ax.patches] == [False, False, True]
    with pytest.raises(ValueError, match="3 tokens"):
        margin_bars(ax, "abc", [1])
    ax, _ = drawn(rising_loop, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], 2, 2)
    assert [line.get_xdata()[0] for line in ax.lines[:2]] == [1.5, 3.5]
    with pytest.raises(ValueError, match="must begin"):
        rising_loop(ax, [0.1], 4, 2)


def test_the_queue_is_numbered_in_its_order_and_the_result_comes_last():
    taken, waiting = [([], 0.0), ([1], -0.5), ([2], -0.7)], [([1, 2], -0.9), ([2, 2], -1.5)]
    ax, shown = drawn(queue_tree, taken, waiting, [1, 2], text="_$bc".__getitem__)
    assert sorted(text for text in shown if text.isdigit()) == ["1", "2", "3", "4"]
    assert "the result" in shown and "−1.50" in shown and shown.count("prompt") == 1
    with pytest.raises(ValueError, match="must be in `waiting`"):
        queue_tree(ax, taken, waiting, [3, 3], text=str)


def test_branches_multiply_to_the_probabilities_of_the_texts():
    branches = branches_of({("a", "x"): 0.3, ("a", "y"): 0.3, ("b", "x"): 0.4})
    assert branches == pytest.approx({("a",): 0.6, ("a", "x"): 0.5, ("a", "y"): 0.5, ("b",): 0.4, ("b", "x"): 1.0})


def test_the_rates_of_a_machine_are_those_of_its_fastest_repeat(llama):
    ticks = iter([0, 4, 10, 12, 20, 23, 30, 31, 40, 44, 50, 58])  # 4, 2 and 3 seconds; then 1, 4 and 8
    rates = cost.machine_rates(llama, repeats=3, clock=lambda: next(ticks))
    assert rates == {"peak_operations": 2 * 1024**3 / 2, "bandwidth": 2 * 4 * 2**25}
