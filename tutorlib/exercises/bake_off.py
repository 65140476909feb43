"""The exercises of the bake-off: a fair comparison, acceptance by position, γ for a batch, when a small draft wins."""

import math
from statistics import fmean, median

from .. import theory
from .judge import Exercise, Verdict, checker, filled, listed, number, right, wrong

PLAIN = "plain loop"

# ----------------------------------------------------------------------------------------------------------------------
# A fair comparison


def speedup(rounds, method, *, over=PLAIN, middle=median, pairs=True):
    """Median over the rounds of the speed over the plain loop's; each option is a way to get it wrong."""
    if pairs:
        return middle([one[over] / one[method] for one in rounds])
    return middle([one[over] for one in rounds]) / middle([one[method] for one in rounds])


def timed(*seconds):
    return [{PLAIN: plain, "medusa": medusa, "eagle": eagle} for plain, medusa, eagle in seconds]


check_speedup = Exercise(
    """Judge ``my_speedup(rounds, method)``: the median, over the rounds, of how many times as fast a method is.""",
    [
        (timed((4.0, 2.5, 2.0), (9.0, 3.0, 6.0), (4.4, 2.0, 1.6), (4.1, 1.9, 2.2), (8.0, 5.5, 2.1)), "eagle"),
        (timed((4.0, 2.5, 2.0), (9.0, 3.0, 6.0), (4.4, 2.0, 1.6), (4.1, 1.9, 2.2), (8.0, 5.5, 2.1)), "medusa"),
        (timed((1.0, 2.0, 0.9), (3.0, 2.5, 2.0), (1.2, 2.1, 0.7)), "medusa"),
    ],
    speedup,
    {
        "That is upside down: it is the method's time over the plain loop's. A speed-up above 1 means faster.": (
            lambda rounds, method: median(one[method] / one[PLAIN] for one in rounds)
        ),
        "You took the medians first and divided them. They may come from two different rounds, and so from a quick and "
        "a slow spell of the machine. Divide within each round.": {"pairs": False},
        "You took the mean. One disturbed round moves it; the median hardly notices.": (
            {"middle": fmean},
            {"middle": fmean, "pairs": False},
        ),
        "You took the best times. The plain loop's best round and the method's need not be the same round.": (
            {"middle": min, "pairs": False},
            {"middle": max},
        ),
    },
    why="Divide within each round, then take the median: a slow spell falls on both times of a round, and cancels.",
)

# ----------------------------------------------------------------------------------------------------------------------
# Acceptance by position


def by_position(rounds, position, *, reached=True, offset=0):
    """How often the draft's token at a position is accepted, of the rounds that check it; NaN where none does."""
    at = position + offset
    seen = [kept for drafted, kept in rounds if drafted >= at and (kept >= at - 1 or not reached)]
    return sum(kept >= at for kept in seen) / len(seen) if seen else math.nan


def of_all_rounds(rounds, position):
    return sum(kept >= position for _, kept in rounds) / len(rounds)


ROUNDS = [(4, 4), (4, 2), (4, 0), (4, 3), (2, 2), (4, 1), (4, 4), (1, 1), (4, 2)]

check_by_position = Exercise(
    """Judge ``my_share(rounds, position)``: how often the drafted token there is accepted, where it is checked.""",
    [(ROUNDS, position) for position in (1, 2, 3, 4)] + [([(3, 3), (3, 0)], 3)],
    by_position,
    {
        "You divide by all rounds. A round that rejected an earlier token never checked this one, and a shorter draft "
        "never had it.": of_all_rounds,
        "You divide by all rounds that drafted this token. Of these, count only those that accepted every token "
        "before it: the others never checked it.": {"reached": False},
        "Positions count from 1: the first drafted token is at position 1.": ({"offset": 1}, {"offset": -1}),
        "You divide by rounds that never drafted this token. The draft of a round may be shorter.": (
            lambda rounds, position: (
                sum(kept >= position for _, kept in rounds) / sum(kept >= position - 1 for _, kept in rounds)
            )
        ),
    },
    why="A position counts only where it was checked: it was drafted, and everything before it was accepted.",
)

# ----------------------------------------------------------------------------------------------------------------------
# The best γ for a batch, predicted

ALPHA, DRAFT_MS, MOST = 0.8, 1.0, 8
BATCHES = {"1 text": 1, "4 texts": 4, "16 texts": 16}
GOOD_ENOUGH = 0.95  # of the best speed: a prediction need not be exact


def batch_speed(batch: int, gamma: int) -> float:
    """How many times as fast as the plain loop this γ is, where a call takes 16 ms, or 1 ms a token if that is more."""
    calls = [max(16.0, float(batch * width)) for width in range(1, MOST + 2)]
    return theory.measured_factor(ALPHA, gamma, calls, DRAFT_MS)


@checker
def check_gammas(prediction) -> Verdict:
    """Judge a prediction of the best γ, from 0 to 8, for batches of 1, 4 and 16 texts: a dict."""
    filled(prediction, BATCHES)
    given = {name: number(prediction[name]) for name in BATCHES}
    if not all(value in range(MOST + 1) for value in given.values()):
        return wrong(f"Each γ is a whole number from 0 to {MOST}, where 0 stands for the plain loop.")
    if given["16 texts"] > 0:
        return wrong(
            "With 16 texts, a call of the plain loop has 16 tokens already, and computing takes as long as the weights "
            "do. Each drafted token adds 16 tokens to the call. Is any draft worth that?"
        )
    for name, batch in BATCHES.items():
        speeds = [batch_speed(batch, gamma) for gamma in range(MOST + 1)]
        if speeds[given[name]] < GOOD_ENOUGH * max(speeds):
            how = "more" if given[name] < speeds.index(max(speeds)) else "fewer"
            return wrong(
                f"For {name}, draft {how} tokens. Up to 16 tokens in a call cost nothing extra. How many are that for "
                "each text, when each brings γ + 1?"
            )
    return right(
        "The more texts in a batch, the shorter the draft: tokens are free only while a call waits for memory."
    )


# ----------------------------------------------------------------------------------------------------------------------
# A machine on which the small draft wins

SMALL, LARGE = 0.6, 0.85  # their acceptance rates


@checker
def check_machine(answer) -> Verdict:
    """Judge a machine, a dict of times in ms: "call" with 1 to 9 tokens, "small" and "large" for a draft's token."""
    filled(answer, ("call", "small", "large"))
    calls = [number(value) for value in listed(answer["call"])]
    small, large = number(answer["small"]), number(answer["large"])
    if len(calls) != 9 or not all(math.isfinite(value) and value > 0 for value in (*calls, small, large)):
        return wrong('Give nine times for "call", for calls of 1 to 9 tokens, and one for each draft; all above 0.')
    if calls != sorted(calls):
        return wrong("A call with more tokens cannot take less time.")
    if small > large:
        return wrong("The small draft cannot take longer for a token than the large one.")
    best = {}
    for name, alpha, seconds in (("small", SMALL, small), ("large", LARGE, large)):
        gamma = theory.best_measured_gamma(alpha, calls, seconds, 8)
        best[name] = theory.measured_factor(alpha, gamma, calls, seconds)
    said = f"At its best γ, the small draft is {best['small']:.2f} times as fast as the plain loop, the large one "
    said += f"{best['large']:.2f} times."
    if min(best.values()) <= 1:
        return wrong(f"{said} Both must be faster than the plain loop: make drafting cheaper beside a call.")
    if best["small"] <= best["large"]:
        return wrong(f"{said} The large draft loses when its own calls take much of a round: change its time.")
    return right(f"{said} More tokens per call lose to cheaper rounds.")
