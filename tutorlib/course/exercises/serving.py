"""The exercises of the serving chapter: what faults do, acceptance by position, the end of a text, a leak."""

import math

from ...measures.proof import exact_distribution
from ...measures.theory import acceptance_rate
from ...model.table import TableLM
from ..zoo.rules import unwarped_bonus
from .answers import filled, short
from .judge import Exercise, checker
from .verdicts import Verdict, right, wrong

# ----------------------------------------------------------------------------------------------------------------------
# What a change does to the acceptance

OUTCOMES = ("near 0", "about half", "unchanged")
CHANGES = {
    "the map d2t is read as ids": (
        "near 0",
        "Each guess is then read as a different token than the network means, so the target has no reason to agree.",
    ),
    "layer 9 is read three times": (
        "about half",
        "One of the three states is still right, and at its right position, so the network still knows something about "
        "the text.",
    ),
    "64 requests share the calls": (
        "unchanged",
        "A batch changes what a call costs. What the draft guesses in one row does not depend on the other rows.",
    ),
}


@checker
def check_prediction(answer) -> Verdict:
    """Judge a prediction of what each change does to the first guess's acceptance: a dict like CHANGES."""
    answer = filled(answer, CHANGES)
    for change, (left, because) in CHANGES.items():
        if answer[change] not in OUTCOMES:
            return wrong(f"{short(answer[change])} is not one of {', '.join(map(repr, OUTCOMES))}.")
        if answer[change] != left:
            return wrong(f"If {change}, the acceptance is not {answer[change]!r}. {because}")
    return right("Now plant the first two faults with `measured`, and compare.")


# ----------------------------------------------------------------------------------------------------------------------
# Acceptance by position


def _shares(rounds, gamma, checked=lambda drafted, accepted, i: drafted >= i and accepted >= i - 1, never=math.nan):
    """For each position, the share accepted among the rounds that `checked` counts; `never` if it counts none."""
    shares = []
    for i in range(1, gamma + 1):
        counted = [accepted >= i for drafted, accepted in rounds if checked(drafted, accepted, i)]
        shares.append(sum(counted) / len(counted) if counted else never)
    return shares


check_by_position = Exercise(
    """Judge ``my_by_position(rounds, gamma)``: for each position, the share accepted of those checked.""",
    [
        ([(4, 4), (4, 0), (4, 2), (4, 3), (4, 1)], 4),
        ([(3, 3), (3, 1), (1, 1), (2, 2), (3, 0)], 3),
        ([(2, 0), (2, 0), (2, 1)], 3),
        ([(1, 1)], 1),
    ],
    _shares,
    {
        "You divide by all rounds, which gives the shares that vLLM reports. But a guess is checked only if every "
        "guess before it was accepted.": {"checked": lambda drafted, accepted, i: True},
        "You divide by all rounds that drafted a guess here. But a guess is checked only if every guess before it was "
        "accepted.": {"checked": lambda drafted, accepted, i: drafted >= i},
        "You count rounds whose draft ended before this position. In these there was no guess to check.": {
            "checked": lambda drafted, accepted, i: accepted >= i - 1
        },
        "If no guess was checked, nothing is known: return math.nan, not 0.": {"never": 0.0},
    },
    why="You count only the guesses that were checked. If the shares are equal, later guesses are as good as the "
    "first.",
    hint="Guess i is checked if at least i tokens were drafted and the i - 1 tokens before it were accepted.",
)

# ----------------------------------------------------------------------------------------------------------------------
# A stop token in an accepted block


def cut(tokens, accepted, stop, keep=1, find=list.index, count=min):
    """The tokens up to the first stop token, and how many of them were drafted."""
    if stop in tokens:
        tokens = tokens[: find(tokens, stop) + keep]
    return tokens, count(accepted, len(tokens))


def last_alone(tokens, accepted, stop):
    return cut(tokens, accepted, stop) if tokens[-1] == stop else (tokens, accepted)


def last_found(tokens, stop):
    return len(tokens) - 1 - tokens[::-1].index(stop)


check_cut = Exercise(
    """Judge ``my_cut(tokens, accepted, stop)``: the tokens up to the stop token, and how many were drafted.""",
    [([5, 6, 1, 7, 8], 4, 1), ([5, 6, 7], 2, 1), ([5, 6, 1], 2, 1), ([1, 1, 9], 2, 1), ([1], 0, 1)],
    cut,
    {
        "The stop token is missing. It belongs to the text, and it shows why the text ends.": {"keep": 0},
        "You still count the accepted guesses after the end. They are not part of the text.": {
            "count": lambda accepted, length: accepted
        },
        "You look only at the last token. The stop token may be anywhere among the tokens.": last_alone,
        "You cut at the last stop token. The text ends at the first.": {"find": last_found},
        "If the target's own token is the last one kept, it does not count as accepted, because it was not drafted.": {
            "count": lambda accepted, length: length
        },
    },
    why="The text and the statistics end at the same token.",
)

# ----------------------------------------------------------------------------------------------------------------------
# A leak through the bonus token

VOCABULARY, FORBIDDEN, LEAST = ("1", "2", "x"), 2, 0.8


def digits_only(logits, histories):
    """The warp that forbids the token x."""
    logits = logits.clone()
    logits[:, FORBIDDEN] = -math.inf
    return logits


@checker
def check_leak(answer) -> Verdict:
    """Judge a case that shows the bonus token's leak: a dict of two distributions over 1, 2 and x, "p" and "q"."""
    answer = filled(answer, "pq")
    try:
        target, draft = (TableLM({"": list(answer[name])}, VOCABULARY) for name in "pq")
        made = exact_distribution(
            lambda rng: unwarped_bonus(target, draft, "1", gamma=1, rng=rng, warp=[digits_only]), 2
        )
    except (ValueError, TypeError) as error:
        return wrong(
            f"p and q must be distributions over 1, 2 and x, and give some probability to tokens besides x: {error}"
        )
    leak = math.fsum(prob for tokens, prob in made.items() if FORBIDDEN in tokens)
    if leak >= LEAST:
        return right(f"The forbidden token appears in {leak:.2f} of all texts. Keep this case as a test.")
    said = f"The forbidden token appears in {leak:.2f} of all texts, but it should appear in at least {LEAST}."
    if float(answer["p"][FORBIDDEN]) < LEAST:
        return wrong(f"{said} The bonus token comes from p: let p prefer x.")
    kept = [acceptable(answer[name]) for name in "pq"]
    overlap = acceptance_rate(*kept)
    return wrong(
        f"{said} A bonus token comes only after an accepted guess, and your guesses are accepted in {overlap:.2f} of "
        "the rounds."
    )


def acceptable(probs) -> list[float]:
    """A distribution without the forbidden token."""
    rest = [float(prob) * (token != FORBIDDEN) for token, prob in enumerate(probs)]
    return [prob / math.fsum(rest) for prob in rest]
