"""The drawing of EAGLE-3's training shows what a position may read, and nothing that drafting would not have."""

import pytest
from matplotlib.figure import Figure

from tutorlib.course.drawings.unrolled_training import unrolled_training


def drawn(**options):
    ax = Figure().add_subplot()
    assert unrolled_training(ax, **options) is ax
    return [text.get_text() for text in ax.texts if text.get_text()]


def test_each_step_replaces_one_more_state_of_the_target_by_the_networks_own():
    texts = drawn(position=3, steps=3, length=5)
    rows = [texts[texts.index(f"step {step}") + 1 :][:5] for step in (1, 2, 3)]
    assert rows[0] == ["$g_1$", "$g_2$", "$g_3$", "$g_4$", "$g_5$"]
    assert rows[1] == ["$g_1$", "$g_2$", "$g_3$", r"$\hat a_4$", "$g_5$"]
    assert rows[2] == ["$g_1$", "$g_2$", "$g_3$", r"$\hat a_4$", r"$\hat a_5$"]
    assert [text for text in texts if text.startswith("token")] == ["token 5?", "token 6?", "token 7?"]


def test_steps_that_leave_the_text_are_refused():
    with pytest.raises(ValueError, match="4 steps from position 3 do not fit into a text of 5"):
        drawn(position=3, steps=4, length=5)
