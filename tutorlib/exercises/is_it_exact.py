"""The exercises of the chapter on exactness: lengths, bugs told by their distributions, a check, a blind case.

What is right is enumerated (`tutorlib.proof`, `tutorlib.zoo`) or computed here from its definition.
"""

from functools import cache

from .. import zoo
from ..decoders.sample import sample
from ..decoders.speculative import speculative
from ..decoding import decoder
from ..proof import exact_distribution, target_distribution, total_variation
from ..table import TableLM
from .judge import Verdict, array, attempt, checker, compare, filled, right, short, wrong

# ----------------------------------------------------------------------------------------------------------------------
# Bugs told by their distributions

P, Q = (0.5, 0.3, 0.2), (0.2, 0.2, 0.6)
SUSPECTS = ("speculative", "score_only", "resample_from_target", "fixed_threshold", "greedy_drafts")
CASES = dict(zip("ABCDE", (2, 4, 0, 3, 1), strict=True))  # a letter -> the index of its suspect


@cache
def mystery() -> dict[str, tuple[float, ...]]:
    """Five distributions of the first token, each by its letter: what five decoders make of `P` and `Q`.

    Enumerated: γ is 1, and the threshold of `zoo.fixed_threshold` is 0.25.
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
    """Judge which decoder made which distribution of `mystery`: a dict from letters to names."""
    answer = filled(answer, CASES)
    strange = [name for name in answer.values() if name not in SUSPECTS]
    if strange:
        return wrong(f"{short(strange[0])} is not one of the suspects: {', '.join(SUSPECTS)}.")
    twice = [name for name in SUSPECTS if list(answer.values()).count(name) > 1]
    if twice:
        return wrong(f"You name {twice[0]} more than once. Each of the five made one of the distributions.")
    hints = {
        "speculative": "It is the only one that gives p itself.",
        "score_only": "It never rejects anything, so its distribution is the draft's, q itself.",
        "resample_from_target": "It keeps min(p, q) of each token, and divides the rejected 0.4 as p does.",
        "fixed_threshold": "a and b pass whenever they are drafted. c never does, and its 0.6 is divided as in p.",
        "greedy_drafts": "c is always drafted, and kept with probability 1/3; the rest goes to the residual.",
    }
    for letter, index in CASES.items():
        if answer[letter] != SUSPECTS[index]:
            shown = ", ".join(f"{prob:.3f}" for prob in mystery()[letter])
            return wrong(f"{letter} = ({shown}) is not from {answer[letter]}. {hints[answer[letter]]}")
    return right(
        "Each mistake leaves its own trace in the distribution, so the distribution helps you to find the line."
    )


# ----------------------------------------------------------------------------------------------------------------------
# How long a text must be

# The shortest text that can show a mistake, at a given γ; and why.
LENGTHS = {
    "resample_from_target": (
        lambda gamma: 1,
        "The first drafted token may be rejected, and the token in its position is the first new one.",
    ),
    "rollback_too_short": (
        lambda gamma: 2,
        "The first drafted token may be rejected. What was left of it in the cache reaches the row after it, which "
        "decides the second token.",
    ),
    "unwarped_bonus": (
        lambda gamma: gamma + 1,
        "A bonus token comes only after γ accepted tokens, and it is the first that can be wrong.",
    ),
    "forgets_at_least_one": (
        lambda gamma: gamma + 2,
        "It takes γ accepted tokens and the bonus before the wrong thing is forgotten, and one more token to see it.",
    ),
}


@checker
def check_lengths(answer, gamma: int) -> Verdict:
    """Judge the shortest text that can show each of four mistakes: a dict from specimens to numbers of tokens."""
    for name, length in filled(answer, LENGTHS).items():
        least, why = LENGTHS[name]
        found = compare(length, least(gamma), otherwise=f"({name}) {why}")
        if not found.ok:
            return found
    return right(f"So with γ = {gamma}, texts of {gamma + 2} tokens show all four mistakes, and shorter ones do not.")


# ----------------------------------------------------------------------------------------------------------------------
# A check that catches them


@decoder
def _another_right_one(target, draft, prompt, *, gamma, rng, warp=()):
    """`speculative` under another name."""
    yield from speculative(target, draft, prompt, gamma=gamma, rng=rng, warp=warp)


@decoder
def _plain(target, draft, prompt, *, gamma, rng, warp=()):
    """No draft at all: exact, of course."""
    yield from sample(target, prompt, rng=rng, warp=warp)


RIGHT_ONES = (_another_right_one, _plain)
WRONG_ONES = {
    zoo.greedy_drafts: "Its first token is wrong. Which distributions do you compare, and how much may they differ?",
    zoo.unwarped_bonus: "Without a warp, it is exact, so try one: temperature(2.0), for instance. Its bonus token is "
    "token γ + 1, and its distribution is off by less than 0.1: use texts that long, and allow only for rounding.",
    zoo.forgets_at_least_one: "It shows after a full draft, its bonus token, and one token more: γ + 2 tokens. There, "
    "it is off by a few hundredths: allow only for rounding.",
}


@checker
def check_my_check(my_check) -> Verdict:
    """Judge ``my_check(method) -> bool``: whether a method with the signature of `speculative` is exact."""
    for method in RIGHT_ONES:
        answer = attempt(my_check, method)
        if type(answer).__name__ not in ("bool", "bool_"):  # numpy has one of its own
            return wrong(f"Expected True or False, got {answer!r}. Return whether the distance is below 1e-9.")
        if not answer:
            return wrong(
                f"It rejects a correct method ({method.__name__.strip('_')}). Compare with the *target's* "
                "distribution under the same warp. Sums of floats are rounded, so allow a distance of 1e-9. And do not "
                "rely on a method's name, or on how many tokens it drafts."
            )
    for method, hint in WRONG_ONES.items():
        if attempt(my_check, method):
            return wrong(f"It lets zoo.{method.__name__} pass. {hint}")
    return right("With a warp, γ + 2 tokens and a tolerance of 1e-9, few mistakes are left that your check could miss.")


# ----------------------------------------------------------------------------------------------------------------------
# A case that shows nothing

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
            f"The total variation of p and q is only {unlike:.2f}. Nothing shows if the models agree: take 0.3."
        )
    target, draft = (TableLM({"": [float(prob) for prob in probs]}, "abc") for probs in (p, q))
    made = exact_distribution(lambda rng: zoo.resample_from_target(target, draft, "a", gamma=1, rng=rng), 2)
    distance = total_variation(made, target_distribution(target, "a", 2))
    if distance > 1e-9:
        return wrong(
            f"The total variation of the decoder is {distance:.3f}, so your case shows the mistake. It draws token x "
            "with probability min(p(x), q(x)) + (1 - β) p(x). When is that p(x), for every x?"
        )
    return right("This case shows nothing, although the code is wrong: a proof is only as good as its cases.")
