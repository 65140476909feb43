"""The checkers of chapter 3 accept what is right, and tell every usual mistake which one it is."""

import heapq
import math

import numpy as np
import pytest
import torch
from exercise_answers import begins_unanswered, found, has_right_solutions, is_right, uses_every_checker

from tutorlib import TableLM, greedy, run
from tutorlib.decoders.beam_search import beam_search
from tutorlib.exercises import beam_search as exercises
from tutorlib.exercises.beam_search import (
    check_beam_step,
    check_beams,
    check_best_first,
    check_score,
    check_winner,
    check_worse_beam,
)


@pytest.mark.parametrize("check", [check_beam_step, check_score, check_winner, check_best_first])
def test_a_stub_is_not_answered_yet(check, capsys):
    begins_unanswered(check, capsys)


# What is right is not taken from the decoder; here the two are compared.


@pytest.mark.parametrize("seed", range(20))
def test_the_searches_by_hand_are_beam_search(seed):
    lm, beams, length = TableLM.random(4, order=2, seed=seed), 1 + seed % 4, 5
    levels = exercises._search(lm, [0], beams, length)
    options = {"beams": beams, "max_new_tokens": length, "length_penalty": 0}
    steps = run(beam_search(lm, [0], **options), length).steps
    for level, step in zip(levels[:-1], steps[:-2], strict=True):
        assert [list(tokens) for tokens, _ in level] == [tokens for tokens, _ in step.hypotheses]
    assert list(levels[-1][0][0]) == steps[-1].tokens
    assert levels[-1][0][1] == pytest.approx(steps[-1].score)
    tokens, scored = exercises._best_first(lm, [0], beams, length)
    assert list(tokens) == steps[-1].tokens
    assert len(scored) <= 1 + sum(map(len, levels[:-1]))


# Following a beam.

TABLE = {
    "a": {"a": 0.1, "b": 0.5, "c": 0.4},
    "b": {"a": 0.4, "b": 0.3, "c": 0.3},
    "c": {"a": 0.8, "b": 0.1, "c": 0.1},
}
ROUND = TableLM(TABLE, ["a", "b", "c"])
RIGHT = [["b", "c"], ["ca", "ba"], ["cab", "cac"]]


def test_the_right_beams():
    # By hand: ca 0.4 · 0.8, ba 0.5 · 0.4; cab 0.32 · 0.5, cac 0.32 · 0.4.
    assert "'cab', of probability 0.16" in is_right(check_beams, RIGHT, ROUND, "a")
    assert check_beams.judge([["b", "c"], None, None], ROUND, "a").ok is None


@pytest.mark.parametrize(
    ("place", "level", "complaint"),
    [
        (0, ["c", "b"], "likelier one first"),
        (0, ["ab", "ac"], "leave the prompt out"),
        (0, ["b", "a"], "more than 'a'"),
        (0, ["b"], "holds 2 hypotheses"),
        (0, ["x", "b"], "can't follow"),
        (1, ["ca", "cb"], "more than"),
        (1, ["ba", "bb"], "best hypothesis only"),
        (1, ["aa", "ba"], "does not go on from the beam before"),
        (2, ["cab", "bab"], "keep its own best"),
    ],
)
def test_wrong_beams_are_told_why(place, level, complaint):
    assert complaint in found(check_beams, [*RIGHT[:place], level, *RIGHT[place + 1 :]], ROUND, "a")


def test_comparing_the_last_token_alone_is_told():
    lm = TableLM(
        {"a": {"b": 0.8, "c": 0.2}, "b": {"a": 0.45, "b": 0.35, "c": 0.2}, "c": {"a": 0.5, "b": 0.46, "c": 0.04}},
        ["a", "b", "c"],
    )
    assert "last tokens' probabilities" in found(check_beams, [["b", "c"], ["ca", "cb"]], lm, "a")
    assert "Expected a list" in found(check_beams, "bc", lm, "a")


def test_a_prediction_may_be_an_array_and_must_be_complete():
    is_right(check_beams, np.array(RIGHT), ROUND, "a", 2, 3)
    is_right(check_beams, [np.array(level) for level in RIGHT], ROUND, "a", 2, 3)
    assert "3 were asked for" in found(check_beams, RIGHT[:2], ROUND, "a", 2, 3)
    assert "'b' more than once" in found(check_beams, [["b", "b"]], ROUND, "a")
    assert 'such as ["b", "c"]' in found(check_beams, [[1, 2], [20, 10]], ROUND, "a")
    assert check_beams.judge([["b", "c"], [None, None]], ROUND, "a").ok is None


# One step, with every mistake in it as an option.


def step(
    *, flat=True, start=0.0, product=False, parent=True, probs=False, swapped=False, shared=0, worst=False, spoil=False
):
    def my_beam_step(log_probs, scores, beams):
        rows, vocab = log_probs.shape
        if spoil:
            log_probs[0, 0] = -9
        before = scores[:, None]
        if shared:  # all rows alive
            before = torch.where(before == -math.inf, torch.zeros_like(before), before)
        values = log_probs.exp() if probs else log_probs
        totals = before * values if product else before + start + values if parent else values
        if not flat:
            best = totals.topk(min(vocab, math.ceil(beams / rows)))
            parents = torch.arange(rows)[:, None].expand_as(best.indices).flatten()
            tokens, totals = best.indices.flatten(), best.values.flatten()
            return parents, tokens, totals
        best = totals.flatten().topk(beams, largest=not worst)
        parents, tokens = best.indices // vocab, best.indices % vocab
        return (tokens, parents, best.values) if swapped else (parents, tokens, best.values)

    return my_beam_step


def test_a_right_step():
    assert "each with its parent" in is_right(check_beam_step, step())


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        ({"flat": False}, "each row by itself"),
        ({"start": 1.0}, "starts at 0"),
        ({"product": True}, "multiplied"),
        ({"parent": False}, "forgot the parent's score"),
        ({"probs": True}, "You added probabilities"),
        ({"swapped": True}, "wrong way round"),
        ({"shared": True}, "same text more than once"),
        ({"worst": True}, "keep the worst"),
        ({"spoil": True}, "changed the tensors"),
    ],
)
def test_wrong_steps_are_told_why(mistake, complaint):
    assert complaint in found(check_beam_step, step(**mistake))


def test_other_wrong_steps():
    def reversed_step(log_probs, scores, beams):
        return [part.flip(0) for part in step()(log_probs, scores, beams)]

    def by_rows(log_probs, scores, beams):
        best = (scores[:, None] + log_probs).flatten().topk(beams)
        return best.indices // len(scores), best.indices % len(scores), best.values

    def places(log_probs, scores, beams):
        best = (scores[:, None] + log_probs).flatten().topk(beams)
        return [0] * beams, best.indices, best.values

    def one_too_few(log_probs, scores, beams):
        return step()(log_probs, scores, beams - 1)

    def all_of_each_row(log_probs, scores, beams):
        best = (scores[:, None] + log_probs).topk(min(beams, log_probs.shape[1]))
        parents = torch.arange(len(scores))[:, None].expand_as(best.indices)
        return parents.flatten(), best.indices.flatten(), best.values.flatten()

    def first_row_alone(log_probs, scores, beams):
        best = (scores[:1, None] + log_probs[:1]).flatten().topk(beams)
        return [0] * beams, best.indices, best.values

    def probabilities(log_probs, scores, beams):
        parents, tokens, totals = step()(log_probs, scores, beams)
        return parents, tokens, totals.exp()

    assert "worst first" in found(check_beam_step, reversed_step)
    assert "size of the vocabulary" in found(check_beam_step, places)
    assert "expected" in found(check_beam_step, by_rows)
    assert "3 of each" in found(check_beam_step, one_too_few)
    assert "sums of log-probabilities are wanted" in found(check_beam_step, probabilities)
    assert "each row by itself" in found(check_beam_step, all_of_each_row)
    assert "first hypothesis only" in found(check_beam_step, first_row_alone)
    assert "three lists" in found(check_beam_step, lambda *_: 3)


def test_a_step_whose_rows_are_no_whole_numbers_is_told_so():
    def divided(log_probs, scores, beams):
        best = (scores[:, None] + log_probs).flatten().topk(beams)
        return best.indices / log_probs.shape[1], best.indices % log_probs.shape[1], best.values

    def scores_first(log_probs, scores, beams):
        parents, tokens, totals = step()(log_probs, scores, beams)
        return totals, parents, tokens

    assert "by //, not by /" in found(check_beam_step, divided)
    assert "in this order" in found(check_beam_step, scores_first)


# The score.


def test_the_right_score():
    assert "the mean over the tokens" in is_right(check_score, lambda s, prompt, y, a: s / len(y) ** a)


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (lambda s, prompt, y, a: -s / len(y) ** a, "sign"),
        (lambda s, prompt, y, a: s * len(y) ** a, "multiplied"),
        (lambda s, prompt, y, a: s / len(y) ** -a, "multiplied"),
        (lambda s, prompt, y, a: s / (len(y) + 1) ** a, "Off by one"),
        (lambda s, prompt, y, a: s / (len(y) - 1) ** a, "stop token out"),
        (lambda s, prompt, y, a: s / (len(prompt) + len(y)) ** a, "prompt's tokens"),
        (lambda s, prompt, y, a: s / (len(prompt) + len(y) + 1) ** a, "prompt's tokens, and one"),
        (lambda s, prompt, y, a: s / len(set(y)) ** a, "stop token out"),
        (lambda s, prompt, y, a: s, "raw sum"),
        (lambda s, prompt, y, a: s / len(y), "whatever the length penalty"),
        (lambda s, prompt, y, a: s / (len(y) * a), "its exponent"),
        (lambda s, prompt, y, a: s / a ** len(y), "wrong way round"),
        (lambda s, prompt, y, a: s - a * len(y), "subtracted"),
        (lambda s, prompt, y, a: s / ((5 + len(y)) / 6) ** a, "Wu et al."),
        (lambda s, prompt, y, a: math.exp(s) / len(y) ** a, "Divide its logarithm"),
        (lambda s, prompt, y, a: (s + 1) / len(y) ** a, "begins at 1"),
        (lambda s, prompt, y, a: s / len(y) ** a - 0.1, "expected"),
        (lambda s, prompt, y, a: "x", "Expected a number"),
    ],
)
def test_wrong_scores_are_told_why(mistake, complaint):
    assert complaint in found(check_score, mistake)


# The winner.


def score(pair, alpha):
    return pair[1] / len(pair[0]) ** alpha


def test_the_right_winner():
    message = is_right(check_winner, lambda done, alive, a: max(done or alive, key=lambda one: score(one, a))[0])
    assert "best of what is finished" in message


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (lambda done, alive, a: (done or alive)[0][0], "first to finish"),
        (lambda done, alive, a: (done or alive)[-1][0], "last to finish"),
        (lambda done, alive, a: min(done or alive, key=lambda one: score(one, a))[0], "worst"),
        (lambda done, alive, a: max(done + alive, key=lambda one: score(one, a))[0], "not finished"),
        (lambda done, alive, a: max(alive or done, key=lambda one: score(one, a))[0], "not finished"),
        (lambda done, alive, a: max(done or alive, key=lambda one: one[1])[0], "raw sums"),
        (lambda done, alive, a: max(done or alive, key=lambda one: score(one, 1))[0], "although the penalty is 0"),
        (lambda done, alive, a: max(done or alive, key=lambda one: score(one, a)), "tokens alone"),
        (lambda done, alive, a: max(done, key=lambda one: score(one, a))[0] if done else [], "Nothing is finished"),
        (lambda done, alive, a: max(done or alive, key=lambda one: one[1] / (len(one[0]) + 1) ** a)[0], "too large"),
        (lambda done, alive, a: max(done or alive, key=lambda one: one[1] / (len(one[0]) - 1) ** a)[0], "too small"),
        (lambda done, alive, a: max(done, key=lambda one: score(one, a))[0] if done else alive[0][0], "*best*"),
        (lambda done, alive, a: [9, 9], "whose score"),
        (lambda done, alive, a: 3, "list of ids"),
    ],
)
def test_wrong_winners_are_told_why(mistake, complaint):
    assert complaint in found(check_winner, mistake)


# Worse than greedy.

WORSE = {
    "a": {"b": 0.55, "c": 0.45},
    "ab": {"a": 0.4, "b": 0.3, "c": 0.3},
    "ac": {"a": 0.501, "b": 0.499},
    "ba": {"a": 1.0},
    "bb": {"a": 1.0},
    "bc": {"a": 1.0},
    "ca": {"a": 0.34, "b": 0.33, "c": 0.33},
    "cb": {"a": 0.34, "b": 0.33, "c": 0.33},
}


def test_a_right_counterexample():
    message = is_right(check_worse_beam, WORSE)
    # By hand: greedy 0.55 · 0.4 · 1; the beam 0.45 · 0.501 · 0.34.
    assert "'baa' with probability 0.22" in message and "0.0767" in message and "2.87 times less" in message
    assert "After 2 tokens" in message
    is_right(check_worse_beam, TableLM(WORSE, ["a", "b", "c"]))


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({"": [0.6, 0.3, 0.1]}, "in the beam at every length"),
        (WORSE | {"ca": {"a": 1.0}, "cb": {"a": 1.0}}, "end well"),
        (WORSE | {"ba": {"b": 0.2, "a": 0.34, "c": 0.46}, "ca": {"a": 0.6, "b": 0.4}}, "end well"),
        (WORSE | {"ca": {"a": 0.22 / (0.45 * 0.501), "b": 1 - 0.22 / (0.45 * 0.501)}}, "as much"),
        (WORSE | {"a": [0.3, 0.4, 0.3], "ab": [0.34, 0.33, 0.33], "aa": [0.501, 0.499, 0]}, "equally likely"),
        ({"a": [0.5, 0.2, 0.2]}, "sum to 1"),
        (TableLM({"": [0.6, 0.4]}, ["x", "y"]), "cannot read"),
        ([0.5, 0.5], "Expected a dict"),
    ],
)
def test_what_is_no_counterexample_is_told_why(table, complaint):
    assert complaint in found(check_worse_beam, table)


# Best first.


def best_first(*, sign=-1, limit=True, at_push=False, parent=True, again=False):
    def my_best_first(successors, beams, length):
        queue, taken = [(0.0, ())], [0] * (length + 1)
        while queue:
            cost, tokens = heapq.heappop(queue)
            if limit and taken[len(tokens)] == beams:
                continue
            taken[len(tokens)] += 1
            if len(tokens) == length:
                return tokens
            after = successors(tokens)
            if again:
                after = successors(tokens)
            if at_push and len(tokens) == length - 1:
                return (*tokens, max(after, key=after.get))
            for token, value in after.items():
                heapq.heappush(queue, ((cost if parent else 0) + sign * value, (*tokens, token)))

    return my_best_first


def test_a_right_best_first():
    assert "level by level" in is_right(check_best_first, best_first())


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        ({"sign": 1}, "pops the worst"),
        ({"limit": False}, "count for each length"),
        ({"at_push": True}, "as soon as a whole text was pushed"),
        ({"parent": False}, "its parent's plus"),
        ({"again": True}, "more than once"),
        ({"sign": 1, "limit": False}, "minus the score"),
    ],
)
def test_wrong_best_firsts_are_told_why(mistake, complaint):
    assert complaint in found(check_best_first, best_first(**mistake))


def test_other_wrong_best_firsts():
    def level_by_level(successors, beams, length):
        beam = [((), 0.0)]
        for _ in range(length):
            longer = [((*y, v), s + value) for y, s in beam for v, value in successors(y).items()]
            beam = sorted(longer, key=lambda one: -one[1])[:beams]
        return beam[0][0]

    def too_long(successors, beams, length):
        return [successors(tuple(range(length)))]

    assert "are enough" in found(check_best_first, level_by_level)
    assert "finished" in found(check_best_first, too_long)
    assert "never called" in found(check_best_first, lambda *_: (0, 0, 0, 0))
    assert "Expected the winner's tokens" in found(check_best_first, lambda *_: "abc")


def test_the_mistakes_of_best_first_differ_from_what_is_right():
    lm = TableLM.random(4, order=2, seed=4)
    right = exercises._best_first(lm, [0], 2, 4)
    for options, _ in exercises._MISTAKES:
        assert exercises._best_first(lm, [0], 2, 4, **options) != right, options


# The chapter itself.

CHAPTER = "03_beam_search"


def test_every_checker_is_used_in_the_chapter():
    uses_every_checker(CHAPTER, exercises, least=6)


def test_the_exercises_begin_unanswered_and_the_folded_solutions_are_right(capsys):
    has_right_solutions(
        CHAPTER, {"torch": torch, "TableLM": TableLM, "greedy": greedy, "run": run, "heapq": heapq}, capsys
    )
