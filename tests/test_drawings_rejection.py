"""The drawing of a rejection: both distributions share the accepted part, and what is left is equally large."""

import matplotlib.pyplot as plt
import pytest

from tutorlib.course.drawings.rejection import rejection


def test_each_bar_ends_at_its_probability_and_the_legends_sum_up_the_parts():
    axes = plt.subplots(1, 2)[1]
    p, q = [0.4, 0.4, 0.2], [0.1, 0.3, 0.6]
    assert rejection(axes, ["$a", "b", "c"], p, q) is axes
    for ax, probs, other in zip(axes, (q, p), ("✗ rejected: 0.4", "↻ drawn instead: 0.4"), strict=True):
        common, more = ax.containers
        assert [bar.get_height() for bar in common] == pytest.approx([0.1, 0.3, 0.2])
        tops = {round(bar.get_x() + bar.get_width() / 2): bar.get_y() + bar.get_height() for bar in more}
        assert all(tops[place] == pytest.approx(probs[place]) for place in tops)
        assert len(tops) == sum(prob > low for prob, low in zip(probs, [0.1, 0.3, 0.2], strict=True))
        assert [text.get_text() for text in ax.get_legend().get_texts()] == ["✓ accepted: 0.6", other]


def test_what_is_no_distribution_is_refused():
    with pytest.raises(ValueError, match="of the draft must sum to 1"):
        rejection(plt.subplots(1, 2)[1], ["a", "b"], [0.5, 0.5], [0.5, 0.2])
