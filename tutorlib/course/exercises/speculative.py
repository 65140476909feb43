"""The exercises of the speculative chapter: a prediction, a whole check, rollback, a case to construct, and γ.

A whole check is tried on all possible outcomes of its random draws, by enumeration.
"""

import math

import numpy as np
import torch

from ...sampling.randomness import Exhaustive
from .answers import array, expect, filled, normalised, number, parts, short, tensor
from .judge import Exercise, attempt, checker
from .verdicts import Ended, Verdict, right, wrong

# ----------------------------------------------------------------------------------------------------------------------
# A prediction for one position

# With p = (0.6, 0.3, 0.1) and q = (0.3, 0.2, 0.5): the right number, the results of mistakes, and a hint.
ROUND = {
    "a drafted token is accepted": (
        0.6,
        {
            0.4: "That is the probability of a rejection, 1 - 0.6.",
            0.29: "That is Σ p·q, the probability that two independent draws agree. The check accepts more often.",
        },
        "It is what p and q have in common: add up min(p, q).",
    ),
    "c is rejected, if it is drafted": (
        0.8,
        {
            0.2: "That is the probability of accepting c, p/q = 0.1/0.5.",
            0.4: "That is the probability that c is drafted *and* rejected, 0.5 · 0.8. Here, you know that c has been "
            "drafted.",
            0.9: "That is 1 - p. The draft proposes c with probability 0.5, so divide p by q first.",
        },
        "c is accepted with probability p/q.",
    ),
    "a is drawn after a rejection": (
        0.75,
        {
            0.6: "That is p itself. Accepted tokens already supply a part of p, so draw from the residual.",
            0.3: "That is p - q. Divide it by the sum of max(p - q, 0).",
            0.3 / 0.7: "Where q is above p, the residual is 0. Leave c out of the sum.",
        },
        "The residual is proportional to max(p - q, 0).",
    ),
    "a was drafted, if a was generated": (
        0.5,
        {
            0.3: "That is the probability that a is drafted and accepted. Divide by the probability that a is "
            "generated.",
            0.6: "That is the probability that a is generated.",
        },
        "a is generated with probability p. Which part of it comes from drafted tokens?",
    ),
}


@checker
def check_round(answer) -> Verdict:
    """Judge four predicted probabilities for one position: a dict like `ROUND`."""
    for what, given in filled(answer, ROUND).items():
        due, mistakes, hint = ROUND[what]
        expect(given, due, mistakes, part=what, otherwise=hint, tolerance=0.01)
    return right("If a is generated, it comes from the draft half of the time, and from the residual the other half.")


# ----------------------------------------------------------------------------------------------------------------------
# Two models that agree, and whose greedy tokens do not

LEAST_OVERLAP = 0.95


@checker
def check_disagreement(answer) -> Verdict:
    """Judge a case in which sampling accepts nearly all drafted tokens and greedy decoding none: two distributions."""
    answer = filled(answer, "pq")
    p, q = (array(answer[name], (3,), "probabilities") for name in "pq")
    for name, probs in (("p", p), ("q", q)):
        if not (probs >= 0).all() or abs(probs.sum() - 1) > 1e-6:
            return wrong(f"{name} must be three probabilities that sum to 1, got {short(probs)}.")
        if sorted(probs)[1] == probs.max():
            return wrong(f"Two tokens share the largest probability of {name}: make one of them more likely.")
    overlap = float(np.minimum(p, q).sum())
    if p.argmax() == q.argmax():
        return wrong("Both models have the same most likely token, so greedy decoding accepts it.")
    if overlap < LEAST_OVERLAP:
        return wrong(
            f"With sampling, a drafted token is accepted with probability {overlap:.2f} only. Bring p and q closer "
            "together, but keep their most likely tokens apart."
        )
    return right(
        f"Sampling accepts a drafted token with probability {overlap:.3f}, and greedy decoding never. The distance "
        "between two distributions says little about their most likely tokens."
    )


# ----------------------------------------------------------------------------------------------------------------------
# A whole check, enumerated


def _residual(p, q):
    excess = (p - q).clamp(min=0)
    return normalised(excess) if excess.sum() > 0 else p


# Found by trying: every mistake gives a different distribution from the right check and from the other mistakes.
DRAFT_ROWS = tensor(((0.05, 0.45, 0.5), (0.6, 0.1, 0.3)))
TARGET_ROWS = tensor(((0.1, 0.55, 0.35), (0.4, 0.25, 0.35), (0.25, 0.15, 0.6)))  # one row more


def _check(
    drafted, q, p, rng, *, shift=0, accept=lambda p, q, x: min(1.0, float(p[x] / q[x])), redraw=_residual, bonus=-1
):
    """A check with options to get one part wrong: the target's row, the rule, the redraw, the bonus token's row."""
    for index, token in enumerate(drafted):
        row = p[index + shift]
        if not rng.accept(accept(row, q[index], token)):
            return index, rng.choose(redraw(row, q[index]))
    return len(drafted), rng.choose(p[bonus])


def goes_on_after_a_rejection(drafted, q, p, rng):
    kept = sum(rng.accept(min(1.0, float(p[i][x] / q[i][x]))) for i, x in enumerate(drafted))
    return kept, rng.choose(_residual(p[kept], q[kept]) if kept < len(drafted) else p[-1])


def every_draw(check):
    """Enumerate all drafts and draws of a check: (distribution of texts of three tokens, mean number kept)."""

    def enumerated():
        texts, mean, answered = torch.zeros(3, 3, 3, dtype=torch.float64), 0.0, False
        for rng in Exhaustive(100_000):
            drafted = [rng.choose(row) for row in DRAFT_ROWS]
            try:
                answer = attempt(check, list(drafted), DRAFT_ROWS.clone(), TARGET_ROWS.clone(), rng)
            except Ended as ended:
                if ended.verdict.ok is None and answered:
                    said = "Your function returns nothing in some branches: after a rejection, or when all tokens are "
                    raise Ended(wrong(f"{said}kept and the bonus token is drawn from the last row of p.")) from None
                raise
            kept, token = (
                number(part)
                for part in parts(answer, 2, "two values, how many tokens are kept and the token after them")
            )
            if kept not in range(3) or token not in range(3):
                said = f"Of 2 drafted tokens, 0, 1 or 2 can be kept, and the tokens are 0, 1 and 2; you gave {answer}."
                raise Ended(wrong(said))
            kept, token, answered = int(kept), int(token), True
            mean += kept * rng.weight
            # The rows here do not depend on the tokens before them, so the rows that are left give the distribution of
            # the rest of the text.
            rest = [*drafted[:kept], token]
            probs = [torch.eye(3, dtype=torch.float64)[x] for x in rest] + list(TARGET_ROWS[kept + 1 :])
            texts += rng.weight * probs[0][:, None, None] * probs[1][:, None] * probs[2]
        return texts, mean

    return enumerated


def about_distributions(given, due):
    distance = float(abs(given[0] - due[0].numpy()).sum() / 2)
    if distance > 1e-9:
        return f"The total variation from the target's distribution is {distance:.3f}, and it must be 0."
    return (
        f"The distribution is right, but of 2 drafted tokens you keep {given[1]:.3f} on average, and {due[1]:.3f} can "
        "be kept."
    )


check_check = Exercise(
    """Judge ``my_check(drafted, q, p, rng)``: how many drafted tokens are kept, and the token after them.""",
    [()],
    _check,
    {
        "After a rejection, you draw from p. But accepted tokens already supply a part of p: draw from the residual.": {
            "redraw": lambda p, q: p
        },
        "You check a token with the row *after* it. Row i of p is the target's distribution before it reads "
        "drafted[i].": {"shift": 1},
        "The rule is wrong: keep the token with probability min(1, p/q), using rng.accept.": (
            {"accept": lambda p, q, x: float(p[x])},
            {"accept": lambda p, q, x: min(1.0, float(q[x] / p[x]))},
            {"accept": lambda p, q, x: 1.0},
            {"accept": lambda p, q, x: float(p[x] >= q[x])},
            {"accept": lambda p, q, x: float(p.argmax() == x)},
            {"accept": lambda p, q, x: float(p[x] > 0.3)},
            {"accept": lambda p, q, x: float(p[x] > 0.5)},
        ),
        "The bonus token comes from the wrong row. After n kept tokens the row is p[n], the last one.": {"bonus": -2},
        "You continue after a rejection. The tokens drafted after it follow a token that is not in the text, so stop "
        "at the first rejection.": goes_on_after_a_rejection,
    },
    through=every_draw,
    show=lambda: "two drafted tokens",
    said=about_distributions,
    why="Added up over all possible draws, the distribution is exactly the target's. This proves that your check is "
    "exact.",
    hint="Try the three parts one by one: accepting, the residual, the bonus.",
)

# ----------------------------------------------------------------------------------------------------------------------
# How far to roll back


def _rollback(gamma, accepted):
    return gamma - accepted, max(gamma - 1 - accepted, 0)


check_rollback = Exercise(
    """Judge ``my_rollback(gamma, accepted)``: how many tokens the target has to forget, and how many the draft.""",
    [(5, 2), (4, 0), (3, 2), (1, 0), (4, 4), (1, 1)],
    _rollback,
    {
        "The two numbers are swapped. The target's number comes first, and the target has one token more to forget.": (
            lambda gamma, accepted: _rollback(gamma, accepted)[::-1]
        ),
        "The target forgets one token too few: the rejected token stays in its cache.": (
            lambda gamma, accepted: (max(gamma - accepted - 1, 0), _rollback(gamma, accepted)[1]),
            lambda gamma, accepted: (gamma - accepted - 1, _rollback(gamma, accepted)[1]),
        ),
        "The draft has read one token fewer than the target: it has chosen its last token, but not read it.": (
            lambda gamma, accepted: (gamma - accepted, gamma - accepted)
        ),
        "You cannot forget fewer than 0 tokens. If all tokens were accepted, the draft even has a token left to "
        "read.": (lambda gamma, accepted: (gamma - accepted, gamma - accepted - 1)),
        "You forget the whole draft. Accepted tokens belong to the text and can stay.": lambda gamma, accepted: (
            (gamma, gamma - 1)
        ),
    },
    show=lambda gamma, accepted: f"γ = {gamma} and {accepted} accepted",
    why="Both caches end with the last accepted token. If the whole draft was accepted, there is nothing to forget.",
)

# ----------------------------------------------------------------------------------------------------------------------
# γ from a measured cost curve


def tokens(alpha, gamma):
    return math.fsum(alpha**power for power in range(gamma + 1))


def _fastest(alpha, call_times, draft_time, made=tokens, time=lambda gamma, times: times[gamma], calls=None, least=0):
    """The fastest γ; options replace the number of tokens, the time of a target call, and the calls of the draft."""
    calls = calls or (lambda gamma: gamma)
    speeds = {
        gamma: made(alpha, gamma) / (calls(gamma) * draft_time + time(gamma, call_times))
        for gamma in range(least, len(call_times))
    }
    return max(speeds, key=speeds.__getitem__)


check_gamma = Exercise(
    """Judge ``my_gamma(alpha, call_times, draft_time)``: the γ with the most tokens per second, 0 if none pays.""",
    # In the first case, no draft pays.
    [
        (0.6, [3.0, 5.0, 5.1, 5.4, 5.6, 5.8, 6.0, 6.1, 9.1, 10.1, 10.6, 10.8], 0.8),
        (0.8, [5.0, 5.2, 5.4, 5.6, 9.5, 9.7, 9.9, 10.1, 14.0], 0.5),
        (0.9, [4.0, 4.6, 5.2, 5.8, 6.4, 7.0, 7.6, 8.2, 8.8, 9.4, 10.0], 0.3),
    ],
    _fastest,
    {
        "You chose the most tokens per *call*: that is always the largest γ. Divide by the time of the round.": (
            lambda alpha, call_times, draft_time: len(call_times) - 1
        ),
        "You used the same time for every target call, as the published formula does. Here, wider calls take longer.": {
            "time": lambda gamma, times: times[0]
        },
        "You used the time of a call with γ tokens. The call reads γ + 1: the text's last token, and the draft.": {
            "time": lambda gamma, times: times[max(gamma - 1, 0)]
        },
        "Drafting takes γ calls, one after the other. Add the time of all of them.": (
            {"calls": lambda gamma: 0},
            {"calls": lambda gamma: min(gamma, 1)},
        ),
        "If no draft pays, the answer is 0: compare with the plain loop too.": {"least": 1},
    },
    show=lambda alpha, times, draft: f"α = {alpha:g}, a draft call of {draft:g} and target calls of {times}",
    why="You divided the tokens of a round by its time. The flat parts of the cost curve decide which γ is best.",
    hint="Return the γ itself. The times cover γ up to len(call_times) - 1.",
)
