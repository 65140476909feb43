"""Every row of a batch is what `sample` writes alone, and costs nothing once it has ended."""

import pytest
import torch
from conftest import exactly
from lossless import unlike

from tutorlib import models
from tutorlib.decoders import sample, sample_batch
from tutorlib.lab import experiments
from tutorlib.model.lm import Batch
from tutorlib.model.table import TableLM
from tutorlib.running.decoding import run, run_batch
from tutorlib.sampling.randomness import Seeded
from tutorlib.sampling.warp import frequency_penalty, min_p, no_repeat_ngram, top_p


def seeds(count):
    return [Seeded(seed) for seed in range(count)]


def assert_each_as_alone(lm, prompts, budget, rngs=seeds, **options):
    """Rows of one batch against runs of `sample`, step by step; the traces."""
    count = len(prompts)
    traces = run_batch(sample_batch(lm, prompts, rngs=rngs and rngs(count), **options), budget)
    for prompt, rng, trace in zip(prompts, rngs(count) if rngs else [None] * count, traces, strict=True):
        alone = run(sample(lm, prompt, rng=rng, **options), budget)
        assert (trace.tokens, trace.stopped, trace.target_calls) == (alone.tokens, alone.stopped, alone.target_calls)
        weighed = [[dict(one) for one in step.candidates] for step in alone.steps]
        assert [[pytest.approx(dict(one), rel=1e-4) for one in step.candidates] for step in trace.steps] == weighed
    return traces


@pytest.mark.parametrize("rngs", [seeds, None], ids=["drawn", "greedy"])
@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_rows_of_very_different_lengths_are_what_they_are_alone(family, rngs):
    prompts = [[3], [1, 2, 0, 7, 7, 4, 2, 9, 11, 5, 5, 1, 0, 3, 8, 2], [4, 4], [0, 1, 2, 3, 4, 5, 6]]
    with exactly(torch.float64):
        assert_each_as_alone(unlike(family, 0), prompts, 12, rngs, warp=[frequency_penalty(0.5), top_p(0.8)])


@pytest.mark.slow
@pytest.mark.parametrize("rngs", [seeds, None], ids=["drawn", "greedy"])
def test_so_are_the_bundled_targets_stories_in_float32(rngs):
    lm = models.load("storyworld", device="cpu", dtype="float32").target
    assert_each_as_alone(lm, experiments.village_prompts(3), 40, rngs, warp=[no_repeat_ngram(6), min_p(0.1)])


def test_rows_that_end_at_a_stop_token_the_context_or_the_budget_are_what_they_are_alone():
    lm = TableLM.random(4, 2, 6, context=30, stop_tokens=[3])
    traces = assert_each_as_alone(lm, ["a", "abca" * 6, "ab", "c" * 29, "ca", "b" * 30, "ba", "cb", "bb", "ac"], 4)
    assert {trace.stopped for trace in traces} == {"stop", "context", "budget"}


def test_a_round_is_one_call_in_which_rows_that_have_ended_have_no_part(monkeypatch):
    fed, feed = [], Batch.feed
    monkeypatch.setattr(Batch, "feed", lambda batch, lists: fed.append(len(lists)) or feed(batch, lists))
    lm = TableLM({"": {"a": 1.0}, "b": {"c": 1.0}}, ["a", "b", "c"], stop_tokens=["c"], context=12)
    traces = run_batch(sample_batch(lm, ["b", "a", "a" * 9, "a" * 12]), 5)
    assert [trace.stopped for trace in traces] == ["stop", "budget", "context", "context"]
    assert fed == [3, 2, 2, 1, 1] and lm.calls == 5


def test_a_plain_loop_over_its_rounds_goes_on_until_every_context_is_full():
    lm = TableLM.random(3, 2, 0, context=10)
    rounds = list(sample_batch(lm, ["abc", "a" * 10, "abca"], rngs=seeds(3)))
    assert [sum(len(made[row].tokens) for made in rounds) for row in range(3)] == [7, 0, 6]
