"""Prompt lookup drafts what followed the last n-gram before, and keeps the model's distribution exactly."""

import pytest
import torch
from conftest import exactly
from lossless import EXACT, WARPS, distance, on_real_models, ring, small, table

from tutorlib.decoders import greedy, sample
from tutorlib.decoders.prompt_lookup import NGrams, prompt_lookup
from tutorlib.lm import LM
from tutorlib.randomness import Seeded
from tutorlib.run import run
from tutorlib.table import TableLM

# ----------------------------------------------------------------------------------------------------------------------
# It is exact


@pytest.mark.parametrize("warp", WARPS.values(), ids=WARPS)
def test_it_keeps_the_models_distribution(warp):
    assert distance(prompt_lookup, table(), [0, 1, 0, 2, 0], 4, warp, gamma=2) < EXACT


@pytest.mark.parametrize("warp", [WARPS["no warp"], WARPS["penalty and top-k"]], ids=["no warp", "a pair"])
def test_it_keeps_it_after_a_prompt_of_one_token(warp):
    assert distance(prompt_lookup, table(), [1], 4, warp, gamma=2) < EXACT


def test_it_keeps_it_with_three_drafted_tokens():
    assert distance(prompt_lookup, table(2), [0, 1, 1, 0], 5, gamma=3) < EXACT


def test_it_keeps_it_where_a_stop_token_is_drafted():
    lm = TableLM.random(3, 1, 5, stop_tokens=[2])
    assert distance(prompt_lookup, lm, [0, 2, 1, 0], 4, gamma=3, stop=None) < EXACT


def test_it_keeps_it_at_the_end_of_the_context():
    lm = TableLM.random(2, 1, 5, context=7)
    assert distance(prompt_lookup, lm, [0, 1, 0], 4, gamma=3) < EXACT


def test_it_keeps_the_distribution_of_a_real_model():
    assert distance(prompt_lookup, small("llama"), [0, 1, 0], 4, WARPS["penalty and top-k"], gamma=2) < EXACT


@pytest.mark.slow
@on_real_models
def test_it_keeps_the_distribution_of_real_models_under_every_warp(family, warp):
    assert distance(prompt_lookup, small(family), [0, 1, 2, 0], 4, warp, gamma=2) < EXACT


def test_with_one_seed_it_writes_what_sample_writes(models, family):
    lm = LM(models(family, torch.float64))
    with exactly(torch.float64):
        plain = run(sample(lm, [1, 2, 1, 2], rng=Seeded(4), warp=WARPS["temperature"]), 20)
        trace = run(prompt_lookup(lm, [1, 2, 1, 2], rng=Seeded(4), warp=WARPS["temperature"], gamma=5), 20)
    assert trace.tokens == plain.tokens


@pytest.mark.parametrize("settings", [{"gamma": 5}, {"gamma": 3, "max_ngram": 1}], ids=str)
def test_it_goes_on_to_the_end_of_the_context(models, settings):
    lm = LM(models("gemma2", torch.float64))
    with exactly(torch.float64):
        plain = run(sample(lm, [1, 2, 1, 2], rng=Seeded(5)), 60)
        trace = run(prompt_lookup(lm, [1, 2, 1, 2], rng=Seeded(5), **settings), 60)
    assert trace.tokens == plain.tokens
    assert trace.stopped == plain.stopped == "context"
    assert sum(step.accepted for step in trace.steps) > 0


def test_without_luck_it_is_greedy_with_fewer_calls(models, family):
    lm = LM(models(family, torch.float64))
    with exactly(torch.float64):
        plain, trace = run(greedy(lm, [3, 1]), 25), run(prompt_lookup(lm, [3, 1], gamma=4), 25)
    assert trace.tokens == plain.tokens
    assert trace.target_calls < plain.target_calls


@pytest.mark.slow
def test_on_the_bundled_model_it_is_greedy_with_fewer_calls():
    from tutorlib import bench, models

    lm = models.load("storyworld").target
    for prompt in bench.story_prompts(lm, 4):
        plain, trace = run(greedy(lm, prompt), 60), run(prompt_lookup(lm, prompt, gamma=6), 60)
        assert trace.tokens == plain.tokens
        assert trace.target_calls < 0.8 * plain.target_calls


# ----------------------------------------------------------------------------------------------------------------------
# What it drafts


def following(tokens, longest, count):
    """The same from the definition: go back from the end through all places, for the longest n-gram first."""
    for n in range(min(longest, len(tokens) - 1), 0, -1):
        for start in range(len(tokens) - n - 1, -1, -1):
            if tokens[start : start + n] == tokens[-n:]:
                return tokens[start + n : start + n + count]
    return []


@pytest.mark.parametrize("longest", [1, 2, 3, 5])
def test_the_continuation_is_that_of_the_latest_occurrence_of_the_longest_ngram(longest):
    rng = Seeded(longest)
    for size in (1, 2, 3):
        text = NGrams(longest)
        for _ in range(120):
            text.extend([rng.choose([1 / size] * size)])
            assert text.continuation(3) == following(text.tokens, longest, 3)


def test_the_longest_ngram_comes_first_and_of_its_occurrences_the_latest():
    text = NGrams(3)
    text.extend([1, 2, 7, 8, 1, 2, 9, 2, 5, 1, 2])
    assert text.continuation(2) == [9, 2]


def test_it_does_not_find_the_end_of_the_text_itself():
    text = NGrams(3)
    text.extend([1, 2, 3])
    assert text.continuation(2) == []
    text.extend([3])
    assert text.continuation(2) == [3]


def test_where_nothing_matches_it_is_a_plain_step():
    step = next(iter(prompt_lookup(TableLM.random(5, 1, 0), [0, 1, 2, 3], gamma=4)))
    assert (step.drafted, step.accepted, len(step.tokens)) == ([], 0, 1)


def test_the_steps_tell_what_was_drafted_and_what_was_accepted():
    lm = TableLM({"": [0.0, 1.0, 0.0], "b": [0.9, 0.0, 0.1], "a": [0.2, 0.6, 0.2]})
    steps = run(prompt_lookup(lm, "abac", gamma=2), 7).steps
    assert [(step.drafted, step.accepted, step.tokens) for step in steps] == [
        ([], 0, [1]),  # c is new
        ([0, 2], 1, [0, 1]),  # the b before was followed by a c, but after a comes b
        ([0, 2], 1, [0, 1]),  # the first a b too
        ([0, 1], 2, [0, 1]),  # the latest b a b was followed by a b; the token after them is beyond the budget
    ]
    assert dict(steps[1].candidates[0]) == pytest.approx({0: 0.9, 2: 0.1}), "greedy weighs more than it takes"
    whole = [next(step) for step in [prompt_lookup(lm, "abac", gamma=2)] for _ in range(4)]
    assert all(len(step.candidates) == len(step.tokens) for step in whole), "a row for each token, and none beyond"


def test_the_longest_ngram_is_as_long_as_asked():
    text = [0, 1, 2, 3, 7, 5, 1, 2, 3, 8, 6, 2, 3, 9, 0, 1, 2, 3]
    lm = TableLM.random(10, 1, 0)
    drafted = [next(prompt_lookup(lm, text, gamma=1, max_ngram=longest)).drafted for longest in (1, 2, 3, 4, 9)]
    assert drafted == [[9], [9], [8], [7], [7]]


def test_where_the_context_is_full_it_says_so():
    steps = prompt_lookup(TableLM.random(2, 1, 5, context=6), [0, 1, 0], gamma=3)
    with pytest.raises(StopIteration) as end:
        while True:
            next(steps)
    assert end.value.value == "context"


def test_it_costs_one_call_a_step(llama):
    trace = run(prompt_lookup(llama, [1, 2, 3], gamma=3, rng=Seeded(0)), 30)
    assert trace.target_calls == len(trace.steps)


def test_drafts_are_cut_to_the_context(llama):
    # Round a ring, every draft is accepted as far as it goes.
    for lm, prompt in ((ring(12, context=40), [*range(12), *range(12)]), (llama, [5, 6] * (llama.context // 2 - 4))):
        steps = list(prompt_lookup(lm, prompt, gamma=10))
        assert len(prompt) + sum(len(step.tokens) for step in steps) == lm.context
        assert lm is llama or [len(step.tokens) for step in steps] == [11, 5], "drafts go up to the last place but one"
        assert run(prompt_lookup(lm, [1] * lm.context, gamma=10), 3).stopped == "context"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"gamma": 0}, "gamma is how many tokens are drafted at most, a whole number of 1 or more, got 0"),
        ({"gamma": 2.5}, "gamma"),
        ({"gamma": 2, "max_ngram": 0}, "max_ngram is the length of the longest n-gram looked up"),
        ({"gamma": 2, "rng": 7}, "rng must have the verbs"),
    ],
    ids=str,
)
def test_bad_arguments_are_named_at_the_call(settings, says):
    with pytest.raises(ValueError, match=says):
        prompt_lookup(table(), [0], **settings)
