"""The exercises of the chapter on beam search: a beam by hand, the length penalty, the winner, where it loses."""

import itertools
import math
from collections.abc import Sequence

from ...model.table import TableLM
from .answers import filled, listed, short
from .greedy import table_and_prompt
from .judge import NOT_YET, Exercise, checker
from .verdicts import Verdict, right, wrong

# The hypotheses in a beam: (tokens, log-probability), best first.
Beams = list[tuple[tuple[int, ...], float]]
EMPTY: Beams = [((), 0.0)]  # before the first token


def candidates(lm: TableLM, prompt: Sequence[int], beams: Beams) -> Beams:
    """All continuations of some hypotheses by one token, best first, without those of probability zero."""
    longer = []
    for tokens, score in beams:
        row = lm.log_probs([*prompt, *tokens]).tolist()
        longer += [((*tokens, token), score + value) for token, value in enumerate(row) if value > -math.inf]
    return sorted(longer, key=lambda one: -one[1])


def search(lm: TableLM, prompt: Sequence[int], beams: int, length: int) -> list[Beams]:
    """The beam after 1, 2, …, `length` tokens. No hypothesis ends before that."""
    levels = [EMPTY]
    for _ in range(length):
        levels.append(candidates(lm, prompt, levels[-1])[:beams])
    return levels[1:]


# ----------------------------------------------------------------------------------------------------------------------
# Following a beam by hand


@checker
def check_beams(prediction, lm, prompt, beams=2, length=None) -> Verdict:
    """Judge a prediction of the hypotheses in the beam, length by length."""
    levels = [level if level in (None, ...) else [level] if isinstance(level, str) else listed(level)
              for level in listed(prediction)]  # fmt: skip
    if not levels or any(level in (None, ...) or None in level or ... in level for level in levels):
        return Verdict(None, NOT_YET)
    start, before = lm.prompt_tokens(prompt), EMPTY
    for reached, said in enumerate(levels, start=1):
        longer = candidates(lm, start, before)
        due = [lm.decode(tokens) for tokens, _ in longer[:beams]]
        if said != due:
            return wrong(f"After {reached} token{'s' * (reached > 1)}: {about_level(lm, said, before, longer, beams)}")
        before = longer[:beams]
    if length is not None and len(levels) != length:
        return wrong(f"This is right as far as it goes, but you gave {len(levels)} lengths, and {length} are needed.")
    best, score = before[0]
    return right(f"The best hypothesis at the end is {lm.decode(best)!r}, with probability {math.exp(score):.3g}.")


def about_level(lm, said, before: Beams, longer: Beams, beams: int) -> str:
    known = {lm.decode(tokens): math.exp(score) for tokens, score in longer}
    due = list(known)[:beams]
    for text in said:
        if text not in known:
            held = " and ".join(repr(lm.decode(tokens)) for tokens, _ in before)
            return f"{text!r} does not continue any hypothesis in the beam before it ({held}). Leave the prompt out."
    if sorted(said) == sorted(due):
        return "these are the right hypotheses in the wrong order. Write the more likely one first."
    if len(said) != beams or len(set(said)) < len(said):
        return f"the beam holds {beams} different hypotheses, and you gave {said}."
    own_best = {next(lm.decode(t) for t, _ in longer if t[:-1] == parent) for parent, _ in before}
    if len(before) > 1 and set(said) == own_best:
        return (
            "you let each hypothesis keep its own best continuation. But all continuations compete with each other: "
            f"take the {beams} best of all, even if they all continue the same hypothesis."
        )
    totals = dict(before)
    by_last = sorted(longer, key=lambda one: totals[one[0][:-1]] - one[1])[:beams]
    if len(before) > 1 and set(said) == {lm.decode(tokens) for tokens, _ in by_last}:
        return (
            "you compared only the probabilities of the last tokens. Compare whole hypotheses: multiply the parent's "
            "probability by the new token's."
        )
    missing, extra = next(text for text in due if text not in said), next(text for text in said if text not in due)
    return f"{missing!r} has probability {known[missing]:.3g}, more than {extra!r}, which has {known[extra]:.3g}."


# ----------------------------------------------------------------------------------------------------------------------
# Scores and winners


@checker
def check_penalties(prediction, finished, penalties=(0, 0.5, 1)) -> Verdict:
    """Judge a prediction of which finished text wins under each length penalty.

    `finished` maps the name of a text to its log-probability and its number of tokens.
    """
    prediction = filled(prediction, penalties)
    for penalty in penalties:
        scores = {name: total / length**penalty for name, (total, length) in finished.items()}
        said, best = prediction[penalty], max(scores, key=scores.__getitem__)
        if not isinstance(said, str) or said not in finished:
            return wrong(f"(penalty {penalty}) {short(said)} is not one of the texts {', '.join(finished)}.")
        if said == best:
            continue
        if said == min(scores, key=scores.__getitem__):
            reason = (
                "That is the worst score. Scores are negative, and the best one is the largest, which is nearest to 0."
            )
        else:
            reason = f"Divide each log-probability by the text's length to the power {penalty}, and compare again."
        return wrong(f"(penalty {penalty}) Text {said} has the score {scores[said]:.2f}. {reason}")
    winners = ", ".join(prediction[penalty] for penalty in penalties)
    return right(f"The winners are {winners}: the larger the penalty, the longer the text that wins.")


def winner(finished, running, penalty, length=len, pool=lambda finished, running: finished or running):
    return max(pool(finished, running), key=lambda one: one[1] / length(one[0]) ** penalty)[0]


FINISHED = [
    ([5, 2, 0], -5.1), ([4, 0], -3.2), ([5, 1, 2, 2, 4, 0], -6.0), ([3, 2, 0], -7.2), ([1, 2, 1, 2, 1, 2, 0], -9.1),
]  # fmt: skip
# With sum / n the second wins, with sum / (n + 1) the third, and with sum / (n - 1) the fifth.
CLOSE = [
    ([6, 2, 0], -4.5), ([4, 1, 2, 0], -4.0), ([3, 5, 0], -3.15), ([7, 0], -3.0), ([1, 2, 1, 2, 1, 2, 1, 0], -8.8),
    ([8, 0], -5.0), ([5, 5, 4, 0], -6.4),
]  # fmt: skip
RUNNING = [([3, 1, 3, 1, 3, 1, 3, 1], -2.4), ([3, 1, 3, 1, 3, 1, 3, 2], -2.6)]

check_winner = Exercise(
    """Judge ``my_winner(finished, running, length_penalty)`` that returns the tokens of the winner.""",
    [
        (FINISHED, RUNNING, 1.0),
        (FINISHED, RUNNING, 0.0),
        (CLOSE, RUNNING, 1.0),
        ([([7, 7, 0], -3.0), ([8, 0], -1.9)], RUNNING, 1.0),
        ([], [([3, 1], -2.5), ([1, 1], -2.0), ([2, 1], -3.0)], 1.0),
    ],
    winner,
    {
        "You took a hypothesis that is still running, although others have finished. Its sum would fall further with "
        "each new token, so do not compare it with finished ones.": {
            "pool": lambda finished, running: finished + running
        },
        "You compared the raw sums, which favour short texts. Compare sum / length ** penalty.": (
            lambda finished, running, penalty: winner(finished, running, 0.0)
        ),
        "Your length is off by one. Count all new tokens, including the stop token, and nothing else.": (
            {"length": lambda tokens: len(tokens) + 1},
            {"length": lambda tokens: max(len(tokens) - 1, 1)},
        ),
        "You took the hypothesis that finished first. It finished first because it is short, and a better one may "
        "finish later.": (
            lambda finished, running, penalty: finished[0][0] if finished else winner(finished, running, penalty),
            lambda finished, running, penalty: (finished or running)[0][0],
        ),
        "That is the worst hypothesis. Scores are negative, and the best one is the largest, which is nearest to 0.": (
            lambda finished, running, penalty: min(
                finished or running, key=lambda one: one[1] / len(one[0]) ** penalty
            )[0]
        ),
    },
    why="You return the finished hypothesis with the best normalised score, and a running one only if none has "
    "finished.",
    hint="Return only the tokens of the winner.",
)

# ----------------------------------------------------------------------------------------------------------------------
# Beam search below greedy


@checker
def check_worse_beam(table, prompt="a", length=3, beams=2) -> Verdict:
    """Judge a table on which beam search with `beams` beams ends with a less probable text than greedy."""
    table, start = table_and_prompt(table, prompt, length)
    greedy, levels = search(table, start, 1, length), search(table, start, beams, length)
    own, found = math.exp(greedy[-1][0][1]), math.exp(levels[-1][0][1])
    written, ends = table.decode(greedy[-1][0][0]), table.decode(levels[-1][0][0])
    facts = f"Greedy writes {written!r} with probability {own:.3g}, and beam search writes {ends!r} with {found:.3g}."
    beginnings = [tuple(greedy[-1][0][0][:n]) for n in range(1, length + 1)]
    out = [n for n, beam in enumerate(levels, 1) if beginnings[n - 1] not in [held for held, _ in beam]]
    if not out:
        return wrong(
            f"{facts} The beginning of greedy's text is in the beam at every length, so beam search cannot do worse. "
            f"Push it out: at some length, {beams} other hypotheses must be more likely."
        )
    if found >= own * (1 - 1e-9):
        return wrong(
            f"{facts} The beginning of greedy's text is pushed out of the beam at length {out[0]}, but by hypotheses "
            "that end well. Spread the probability after them over several tokens, and make the token after greedy's "
            "beginning nearly certain."
        )
    for before, beam in itertools.pairwise([EMPTY, *levels]):
        longer = candidates(table, start, before)
        if len(longer) > len(beam) and math.isclose(beam[-1][1], longer[len(beam)][1], abs_tol=1e-9):
            tied = [table.decode(longer[i][0]) for i in (len(beam) - 1, len(beam))]
            return wrong(
                f"{tied[0]!r} and {tied[1]!r} are equally likely, so their ids decide which of them stays in the beam. "
                "Make one of them a little more likely."
            )
    held = " and ".join(repr(table.decode(tokens)) for tokens, _ in levels[out[0] - 1])
    return right(f"{facts} At length {out[0]} the beam holds {held}, and not the beginning of greedy's text.")
