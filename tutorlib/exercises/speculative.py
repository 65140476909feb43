"""The exercises of the speculative chapter: accepting, the residual, a whole check, expected tokens, rollback, and γ.

A whole check is not tried but enumerated: every way its random draws can come out.
"""

import math

import torch

from ..randomness import Exhaustive
from .judge import Ended, Exercise, attempt, normalised, number, parts, tensor, wrong

# ----------------------------------------------------------------------------------------------------------------------
# The accept probability and the residual

TARGET, DRAFT = tensor((0.5, 0.2, 0.3)), tensor((0.1, 0.8, 0.1))

check_accept_probability = Exercise(
    """Judge ``my_accept_probability(p, q, token)``: with what probability a drafted token is kept.""",
    # The target finds the token less likely than the draft does, more likely, as likely, and impossible.
    [
        (TARGET, DRAFT, 1),
        (TARGET, DRAFT, 0),
        (tensor((0.45, 0.35, 0.2)), tensor((0.3, 0.35, 0.35)), 1),
        (tensor((0.6, 0.0, 0.4)), tensor((0.3, 0.3, 0.4)), 1),
    ],
    lambda p, q, x: min(1.0, float(p[x] / q[x])),
    {
        "The ratio is right, but a probability is at most 1: min(1, p/q).": lambda p, q, x: p[x] / q[x],
        "That is p alone. A token that the draft proposes often has to be rejected more often: divide by q.": (
            lambda p, q, x: p[x]
        ),
        "The ratio is upside down. What the draft says *more* often than the target is rejected: p over q.": (
            lambda p, q, x: min(1.0, float(q[x] / p[x])),
            lambda p, q, x: q[x] / p[x],
        ),
        "You keep a token for certain, or not at all. Below 1 the ratio is a probability: draw with it.": (
            lambda p, q, x: float(p[x] >= q[x])
        ),
        "That is the probability of rejecting it.": lambda p, q, x: 1 - min(1.0, float(p[x] / q[x])),
    },
    why="What the target finds at least as likely as the draft does is always kept, and the rest in proportion.",
)


def residual(p, q):
    excess = (p - q).clamp(min=0)
    return normalised(excess) if excess.sum() > 0 else p


check_residual = Exercise(
    """Judge ``my_residual(p, q)``: what is drawn from in place of a rejected token, shape (vocab,).""",
    [
        (tensor((0.40, 0.30, 0.20, 0.10)), tensor((0.15, 0.25, 0.45, 0.15))),
        (tensor((0.05, 0.35, 0.60)), tensor((0.55, 0.15, 0.30))),
        (tensor((0.25, 0.25, 0.5)), tensor((0.25, 0.25, 0.5))),
    ],
    residual,
    {
        "That is p itself. What the draft has given in full already would be given twice.": lambda p, q: p,
        "It does not sum to 1: divide by its sum, or nothing can be drawn from it.": lambda p, q: (p - q).clamp(min=0),
        "You took |p - q|. Where q is above p the target wants *less*, so it is 0 there.": (
            lambda p, q: normalised((p - q).abs()),
            lambda p, q: (p - q).abs(),
        ),
        "That is the wrong way round: q - p is what the draft says too often. Take p - q.": (
            lambda p, q: residual(q, p),
            lambda p, q: (q - p).clamp(min=0),
        ),
        "Where p and q are equal, nothing is left, and 0 divided by 0 is not a number. A token is rejected there only "
        "because of rounding: draw from p then.": lambda p, q: normalised((p - q).clamp(min=0)),
    },
    why="What the target has more than the draft, and nothing else: the draft has given all the rest.",
    hint="Cut p - q off at 0, then divide by the sum.",
)

# ----------------------------------------------------------------------------------------------------------------------
# A whole check, enumerated

# Found by trying: every mistake gives another distribution than the right check, and than the other mistakes.
DRAFT_ROWS = tensor(((0.05, 0.45, 0.5), (0.6, 0.1, 0.3)))
TARGET_ROWS = tensor(((0.1, 0.55, 0.35), (0.4, 0.25, 0.35), (0.25, 0.15, 0.6)))  # one row more


def check(
    drafted, q, p, rng, *, shift=0, accept=lambda p, q, x: min(1.0, float(p[x] / q[x])), redraw=residual, bonus=-1
):
    """A check, with options to get one part wrong: the row that judges, the rule, the redraw, the bonus's row."""
    for index, token in enumerate(drafted):
        row = p[index + shift]
        if not rng.accept(accept(row, q[index], token)):
            return index, rng.choose(redraw(row, q[index]))
    return len(drafted), rng.choose(p[bonus])


def goes_on_after_a_rejection(drafted, q, p, rng):
    kept = sum(rng.accept(min(1.0, float(p[i][x] / q[i][x]))) for i, x in enumerate(drafted))
    return kept, rng.choose(residual(p[kept], q[kept]) if kept < len(drafted) else p[-1])


def every_draw(check):
    """What a check does to texts of three tokens, over all drafts and draws: (their distribution, mean kept)."""

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
            kept, token = (number(part) for part in parts(answer, 2, "how many are kept, and the token after them"))
            if kept not in range(3) or token not in range(3):
                said = f"Of 2 drafted tokens 0, 1 or 2 can be kept, and there are tokens 0, 1 and 2; you gave {answer}."
                raise Ended(wrong(said))
            answered, mean = True, mean + kept * rng.weight
            # The rows here do not depend on the tokens before them, so the rows that are left say how the text goes on.
            rest = [*drafted[:kept], token]
            probs = [torch.eye(3, dtype=torch.float64)[x] for x in rest] + list(TARGET_ROWS[kept + 1 :])
            texts += rng.weight * probs[0][:, None, None] * probs[1][:, None] * probs[2]
        return texts, mean

    return enumerated


def about_distributions(given, due):
    distance = float(abs(given[0] - due[0].numpy()).sum() / 2)
    if distance > 1e-9:
        return f"Total variation from the target's distribution: {distance:.3f}; it must be 0."
    return (
        f"The distribution is right, but of 2 drafted tokens you keep {given[1]:.3f} on average, and {due[1]:.3f} can "
        "be kept."
    )


check_check = Exercise(
    """Judge ``my_check(drafted, q, p, rng)``: how many drafted tokens are kept, and the token after them.""",
    [()],
    check,
    {
        "After a rejection you draw from p. What the draft has given already comes twice: draw from the residual.": {
            "redraw": lambda p, q: p
        },
        "You judge by the row *after* the token. Row i of p is what the target says before it has read drafted[i].": {
            "shift": 1
        },
        "The rule is wrong: keep the token with probability min(1, p/q), by rng.accept.": (
            {"accept": lambda p, q, x: float(p[x])},
            {"accept": lambda p, q, x: min(1.0, float(q[x] / p[x]))},
            {"accept": lambda p, q, x: 1.0},
            {"accept": lambda p, q, x: float(p[x] >= q[x])},
            {"accept": lambda p, q, x: float(p.argmax() == x)},
            {"accept": lambda p, q, x: float(p[x] > 0.3)},
            {"accept": lambda p, q, x: float(p[x] > 0.5)},
        ),
        "The bonus token comes from the wrong row. After n kept tokens the row is p[n], the last one.": {"bonus": -2},
        "You go on after a rejection. What was drafted there follows a token that is not in the text: stop at the "
        "first.": goes_on_after_a_rejection,
    },
    through=every_draw,
    show=lambda: "two drafted tokens",
    said=about_distributions,
    why="The distribution is the target's, over every branch: your check is proved exact.",
    hint="Try the three parts one by one: accepting, the residual, the bonus.",
)

# ----------------------------------------------------------------------------------------------------------------------
# Expected tokens


def tokens(alpha, gamma):
    return math.fsum(alpha**power for power in range(gamma + 1))


check_expected_tokens = Exercise(
    """Judge ``my_expected_tokens(alpha, gamma)``: how many tokens a round gives on average.""",
    [(0.8, 4), (0.6, 3), (0.0, 5), (0.9, 1), (1.0, 4)],
    tokens,
    {
        "That is one power too few: when all γ are accepted, a bonus token is added.": lambda alpha, gamma: tokens(
            alpha, gamma - 1
        ),
        "You counted the accepted tokens only. The target adds one of its own in every round.": lambda alpha, gamma: (
            tokens(alpha, gamma) - 1
        ),
        "You added α for each drafted token. But the third counts only if the first two were accepted too: α³.": (
            lambda alpha, gamma: 1 + alpha * gamma,
            lambda alpha, gamma: alpha * gamma,
        ),
        "You counted all or nothing. A draft may be accepted in part.": lambda alpha, gamma: 1 + gamma * alpha**gamma,
        "At α = 1 the closed form is 0/0: add the powers of α, or treat 1 by itself.": lambda alpha, gamma: (
            (1 - alpha ** (gamma + 1)) / (1 - alpha)
        ),
    },
    why="1 + α + α² + ... + α^γ: from 1, when nothing is accepted, to γ + 1, when everything is.",
)


def rollback(gamma, accepted):
    return gamma - accepted, max(gamma - 1 - accepted, 0)


check_rollback = Exercise(
    """Judge ``my_rollback(gamma, accepted)``: how many tokens the target has to forget, and how many the draft.""",
    [(5, 2), (4, 0), (3, 2), (1, 0), (4, 4), (1, 1)],
    rollback,
    {
        "The two are in the other order: the target's comes first, and it has one token more to forget.": (
            lambda gamma, accepted: rollback(gamma, accepted)[::-1]
        ),
        "The target forgets one too few: the rejected token stays in its cache, and the new one is read after it.": (
            lambda gamma, accepted: (max(gamma - accepted - 1, 0), rollback(gamma, accepted)[1]),
            lambda gamma, accepted: (gamma - accepted - 1, rollback(gamma, accepted)[1]),
        ),
        "The draft has not read as much as the target: it has said its last token, and not read it.": (
            lambda gamma, accepted: (gamma - accepted, gamma - accepted)
        ),
        "Less than nothing cannot be forgotten. When all was accepted, the draft has even one token still to read.": (
            lambda gamma, accepted: (gamma - accepted, gamma - accepted - 1)
        ),
        "You forget the whole draft. What was accepted has been read, and can stay.": lambda gamma, accepted: (
            (gamma, gamma - 1)
        ),
    },
    show=lambda gamma, accepted: f"γ = {gamma} and {accepted} accepted",
    why="Both go back to the end of what was accepted. After a full draft there is nothing to forget.",
)

# ----------------------------------------------------------------------------------------------------------------------
# γ from a measured cost curve


def best_gamma(alpha, call_times, draft_time, made=tokens, time=lambda gamma, times: times[gamma], calls=None, least=0):
    """The fastest γ; options are other counts of tokens made, times of the target's call, and calls of the draft."""
    calls = calls or (lambda gamma: gamma)
    speeds = {
        gamma: made(alpha, gamma) / (calls(gamma) * draft_time + time(gamma, call_times))
        for gamma in range(least, len(call_times))
    }
    return max(speeds, key=speeds.get)


check_gamma = Exercise(
    """Judge ``my_gamma(alpha, call_times, draft_time)``: the γ that makes the most tokens a second, 0 if none pays.""",
    # Nothing pays in the first case.
    [
        (0.6, [3.0, 5.0, 5.1, 5.4, 5.6, 5.8, 6.0, 6.1, 9.1, 10.1, 10.6, 10.8], 0.8),
        (0.8, [5.0, 5.2, 5.4, 5.6, 9.5, 9.7, 9.9, 10.1, 14.0], 0.5),
        (0.9, [4.0, 4.6, 5.2, 5.8, 6.4, 7.0, 7.6, 8.2, 8.8, 9.4, 10.0], 0.3),
    ],
    best_gamma,
    {
        "You took the most tokens for a *call*: that is always the largest γ. Divide by the time of the round.": (
            lambda alpha, call_times, draft_time: len(call_times) - 1
        ),
        "You took the same time for every target call, as the published formula does. Here a wider call costs more.": {
            "time": lambda gamma, times: times[0]
        },
        "You took the time of a call with γ tokens. It has γ + 1: the last token of the text, and the draft.": {
            "time": lambda gamma, times: times[max(gamma - 1, 0)]
        },
        "Drafting takes γ calls, one after the other.": (
            {"calls": lambda gamma: 0},
            {"calls": lambda gamma: min(gamma, 1)},
        ),
        "Where no draft pays, the answer is 0: compare with the plain loop too.": {"least": 1},
    },
    show=lambda alpha, times, draft: f"α = {alpha:g}, a draft call of {draft:g} and target calls of {times}",
    why="Tokens of a round over the time of a round, for each γ: the flat parts of the cost curve decide.",
    hint="Return the γ itself. The times cover γ up to len(call_times) - 1.",
)
