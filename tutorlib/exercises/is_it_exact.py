"""The exercises of the chapter on exactness: total variation, bugs told by distributions, lengths, a check, samples.

What is right is enumerated (`tutorlib.proof`, `tutorlib.zoo`) or computed here from its definition.
"""

import math
from functools import cache

from .. import zoo
from ..decoders.sample import sample
from ..decoders.speculative import speculative
from ..decoding import decoder
from ..proof import exact_distribution
from ..table import TableLM
from .judge import Exercise, Verdict, attempt, checker, compare, filled, number, right, short, wrong


def differences(a, b, outcomes):
    return [a.get(outcome, 0.0) - b.get(outcome, 0.0) for outcome in outcomes]


def half_of_absolute(a, b, outcomes):
    return sum(map(abs, differences(a, b, outcomes))) / 2


check_total_variation = Exercise(
    """Judge ``my_total_variation(a, b)``: the distance of two distributions, dicts from outcomes to probabilities.""",
    [
        ({"a": 0.5, "b": 0.3, "c": 0.2}, {"a": 0.2, "b": 0.2, "c": 0.6}),
        ({"a": 0.7, "b": 0.3}, {"a": 0.1, "c": 0.4, "d": 0.5}),
        ({"a": 0.25, "c": 0.75}, {"a": 0.25, "b": 0.35, "c": 0.4}),
        ({"a": 1.0}, {"b": 1.0}),
        ({"a": 0.5, "b": 0.5}, {"a": 0.5, "b": 0.5}),
    ],
    lambda a, b: half_of_absolute(a, b, a.keys() | b.keys()),
    {
        "The half is missing: what one distribution has too much, it lacks elsewhere, so everything counts twice.": (
            lambda a, b: 2 * half_of_absolute(a, b, a.keys() | b.keys())
        ),
        "You left out outcomes that only one of the two has. An outcome that is missing in a dict has probability 0, "
        "and counts.": (
            lambda a, b: half_of_absolute(a, b, a.keys() & b.keys()),
            lambda a, b: half_of_absolute(a, b, a),
            lambda a, b: half_of_absolute(a, b, b),
        ),
        "That is the largest difference at a single outcome. An event may hold several: add up.": lambda a, b: max(
            map(abs, differences(a, b, a.keys() | b.keys()))
        ),
        "Differences with their signs cancel: take absolute values.": lambda a, b: sum(
            differences(a, b, a.keys() | b.keys())
        ),
        "You squared the differences. Take absolute values.": (
            lambda a, b: math.hypot(*differences(a, b, a.keys() | b.keys())),
            lambda a, b: math.hypot(*differences(a, b, a.keys() | b.keys())) ** 2 / 2,
        ),
    },
    why="Half of all absolute differences: 0 for the same distribution, 1 where they have nothing in common.",
)

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
        "score_only": "It never takes anything back, so what comes out is the draft's distribution, q itself.",
        "resample_from_target": "It keeps min(p, q) of each token, and shares out the rejected 0.4 by p.",
        "fixed_threshold": "a and b pass whenever they are drafted. c never does, and its 0.6 is shared out by p.",
        "greedy_drafts": "c is always drafted, and kept with probability 1/3; the rest goes to the residual.",
    }
    for letter, index in CASES.items():
        if answer[letter] != SUSPECTS[index]:
            shown = ", ".join(f"{prob:.3f}" for prob in mystery()[letter])
            return wrong(f"{letter} = ({shown}) is not from {answer[letter]}. {hints[answer[letter]]}")
    return right("Each mistake leaves its own mark. A bug report with a distribution in it is half solved.")


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
    zoo.greedy_drafts: "That one shows in the very first token. What do you compare with what, and how near is near?",
    zoo.unwarped_bonus: "Without a warp it is exact, so try it with one, temperature(2.0) for instance. Its bonus is "
    "token γ + 1, and its distribution is off by less than 0.1: look that far, and allow no more than rounding.",
    zoo.forgets_at_least_one: "It shows after a full draft, its bonus token, and one token more: γ + 2 tokens. It is "
    "off by a few hundredths there: allow no more than rounding.",
}


@checker
def check_my_check(my_check) -> Verdict:
    """Judge ``my_check(method) -> bool``: whether a method with the signature of `speculative` is exact."""
    for method in RIGHT_ONES:
        answer = attempt(my_check, method)
        if type(answer).__name__ not in ("bool", "bool_"):  # numpy has one of its own
            return wrong(f"Expected True or False, got {answer!r}. Is a distance below 1e-9 still exact? Say so.")
        if not answer:
            return wrong(
                f"It rejects a right method ({method.__name__.strip('_')}). Compare with the *target's* distribution, "
                "under the same warp; do not ask for equality: sums of floats round, so allow 1e-9. And do not ask how "
                "a method is called, or how many tokens it drafts."
            )
    for method, hint in WRONG_ONES.items():
        if attempt(my_check, method):
            return wrong(f"It lets zoo.{method.__name__} pass. {hint}")
    return right("A warp, γ + 2 tokens, and 1e-9: A method that passes all that has little left to be wrong with.")


# ----------------------------------------------------------------------------------------------------------------------
# How many samples


def excess_of_one(made, due, square=2, over=None):
    """What one sample adds to the G-test's excess: Σ (made - due)² / due."""
    return sum(abs(made[key] - due[key]) ** square / (over or due)[key] for key in due)


def samples_with(excess_of_one):
    return lambda made, due, excess: excess / excess_of_one(made, due)


def whole_samples(answer, due):
    """Rounded up, and the exact number just as well."""
    value = number(answer)
    return due if abs(value - due) <= 1.001 else value


check_samples = Exercise(
    """Judge ``my_samples(made, due, excess)``: the least n with n · Σ (made - due)² / due of `excess` or more.""",
    [
        ({"a": 0.51, "b": 0.49}, {"a": 0.5, "b": 0.5}, 15.0),
        ({"a": 0.12, "b": 0.88}, {"a": 0.1, "b": 0.9}, 15.0),
        ({"a": 0.3, "b": 0.3, "c": 0.4}, {"a": 0.25, "b": 0.25, "c": 0.5}, 20.0),
    ],
    samples_with(excess_of_one),
    {
        "You added up differences, not their squares.": (
            samples_with(lambda made, due: sum(abs(made[key] - due[key]) for key in due)),
            samples_with(lambda made, due: sum(abs(made[key] - due[key]) for key in due) / 2),
            samples_with(lambda made, due: excess_of_one(made, due, square=1)),
        ),
        "You divided by what was made. Divide by what is due: of n samples, n · due are expected.": samples_with(
            lambda made, due: excess_of_one(made, due, over=made)
        ),
        "The squares are not divided by what is due.": samples_with(
            lambda made, due: sum((made[key] - due[key]) ** 2 for key in due)
        ),
        "You took a square root. The excess grows with n itself.": lambda made, due, excess: (
            (excess / excess_of_one(made, due)) ** 0.5
        ),
        "That is the wrong way round: the smaller the difference, the more samples it takes.": (
            lambda made, due, excess: excess * excess_of_one(made, due)
        ),
    },
    read=whole_samples,
    why="To catch a coin that falls one way 51 times in 100 as often as not, you need 37,500 tosses. A thousand will "
    "hardly ever do it.",
)
