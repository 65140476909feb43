"""A draft with a lookup: its logits are its own, and some of its calls are saved."""

import pytest
import torch
from conftest import random_model
from lossless import ring

from tutorlib import LM, TokenTree, run, speculative, with_lookup
from tutorlib.drafting.lookup_draft import LookupSession, looked_up

TEXT = [5, 1, 2, 3, 4, 5, 1, 2]


def test_what_is_looked_up_by_hand():
    assert looked_up(TEXT, 3, (4, 3)) == [3, 4, 5] and looked_up(TEXT, 3, (4,)) == []
    assert looked_up([1, 1, 1], 5, (1,)) == [1], "the latest place, which may overlap the end"
    assert looked_up([], 2, (2, 1)) == looked_up([7], 2, (2, 1)) == []


@pytest.fixture(params=["gpt2", "looped_llama"])
def lm(request):
    return LM(random_model(request.param))


def test_its_logits_are_those_of_the_draft_and_guessed_tokens_take_no_call(lm):
    plain, session = lm.session(TEXT), with_lookup(lm).session(TEXT)

    def both(verb, *given):
        found, expected = (getattr(one, verb)(*given) for one in (session, plain))
        if expected is not None:
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
        assert session.tokens == plain.tokens and session.room == plain.room

    assert isinstance(session, LookupSession)
    both("feed")
    both("feed", [3])
    both("feed", [4])
    assert session.calls == 1, "3, 4 and 5 were guessed"
    both("feed", [5, 9])
    assert session.calls == 2
    both("feed", [5, 1])
    both("advance_to", [*TEXT, 3, 4, 5, 9, 5, 1, 2, 3])
    both("rollback", 2)
    both("feed", [2, 3])
    both("feed_tree", TokenTree([4, 7], [-1, -1]))
    both("keep", [1])
    both("feed", [5])
    both("advance_to", TEXT[:3])
    both("feed", [3])


def test_its_hidden_states_are_those_of_what_was_fed(lm):
    plain, session = lm.session(TEXT, hidden=-1), with_lookup(lm).session(TEXT, hidden=-1)
    for one in (plain, session):
        one.feed()
        one.feed([3])
    torch.testing.assert_close(session.hidden, plain.hidden, rtol=0, atol=1e-4)


def test_it_fills_its_context_and_no_more():
    lm = LM(random_model("gpt2"), context=len(TEXT) + 1)
    session = with_lookup(lm).session(TEXT)
    assert session.feed().shape[0] == session.feed([3]).shape[0] == 1 and session.room == 0
    with pytest.raises(ValueError, match="1 tokens to feed, but room for 0"):
        session.feed([4])


def test_the_text_is_the_targets_and_where_it_repeats_itself_the_draft_makes_fewer_calls():
    target, calls = ring(5), []
    for draft in (target.counted(), with_lookup(target)):
        assert run(speculative(target, draft, [0, 1, 2, 3, 4, 0, 1], gamma=4), 50).tokens == [2, 3, 4, 0, 1] * 10
        calls.append(draft.calls)
    assert calls == [40, 10], "of the four in a round, three were guessed"


@pytest.mark.parametrize(("how", "says"), [({"ahead": 0}, "ahead is how many"), ({"ngrams": (2, 0)}, "ngrams must be")])
def test_nonsense_is_named(lm, how, says):
    with pytest.raises(ValueError, match=says):
        with_lookup(lm, **how)
