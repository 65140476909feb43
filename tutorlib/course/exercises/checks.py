"""The exercises of the chapter on checking drafts: kept shares, the weights of block verification, a case for it."""

import math
from collections.abc import Sequence

from .answers import array, expect, filled, short, tensor
from .judge import Exercise, checker
from .verdicts import Verdict, right, wrong

# ----------------------------------------------------------------------------------------------------------------------
# How often a single token is kept


def _kept_shares(p: Sequence[float], q: Sequence[float]) -> dict[str, float]:
    """The probability that each rule keeps one drafted token."""
    return {
        "match_drawn": math.fsum(x * y for x, y in zip(p, q, strict=True)),
        "match": p[max(range(len(q)), key=q.__getitem__)],
        "ratio": math.fsum(map(min, p, q)),
    }


@checker
def check_kept_shares(answer, p, q) -> Verdict:
    """Judge how often three rules keep a drafted token: a dict with "match_drawn", "match" and "ratio"."""
    due = _kept_shares(p, q)
    answer = filled(answer, due)
    swapped = _kept_shares(q, p)["match"]
    mistakes: dict[str, dict[float, str]] = {
        "match_drawn": {
            math.fsum(x * x for x in p): "You drew both tokens from p. The draft draws its token from q: Σ p(x) q(x).",
            due["ratio"]: "That is the share of ratio. Here, the two tokens must be the same: Σ p(x) q(x).",
        },
        "match": {
            swapped: "You looked up q of the target's most likely token. The draft proposes *its* most likely token, "
            "and the target draws it with probability p.",
            max(q): "The target draws, so the probability comes from p: look up p of the draft's most likely token.",
            max(p): "The draft proposes the most likely token of q, which is not the most likely one of p.",
        },
        "ratio": {
            1 - due["ratio"]: "That is how often a token is rejected.",
            due["match_drawn"]: "That is the share of match_drawn. Add up the smaller one of p(x) and q(x).",
        },
    }
    for name, share in due.items():
        expect(answer[name], share, mistakes[name], part=name, tolerance=1e-3)
    return right("Here, the rule that knows q keeps much more than those that only compare two tokens.")


# ----------------------------------------------------------------------------------------------------------------------
# The weights of block verification


def weights(ratios: Sequence[float]) -> list[float]:
    found, weight = [], 1.0
    for ratio in ratios:
        weight = min(1.0, weight * ratio)
        found.append(weight)
    return found


def products(ratios: Sequence[float]) -> list[float]:
    return [math.prod(ratios[: i + 1]) for i in range(len(ratios))]


check_weights = Exercise(
    """Judge ``my_weights(ratios)``: the weight of each beginning of a draft, from p/q of its tokens.""",
    [([0.5, 2.0],), ([2.0, 0.5],), ([0.5, 4.0, 0.5],), ([0.8, 0.5, 1.5, 3.0, 0.9],), ([3.0],)],
    weights,
    {
        "You never cut the product: a weight is a probability, so it is at most 1.": products,
        "You cut the products at the end, but go on with the uncut ones. What one token lacks is lost for the tokens "
        "after it: go on with the weight that is cut to 1.": lambda ratios: [min(1.0, one) for one in products(ratios)],
        "You cut each ratio before you multiply. Then a later token can never make up for an earlier one: multiply "
        "first, and then cut.": lambda ratios: products([min(1.0, ratio) for ratio in ratios]),
        "Your list also has the weight 1 of the empty beginning. Return one weight for each token.": (
            lambda ratios: [1.0, *weights(ratios)]
        ),
        "You forgot the tokens before: multiply with the weight of the beginning that is one token shorter.": (
            lambda ratios: [min(1.0, ratio) for ratio in ratios]
        ),
    },
    show=lambda ratios: f"the ratios {ratios}",
    why="A later token can make up for an earlier one, but not the other way round.",
)

# ----------------------------------------------------------------------------------------------------------------------
# How often block verification keeps a part of the draft


def missing_part(weight, p, q):
    return (weight * p - q).clamp(min=0)


def part_kept(weight, p, q, missing=missing_part, share=lambda s, w: s / (s + 1 - w)) -> float:
    return share(float(missing(weight, p, q).sum()), weight)


check_part_kept = Exercise(
    """Judge ``my_part_kept(weight, p, q)``: how often a beginning with this weight is kept, if no longer one was.""",
    [
        (0.9, tensor([0.5, 0.3, 0.2]), tensor([0.2, 0.2, 0.6])),
        (0.5, tensor([0.2, 0.8]), tensor([0.6, 0.4])),
        (0.8, tensor([0.7, 0.2, 0.1]), tensor([0.1, 0.6, 0.3])),
        (0.3, tensor([0.4, 0.6]), tensor([0.5, 0.5])),
        (1.0, tensor([0.6, 0.4]), tensor([0.1, 0.9])),
    ],
    part_kept,
    {
        "You left out the weight: only the part of w · p that exceeds q has not been drafted.": {
            "missing": lambda weight, p, q: (p - q).clamp(min=0)
        },
        "You added up negative numbers, too. Where w · p is below q, nothing is missing: take max(w · p - q, 0).": {
            "missing": lambda weight, p, q: weight * p - q
        },
        "That is s itself. Divide it by s + 1 - w: the draft reaches this question only if no more was kept.": {
            "share": lambda s, w: s
        },
        "You divide by s + w. What is lost when the beginning is not kept is 1 - w.": {
            "share": lambda s, w: s / (s + w)
        },
        "That is how often the beginning is *not* kept.": {"share": lambda s, w: (1 - w) / (s + 1 - w)},
    },
    show=lambda weight, p, q: f"the weight {weight}, p = {p.tolist()} and q = {q.tolist()}",
    why="With weight 1, a beginning is always kept: nothing of it has to be rejected.",
)

# ----------------------------------------------------------------------------------------------------------------------
# A case in which the whole draft is kept

AT_MOST = 0.2


@checker
def check_whole_draft(answer) -> Verdict:
    """Judge two distributions over a and b for which block always keeps the draft ab, and ratio seldom: "p", "q"."""
    answer = filled(answer, "pq")
    p, q = (array(answer[name], (2,), "two probabilities") for name in "pq")
    for name, probs in (("p", p), ("q", q)):
        if not (probs >= 0).all() or abs(probs.sum() - 1) > 1e-6:
            return wrong(f"{name} must be two probabilities that sum to 1, got {short(probs)}.")
    if not (q > 0).all():
        return wrong("The draft must be able to draw both a and b, so q needs two probabilities above 0.")
    ratios = [float(p[token] / q[token]) for token in (0, 1)]
    by_block, by_ratio = weights(ratios)[-1], math.prod(min(1.0, ratio) for ratio in ratios)
    said = f"block keeps ab with probability {by_block:.3g}, and ratio with {by_ratio:.3g}."
    if ratios[0] >= 1:
        return wrong(f"{said} Let the target like the first token, a, much less than the draft does.")
    if by_block < 1 - 1e-9:
        return wrong(f"{said} Make p/q of b larger: it must make up for p/q of a, so that their product is 1 or more.")
    if by_ratio > AT_MOST + 1e-9:
        return wrong(f"{said} That is the right way round, but ratio must keep ab with at most {AT_MOST}.")
    return right(f"{said} The draft writes ab at most as often as the target, so nothing has to be rejected.")
