"""The exercises of the bake-off: a fair comparison, acceptance by position, γ for a batch, when a small draft wins."""

import math
from statistics import fmean, median

from ...measures import theory
from .answers import filled, listed, number
from .judge import Exercise, checker
from .verdicts import Verdict, right, wrong

PLAIN = "plain loop"

# ----------------------------------------------------------------------------------------------------------------------
# A fair comparison


def speedup(rounds, method, *, over=PLAIN, middle=median, pairs=True):
    """The speed relative to the plain loop, as a median over the rounds; each option is a way to get it wrong."""
    if pairs:
        return middle([one[over] / one[method] for one in rounds])
    return middle([one[over] for one in rounds]) / middle([one[method] for one in rounds])


def _timed(*seconds):
    return [{PLAIN: plain, "medusa": medusa, "eagle": eagle} for plain, medusa, eagle in seconds]


check_speedup = Exercise(
    """Judge ``my_speedup(rounds, method)``: the speed relative to the plain loop, as a median over the rounds.""",
    [
        (_timed((4.0, 2.5, 2.0), (9.0, 3.0, 6.0), (4.4, 2.0, 1.6), (4.1, 1.9, 2.2), (8.0, 5.5, 2.1)), "eagle"),
        (_timed((4.0, 2.5, 2.0), (9.0, 3.0, 6.0), (4.4, 2.0, 1.6), (4.1, 1.9, 2.2), (8.0, 5.5, 2.1)), "medusa"),
        (_timed((1.0, 2.0, 0.9), (3.0, 2.5, 2.0), (1.2, 2.1, 0.7)), "medusa"),
    ],
    speedup,
    {
        "That is upside down: you divided the method's time by the plain loop's. Divide the other way round, so that a "
        "speed-up above 1 means faster.": (lambda rounds, method: median(one[method] / one[PLAIN] for one in rounds)),
        "You took the two medians first and then divided them. They may come from different rounds, one in which the "
        "machine was fast and one in which it was slow. Divide within each round, and then take the median.": {
            "pairs": False
        },
        "You took the mean. A single disturbed round can change the mean a lot, but hardly changes the median.": (
            {"middle": fmean},
            {"middle": fmean, "pairs": False},
        ),
        "You took the best value. It may come from a single unusual round, and the best times of the two methods may "
        "come from different rounds. Take the median of the speed-ups.": (
            {"middle": min, "pairs": False},
            {"middle": max},
        ),
    },
    why="You divide within each round and then take the median. If the machine is slow for a while, both times of a "
    "round grow, and their ratio hardly changes.",
)

# ----------------------------------------------------------------------------------------------------------------------
# Acceptance by position


def _by_position(rounds, position, *, reached=True, offset=0):
    """How often the drafted token at a position is accepted, among the rounds that check it; NaN if none does."""
    at = position + offset
    seen = [kept for drafted, kept in rounds if drafted >= at and (kept >= at - 1 or not reached)]
    return sum(kept >= at for kept in seen) / len(seen) if seen else math.nan


def of_all_rounds(rounds, position):
    return sum(kept >= position for _, kept in rounds) / len(rounds)


ROUNDS = [(4, 4), (4, 2), (4, 0), (4, 3), (2, 2), (4, 1), (4, 4), (1, 1), (4, 2)]

check_by_position = Exercise(
    """Judge ``my_share(rounds, position)``: how often the token drafted there is accepted, if it is checked.""",
    [(ROUNDS, position) for position in (1, 2, 3, 4)] + [([(3, 3), (3, 0)], 3)],
    _by_position,
    {
        "You divide by all rounds. But a round does not check this token if it rejected an earlier one, or if its "
        "draft was too short. Count only the rounds that check the token.": of_all_rounds,
        "You divide by all rounds that drafted this token. Of these, count only the rounds that accepted every token "
        "before it, because the others did not check it.": {"reached": False},
        "Positions are counted from 1: the first drafted token is at position 1.": ({"offset": 1}, {"offset": -1}),
        "You also count rounds that did not draft this token. The draft of a round may be shorter.": (
            lambda rounds, position: (
                sum(kept >= position for _, kept in rounds) / sum(kept >= position - 1 for _, kept in rounds)
            )
        ),
    },
    why="You count only the rounds that check the token: they drafted it, and accepted every token before it.",
)

# ----------------------------------------------------------------------------------------------------------------------
# The best γ for a batch, predicted

ALPHA, DRAFT_MS, MOST = 0.8, 1.0, 8
BATCHES = {"1 text": 1, "4 texts": 4, "16 texts": 16}
GOOD_ENOUGH = 0.95  # share of the best speed: a prediction need not be exact


def batch_speed(batch: int, gamma: int) -> float:
    """The speed of this γ relative to the plain loop, if a call takes 16 ms, or 1 ms per token if that is longer."""
    calls = [max(16.0, float(batch * width)) for width in range(1, MOST + 2)]
    return theory.measured_factor(ALPHA, gamma, calls, DRAFT_MS)


@checker
def check_gammas(prediction) -> Verdict:
    """Judge a prediction of the best γ, from 0 to 8, for batches of 1, 4 and 16 texts: a dict."""
    filled(prediction, BATCHES)
    said = {name: number(prediction[name]) for name in BATCHES}
    if not all(value in range(MOST + 1) for value in said.values()):
        return wrong(f"Each γ must be a whole number from 0 to {MOST}, where 0 stands for the plain loop.")
    given = {name: int(value) for name, value in said.items()}
    if given["16 texts"] > 0:
        return wrong(
            "With 16 texts, a call of the plain loop already has 16 tokens, so computing takes as long as reading the "
            "weights. Drafting one more token per text adds 16 tokens to the call. Is any draft worth that?"
        )
    for name, batch in BATCHES.items():
        speeds = [batch_speed(batch, gamma) for gamma in range(MOST + 1)]
        if speeds[given[name]] < GOOD_ENOUGH * max(speeds):
            how = "more" if given[name] < speeds.index(max(speeds)) else "fewer"
            return wrong(
                f"For {name}, draft {how} tokens. Up to 16 tokens in a call take no extra time. How many tokens is "
                "that for each text? A text brings γ + 1 of them."
            )
    return right(
        "The more texts are in a batch, the shorter the best draft: extra tokens are free only while a call waits for "
        "memory."
    )


# ----------------------------------------------------------------------------------------------------------------------
# A machine on which the small draft wins

SMALL, LARGE = 0.6, 0.85  # their acceptance rates


@checker
def check_machine(answer) -> Verdict:
    """Judge a machine, a dict of times in ms: "call" for 1 to 9 tokens, "small" and "large" per drafted token."""
    filled(answer, ("call", "small", "large"))
    calls = [number(value) for value in listed(answer["call"])]
    small, large = number(answer["small"]), number(answer["large"])
    if len(calls) != 9 or not all(math.isfinite(value) and value > 0 for value in (*calls, small, large)):
        return wrong(
            'Give nine times for "call" (for calls of 1 to 9 tokens) and one time for each draft, all above 0.'
        )
    if calls != sorted(calls):
        return wrong("A call with more tokens cannot take less time.")
    if small > large:
        return wrong("A token of the small draft cannot take longer than a token of the large one.")
    best = {}
    for name, alpha, seconds in (("small", SMALL, small), ("large", LARGE, large)):
        gamma = theory.best_measured_gamma(alpha, calls, seconds, 8)
        best[name] = theory.measured_factor(alpha, gamma, calls, seconds)
    said = f"At its best γ, the small draft is {best['small']:.2f} times as fast as the plain loop, the large one "
    said += f"{best['large']:.2f} times."
    if min(best.values()) <= 1:
        return wrong(
            f"{said} Both must be faster than the plain loop: make drafting cheaper compared with a target call."
        )
    if best["small"] <= best["large"]:
        return wrong(f"{said} The large draft loses when its own calls take up much of a round, so change its time.")
    return right(
        f"{said} The large draft yields more tokens per call, but the rounds of the small one are cheaper, and that "
        "matters more."
    )
