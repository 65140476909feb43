"""The exercises of the chapter on joints: a bias, the numbers of a joint, a stop before the draw, shared calls."""

import math
from collections.abc import Callable, Sequence

from ...drafting.survival import shared_lengths
from .answers import array, filled, judge_number, number, short
from .judge import Exercise, checker
from .verdicts import Verdict, right, wrong

# ----------------------------------------------------------------------------------------------------------------------
# The biases that repair "red book"

CLOSE = 0.02


@checker
def check_bias(answer) -> Verdict:
    """Judge a table of biases: rows for *red* and *blue*, columns for *kite* and *book*.

    The network guesses kite and book with 1/2 each; the target writes red kite and blue book alone.
    """
    bias = array(answer, (2, 2), "two rows of two numbers")
    odds = [1 / (1 + math.exp(bias[row, 1 - row] - bias[row, row])) for row in (0, 1)]
    said = f"After red, kite now has probability {odds[0]:.3f}, and after blue, book has {odds[1]:.3f}."
    if abs(bias[0] - bias[1]).max() < 1e-9:
        return wrong(f"{said} Both rows are equal, so the token before changes nothing.")
    if max(odds) <= CLOSE:
        return wrong(f"{said} The signs are the wrong way round: rows are the token before, columns the token after.")
    if min(odds) < 1 - CLOSE:
        return wrong(f"{said} Both should be at least {1 - CLOSE}. Only the difference within a row matters.")
    return right(f"{said} No further pass of the network is needed for it.")


# ----------------------------------------------------------------------------------------------------------------------
# How many numbers


@checker
def check_numbers(answer, vocabulary: int, rank: int) -> Verdict:
    """Judge how many numbers a joint needs: a dict with "whole" for a table of all pairs, and "low" for its rank."""
    due: dict[str, float] = {"whole": vocabulary**2, "low": 2 * vocabulary * rank}
    answer = filled(answer, due)
    mistakes: dict[str, dict[float, str]] = {
        "whole": {
            2 * vocabulary: "A pair has a token before and one after: that is a table, and its sides multiply.",
            vocabulary * rank: "That is one of the two narrow matrices. The whole table has a cell for each pair.",
        },
        "low": {
            vocabulary * rank: "That is one of the two narrow matrices.",
            vocabulary**2: "That is the whole table again.",
            rank**2: "The matrices have a row or a column for each token, too.",
        },
    }
    for name, count in due.items():
        found = judge_number(number(answer[name]), count, mistakes[name], otherwise=f"({name})", tolerance=1e-6)
        if not found.ok:
            return found
    return right(f"The low rank takes {due['whole'] / due['low']:.0f} times fewer numbers.")


# ----------------------------------------------------------------------------------------------------------------------
# How much of one draft


def draft_length(
    chances: Sequence[float],
    costs: Sequence[float],
    survive: Callable[[float, float], float] = lambda before, chance: before * chance,
    stop: bool = True,
) -> int:
    expected, survival, best = 1.0, 1.0, (1 / costs[0], 0)
    for length, chance in enumerate(chances, start=1):
        survival = survive(survival, chance)
        expected += survival
        rate = expected / costs[length]
        if rate > best[0]:
            best = (rate, length)
        elif stop:
            break
    return best[1]


check_draft_length = Exercise(
    """Judge ``my_draft_length(chances, costs)``: how many tokens to draft, decided token by token.""",
    [
        ([0.7, 0.3, 0.5, 0.7, 0.4], [2.0, 2.2, 2.5, 2.6, 2.8, 3.8]),
        ([0.8, 0.3, 0.99, 0.99], [4.0, 4.5, 5.2, 5.3, 5.4]),
        ([0.95, 0.95, 0.95], [1.0, 1.1, 1.2, 1.3]),
        ([0.2, 0.9, 0.9], [1.0, 1.5, 2.0, 2.5]),
        ([0.7, 0.75, 0.8, 0.8], [2.0, 2.6, 3.2, 3.8, 4.4]),
    ],
    draft_length,
    {
        "You compared all lengths and took the best one. That asks about chances after a token that is not worth it: "
        "they depend on what was drawn there, so the draft would no longer be exact. Stop at the first such token.": {
            "stop": False
        },
        "You added each chance by itself. A token is of use only if all tokens before it survive: multiply.": {
            "survive": lambda before, chance: chance
        },
        "You drafted everything. Look at the costs.": lambda chances, costs: len(chances),
    },
    show=lambda chances, costs: f"the chances {chances} and the costs {costs}",
    why="The decision about a token comes before it is drawn, so the text stays exact.",
)

# ----------------------------------------------------------------------------------------------------------------------
# How much of several drafts


@checker
def check_shared(answer, chances: Sequence[Sequence[float]], fixed: float) -> Verdict:
    """Judge how many tokens of each draft to check in one call that takes `fixed` units and one for each token."""
    due = shared_lengths(chances, lambda tokens: fixed + tokens)
    lengths = array(answer, (len(chances),), f"{len(chances)} numbers").tolist()
    if lengths == due:
        return right("A sure draft gets the room that an unsure one would waste.")
    if any(length != int(length) or not 0 <= length <= len(row) for length, row in zip(lengths, chances, strict=True)):
        return wrong(f"Each length is a whole number from 0 to the length of that draft, got {short(answer)}.")
    alone = [shared_lengths([row], lambda tokens: fixed + tokens)[0] for row in chances]
    if lengths == alone:
        return wrong("You decided for each text alone. In one call, they share the fixed part, so it is divided.")
    if lengths == [len(row) for row in chances]:
        return wrong("You checked everything. At some point, a token adds less than the call's mean rate.")
    tokens = len(chances) + sum(sum(map(math.prod, _beginnings(row))) for row in chances)
    return wrong(
        "Begin with one token for each text. Take the token with the highest survival next, as long as expected tokens "
        f"divided by time become more. (If all is checked, {tokens:.2f} tokens are expected.)"
    )


def _beginnings(row: Sequence[float]) -> list[Sequence[float]]:
    return [row[:length] for length in range(1, len(row) + 1)]
