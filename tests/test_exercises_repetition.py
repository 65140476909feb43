"""The checkers of chapter 5 accept what is right, and tell every usual mistake which one it is."""

import math
import re
from collections import Counter

import pytest
import torch
from exercise_answers import begins_unanswered, found, has_right_solutions, is_right, uses_every_checker

from tutorlib import metrics, warp
from tutorlib.exercises import repetition as exercises
from tutorlib.exercises.repetition import (
    check_batch_penalty,
    check_frequency_penalty,
    check_no_repeat_ngram,
    check_repetition,
    check_repetition_penalty,
)

CHECKS = [
    check_repetition,
    check_repetition_penalty,
    check_frequency_penalty,
    check_no_repeat_ngram,
    check_batch_penalty,
]


@pytest.mark.parametrize("check", CHECKS)
def test_a_stub_is_not_answered_yet(check, capsys):
    begins_unanswered(check, capsys)


@pytest.mark.parametrize("check", CHECKS)
def test_what_is_of_another_form_is_said_to_be(check):
    assert re.search("Expected|expected", found(check, lambda *_: "abc"))
    assert re.search("Expected|expected", found(check, lambda *_: [1.0]))
    assert "without parentheses" in found(check, [1, 2])
    assert "ZeroDivisionError" in found(check, lambda *_: 1 / 0)


# The package's own functions are right answers.


def test_the_packages_own_metric_and_warps_are_right_answers():
    is_right(check_repetition, metrics.repetition)

    def of(make):
        return lambda logits, history, strength, ignore: make(strength, ignore)(logits[None], [history])[0]

    assert "negative ones multiplied" in is_right(check_repetition_penalty, of(warp.repetition_penalty))
    is_right(check_frequency_penalty, of(warp.frequency_penalty))
    is_right(check_no_repeat_ngram, lambda logits, history, n: warp.no_repeat_ngram(n)(logits[None], [history])[0])

    def batch(logits, padded, mask, strength):
        histories = [row[there.bool()].tolist() for row, there in zip(padded, mask, strict=True)]
        return warp.presence_penalty(strength)(logits, histories)

    is_right(check_batch_penalty, batch)


# Repetition.


def grams(tokens, n, ahead=1, step=1):
    return [tuple(tokens[i : i + n]) for i in range(0, len(tokens) - n + ahead, step)]


def repeated(tokens, n):
    return len(grams(tokens, n)) - len(set(grams(tokens, n)))


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (lambda t, n: 1 - len(set(grams(t, n))) / len(t), "begin none"),
        (lambda t, n: repeated(t, n) / len(t), "begin none"),
        (lambda t, n: len(set(grams(t, n))) / len(t), "begin none"),
        (lambda t, n: repeated(t, n) / len(set(grams(t, n))), "number of different n-grams"),
        (lambda t, n: len(set(grams(t, n))) / len(grams(t, n)), "distinct-n"),
        (lambda t, n: repeated(t, n), "Divide by how many"),
        (lambda t, n: 100 * repeated(t, n) / len(grams(t, n)), "percentage"),
        (
            lambda t, n: sum(c for c in Counter(grams(t, n)).values() if c > 1) / len(grams(t, n)),
            "first occurrence",
        ),
        (lambda t, n: sum(c > 1 for c in Counter(grams(t, n)).values()) / len(grams(t, n)), "repeated n-gram once"),
        (
            lambda t, n: sum(c > 1 for c in Counter(grams(t, n)).values()) / len(set(grams(t, n))),
            "different n-grams that ever come back",
        ),
        (lambda t, n: 1 - len({tuple(sorted(g)) for g in grams(t, n)}) / len(grams(t, n)), "without their order"),
        (lambda t, n: 1 - len(set(grams(t, n, step=n))) / len(grams(t, n, step=n)), "do not overlap"),
        (lambda t, n: 1 - len(set(t)) / len(t), "single tokens"),
        (lambda t, n: 1 - len(set(grams(t, n, 0))) / len(grams(t, n, 0)), "one n-gram short"),
        (lambda t, n: 1 - len(set(grams(t, n))) / (len(t) - n), "one n-gram short"),
        (lambda t, n: 1 - len(set(grams(t, n, n))) / len(grams(t, n, n)), "begin none"),
        (lambda t, n: 0.123, "different"),
    ],
)
def test_wrong_counts_are_told_why(mistake, complaint):
    assert complaint in found(check_repetition, mistake)


def test_a_count_in_single_precision_is_right():
    is_right(check_repetition, lambda tokens, n: torch.tensor(metrics.repetition(tokens, n)))


def test_the_usual_wrong_counts_come_to_different_numbers():
    for tokens, n in (([2, 0, 2, 2, 0, 1, 0, 1, 0, 1, 0, 0], 3), ([2, 1, 1, 2, 0, 1, 1, 1, 1, 0, 0], 2)):
        values = sorted([metrics.repetition(tokens, n), *exercises._repetition_mistakes(tokens, n)])
        assert all(b - a > 1e-3 for a, b in zip(values, values[1:], strict=False)), values


# Penalties on one row. One function with every mistake in it as an option.


def penalty(change, *, counted=set, part=lambda history, ignore: history[ignore:], others=False):
    def my_penalty(logits, history, strength, ignore_first=0):
        row = logits.clone()
        tokens = list(counted(part(history, ignore_first)))
        for token in set(range(len(row))) - set(tokens) if others else tokens:
            row[token] = change(row[token], strength, len(part(history, ignore_first)))
        return row

    return my_penalty


def by_sign(z, s, _):
    return z / s if z > 0 else z * s


def minus(z, s, _):
    return z - s


PARTS = [
    (lambda history, ignore: history, "You count the prompt"),
    (lambda history, ignore: history[:ignore] if ignore else history, "just what is to be ignored"),
    (lambda history, ignore: history[: len(history) - ignore], "leave out the last 2"),
    (lambda history, ignore: history[-ignore:], "count the last 2 tokens only"),
    (lambda history, ignore: [t for t in history if t not in history[:ignore]], "came again later"),
]


def on_probabilities(way):
    def my_penalty(logits, history, theta, ignore_first=0):
        probs = logits.softmax(-1)
        seen = list(set(history[ignore_first:]))
        if way == "log_softmax":
            row = probs.log()
            row[seen] *= theta
            return row
        probs[seen] /= theta
        probs = probs / probs.sum() if "summed" in way else probs
        return probs.log() if "log" in way else probs

    return my_penalty


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (penalty(lambda z, s, _: z / s), "likelier for having been said"),
        (penalty(lambda z, s, _: z * s), "multiply every logit"),
        (penalty(lambda z, s, _: z * s if z > 0 else z / s), "wrong way round"),
        (penalty(by_sign, counted=list), "penalised twice"),
        (penalty(minus), "subtract theta"),
        (penalty(by_sign, others=True), "were not there"),
        *[(on_probabilities(way), "penalise probabilities") for way in ("", "summed", "log", "summed log")],
        (on_probabilities("log_softmax"), "log-probabilities"),
        *[(penalty(by_sign, part=part), complaint) for part, complaint in PARTS],
        (lambda logits, *_: logits, "becomes"),
    ],
)
def test_wrong_repetition_penalties_are_told_why(mistake, complaint):
    assert complaint in found(check_repetition_penalty, mistake)


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (penalty(minus), "presence penalty"),
        (penalty(lambda z, s, _: z + s, counted=list), "sign is wrong: you add"),
        (penalty(lambda z, s, _: z + s), "the count is missing"),
        (penalty(lambda z, s, n: z - s / n, counted=list), "share of the history"),
        (penalty(lambda z, s, _: z - 1, counted=list), "strength is missing"),
        (penalty(by_sign, counted=list), "divide and multiply"),
        (penalty(minus, others=True), "were not there"),
        *[(penalty(minus, counted=list, part=part), complaint) for part, complaint in PARTS],
        (lambda logits, *_: logits, "becomes"),
    ],
)
def test_wrong_frequency_penalties_are_told_why(mistake, complaint):
    assert complaint in found(check_frequency_penalty, mistake)


def test_counts_that_end_at_the_largest_id_of_the_history_are_wrong():
    def too_short(logits, history, strength, ignore_first=0):
        return logits - strength * torch.bincount(torch.tensor(history[ignore_first:]))

    assert "RuntimeError" in found(check_frequency_penalty, too_short)


def test_rows_in_a_list_are_a_batch():
    def rows(logits, padded, mask, strength):
        out = []
        for row, tokens, real in zip(logits.clone(), padded, mask.bool(), strict=True):
            row[tokens[real].unique()] -= strength
            out.append(row)
        return out

    is_right(check_batch_penalty, rows)


@pytest.mark.parametrize("check", [check_repetition_penalty, check_frequency_penalty])
def test_a_penalty_that_spoils_its_input_is_told_so(check):
    def spoils(logits, history, *_):
        logits[history] -= 1
        return logits

    assert "clone" in found(check, spoils)


# No-repeat n-gram.


def bans(
    *,
    longer=0,
    which=-1,
    key=lambda gram: gram,
    short=0,
    zeros=True,
    ban_zero=True,
    value=-math.inf,
    slicing=False,
    skip=False,
):
    def my_no_repeat_ngram(logits, history, n):
        row, n = logits.clone(), n + longer
        history = history if zeros else [token for token in history if token]
        last = history[-(n - 1) :] if slicing else history[len(history) - n + 1 :]
        for i in range(len(history) - n + 1 - short):
            gram = history[i : i + n]
            hit = key(gram[1:] if which == "before" else gram[:-1]) == key(last)
            token = gram[0] if which == "before" else gram[which]
            if (hit or skip) and (ban_zero or token):
                row[token] = value
        return row

    return my_no_repeat_ngram


def test_a_right_ban():
    assert "id 0 like any other" in is_right(check_no_repeat_ngram, bans())


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (bans(longer=1), "runs of 4 tokens, not of 3"),
        (bans(longer=-1), "runs of 2 tokens, not of 3"),
        (bans(which=0), "first token of the n-gram"),
        (bans(which="before"), "token before the match"),
        (bans(skip=True), "last token of every n-gram"),
        (bans(short=1), "leave out the last n-gram"),
        (bans(key=sorted), "without their order"),
        (bans(zeros=False), "take the zeros out"),
        (bans(ban_zero=False), "never forbid id 0"),
        (bans(slicing=True), "history[-0:]"),
        (bans(value=0.25), "Only -inf"),
        (bans(value=-1e9), "Only -inf"),
        (lambda logits, history, n: logits, "forbid"),
        (
            lambda logits, history, n: logits.index_fill(0, torch.tensor(history), -math.inf),
            "every token of the history",
        ),
    ],
)
def test_wrong_bans_are_told_why(mistake, complaint):
    assert complaint in found(check_no_repeat_ngram, mistake)


def test_a_ban_that_spoils_its_input_is_told_so():
    def spoils(logits, history, n):
        history.append(0)
        return bans()(logits, history[:-1], n)

    assert "clone" in found(check_no_repeat_ngram, spoils)


# Padding.


def padded_penalty(there=lambda padded, mask: mask.bool(), *, once=True, sign=1):
    def my_batch_penalty(logits, padded, mask, strength):
        logits = logits.clone()
        for row, tokens, real in zip(logits, padded, there(padded, mask), strict=True):
            chosen = tokens[real].tolist()
            for token in set(chosen) if once else chosen:
                row[token] -= sign * strength
        return logits

    return my_batch_penalty


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (padded_penalty(lambda padded, mask: torch.ones_like(mask).bool()), "that is the padding"),
        (padded_penalty(lambda padded, mask: torch.ones_like(mask).bool(), once=False), "that is the padding"),
        (padded_penalty(lambda padded, mask: padded != 0), "every 0 for padding"),
        (padded_penalty(lambda padded, mask: ~mask.bool()), "wrong way round"),
        (padded_penalty(lambda padded, mask: mask.flip(-1).bool()), "from the front"),
        (padded_penalty(once=False), "frequency penalty"),
        (padded_penalty(sign=-1), "sign"),
        (lambda logits, *_: logits, "expected"),
        (lambda logits, *_: logits[0], "shape"),
        (lambda logits, *_: logits.sub_(1), "clone"),
    ],
)
def test_wrong_batches_are_told_why(mistake, complaint):
    assert complaint in found(check_batch_penalty, mistake)


# The chapter itself.

CHAPTER = "05_repetition"


def test_every_checker_is_used_in_the_chapter():
    uses_every_checker(CHAPTER, exercises)


def test_the_exercises_begin_unanswered_and_the_folded_solutions_are_right(capsys):
    has_right_solutions(CHAPTER, {"torch": torch}, capsys)
