"""The checkers of chapter 1, given right answers and each usual mistake: every mistake is called by its own name."""

import math
import re

import numpy as np
import pytest
import torch
from exercise_answers import exercises_of, uses_every_checker

from tutorlib import exercises
from tutorlib.exercises import next_token as checks

# What all checkers share.


@exercises.checker
def check_four(answer):
    return exercises.compare(answer, 4, {5: "One too many."}, why="Two and two.", otherwise="Add two and two.")


@exercises.checker
def check_double(function):
    return exercises.compare(exercises.attempt(function, 2), 4)


@pytest.mark.parametrize(
    ("answer", "printed"),
    [
        (4, "✓ Two and two."),
        (4.0, "✓ Two and two."),
        (np.int64(4), "✓ Two and two."),
        (torch.tensor([4]), "✓ Two and two."),
        (5, "✗ One too many."),
        (7, "✗ 7 is too large. Add two and two."),
        (3, "✗ 3 is too small. Add two and two."),
        (float("nan"), "✗ nan is not a number. Add two and two."),
        (None, "… not answered yet"),
        (..., "… not answered yet"),
        ("four", "✗ Expected a number, got 'four'."),
        (True, "✗ Expected a number, got True."),
        (torch.ones(2), "✗ Expected a number, got [1.0, 1.0]."),
    ],
)
def test_a_checker_prints_one_line_and_returns_nothing(answer, printed, capsys):
    assert check_four(answer) is None
    assert capsys.readouterr().out == printed + "\n"


def broken(x):
    raise KeyError("x")


def unfinished(x):
    raise NotImplementedError


@pytest.mark.parametrize(
    ("answer", "printed"),
    [
        (lambda x: 2 * x, "✓ Right."),
        (lambda x: None, "… not answered yet"),
        (lambda x: ..., "… not answered yet"),
        (unfinished, "… not answered yet"),
        (broken, "✗ broken(2) raised KeyError: 'x'"),
        (lambda x: next(iter([])), "✗ <lambda>(2) raised StopIteration"),
        (4, "✗ Expected a function, got 4: pass its name, without parentheses."),
    ],
)
def test_a_readers_function_may_fail_in_any_way(answer, printed, capsys):
    check_double(answer)
    assert capsys.readouterr().out == printed + "\n"


def test_an_error_of_the_checker_itself_is_not_blamed_on_the_reader():
    @exercises.checker
    def check_nothing(answer):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        check_nothing(1)


def test_verdict_prints_its_mark(capsys):
    exercises.verdict(True, "yes")
    exercises.verdict(False, "no")
    assert capsys.readouterr().out == "✓ yes\n✗ no\n"


def says(check, answer, *words, **settings):
    """Assert that the answer is judged wrong, in a message that holds the words."""
    verdict = check.judge(answer, **settings)
    assert verdict.ok is False, verdict
    for word in words:
        assert word in verdict.message, verdict


@pytest.mark.parametrize(
    "check", [value for name, value in vars(checks).items() if name.startswith("check_")], ids=lambda c: c.__name__
)
def test_no_answer_yet_is_said_of_every_exercise(check, capsys):
    settings = {
        "check_intensity": {"bytes_each": 4},
        "check_break_even": {"peak_operations": 8.1e12, "bandwidth": 3e11, "bytes_each": 4},
    }.get(check.__name__, {})
    check(None, **settings)
    assert capsys.readouterr().out == "… not answered yet\n"


# Softmax.


def stable(logits):
    powers = (logits - logits.max()).exp()
    return powers / powers.sum()


def with_math(logits):
    """Plain Python: overflows with an error instead of an inf."""
    powers = [math.exp(value) for value in logits]
    return [power / sum(powers) for power in powers]


@pytest.mark.parametrize(
    "softmax", [stable, lambda z: z.softmax(-1), lambda z: stable(z).tolist(), lambda z: stable(z).numpy()]
)
def test_softmax_is_recognised(softmax):
    assert checks.check_softmax.judge(softmax).ok


@pytest.mark.parametrize(
    ("softmax", "words"),
    [
        (lambda z: z.exp() / z.exp().sum(), "overflow"),
        (with_math, "overflow"),
        (lambda z: z.exp(), "divide by their sum"),
        (lambda z: (z - z.max()).exp(), "still divide"),
        (lambda z: z.log_softmax(-1), "logarithms"),
        (lambda z: z / z.sum(), "without exp"),
        (lambda z: z.exp() / z.exp().norm(), "squares"),
        (lambda z: 2**z / (2**z).sum(), "powers of 2"),
        (lambda z: (-z).softmax(-1), "sign"),
        (lambda z: z.softmax(-1) * 0.5, "sum to 0.500"),
        (lambda z: z / 0, "must be finite"),
        (lambda z: torch.full_like(z, 0.25), "expected [0.25"),
        (lambda z: z[:2].softmax(-1), "shape (2,)"),
        (lambda z: "probabilities", "got a str"),
    ],
)
def test_softmax_mistakes_are_named(softmax, words):
    says(checks.check_softmax, softmax, words)


# Rows computed.


def rows(with_cache, without):
    return lambda prompt, new, cached: with_cache(prompt, new) if cached else without(prompt, new)


def cached_rows(m, n):
    return m + n - 1


def all_rows(m, n):
    return sum(m + i for i in range(n))


def test_rows_are_recognised():
    assert checks.check_rows.judge(rows(cached_rows, all_rows)).ok


@pytest.mark.parametrize(
    ("with_cache", "without", "words"),
    [
        (lambda m, n: m + n, all_rows, "never fed"),
        (lambda m, n: m + n - 2, all_rows, "One row too few"),
        (lambda m, n: n, all_rows, "prompt is left out"),
        (lambda m, n: m * n, all_rows, "prompt in every call"),
        (all_rows, all_rows, "count without a cache"),
        (lambda m, n: 17, all_rows, "one by one"),
        (cached_rows, lambda m, n: m * n, "one token longer"),
        (cached_rows, lambda m, n: all_rows(m + 1, n), "Off by one"),
        (cached_rows, lambda m, n: n * (m + n), "as long as the last"),
        (cached_rows, lambda m, n: all_rows(0, n), "prompt is left out"),
        (cached_rows, cached_rows, "count with a cache"),
        (cached_rows, lambda m, n: 17, "one by one"),
    ],
)
def test_row_mistakes_are_named(with_cache, without, words):
    says(checks.check_rows, rows(with_cache, without), words)


def test_the_counted_rows_are_those_of_a_session_over_a_real_model(llama):
    prompt, new = [3, 1, 4], 5
    assert checks._rows_cached(len(prompt), new) == cached_rows(3, 5) == 7
    seen = []
    inside = llama.model.get_input_embeddings().register_forward_hook(lambda _, args, __: seen.append(args[0].numel()))
    session = llama.session(prompt)
    token = int(session.feed()[-1].argmax())
    for _ in range(new - 1):
        token = int(session.feed([token])[-1].argmax())
    inside.remove()
    assert sum(seen) == cached_rows(3, 5)


# The size of the cache.


def test_cache_bytes_are_recognised():
    assert checks.check_cache_bytes.judge(lambda t, n, h, k, d, b: 2 * t * n * k * d * b).ok


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda t, n, h, k, d, b: t * n * k * d * b, "and* a value"),
        (lambda t, n, h, k, d, b: 2 * t * k * d * b, "layers are missing"),
        (lambda t, n, h, k, d, b: 2 * t * n * h * d * b, "query heads"),
        (lambda t, n, h, k, d, b: 2 * t * n * h * k * d * b, "query heads too"),
        (lambda t, n, h, k, d, b: 2 * t * n * k * d, "bytes of one number"),
        (lambda t, n, h, k, d, b: 2 * t * n * d * b, "heads are missing"),
        (lambda t, n, h, k, d, b: 2 * t * n * k * b, "head size is missing"),
        (lambda t, n, h, k, d, b: 2 * n * k * d * b, "tokens are missing"),
        (lambda t, n, h, k, d, b: 4 * t * n * k * d * b, "Twice"),
        (lambda t, n, h, k, d, b: t * n * h * d * b, "Two things. Half of it"),
        (lambda t, n, h, k, d, b: t * n * h * d * b, "query heads"),
        (lambda t, n, h, k, d, b: 2 * n * k * d, "The tokens are missing"),
        (lambda t, n, h, k, d, b: 1000, "you give 1,000"),
    ],
)
def test_cache_mistakes_are_named(function, words):
    says(checks.check_cache_bytes, function, words)


# Operations for each byte.


def test_intensity_is_recognised():
    assert checks.check_intensity.judge(2.5, bytes_each=4, tokens=5).ok
    assert checks.check_intensity.judge(1, bytes_each=2).ok


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (1.25, "and* an addition"),
        (0.4, "Upside down"),
        (10, "more than one byte"),
        (40, "below the line"),
        (20, "not bits"),
        (0.5, "call of one token"),
        (3, "too large"),
    ],
)
def test_intensity_mistakes_are_named(answer, words):
    says(checks.check_intensity, answer, words, bytes_each=4, tokens=5)


MACHINE = {"peak_operations": 8.1e12, "bandwidth": 300e9, "bytes_each": 4}


@pytest.mark.parametrize("answer", [54, 54.0, 8.1e12 / 300e9 * 4 / 2])
def test_the_break_even_is_recognised(answer):
    assert checks.check_break_even.judge(answer, **MACHINE).ok


def test_the_break_even_may_be_rounded_either_way():
    machine = {**MACHINE, "peak_operations": 8.2e12}  # at 54.67 tokens
    assert [checks.check_break_even.judge(answer, **machine).ok for answer in (53, 54, 55, 56)] == [False, 1, 1, False]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (27, "while one byte arrives"),
        (108, "two operations"),
        (14, "other side"),
        (1 / 54, "Upside down"),
        (300e9 / 8.1e12, "Upside down"),
        (70, "too large"),
    ],
)
def test_break_even_mistakes_are_named(answer, words):
    says(checks.check_break_even, answer, words, **MACHINE)


# Checking a guess.


def agreeing(logits, guess):
    count = 0
    for row, token in zip(logits, guess, strict=False):
        if int(row.argmax()) != token:
            break
        count += 1
    return count


def matches(logits, guess):
    return [int(row.argmax()) == token for row, token in zip(logits, guess, strict=False)]


def test_agreeing_is_recognised():
    assert checks.check_agreeing.judge(agreeing).ok


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda logits, guess: sum(matches(logits, guess)), "after the first mistake"),
        (lambda logits, guess: agreeing(logits[1:], guess), "One row late"),
        (lambda logits, guess: agreeing(logits, guess) + 1, "One too many"),
        (lambda logits, guess: len(guess) - agreeing(logits, guess), "left over"),
        (lambda logits, guess: len(guess) if all(matches(logits, guess)) else 0, "All or nothing"),
        (lambda logits, guess: 7, "you count 7; expected 4"),
        (lambda logits, guess: "two", "Expected a number"),
    ],
)
def test_mistakes_in_checking_a_guess_are_named(function, words):
    says(checks.check_agreeing, function, words)


# The chapter itself.

CHAPTER = "01_next_token"


def test_every_checker_is_used_in_the_chapter():
    uses_every_checker(CHAPTER, checks)


def test_the_exercises_begin_unanswered_and_the_folded_solutions_are_right(capsys):
    exercises, codes = exercises_of(CHAPTER)
    names = {}
    for exercise, code in zip(exercises, codes, strict=True):
        calls = re.findall(r"(?m)^check_.*", exercise)
        exec(exercise, names)
        assert capsys.readouterr().out.splitlines() == ["… not answered yet"] * len(calls)
        exec(code, names)
        exec("\n".join(calls), names)
        answers = capsys.readouterr().out.splitlines()
        assert len(answers) == len(calls) and all(answer.startswith("✓") for answer in answers), answers
