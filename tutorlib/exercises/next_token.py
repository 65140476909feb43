"""The checkers of chapter 1: softmax, rows computed, bytes of the cache, operations for each byte, checking a guess."""

import math
from itertools import combinations, product

import numpy as np
import torch

from .. import theory
from . import Verdict, _close, attempt, checker, compare, number, right, wrong

# ------------------------------------------------------------------------------------------------------------- softmax


@checker
def check_softmax(softmax) -> Verdict:
    """Judge ``softmax(logits: float64 tensor (vocab,)) -> probabilities (vocab,)``."""
    logits = torch.tensor([2.0, -1.0, 0.5, 3.0], dtype=torch.float64)
    expected = logits.softmax(-1)
    given = _vector(attempt(softmax, logits.clone()), len(logits))
    if isinstance(given, Verdict):
        return given
    if not torch.allclose(given, expected, atol=1e-6):
        return wrong(_softmax_mistake(logits, given))
    try:
        large = attempt(softmax, logits + 1000)
    except Exception:  # math.exp raises where torch.exp returns inf; both are the same mistake
        large = torch.full_like(logits, math.nan)
    large = _vector(large, len(logits))
    if isinstance(large, Verdict) or not torch.allclose(large, expected, atol=1e-6):
        return wrong(
            "Right for small logits, but logits around 1000 overflow: exp(1000) is larger than any float64. Subtract "
            "the largest logit from all of them first; the probabilities stay the same."
        )
    return right("Your softmax sums to 1, and large logits do not overflow it.")


def _softmax_mistake(logits, given) -> str:
    powers = logits.exp()
    if torch.allclose(given, powers):
        return "These are the exponentials themselves: divide by their sum."
    if torch.allclose(given, (logits - logits.max()).exp()):
        return "The largest is 1, so the sum is more than 1: after subtracting the maximum, still divide by the sum."
    if torch.allclose(given, logits.log_softmax(-1)):
        return "These are the logarithms of the probabilities: take exp of them."
    if torch.allclose(given, logits / logits.sum()):
        return "You divided the logits by their sum, without exp: negative logits then give negative probabilities."
    if torch.allclose(given, powers / powers.norm()):
        return "You divided by the square root of the sum of squares: softmax divides by the plain sum."
    if torch.allclose(given, 2**logits / (2**logits).sum()):
        return "You used powers of 2: softmax uses powers of e, torch.exp."
    if torch.allclose(given, (-logits).softmax(-1)):
        return "The sign is turned round: the largest logit must get the largest probability."
    if not torch.isfinite(given).all():
        return f"Your probabilities hold {given.tolist()}: they must be finite."
    total = float(given.sum())
    if abs(total - 1) > 1e-6:
        return f"Your probabilities sum to {total:.3f}; they must sum to 1."
    return f"For the logits {logits.tolist()} you give {_rounded(given)}; expected {_rounded(logits.softmax(-1))}."


# ------------------------------------------------------------------------------------------------------- rows computed


@checker
def check_rows(rows) -> Verdict:
    """Judge ``rows(prompt, new, cached) -> int``: how many rows a loop computes to write `new` tokens."""
    cases = list(product([(1, 1), (7, 1), (1, 6), (7, 5), (20, 30)], [True, False]))
    given = {(size, cached): number(attempt(rows, *size, cached)) for size, cached in cases}

    def differs(formula, cached):
        return any(not _close(given[size, cached], formula(*size), 1e-9) for size, kind in cases if kind == cached)

    def is_formula(formula, cached):
        return not differs(formula, cached)

    if differs(_rows_cached, True):
        mistakes = [
            (lambda m, n: m + n, "The last new token is counted too: it is chosen, but never fed. One row less."),
            (lambda m, n: m + n - 2, "One row too few: the first call computes the whole prompt."),
            (lambda m, n: n, "The prompt is left out: the first call computes a row for each of its tokens."),
            (lambda m, n: n - 1, "The prompt is left out: the first call computes a row for each of its tokens."),
            (lambda m, n: m * n, "That computes the prompt in every call: with a cache it is computed once."),
            (_rows_uncached, "That is the count without a cache: with one, a token is computed once."),
        ]
        for formula, message in mistakes:
            if is_formula(formula, True):
                return wrong(f"With a cache: {message}")
        return wrong(f"With a cache: {_row_example(given, _rows_cached, True)}")
    if differs(_rows_uncached, False):
        mistakes = [
            (lambda m, n: m * n, "Each call is one token longer than the one before: the new tokens count too."),
            (
                lambda m, n: m * n + n * (n + 1) // 2,
                "Off by one in each call: the first call has the prompt alone, without any new token.",
            ),
            (lambda m, n: n * (m + n), "Not every call is as long as the last: the first has the prompt alone."),
            (lambda m, n: n * (m + n - 1), "Not every call is as long as the last: the first has the prompt alone."),
            (lambda m, n: n * (n - 1) // 2, "The prompt is left out: every call computes it again."),
            (lambda m, n: n * (n + 1) // 2, "The prompt is left out: every call computes it again."),
            (_rows_cached, "That is the count with a cache: without one, every call computes everything again."),
        ]
        for formula, message in mistakes:
            if is_formula(formula, False):
                return wrong(f"With a cache: right. Without: {message}")
        return wrong(f"With a cache: right. Without: {_row_example(given, _rows_uncached, False)}")
    return right("Right: with a cache the rows grow with the length, without one with its square.")


def _rows_cached(prompt, new):
    return prompt + new - 1


def _rows_uncached(prompt, new):
    return prompt * new + new * (new - 1) // 2


def _row_example(given, formula, cached) -> str:
    (m, n), value = next(
        (size, value) for (size, kind), value in given.items() if kind == cached and value != formula(*size)
    )
    tokens = "token" if m == 1 else "tokens"
    return f"for a prompt of {m} {tokens} and {n} new you give {value:g}; go through the calls one by one and count."


# ------------------------------------------------------------------------------------------------- size of the cache


@checker
def check_cache_bytes(cache_bytes) -> Verdict:
    """Judge ``cache_bytes(tokens, layers, heads, key_heads, head_size, bytes_each) -> int``."""
    # Two cases whose numbers share no ratio, so that each mistake, and each pair of them, comes to values of its own.
    factors = "tokens", "layers", "heads", "key_heads", "head_size", "bytes_each"
    cases = [(100, 12, 18, 3, 64, 4), (1000, 32, 28, 7, 128, 2)]
    sizes = [dict(zip(factors, case, strict=True)) for case in cases]
    given = [number(attempt(cache_bytes, *case)) for case in cases]
    expected = [_bytes(*case) for case in cases]
    # By what a mistake multiplies the right answer, and what to say to it.
    mistakes = [
        (lambda size: 1 / 2, "Half of it: each token leaves a key *and* a value in each layer."),
        (
            lambda size: size["heads"] / size["key_heads"],
            "That counts the query heads: only the key-value heads leave something in the cache.",
        ),
        (
            lambda size: size["heads"],
            "That counts the query heads too: only the key-value heads leave something in the cache.",
        ),
        (lambda size: 1 / size["layers"], "The layers are missing: each layer keeps its own keys and values."),
        (
            lambda size: 1 / size["bytes_each"],
            "That is how many numbers the cache holds: multiply by the bytes of one number.",
        ),
        (
            lambda size: 1 / size["key_heads"],
            "The key-value heads are missing: each has its own key and value of head_size numbers.",
        ),
        (lambda size: 1 / size["head_size"], "The head size is missing: a key is a vector of head_size numbers."),
        (lambda size: 1 / size["tokens"], "The tokens are missing: that is what one token leaves in the cache."),
        (lambda size: 2, "Twice as much as it is: a key and a value for each token; nothing else is kept."),
    ]

    def is_made_by(*multipliers):
        wanted = (
            value * math.prod(multiplier(size) for multiplier in multipliers)
            for value, size in zip(expected, sizes, strict=True)
        )
        return all(_close(value, other, 1e-9) for value, other in zip(given, wanted, strict=True))

    if is_made_by():
        return right("Right: a key and a value, in every layer, for each key-value head, for every token.")
    for multiplier, message in mistakes:
        if is_made_by(multiplier):
            return wrong(message)
    for (first, message), (second, another) in combinations(mistakes, 2):
        if is_made_by(first, second):
            return wrong(f"Two things. {message} {another}")
    return wrong(
        f"For {', '.join(f'{name}={value}' for name, value in sizes[0].items())} you give {given[0]:,}. Ask what one "
        "token leaves in one layer, then how many layers and tokens there are."
    )


def _bytes(tokens, layers, heads, key_heads, head_size, bytes_each):
    return theory.cache_bytes(tokens, layers=layers, key_width=key_heads * head_size, bytes_each=bytes_each)


# ------------------------------------------------------------------------------------------------- arithmetic intensity


@checker
def check_intensity(answer, *, bytes_each, tokens=1) -> Verdict:
    """Judge a number: operations for each byte of weights in a call of `tokens` tokens."""
    expected = 2 * tokens / bytes_each
    mistakes = {
        tokens / bytes_each: "Half of it: each parameter takes part in a multiplication *and* an addition.",
        1 / expected: "Upside down: it is operations for each byte, not bytes for each operation.",
        2 * tokens: "That is operations for each parameter: a parameter has more than one byte.",
        2 * tokens * bytes_each: "The bytes belong below the line: more bytes for a number, less work for each byte.",
        2 * tokens * 8 / bytes_each: "Bytes, not bits.",
        2 * tokens / (bytes_each * 8): "Bytes, not bits.",
        2 / bytes_each: f"That is a call of one token: {tokens} tokens share the reading of the weights.",
    }
    return compare(
        answer,
        expected,
        mistakes,
        why="Right, and it does not depend on how large the model is.",
        otherwise="How many operations does one parameter take part in, and how many bytes does it have?",
    )


@checker
def check_break_even(answer, *, peak_operations, bandwidth, bytes_each) -> Verdict:
    """Judge a number of tokens: the fewest in a call for which computing takes as long as reading the weights.

    A whole number, or the exact crossing.
    """
    ridge = peak_operations / bandwidth
    expected = ridge * bytes_each / 2
    mistakes = {
        ridge: "That is the operations the processor can do while one byte arrives: a token does fewer with it.",
        ridge * bytes_each: "Twice too many: each parameter takes part in two operations for each token.",
        ridge / 2: "The bytes of a number are missing: a parameter takes that much longer to arrive.",
        ridge / bytes_each * 2: "The bytes of a number belong on the other side: wider numbers take longer to arrive.",
        1 / expected: "Upside down: ask how many tokens' work fits into the time of reading.",
        bandwidth / peak_operations: "Upside down: operations per second over bytes per second.",
    }
    value = number(answer)
    if value in (math.ceil(expected), math.floor(expected)) or abs(value - expected) < 0.51:
        return right("Right: a call of fewer tokens waits for memory, however fast the processor is.")
    # A whole number is as good as the exact one: compare the mistakes after rounding, too.
    for mistake, message in mistakes.items():
        if abs(value - mistake) < 0.51 and mistake > 2 or _close(value, mistake, 1e-3):
            return wrong(message)
    return compare(value, expected, otherwise="Set the seconds of reading equal to the seconds of computing.")


# --------------------------------------------------------------------------------------------------- checking a guess


@checker
def check_agreeing(agreeing) -> Verdict:
    """Judge ``agreeing(logits: (n + 1, vocab), guess: n tokens) -> int``: how many guessed tokens the loop would write.

    Row i of the logits tells what follows what stands *before* guessed token i; the last row follows all of them.
    """
    # (what each row's likeliest token is, the guess)
    cases = [
        ([3, 1, 4, 1, 5], [3, 1, 4, 1]),  # all agree
        ([3, 1, 4, 1, 5], [3, 1, 0, 1]),  # agrees again after the first mistake
        ([2, 3, 1, 0, 4], [3, 1, 0, 4]),  # agrees everywhere, one row late
        ([0, 2, 2, 2, 2], [1, 2, 2, 2]),  # wrong from the start
        ([4, 0], [4]),
        ([5], []),
    ]
    expected = [_prefix(best, guess) for best, guess in cases]
    given = [_count(attempt(agreeing, _rows_with(best), list(guess))) for best, guess in cases]
    if given == expected:
        return right("Right: one call checks all of them, and you stop at the first that differs.")

    def every(rule):
        # Cases that a rule cannot be applied to say nothing against it.
        return all(rule(best, guess) in (None, value) for (best, guess), value in zip(cases, given, strict=True))

    rules = [
        (
            lambda best, guess: sum(a == b for a, b in zip(best, guess, strict=False)),
            "You count tokens that agree after the first mistake: their rows were computed behind a token that the "
            "loop would not have written. Stop at the first that differs.",
        ),
        (
            lambda best, guess: _prefix(best[1:], guess) if guess else None,
            "One row late: you judge a token by the row *after* it, which tells what follows it.",
        ),
        (
            lambda best, guess: _prefix(best, guess) + 1,
            "One too many: the token that the model itself adds after the agreeing ones was not guessed.",
        ),
        (
            lambda best, guess: len(guess) - _prefix(best, guess),
            "That is how many are left over; count those that agree, from the front.",
        ),
        (
            lambda best, guess: len(guess) * (_prefix(best, guess) == len(guess)),
            "All or nothing: the tokens before the first mistake are right, so count them.",
        ),
    ]
    for rule, message in rules:
        if every(rule):
            return wrong(message)
    (best, guess), value, wanted = next(
        (case, value, wanted) for case, value, wanted in zip(cases, given, expected, strict=True) if value != wanted
    )
    return wrong(
        f"Where the rows' likeliest tokens are {best} and the guess is {guess}, you count {value}; expected {wanted}."
    )


def _prefix(best, guess):
    pairs = list(zip(best, guess, strict=False))
    return next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))


def _rows_with(best):
    """Logits (len(best), 6) whose likeliest tokens are `best`."""
    logits = torch.linspace(-1, 1, 6).repeat(len(best), 1)
    logits[torch.arange(len(best)), torch.tensor(best)] = 5.0
    return logits


# -------------------------------------------------------------------------------------------------------- small parts


def _vector(values, length):
    """`values` as a float64 tensor (length,), or the verdict that it is none."""
    try:
        tensor = torch.as_tensor(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError, RuntimeError):
        return wrong(f"Expected {length} probabilities, got a {type(values).__name__}.")
    if tensor.shape != (length,):
        return wrong(f"Expected {length} probabilities, one for each logit; got the shape {tuple(tensor.shape)}.")
    return tensor


def _count(value):
    value = number(value)
    return int(value) if float(value).is_integer() else value


def _rounded(tensor):
    return [round(value, 3) for value in tensor.tolist()]
