"""The exercises of the chapter on beam search: a beam, one step of it, scores, the winner, where it loses."""

import itertools
import math
from collections.abc import Sequence

import torch

from ..table import TableLM
from .greedy import table_and_prompt
from .judge import NOT_YET, Exercise, Verdict, checker, listed, right, tensor, wrong

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
# One step of beam search


def best_of(totals: torch.Tensor, beams: int):
    """(parents, tokens, scores) of the best numbers in a table (rows, vocab)."""
    best = totals.flatten().topk(min(beams, totals.numel()))
    rows, vocab = best.indices // totals.shape[1], best.indices % totals.shape[1]
    return rows.tolist(), vocab.tolist(), best.values


def beam_step(log_probs, scores, beams):
    return best_of(scores[:, None] + log_probs, beams)


def best_of_each_row(log_probs, scores, beams):
    best = (scores[:, None] + log_probs).max(-1)
    order = best.values.argsort(descending=True)
    return order.tolist(), best.indices[order].tolist(), best.values[order]


def table(*rows):
    return tensor(rows).log()


ORDINARY = table((0.1, 0.2, 0.65, 0.05), (0.25, 0.05, 0.1, 0.6), (0.35, 0.3, 0.2, 0.15))

check_beam_step = Exercise(
    """Judge ``my_beam_step(log_probs, scores, beams)`` that returns (parents, tokens, scores).""",
    [
        (ORDINARY, tensor((-1.0, -1.2, -4.0)), 3),
        (table((0.5, 0.4, 0.1), (0.9, 0.05, 0.05)), tensor((-0.5, -4.0)), 2),  # one hypothesis is far ahead
        (table((0.1, 0.6, 0.3)), tensor((0.0,)), 2),  # the prompt's single row
        # The first step, where all rows are the same prompt, and all but the first are dead.
        (ORDINARY[:1].repeat(3, 1), tensor((0.0, -math.inf, -math.inf)), 3),
    ],
    beam_step,
    {
        "You took the best of each row by itself. The rows compete: flatten all continuations of all hypotheses into "
        "one list, and take the best of that.": best_of_each_row,
        "Parent and token are the wrong way round. In the flat list of rows · vocab numbers, index // vocab is the "
        "row, and index % vocab the token.": lambda *given: (
            beam_step(*given)[1],
            beam_step(*given)[0],
            beam_step(*given)[2],
        ),
        "You left out the parent's score: a hypothesis's score is its parent's plus the new token's log-probability.": (
            lambda log_probs, scores, beams: best_of(log_probs, beams)
        ),
        "You do not add logarithms. Log-probabilities are added where probabilities are multiplied.": (
            lambda log_probs, scores, beams: best_of(scores[:, None] * log_probs, beams),
            lambda log_probs, scores, beams: best_of(scores[:, None] + log_probs.exp(), beams),
            lambda log_probs, scores, beams: best_of(scores.exp()[:, None] * log_probs.exp(), beams),
        ),
        "You keep the worst, or put them first. Log-probabilities are below 0: the best is the largest.": (
            lambda log_probs, scores, beams: (
                best := best_of(-(scores[:, None] + log_probs), beams),
                (best[0], best[1], -best[2]),
            )[1],
            lambda *given: tuple(part[::-1] if isinstance(part, list) else part.flip(0) for part in beam_step(*given)),
        ),
    },
    show=lambda log_probs, scores, beams: (
        f"{len(scores)} hypotheses with the scores {scores.tolist()}, {beams} to keep"
    ),
    tolerance=1e-5,
    why="The best of all continuations of all hypotheses, and each with its parent.",
    hint="Give three lists of one length, (parents, tokens, scores), best first.",
)

# ----------------------------------------------------------------------------------------------------------------------
# Scores and winners


def score(log_prob, prompt, tokens, length_penalty):
    return log_prob / len(tokens) ** length_penalty


check_score = Exercise(
    """Judge ``my_score(log_prob, prompt, tokens, length_penalty)``: the score of a finished hypothesis.""",
    [
        (-6.0, [3, 1, 4, 1, 5], tokens, penalty)
        for tokens, penalty in (([2, 7, 2, 8, 0], 0.5), ([2, 7, 0], 2.0), ([2, 7, 1, 0], 1.0))
    ],
    score,
    {
        "The sign is wrong: a log-probability is below 0, and so is its mean.": lambda *given: -score(*given),
        "You multiplied. A longer text has a lower sum, and dividing makes up for that.": (
            lambda log_prob, prompt, tokens, penalty: log_prob * len(tokens) ** penalty
        ),
        "The length is off by one. All new tokens count, the stop token too, and nothing else does.": (
            lambda log_prob, prompt, tokens, penalty: log_prob / (len(tokens) + 1) ** penalty,
            lambda log_prob, prompt, tokens, penalty: log_prob / (len(tokens) - 1) ** penalty,
        ),
        "You counted the prompt's tokens. Only the new ones count.": lambda log_prob, prompt, tokens, penalty: (
            log_prob / (len(prompt) + len(tokens)) ** penalty
        ),
        "The penalty is the exponent of the length: log_prob / length ** penalty.": (
            lambda log_prob, prompt, tokens, penalty: log_prob / len(tokens),
            lambda log_prob, prompt, tokens, penalty: log_prob / (len(tokens) * penalty),
            lambda log_prob, prompt, tokens, penalty: log_prob / penalty ** len(tokens),
            lambda log_prob, prompt, tokens, penalty: log_prob - penalty * len(tokens),
            lambda log_prob, prompt, tokens, penalty: log_prob / ((5 + len(tokens)) / 6) ** penalty,
        ),
    },
    why="The sum divided by the length to the power of the penalty: the raw sum at 0, the mean per token at 1.",
)


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
