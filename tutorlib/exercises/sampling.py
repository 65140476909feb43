"""Checkers for chapter 4: drawing a token, the filters, and the order in which warps are applied.

A filter is judged first by the tokens that it keeps, and then by the numbers it gives them: each usual mistake keeps
other tokens than the right filter, and an answer that keeps those is told which mistake it is. What is right is
computed here from the definitions, not with `tutorlib.warp`.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch

from . import NOT_YET, Verdict, _Ended, attempt, checker, compare, right, wrong

# ----------------------------------------------------------------------------------------------------------------------
# One uniform number, one token

DRAW = (0.2, 0.1, 0.4, 0.05, 0.25)
NUMBERS = (0.05, 0.15, 0.25, 0.35, 0.5, 0.65, 0.72, 0.8, 0.9, 0.97)
# Exactly on an edge. All of these are sums of powers of two, so nothing is rounded.
EDGES = (((0.0, 0.5, 0.5), 0.0), ((0.25, 0.0, 0.5, 0.25), 0.25), ((0.25, 0.0, 0.5, 0.25), 0.75))


@checker
def check_draw(my_draw) -> Verdict:
    """Judge a function ``my_draw(probs, u)``: the token whose piece of the running sum holds the number `u`.

    `probs` is a tensor of probabilities, shape (vocab,), and `u` lies in [0, 1).
    """
    tokens = [_draw(my_draw, DRAW, u) for u in NUMBERS]
    expected = [_right_draw(DRAW, u) for u in NUMBERS]
    if tokens != expected:
        return _name_wrong_draws(tokens, expected)
    for probs, u in EDGES:
        token, expected = _draw(my_draw, probs, u), _right_draw(probs, u)
        if token != expected:
            zero = ", a token of probability 0" if 0 <= token < len(probs) and not probs[token] else ""
            return wrong(
                f"For {list(probs)} and u = {u:g} you gave token {token}{zero}. Take the first token whose running sum "
                f"is above u, not at least u: u can be exactly on an edge. Here that is token {expected}."
            )
    return _judge_the_last_draw(my_draw)


def _name_wrong_draws(tokens, expected) -> Verdict:
    order = sorted(range(len(DRAW)), key=lambda token: -DRAW[token])
    places = [_right_draw([DRAW[token] for token in order], u) for u in NUMBERS]
    pairs = list(zip(tokens, expected, strict=True))
    if all(token == best + 1 for token, best in pairs if best + 1 < len(DRAW)):
        return wrong(f"For {list(DRAW)} you are one token too far each time.")
    if all(token == best - 1 for token, best in pairs if best > 0):
        return wrong(f"For {list(DRAW)} you are one token short each time: its piece ends below u.")
    mistakes = (
        ([order[0]] * len(tokens), "you always give the likeliest token: argmax ignores u."),
        (places, "you give places in the sorted order. They are no ids: keep the tokens in the order of their ids."),
        (
            [order[place] for place in places],
            "you sorted the probabilities first. The law is the same, but the same u gives other tokens than in the "
            "rest of the book: keep the order of the ids.",
        ),
    )
    for mistaken, message in mistakes:
        if tokens == mistaken:
            return wrong(f"For {list(DRAW)} {message}")
    place = next(i for i, (token, best) in enumerate(pairs) if token != best)
    sums = ", ".join(f"{end:g}" for end in np.cumsum(DRAW))
    return wrong(
        f"For {list(DRAW)} and u = {NUMBERS[place]:g} you gave token {tokens[place]}. The running sums are {sums}, and "
        f"the first above u is that of token {expected[place]}."
    )


def _judge_the_last_draw(my_draw) -> Verdict:
    probs, u = [0.1] * 10 + [0.0], 1 - 2**-53
    try:
        token = int(my_draw(torch.tensor(probs, dtype=torch.float64), u))
    except Exception:  # whatever it raises, it was not prepared for this
        token = -1
    if token == 9:
        return right("Every number from 0 up to 1 has its token, and no token of probability 0 is ever drawn.")
    end = "an index that does not exist" if not 0 <= token <= 10 else f"token {token}"
    return wrong(
        "Almost. Ten times 0.1, added up, is 0.9999999999999999 in float64, and u can be that, too. No running sum is "
        f"above u then, and you gave {end}. Take the last token that has any probability: number 9 here."
    )


def _draw(my_draw, probs, u) -> int:
    answer = attempt(my_draw, torch.tensor(probs, dtype=torch.float64), u)
    try:
        (value,) = np.asarray(answer, dtype=float).ravel()
        if value != int(value):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        expected = f"the id of a token, from 0 to {len(probs) - 1}"
        raise _Ended(wrong(f"For {list(probs)} and u = {u:g} you gave {answer!r}. Expected {expected}.")) from None
    return int(value)


def _right_draw(probs, u) -> int:
    return next(i for i, end in enumerate(np.cumsum(probs)) if end > u)


# ----------------------------------------------------------------------------------------------------------------------
# Top-k


@checker
def check_top_k(my_top_k) -> Verdict:
    """Judge a function ``my_top_k(logits, k)``: the logits with all but the k largest at -inf, ties kept.

    `logits` is a tensor, shape (vocab,).
    """
    cases = (
        ([1.0, 3.0, 2.5, 2.0, 0.5, -1.0], 2),
        ([1.0, 3.0, 2.0, 2.0, 0.5, -1.0], 2),
        ([2.0, 0.0, 2.0, 1.0], 1),
        ([0.5, -2.0, 1.0], 7),
        ([-math.inf, 1.0, -math.inf, 0.0], 2),
    )
    for logits, k in cases:
        given = _given(logits)
        answer = _row(attempt(my_top_k, *given, k), len(logits), "logits")
        if not torch.equal(given[0], torch.tensor(logits, dtype=torch.float64)):
            return wrong("Your function changed the tensor that it was given: work on a copy, logits.clone().")
        verdict = _judge_top_k(answer, np.asarray(logits), k)
        if not verdict.ok:
            return verdict
    return right("The k largest stay as they are, and with them whatever equals the last of them.")


def _judge_top_k(answer, logits, k) -> Verdict:
    ranked = np.sort(logits)[::-1]
    kth = ranked[min(k, len(logits)) - 1]
    expected = np.where(logits < kth, -math.inf, logits)
    if np.array_equal(answer, expected):
        return right("")
    said = f"For the logits {logits.tolist()} and k = {k} you kept"
    dropped = np.isneginf(expected) & ~np.isneginf(logits)
    if dropped.any() and np.array_equal(answer, np.where(dropped, 0.0, logits)):
        return wrong("You set what you drop to 0. That is a logit like any other, exp(0) = 1: use -inf.")
    if (answer >= 0).all() and abs(answer.sum() - 1) < 1e-6:
        return wrong("You gave back probabilities. Give back logits: the softmax comes after all warps.")
    kept, should = ~np.isneginf(answer), ~np.isneginf(expected)
    if np.array_equal(kept, logits > kth):
        return wrong(f"{said} {_ids(kept)}: the k-th one itself is missing. Drop what is below it: `<`, not `<=`.")
    if k < len(logits) and kept.sum() == k < should.sum() and (kept <= should).all():
        return wrong(
            f"{said} {_ids(kept)}, but {_ids(logits == kth)} have the same logit: nothing prefers one of two equals. "
            "Compare each logit with the k-th largest, instead of taking the first k places of a sort."
        )
    if k < len(logits) and np.array_equal(kept, logits >= ranked[k]):
        return wrong(f"{said} {_ids(kept)}, one too many: the k-th largest stands at index k - 1 of a sorted row.")
    if k < len(logits) and np.array_equal(kept, logits <= ranked[-k]):
        return wrong(f"{said} {_ids(kept)}: those are the smallest. Sort with descending=True.")
    if np.array_equal(kept, should):
        return wrong(f"{said} the right tokens, but changed their logits: {answer.tolist()}.")
    return wrong(f"{said} {_ids(kept)}, and not {_ids(should)}.")


# ----------------------------------------------------------------------------------------------------------------------
# Top-p, min-p and locally typical: from probabilities to probabilities

# Any order but the sorted one, and no two alike, so that each mistake keeps tokens of its own.
MIXED = (0.05, 0.40, 0.10, 0.25, 0.02, 0.15, 0.03)
POWERS_OF_TWO = (0.125, 0.5, 0.125, 0.25)  # sums of these are exact
SIXTEENTHS = (0.1875, 0.375, 0.25, 0.1875)  # and so are these
HESITANT = (0.06, 0.34, 0.10, 0.24, 0.02, 0.20, 0.04)
ONE_LARGE = (0.15, 0.6, 0.05, 0.2)
SURPRISING = (0.14, 0.45, 0.13, 0.03, 0.12, 0.02, 0.11)


def _nucleus(probs, p) -> np.ndarray:
    """Which tokens top-p keeps: those before which the sorted running sum is below p."""
    order = np.argsort(-probs, kind="stable")
    before = np.concatenate([[0.0], probs[order].cumsum()[:-1]])
    return _mask(order[before < p], probs)


def _without_the_crossing_token(probs, p):
    order = np.argsort(-probs, kind="stable")
    return _mask(order[probs[order].cumsum() <= p], probs)


def _without_the_crossing_token_strictly(probs, p):
    order = np.argsort(-probs, kind="stable")
    return _mask(order[probs[order].cumsum() < p], probs)


def _one_past_the_nucleus(probs, p):
    order = np.argsort(-probs, kind="stable")
    return _mask(order[: int(_nucleus(probs, p).sum()) + 1], probs)


def _ascending_nucleus(probs, p):
    order = np.argsort(probs, kind="stable")
    before = np.concatenate([[0.0], probs[order].cumsum()[:-1]])
    return _mask(order[before < p], probs)


def _ascending_without_the_crossing_token(probs, p):
    order = np.argsort(probs, kind="stable")
    return _mask(order[probs[order].cumsum() <= p], probs)


def _unsorted_nucleus(probs, p):
    before = np.concatenate([[0.0], probs.cumsum()[:-1]])
    return before < p


_DROPS_THE_CROSSING = (
    "You drop the token that crosses the threshold. The nucleus must hold p or more, so that token belongs to it; ask "
    "for the sum *before* a token, and keep it while that is below p"
)
_ASCENDING = "You add up from the least likely token. Sort the likeliest first, with descending=True"

TOP_P_MISTAKES = (
    (_without_the_crossing_token, _DROPS_THE_CROSSING),
    (_without_the_crossing_token_strictly, _DROPS_THE_CROSSING),
    (_ascending_nucleus, _ASCENDING),
    (_ascending_without_the_crossing_token, _ASCENDING),
    (
        _unsorted_nucleus,
        "You add up in the order of the ids. The nucleus is made of the likeliest tokens: sort first",
    ),
    (
        lambda probs, p: probs.cumsum() <= p,
        "You add up in the order of the ids. The nucleus is made of the likeliest tokens: sort first",
    ),
    (
        lambda probs, p: probs >= p,
        "You compare single probabilities with p. It is their running sum, the likeliest first, that has to reach p",
    ),
    (
        lambda probs, p: probs >= 1 - p,
        "You compare single probabilities with 1 - p. It is the running sum, the likeliest first, that has to reach p",
    ),
    (lambda probs, p: ~_nucleus(probs, p), "You keep just what top-p drops: the mask is the wrong way round"),
    (
        _one_past_the_nucleus,
        "One token too many: the sum already reaches p before it. Where the sum before a token is p exactly, the token "
        "is not needed: `<`, not `<=`",
    ),
)


@checker
def check_top_p(my_top_p) -> Verdict:
    """Judge a function ``my_top_p(probs, p)`` that returns the probabilities of the nucleus, the others 0.

    `probs` is a tensor of probabilities, shape (vocab,); what is returned sums to 1 again.
    """
    cases = ((MIXED, 0.7), (ONE_LARGE, 0.5), (POWERS_OF_TWO, 0.75), (POWERS_OF_TWO, 1.0), (MIXED, 0.93))
    why = "The fewest likeliest tokens that hold p together, the one that crosses it included."
    found = _judge_filter(my_top_p, "p", cases, _nucleus, TOP_P_MISTAKES, why)
    if not found.ok:
        return found
    # Any two of four equals will do, which depends on the sort; but no more than two.
    answer = _row(attempt(my_top_p, *_given((0.25,) * 4), 0.5), 4, "probabilities")
    if np.allclose(np.sort(answer), (0, 0, 0.5, 0.5)):
        return found
    return wrong(
        f"For {[0.25] * 4} and p = 0.5 you gave {answer.round(3).tolist()}. Two tokens hold 0.5 together, and the "
        "nucleus is the fewest that do: what is equal to the last of them is not kept for that."
    )


def _near_the_best(probs, p):
    return probs >= p * probs.max()


MIN_P_MISTAKES = (
    (
        lambda probs, p: probs >= p,
        "You compare with p itself. The threshold is relative: p times the probability of the likeliest token",
    ),
    (
        lambda probs, p: probs >= p * probs[probs > 0].min(),
        "Your threshold is p times the *smallest* probability. It is p times the largest one, despite the name",
    ),
    (
        lambda probs, p: probs >= p * probs.mean(),
        "Your threshold is p times the mean. It is p times the largest probability",
    ),
    (lambda probs, p: probs < p * probs.max(), "You keep just what min-p drops: the mask is the wrong way round"),
    (
        lambda probs, p: probs > p * probs.max(),
        "A token that has exactly p times the largest probability stays: `>=`, not `>`",
    ),
    (_nucleus, "That is top-p: the running sum plays no part in min-p"),
)


@checker
def check_min_p(my_min_p) -> Verdict:
    """Judge a function ``my_min_p(probs, p)`` that returns the probabilities of what min-p keeps, the others 0."""
    cases = ((HESITANT, 0.36), (SIXTEENTHS, 0.5), (ONE_LARGE, 0.7), ((0.25,) * 4, 0.9))
    why = "The bar is low where the model hesitates, and high where it is sure."
    return _judge_filter(my_min_p, "p", cases, _near_the_best, MIN_P_MISTAKES, why)


def _by_distance(distance_of: Callable, crossing=True):
    """A filter that keeps the tokens of the smallest distance until they hold the mass."""

    def kept(probs, mass):
        order = np.argsort(distance_of(probs), kind="stable")
        sums = probs[order].cumsum()
        return _mask(order[(sums - probs[order] < mass) if crossing else (sums <= mass)], probs)

    return kept


def _surprise(probs):
    return -np.log(probs)


def _entropy(probs):
    return float(-(probs * np.log(probs)).sum())


_typical_set = _by_distance(lambda probs: abs(_surprise(probs) - _entropy(probs)))

TYPICAL_MISTAKES = (
    (
        _by_distance(lambda probs: abs(_surprise(probs) - _entropy(probs)), crossing=False),
        "You drop the token that crosses the threshold: the kept ones must hold the mass or more",
    ),
    (
        _nucleus,
        "That is the order of top-p: the likeliest first. Sort by |-log p - H|; without the bars, or with a wrong sign "
        "before one of the two, the likeliest token comes first again",
    ),
    (
        _by_distance(lambda probs: -abs(_surprise(probs) - _entropy(probs))),
        "You begin with what is furthest from the entropy. Sort the distances ascending",
    ),
    (
        _by_distance(lambda probs: abs(_surprise(probs) - _entropy(probs) / math.log(2))),
        "Your entropy is in bits and your surprise in nats: take the same logarithm for both",
    ),
)


@checker
def check_typical(my_typical) -> Verdict:
    """Judge a function ``my_typical(probs, mass)`` that returns the probabilities of the typical set, the others 0."""
    cases = ((SURPRISING, 0.3), (MIXED, 0.6), (ONE_LARGE, 0.3))
    why = "As surprising as expected: of seven tokens the likeliest was dropped, for it says too little."
    return _judge_filter(my_typical, "mass", cases, _typical_set, TYPICAL_MISTAKES, why)


def _judge_filter(filter, parameter, cases, keeps: Callable, mistakes: Sequence, why: str) -> Verdict:
    """Judge a filter from probabilities to probabilities: first what it keeps, then what it gives to it."""
    for probs, value in cases:
        given, probs = _given(probs), np.asarray(probs)
        answer = _row(attempt(filter, *given, value), len(probs), "probabilities")
        if not torch.equal(given[0], torch.tensor(probs)):
            return wrong("Your function changed the tensor that it was given: work on a copy, probs.clone().")
        said = f"For {probs.tolist()} and {parameter} = {value:g}"
        expected, kept = keeps(probs, value), answer > 0
        if not np.isfinite(answer).all():
            # Nothing kept: 0 / 0.
            reasons = [f" {text}." for mask, text in mistakes if not mask(probs, value).any()]
            return wrong(f"{said} you gave {answer.tolist()}: nothing is left.{''.join(reasons[:1])}")
        truth = np.where(expected, probs, 0) / probs[expected].sum()
        if np.allclose(answer, truth, atol=1e-9):
            continue
        if np.allclose(np.sort(answer), np.sort(truth)):
            return wrong(f"{said} the numbers are right, but in sorted order: put each back where its token was.")
        if not np.array_equal(kept, expected):
            for mask, message in mistakes:
                if np.array_equal(kept, mask(probs, value)):
                    return wrong(f"{said} you kept {_ids(kept)}, and not {_ids(expected)}. {message}.")
        if np.allclose(answer, np.where(expected, probs, 0)):
            sums = f"what you gave back sums to {answer.sum():.3g}: divide by the sum."
            return wrong(f"{said} you kept the right tokens, but {sums}")
        if not np.array_equal(kept, expected):
            return wrong(f"{said} you kept {_ids(kept)}, and not {_ids(expected)}.")
        softmax = np.where(expected, np.exp(probs), 0)
        if np.allclose(answer, softmax / softmax.sum()):
            return wrong(f"{said} you took a softmax of probabilities: they only have to be divided by their sum.")
        return wrong(f"{said} you kept the right tokens, but gave them {answer[expected].round(3).tolist()}.")
    return right(why)


# ----------------------------------------------------------------------------------------------------------------------
# The order of two warps


@checker
def check_order(prediction, probs: Sequence[float], temperature: float, p: float) -> Verdict:
    """Judge what was predicted of a temperature and a top-p filter, applied in both orders.

    Parameters
    ----------
    prediction : dict
        With the keys "temperature first" and "filter first": the probability of the likeliest token after both.
    probs : sequence of floats
        The distribution before both.
    """
    keys = ("temperature first", "filter first")
    if not isinstance(prediction, Mapping) or set(prediction) != set(keys):
        return wrong(f"Expected a dict with the keys {' and '.join(map(repr, keys))}; got {prediction!r}.")
    if any(prediction[key] in (None, ...) for key in keys):
        return Verdict(None, NOT_YET)
    probs = np.asarray(probs, dtype=float)
    heated = _tempered(probs, temperature)
    answers = {
        "temperature first": _best(_filtered(heated, p)),
        "filter first": _best(_tempered(_filtered(probs, p), temperature)),
    }
    cold = _tempered(probs, 1 / temperature)
    other = dict(zip(keys, reversed(answers.values()), strict=True))
    raised = "p^τ is the wrong way round: logits divided by τ make probabilities p^(1/τ), normalised."
    mistakes = {
        "temperature first": {
            _best(_filtered(cold, p)): raised,
            _best(
                heated
            ): "That is after the temperature alone: then comes the filter, and what it keeps is normalised.",
            _best(_filtered(probs, p)): "That is the filter without any temperature.",
            _best(
                _filtered(heated, p, _without_the_crossing_token)
            ): "The token that crosses p belongs to the nucleus.",
        },
        "filter first": {
            _best(_tempered(_filtered(probs, p), 1 / temperature)): raised,
            _best(_filtered(probs, p)): "That is the filter alone: the temperature is still to come.",
            _best(heated): "That is the temperature alone: first comes the filter.",
            _best(_tempered(_filtered(probs, p, _without_the_crossing_token), temperature)): "The token that crosses p "
            "belongs to the nucleus.",
        },
    }
    for key, expected in answers.items():
        swapped = {other[key]: f"That is the other order: here comes the {key.replace(' first', '')} first."}
        found = compare(
            prediction[key],
            expected,
            {**swapped, **mistakes[key]},
            tolerance=0.006,
            otherwise=f"({key}) Write down the distribution after each of the two warps, normalised.",
        )
        if not found.ok:
            return found
    first, second = (int(mask.sum()) for mask in (_nucleus(heated, p), _nucleus(probs, p)))
    return right(
        f"{answers['temperature first']:.3f} and {answers['filter first']:.3f}. After heating the filter keeps {first} "
        f"tokens, before it {second}: the same two warps, two distributions."
    )


# Logits need not be log-probabilities: the 1.5 is there to be forgotten by those who take them for that.
TWO_WARPS = (
    ((0.5, 0.24, 0.11, 0.06, 0.05, 0.04), 2.0, 0.7),
    ((0.3, 0.26, 0.2, 0.14, 0.1), 0.5, 0.6),
)
TWO_WARPS_MISTAKES = (
    (
        lambda probs, t, p: _tempered(_filtered(probs, p), t),
        "You filter first and apply the temperature to what is left. The temperature comes first: a nucleus is one of "
        "the distribution that is drawn from",
    ),
    (
        lambda probs, t, p: _filtered(_tempered(probs, 1 / t), p),
        "You multiply the logits by the temperature. They are divided by it",
    ),
    (lambda probs, t, p: _filtered(probs, p), "The temperature has no effect: divide the logits by it, not the probs"),
    (lambda probs, t, p: _tempered(probs, t), "There is no filter in it: that is the temperature alone"),
    (
        lambda probs, t, p: _filtered(_tempered(probs, t), p, _without_the_crossing_token),
        "You drop the token that crosses p",
    ),
    (
        lambda probs, t, p: np.where(_nucleus(_tempered(probs, t), p), _tempered(probs, t), 0.0),
        "What is left does not sum to 1: normalise after the filter",
    ),
)


@checker
def check_two_warps(my_warped) -> Verdict:
    """Judge a function ``my_warped(logits, temperature, p)``: the temperature, then top-p; it returns probabilities.

    `logits` is a tensor of shape (vocab,); so is what is returned.
    """
    for probs, temperature, p in TWO_WARPS:
        (logits,) = _given(np.log(probs) + 1.5)
        answer = _row(attempt(my_warped, logits, temperature, p), len(probs), "probabilities")
        expected = _filtered(_tempered(np.asarray(probs), temperature), p)
        if np.allclose(answer, expected, atol=1e-6):
            continue
        said = f"For softmax(logits) = {list(probs)}, temperature {temperature:g} and p = {p:g}"
        for mistake, message in TWO_WARPS_MISTAKES:
            if np.allclose(answer, mistake(np.asarray(probs), temperature, p), atol=1e-6):
                return wrong(f"{said}: {message[0].lower()}{message[1:]}.")
        return wrong(f"{said} expected {expected.round(3).tolist()}, got {answer.round(3).tolist()}.")
    return right("Heated or cooled first, then cut: as warp=[temperature(...), top_p(...)] does.")


def _tempered(probs, temperature):
    powers = probs ** (1 / temperature)
    return powers / powers.sum()


def _filtered(probs, p, keeps=_nucleus):
    kept = np.where(keeps(probs, p), probs, 0.0)
    return kept / kept.sum() if kept.any() else kept


def _best(probs) -> float:
    return float(probs.max())


# ----------------------------------------------------------------------------------------------------------------------
# Small parts


def _given(values) -> tuple[torch.Tensor]:
    """What a reader's function is called with: a fresh float64 tensor."""
    return (torch.tensor(values, dtype=torch.float64),)


def _row(answer, length: int, what: str) -> np.ndarray:
    """An answer as an array of shape (length,); the checker ends with a ✗ if it is not one."""
    try:
        row = np.asarray(answer.detach().cpu() if isinstance(answer, torch.Tensor) else answer, dtype=float)
    except (TypeError, ValueError, RuntimeError):
        row = np.zeros(())
    if row.shape != (length,):
        shape = tuple(row.shape) if row.ndim else type(answer).__name__
        expected = f"{what} for all {length} tokens, shape ({length},), the dropped ones included"
        raise _Ended(wrong(f"Expected {expected}; got {shape}."))
    return row


def _mask(kept, probs) -> np.ndarray:
    mask = np.zeros(len(probs), dtype=bool)
    mask[np.asarray(kept, dtype=int)] = True
    return mask


def _ids(mask) -> str:
    ids = np.flatnonzero(mask).tolist()
    return "no token" if not ids else f"token {ids[0]}" if len(ids) == 1 else "tokens " + ", ".join(map(str, ids))
