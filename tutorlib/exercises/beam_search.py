"""The exercises of the chapter on beam search: a beam, the length penalty, the winner, where beam search loses."""

import itertools
import math
from collections.abc import Sequence

from ..table import TableLM
from .greedy import table_and_prompt
from .judge import NOT_YET, Exercise, Verdict, checker, filled, listed, right, short, wrong

# What a search by hand holds: (tokens, log-probability), best first.
Beams = list[tuple[tuple[int, ...], float]]


def candidates(lm: TableLM, prompt: Sequence[int], beams: Beams) -> Beams:
    """All continuations of some hypotheses by one token, best first; those of probability zero left out."""
    longer = []
    for tokens, score in beams:
        row = lm.log_probs([*prompt, *tokens]).tolist()
        longer += [((*tokens, token), score + value) for token, value in enumerate(row) if value > -math.inf]
    return sorted(longer, key=lambda one: -one[1])


def search(lm: TableLM, prompt: Sequence[int], beams: int, length: int) -> list[Beams]:
    """What beam search holds after 1, 2 … `length` tokens; nothing ends before that."""
    levels: list[Beams] = [[((), 0.0)]]
    for _ in range(length):
        levels.append(candidates(lm, prompt, levels[-1])[:beams])
    return levels[1:]


# ----------------------------------------------------------------------------------------------------------------------
# Following a beam by hand


@checker
def check_beams(prediction, lm, prompt, beams=2, length=None) -> Verdict:
    """Judge which hypotheses were said to be in the beam, length by length."""
    levels = [level if level in (None, ...) else [level] if isinstance(level, str) else listed(level)
              for level in listed(prediction)]  # fmt: skip
    if not levels or any(level in (None, ...) or None in level or ... in level for level in levels):
        return Verdict(None, NOT_YET)
    start, before = lm.prompt_tokens(prompt), [((), 0.0)]
    for reached, said in enumerate(levels, start=1):
        longer = candidates(lm, start, before)
        due = [lm.decode(tokens) for tokens, _ in longer[:beams]]
        if said != due:
            return wrong(f"After {reached} token{'s' * (reached > 1)}: {about_level(lm, said, before, longer, beams)}")
        before = longer[:beams]
    if length is not None and len(levels) != length:
        return wrong(f"Right as far as it goes: {len(levels)} lengths, and {length} were asked for.")
    best, score = before[0]
    return right(f"The beam ends with {lm.decode(best)!r}, of probability {math.exp(score):.3g}.")


def about_level(lm, said, before: Beams, longer: Beams, beams: int) -> str:
    known = {lm.decode(tokens): math.exp(score) for tokens, score in longer}
    due = list(known)[:beams]
    for text in said:
        if text not in known:
            held = " and ".join(repr(lm.decode(tokens)) for tokens, _ in before)
            return f"{text!r} does not continue the beam before it, which held {held}. Leave the prompt out."
    if sorted(said) == sorted(due):
        return "these are the right ones. Write the more likely one first."
    if len(said) != beams or len(set(said)) < len(said):
        return f"the beam holds {beams} different hypotheses, and you gave {said}."
    own_best = {next(lm.decode(t) for t, _ in longer if t[:-1] == parent) for parent, _ in before}
    if len(before) > 1 and set(said) == own_best:
        return (
            "you let each hypothesis keep its own best continuation. They compete with each other: take the "
            f"{beams} best of all, even if all of them continue the same hypothesis."
        )
    totals = dict(before)
    by_last = sorted(longer, key=lambda one: totals[one[0][:-1]] - one[1])[:beams]
    if len(before) > 1 and set(said) == {lm.decode(tokens) for tokens, _ in by_last}:
        return (
            "you compared the probabilities of the last tokens. Compare whole hypotheses: the product of the parent's "
            "probability and the new token's."
        )
    missing, extra = next(text for text in due if text not in said), next(text for text in said if text not in due)
    return f"{missing!r} has {known[missing]:.3g}, more than {extra!r} with {known[extra]:.3g}."


# ----------------------------------------------------------------------------------------------------------------------
# Scores and winners


@checker
def check_penalties(prediction, finished, penalties=(0, 0.5, 1)) -> Verdict:
    """Judge which of some finished texts was said to win under each length penalty.

    `finished` maps the name of a text to its log-probability and its number of tokens.
    """
    prediction = filled(prediction, penalties)
    for penalty in penalties:
        scores = {name: total / length**penalty for name, (total, length) in finished.items()}
        said, best = prediction[penalty], max(scores, key=scores.get)
        if not isinstance(said, str) or said not in finished:
            return wrong(f"(penalty {penalty}) {short(said)} is none of the texts {', '.join(finished)}.")
        if said == best:
            continue
        if said == min(scores, key=scores.get):
            reason = "That is the worst. Scores are below 0, and the best one is the largest, nearest to 0."
        else:
            reason = f"Divide each log-probability by its length to the power {penalty}, and compare again."
        return wrong(f"(penalty {penalty}) Text {said} has the score {scores[said]:.2f}. {reason}")
    winners = ", ".join(prediction[penalty] for penalty in penalties)
    return right(f"{winners}: the larger the penalty, the longer the text that wins.")


def winner(finished, running, penalty, length=len, pool=lambda finished, running: finished or running):
    return max(pool(finished, running), key=lambda one: one[1] / length(one[0]) ** penalty)[0]


FINISHED = [
    ([5, 2, 0], -5.1), ([4, 0], -3.2), ([5, 1, 2, 2, 4, 0], -6.0), ([3, 2, 0], -7.2), ([1, 2, 1, 2, 1, 2, 0], -9.1),
]  # fmt: skip
# By sum / n the second wins; by sum / (n + 1) the third; by sum / (n - 1) the fifth.
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
        "You took a hypothesis that is not finished although there are finished ones. Its sum is still falling, so it "
        "cannot be compared yet.": {"pool": lambda finished, running: finished + running},
        "You compared raw sums, which prefer short texts. Compare sum / length ** penalty.": (
            lambda finished, running, penalty: winner(finished, running, 0.0)
        ),
        "The length is off by one. All new tokens count, the stop token too, and nothing else does.": (
            {"length": lambda tokens: len(tokens) + 1},
            {"length": lambda tokens: max(len(tokens) - 1, 1)},
        ),
        "You took the first to finish. It finished first because it is short; the best may come later.": (
            lambda finished, running, penalty: finished[0][0] if finished else winner(finished, running, penalty),
            lambda finished, running, penalty: (finished or running)[0][0],
        ),
        "That is the worst. Scores are below 0, and the best is the largest, nearest to 0.": (
            lambda finished, running, penalty: min(
                finished or running, key=lambda one: one[1] / len(one[0]) ** penalty
            )[0]
        ),
    },
    why="The best finished hypothesis by the normalised score. Only where none is finished, the best running one.",
    hint="Give back the tokens alone.",
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
    facts = f"Greedy writes {written!r} with probability {own:.3g}, beam search {ends!r} with {found:.3g}."
    beginnings = [tuple(greedy[-1][0][0][:n]) for n in range(1, length + 1)]
    out = [n for n, beam in enumerate(levels, 1) if beginnings[n - 1] not in [held for held, _ in beam]]
    if not out:
        return wrong(
            f"{facts} Greedy's beginning is in the beam at every length, so beam search cannot do worse. Push it out: "
            f"for a moment {beams} other hypotheses have to be more likely."
        )
    if found >= own * (1 - 1e-9):
        return wrong(
            f"{facts} Greedy's beginning is pushed out after {out[0]} tokens, but by hypotheses that end well. Spread "
            "the probability of what follows them over many tokens, and make what follows greedy's nearly certain."
        )
    for before, beam in itertools.pairwise([[((), 0.0)], *levels]):
        longer = candidates(table, start, before)
        if len(longer) > len(beam) and math.isclose(beam[-1][1], longer[len(beam)][1], abs_tol=1e-9):
            tied = [table.decode(longer[i][0]) for i in (len(beam) - 1, len(beam))]
            return wrong(
                f"{tied[0]!r} and {tied[1]!r} are equally likely, so it depends on their ids which of them stays in "
                "the beam. Make one of them a little more likely."
            )
    held = " and ".join(repr(table.decode(tokens)) for tokens, _ in levels[out[0] - 1])
    return right(f"{facts} After {out[0]} tokens its beam held {held}, and not greedy's text.")
