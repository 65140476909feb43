"""Drafting text keeps the target's distribution, whatever the draft's tokenizer is and writes."""

import pytest
from conftest import exactly
from two_tokenizers import WARPS, family_lm, renumbered, small_lm, tables

import tutorlib
from tutorlib import storyworld
from tutorlib.decoders.greedy import greedy
from tutorlib.decoders.sample import sample
from tutorlib.decoders.string_match import string_match
from tutorlib.lm import LM
from tutorlib.proof import exact_distribution, target_distribution, total_variation
from tutorlib.randomness import Seeded
from tutorlib.run import run
from tutorlib.table import TableLM

EXACT = 1e-9

# (target's tokens, draft's tokens)
VOCABULARIES = {
    "in another order": (["a", "b", "c"], ["c", "a", "b"]),
    "a word is two tokens": (["a", "ab", "b"], ["b", "a"]),
    "two words are one token": ([" a", "b"], ["b a", "b", " a"]),
    "some cannot be read": (["a", "b", "c"], ["x", "b", "a"]),
    "nothing in common": (["a", "b"], ["ab", "ba", "aa", "bb"]),
}


def distance(target, draft, prompt, length, gamma, warp=(), stop=()):
    """Total variation from plain sampling."""
    with exactly(target.dtype):
        mine = exact_distribution(
            lambda rng: string_match(target, draft, prompt, gamma=gamma, rng=rng, warp=warp), length, stop=stop
        )
        return total_variation(mine, target_distribution(target, prompt, length, warp=warp, stop=stop))


@pytest.mark.parametrize("gamma", [1, 2, 3])
@pytest.mark.parametrize("names", VOCABULARIES)
def test_it_keeps_the_targets_distribution(names, gamma):
    target, draft = tables(*VOCABULARIES[names])
    assert distance(target, draft, [0, 1, 0], length=min(gamma + 2, 4), gamma=gamma) < EXACT
    assert distance(target, draft, [1], length=3, gamma=gamma) < EXACT


@pytest.mark.parametrize("warp", WARPS.values(), ids=WARPS)
def test_it_keeps_the_targets_distribution_under_warps(warp):
    target, draft = tables(["a", "ab", "b"], ["b", "a"], seed=3)
    assert distance(target, draft, [2, 1], length=4, gamma=2, warp=warp) < EXACT


@pytest.mark.slow
def test_it_keeps_the_targets_distribution_with_three_drafted_tokens():
    for names in VOCABULARIES.values():
        target, draft = tables(*names, seed=4)
        assert distance(target, draft, [0], length=5, gamma=3) < EXACT


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_real_models_keep_the_targets_distribution(kind):
    target, draft = small_lm(kind, "abc", seed=1), small_lm("llama", "cxb", seed=2)
    assert distance(target, draft, [1, 2], length=3, gamma=1) < EXACT


@pytest.mark.slow
@pytest.mark.parametrize("warp", WARPS.values(), ids=WARPS)
def test_real_models_keep_it_under_warps_and_beyond_the_bonus_token(warp):
    target, draft = small_lm("llama", "abc", seed=3), small_lm("gpt2", "cab", seed=4)
    assert distance(target, draft, [1, 0, 1], length=4, gamma=2, warp=warp) < EXACT


def test_a_stop_token_is_drafted_by_its_role_and_keeps_its_probability():
    """The draft has an ordinary token that is spelled as the target's end-of-text is."""
    target = TableLM.random(["a", "b", "<end>"], 2, 11, stop_tokens=["<end>"])
    draft = TableLM.random(["<end>", "<eos>", "a"], 2, 12, stop_tokens=["<eos>"])
    assert distance(target, draft, [0], length=4, gamma=2, stop=None) < EXACT
    table = {"": [0.0, 0.0, 1.0], ("a", "a"): [0.0, 1.0, 0.0]}
    ending = TableLM(table, ["<end>", "<eos>", "a"], stop_tokens=["<eos>"])
    assert next(string_match(target, ending, [0], gamma=4, rng=Seeded(0))).drafted == [0, 2]
    spelling = TableLM({"": [1.0, 0.0, 0.0]}, ["<end>", "<eos>", "a"], stop_tokens=["<eos>"])
    assert next(string_match(target, spelling, [0], gamma=4, rng=Seeded(0))).drafted == []


def test_the_text_of_several_drafted_tokens_may_be_one_of_the_targets():
    target = TableLM({"": [0.0, 0.0, 1.0]}, ["a", "b", "ab"])
    draft = TableLM({"": [0.0, 1.0], "a": [1.0, 0.0]}, ["b", "a"])
    trace = run(string_match(target, draft, [2], gamma=4), 9)
    assert trace.steps[0].drafted == [2, 2] and trace.steps[0].accepted == 2
    assert trace.target_calls == 3


def test_text_that_the_tokenizer_would_divide_otherwise_is_left_as_it_is():
    """The target writes a, b where its tokenizer reads ab, and what follows differs."""
    target = TableLM({"": [0.5, 0.3, 0.2], ("a", "b"): [0.9, 0.1, 0.0], ("ab",): [0.0, 0.1, 0.9]}, ["a", "b", "ab"])
    draft = TableLM({"": [0.4, 0.6]}, ["b", "a"])
    assert target.encode("ab") == [2]
    assert distance(target, draft, [0, 1], length=4, gamma=2) < EXACT


def test_text_that_the_target_cannot_read_is_no_guess():
    target, draft = TableLM.random(["a", "b"], 1, 0), TableLM({"": [1.0, 0.0]}, ["x", "a"])
    trace = run(string_match(target, draft, [0], gamma=2, rng=Seeded(0)), 10)
    assert all(not step.drafted for step in trace.steps) and len(trace.tokens) == 10
    # A real tokenizer that has no token for a letter, and none for what is unknown, raises something of its own.
    target, draft = small_lm("llama", "abc", seed=1), small_lm("llama", "xyz", seed=2)
    trace = run(string_match(target, draft, [0], gamma=2, rng=Seeded(0)), 5)
    assert all(not step.drafted for step in trace.steps) and len(trace.tokens) == 5


@pytest.mark.parametrize("contexts", [(6, 64), (64, 5), (64, 3), (64, 2)], ids=str)
def test_full_contexts_change_nothing(contexts):
    target = TableLM.random(["a", "b"], 2, 1, context=contexts[0])
    draft = TableLM.random(["b", "abab", "a"], 2, 2, context=contexts[1])
    assert distance(target, draft, [0, 1, 1], length=3, gamma=2) < EXACT
    trace = run(string_match(target, draft, [0, 1, 1], gamma=2, rng=Seeded(0)), 1000)
    assert len(trace.tokens) == contexts[0] - 3 and trace.stopped == "context"
    length = 3
    for step in string_match(target, draft, [0, 1, 1], gamma=4, rng=Seeded(0)):  # ends by itself
        assert length + len(step.drafted) < contexts[0]  # nothing is drafted that could not be emitted
        length += len(step.tokens)
    assert length == contexts[0]


def test_a_guess_of_more_tokens_than_the_draft_wrote_is_cut_to_the_targets_room():
    target = TableLM({"": [1.0, 0.0]}, ["a", "b"], context=6)
    draft = TableLM({"": [0.0, 1.0, 0.0]}, ["b", "aaaa", "a"])
    trace = run(string_match(target, draft, [1, 0], gamma=3), 100)
    assert trace.steps[0].drafted == [0, 0, 0] and trace.target_calls == 1 and trace.stopped == "context"


def test_drafting_takes_nothing_from_the_luck():
    """One draw a token, as in plain sampling: so the same seed gives the same text."""
    target, draft = tables(["a", "ab", "b"], ["b", "a"], seed=2)
    for seed in range(5):
        mine = run(string_match(target, draft, [0], gamma=3, rng=Seeded(seed)), 20)
        assert mine.tokens == run(sample(target, [0], rng=Seeded(seed)), 20).tokens
        assert sum(step.accepted for step in mine.steps) > 0


def test_without_luck_it_is_greedy(family):
    target, draft = family_lm(family), family_lm("llama", seed=1)
    draft.tokenizer = renumbered(draft).tokenizer  # what it says makes no sense
    with exactly(target.dtype):
        trace = run(string_match(target, draft, [1, 2, 3], gamma=3), 40, stop=())
        assert trace.tokens == run(greedy(target, [1, 2, 3]), 40, stop=()).tokens
        perfect = run(string_match(target, renumbered(target), [3], gamma=3), 24, stop=())
    assert perfect.tokens_per_call == 4  # so that much is accepted too


@pytest.mark.parametrize(
    ("change", "says"),
    [({"gamma": 0}, "gamma"), ({"gamma": True}, "gamma"), ({"draft": "gpt2"}, "the draft must be an LM")],
    ids=["gamma 0", "gamma True", "a name"],
)
def test_bad_arguments_are_named_at_the_call(change, says):
    target, draft = tables(["a", "b", "c"], ["c", "x", "b"])
    with pytest.raises(ValueError, match=says):
        string_match(**({"target": target, "draft": draft, "prompt": "ab"} | change))


def test_models_without_a_tokenizer_or_on_another_device_are_named_at_the_call(models):
    with_one, without = family_lm("llama"), LM(models("llama"))
    with pytest.raises(ValueError, match="the draft has no tokenizer"):
        string_match(with_one, without, [1])
    with pytest.raises(ValueError, match="the target has no tokenizer"):
        string_match(without, with_one, [1])
    elsewhere = family_lm("llama", seed=1)
    elsewhere.model.to("meta")
    with pytest.raises(ValueError, match="target is on cpu .* draft on meta"):
        string_match(with_one, elsewhere, [1])


@pytest.mark.slow
def test_on_the_bundled_pair_it_is_greedy_with_fewer_calls():
    """In float32: a tie within rounding could differ, and none does here."""
    family = tutorlib.models.load("storyworld")
    for seed in range(3):
        prompt = storyworld.story(f"other tokenizer {seed}")[:100]
        expected = run(greedy(family.target, prompt), 80)
        trace = run(string_match(family.target, family.other_draft, prompt, gamma=3), 80)
        assert trace.tokens == expected.tokens
        assert trace.target_calls < 0.6 * expected.target_calls


@pytest.mark.slow
def test_the_same_tokenizer_works_too():
    family = tutorlib.models.load("storyworld")
    trace = run(string_match(family.target, family.draft, "Mia had a red kite.", gamma=3), 40)
    assert trace.tokens == run(greedy(family.target, "Mia had a red kite."), 40).tokens
    assert trace.tokens_per_call > 1.5
