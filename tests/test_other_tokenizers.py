"""Drafts with other tokenizers: what of their tokens and text becomes a guess. That it is exact: `test_lossless.py`."""

import pytest
import torch
from conftest import exactly
from lossless import EXACT, distance, on
from two_tokenizers import family_lm, renumbered, small_lm, tables

from tutorlib import Seeded, TableLM, greedy, models, no_repeat_ngram, run, string_match, token_intersection, top_k

# (target's tokens, draft's tokens): some on one side only, and divided otherwise. In another order: `lossless.py`.
VOCABULARIES = {
    "the draft knows more": (["a", "b"], ["b", "x", "a"]),
    "the target knows more": (["a", "b", "c"], ["c", "a"]),
    "both know more": ([" a", "b", "c"], ["c", "x", "b"]),
    "one in common": (["a", "b"], ["x", "b"]),
    "a word is two tokens": (["a", "ab", "b"], ["b", "a"]),
    "two words are one token": ([" a", "b"], ["b a", "b", " a"]),
}
ENDINGS = ["<end>", "<eos>", "a"]  # of a draft, which has an ordinary token spelled as the target's end of text is
both = pytest.mark.parametrize("method", [token_intersection, string_match])


def far(method, target, draft, prompt, length, gamma, warp=(), stop=()):
    return distance(on(method, draft), target, prompt, length, warp, stop, gamma=gamma)


@pytest.mark.parametrize("names", [*VOCABULARIES.values(), (["a", "b"], ["ab", "ba", "aa", "bb"])], ids=str)
@both
def test_it_keeps_the_targets_distribution(method, names):
    if names in VOCABULARIES.values() or method is string_match:  # the last two have nothing in common
        assert far(method, *tables(*names), [0, 1, 0], 3, 1) < EXACT
        assert far(method, *tables(*names), [1], 2 if method is token_intersection else 3, 2) < EXACT


@both
def test_text_that_the_tokenizer_would_divide_otherwise_is_left_as_it_is(method):
    """The target writes a, b where its tokenizer reads ab, and what follows differs."""
    target = TableLM({"": [0.5, 0.3, 0.2], ("a", "b"): [0.9, 0.1, 0.0], ("ab",): [0.0, 0.1, 0.9]}, ["a", "b", "ab"])
    draft = TableLM({"": [0.4, 0.6]}, ["b", "a"])
    assert target.encode("ab") == [2]
    assert far(method, target, draft, [0, 1], 3, 1) < EXACT


@both
def test_a_stop_token_is_drafted_by_its_role_and_keeps_its_probability(method):
    target = TableLM.random(["a", "b", "<end>"], 2, 11, stop_tokens=["<end>"])
    draft = TableLM.random(ENDINGS, 2, 12, stop_tokens=["<eos>"])
    assert far(method, target, draft, [0], 3, 2, stop=None) < EXACT

    def drafted(rows, **settings):
        writer = TableLM(rows, ENDINGS, **settings)
        return next(method(target, writer, [0], gamma=3, rng=Seeded(0))).drafted

    assert drafted({"": [0.0, 0.0, 1.0], ("a", "a"): [0.0, 1.0, 0.0]}, stop_tokens=["<eos>"]) == [0, 2]
    assert drafted({"": [1.0, 0.0, 0.0]}, stop_tokens=["<eos>"]) == []
    assert drafted({"": [0.0, 1.0, 0.0]}) == [], "a token that ends nothing"


def test_a_draft_that_gives_shared_tokens_no_probability_drafts_nothing_and_harms_nothing():
    target = TableLM.random(["a", "b"], 1, 0)
    silent = TableLM({"": [0.0, 0.0, 1.0]}, ["a", "b", "x"])
    assert far(token_intersection, target, silent, [0], 3, 2) < EXACT
    # A warp may leave no shared token either, where the target still has some.
    draft = TableLM.random(["a", "x"], 1, 0)
    assert far(token_intersection, target, draft, [0], 1, 2, [no_repeat_ngram(1)]) < EXACT


def test_a_real_target_with_its_tokens_renumbered_is_a_perfect_draft():
    target = family_lm("llama")
    with exactly(torch.float64):
        steps = token_intersection(target, renumbered(target), [1, 2, 3], gamma=3, rng=Seeded(1), warp=[top_k(9)])
        assert run(steps, 24, stop=()).acceptance == 1
        assert run(string_match(target, renumbered(target), [3], gamma=3), 24, stop=()).tokens_per_call == 4


def test_q_is_renormalised_over_the_shared_tokens():
    """With the draft's mass elsewhere, its guess is still drawn from the shared tokens: here as the target draws."""
    target = TableLM({"": [0.25, 0.75]}, ["a", "b"])
    draft = TableLM({"": [0.9, 0.075, 0.025]}, ["x", "b", "a"])
    trace = run(token_intersection(target, draft, [0], gamma=4, rng=Seeded(3)), 50)
    assert trace.acceptance == 1


def test_the_text_of_several_drafted_tokens_may_be_one_of_the_targets():
    target = TableLM({"": [0.0, 0.0, 1.0]}, ["a", "b", "ab"])
    draft = TableLM({"": [0.0, 1.0], "a": [1.0, 0.0]}, ["b", "a"])
    trace = run(string_match(target, draft, [2], gamma=4), 9)
    assert trace.steps[0].drafted == [2, 2] and trace.steps[0].accepted == 2
    assert trace.target_calls == 3


@both
@pytest.mark.parametrize("pair", [
    (TableLM.random(["a", "b"], 1, 0), TableLM({"": [1.0, 0.0]}, ["x", "a"])),
    (TableLM.random(["b", "a"], 1, 0), TableLM.random(["a", "x"], 1, 0)),  # the prompt is nothing that it can read
], ids=["cannot be written", "cannot be read"])  # fmt: skip
def test_text_that_only_one_of_them_can_read_is_no_guess(method, pair):
    trace = run(method(*pair, [0], gamma=2, rng=Seeded(0)), 10)
    assert len(trace.tokens) == 10 and not trace.steps[0].drafted


def test_a_tokenizer_that_raises_something_of_its_own_is_no_guess():
    """It has no token for a letter, and none for what is unknown."""
    target, draft = small_lm("llama", "abc", seed=1), small_lm("llama", "xyz", seed=2)
    trace = run(string_match(target, draft, [0], gamma=2, rng=Seeded(0)), 5)
    assert all(not step.drafted for step in trace.steps) and len(trace.tokens) == 5


def test_a_guess_of_more_tokens_than_the_draft_wrote_is_cut_to_the_targets_room():
    target = TableLM({"": [1.0, 0.0]}, ["a", "b"], context=6)
    draft = TableLM({"": [0.0, 1.0, 0.0]}, ["b", "aaaa", "a"])
    trace = run(string_match(target, draft, [1, 0], gamma=3), 100)
    assert trace.steps[0].drafted == [0, 0, 0] and trace.target_calls == 1 and trace.stopped == "context"


@pytest.mark.slow
def test_the_same_tokenizer_works_too():
    family = models.load("storyworld")
    trace = run(string_match(family.target, family.draft, "Mia had a red kite.", gamma=3), 40)
    assert trace.tokens == run(greedy(family.target, "Mia had a red kite."), 40).tokens
    assert trace.tokens_per_call > 1.5
