"""The exercises of the chapter on repetition: how it is counted, and what penalties do to a row of logits."""

import math
from collections import Counter

import torch

from .judge import Exercise


def ngrams(tokens, n) -> list[tuple]:
    return [tuple(tokens[start : start + n]) for start in range(len(tokens) - n + 1)]


def distinct(tokens, n):
    return len(set(ngrams(tokens, n))) / len(ngrams(tokens, n))


def counts(tokens, n):
    return Counter(ngrams(tokens, n)).values()


check_repetition = Exercise(
    """Judge ``my_repetition(tokens, n)``: the share of n-grams that occurred before.""",
    [([2, 0, 2, 2, 0, 1, 0, 1, 0, 1, 0, 0], 3), ([2, 1, 1, 2, 0, 1, 1, 1, 1, 0, 0], 2), ([3, 1, 4, 1, 5], 4)],
    lambda tokens, n: 1 - distinct(tokens, n),
    {
        "You divided by the number of tokens, as if an n-gram began at each of them. None begins at the last n - 1: "
        "there are len(tokens) - n + 1 n-grams.": (
            lambda tokens, n: 1 - len(set(ngrams(tokens, n))) / len(tokens),
            lambda tokens, n: sum(times - 1 for times in counts(tokens, n)) / len(tokens),
        ),
        "That is distinct-n, the share of different n-grams. Repetition is 1 minus that.": distinct,
        "You counted the first occurrence as a repetition too. It was new when it came.": lambda tokens, n: (
            sum(times for times in counts(tokens, n) if times > 1) / len(ngrams(tokens, n))
        ),
        "You counted each repeated n-gram once. An n-gram that comes three times repeats twice.": lambda tokens, n: (
            sum(times > 1 for times in counts(tokens, n)) / len(ngrams(tokens, n))
        ),
        "You are one n-gram short: there are len(tokens) - n + 1, so range(len(tokens) - n + 1).": (
            lambda tokens, n: 1 - distinct(tokens[:-1], n),
            lambda tokens, n: 1 - len(set(ngrams(tokens, n))) / (len(tokens) - n),
        ),
    },
    why="Repetitions over n-grams, of which there are len(tokens) - n + 1; and 0 where all of them are new.",
)

# ----------------------------------------------------------------------------------------------------------------------
# Penalties on one row

# Positive and negative logits. In the history one token of each kind occurs once and one several times. Id 0 occurs and
# the last id does not, so that a count that ends at the largest id of the history is too short.
LOGITS = torch.tensor([2.0, -3.0, 0.0, -1.0, 1.5, 0.5, -0.5, 3.0, -2.0], dtype=torch.float64)
HISTORY = [4, 1, 0, 7, 7, 1, 0, 5]


def change(logits, tokens, by, *strength):
    """The row, with ``by(logit, *strength)`` in place of these tokens' logits, as often as they are named."""
    row = logits.clone()
    for token in tokens:
        row[token] = by(row[token], *strength)
    return row


def once(history):
    return sorted(set(history))


def keskar(logit, theta):
    return logit / theta if logit > 0 else logit * theta


def repetition_penalty(logits, history, theta, ignore, which=once, by=keskar):
    return change(logits, which(history[ignore:]), by, theta)


COUNTS_THE_PROMPT = (
    "You count the prompt, although ignore_first says that the first tokens of the history do not count. Use "
    "history[ignore_first:]."
)

check_repetition_penalty = Exercise(
    """Judge ``my_repetition_penalty(logits, history, theta, ignore_first)``, which returns one row of logits.""",
    [(LOGITS, HISTORY, 2.0, 0), (LOGITS, HISTORY, 1.25, 2)],
    repetition_penalty,
    {
        "You divide negative logits too. Then -3 becomes -1.5, and the token is more likely because it was said. "
        "Multiply where the logit is negative.": {"by": torch.div},
        "The two cases are the wrong way round: positive logits are divided, negative ones multiplied.": {
            "by": lambda logit, theta: logit * theta if logit > 0 else logit / theta
        },
        "A token that occurs twice is penalised twice. What counts is whether it occurs, and not how often.": {
            "which": list
        },
        COUNTS_THE_PROMPT: lambda logits, history, theta, ignore: repetition_penalty(logits, history, theta, 0),
        "You penalise probabilities. The repetition penalty works on the logits, before the softmax.": (
            lambda logits, *given: repetition_penalty(logits.softmax(-1), *given),
            lambda logits, *given: repetition_penalty(logits.log_softmax(-1), *given),
            lambda logits, *given: repetition_penalty(logits.softmax(-1), *given).log(),
        ),
    },
    why="Positive logits divided and negative ones multiplied, each token once, and the prompt only if it counts.",
)


def frequency_penalty(logits, history, strength, ignore, which=list, by=torch.sub):
    return change(logits, which(history[ignore:]), by, strength)


check_frequency_penalty = Exercise(
    """Judge ``my_frequency_penalty(logits, history, strength, ignore_first)``, which returns one row of logits.""",
    [(LOGITS, HISTORY, 0.75, 0), (LOGITS, HISTORY, 0.5, 2)],
    frequency_penalty,
    {
        "You subtract once, however often the token occurs. That is the presence penalty; here the count matters.": {
            "which": once
        },
        "The sign is wrong: you add, so a token that was said often becomes more likely.": ({"by": torch.add}),
        "You subtract the share of the history that the token makes up. Subtract the plain count times the strength.": (
            lambda logits, history, strength, ignore: frequency_penalty(
                logits, history, strength / len(history[ignore:]), ignore
            )
        ),
        COUNTS_THE_PROMPT: lambda logits, history, strength, ignore: frequency_penalty(logits, history, strength, 0),
        "You divide and multiply, as the repetition penalty does. This penalty subtracts.": {"by": keskar},
    },
    why="Count times strength, subtracted: the same whatever the logit's sign.",
)


# ----------------------------------------------------------------------------------------------------------------------
# No-repeat n-gram


def forbid(logits, tokens, value=-math.inf):
    return change(logits, tokens, lambda logit: value)


def completing(history, n):
    """The tokens that would complete an n-gram of the history."""
    last = tuple(history[len(history) - n + 1 :])
    return {gram[-1] for gram in ngrams(history, n) if gram[:-1] == last}


check_no_repeat_ngram = Exercise(
    """Judge ``my_no_repeat_ngram(logits, history, n)``: -inf where a token would repeat an n-gram of the history.""",
    [
        (LOGITS, [7, 5, 2, 6, 2, 5, 1, 4, 5, 2], 3),  # 5 2 -> 6
        (LOGITS, [3, 0, 2, 3, 5, 1, 3], 2),  # 3 -> 0 and 5: id 0 is a token like the others
        (LOGITS, [0, 0, 4, 1, 0, 0, 7, 0, 0], 3),  # 0 0 -> 4 and 7
        (LOGITS, [2, 2, 2], 2),  # 2 -> 2, by n-grams that overlap
        (LOGITS, [4, 0, 7], 1),  # everything that was there
        (LOGITS, [6, 1], 4),  # too short for any
        (LOGITS, [1, 6, 1, 6], 4),  # long enough for one, and the tokens before the next differ from its own
    ],
    lambda logits, history, n: forbid(logits, completing(history, n)),
    {
        "You never forbid id 0. It is a token like the others, but `if token:` is False for it.": (
            lambda logits, history, n: forbid(logits, completing(history, n) - {0})
        ),
        "You forbid every token of the history. Forbid only what would complete an n-gram.": (
            lambda logits, history, n: forbid(logits, set(history))
        ),
        "With n = 1 nothing is forbidden. The last n - 1 tokens are then no tokens at all, but history[-0:] is the "
        "whole history: write history[len(history) - n + 1:].": lambda logits, history, n: forbid(
            logits, completing(history, n) if n > 1 else ()
        ),
        "You are off by one in the length: you forbid what would complete a longer or shorter run than n tokens.": (
            lambda logits, history, n: forbid(logits, completing(history, n + 1)),
            lambda logits, history, n: forbid(logits, completing(history, max(n - 1, 1))),
        ),
        "The right tokens, but only -inf gives them probability 0 after the softmax. A logit of 0 is an ordinary one, "
        "and a large negative number is not large enough for every model.": (
            lambda logits, history, n: forbid(logits, completing(history, n), 0.0),
            lambda logits, history, n: forbid(logits, completing(history, n), -1e9),
            lambda logits, history, n: forbid(logits, completing(history, n), -1e4),
        ),
    },
    why="Only what would complete an n-gram that is there already. Id 0 is a token like any other.",
    hint="Compare the first n - 1 tokens of each n-gram with the last n - 1 of the history, and forbid its last token.",
)


# ----------------------------------------------------------------------------------------------------------------------
# Padding


def presence_penalty(logits, padded, mask, strength, which=once):
    """Each row less `strength` for its tokens, those where the mask is true."""
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
    presence_penalty,
    {
        "In row 1 nobody said token 0, and yet it is penalised: that is the padding. Only the mask tells tokens from "
        "padding.": lambda logits, padded, mask, strength: presence_penalty(
            logits, padded, torch.ones_like(mask), strength
        ),
        "You take every 0 for padding. In rows 0 and 2 token 0 was really said, and the mask says so.": (
            lambda logits, padded, mask, strength: presence_penalty(logits, padded, padded != 0, strength)
        ),
        "Your mask is the wrong way round: 1 is a token, 0 is padding.": lambda logits, padded, mask, strength: (
            presence_penalty(logits, padded, 1 - mask, strength)
        ),
        "Token 3 was said twice in row 0 and is penalised twice: that is the frequency penalty.": {"which": list},
        "The sign is wrong: you add the strength, so what was said becomes more likely.": (
            lambda logits, padded, mask, strength: presence_penalty(logits, padded, mask, -strength)
        ),
    },
    show=lambda logits, padded, mask, strength: f"the histories {padded.tolist()} with the mask {mask.tolist()}",
    why="Id 0 is penalised where it was said, and only there.",
)
