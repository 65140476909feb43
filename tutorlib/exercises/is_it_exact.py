"""Checkers for chapter 8: total variation, bugs told by distributions, the length that shows one, checks, samples.

What is right is enumerated (`tutorlib.proof`, `tutorlib.zoo`) or computed here from its definition.
"""

import math
from collections.abc import Mapping
from functools import cache

from .. import zoo
from ..decoders.sample import sample
from ..decoders.speculative import speculative
from ..proof import exact_distribution
from ..run import decoder
from ..table import TableLM
from . import NOT_YET, Verdict, attempt, checker, compare, number, right, wrong

# ----------------------------------------------------------------------------------------------------------------------
# Total variation

PAIRS = (
    ({"a": 0.5, "b": 0.3, "c": 0.2}, {"a": 0.2, "b": 0.2, "c": 0.6}),
    ({"a": 0.7, "b": 0.3}, {"a": 0.1, "c": 0.4, "d": 0.5}),
    ({"a": 0.25, "c": 0.75}, {"a": 0.25, "b": 0.35, "c": 0.4}),
    ({"a": 1.0}, {"b": 1.0}),
    ({"a": 0.5, "b": 0.5}, {"a": 0.5, "b": 0.5}),
)


def _differences(a, b, outcomes=None):
    return [a.get(outcome, 0.0) - b.get(outcome, 0.0) for outcome in (outcomes or a.keys() | b.keys())]


def _total_variation(a, b):
    return sum(map(abs, _differences(a, b))) / 2


TOTAL_VARIATION_MISTAKES = (
    (lambda a, b: sum(map(abs, _differences(a, b))), "The half is missing: what one has too much, another lacks."),
    (
        lambda a, b: sum(map(abs, _differences(a, b, a.keys() & b.keys() or {None}))) / 2,
        "You went through the outcomes that both have. One that is missing in a dict has probability 0, and counts.",
    ),
    (
        lambda a, b: sum(map(abs, _differences(a, b, a.keys()))) / 2,
        "You went through the outcomes of the first dict. The second may have others.",
    ),
    (
        lambda a, b: sum(map(abs, _differences(a, b, b.keys()))) / 2,
        "You went through the outcomes of the second dict. The first may have others.",
    ),
    (
        lambda a, b: max(map(abs, _differences(a, b))),
        "That is the largest difference at a single outcome. An event may hold several: add up.",
    ),
    (lambda a, b: sum(_differences(a, b)), "Differences with their signs cancel: take absolute values."),
    (
        lambda a, b: math.sqrt(sum(value * value for value in _differences(a, b))),
        "That is the Euclidean distance. Absolute values, not squares.",
    ),
    (
        lambda a, b: sum(value * value for value in _differences(a, b)) / 2,
        "You squared the differences. Absolute values, not squares.",
    ),
    (lambda a, b: 1 - _total_variation(a, b), "That is the overlap, Σ min(p, q). The distance is 1 less that."),
)


@checker
def check_total_variation(my_total_variation) -> Verdict:
    """Judge ``my_total_variation(a, b)``: the distance of two distributions, dicts from outcomes to probabilities."""
    for a, b in PAIRS:
        answer = number(attempt(my_total_variation, dict(a), dict(b)))
        if math.isclose(answer, _total_variation(a, b), abs_tol=1e-9):
            continue
        said = f"Of {a} and {b} it gives {answer:.4g}, and not {_total_variation(a, b):.4g}."
        for mistake, message in TOTAL_VARIATION_MISTAKES:
            if math.isclose(answer, mistake(a, b), abs_tol=1e-9):
                return wrong(f"{message} {said}")
        return wrong(said)
    return right("Half of all absolute differences: 0 for the same distribution, 1 for nothing in common.")


# ----------------------------------------------------------------------------------------------------------------------
# Bugs told by their distributions

P, Q = (0.5, 0.3, 0.2), (0.2, 0.2, 0.6)
SUSPECTS = ("speculative", "score_only", "resample_from_target", "fixed_threshold", "greedy_drafts")
CASES = dict(zip("ABCDE", (2, 4, 0, 3, 1), strict=True))  # a letter -> the place of its suspect


@cache
def mystery() -> dict[str, tuple[float, ...]]:
    """Five distributions of the first token, each by its letter: what five decoders make of `P` and `Q`.

    Enumerated: γ is 1, and the threshold of `zoo.fixed_threshold` is 0.25.
    """
    target, draft = TableLM({"": list(P)}), TableLM({"": list(Q)})
    found = {}
    for letter, place in CASES.items():
        method = {"speculative": speculative}.get(SUSPECTS[place]) or getattr(zoo, SUSPECTS[place])
        settings = {"threshold": 0.25} if SUSPECTS[place] == "fixed_threshold" else {}
        made = exact_distribution(
            lambda rng, method=method, settings=settings: method(target, draft, "a", gamma=1, rng=rng, **settings), 1
        )
        found[letter] = tuple(made.get((token,), 0.0) for token in range(3))
    return found


@checker
def check_suspects(answer) -> Verdict:
    """Judge which decoder made which distribution of `mystery`: a dict from letters to names."""
    if not isinstance(answer, Mapping) or set(answer) != set(CASES):
        return wrong(f"Expected a dict with a name for each of the letters {', '.join(CASES)}; got {answer!r}.")
    if any(name in (None, ...) for name in answer.values()):
        return Verdict(None, NOT_YET)
    strange = [name for name in answer.values() if name not in SUSPECTS]
    if strange:
        return wrong(f"{strange[0]!r} is none of the suspects: {', '.join(SUSPECTS)}.")
    twice = [name for name in SUSPECTS if list(answer.values()).count(name) > 1]
    if twice:
        return wrong(f"You name {twice[0]} more than once. Each of the five made one of the distributions.")
    hints = {
        "speculative": "It is the only one that gives p itself.",
        "score_only": "It never takes anything back, so the draft's law comes out: q itself.",
        "resample_from_target": "It keeps min(p, q) of each token; the 0.4 that is rejected is dealt out by p.",
        "fixed_threshold": "a and b pass the threshold whenever they are drafted. c never does: 0.6 is dealt out by p.",
        "greedy_drafts": "c is always drafted, and kept with probability 1/3; the rest goes to the residual.",
    }
    for letter, place in CASES.items():
        if answer[letter] != SUSPECTS[place]:
            shown = ", ".join(f"{prob:.3f}" for prob in mystery()[letter])
            return wrong(f"{letter} = ({shown}) is not from {answer[letter]}. {hints[answer[letter]]}")
    return right("Each mistake leaves its own mark. A bug report with a distribution in it is half solved.")


# ----------------------------------------------------------------------------------------------------------------------
# How long a text must be

LENGTHS = {
    "resample_from_target": lambda gamma: 1,
    "rollback_too_short": lambda gamma: 2,
    "unwarped_bonus": lambda gamma: gamma + 1,
    "forgets_at_least_one": lambda gamma: gamma + 2,
}
_WHEN = {
    "resample_from_target": "The first drafted token may be rejected: what comes in its place is the first new token.",
    "rollback_too_short": "The first token may be the rejected one; what was left in the cache is seen by the row "
    "after it, which decides the second token.",
    "unwarped_bonus": "A bonus comes only after γ accepted tokens: it is the token after them.",
    "forgets_at_least_one": "It takes γ accepted tokens and the bonus before anything is forgotten wrongly, and one "
    "more token to see it.",
}


@checker
def check_lengths(answer, gamma: int) -> Verdict:
    """Judge the shortest text that can show each of four mistakes: a dict from specimens to numbers of tokens."""
    if not isinstance(answer, Mapping) or set(answer) != set(LENGTHS):
        return wrong(f"Expected a dict with a number for each of {', '.join(LENGTHS)}; got {answer!r}.")
    if any(length in (None, ...) for length in answer.values()):
        return Verdict(None, NOT_YET)
    for name, length in answer.items():
        expected = LENGTHS[name](gamma)
        mistakes = {}
        if name == "unwarped_bonus":
            mistakes = {
                gamma: f"({name}) The γ drafted tokens come first, and they are all right.",
                gamma + 2: f"({name}) The bonus token itself is wrong: no need to wait for the next one.",
                1: f"({name}) The first token is drafted, or redrawn, and right.",
            }
        elif name == "forgets_at_least_one":
            mistakes = {
                gamma + 1: f"({name}) The bonus is drawn before anything is forgotten: it is still right.",
                gamma: f"({name}) Nothing is forgotten wrongly before γ tokens were accepted.",
                2: f"({name}) After a rejection it forgets what it should. Only a full draft goes wrong.",
            }
        elif name == "rollback_too_short":
            mistakes = {
                1: f"({name}) In the first round the cache is as it should be.",
                gamma + 2: f"({name}) No need for a full draft: a rejection in the first place will do.",
                gamma + 1: f"({name}) No need for a full draft: a rejection in the first place will do.",
            }
        mistakes.pop(expected, None)
        found = compare(length, expected, mistakes, otherwise=f"({name}) {_WHEN[name]}")
        if not found.ok:
            return found
    return right(f"So with γ = {gamma}, texts of {gamma + 2} tokens see all four, and shorter ones do not.")


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


RIGHT_ONES = (speculative, _another_right_one, _plain)
WRONG_ONES = {
    zoo.greedy_drafts: "That one shows in the very first token. What do you compare with what, and how near is near?",
    zoo.unwarped_bonus: "It is exact as long as there is no warp to forget: try it under one, temperature(2.0) say. "
    "Its bonus is token γ + 1, and it is off by less than 0.1: look that far, and allow no more than rounding.",
    zoo.forgets_at_least_one: "It shows after a full draft, its bonus token, and one token more: γ + 2 tokens. It is "
    "off by a few hundredths there: allow no more than rounding.",
}


@checker
def check_my_check(my_check) -> Verdict:
    """Judge ``my_check(method) -> bool``: whether a method with the signature of `speculative` is exact.

    It has to let right methods pass, and catch `zoo.greedy_drafts`, `zoo.unwarped_bonus` and
    `zoo.forgets_at_least_one`.
    """
    for method in RIGHT_ONES:
        answer = attempt(my_check, method)
        if type(answer).__name__ not in ("bool", "bool_"):  # numpy has one of its own
            return wrong(f"Expected True or False, got {answer!r}. Is a distance below 1e-9 still exact? Say so.")
        if not answer:
            return wrong(
                f"It refuses a right method ({method.__name__.strip('_')}). Compare with the *target's* distribution, "
                "under the same warp; do not ask for equality: sums of floats round, so allow 1e-9. And do not ask how "
                "a method is called, or how many tokens it drafts."
            )
    for method, hint in WRONG_ONES.items():
        if attempt(my_check, method):
            return wrong(f"It lets zoo.{method.__name__} pass. {hint}")
    return right("A warp, γ + 2 tokens, and 1e-9: what passes that has little left to be wrong with.")


# ----------------------------------------------------------------------------------------------------------------------
# How many samples

SAMPLE_CASES = (
    ({"a": 0.51, "b": 0.49}, {"a": 0.5, "b": 0.5}, 15.0),
    ({"a": 0.12, "b": 0.88}, {"a": 0.1, "b": 0.9}, 15.0),
    ({"a": 0.3, "b": 0.3, "c": 0.4}, {"a": 0.25, "b": 0.25, "c": 0.5}, 20.0),
)


def _excess(made, due):
    return sum((made[outcome] - due[outcome]) ** 2 / due[outcome] for outcome in due)


SAMPLE_MISTAKES = (
    (
        lambda made, due, excess: excess / sum(abs(made[key] - due[key]) for key in due),
        "You added up differences, not their squares over what is due.",
    ),
    (
        lambda made, due, excess: 2 * excess / sum(abs(made[key] - due[key]) for key in due),
        "You divided by the total variation. The excess grows with the *square* of the difference.",
    ),
    (
        lambda made, due, excess: excess / sum((made[key] - due[key]) ** 2 / made[key] for key in due),
        "You divided by what is made. Divide by what is due: a cell is expected n · due times.",
    ),
    (
        lambda made, due, excess: excess / sum((made[key] - due[key]) ** 2 for key in due),
        "The squares are not divided by what is due.",
    ),
    (
        lambda made, due, excess: excess / sum(abs(made[key] - due[key]) / due[key] for key in due),
        "You divided differences by what is due. Square them first.",
    ),
    (
        lambda made, due, excess: (excess / _excess(made, due)) ** 0.5,
        "The excess grows with n itself: no square root.",
    ),
    (
        lambda made, due, excess: excess * _excess(made, due),
        "The wrong way round: the smaller the difference, the more.",
    ),
)


@checker
def check_samples(my_samples) -> Verdict:
    """Judge ``my_samples(made, due, excess)``: the least n with n · Σ (made - due)² / due of `excess` or more."""
    for made, due, excess in SAMPLE_CASES:
        answer = number(attempt(my_samples, dict(made), dict(due), excess))
        expected = excess / _excess(made, due)
        if abs(answer - expected) <= 1.001:
            continue
        said = f"For {made}, due {due}, excess {excess:g}: you take {answer:,.6g}, and not {math.ceil(expected):,}."
        for mistake, message in SAMPLE_MISTAKES:
            if abs(answer - mistake(made, due, excess)) <= 1.001:
                return wrong(f"{message} {said}")
        return wrong(said)
    return right(
        "A coin that falls one way 51 times in 100 needs 37,500 tosses to be caught as often as not. A thousand will "
        "hardly ever do it."
    )
