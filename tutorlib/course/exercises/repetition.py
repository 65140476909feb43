"""The exercises of the chapter on repetition: how it is counted, and what penalties do to a row of logits."""

from collections import Counter

import numpy as np
import torch

from ...sampling.penalties import presence_penalty, repetition_penalty
from .answers import array, expect, filled, tensor
from .judge import Exercise, checker
from .verdicts import Verdict, right, wrong


def _ngrams(tokens, n) -> list[tuple]:
    return [tuple(tokens[start : start + n]) for start in range(len(tokens) - n + 1)]


def distinct(tokens, n):
    return len(set(_ngrams(tokens, n))) / len(_ngrams(tokens, n))


def _counts(tokens, n):
    return Counter(_ngrams(tokens, n)).values()


check_repetition = Exercise(
    """Judge ``my_repetition(tokens, n)``: the share of n-grams that occurred before.""",
    [([2, 0, 2, 2, 0, 1, 0, 1, 0, 1, 0, 0], 3), ([2, 1, 1, 2, 0, 1, 1, 1, 1, 0, 0], 2), ([3, 1, 4, 1, 5], 4)],
    lambda tokens, n: 1 - distinct(tokens, n),
    {
        "You divided by the number of tokens, as if an n-gram began at each of them. But no n-gram begins at the last "
        "n - 1 tokens: there are len(tokens) - n + 1 n-grams.": (
            lambda tokens, n: 1 - len(set(_ngrams(tokens, n))) / len(tokens),
            lambda tokens, n: sum(times - 1 for times in _counts(tokens, n)) / len(tokens),
        ),
        "That is distinct-n, the share of different n-grams. Repetition is 1 minus that.": distinct,
        "You counted the first occurrence as a repetition too. It is new, so do not count it.": lambda tokens, n: (
            sum(times for times in _counts(tokens, n) if times > 1) / len(_ngrams(tokens, n))
        ),
        "You counted each repeated n-gram once. An n-gram that occurs three times repeats twice.": lambda tokens, n: (
            sum(times > 1 for times in _counts(tokens, n)) / len(_ngrams(tokens, n))
        ),
        "You are one n-gram short: there are len(tokens) - n + 1, so use range(len(tokens) - n + 1).": (
            lambda tokens, n: 1 - distinct(tokens[:-1], n),
            lambda tokens, n: 1 - len(set(_ngrams(tokens, n))) / (len(tokens) - n),
        ),
    },
    why="You divide the repetitions by the number of n-grams, len(tokens) - n + 1. If all are new, the result is 0.",
)

# ----------------------------------------------------------------------------------------------------------------------
# Penalties on one row


def change(logits, tokens, by, *strength):
    """The row with these tokens' logits replaced by ``by(logit, *strength)``, once for each time a token is listed."""
    row = logits.clone()
    for token in tokens:
        row[token] = by(row[token], *strength)
    return row


def once(history):
    return sorted(set(history))


@checker
def check_stops(answer) -> Verdict:
    """Judge two pairs of logits for which only one of two penalties stops the repetition of token 0."""
    cases = "only presence stops it", "only repetition stops it"
    for case, logits in filled(answer, cases).items():
        logits = array(logits, (2,), f"the logits of token 0 and token 1 ({case})")
        if not (np.isfinite(logits).all() and logits[0] > logits[1]):
            return wrong(f"({case}) Token 0 must be the most likely one before any penalty: give it the larger logit.")
        row, history = torch.tensor(logits)[None], [[0]]
        presence, repetition = (
            int(warp(row, history).argmax()) == 1 for warp in (presence_penalty(1), repetition_penalty(1.2))
        )
        if (presence, repetition) != (case == cases[0], case == cases[1]):
            found = {
                (True, True): "both penalties stop it", (False, False): "neither penalty stops it",
                (True, False): "only presence stops it", (False, True): "only repetition stops it",
            }[presence, repetition]  # fmt: skip
            return wrong(
                f"({case}) Here {found}. The presence penalty always lowers the logit by 1. How much the repetition "
                "penalty takes away depends on how far the logit is from 0."
            )
    return right("The repetition penalty takes little from a logit near zero, and much from a large one.")


BREAKING = {"Mia": (9.0, 5), "Leo": (6.0, 4), "the": (5.0, 7), "Tom": (1.0, 0)}  # each token's logit and count


@checker
def check_breaking(prediction) -> Verdict:
    """Judge at which strength of a frequency penalty the answer "Mia" breaks, and which token comes instead."""
    prediction = filled(prediction, ("strength", "given instead"))
    mistakes: dict[float, str] = {
        3: "At this strength, Leo overtakes Mia. Does another token do so at a lower strength?",
        **dict.fromkeys(
            (2, -2), "The token `the` occurred more often than Mia, so it loses more and never overtakes Mia."
        ),
        8: "Divide by the difference of the counts too.",
    }
    hint = (
        "For each token that occurred less often than Mia, divide the difference of the logits by that of the counts."
    )
    expect(prediction["strength"], 1.6, mistakes, otherwise=hint, tolerance=0.01)
    logits, counts = tensor(tuple(BREAKING.values())).unbind(1)
    below, above = ([*BREAKING][int((logits - strength * counts).argmax())] for strength in (1.59, 1.61))
    if prediction["given instead"] != above:
        return wrong(f"The strength is right. Just above it, {above} has the largest logit: compute all four.")
    return right(
        f"At a strength of 1.59 the answer is {below}, and at 1.61 it is {above}, which was the least likely token at "
        "first."
    )


@checker
def check_longest(prediction) -> Verdict:
    """Judge how long a text can get under a ban on n-grams, for some vocabularies and lengths n."""
    cases = {
        "2 tokens, no 2-gram twice": (2, 2),
        "3 tokens, no 2-gram twice": (3, 2),
        "2 tokens, no 3-gram twice": (2, 3),
    }
    for case, length in filled(prediction, cases).items():
        size, n = cases[case]
        mistakes = {
            size * n: "Count the different n-grams: each of the n positions can hold any token.",
            size * (size - 1) + n - 1: "A token may also follow itself.",
            size**n: "There are that many different n-grams, but a text has more tokens than n-grams.",
            size**n + n: "One too many: the first n-gram already ends at token n.",
        }
        hint = "How many different n-grams are there, and how many tokens does a text with that many n-grams have?"
        expect(length, size**n + n - 1, mistakes, part=case, otherwise=hint)
    return right("The longest text has one token for each different n-gram, and n - 1 more at the beginning.")


# ----------------------------------------------------------------------------------------------------------------------
# Padding


# Positive and negative logits. Token 0 occurs in some histories, and the last token in none.
LOGITS = tensor((2.0, -3.0, 0.0, -1.0, 1.5, 0.5, -0.5, 3.0, -2.0))


def batch_penalty(logits, padded, mask, strength, which=once):
    """Each row, with `strength` subtracted from the logits of the tokens for which its mask is 1."""
    rows = [
        change(row, which(tokens[there.bool()].tolist()), torch.sub, strength)
        for row, tokens, there in zip(logits, padded, mask, strict=True)
    ]
    return torch.stack(rows)


check_batch_penalty = Exercise(
    """Judge ``my_batch_penalty(logits, padded, mask, strength)``: a presence penalty for padded histories.""",
    [
        (
            torch.stack([LOGITS, LOGITS.flip(0), LOGITS.roll(-3)]),
            torch.tensor([[5, 0, 3, 3, 1], [0, 0, 0, 2, 6], [0, 0, 0, 4, 2]]),
            torch.tensor([[1, 1, 1, 1, 1], [0, 0, 0, 1, 1], [0, 0, 1, 1, 1]]),  # row 2: its first token is id 0
            0.5,
        )
    ],
    batch_penalty,
    {
        "In row 1, token 0 is penalised although it did not occur: you counted padding. Only the mask distinguishes "
        "tokens from padding.": lambda logits, padded, mask, strength: batch_penalty(
            logits, padded, torch.ones_like(mask), strength
        ),
        "You treat every 0 as padding. In rows 0 and 2, token 0 did occur, as the mask shows.": (
            lambda logits, padded, mask, strength: batch_penalty(logits, padded, padded != 0, strength)
        ),
        "You use the mask the wrong way round: 1 is a token, 0 is padding.": lambda logits, padded, mask, strength: (
            batch_penalty(logits, padded, 1 - mask, strength)
        ),
        "Token 3 occurs twice in row 0 and is penalised twice: that is the frequency penalty.": {"which": list},
        "The sign is wrong: you add the strength, so tokens that occurred become more likely.": (
            lambda logits, padded, mask, strength: batch_penalty(logits, padded, mask, -strength)
        ),
    },
    show=lambda logits, padded, mask, strength: f"the histories {padded.tolist()} with the mask {mask.tolist()}",
    why="Token 0 is penalised only in the rows in which it occurred.",
)
