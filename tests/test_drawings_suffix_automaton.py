"""The drawing of a suffix automaton: the states are those of the code that drafts, the thick arrows what followed."""

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import pytest
from matplotlib.colors import to_hex

from tutorlib.course.drawings.suffix_automaton import states_of, suffix_automaton
from tutorlib.decoders.suffix_lookup import SuffixAutomaton
from tutorlib.viz.palette import LIGHT

pytestmark = pytest.mark.usefixtures("figures")

WORDS = ["the", "red", "kite", "the", "red", "drum", "the", "red"]


@pytest.mark.parametrize("words", [WORDS, list("aba"), list("abcabdab"), list("aaaa")], ids=" ".join)
def test_it_is_the_automaton_that_drafts(words):
    seen = SuffixAutomaton()
    seen.extend(words)
    arrows, match = states_of(words)
    length = seen._length
    assert arrows == {
        (length[state], token): length[end] for state, after in enumerate(seen._next) for token, end in after.items()
    }
    assert match == length[seen._link[seen._whole]]


def test_the_thick_arrows_are_what_followed_the_match():
    _, ax = plt.subplots()
    assert suffix_automaton(ax, WORDS) is ax
    thick = [text.get_text() for text in ax.texts if to_hex(text.get_color()) == LIGHT["draft"]]
    assert sorted(thick) == ["drum", "kite"]
    numbers = [text.get_text() for text in ax.texts if text.get_text().isdigit()]
    assert numbers == [str(state) for state in range(9)]


def test_an_automaton_that_does_not_fit_into_a_row_is_refused():
    with pytest.raises(ValueError, match="need a state of their own"):
        suffix_automaton(plt.subplots()[1], list("abcbd"))
