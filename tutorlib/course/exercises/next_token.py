"""The exercises of chapter 1: softmax, temperature, counting rows, operations per byte, checking a guess."""

import math

import numpy as np
import torch

from .answers import array, close, expect, filled, judge_number, listed, normalised, number, tensor
from .judge import Exercise, checker
from .verdicts import Verdict, right, wrong

check_softmax = Exercise(
    """Judge ``softmax(logits: float64 tensor (vocab,)) -> probabilities (vocab,)``.""",
    [(tensor((2.0, -1.0, 0.5, 3.0)),), (tensor((1002.0, 999.0, 1000.5, 1003.0)),)],
    lambda row: row.softmax(-1),
    {
        "Right for small logits, but logits around 1000 overflow: exp(1000) is larger than any float64. Subtract the "
        "largest logit from all of them first; the probabilities stay the same.": (
            lambda row: normalised(row.exp()),
            lambda row: normalised(torch.tensor([math.exp(logit) for logit in row])),
        ),
        "Your largest value is 1, so the sum is above 1. Divide by the sum.": lambda row: (row - row.max()).exp(),
        "These are the exponentials themselves. Divide by their sum.": lambda row: row.exp(),
        "These are the logarithms of the probabilities. Take exp of them.": lambda row: row.log_softmax(-1),
        "You divided the logits by their sum, without exp. Negative logits then give negative probabilities.": (
            normalised
        ),
    },
    why="Your softmax sums to 1, and large logits do not overflow it.",
    hint="Probabilities are positive and sum to 1, and the largest logit gets the largest of them.",
)


@checker
def check_rows(prediction, *, prompt, new) -> Verdict:
    """Judge a prediction: how many rows the two loops compute to write `new` tokens after `prompt` tokens."""
    prediction = filled(prediction, ("without a cache", "with a cache"))
    without, with_cache = prompt * new + new * (new - 1) // 2, prompt + new - 1
    left_out = "With a cache: you left the prompt out. The first call computes a row for each of its tokens."
    mistakes = {
        prompt + new: "With a cache: one too many. The last new token is chosen, but never fed.",
        **dict.fromkeys((new, new - 1), left_out),
        without: "With a cache, no row is computed a second time.",
    }
    hint = "With a cache: the first call reads the prompt, and each later call reads one token."
    expect(prediction["with a cache"], with_cache, mistakes, otherwise=hint)
    mistakes = {
        prompt * new: "Without a cache: each call reads one token more than the call before, because the new tokens "
        "count too.",
        prompt * new + new * (new + 1) // 2: "Without a cache: one too many in each call. The first call reads the "
        "prompt alone.",
        with_cache: "Without a cache, every call computes all rows again.",
    }
    hint = "Without a cache: write down how many tokens each call reads, and add these numbers."
    why = f"Both are right: the cache saves {without - with_cache:,} of {without:,} rows."
    return judge_number(prediction["without a cache"], without, mistakes, why=why, otherwise=hint)


@checker
def check_flattened(logits, sharp=0.9, flat=0.5) -> Verdict:
    """Judge logits whose best token has at least `sharp` at temperature 1, and less than `flat` at temperature 2."""
    logits = listed(logits)
    row = array(logits, (len(logits),))
    if not 2 <= len(row) <= 100_000 or not np.isfinite(row).all():
        return wrong("Give a list of at least two finite logits.")
    at_1, at_2 = (float(torch.tensor(row / t).softmax(-1).max()) for t in (1.0, 2.0))
    facts = f"The best token has probability {at_1:.2f} at temperature 1 and {at_2:.2f} at temperature 2."
    if at_1 < sharp:
        return wrong(f"{facts} It needs {sharp:g} at temperature 1: raise its logit, or lower the others.")
    if at_2 < flat:
        return right(f"{facts} Each other token is unlikely, but there are many of them.")
    if len(row) <= 10:
        return wrong(f"{facts} With {len(row)} tokens, this is impossible: give the best token more rivals.")
    return wrong(f"{facts} Lower its logit a little, let the others share the rest evenly, or give it more rivals.")


@checker
def check_intensity(answer, *, bytes_each, tokens=1) -> Verdict:
    """Judge a number: operations per byte of weights in a call with `tokens` tokens."""
    expected = 2 * tokens / bytes_each
    mistakes = {
        tokens / bytes_each: "That is half of it: each parameter takes part in a multiplication *and* an addition.",
        1 / expected: "That is upside down: give operations per byte, not bytes per operation.",
        2 * tokens: "That is the number of operations per parameter. A parameter has more than one byte.",
        2 * tokens * bytes_each: "Divide by the bytes: the more bytes a number has, the fewer operations there are per "
        "byte.",
        2 / bytes_each: f"That is for a call with one token. Here, {tokens} tokens share one reading of the weights.",
    }
    hint = "How many operations does one parameter take part in, and how many bytes does it have?"
    why = "Right, and it does not depend on how large the model is."
    return judge_number(answer, expected, mistakes, why=why, otherwise=hint)


@checker
def check_break_even(answer, *, peak_operations, bandwidth, bytes_each) -> Verdict:
    """Judge the smallest number of tokens in a call for which computing takes as long as reading the weights."""
    ridge = peak_operations / bandwidth
    expected, value = ridge * bytes_each / 2, number(answer)
    if abs(value - expected) < 1:
        return right("Right: a call with fewer tokens waits for memory, however fast the processor is.")
    mistakes = {
        ridge: "That is how many operations the processor performs while one byte arrives. One token needs fewer for "
        "each byte.",
        ridge * bytes_each: "Twice too many: each parameter takes part in two operations per token.",
        ridge / 2: "You left out the bytes per number: a parameter with more bytes takes longer to arrive.",
        ridge / bytes_each * 2: "The bytes and the two operations are the wrong way round: wider numbers take longer "
        "to arrive.",
        1 / expected: "That is upside down: how many tokens can be computed in the time that reading takes?",
    }
    for mistake, message in mistakes.items():
        if (abs(value - mistake) < 0.51 and mistake > 2) or close(value, mistake, 1e-3):
            return wrong(message)
    return judge_number(value, expected, otherwise="Set the time for reading equal to the time for computing.")


def agreeing(best, guess):
    """How many tokens at the beginning of the guess agree with the most likely ones."""
    return next((i for i, pair in enumerate(zip(best, guess, strict=False)) if pair[0] != pair[1]), len(guess))


def by_rows(count):
    """`count(best, guess)` as a function of logits, whose most likely tokens are `best`."""
    return lambda logits, guess: count(logits.argmax(-1).tolist(), guess)


def rows_with(*best):
    """Logits (len(best), 6) whose most likely tokens are `best`."""
    made = torch.linspace(-1, 1, 6).repeat(len(best), 1)
    made[torch.arange(len(best)), torch.tensor(best)] = 5.0
    return made


check_agreeing = Exercise(
    """Judge ``agreeing(logits, guess) -> int``: how many tokens at the beginning of the guess are right.""",
    [
        (rows_with(3, 1, 4, 1, 5), [3, 1, 4, 1]),  # all agree
        (rows_with(3, 1, 4, 1, 5), [3, 1, 0, 1]),  # agrees again after the first mistake
        (rows_with(2, 3, 1, 0, 4), [3, 1, 0, 4]),  # agrees everywhere, one row late
        (rows_with(0, 2, 2, 2, 2), [1, 2, 2, 2]),  # wrong from the start
        (rows_with(4, 0), [4]),
        (rows_with(5), []),
    ],
    by_rows(agreeing),
    {
        "You also count tokens after the first mistake. Their rows follow a token that the loop would not have "
        "written, so stop at the first difference.": by_rows(
            lambda best, guess: sum(a == b for a, b in zip(best, guess, strict=False))
        ),
        "You are one row late: you compare a token with the row *after* it, which predicts the next token.": by_rows(
            lambda best, guess: agreeing(best[1:], guess)
        ),
        "One too many: the token that the model itself adds after the agreeing ones was not guessed.": by_rows(
            lambda best, guess: agreeing(best, guess) + 1
        ),
        "That is how many tokens are left over. Count the ones before the first mistake.": by_rows(
            lambda best, guess: len(guess) - agreeing(best, guess)
        ),
        "You return 0 if any token is wrong. But the tokens before the first mistake are right, so count "
        "them.": by_rows(lambda best, guess: len(guess) * (agreeing(best, guess) == len(guess))),
    },
    show=lambda logits, guess: f"rows whose most likely tokens are {logits.argmax(-1).tolist()}, and the guess {guess}",
    why="One call checks the whole guess, and you stop at the first token that differs.",
)
