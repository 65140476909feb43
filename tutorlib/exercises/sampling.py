"""The exercises of the sampling chapter: drawing a token, the filters, and the order in which warps are applied."""

import math
from collections.abc import Sequence

import numpy as np
import torch

from .judge import Exercise, Verdict, checker, compare, filled, right, tensor

# ----------------------------------------------------------------------------------------------------------------------
# One uniform number, one token


def draw(probs, u):
    """The first token whose running sum is above u, or else the last one that has any probability."""
    above = [i for i, end in enumerate(np.cumsum(probs.numpy())) if end > u]
    return above[0] if above else int(probs.nonzero()[-1])


def draw_in_sorted_order(probs, u):
    order = probs.argsort(descending=True, stable=True)
    return int(order[draw(probs[order], u)])


DRAW = (0.2, 0.1, 0.4, 0.05, 0.25)

check_draw = Exercise(
    """Judge ``my_draw(probs, u)``: the token whose interval of the running sum holds the number `u`.""",
    [
        *((tensor(DRAW), u) for u in (0.05, 0.15, 0.25, 0.35, 0.5, 0.65, 0.72, 0.8, 0.9, 0.97)),
        # Exactly on an edge: all of these are sums of powers of two, so nothing is rounded.
        (tensor((0.0, 0.5, 0.5)), 0.0),
        (tensor((0.25, 0.0, 0.5, 0.25)), 0.25),
        (tensor((0.25, 0.0, 0.5, 0.25)), 0.75),
        # Ten times 0.1 adds up to 0.9999999999999999 in float64, and u can be that too.
        (tensor([0.1] * 10 + [0.0]), 1 - 2**-53),
    ],
    draw,
    {
        "Take the first token whose running sum is *above* u, not at least u. Otherwise a token of probability 0 can "
        "be drawn when u lies exactly on an edge.": (
            lambda probs, u: int(torch.searchsorted(probs.cumsum(-1), u)),
            lambda probs, u: int((probs.cumsum(-1) >= u).int().argmax()),
        ),
        "Almost. The running sum can end just below 1 because of rounding, and u can be above it. Then take the last "
        "token that has any probability.": (
            lambda probs, u: int(torch.searchsorted(probs.cumsum(-1), u, right=True)),
            lambda probs, u: int((probs.cumsum(-1) > u).int().argmax()),
            lambda probs, u: int((probs.cumsum(-1) > u).nonzero()[0]),
            lambda probs, u: min(int(torch.searchsorted(probs.cumsum(-1), u, right=True)), len(probs) - 1),
        ),
        "You always give the most likely token: argmax ignores u.": lambda probs, u: int(probs.argmax()),
        "You sorted the probabilities first. The distribution is the same, but the same u then gives other tokens than "
        "in the rest of the book: keep the order of the ids.": draw_in_sorted_order,
        "You give positions in the sorted order. They are not ids: keep the tokens in the order of their ids.": (
            lambda probs, u: draw(probs.sort(descending=True).values, u)
        ),
    },
    why="Every number from 0 up to 1 has its token, and no token of probability 0 is ever drawn.",
    hint="Find the first token whose running sum is above u.",
)

# ----------------------------------------------------------------------------------------------------------------------
# Top-k


def top_k(logits, k):
    kth = logits.sort(descending=True).values[min(k, len(logits)) - 1]
    return torch.where(logits < kth, -math.inf, logits)


def exactly_k(logits, k):
    kept = torch.full_like(logits, -math.inf)
    order = logits.argsort(descending=True, stable=True)[:k]
    kept[order] = logits[order]
    return kept


def above_the_kth(logits, k):
    kth = logits.sort(descending=True).values[min(k, len(logits)) - 1]
    return torch.where(logits <= kth, -math.inf, logits)


check_top_k = Exercise(
    """Judge ``my_top_k(logits, k)``: the logits with all but the k largest at -inf, ties kept.""",
    [
        (tensor([1.0, 3.0, 2.5, 2.0, 0.5, -1.0]), 2),
        (tensor([1.0, 3.0, 2.0, 2.0, 0.5, -1.0]), 2),
        (tensor([2.0, 0.0, 2.0, 1.0]), 1),
        (tensor([0.5, -2.0, 1.0]), 7),
        (tensor([-math.inf, 1.0, -math.inf, 0.0]), 2),
    ],
    top_k,
    {
        "A logit that equals the k-th largest has as good a claim as the k-th. Compare each logit with the k-th "
        "largest, instead of taking the first k of a sort.": exactly_k,
        "The k-th largest itself is missing. Drop what is below it: `<`, not `<=`.": above_the_kth,
        "You keep one too many: the k-th largest is at index k - 1 of a sorted row.": lambda logits, k: top_k(
            logits, k + 1
        ),
        "You set what you drop to 0. That is a logit like any other, and exp(0) = 1: use -inf.": lambda logits, k: (
            torch.where(top_k(logits, k).isneginf() & ~logits.isneginf(), 0.0, logits)
        ),
        "You gave back probabilities. Give back logits: the softmax comes after all warps.": lambda logits, k: top_k(
            logits, k
        ).softmax(-1),
    },
    why="The k largest stay as they are, and with them every logit that equals the last of them.",
)

# ----------------------------------------------------------------------------------------------------------------------
# Top-p, min-p and locally typical: from probabilities to probabilities

# In mixed order, and no two alike, so that each mistake keeps tokens of its own.
MIXED = tensor((0.05, 0.40, 0.10, 0.25, 0.02, 0.15, 0.03))
POWERS_OF_TWO = tensor((0.125, 0.5, 0.125, 0.25))  # sums of these are exact
SIXTEENTHS = tensor((0.1875, 0.375, 0.25, 0.1875))  # and so are these
HESITANT = tensor((0.06, 0.34, 0.10, 0.24, 0.02, 0.20, 0.04))
ONE_LARGE = tensor((0.15, 0.6, 0.05, 0.2))
SURPRISING = tensor((0.14, 0.45, 0.13, 0.03, 0.12, 0.02, 0.11))


def keep(probs, kept):
    """The probabilities of the tokens in the mask, divided by their sum, and 0 for the others."""
    return torch.where(kept, probs, 0.0) / probs[kept].sum()


def until(probs, mass, key, crossing=True):
    """Tokens in ascending order of `key` until they hold the mass, with or without the token that crosses it."""
    order = key.argsort(stable=True)
    sums = probs[order].cumsum(-1)
    kept = torch.zeros_like(probs, dtype=torch.bool)
    kept[order] = sums - probs[order] < mass if crossing else sums <= mass
    return keep(probs, kept)


def nucleus(probs, p, crossing=True):
    return until(probs, p, -probs, crossing)


def surprise(probs):
    """How far the surprise of each token is from the entropy."""
    return (-probs.log() + (probs * probs.log()).sum()).abs()


DROPS_THE_CROSSING = (
    "You drop the token that crosses the threshold. The set must hold the mass or more, so that token belongs to it: "
    "ask for the sum *before* a token, and keep the token while that is below the mass."
)
NOT_NORMALISED = "What you keep does not sum to 1: divide it by its sum."

check_top_p = Exercise(
    """Judge ``my_top_p(probs, p)`` that returns the probabilities of the nucleus, the others 0.""",
    [(MIXED, 0.7), (ONE_LARGE, 0.5), (POWERS_OF_TWO, 0.75), (POWERS_OF_TWO, 1.0), (MIXED, 0.93)],
    nucleus,
    {
        DROPS_THE_CROSSING: {"crossing": False},
        "You add up from the least likely token. Sort with descending=True.": (
            lambda probs, p: until(probs, p, probs),
            lambda probs, p: until(probs, p, probs, crossing=False),
        ),
        "You add up in the order of the ids. The nucleus is made of the most likely tokens, so sort first.": (
            lambda probs, p: until(probs, p, torch.arange(len(probs))),
            lambda probs, p: until(probs, p, torch.arange(len(probs)), crossing=False),
        ),
        "You compare single probabilities with p. It is their running sum, from the most likely token down, that has "
        "to reach p.": (lambda probs, p: keep(probs, probs >= p), lambda probs, p: keep(probs, probs >= 1 - p)),
        NOT_NORMALISED: lambda probs, p: torch.where(nucleus(probs, p) > 0, probs, 0.0),
    },
    why="The fewest tokens, the most likely first, that hold p together. The one that crosses p is included.",
    hint="Put each probability back where its token was.",
)

check_min_p = Exercise(
    """Judge ``my_min_p(probs, p)`` that returns the probabilities of what min-p keeps, the others 0.""",
    [(HESITANT, 0.36), (SIXTEENTHS, 0.5), (ONE_LARGE, 0.7), (tensor((0.25,) * 4), 0.9)],
    lambda probs, p: keep(probs, probs >= p * probs.max()),
    {
        "You compare with p itself. The threshold is relative: p times the probability of the most likely token.": (
            lambda probs, p: keep(probs, probs >= p)
        ),
        "Your threshold is p times the *smallest* probability. Despite the name, it is p times the largest one.": (
            lambda probs, p: keep(probs, probs >= p * probs.min())
        ),
        "A token that has exactly p times the largest probability stays: `>=`, not `>`.": (
            lambda probs, p: keep(probs, probs > p * probs.max())
        ),
        "That is top-p. The running sum plays no part in min-p.": nucleus,
        NOT_NORMALISED: lambda probs, p: torch.where(probs >= p * probs.max(), probs, 0.0),
    },
    why="The threshold is low where the model hesitates, and high where it is sure.",
)


def typical(probs, mass, crossing=True):
    return until(probs, mass, surprise(probs), crossing)


check_typical = Exercise(
    """Judge ``my_typical(probs, mass)`` that returns the probabilities of the typical set, the others 0.""",
    [(SURPRISING, 0.3), (MIXED, 0.6), (ONE_LARGE, 0.3)],
    typical,
    {
        DROPS_THE_CROSSING: {"crossing": False},
        "That is the order of top-p, the most likely first. Sort by |-log p - H|. Without the bars, or with one wrong "
        "sign, the most likely token comes first again.": nucleus,
        "You begin with what is furthest from the entropy. Sort the distances in ascending order.": (
            lambda probs, mass: until(probs, mass, -surprise(probs))
        ),
        "Your entropy is in bits and your surprise in nats: take the same logarithm for both.": lambda probs, mass: (
            until(probs, mass, (-probs.log() + (probs * probs.log2()).sum()).abs())
        ),
        NOT_NORMALISED: lambda probs, mass: torch.where(typical(probs, mass) > 0, probs, 0.0),
    },
    why="As surprising as expected. Of seven tokens the most likely one was dropped, because it says too little.",
)

# ----------------------------------------------------------------------------------------------------------------------
# The order of two warps


def heat(probs, temperature):
    powers = probs ** (1 / temperature)
    return powers / powers.sum()


@checker
def check_order(prediction, probs: Sequence[float], temperature: float, p: float) -> Verdict:
    """Judge what was predicted of a temperature and a top-p filter, applied in both orders."""
    prediction, probs = filled(prediction, ("temperature first", "filter first")), tensor(probs)
    heated, cold, cut = heat(probs, temperature), heat(probs, 1 / temperature), nucleus(probs, p)
    both = {"temperature first": nucleus(heated, p), "filter first": heat(cut, temperature)}
    cooled = {"temperature first": nucleus(cold, p), "filter first": heat(cut, 1 / temperature)}
    for key, other in (("temperature first", "filter first"), ("filter first", "temperature first")):
        mistakes = {
            both[other]: f"That is the other order: here the {key.removesuffix(' first')} comes first.",
            cooled[key]: "p^τ is the wrong way round: logits divided by τ give probabilities p^(1/τ), normalised.",
            heated: "That is after the temperature alone.",
            cut: "That is after the filter alone.",
        }
        mistakes = {float(row.max()): message for row, message in mistakes.items()}
        hint = f"({key}) Write down the distribution after each of the two warps, normalised."
        found = compare(prediction[key], float(both[key].max()), mistakes, tolerance=0.006, otherwise=hint)
        if not found.ok:
            return found
    best = [f"{float(row.max()):.3f}" for row in both.values()]
    kept = [int((row > 0).sum()) for row in both.values()]
    return right(
        f"{best[0]} and {best[1]}. Heated first, the filter keeps {kept[0]} tokens; otherwise it keeps {kept[1]}. The "
        "same two warps in another order give another distribution."
    )


def warped(logits, t, p, *, heated=torch.div, crossing=True):
    return nucleus(heated(logits, t).softmax(-1), p, crossing)


check_two_warps = Exercise(
    """Judge ``my_warped(logits, temperature, p)``: the probabilities after a temperature and top-p.""",
    # Logits need not be log-probabilities: 1.5 is added for those who take them for that.
    [
        (tensor((0.5, 0.24, 0.11, 0.06, 0.05, 0.04)).log() + 1.5, 2.0, 0.7),
        (tensor((0.3, 0.26, 0.2, 0.14, 0.1)).log() + 1.5, 0.5, 0.6),
    ],
    warped,
    {
        "You filter first and apply the temperature to what is left. The temperature comes first, and the nucleus is "
        "taken from the heated probabilities.": lambda logits, t, p: heat(nucleus(logits.softmax(-1), p), t),
        "You multiply the logits by the temperature. They are divided by it.": {"heated": torch.mul},
        "The temperature has no effect: divide the logits by it, not the probabilities.": {
            "heated": lambda logits, t: logits
        },
        DROPS_THE_CROSSING: {"crossing": False},
        NOT_NORMALISED: lambda logits, t, p: torch.where(warped(logits, t, p) > 0, (logits / t).softmax(-1), 0.0),
    },
    why="Heated or cooled first, and then cut, as warp=[temperature(...), top_p(...)] does.",
)
