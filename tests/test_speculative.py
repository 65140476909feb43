"""Speculative decoding: drafts of changing length, what it costs and says. That it is exact: `test_lossless.py`."""

import math

import pytest
from conftest import VOCAB
from lossless import EXACT, WARPS, distance, on, tables, unlike

from tutorlib import LM, Seeded, Step, TableLM, adaptive_gamma, run, speculative
from tutorlib.measures import theory


def test_keeps_it_while_gamma_follows_what_was_accepted():
    target, draft = tables(2)
    gamma = adaptive_gamma([1.0, 1.2, 1.5], 0.1, prior=0.65, weight=0.5)  # a single rejection turns γ from 2 to 1
    assert distance(on(speculative, draft), target, [1], 4, gamma=gamma) < EXACT
    seen = {len(step.drafted) for seed in range(20) for step in run(speculative(
        target, draft, "b", gamma=gamma, rng=Seeded(seed)), 8).steps[:-1]}  # fmt: skip
    assert seen == {1, 2}


def test_keeps_it_while_unsure_drafts_end_early():
    target, draft = tables(2)
    assert distance(on(speculative, draft), target, [1], 4, WARPS["top-p"], gamma=2, confidence=0.7) < EXACT
    trace = run(speculative(target, draft, "b", gamma=2, confidence=0.7, rng=Seeded(1)), 20)
    assert {len(step.drafted) for step in trace.steps[:-1]} == {1, 2}


# ----------------------------------------------------------------------------------------------------------------------
# What it costs, and what it says


def test_a_round_is_one_call_of_the_target_and_gamma_of_the_draft():
    target, draft = unlike("llama", 0), LM(unlike("gpt2", 1).model)
    trace = run(speculative(target, draft, [3, 1, 4], gamma=3, rng=Seeded(0)), 20)
    assert trace.target_calls == len(trace.steps) > 5
    assert draft.calls == 3 * len(trace.steps)


def test_with_the_target_as_draft_every_round_gives_gamma_and_one_tokens():
    target = unlike("llama", 0)
    again = LM(target.model)
    trace = run(speculative(target, again, [3, 1, 4], gamma=3, rng=Seeded(0)), 20)
    assert [len(step.tokens) for step in trace.steps] == [4] * 5
    assert trace.tokens_per_call == theory.expected_tokens(1.0, 3)
    assert again.calls == 3 * 5, "the two tokens that it has not read after such a round are fed in one call"


def test_tokens_a_call_are_what_the_formula_says_where_acceptances_are_independent():
    target, draft = TableLM({"": [0.5, 0.3, 0.2]}, context=3000), TableLM({"": [0.2, 0.2, 0.6]}, context=3000)
    trace = run(speculative(target, draft, "a", gamma=3, rng=Seeded(0)), 2000)
    alpha = theory.acceptance_rate([0.5, 0.3, 0.2], [0.2, 0.2, 0.6])
    assert trace.tokens_per_call == pytest.approx(theory.expected_tokens(alpha, 3), rel=0.05)
    assert trace.acceptance == pytest.approx(alpha, abs=0.03)


def test_a_step_shows_the_draft_what_was_accepted_of_it_and_what_the_target_made_of_each_place():
    target = TableLM({"": [0.0, 1.0, 0.0], "b": [0.0, 0.0, 1.0], "c": [0.75, 0.25, 0.0]})
    draft = TableLM({"": [0.0, 1.0, 0.0], "b": [0.0, 0.0, 1.0], "c": [0.0, 0.0, 1.0]})
    step = next(speculative(target, draft, "a", gamma=3, rng=Seeded(0)))
    assert (step.drafted, step.accepted, step.tokens[:2]) == ([1, 2, 2], 2, [1, 2])
    assert step.tokens[2] in (0, 1)
    assert [row[0] for row in step.candidates] == [(1, 1.0), (2, 1.0), (0, pytest.approx(0.75))]


# ----------------------------------------------------------------------------------------------------------------------
# A γ that adapts

SECONDS = [3.0, 3.3, 3.6, 3.9, 4.2, 4.5, 4.8]


def test_adaptive_takes_the_gamma_that_theory_calls_best_for_what_was_seen():
    gamma = adaptive_gamma(SECONDS, 0.5, prior=0.6, weight=2.0, memory=1.0)
    assert gamma([]) == theory.best_measured_gamma(0.6, SECONDS, 0.5, most=6)
    # 1.2 of 2 tokens to begin with. (4, 1): one accepted, the second rejected, two not checked. (4, 4): all accepted.
    assert gamma([(4, 1), (4, 4)]) == theory.best_measured_gamma(6.2 / 8, SECONDS, 0.5, most=6)
    assert gamma([(4, 4)] * 50) == 6
    assert gamma([(4, 0)] * 50) == 1, "who does not draft learns nothing"


def test_adaptive_forgets():
    keen, stubborn = (adaptive_gamma(SECONDS, 0.5, memory=memory) for memory in (0.5, 1.0))
    rounds = [(4, 0)] * 40 + [(4, 4)] * 8
    assert keen(rounds) > stubborn(rounds)


def test_adaptive_goes_no_further_than_it_is_told():
    assert adaptive_gamma(SECONDS, 0.01, most=3)([(3, 3)] * 50) == 3
    assert adaptive_gamma(SECONDS[:2], 0.01)([]) == 1


def test_adaptive_remembers_nothing_from_one_run_to_the_next():
    target, draft = tables(3)
    gamma = adaptive_gamma(SECONDS, 0.5)
    first, second = (run(speculative(target, draft, "a", gamma=gamma, rng=Seeded(4)), 30) for _ in range(2))
    assert first.to_dict() == second.to_dict()
    assert len({len(step.drafted) for step in first.steps}) > 1


def test_a_gamma_function_sees_the_rounds_so_far_and_may_draft_nothing():
    seen = []

    def every_other(rounds):
        seen.append(list(rounds))
        return 2 * (len(rounds) % 2)

    target, draft = tables(3)
    steps = [step for step, _ in zip(speculative(target, draft, "a", gamma=every_other, rng=Seeded(0)), range(4))]
    assert [len(step.drafted) for step in steps] == [0, 2, 0, 2]
    assert seen[3] == [(len(step.drafted), step.accepted) for step in steps[:3]]


# ----------------------------------------------------------------------------------------------------------------------
# Bad input


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gamma": lambda: 2}, "gamma must be a whole number, or a function of the rounds so far; got <function"),
        ({"confidence": -0.1}, "confidence must be a probability .* got -0.1"),
        ({"confidence": math.nan}, "confidence"),
        ({"draft": TableLM.random(3, 1, 0, context=2)}, "prompt has 3 tokens, but the draft's context is 2"),
    ],
)
def test_nonsense_is_named_at_the_call(options, words):
    target, draft = tables(3)
    with pytest.raises(ValueError, match=words):
        speculative(**{"target": target, "draft": draft, "prompt": "abc", "rng": Seeded(0)} | options)


def test_a_gamma_function_that_returns_nonsense_is_named():
    for answer in (-1, 1.5, None, True):
        with pytest.raises(ValueError, match=f"the function passed as gamma .* got {answer}"):
            next(speculative(*tables(3), "a", gamma=lambda rounds, answer=answer: answer))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: adaptive_gamma([3.0], 0.5), "most is the largest gamma, .* got 0"),
        (lambda: adaptive_gamma(SECONDS, 0.5, most=0), "most .* got 0"),
        (lambda: adaptive_gamma(SECONDS, 0.5, most=7), "gamma = 7 needs the time of a call with 8 tokens"),
        (lambda: adaptive_gamma(SECONDS, -0.5), "draft_seconds"),
        (lambda: adaptive_gamma([3.0, math.nan], 0.5), "call_seconds must be finite and above 0"),
        (lambda: adaptive_gamma(SECONDS, 0.5, prior=1.2), "prior must be a number from 0 to 1, got 1.2"),
        (lambda: adaptive_gamma(SECONDS, 0.5, memory=-1), "memory"),
        (lambda: adaptive_gamma(SECONDS, 0.5, weight=0), "weight must be a finite number above 0, got 0"),
    ],
)
def test_nonsense_about_adapting_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_models_with_nothing_but_a_size_in_common_are_taken_at_their_word(models):
    pair = LM(models("llama")), TableLM.random(VOCAB, 1, 0)
    assert isinstance(next(speculative(*pair, [1, 2])), Step)
