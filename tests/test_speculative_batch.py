"""Every row of a batch is what it would have been by itself, exactly, and costs nothing once it has ended."""

import pytest
import torch
from conftest import exactly
from lossless import EXACT, tables, unlike

from tutorlib.decoders.speculative import adaptive_gamma, speculative
from tutorlib.decoders.speculative_batch import speculative_batch
from tutorlib.measures.proof import target_distribution, total_variation
from tutorlib.model.batch import Batch
from tutorlib.model.table import TableLM
from tutorlib.running.decoding import run, run_batch
from tutorlib.sampling.randomness import Exhaustive, Seeded
from tutorlib.sampling.warp import temperature


def seeds(count):
    return [Seeded(seed) for seed in range(count)]


def assert_each_as_alone(target, draft, prompts, budget, **options):
    """Rows of one batch against runs of `speculative`, step by step."""
    traces = run_batch(speculative_batch(target, draft, prompts, rngs=seeds(len(prompts)), **options), budget)
    for row, (prompt, trace) in enumerate(zip(prompts, traces, strict=True)):
        alone = run(speculative(target, draft, prompt, rng=Seeded(row), **options), budget)
        assert (trace.tokens, trace.stopped, trace.target_calls) == (alone.tokens, alone.stopped, alone.target_calls)
        assert [(step.tokens, step.drafted, step.accepted) for step in trace.steps] == [
            (step.tokens, step.drafted, step.accepted) for step in alone.steps
        ]
    return traces


def test_two_rows_are_independent_of_each_other():
    target, draft = tables(2)
    joint = {}
    for rng in Exhaustive():
        traces = run_batch(speculative_batch(target, draft, ["a", "ab"], gamma=1, rngs=[rng, rng]), 2)
        texts = tuple(tuple(trace.tokens) for trace in traces)
        joint[texts] = joint.get(texts, 0.0) + rng.weight
    one, other = target_distribution(target, "a", 2), target_distribution(target, "ab", 2)
    expected = {(a, b): p * q for a, p in one.items() for b, q in other.items()}
    assert total_variation(joint, expected) < EXACT


# ----------------------------------------------------------------------------------------------------------------------
# As alone

PROMPTS = [[3], [1, 2, 0, 7, 7, 4, 2, 9, 11, 5, 5, 1, 0, 3, 8, 2], [4, 4], [0, 1, 2, 3, 4, 5, 6], [0]]


@pytest.mark.parametrize("pair", [("gemma2", "mistral"), ("opt", "llama")])
def test_rows_of_very_different_lengths_are_what_they_are_alone(pair):
    with exactly(torch.float64):
        target, draft = unlike(pair[0], 0), unlike(pair[1], 1)
        traces = assert_each_as_alone(target, draft, PROMPTS, 12, gamma=3, warp=(temperature(0.7),))
    assert len({tuple(step.accepted for step in trace.steps) for trace in traces}) > 2, "rows accepted alike"


def test_rows_that_end_at_a_stop_token_the_context_or_the_budget_are_what_they_are_alone():
    target, draft = TableLM.random(4, 2, 6, context=30, stop_tokens=[3]), TableLM.random(4, 1, 1, context=24)
    prompts = ["a", "abca" * 5, "ab", "c" * 23, "ca", "b" * 24, "ba", "cb", "bb", "ac"]
    traces = assert_each_as_alone(target, draft, prompts, 8, gamma=3)
    assert {trace.stopped for trace in traces} == {"stop", "context", "budget"}


def test_gamma_adapts_and_unsure_drafts_end_row_by_row():
    target, draft = tables(4)
    gamma = adaptive_gamma([1.0, 1.1, 1.2, 1.4], 0.1, weight=0.5)
    traces = assert_each_as_alone(target, draft, ["a", "bcd", "c", "dab"], 20, gamma=gamma)
    assert len({tuple(len(step.drafted) for step in trace.steps) for trace in traces}) > 1
    assert_each_as_alone(target, draft, ["a", "bcd", "c", "dab"], 20, gamma=3, confidence=0.5)
    assert_each_as_alone(target, draft, ["a", "bcd", "c"], 20, gamma=lambda rounds: 2 * (len(rounds) % 2))


# ----------------------------------------------------------------------------------------------------------------------
# What it costs


def test_a_round_is_one_call_of_the_target_for_all_rows():
    target, draft = tables(3)
    traces = run_batch(speculative_batch(target, draft, ["a", "b", "c"], gamma=2, rngs=seeds(3)), 12)
    assert target.calls == max(trace.target_calls for trace in traces) == max(len(trace.steps) for trace in traces)
    assert draft.calls == 2 * target.calls


def test_rows_that_have_ended_are_in_no_call_any_more(monkeypatch):
    fed = []
    feed = Batch.feed

    def watched(batch, lists):
        fed.append((batch.lm.original, len(lists)))
        return feed(batch, lists)

    monkeypatch.setattr(Batch, "feed", watched)
    lm = TableLM({"": {"a": 1.0}, "b": {"c": 1.0}}, ["a", "b", "c"], stop_tokens=["c"], context=12)
    other = TableLM({"": {"a": 1.0}, "b": {"c": 1.0}}, ["a", "b", "c"])
    traces = run_batch(speculative_batch(lm, other, ["b", "a", "a" * 9], gamma=1), 7)
    assert [trace.stopped for trace in traces] == ["stop", "budget", "context"]
    assert [rows for model, rows in fed if model is lm] == [3, 2, 1, 1]
    assert [rows for model, rows in fed if model is other] == [3, 2, 1, 1]


def test_a_plain_loop_over_its_rounds_goes_on_until_every_context_is_full():
    target, draft = tables(3, context=10)
    rounds = list(speculative_batch(target, draft, ["abc", "a" * 10], gamma=2, rngs=seeds(2)))
    assert sum(len(made[0].tokens) for made in rounds) == 7
    assert [made[1].tokens for made in rounds] == [[]] * len(rounds)


# ----------------------------------------------------------------------------------------------------------------------
# Bad input


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"prompts": []}, "prompts is empty: a batch needs at least one prompt"),
        ({"prompts": "abc"}, r"prompts must be a list of prompts, got 'abc': for one prompt write \[prompt\]"),
        ({"prompts": [0, 1]}, "prompt 0 of 2: the prompt must be a sequence of token ids"),
        ({"prompts": ["a", "", "b"]}, "prompt 1 of 3: the prompt '' has no tokens: give at least one"),
        ({"rngs": [Seeded(0)]}, r"rngs must hold one for each of the 2 prompts, as \[Seeded\(seed\) .* does; got 1"),
        ({"rngs": Seeded(0)}, r"each of the 2 prompts.* or be None for greedy; got Seeded\(0\)"),
        ({"rngs": [Seeded(0), None]}, "rng must have the methods choose and accept"),
        ({"confidence": 2}, "confidence .* got 2"),
        ({"draft": TableLM.random(3, 1, 0, context=2)}, "prompt has 3 tokens, but the draft's context is 2"),
    ],
)
def test_nonsense_is_named_at_the_call(options, words):
    target, draft = tables(3)
    with pytest.raises(ValueError, match=words):
        speculative_batch(**{"target": target, "draft": draft, "prompts": ["a", "abc"]} | options)


def test_one_rng_for_one_prompt_is_no_argument_of_a_batch():
    with pytest.raises(TypeError, match="rng"):
        speculative_batch(*tables(3), ["a"], rng=Seeded(0))
