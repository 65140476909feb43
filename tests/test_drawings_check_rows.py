"""The drawing of a check: a row for each token read, and what came of the draft."""

import matplotlib.pyplot as plt
import pytest

from tutorlib.course.drawings.check_rows import check_rows

DRAFTED = ["The", "$blue", "bell", "was"]


def drawn(accepted):
    ax = plt.subplots(figsize=(7.4, 3.2))[1]
    assert check_rows(ax, ".", DRAFTED, accepted, "book") is ax
    ax.figure.canvas.draw()
    return [text.get_text() for text in ax.texts if text.get_text()]


@pytest.mark.parametrize("accepted", range(5))
def test_there_is_a_row_more_than_drafted_tokens_and_one_token_of_the_targets_own(accepted):
    shown = drawn(accepted)
    assert [text for text in shown if text.startswith("row")] == [f"row {i}" for i in (1, 2, 3, 4, 5)]
    fates = [text[0] for text in shown if text.endswith(("The", "blue", "bell", "was"))]
    assert "".join(fates) == ("✓" * accepted + "✗" + "○" * 4)[:4]
    assert ("★ book" if accepted == 4 else "↻ book") in shown


@pytest.mark.parametrize("accepted", [-1, 5])
def test_more_accepted_tokens_than_drafted_ones_are_refused(accepted):
    with pytest.raises(ValueError, match=f"4 drafted tokens can be accepted, got {accepted}"):
        drawn(accepted)
