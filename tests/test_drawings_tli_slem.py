"""The drawing of TLI beside SLEM: probabilities of the shared tokens, one text in two tokenizers, what is checked."""

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import pytest

from tutorlib.course.drawings.tli_slem import GUESS, tli_beside_slem

pytestmark = pytest.mark.usefixtures("figures")

PROBS = {"red": 0.5, "kite": 0.3, "umb": 0.2}
VOCAB = ["red", "kite", "umbrella", "."]


def test_tli_divides_by_what_the_shared_tokens_have_and_the_targets_tokens_are_framed():
    _, ax = plt.subplots()
    assert tli_beside_slem(ax, PROBS, VOCAB, ["umb", "rella", "."], ["umbrella", "."], drawn="kite") is ax
    shown = [text.get_text() for text in ax.texts]
    assert {"0.5", "0.3", "0.2", "0.625", "0.375", "not shared"} <= set(shown)
    framed = [box for box in ax.patches if box.get_linewidth() == GUESS["linewidth"]]
    assert len(framed) == 3  # the token that TLI draws, and both tokens of SLEM's guess


@pytest.mark.parametrize(
    ("guess", "drawn", "says"), [(["umb"], "kite", "be the same text"), (["umbrella", "."], "umb", "of both models")]
)
def test_what_the_methods_could_not_do_is_refused(guess, drawn, says):
    with pytest.raises(ValueError, match=says):
        tli_beside_slem(plt.subplots()[1], PROBS, VOCAB, ["umb", "rella", "."], guess, drawn=drawn)
