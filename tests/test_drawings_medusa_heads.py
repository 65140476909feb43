"""The drawing of Medusa's heads."""

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import pytest

from tutorlib.course.drawings.medusa_heads import medusa_heads

pytestmark = pytest.mark.usefixtures("figures")

GUESSES = {"own head": [("$b$", 0.9), ("c", 0.1)], "head 0": [("c", 0.5), ("d", 0.25)]}


def test_each_head_has_a_column_over_the_one_vector_and_what_was_right_is_ticked():
    ax = medusa_heads(plt.subplots()[1], ["a"], GUESSES, ["$b$", "d"])
    at = {text.get_text(): text.get_position() for text in ax.texts if text.get_text()}
    own, other = at["own head"][0], at["head 0"][0]
    assert own == at["✓ $b$ 0.90"][0] == at["✗ c 0.10"][0] < at["$h_t$"][0] < other == at["✗ c 0.50"][0]
    heights = [at[text][1] for text in ("… a", "$h_t$", "head 0", "✓ d 0.25", "✗ c 0.50", "token $t + 2$")]
    assert heights == sorted(heights)
    with pytest.raises(ValueError, match="2 columns of guesses, but 1 tokens"):
        medusa_heads(plt.subplots()[1], ["a"], GUESSES, ["$b$"])
