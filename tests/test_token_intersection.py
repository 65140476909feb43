"""Drafting with shared tokens keeps the target's distribution, whatever the draft's tokenizer is."""

import pytest
import torch
from conftest import exactly
from two_tokenizers import WARPS, family_lm, renumbered, small_lm, tables

from tutorlib import models, storyworld
from tutorlib.decoders.greedy import greedy
from tutorlib.decoders.token_intersection import token_intersection
from tutorlib.lm import LM
from tutorlib.proof import exact_distribution, target_distribution, total_variation
from tutorlib.randomness import Seeded
from tutorlib.run import run
from tutorlib.table import TableLM
from tutorlib.warp import no_repeat_ngram, repetition_penalty, top_k

EXACT = 1e-9

# (target's tokens, draft's tokens): in another order, and some on one side only.
VOCABULARIES = {
    "the draft knows more": (["a", "b"], ["b", "x", "a"]),
    "the target knows more": (["a", "b", "c"], ["c", "a"]),
    "both know more": ([" a", "b", "c"], ["c", "x", "b"]),
    "one in common": (["a", "b"], ["x", "b"]),
    "a word is two tokens": (["a", "ab"], ["b", "a", "ab"]),
}


def distance(target, draft, prompt, length, gamma, warp=(), stop=()):
    """Total variation from plain sampling."""
    with exactly(target.dtype):
        mine = exact_distribution(
            lambda rng: token_intersection(target, draft, prompt, gamma=gamma, rng=rng, warp=warp), length, stop=stop
        )
        return total_variation(mine, target_distribution(target, prompt, length, warp=warp, stop=stop))


@pytest.mark.parametrize("names", VOCABULARIES)
def test_it_keeps_the_targets_distribution(names):
    target, draft = tables(*VOCABULARIES[names])
    assert distance(target, draft, [0, 1, 0], length=3, gamma=1) < EXACT
    assert distance(target, draft, [1], length=2, gamma=2) < EXACT


@pytest.mark.parametrize("warp", WARPS.values(), ids=WARPS)
def test_it_keeps_the_targets_distribution_under_warps(warp):
    target, draft = tables(["a", "b", "c"], ["c", "x", "b"], seed=3)
    assert distance(target, draft, [2, 1], length=3, gamma=1, warp=warp) < EXACT


@pytest.mark.slow
@pytest.mark.parametrize("names", VOCABULARIES)
def test_it_keeps_the_targets_distribution_beyond_the_bonus_token(names):
    target, draft = tables(*VOCABULARIES[names], seed=5)
    assert distance(target, draft, [0, 1, 0], length=4, gamma=2) < EXACT


@pytest.mark.slow
@pytest.mark.parametrize("warp", WARPS.values(), ids=WARPS)
def test_it_keeps_the_targets_distribution_under_warps_and_longer_drafts(warp):
    target, draft = tables(["a", "b"], ["b", "x", "a"], seed=7)
    assert distance(target, draft, [1], length=4, gamma=2, warp=warp) < EXACT


@pytest.mark.slow
def test_it_keeps_the_targets_distribution_with_three_drafted_tokens():
    target, draft = tables(["a", "b"], ["b", "a"], seed=9)
    assert distance(target, draft, [0], length=3, gamma=3) < EXACT
    target, draft = tables(["a", "b"], ["x", "b"], seed=9)
    assert distance(target, draft, [0], length=5, gamma=3) < EXACT


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_real_models_keep_the_targets_distribution(kind):
    target, draft = small_lm(kind, "abc", seed=1), small_lm("llama", "cxb", seed=2)
    assert distance(target, draft, [1, 2], length=2, gamma=1) < EXACT


@pytest.mark.slow
@pytest.mark.parametrize("name", ["no warp", "top_p", "penalty", "temperature, top_p"])
def test_real_models_keep_it_beyond_the_bonus_token(name):
    target, draft = small_lm("llama", "ab", seed=3), small_lm("gpt2", "bxa", seed=4)
    assert distance(target, draft, [1, 0, 1], length=3, gamma=1, warp=WARPS[name]) < EXACT
    if name == "no warp":
        assert distance(target, draft, [0], length=4, gamma=1) < EXACT


def test_a_stop_token_is_drafted_by_its_role_and_keeps_its_probability():
    """The draft has an ordinary token that is spelled as the target's end-of-text is."""
    target = TableLM.random(["a", "b", "<end>"], 2, 11, stop_tokens=["<end>"])
    draft = TableLM.random(["<end>", "<eos>", "a"], 2, 12, stop_tokens=["<eos>"])
    assert distance(target, draft, [0], length=3, gamma=2, stop=None) < EXACT
    certain = TableLM({"": [0.0, 1.0, 0.0]}, ["<end>", "<eos>", "a"], stop_tokens=["<eos>"])
    assert next(token_intersection(target, certain, [0], gamma=3, rng=Seeded(0))).drafted == [2]


def test_text_that_the_tokenizer_would_divide_otherwise_is_left_as_it_is():
    """The target writes a, b where its tokenizer reads ab, and what follows differs."""
    target = TableLM({"": [0.5, 0.3, 0.2], ("a", "b"): [0.9, 0.1, 0.0], ("ab",): [0.0, 0.1, 0.9]}, ["a", "b", "ab"])
    draft = TableLM({"": [0.4, 0.6]}, ["b", "a"])
    assert target.encode("ab") == [2]
    assert distance(target, draft, [0, 1], length=3, gamma=1) < EXACT


def test_a_draft_that_gives_shared_tokens_no_probability_drafts_nothing_and_harms_nothing():
    target = TableLM.random(["a", "b"], 1, 0)
    silent = TableLM({"": [0.0, 0.0, 1.0]}, ["a", "b", "x"])
    assert distance(target, silent, [0], length=3, gamma=2) < EXACT
    # A warp may leave no shared token either, where the target still has some.
    draft = TableLM.random(["a", "x"], 1, 0)
    assert distance(target, draft, [0], length=1, gamma=2, warp=[no_repeat_ngram(1)]) < EXACT


@pytest.mark.parametrize("contexts", [(6, 64), (64, 5), (64, 3), (64, 2)], ids=str)
def test_full_contexts_change_nothing(contexts):
    target = TableLM.random(["a", "b"], 2, 1, context=contexts[0])
    draft = TableLM.random(["b", "x", "a"], 2, 2, context=contexts[1])
    assert distance(target, draft, [0, 1, 1], length=3, gamma=2) < EXACT
    trace = run(token_intersection(target, draft, [0, 1, 1], gamma=2, rng=Seeded(0)), 1000)
    assert len(trace.tokens) == contexts[0] - 3 and trace.stopped == "context"
    length = 3
    for step in token_intersection(target, draft, [0, 1, 1], gamma=4, rng=Seeded(0)):  # ends by itself
        assert length + len(step.drafted) < contexts[0]  # nothing is drafted that could not be emitted
        length += len(step.tokens)
    assert length == contexts[0]


def test_the_target_with_its_tokens_renumbered_is_a_perfect_draft():
    """Every drafted token is kept: both laws are the same one, token by token, and the draft reads the same text."""
    target = TableLM.random(["a", "b", "c", "d"], 2, 0)
    for seed in range(5):
        for warp in [], [repetition_penalty(1.5), top_k(3)]:
            draft = renumbered(target, seed)
            trace = run(token_intersection(target, draft, [0, 3], gamma=3, rng=Seeded(seed), warp=warp), 40)
            assert trace.acceptance == 1
            assert trace.target_calls == 10


def test_a_real_target_with_its_tokens_renumbered_is_a_perfect_draft():
    target = family_lm("llama")
    with exactly(torch.float64):
        steps = token_intersection(target, renumbered(target), [1, 2, 3], gamma=3, rng=Seeded(1), warp=[top_k(9)])
        trace = run(steps, 24, stop=())
    assert trace.acceptance == 1


def test_q_is_renormalised_over_the_shared_tokens():
    """With the draft's mass elsewhere, its guess is still the law of the shared tokens: here the target's own law."""
    target = TableLM({"": [0.25, 0.75]}, ["a", "b"])
    draft = TableLM({"": [0.9, 0.075, 0.025]}, ["x", "b", "a"])
    trace = run(token_intersection(target, draft, [0], gamma=4, rng=Seeded(3)), 50)
    assert trace.acceptance == 1


def test_without_luck_it_is_greedy(family):
    target, draft = family_lm(family), family_lm("llama", seed=1)
    draft.tokenizer = renumbered(draft).tokenizer  # what it says makes no sense
    with exactly(torch.float64):
        trace = run(token_intersection(target, draft, [1, 2, 3], gamma=3), 40, stop=())
        assert trace.tokens == run(greedy(target, [1, 2, 3]), 40, stop=()).tokens
        perfect = run(token_intersection(target, renumbered(target), [3], gamma=3), 24, stop=())
    assert perfect.tokens_per_call == 4  # so that much is accepted too


def test_the_step_tells_what_was_drafted_and_accepted():
    target, draft = tables(["a", "b", "c"], ["c", "x", "b"], seed=1)
    trace = run(token_intersection(target, draft, [1], gamma=3, rng=Seeded(1)), 30)
    for step in trace.steps[:-1]:
        assert len(step.drafted) == 3 and set(step.drafted) <= {1, 2}
        assert step.tokens[:-1] == step.drafted[: step.accepted]
        assert len(step.candidates) == len(step.tokens)
    assert trace.target_calls == len(trace.steps)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"gamma": 0}, "gamma"),
        ({"gamma": 2.5}, "gamma"),
        ({"draft": "gpt2"}, "the draft must be an LM"),
        ({"draft": TableLM({"": [0.5, 0.5]}, ["x", "y"])}, "3 tokens and the draft's 2 .* string_match"),
    ],
    ids=["gamma 0", "gamma 2.5", "a name", "nothing in common"],
)
def test_bad_arguments_are_named_at_the_call(change, says):
    target, draft = tables(["a", "b", "c"], ["c", "x", "b"])
    arguments = {"target": target, "draft": draft, "prompt": "ab"} | change
    with pytest.raises(ValueError, match=says):
        token_intersection(**arguments)


def test_models_without_a_tokenizer_are_named_at_the_call(models):
    with_one, without = family_lm("llama"), LM(models("llama"))
    with pytest.raises(ValueError, match="the draft has no tokenizer"):
        token_intersection(with_one, without, [1])
    with pytest.raises(ValueError, match="the target has no tokenizer"):
        token_intersection(without, with_one, [1])


def test_models_on_two_devices_are_named_at_the_call():
    target, draft = family_lm("llama"), family_lm("llama", seed=1)
    draft.model.to("meta")
    with pytest.raises(ValueError, match="target is on cpu .* draft on meta"):
        token_intersection(target, draft, [1])


@pytest.mark.slow
def test_on_the_bundled_pair_it_is_greedy_with_fewer_calls():
    """In float32: a tie within rounding could differ, and none does here."""
    family = models.load("storyworld")
    for seed in range(3):
        prompt = storyworld.story(f"other tokenizer {seed}")[:100]
        expected = run(greedy(family.target, prompt), 80)
        trace = run(token_intersection(family.target, family.other_draft, prompt, gamma=3), 80)
        assert trace.tokens == expected.tokens
        assert trace.target_calls < 0.6 * expected.target_calls
