"""The exercises of the sampling chapter: what filters keep, and the order in which warps are applied."""

import math
from collections.abc import Sequence

import torch

from .answers import expect, filled, listed, number, same, short, tensor
from .judge import Exercise, checker
from .verdicts import Ended, Verdict, right, wrong

# ----------------------------------------------------------------------------------------------------------------------
# Top-p and locally typical: from probabilities to probabilities

ROUNDING = 1e-9  # two sums of probabilities that are equal on paper differ by less than this

# In mixed order and all different, so that each mistake keeps a different set of tokens.
MIXED = tensor((0.05, 0.40, 0.10, 0.25, 0.02, 0.15, 0.03))
POWERS_OF_TWO = tensor((0.125, 0.5, 0.125, 0.25))  # sums of these are exact
ONE_LARGE = tensor((0.15, 0.6, 0.05, 0.2))
SURPRISING = tensor((0.14, 0.45, 0.13, 0.03, 0.12, 0.02, 0.11))


def keep(probs, kept):
    """The probabilities of the tokens in the mask, divided by their sum, and 0 for the others."""
    return torch.where(kept, probs, 0.0) / probs[kept].sum()


def until(probs, mass, key, crossing=True, reaching=True):
    """Keep tokens in ascending order of `key` until they sum to `mass`, with or without the token that crosses it.

    Without it, a token whose sum equals `mass` is kept if `reaching`.
    """
    order = key.argsort(stable=True)
    sums = probs[order].cumsum(-1)
    kept = torch.zeros_like(probs, dtype=torch.bool)
    reached = sums - probs[order] if crossing else sums
    kept[order] = reached < mass - ROUNDING if crossing or not reaching else reached <= mass + ROUNDING
    return keep(probs, kept)


def nucleus_probs(probs, p, crossing=True, reaching=True):
    return until(probs, p, -probs, crossing, reaching)


def hint_on_kept(given, due):
    """What to look at if probabilities that are divided by their sum, or 0, differ from the expected ones."""
    kept, wanted, total = int((given != 0).sum()), int((due > 0).sum()), float(given.sum())
    if not math.isfinite(total):
        return "Some values are not finite. Did you divide by 0, because nothing is kept, or return logits?"
    if given.min() < 0:
        return "A probability cannot be negative: return probabilities, not logits."
    if same(sorted(given.tolist()), sorted(due.tolist())):
        return "The values are right, but in the wrong order: put each probability back at the position of its token."
    if ((given > 0) == (due > 0).numpy()).all():
        if not math.isclose(total, 1, abs_tol=1e-6):
            return f"You keep the right tokens, but their values sum to {short(total)}: {DIVIDE}"
        return f"You keep the right tokens, and your values sum to 1, but the values are wrong: {DIVIDE}"
    off = "" if math.isclose(total, 1, abs_tol=1e-6) else f" Also, your values sum to {short(total)}, not to 1."
    tokens = "1 token" if kept == 1 else f"{kept} tokens"
    if kept == wanted:
        return f"You keep {tokens}, which is the right number, but not the right ones.{off}"
    return f"You keep {tokens}, but {wanted} should be kept.{off}"


def surprise(probs):
    """How far the surprise of each token is from the entropy."""
    return (-probs.log() + (probs * probs.log()).sum()).abs()


DROPS_THE_CROSSING = (
    "You drop the token that crosses the threshold. The kept tokens must reach the threshold together, so this token "
    "belongs to them. Keep a token if the sum *before* it is below the threshold."
)
DIVIDE = "divide each kept probability by the sum of all kept ones."

check_top_p = Exercise(
    """Judge ``my_top_p(probs, p)`` that returns the probabilities of the nucleus, and 0 for other tokens.""",
    # No sum equals p below 1: there, rounding could decide what a right answer keeps.
    [(MIXED, 0.7), (ONE_LARGE, 0.3), (POWERS_OF_TWO, 0.7), (POWERS_OF_TWO, 1.0), (MIXED, 0.93)],
    nucleus_probs,
    {
        DROPS_THE_CROSSING: ({"crossing": False}, {"crossing": False, "reaching": False}),
        "You add up from the least likely token. Sort with descending=True.": (
            lambda probs, p: until(probs, p, probs),
            lambda probs, p: until(probs, p, probs, crossing=False),
        ),
        "You add up in the order of the ids. The nucleus consists of the most likely tokens, so sort by probability "
        "first.": (
            lambda probs, p: until(probs, p, torch.arange(len(probs))),
            lambda probs, p: until(probs, p, torch.arange(len(probs)), crossing=False),
        ),
        "You compare single probabilities with p. Their running sum, from the most likely token down, has to reach "
        "p.": (lambda probs, p: keep(probs, probs >= p), lambda probs, p: keep(probs, probs >= 1 - p)),
        "That is min-p, which compares each probability with the largest one. For top-p, sort by probability and look "
        "at the running sum.": lambda probs, p: keep(probs, probs >= p * probs.max()),
    },
    why="You keep the smallest number of most likely tokens that sum to p or more, including the one that crosses p.",
    hint=hint_on_kept,
)


def typical_probs(probs, mass, crossing=True, reaching=True):
    return until(probs, mass, surprise(probs), crossing, reaching)


def typical_around(entropy):
    """The mistake of a reader who has another number in place of the entropy: ``entropy(probs)``."""
    return lambda probs, mass: until(probs, mass, (-probs.log() - entropy(probs)).abs())


check_typical = Exercise(
    """Judge ``my_typical(probs, mass)`` that returns the probabilities of the typical set, and 0 for other tokens.""",
    [(SURPRISING, 0.3), (MIXED, 0.6), (ONE_LARGE, 0.3)],
    typical_probs,
    {
        DROPS_THE_CROSSING: ({"crossing": False}, {"crossing": False, "reaching": False}),
        "Your order begins with the most likely token. The surprise itself puts it first, and so does -log p - H "
        "without the absolute value or with a wrong sign. Sort by the distance between the two, |-log p - H|.": (
            nucleus_probs
        ),
        "Your order begins at the wrong end: with the least likely token, or with the one furthest from the entropy. "
        "Sort by |-log p - H|, in ascending order. H is the *expected* surprise, not the sum of all surprises.": (
            lambda probs, mass: until(probs, mass, probs),
            lambda probs, mass: until(probs, mass, -surprise(probs)),
        ),
        "Look at your entropy. It is the expected surprise: multiply each surprise by its probability, and add up. "
        "Take the same logarithm for the entropy and the surprise.": (
            typical_around(lambda probs: -(probs * probs.log2()).sum()),
            typical_around(lambda probs: -probs.log().mean()),
        ),
        "You compare the distance from the entropy with the mass. Sort by distance, and compare the running sum of the "
        "probabilities with the mass.": (
            lambda probs, mass: keep(probs, surprise(probs) < mass),
            lambda probs, mass: torch.where(surprise(probs) < mass, probs, 0.0),
        ),
    },
    why="You keep the tokens whose surprise is close to the entropy. In the first case, the most likely of the seven "
    "tokens is dropped, because its surprise is far below the entropy.",
    hint=hint_on_kept,
)

# ----------------------------------------------------------------------------------------------------------------------
# How many tokens are kept: a prediction, and two distributions to construct


def _counts(probs: torch.Tensor, p: float, min_p: float) -> tuple[int, int]:
    """How many tokens top-p keeps, and how many min-p keeps, calculated as on paper, without rounding."""
    values = probs.sort(descending=True).values
    sums_before = values.cumsum(-1) - values
    return int((sums_before < p - ROUNDING).sum()), int((probs >= min_p * probs.max() - ROUNDING).sum())


@checker
def check_kept(prediction, probs: Sequence[float], k: int, p: float, min_p: float) -> Verdict:
    """Judge a prediction of how many tokens top-k, top-p and min-p keep."""
    names, row = ("top-k", "top-p", "min-p"), tensor(probs)
    given = filled(prediction, names, partly=True)
    by_p, by_min_p = _counts(row, p, min_p)
    below = int((row.sort(descending=True).values.cumsum(-1) <= p + ROUNDING).sum())
    strict = int((row > min_p * row.max() + ROUNDING).sum())
    due: dict[str, tuple[int, dict[float, str], str]] = {
        "top-k": (k, {}, "Top-k counts tokens: you only need k."),
        "top-p": (by_p, {below: DROPS_THE_CROSSING}, "Add the probabilities from the largest down until p is reached."),
        "min-p": (
            by_min_p,
            {
                int((row >= min_p).sum()): "The threshold is relative: min_p times the largest probability.",
                strict: "A token that has exactly min_p times the largest probability is kept.",
            },
            "Multiply the largest probability by min_p, and count the tokens that have at least that much.",
        ),
    }
    for key, value in given.items():
        count, mistakes, hint = due[key]
        expect(value, count, mistakes, part=key, otherwise=hint)
    filled(prediction, names)
    return right(f"Of {len(row)} tokens, top-k keeps {k}, top-p keeps {by_p}, and min-p keeps {by_min_p}.")


@checker
def check_shapes(shapes, p: float, min_p: float) -> Verdict:
    """Judge two distributions: one for which top-p keeps more tokens than min-p, and one for which min-p keeps more."""
    names = "top-p keeps more", "min-p keeps more"
    kept = {}
    for name, given in filled(shapes, names, partly=True).items():
        probs = tensor([number(value) for value in listed(given)])
        if not 2 <= len(probs) <= 1000:
            raise Ended(wrong(f"({name}) Give 2 to 1,000 probabilities, got {len(probs)}."))
        if probs.min() < 0:
            raise Ended(wrong(f"({name}) A probability cannot be negative; one of yours is {probs.min():g}."))
        if not (probs.isfinite().all() and math.isclose(float(probs.sum()), 1, abs_tol=1e-6)):
            raise Ended(wrong(f"({name}) Probabilities sum to 1; yours sum to {probs.sum():g}."))
        kept[name] = _counts(probs, p, min_p)
    hints = {
        names[
            0
        ]: "Make one token so likely that all others fail min-p's test, and give the others much probability together.",
        names[1]: "Let top-p reach its sum early, before a token that still has enough for min-p.",
    }
    for name, (by_p, by_min_p) in kept.items():
        if not (by_p > by_min_p if name == names[0] else by_min_p > by_p):
            return wrong(f"({name}) Here top-p keeps {by_p} and min-p keeps {by_min_p}. {hints[name]}")
    filled(shapes, names)
    (one, two), (three, four) = kept.values()
    return right(
        f"In your first distribution top-p keeps {one} tokens and min-p {two}; in the second, top-p keeps {three} and "
        f"min-p {four}."
    )


# ----------------------------------------------------------------------------------------------------------------------
# The order of two warps


TWO_DECIMALS = 0.006  # how far an answer of two decimals is from the result, at most, with rounding on the way


def heat(probs, temperature):
    powers = probs ** (1 / temperature)
    return powers / powers.sum()


@checker
def check_order(prediction, probs: Sequence[float], temperature: float, p: float) -> Verdict:
    """Judge a prediction for a temperature and a top-p filter, applied in both orders."""
    names, row = ("temperature first", "filter first"), tensor(probs)
    given = filled(prediction, names, partly=True)
    heated, cold, cut = heat(row, temperature), heat(row, 1 / temperature), nucleus_probs(row, p)
    both = {"temperature first": nucleus_probs(heated, p), "filter first": heat(cut, temperature)}
    cooled = {"temperature first": nucleus_probs(cold, p), "filter first": heat(cut, 1 / temperature)}
    below = {
        "temperature first": nucleus_probs(heated, p, crossing=False),
        "filter first": heat(nucleus_probs(row, p, crossing=False), temperature),
    }
    for key, value in given.items():
        other = names[1 - names.index(key)]
        due = float(both[key].max())
        mistakes = {
            both[other]: f"That is the other order: here the {key.removesuffix(' first')} comes first.",
            cooled[key]: "You used p^τ, which is the wrong way round: logits divided by τ give p^(1/τ), normalised.",
            heated: "That is the probability after the temperature alone.",
            cut: "That is the probability after the filter alone.",
            below[key]: f"{DROPS_THE_CROSSING} Calculate with three decimals: a sum may be only just below p.",
        }
        mistakes = {float(row.max()): message for row, message in mistakes.items()}
        hint = "Write down the distribution after each of the two warps, normalised."
        # Two decimals are enough, unless a mistake has nearly the same result.
        near = any(TWO_DECIMALS / 4 < abs(mistake - due) < 2 * TWO_DECIMALS for mistake in mistakes)
        if near and TWO_DECIMALS / 4 < abs(number(value) - due) < TWO_DECIMALS:
            return wrong(
                f"({key}) {short(value)} is not exact enough: a usual mistake has nearly the same result. Calculate "
                "with three decimals."
            )
        expect(value, due, mistakes, part=key, tolerance=TWO_DECIMALS / (4 if near else 1) / due, otherwise=hint)
    filled(prediction, names)
    best = [f"{float(row.max()):.3f}" for row in both.values()]
    kept = [int((row > 0).sum()) for row in both.values()]
    return right(
        f"{best[0]} and {best[1]}. If the temperature comes first, the filter keeps {kept[0]} tokens; otherwise it "
        f"keeps {kept[1]}. So the order of the two warps changes the distribution."
    )
