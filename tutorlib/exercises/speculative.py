"""Checkers for chapter 7: the accept probability, the residual, a whole check, expected tokens, the rollback, and γ.

Answers are tried on numbers made for the purpose, on which every usual mistake comes to another result than the right
one; an answer that equals one of them is told which. What is right is computed here from the papers' formulas, not with
`tutorlib.decoders` or `tutorlib.theory`. A whole check is not tried, it is enumerated: every way its draws can fall.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import torch

from ..proof import total_variation
from ..randomness import Exhaustive
from . import Verdict, _Ended, as_array, attempt, checker, number, right, wrong

# ----------------------------------------------------------------------------------------------------------------------
# The accept probability

# (p, q, token): once the target likes the token less than the draft does, once more, once as much, once not at all.
ACCEPT_CASES = (
    ((0.5, 0.2, 0.3), (0.1, 0.8, 0.1), 1),
    ((0.5, 0.2, 0.3), (0.1, 0.8, 0.1), 0),
    ((0.45, 0.35, 0.2), (0.3, 0.35, 0.35), 1),
    ((0.6, 0.0, 0.4), (0.3, 0.3, 0.4), 1),
)


@checker
def check_accept_probability(my_accept_probability) -> Verdict:
    """Judge ``my_accept_probability(p, q, token)``: with what probability a drafted token is kept.

    `p` and `q` are tensors, shape (vocab,): the target's and the draft's probabilities.
    """
    answers = [number(attempt(my_accept_probability, *_tensors(p, q), token)) for p, q, token in ACCEPT_CASES]
    expected = [min(1.0, p[token] / q[token]) for p, q, token in ACCEPT_CASES]
    case = _first_difference(answers, expected)
    if case is not None:
        p, q, token = ACCEPT_CASES[case]
        said = f"For a token with p = {p[token]:g} and q = {q[token]:g} you gave {answers[case]:g}, expected "
        said += f"{expected[case]:g}."
        for message, mistaken in ACCEPT_MISTAKES:
            if _first_difference(answers, [mistaken(*given) for given in ACCEPT_CASES]) is None:
                return wrong(f"{said} {message}")
        return wrong(said)
    return right("What the target likes at least as much as the draft is always kept, the rest in proportion.")


def _ratio(above, below) -> float:
    return above / below if below else math.inf


# What to say, and what the mistake makes of p, q and the token.
ACCEPT_MISTAKES = (
    ("The ratio is right, but a probability ends at 1: min(1, p/q).", lambda p, q, x: p[x] / q[x]),
    (
        "That is p alone. A token that the draft proposes often must be refused more often: divide by q.",
        lambda p, q, x: p[x],
    ),
    (
        "The ratio is upside down. Refused is what the draft says *more* often than the target: p over q.",
        lambda p, q, x: min(1.0, _ratio(q[x], p[x])),
    ),
    ("The ratio is upside down: p over q, and no more than 1.", lambda p, q, x: _ratio(q[x], p[x])),
    ("That is q, the probability of its being drafted in the first place.", lambda p, q, x: q[x]),
    (
        "That is min(p, q): drafted *and* kept. Being drafted has happened: divide by q.",
        lambda p, q, x: min(p[x], q[x]),
    ),
    ("You summed over all tokens. This is about the one that was drafted.", lambda p, q, x: sum(map(min, p, q))),
    ("You keep a token if it is the target's favourite. That is the greedy rule.", lambda p, q, x: p[x] == max(p)),
    (
        "You keep a token for certain, or not at all. Below 1, the ratio is a probability: a coin is flipped.",
        lambda p, q, x: p[x] >= q[x],
    ),
    ("That is the probability of refusing it.", lambda p, q, x: 1 - min(1.0, p[x] / q[x])),
    ("You took the larger of the two: a probability is at most 1, min(1, p/q).", lambda p, q, x: max(1.0, p[x] / q[x])),
)


# ----------------------------------------------------------------------------------------------------------------------
# The residual

RESIDUAL_CASES = (
    ((0.40, 0.30, 0.20, 0.10), (0.15, 0.25, 0.45, 0.15)),
    ((0.05, 0.35, 0.60), (0.55, 0.15, 0.30)),
    ((0.25, 0.25, 0.5), (0.25, 0.25, 0.5)),
)


@checker
def check_residual(my_residual) -> Verdict:
    """Judge ``my_residual(p, q)``: what is drawn from in the place of a refused token, shape (vocab,).

    `p` and `q` are tensors, shape (vocab,). Where they are equal nothing is left of the difference: then p.
    """
    for ours, theirs in RESIDUAL_CASES:
        given = _tensors(ours, theirs)
        answer = attempt(my_residual, *given)
        if [row.tolist() for row in given] != [list(ours), list(theirs)]:
            return wrong("Your function changed a tensor that it was given: work on a copy, p.clone().")
        answer = as_array(answer, (len(ours),), f"a probability for each of the {len(ours)} tokens")
        p, q = np.array(ours), np.array(theirs)
        excess = np.clip(p - q, 0, None)
        expected = excess / excess.sum() if excess.sum() else p
        if np.allclose(answer, expected, atol=1e-9):
            continue
        if not excess.sum():
            return wrong(
                f"Where p and q are equal, nothing is left, and you gave {_shown(answer)}: 0 divided by 0? Such a "
                "token is never refused but for rounding; draw from p then."
            )
        said = f"For p = {list(ours)} and q = {list(theirs)} you gave {_shown(answer)}, expected {_shown(expected)}."
        for mistaken, message in _residual_mistakes(p, q, excess):
            if np.allclose(answer, mistaken, atol=1e-9):
                return wrong(f"{message} {said}")
        return wrong(said)
    return right("What the target has more than the draft, and nothing else: the draft has given all the rest.")


def _residual_mistakes(p, q, excess):
    other = np.clip(q - p, 0, None)
    without = np.where(np.arange(len(p)) == (q - p).argmax(), 0, p)
    return (
        (p, "That is p itself. What the draft has already given in full would be given twice."),
        (q, "That is q, which had its chance."),
        (excess, "It does not sum to 1: divide by its sum, or nothing can be drawn from it."),
        (np.abs(p - q) / np.abs(p - q).sum(), "You took |p - q|. Where q is above p the target wants *less*: 0 there."),
        (np.abs(p - q), "You took |p - q|, and it does not sum to 1. Where q is above p the target wants less: 0."),
        (other / other.sum(), "The wrong way round: q - p is what the draft says too often. p - q."),
        (other, "The wrong way round, and not normalised: max(p - q, 0), divided by its sum."),
        (p - q, "There are negative numbers: no probability is. Cut them off at 0, then divide by the sum."),
        (_softmax(excess), "A softmax does not normalise probabilities, it distorts them: divide by the sum."),
        (_softmax(p - q), "A softmax of differences: cut off at 0 and divide by the sum."),
        (
            without / without.sum(),
            "You took the refused token out of p. Others may have been drafted too often as well.",
        ),
        (
            p / p.sum() * (p > q) / (p * (p > q)).sum(),
            "You took p where it is above q. Take what it has *more*: p - q.",
        ),
        (p / q / (p / q).sum(), "You took p / q. The residual is a difference, what the target has *more*: p - q."),
    )


# ----------------------------------------------------------------------------------------------------------------------
# A whole check, enumerated

# Found by trying: every mistake below comes to another distribution than the right check, and than the other mistakes.
DRAFT_ROWS = ((0.05, 0.45, 0.5), (0.6, 0.1, 0.3))
TARGET_ROWS = ((0.1, 0.55, 0.35), (0.4, 0.25, 0.35), (0.25, 0.15, 0.6))  # one row more


@checker
def check_check(my_check) -> Verdict:
    """Judge ``my_check(drafted, q, p, rng)``: how many drafted tokens are kept, and the token that comes after them.

    `drafted` are n tokens, `q` their n rows of draft probabilities, `p` n + 1 rows of target probabilities (tensors,
    shape (rows, vocab)). `rng` has `accept(probability)` and `choose(probs)`. Every draft, and every way that the draws
    can fall, is gone through; what comes out has to have the target's distribution.
    """
    try:
        found = _law(lambda *given: _checked_answer(attempt(my_check, *given)))
    except _Ended as ended:
        if ended.verdict.ok is None and _answers_at_times(my_check):
            return wrong(
                "Your function ends without an answer in some branches. There is one after a refusal, and one when "
                "all are kept: then a bonus token is drawn from the last row of p."
            )
        raise
    expected = _law(_right_check)
    distance = total_variation(found, expected)
    if distance < 1e-9:
        shortest = _mean_kept(my_check)
        if shortest < _mean_kept(_right_check) - 1e-9:
            return wrong(
                f"The distribution is right, but of 2 drafted tokens you keep {shortest:.3f} on average, and "
                f"{_mean_kept(_right_check):.3f} can be kept. With min(1, p/q) none is refused needlessly, and when "
                "all are kept the bonus token comes on top of them."
            )
        return right(f"Total variation {distance:.0e} over every branch: your check is proved exact.")
    for message, law in _mistaken_laws():
        if total_variation(found, law) < 1e-9:
            return wrong(f"Total variation from the target's distribution: {distance:.3f}. {message}")
    return wrong(
        f"Total variation from the target's distribution: {distance:.3f}; it must be 0. None of the usual mistakes "
        "comes to this distribution; try the three parts one by one: accepting, the residual, the bonus."
    )


def _law(check: Callable) -> dict:
    """The distribution of the first three tokens after a round with this check, and plain draws from the target."""
    law: dict[tuple[int, ...], float] = {}
    q, p = _rows(DRAFT_ROWS), _rows(TARGET_ROWS)
    for rng in Exhaustive(100_000):
        drafted = [rng.choose(row) for row in q]
        kept, token = check(list(drafted), q.clone(), p.clone(), rng)
        # The rows here do not depend on the tokens before them, so the rows that are left say how the text goes on.
        left = TARGET_ROWS[kept + 1 :]
        for rest in itertools.product(range(len(TARGET_ROWS[0])), repeat=len(left)):
            tokens = (*drafted[:kept], token, *rest)
            law[tokens] = law.get(tokens, 0.0) + rng.weight * math.prod(row[x] for row, x in zip(left, rest))
    return law


@cache
def _mistaken_laws() -> list[tuple[str, dict]]:
    return [(message, _law(mistaken)) for mistaken, message in CHECK_MISTAKES]


def _mean_kept(check: Callable) -> float:
    q, p = _rows(DRAFT_ROWS), _rows(TARGET_ROWS)
    total = 0.0
    for rng in Exhaustive(200_000):
        drafted = [rng.choose(row) for row in q]
        kept, _ = check(list(drafted), q.clone(), p.clone(), rng)
        total += kept * rng.weight
    return total


def _answers_at_times(check: Callable) -> bool:
    """Whether there is a branch in which a check returns something."""
    q, p = _rows(DRAFT_ROWS), _rows(TARGET_ROWS)
    for rng in Exhaustive(100_000):
        drafted = [rng.choose(row) for row in q]
        try:
            attempt(check, list(drafted), q.clone(), p.clone(), rng)
        except _Ended as ended:
            if ended.verdict.ok is None:
                continue
        return True
    return False


def _checked_answer(answer) -> tuple[int, int]:
    """How many are kept, and a token; the checker ends with a ✗ for anything else."""
    if not isinstance(answer, (tuple, list)) or len(answer) != 2:
        raise _Ended(wrong(f"Expected two numbers, how many are kept and the token after them; got {answer!r}."))
    kept, token = (number(value) for value in answer)
    if kept not in range(len(DRAFT_ROWS) + 1):
        raise _Ended(wrong(f"Of 2 drafted tokens 0, 1 or 2 can be kept; you gave {kept}."))
    if token not in range(len(DRAFT_ROWS[0])):
        raise _Ended(wrong(f"Expected one of the tokens 0, 1 and 2 after those kept; you gave {token}."))
    return int(kept), int(token)


def _check_with(*, shift=0, accept=None, redraw=None, bonus=-1) -> Callable:
    """A check with one part changed: the row that judges, the rule, what is drawn after it, the bonus's row."""
    accept = accept or (lambda ours, theirs, token: min(1.0, float(ours[token] / theirs[token])))
    redraw = redraw or _residual

    def check(drafted, q, p, rng):
        for place, token in enumerate(drafted):
            ours = p[place + shift]
            if not rng.accept(accept(ours, q[place], token)):
                return place, rng.choose(redraw(ours, q[place]))
        return len(drafted), rng.choose(p[bonus])

    return check


def _residual(ours, theirs):
    excess = (ours - theirs).clamp(min=0)
    return excess / excess.sum() if excess.sum() > 0 else ours


def _absolute(ours, theirs):
    excess = (ours - theirs).abs()
    return excess / excess.sum() if excess.sum() > 0 else ours


def _itself(ours, theirs):
    return ours


def _likeliest(row):
    return (torch.arange(len(row)) == row.argmax()).double()


def _goes_on(drafted, q, p, rng):
    """Counts what is accepted anywhere, also after a refusal; then the residual at the place after those."""
    kept = sum(rng.accept(min(1.0, float(p[i][x] / q[i][x]))) for i, x in enumerate(drafted))
    return kept, rng.choose(_residual(p[kept], q[kept]) if kept < len(drafted) else p[-1])


def _goes_on_and_redraws(drafted, q, p, rng):
    """The same, but the token is drawn at the place of each refusal: the last one stays."""
    kept, token = 0, None
    for place, drafted_token in enumerate(drafted):
        if rng.accept(min(1.0, float(p[place][drafted_token] / q[place][drafted_token]))):
            kept += 1
        else:
            token = rng.choose(_residual(p[place], q[place]))
    return kept, rng.choose(p[-1]) if token is None else token


def _redraws_after(residual: bool):
    """After a refusal the token is drawn from the row after it."""

    def check(drafted, q, p, rng):
        for place, token in enumerate(drafted):
            if not rng.accept(min(1.0, float(p[place][token] / q[place][token]))):
                row = p[place + 1]
                return place, rng.choose(_residual(row, q[place]) if residual else row)
        return len(drafted), rng.choose(p[-1])

    return check


def _counts_the_refused(drafted, q, p, rng):
    kept, token = _right_check(drafted, q, p, rng)
    return min(kept + 1, len(drafted)), token


def _takes_the_likeliest(redraw: bool, bonus: bool):
    def check(drafted, q, p, rng):
        for place, token in enumerate(drafted):
            if not rng.accept(min(1.0, float(p[place][token] / q[place][token]))):
                rest = _residual(p[place], q[place])
                return place, rng.choose(_likeliest(rest) if redraw else rest)
        return len(drafted), rng.choose(_likeliest(p[-1]) if bonus else p[-1])

    return check


_right_check = _check_with()

CHECK_MISTAKES: Sequence[tuple[Callable, str]] = (
    (
        _check_with(redraw=_itself),
        "After a refusal you draw from p. What the draft has given already comes twice: draw from the residual.",
    ),
    (_check_with(redraw=_absolute), "Your residual is |p - q|. Cut off at 0: where q is above p nothing is missing."),
    (
        _check_with(shift=1),
        "You judge by the row *after* the token. Row i of p is what the target says before it has read drafted[i].",
    ),
    (
        _check_with(accept=lambda ours, theirs, token: float(ours[token])),
        "You accept with probability p. Divide by q: it was not drafted evenly.",
    ),
    (
        _check_with(accept=lambda ours, theirs, token: min(1.0, float(theirs[token] / ours[token]))),
        "You accept with q/p: upside down.",
    ),
    (
        _check_with(accept=lambda *_: 1.0),
        "You accept everything: this is the draft's distribution, and no check. (Or you compare with a bar that "
        "nothing here is below: the ratio is a probability, flip a coin with it.)",
    ),
    (
        _check_with(accept=lambda ours, theirs, token: float(ours[token] >= theirs[token])),
        "You accept only where p is at least q. Below that, the ratio is a probability: flip the coin.",
    ),
    *(
        (
            _check_with(accept=lambda ours, theirs, token, bar=bar: float(ours[token] > bar), redraw=redraw),
            f"You accept above a fixed threshold{also}. No threshold makes a distribution right: what the target finds "
            "less likely than that never comes by being drafted, and the rest too often.",
        )
        for bar in (0.2, 0.25, 0.3, 0.4, 0.5)
        for redraw, also in ((None, ""), (_itself, " and draw from p otherwise"))
    ),
    (
        _check_with(accept=lambda ours, theirs, token: float(ours.argmax() == token)),
        "You accept the target's favourite and nothing else: that is the greedy rule.",
    ),
    (
        _check_with(bonus=-2),
        "The bonus token comes from the wrong row: after n kept tokens the row is p[n], the last one.",
    ),
    *(
        (
            mistaken,
            "You go on after a refusal. What was drafted there follows a token that is not in the text: stop at the "
            "first.",
        )
        for mistaken in (_goes_on, _goes_on_and_redraws)
    ),
    *(
        (
            _redraws_after(residual),
            "After a refusal you draw from the row *after* the refused token. It is not in the text: the row that "
            "judged it, p[i], says what comes in its place.",
        )
        for residual in (True, False)
    ),
    (_counts_the_refused, "You count the refused token among those kept: refused at place i, i are kept."),
    *(
        (
            _takes_the_likeliest(redraw, bonus),
            f"You take the likeliest token {where}, instead of drawing one: rng.choose.",
        )
        for redraw, bonus, where in (
            (True, True, "after a refusal and as the bonus"),
            (False, True, "as the bonus"),
        )
    ),
)


# ----------------------------------------------------------------------------------------------------------------------
# Expected tokens


@checker
def check_expected_tokens(my_expected_tokens) -> Verdict:
    """Judge ``my_expected_tokens(alpha, gamma)``: how many tokens a round gives on average.

    Each drafted token is accepted with probability `alpha`, whatever became of the others.
    """
    answers = [_or_nan(my_expected_tokens, alpha, gamma) for alpha, gamma in EXPECTED_CASES]
    expected = [_tokens(alpha, gamma) for alpha, gamma in EXPECTED_CASES]
    case = _first_difference(answers, expected)
    if case is not None:
        alpha, gamma = EXPECTED_CASES[case]
        said = f"For α = {alpha:g} and γ = {gamma} you gave {answers[case]:g}, expected {expected[case]:g}."
        if not math.isfinite(answers[case]) and alpha == 1 and case == len(answers) - 1:
            return wrong(f"{said} At α = 1 the closed form is 0/0: add the powers of α up, or treat 1 by itself.")
        for message, mistaken in EXPECTED_MISTAKES:
            made = [mistaken(*given) for given in EXPECTED_CASES]
            # A closed form divides by 0 at α = 1: there is no answer there to compare.
            if _first_difference([m if math.isnan(a) else a for a, m in zip(answers, made, strict=True)], made) is None:
                return wrong(f"{said} {message}")
        return wrong(said)
    return right("1 + α + α² + ... + α^γ: from 1, when nothing is accepted, to γ + 1, when everything is.")


def _or_nan(function: Callable, alpha: float, gamma: int) -> float:
    """A reader's answer; NaN where the closed form, at α = 1, divides by 0."""
    try:
        return number(attempt(function, alpha, gamma))
    except _Ended as ended:
        if alpha == 1 and isinstance(ended.__cause__, ZeroDivisionError):
            return math.nan
        raise


EXPECTED_CASES = ((0.8, 4), (0.6, 3), (0.0, 5), (0.9, 1), (1.0, 4))
# What to say, and what the mistake makes of alpha and gamma.
EXPECTED_MISTAKES = (
    (
        "That is (1 - α^γ)/(1 - α): one power too few. When all γ are accepted, a bonus token comes on top.",
        lambda alpha, gamma: _tokens(alpha, gamma) - alpha**gamma,
    ),
    (
        "You counted the accepted tokens only. The target adds one of its own in every round, whatever happens.",
        lambda alpha, gamma: _tokens(alpha, gamma) - 1,
    ),
    ("One too many: a round ends with the target's one token.", lambda alpha, gamma: _tokens(alpha, gamma) + 1),
    (
        "You added α for each drafted token. But the third counts only if the first two were accepted too: α³.",
        lambda alpha, gamma: 1 + alpha * gamma,
    ),
    (
        "That is α·γ. A token after a refused one is lost, and the target adds one of its own.",
        lambda alpha, gamma: alpha * gamma,
    ),
    (
        "That is 1/(1 - α), the limit of an endless draft: it is cut off after γ.",
        lambda alpha, gamma: _ratio(1.0, 1 - alpha),
    ),
    (
        "You counted all or nothing. A draft may be accepted in part.",
        lambda alpha, gamma: 1 + gamma * alpha**gamma,
    ),
    ("That is the most that a round can give, not the mean.", lambda alpha, gamma: gamma + 1),
)


# ----------------------------------------------------------------------------------------------------------------------
# The rollback


@checker
def check_rollback(my_rollback) -> Verdict:
    """Judge ``my_rollback(gamma, accepted)``: how many tokens the target has to forget, and how many the draft.

    The target has read all `gamma` drafted tokens. The draft has read all but the last: nobody asked it what comes
    after that one.
    """
    answers = []
    for gamma, accepted in ROLLBACK_CASES:
        answer = attempt(my_rollback, gamma, accepted)
        if not isinstance(answer, (tuple, list)) or len(answer) != 2:
            return wrong(f"Expected two numbers, the target's and the draft's; got {answer!r}.")
        answers.append([number(value) for value in answer])
    if answers == [[_unread_less(*given), given[0] - given[1]] for given in ROLLBACK_CASES]:
        return wrong("The two are in the other order: the target's comes first, and it has one token more to forget.")
    for who, mine, rule, mistakes in (
        ("target", [ours for ours, _ in answers], lambda gamma, accepted: gamma - accepted, TARGET_MISTAKES),
        ("draft", [theirs for _, theirs in answers], _unread_less, DRAFT_MISTAKES),
    ):
        expected = [rule(*given) for given in ROLLBACK_CASES]
        case = _first_difference(mine, expected)
        if case is None:
            continue
        gamma, accepted = ROLLBACK_CASES[case]
        said = f"γ = {gamma}, {accepted} accepted: you gave {mine[case]} for the {who}, expected {expected[case]}."
        for message, mistaken in mistakes:
            if _first_difference(mine, [mistaken(*given) for given in ROLLBACK_CASES]) is None:
                return wrong(f"{said} {message}")
        return wrong(said)
    return right("Both go back to the end of what was accepted; after a full draft there is nothing to go back from.")


def _unread_less(gamma, accepted) -> int:
    """What the draft has to forget: it has read one drafted token less than the target."""
    return max(gamma - 1 - accepted, 0)


ROLLBACK_CASES = ((5, 2), (4, 0), (3, 2), (1, 0), (4, 4), (1, 1))  # γ, accepted
TARGET_MISTAKES = (
    (
        "One too few: the refused token itself stays in the cache, and the new one would be read after it.",
        lambda gamma, accepted: gamma - accepted - 1,
    ),
    (
        "One too few: the refused token itself stays in the cache, and the new one would be read after it.",
        _unread_less,
    ),
    (
        "One too many: an accepted token, which is part of the text, would be lost.",
        lambda gamma, accepted: gamma - accepted + 1,
    ),
    ("You count what was accepted. What must go is the rest.", lambda gamma, accepted: accepted),
    (
        "You throw away the whole draft. What was accepted has been read, and can stay.",
        lambda gamma, accepted: gamma,
    ),
)
DRAFT_MISTAKES = (
    (
        "The draft has not read as much as the target: its last token it has only said.",
        lambda gamma, accepted: gamma - accepted,
    ),
    (
        "Less than nothing cannot be forgotten: when all was accepted, the draft is even one token behind.",
        lambda gamma, accepted: gamma - 1 - accepted,
    ),
    ("You count what was accepted. What must go is the rest.", lambda gamma, accepted: accepted),
    (
        "You throw away all that the draft has read of its own. What was accepted can stay.",
        lambda gamma, accepted: gamma - 1,
    ),
)


# ----------------------------------------------------------------------------------------------------------------------
# γ from a measured cost curve

# alpha, the times of target calls with 1, 2, 3, ... tokens, and the draft's time. Nothing pays in the first.
GAMMA_CASES = (
    (0.6, (3.0, 5.0, 5.1, 5.4, 5.6, 5.8, 6.0, 6.1, 9.1, 10.1, 10.6, 10.8), 0.8),
    (0.8, (5.0, 5.2, 5.4, 5.6, 9.5, 9.7, 9.9, 10.1, 14.0), 0.5),
    (0.9, (4.0, 4.6, 5.2, 5.8, 6.4, 7.0, 7.6, 8.2, 8.8, 9.4, 10.0), 0.3),
)


@checker
def check_gamma(my_gamma) -> Verdict:
    """Judge ``my_gamma(alpha, call_times, draft_time)``: the γ that makes the most tokens in a second; 0 if none pays.

    ``call_times[i]`` is what a target call with i + 1 tokens takes, `draft_time` what a draft call takes.
    """
    answers = [number(attempt(my_gamma, alpha, list(times), draft)) for alpha, times, draft in GAMMA_CASES]
    right_answers = _choices(lambda tokens, last, gamma, time, draft: tokens / (gamma * draft + time(gamma + 1)))
    if answers == right_answers:
        return right("Tokens of a round over the time of a round, for each γ: the cheap steps of the curve decide.")
    case = next(case for case in range(len(answers)) if answers[case] != right_answers[case])
    alpha, times, draft = GAMMA_CASES[case]
    said = f"For α = {alpha:g}, a draft call of {draft:g} and target calls of {list(times)} you chose {answers[case]}, "
    said += f"and not {right_answers[case]}."
    if answers[case] != int(answers[case]):
        return wrong(f"{said} Return the γ itself, a whole number, and not what it comes to.")
    if not 0 <= answers[case] < len(times):
        return wrong(f"{said} The times cover γ up to {len(times) - 1}: a call has γ + 1 tokens.")
    for message, speed, least in GAMMA_MISTAKES:
        if answers == _choices(speed, least):
            return wrong(f"{said} {message}")
    return wrong(said)


# What to say, and a wrong speed: tokens of a round, the last power of alpha among them, γ, the time of a target call by
# its tokens, the time of a draft call. And the least γ that is looked at.
GAMMA_MISTAKES = (
    (
        "You took the most tokens for a *call*: that is always the largest γ. Divide by the time of the round.",
        lambda tokens, last, gamma, time, draft: tokens,
        0,
    ),
    (
        "You priced every target call like one with a single token. That is the published formula; here the width "
        "costs something.",
        lambda tokens, last, gamma, time, draft: tokens / (gamma * draft + time(1)),
        0,
    ),
    (
        "You took the time of a call with γ tokens. It has γ + 1: the last token of the text, and the draft.",
        lambda tokens, last, gamma, time, draft: tokens / (gamma * draft + time(max(gamma, 1))),
        0,
    ),
    (
        "You left out the time of drafting.",
        lambda tokens, last, gamma, time, draft: tokens / time(gamma + 1),
        0,
    ),
    (
        "You counted one draft call. Drafting takes γ of them, one after the other.",
        lambda tokens, last, gamma, time, draft: tokens / ((draft if gamma else 0) + time(gamma + 1)),
        0,
    ),
    (
        "You left out one token of the round: the sum goes from 1, the target's own, to α^γ.",
        lambda tokens, last, gamma, time, draft: (tokens - last) / (gamma * draft + time(gamma + 1)),
        0,
    ),
    (
        "You left out one token of the round: the sum goes from 1, the target's own, to α^γ.",
        lambda tokens, last, gamma, time, draft: (tokens - last) / (gamma * draft + time(gamma + 1)),
        1,
    ),
    (
        "Where no draft pays, the answer is 0: compare with the plain loop, too.",
        lambda tokens, last, gamma, time, draft: tokens / (gamma * draft + time(gamma + 1)),
        1,
    ),
)


def _choices(speed: Callable, least: int = 0) -> list[int]:
    """The fastest γ of each case, if this is the speed."""
    chosen = []
    for alpha, times, draft in GAMMA_CASES:
        speeds = {
            gamma: speed(_tokens(alpha, gamma), alpha**gamma, gamma, lambda count, t=times: t[count - 1], draft)
            for gamma in range(least, len(times))
        }
        chosen.append(max(speeds, key=speeds.get))
    return chosen


def _tokens(alpha, gamma) -> float:
    return math.fsum(alpha**place for place in range(gamma + 1))


# ----------------------------------------------------------------------------------------------------------------------
# Small parts


def _first_difference(answers: Sequence[float], expected: Sequence[float]) -> int | None:
    """The first case in which two lists of answers differ; None where they are the same all through."""
    pairs = zip(answers, expected, strict=True)
    differ = (case for case, (one, other) in enumerate(pairs) if not (one == other or abs(one - other) < 1e-9))
    return next(differ, None)


def _tensors(*rows):
    return [torch.tensor(row, dtype=torch.float64) for row in rows]


def _rows(rows) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def _softmax(values) -> np.ndarray:
    weights = np.exp(values - values.max())
    return weights / weights.sum()


def _shown(row) -> list[float]:
    return [round(float(value), 4) for value in row]
