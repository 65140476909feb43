"""The exercises of chapter 1: softmax, rows computed, bytes of the cache, operations for each byte, a guess checked."""

import math

import torch

from .judge import Exercise, Verdict, checker, close, compare, normalised, number, right, tensor, wrong

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
        "The largest is 1, so they add up to more than 1. Divide by their sum.": lambda row: (row - row.max()).exp(),
        "These are the exponentials themselves. Divide by their sum.": lambda row: row.exp(),
        "These are the logarithms of the probabilities. Take exp of them.": lambda row: row.log_softmax(-1),
        "You divided the logits by their sum, without exp. Negative logits then give negative probabilities.": (
            normalised
        ),
    },
    why="Your softmax sums to 1, and large logits do not overflow it.",
    hint="Probabilities are positive and sum to 1, and the largest logit gets the largest of them.",
)


def rows(prompt, new, cached):
    return prompt + new - 1 if cached else prompt * new + new * (new - 1) // 2


def with_cache(formula):
    return lambda prompt, new, cached: formula(prompt, new) if cached else rows(prompt, new, False)


def without_cache(formula):
    return lambda prompt, new, cached: rows(prompt, new, True) if cached else formula(prompt, new)


check_rows = Exercise(
    """Judge ``rows(prompt, new, cached) -> int``: how many rows a loop computes to write `new` tokens.""",
    [(*sizes, cached) for cached in (True, False) for sizes in ((1, 1), (7, 1), (1, 6), (7, 5), (20, 30))],
    rows,
    {
        "With a cache you also count the last new token. It is chosen, but never fed: one row less.": with_cache(
            lambda prompt, new: prompt + new
        ),
        "With a cache you leave the prompt out. The first call computes a row for each of its tokens.": (
            with_cache(lambda prompt, new: new),
            with_cache(lambda prompt, new: new - 1),
        ),
        "Without a cache each call is one token longer than the call before it: the new tokens count too.": (
            without_cache(lambda prompt, new: prompt * new)
        ),
        "Without a cache you count one too many in each call. The first call has the prompt alone.": without_cache(
            lambda prompt, new: prompt * new + new * (new + 1) // 2
        ),
        "You count the same rows with and without a cache. With one, each token is computed once; without one, every "
        "call computes everything again.": (
            lambda prompt, new, cached: rows(prompt, new, True),
            lambda prompt, new, cached: rows(prompt, new, False),
        ),
    },
    show=lambda prompt, new, cached: f"a prompt of {prompt} and {new} new, {'with' if cached else 'without'} a cache",
    why="With a cache the rows grow with the length, and without one with its square.",
    hint="Go through the calls one by one and count the rows of each.",
)


def cache_bytes(tokens, layers, heads, key_heads, head_size, bytes_each):
    return 2 * tokens * layers * key_heads * head_size * bytes_each


check_cache_bytes = Exercise(
    """Judge ``cache_bytes(tokens, layers, heads, key_heads, head_size, bytes_each) -> int``.""",
    [(100, 12, 18, 3, 64, 4), (1000, 32, 28, 7, 128, 2)],  # no two mistakes have the same ratio in both
    cache_bytes,
    {
        "That is half of it. Each token leaves a key *and* a value in each layer.": (
            lambda *sizes: cache_bytes(*sizes) / 2
        ),
        "You counted the query heads. Only the key-value heads leave something in the cache.": (
            lambda tokens, layers, heads, key_heads, head_size, bytes_each: cache_bytes(
                tokens, layers, heads, heads, head_size, bytes_each
            )
        ),
        "The layers are missing. Each layer keeps its own keys and values.": (
            lambda tokens, layers, *sizes: cache_bytes(tokens, 1, *sizes)
        ),
        "That is how many numbers the cache holds. Multiply by the bytes of one number.": (
            lambda *sizes: cache_bytes(*sizes[:-1], 1)
        ),
        "The tokens are missing. That is what one token leaves in the cache.": lambda tokens, *sizes: cache_bytes(
            1, *sizes
        ),
    },
    why="A key and a value, in every layer, for each key-value head, for every token.",
    hint="Ask what one token leaves in one layer, and then how many layers and tokens there are.",
)


@checker
def check_intensity(answer, *, bytes_each, tokens=1) -> Verdict:
    """Judge a number: operations for each byte of weights in a call of `tokens` tokens."""
    expected = 2 * tokens / bytes_each
    mistakes = {
        tokens / bytes_each: "That is half of it: each parameter takes part in a multiplication *and* an addition.",
        1 / expected: "That is upside down: operations for each byte, not bytes for each operation.",
        2 * tokens: "That is operations for each parameter. A parameter has more than one byte.",
        2 * tokens * bytes_each: "Divide by the bytes: the more bytes a number has, the less work there is for each.",
        2 / bytes_each: f"That is a call of one token. Here {tokens} tokens share one reading of the weights.",
    }
    hint = "How many operations does one parameter take part in, and how many bytes does it have?"
    why = "Right, and it does not depend on how large the model is."
    return compare(answer, expected, mistakes, why=why, otherwise=hint)


@checker
def check_break_even(answer, *, peak_operations, bandwidth, bytes_each) -> Verdict:
    """Judge a number of tokens: the fewest in a call for which computing takes as long as reading the weights."""
    ridge = peak_operations / bandwidth
    expected, value = ridge * bytes_each / 2, number(answer)
    if abs(value - expected) < 1:
        return right("Right: a call of fewer tokens waits for memory, however fast the processor is.")
    mistakes = {
        ridge: "That is how many operations the processor does while one byte arrives. A token does fewer with it.",
        ridge * bytes_each: "Twice too many: each parameter takes part in two operations for each token.",
        ridge / 2: "The bytes of a number are missing: a parameter takes that much longer to arrive.",
        ridge / bytes_each * 2: "The bytes of a number belong on the other side: wider numbers take longer to arrive.",
        1 / expected: "That is upside down: ask how many tokens' work fits into the time of reading.",
    }
    for mistake, message in mistakes.items():
        if (abs(value - mistake) < 0.51 and mistake > 2) or close(value, mistake, 1e-3):
            return wrong(message)
    return compare(value, expected, otherwise="Set the seconds of reading equal to the seconds of computing.")


def agreeing(best, guess):
    """How many tokens of the guess agree with the most likely ones, from the front."""
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
    """Judge ``agreeing(logits, guess) -> int``: how many guessed tokens, from the front, the loop would write.""",
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
        "You count tokens that agree after the first mistake. Their rows come after a token that the loop would not "
        "have written: stop at the first that differs.": by_rows(
            lambda best, guess: sum(a == b for a, b in zip(best, guess, strict=False))
        ),
        "You are one row late: you judge a token by the row *after* it, which says what follows it.": by_rows(
            lambda best, guess: agreeing(best[1:], guess)
        ),
        "One too many: the token that the model itself adds after the agreeing ones was not guessed.": by_rows(
            lambda best, guess: agreeing(best, guess) + 1
        ),
        "That is how many are left over. Count those that agree, from the front.": by_rows(
            lambda best, guess: len(guess) - agreeing(best, guess)
        ),
        "All or nothing? The tokens before the first mistake are right, so count them.": by_rows(
            lambda best, guess: len(guess) * (agreeing(best, guess) == len(guess))
        ),
    },
    show=lambda logits, guess: f"rows whose most likely tokens are {logits.argmax(-1).tolist()}, and the guess {guess}",
    why="One call checks all of them, and you stop at the first that differs.",
)
