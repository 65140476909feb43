"""The drawing of a rollback: what both caches hold before it and after it."""

import matplotlib.pyplot as plt
import pytest

from tutorlib.course.drawings.rollback import rollback

DRAFTED = ["The", "blue", "bell", "was"]


def drawn(accepted):
    ax = plt.subplots(figsize=(7.0, 3.7))[1]
    assert rollback(ax, DRAFTED, accepted, "book") is ax
    return [text.get_text() for text in ax.texts if text.get_text()]


@pytest.mark.parametrize("accepted", range(5))
def test_the_draft_has_read_a_token_less_and_both_keep_what_was_accepted(accepted):
    shown = drawn(accepted)
    words = [text.split()[-1] for text in shown]
    for number, token in enumerate(DRAFTED):
        read_by = 2 if number < 3 else 1
        assert words.count(token) == (2 * read_by if number < accepted else read_by)
    assert ("★ book" if accepted == 4 else "↻ book") in shown


def test_more_accepted_tokens_than_drafted_ones_are_refused():
    with pytest.raises(ValueError, match="4 drafted tokens can be accepted, got 5"):
        drawn(5)
