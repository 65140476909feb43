"""Checkers for chapter 5: how repetition is counted, and what penalties for it do to a row of logits.

Answers are tried on rows made for the purpose, in which every usual mistake comes to another result than the right one;
an answer that equals one of them is told which.
"""

import math
from collections import Counter

import torch

from . import Verdict, attempt, checker, compare, number, right, wrong

# ----------------------------------------------------------------------------------------------------------------------
# Counting


@checker
def check_repetition(my_repetition) -> Verdict:
    """Judge a function ``my_repetition(tokens, n)``: the share of n-grams that occurred before."""
    cases = (([2, 0, 2, 2, 0, 1, 0, 1, 0, 1, 0, 0], 3), ([2, 1, 1, 2, 0, 1, 1, 1, 1, 0, 0], 2), ([3, 1, 4, 1, 5], 4))
    for tokens, n in cases:
        answer = number(attempt(my_repetition, list(tokens), n))
        grams = _ngrams(tokens, n)
        expected = 1 - len(set(grams)) / len(grams)
        found = compare(
            answer,
            expected,
            _repetition_mistakes(tokens, n),
            why=f"Of the {len(grams)} {n}-grams of {tokens}, {len(grams) - len(set(grams))} occurred before.",
            otherwise=f"For {tokens} and n = {n} expected {expected:.4f}: {len(grams)} {n}-grams, "
            f"{len(set(grams))} of them different.",
        )
        if not found.ok:
            return found
    return right("Repetitions over n-grams, len(tokens) - n + 1 of them; 0 where all are new.")


def _repetition_mistakes(tokens, n) -> dict[float, str]:
    grams, size = _ngrams(tokens, n), len(tokens)
    count, different = len(grams), len(set(grams))
    repeated = count - different
    apart = [tuple(tokens[start : start + n]) for start in range(0, size - n + 1, n)]
    bags = {tuple(sorted(gram)) for gram in grams}
    twins = sum(times for times in Counter(grams).values() if times > 1)
    several = sum(times > 1 for times in Counter(grams).values())
    mistakes = {
        1 - different / size: _DENOMINATOR,
        repeated / size: _DENOMINATOR,
        different / size: _DENOMINATOR,
        repeated / different: "You divided by the number of different n-grams. The share is one of all n-grams.",
        different / count: "That is distinct-n, the share of different n-grams. Repetition is what is left of 1.",
        float(repeated): "That is how many n-grams are repetitions. Divide by how many n-grams there are.",
        100 * repeated / count: "That is a percentage. In this book shares go from 0 to 1.",
        twins / count: "You counted the first occurrence as a repetition, too: it was new when it came.",
        several / count: "You counted each repeated n-gram once. An n-gram that comes three times repeats twice.",
        several
        / different: "That is the share of different n-grams that ever come back. Count every n-gram of the text.",
        1 - len(bags) / count: "You compare n-grams without their order: a set forgets it. Use tuples.",
        1 - len(set(apart)) / len(apart): "Your n-grams do not overlap: one begins at every token, not at every n-th.",
        1 - len(set(tokens)) / size: f"You counted single tokens, not runs of n = {n} in a row.",
    }
    if count > 1:
        mistakes[1 - different / (count - 1)] = _LAST
        mistakes[1 - len(set(grams[:-1])) / (count - 1)] = _LAST
    return mistakes


# Slices that run over the end come to the same: each is a new, shorter "n-gram".
_DENOMINATOR = (
    "You divided by the number of tokens, as if an n-gram began at every one. The last n - 1 begin none: there are "
    "len(tokens) - n + 1."
)
_LAST = "You are one n-gram short: there are len(tokens) - n + 1, so range(len(tokens) - n + 1)."


def _ngrams(tokens, n) -> list[tuple]:
    return [tuple(tokens[start : start + n]) for start in range(len(tokens) - n + 1)]


# ----------------------------------------------------------------------------------------------------------------------
# Penalties on one row

# Positive and negative logits; in the history one token of each kind once and one several times, and id 0, but not the
# last id: counts that end at the largest id of the history are too short.
_LOGITS = (2.0, -3.0, 0.0, -1.0, 1.5, 0.5, -0.5, 3.0, -2.0)
_HISTORY = (4, 1, 0, 7, 7, 1, 0, 5)


@checker
def check_repetition_penalty(my_repetition_penalty) -> Verdict:
    """Judge ``my_repetition_penalty(logits, history, theta, ignore_first)``, which returns one row of logits."""
    for theta, ignore in ((2.0, 0), (1.25, 2)):
        expected = _repeat_penalised(_HISTORY, theta, ignore)
        mistakes = [
            (_change(_seen(ignore), lambda z, t=theta: z / t), _NEGATIVE),
            (
                _change(_seen(ignore), lambda z, t=theta: z * t),
                "You multiply every logit. That lowers negative ones only: a positive logit has to be divided.",
            ),
            (
                _change(_seen(ignore), lambda z, t=theta: z * t if z > 0 else z / t),
                "The two cases are the wrong way round: positive logits are divided, negative ones multiplied.",
            ),
            (
                _change(_counted(ignore), lambda z, t=theta: z / t if z > 0 else z * t),
                "A token that occurs twice is penalised twice. What counts is whether it occurs, not how often.",
            ),
            (
                _change(_seen(ignore), lambda z, t=theta: z - t),
                "You subtract theta: that would be a presence penalty. Here positive logits are divided by it.",
            ),
            (
                _change(_unseen(ignore), lambda z, t=theta: z / t if z > 0 else z * t),
                "You penalise the tokens that were not there. Those of the history are to lose.",
            ),
            *_on_probabilities(_seen(ignore), theta),
        ]
        if ignore:
            mistakes += _prompt_mistakes(ignore, lambda history, t=theta: _repeat_penalised(history, t))
        found = _judge_row(my_repetition_penalty, expected, mistakes, theta, ignore)
        if not found.ok:
            return found
    return right(
        "Positive logits divided, negative ones multiplied, each token once, and the prompt only when it counts."
    )


_NEGATIVE = (
    "You divide negative logits, too: -3 becomes -1.5, so the token gets likelier for having been said. "
    "Multiply where the logit is negative."
)


@checker
def check_frequency_penalty(my_frequency_penalty) -> Verdict:
    """Judge ``my_frequency_penalty(logits, history, strength, ignore_first)``, which returns one row of logits."""
    for strength, ignore in ((0.75, 0), (0.5, 2)):
        subtract = _subtracted(strength)
        expected = _change(_counted(ignore), subtract)
        size = len(_HISTORY[ignore:])
        seen = _seen(ignore)
        mistakes = [
            (
                _change(seen, subtract),
                "You subtract once, however often the token occurs: the presence penalty. Here the count counts.",
            ),
            (
                _change(_counted(ignore), _subtracted(-strength)),
                "The sign is wrong: you add, so what was said often gets likelier. Subtract count times strength.",
            ),
            (_change(seen, _subtracted(-strength)), "The sign is wrong, and the count is missing."),
            (
                _change(_counted(ignore), _subtracted(strength / size)),
                "You subtract the share of the history that the token makes up. It is the plain count.",
            ),
            (
                _change(_counted(ignore), _subtracted(1.0)),
                "You subtract the bare count: the strength is missing.",
            ),
            (
                _change(_counted(ignore), lambda z, s=strength: z / s if z > 0 else z * s),
                "You divide and multiply, as the repetition penalty does. This penalty subtracts.",
            ),
            (
                _change(_unseen(ignore), subtract),
                "You penalise the tokens that were not there. Those of the history are to lose.",
            ),
        ]
        if ignore:
            mistakes += _prompt_mistakes(
                ignore, lambda history, s=strength: _change(Counter(history).elements(), _subtracted(s))
            )
        found = _judge_row(my_frequency_penalty, expected, mistakes, strength, ignore)
        if not found.ok:
            return found
    return right("Count times strength, subtracted: the same whatever the logit's sign, and wherever its zero is.")


def _repeat_penalised(history, theta, ignore=0) -> list[float]:
    return _change(set(history[ignore:]), lambda z: z / theta if z > 0 else z * theta)


def _change(tokens, change) -> list[float]:
    """The row, with `change` made to each of these tokens, as often as it is named."""
    row = list(_LOGITS)
    for token in tokens:
        row[token] = change(row[token])
    return row


def _subtracted(strength):
    return lambda logit: logit - strength


def _seen(ignore):
    return set(_HISTORY[ignore:])


def _counted(ignore):
    return list(_HISTORY[ignore:])


def _unseen(ignore):
    return set(range(len(_LOGITS))) - _seen(ignore)


def _prompt_mistakes(ignore, penalised):
    """What comes of reading `ignore_first` wrongly, where `penalised(history)` is right for a history."""
    skipped = f"the first {ignore} tokens of the history do not count"
    return [
        (penalised(_HISTORY), f"You count the prompt, though ignore_first={ignore} was given: {skipped}."),
        (penalised(_HISTORY[:ignore]), f"You count just what is to be ignored: {skipped}, history[{ignore}:] does."),
        (penalised(_HISTORY[:-ignore]), f"You leave out the last {ignore} tokens: {skipped}."),
        (penalised(_HISTORY[-ignore:]), f"You count the last {ignore} tokens only: {skipped}, history[{ignore}:]."),
        (
            penalised([token for token in _HISTORY if token not in _HISTORY[:ignore]]),
            "You leave out every token that the prompt holds, even where it came again later. Cut the history instead.",
        ),
    ]


def _on_probabilities(seen, theta):
    """Rows of a penalty that is applied to probabilities, as they are, made to sum to 1, and as logarithms."""
    probs = torch.tensor(_LOGITS, dtype=torch.float64).softmax(-1)
    divided = probs.clone()
    divided[sorted(seen)] /= theta
    log_probs = probs.log()
    log_divided = log_probs.clone()
    log_divided[sorted(seen)] *= theta  # log-probabilities are never positive
    message = "You penalise probabilities. The repetition penalty works on the logits, before the softmax."
    rows = [divided, divided / divided.sum(), divided.log(), (divided / divided.sum()).log()]
    logs = (
        "You penalise log-probabilities. They are never positive, so all are multiplied: use the logits as they come."
    )
    return [(row.tolist(), message) for row in rows] + [(log_divided.tolist(), logs)]


# ----------------------------------------------------------------------------------------------------------------------
# No-repeat n-gram


@checker
def check_no_repeat_ngram(my_no_repeat_ngram) -> Verdict:
    """Judge ``my_no_repeat_ngram(logits, history, n)``: -inf where a token would repeat an n-gram of the history."""
    cases = (
        ([7, 5, 2, 6, 2, 5, 1, 4, 5, 2], 3),  # 5 2 -> 6
        ([3, 0, 2, 3, 5, 1, 3], 2),  # 3 -> 0 and 5: id 0 is a token like the others
        ([0, 0, 4, 1, 0, 0, 7, 0, 0], 3),  # 0 0 -> 4 and 7
        ([2, 2, 2], 2),  # 2 -> 2, by n-grams that overlap
        ([4, 0, 7], 1),  # all that was there
        ([6, 1], 4),  # too short for any
        ([1, 6, 1, 6], 4),  # long enough for one, and the tokens before the next differ from its own
    )
    for history, n in cases:
        given, row = list(history), torch.tensor(_LOGITS, dtype=torch.float64)
        answer = _row(attempt(my_no_repeat_ngram, row, given, n))
        if answer is None:
            return _NO_ROW
        if given != history or row.tolist() != list(_LOGITS):
            return wrong("Your function changed what it was given: work on a copy, logits.clone().")
        found = _judge_bans(answer, history, n)
        if found is not None:
            return found
    return right(
        "Only what would complete an n-gram that is already there; id 0 like any other, and nothing too early."
    )


def _bans(history, n) -> set[int]:
    last = history[len(history) - n + 1 :]
    return {gram[-1] for gram in _ngrams(history, n) if list(gram[:-1]) == last}


def _judge_bans(answer, history, n) -> Verdict | None:
    """None when the right tokens, and no others, are at -inf and the rest is as it was."""
    expected = _bans(history, n)
    changed = {token for token, value in enumerate(answer) if value != _LOGITS[token]}
    banned = {token for token, value in enumerate(answer) if value == -math.inf}
    if changed == expected == banned:
        return None
    if changed == expected:
        values = sorted({answer[token] for token in changed - banned})
        return wrong(
            f"The right tokens, but their logits become {values[0]:g}. Only -inf has probability 0 after the softmax: "
            "a logit of 0 is an ordinary one, and a large negative number is not large enough for every model."
        )
    last = list(history[len(history) - n + 1 :])
    about = f"After {history} with n = {n}"
    facts = f"{about} the token(s) to forbid: {sorted(expected) or 'none'}; yours: {sorted(changed) or 'none'}."
    real = [token for token in history if token != 0]
    mistakes = [
        # Padding first: where it shows, other mistakes show as well.
        (
            expected - {0} if 0 in expected else None,
            "You never forbid id 0. It is a token like the others: `if token:` is False for it.",
        ),
        (_bans(real, n) if 0 in history else None, "You take the zeros out of the history. Id 0 is a real token."),
        (
            set(history) if n > 1 else None,
            "You forbid every token of the history. Only what would complete an n-gram is to go.",
        ),
        (
            set() if n == 1 else None,
            "Nothing is forbidden. With n = 1 the last n - 1 tokens are none at all, but history[-0:] is everything: "
            "write history[len(history) - n + 1:].",
        ),
        (_bans(history, n + 1), f"You are off by one: those complete runs of {n + 1} tokens, not of {n}."),
        (
            _bans(history, n - 1) if n > 1 else None,
            f"You are off by one: those complete runs of {n - 1} tokens, not of {n}.",
        ),
        (
            {gram[0] for gram in _ngrams(history, n) if list(gram[:-1]) == last},
            "You forbid the first token of the n-gram. It is there already; the last one would complete it.",
        ),
        (
            {gram[0] for gram in _ngrams(history, n) if list(gram[1:]) == last},
            "You forbid the token before the match. What would complete the n-gram is the one after it.",
        ),
        (
            {gram[-1] for gram in _ngrams(history, n)},
            "You forbid the last token of every n-gram. Compare its first n - 1 tokens with the last n - 1 first.",
        ),
        (
            {gram[-1] for gram in _ngrams(history[:-1], n) if list(gram[:-1]) == last},
            "You leave out the last n-gram of the history: there are len(history) - n + 1 of them.",
        ),
        (
            {gram[-1] for gram in _ngrams(history, n) if sorted(gram[:-1]) == sorted(last)},
            "You compare the n - 1 tokens without their order.",
        ),
    ]
    for tokens, message in mistakes:
        if tokens is not None and tokens == changed != expected:
            return wrong(f"{message} {facts}")
    return wrong(facts)


# ----------------------------------------------------------------------------------------------------------------------
# Padding


@checker
def check_batch_penalty(my_batch_penalty) -> Verdict:
    """Judge ``my_batch_penalty(logits, padded, mask, strength)``: a presence penalty on a batch of padded histories.

    `padded` (rows, longest) holds histories filled up with id 0 at the front; `mask`, of the same shape, is 1 where
    there is a token and 0 where there is padding. It returns logits (rows, vocab).
    """
    padded = torch.tensor([[5, 0, 3, 3, 1], [0, 0, 0, 2, 6], [0, 0, 0, 4, 2]])
    mask = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 0, 1, 1], [0, 0, 1, 1, 1]])  # row 2: its first token is id 0
    logits = torch.tensor([_LOGITS, _LOGITS[::-1], _LOGITS[3:] + _LOGITS[:3]], dtype=torch.float64)
    strength = 0.5
    given = [logits.clone(), padded.clone(), mask.clone()]
    answer = attempt(my_batch_penalty, *given, strength)
    if not all(torch.equal(a, b) for a, b in zip(given, (logits, padded, mask), strict=True)):
        return wrong("Your function changed what it was given: work on a copy, logits.clone().")
    try:
        rows = isinstance(answer, (list, tuple)) and all(isinstance(row, torch.Tensor) for row in answer)
        answer = (torch.stack(tuple(answer)) if rows else torch.as_tensor(answer)).detach().double().cpu()
    except (TypeError, ValueError, RuntimeError):
        return wrong(f"Expected a tensor of logits, shape {tuple(logits.shape)}, got {answer!r}.")
    if answer.shape != logits.shape:
        return wrong(f"Expected logits of the shape {tuple(logits.shape)}, got {tuple(answer.shape)}.")

    def penalised(counted, strength=strength, once=True):
        """Each row less `strength` for its tokens where `counted` (rows, longest) is true."""
        rows = logits.clone()
        for row, tokens, there in zip(rows, padded.tolist(), counted.tolist(), strict=True):
            chosen = [token for token, yes in zip(tokens, there, strict=True) if yes]
            for token in set(chosen) if once else chosen:
                row[token] -= strength
        return rows

    real, everything = mask.bool(), torch.ones_like(mask).bool()
    if torch.allclose(answer, penalised(real)):
        return right("Id 0 loses where it was said, and only there.")
    mistakes = (
        (
            everything,
            "In row 1 nobody said token 0, and yet it is penalised: that is the padding. What is a token and what is "
            "not, only the mask knows.",
        ),
        (
            padded != 0,
            "You take every 0 for padding. In rows 0 and 2 token 0 was really said: the mask knows the difference.",
        ),
        (~real, "Your mask is the wrong way round: 1 is a token, 0 is padding."),
        (
            torch.tensor([[True] * int(n) + [False] * (5 - int(n)) for n in mask.sum(-1)]),
            "You read each history from the front, but here the padding is at the front: the tokens are at the end.",
        ),
    )
    for counted, message in mistakes:
        if any(torch.allclose(answer, penalised(counted, once=once)) for once in (True, False)):
            return wrong(message)
    if torch.allclose(answer, penalised(real, once=False)):
        return wrong("Token 3 was said twice in row 0 and is penalised twice: that is the frequency penalty.")
    if torch.allclose(answer, penalised(real, -strength)):
        return wrong("The sign is wrong: you add the strength, so what was said gets likelier.")
    row, token = (~torch.isclose(answer, penalised(real))).nonzero()[0].tolist()
    value, due = float(answer[row, token]), float(penalised(real)[row, token])
    return wrong(f"In row {row}, token {token} has the logit {value:g}; expected {due:g}.")


# ----------------------------------------------------------------------------------------------------------------------
# Rows


_NO_ROW = wrong(f"Expected one row of {len(_LOGITS)} logits, the whole row that your function was given, changed.")


def _row(answer) -> list[float] | None:
    """An answer as a list of floats, one a token; None if it is no such row."""
    try:
        answer = torch.as_tensor(answer, dtype=torch.float64).squeeze(0)
    except (TypeError, ValueError, RuntimeError):
        return None
    return answer.tolist() if answer.shape == (len(_LOGITS),) else None


def _judge_row(function, expected, mistakes, strength, ignore) -> Verdict:
    """Try a penalty on the row, and compare what it returns with what is right, and with the usual mistakes."""
    logits, history = torch.tensor(_LOGITS, dtype=torch.float64), list(_HISTORY)
    answer = _row(attempt(function, logits, history, strength, ignore))
    if answer is None:
        return _NO_ROW
    if logits.tolist() != list(_LOGITS) or history != list(_HISTORY):
        return wrong("Your function changed the row or the history that it was given: work on a copy, logits.clone().")
    if _same(answer, expected):
        return right("Right.")
    for row, message in mistakes:
        if _same(answer, row):
            return wrong(message)
    token = next(i for i, (own, due) in enumerate(zip(answer, expected, strict=True)) if not math.isclose(own, due))
    return wrong(
        f"Token {token} has the logit {_LOGITS[token]:g} and occurs {_HISTORY[ignore:].count(token)} times in the part "
        f"of {history} that counts (ignore_first={ignore}). With {strength:g} it becomes {expected[token]:g}; yours is "
        f"{answer[token]:g}."
    )


def _same(row, other) -> bool:
    return all(math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9) for a, b in zip(row, other, strict=True))
