"""The exercises of the chapter on exactness: lengths, bugs found from distributions, a check, a blind case.

The right answers are found by enumeration (`measures.proof`, `course.zoo`) or computed here from definitions.
"""

from functools import cache

from ...decoders.sample import sample
from ...decoders.speculative import speculative
from ...measures.proof import exact_distribution, target_distribution, total_variation
from ...model.table import TableLM
from ...running.decoder import decoder
from .. import zoo
from .answers import array, expect, filled, short
from .judge import attempt, checker
from .verdicts import Verdict, right, wrong

# ----------------------------------------------------------------------------------------------------------------------
# Bugs found from their distributions

P, Q = (0.5, 0.3, 0.2), (0.2, 0.2, 0.6)
SUSPECTS = ("speculative", "score_only", "resample_from_target", "fixed_threshold", "greedy_drafts")
CASES = dict(zip("ABCDE", (2, 4, 0, 3, 1), strict=True))  # a letter -> the index of its suspect


@cache
def mystery() -> dict[str, tuple[float, ...]]:
    """The distributions of the first token under five decoders with `P` and `Q`, by letter.

    They are enumerated with γ = 1 and a threshold of 0.25 for `zoo.fixed_threshold`.
    """
    target, draft = TableLM({"": list(P)}), TableLM({"": list(Q)})
    found = {}
    for letter, index in CASES.items():
        method = {"speculative": speculative}.get(SUSPECTS[index]) or getattr(zoo, SUSPECTS[index])
        settings = {"threshold": 0.25} if SUSPECTS[index] == "fixed_threshold" else {}
        made = exact_distribution(
            lambda rng, method=method, settings=settings: method(target, draft, "a", gamma=1, rng=rng, **settings), 1
        )
        found[letter] = tuple(made.get((token,), 0.0) for token in range(3))
    return found


@checker
def check_suspects(answer) -> Verdict:
    """Judge which decoder has which distribution of `mystery`: a dict from letters to names."""
    answer = filled(answer, CASES)
    strange = [name for name in answer.values() if name not in SUSPECTS]
    if strange:
        return wrong(f"{short(strange[0])} is not one of the five decoders: {', '.join(SUSPECTS)}.")
    twice = [name for name in SUSPECTS if list(answer.values()).count(name) > 1]
    if twice:
        return wrong(f"You name {twice[0]} more than once. Each of the five has one of the distributions.")
    hints = {
        "speculative": "It is the only exact one, so its distribution is p itself.",
        "score_only": "It never rejects anything, so its distribution is the draft's, q itself.",
        "resample_from_target": "It accepts x with total probability min(p(x), q(x)), and divides the rejected 0.4 in "
        "proportion to p.",
        "fixed_threshold": "It accepts a and b whenever they are drafted. It always rejects c, and then draws from p, "
        "which happens with probability 0.6.",
        "greedy_drafts": "It always drafts c, and accepts it with probability 1/3. Otherwise it draws from the "
        "residual.",
    }
    for letter, index in CASES.items():
        if answer[letter] != SUSPECTS[index]:
            shown = ", ".join(f"{prob:.3f}" for prob in mystery()[letter])
            return wrong(f"{letter} = ({shown}) is not from {answer[letter]}. {hints[answer[letter]]}")
    return right(
        "Each mistake changes the distribution in its own way, so the distribution helps you to find the wrong line."
    )


# ----------------------------------------------------------------------------------------------------------------------
# How long a text must be

# The length of the shortest text that can reveal a mistake, for a given γ, and the reason.
LENGTHS = {
    "resample_from_target": (
        lambda gamma: 1,
        "The first drafted token may be rejected, and the token that replaces it is the first new token.",
    ),
    "rollback_too_short": (
        lambda gamma: 2,
        "The first drafted token may be rejected. It is still in the cache, and changes the row that decides the "
        "second token.",
    ),
    "unwarped_bonus": (
        lambda gamma: gamma + 1,
        "A bonus token comes only after γ accepted tokens, and it is the first token that can be wrong.",
    ),
    "forgets_at_least_one": (
        lambda gamma: gamma + 2,
        "The cache forgets an accepted token only after γ accepted tokens and the bonus token, and it takes one more "
        "token to see the effect.",
    ),
}


@checker
def check_lengths(answer, gamma: int) -> Verdict:
    """Judge the smallest lengths that can reveal four mistakes: a dict from specimens to numbers of tokens."""
    for name, length in filled(answer, LENGTHS).items():
        least, why = LENGTHS[name]
        expect(length, least(gamma), part=name, otherwise=why)
    return right(f"So with γ = {gamma}, texts of {gamma + 2} tokens reveal all four mistakes, and shorter ones do not.")


# ----------------------------------------------------------------------------------------------------------------------
# A check that catches them


@decoder
def _another_right_one(target, draft, prompt, *, gamma, rng, warp=()):
    """`speculative` under another name."""
    yield from speculative(target, draft, prompt, gamma=gamma, rng=rng, warp=warp)


@decoder
def _plain(target, draft, prompt, *, gamma, rng, warp=()):
    """Plain sampling without a draft, which is exact."""
    yield from sample(target, prompt, rng=rng, warp=warp)


RIGHT_ONES = (_another_right_one, _plain)
WRONG_ONES = {
    zoo.greedy_drafts: "Even its first token has a wrong distribution. Which distributions do you compare, and how "
    "much may they differ?",
    zoo.unwarped_bonus: "It is exact without a warp, so use one, for instance temperature(2.0). Its bonus token is "
    "token γ + 1, so use texts of at least this length. The total variation is below 0.1, so allow only for rounding.",
    zoo.forgets_at_least_one: "The mistake shows only after γ accepted tokens, the bonus token and one more, so use "
    "texts of γ + 2 tokens. The total variation is a few hundredths, so allow only for rounding.",
}


@checker
def check_my_check(my_check) -> Verdict:
    """Judge ``my_check(method) -> bool``: whether a method with the signature of `speculative` is exact."""
    for method in RIGHT_ONES:
        answer = attempt(my_check, method)
        if type(answer).__name__ not in ("bool", "bool_"):  # NumPy has one of its own
            return wrong(f"Expected True or False, got {answer!r}. Return whether the distance is below 1e-9.")
        if not answer:
            return wrong(
                f"Your check rejects a correct method ({method.__name__.strip('_')}). Compare with the *target's* "
                "distribution under the same warp. Sums of floats are rounded, so allow a distance of 1e-9. Do not "
                "rely on a method's name, or on how many tokens it drafts."
            )
    for method, hint in WRONG_ONES.items():
        if attempt(my_check, method):
            return wrong(f"Your check lets zoo.{method.__name__} pass. {hint}")
    return right("With a warp, γ + 2 tokens and a tolerance of 1e-9, your check misses few mistakes.")


# ----------------------------------------------------------------------------------------------------------------------
# A case that does not show the mistake

UNLIKE = 0.3


@checker
def check_blind_case(answer) -> Verdict:
    """Judge two models on which `zoo.resample_from_target` is exact: a dict of distributions over a, b, c, "p", "q"."""
    answer = filled(answer, "pq")
    p, q = (array(answer[name], (3,), "probabilities") for name in "pq")
    for name, probs in (("p", p), ("q", q)):
        if not (probs >= 0).all() or abs(probs.sum() - 1) > 1e-6:
            return wrong(f"{name} must be three probabilities that sum to 1, got {short(probs)}.")
    unlike = float(abs(p - q).sum() / 2)
    if unlike < UNLIKE - 1e-9:
        return wrong(
            f"The total variation of p and q is only {unlike:.2f}. If the models agree, no mistake can show: make it "
            f"at least {UNLIKE}."
        )
    target, draft = (TableLM({"": [float(prob) for prob in probs]}, "abc") for probs in (p, q))
    made = exact_distribution(lambda rng: zoo.resample_from_target(target, draft, "a", gamma=1, rng=rng), 2)
    distance = total_variation(made, target_distribution(target, "a", 2))
    if distance > 1e-9:
        return wrong(
            f"The total variation from the target is {distance:.3f}, so your case shows the mistake. The decoder "
            "generates token x with probability min(p(x), q(x)) + (1 - β) p(x). When does this equal p(x) for every x?"
        )
    return right(
        "This case does not show the mistake, although the code is wrong: a proof is only as good as its cases."
    )
