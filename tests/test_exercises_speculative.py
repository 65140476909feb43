"""The checkers of chapter 7 accept what is right, and tell every usual mistake which one it is."""

import itertools
import math

import pytest
import torch
from exercise_answers import begins_unanswered, found, has_right_solutions, is_right, uses_every_checker

from tutorlib import theory
from tutorlib.checking import check_sampled, exact, residual
from tutorlib.exercises import speculative as exercises
from tutorlib.exercises.speculative import (
    check_accept_probability,
    check_check,
    check_expected_tokens,
    check_gamma,
    check_residual,
    check_rollback,
)
from tutorlib.proof import total_variation
from tutorlib.tree import TokenTree

FUNCTIONS = [check_accept_probability, check_residual, check_check, check_expected_tokens, check_rollback, check_gamma]


@pytest.mark.parametrize("check", FUNCTIONS)
def test_a_stub_is_not_answered_yet(check, capsys):
    begins_unanswered(check, capsys)


@pytest.mark.parametrize("check", FUNCTIONS)
def test_what_is_of_another_form_is_said_to_be(check):
    assert "Expected" in found(check, lambda *_: "abc")
    assert "Expected" in found(check, lambda *_: [1.0])
    assert "without parentheses" in found(check, [1, 2])
    assert "ZeroDivisionError" in found(check, lambda *_: 1 / 0)


def test_the_packages_own_functions_are_right_answers():
    is_right(check_residual, residual)
    is_right(check_check, check_sampled)
    is_right(check_expected_tokens, theory.expected_tokens)
    is_right(
        check_gamma, lambda alpha, times, draft: theory.best_measured_gamma(alpha, times, draft, most=len(times) - 1)
    )


# The accept probability.


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (lambda p, q, x: p[x] / q[x], "ends at 1"),
        (lambda p, q, x: p[x], "p alone"),
        (lambda p, q, x: (q[x] / p[x]).clamp(max=1), "upside down"),
        (lambda p, q, x: q[x] / p[x], "upside down"),
        (lambda p, q, x: q[x], "drafted in the first place"),
        (lambda p, q, x: torch.minimum(p[x], q[x]), "Being drafted has happened"),
        (lambda p, q, x: torch.minimum(p, q).sum(), "summed over all tokens"),
        (lambda p, q, x: float(p.argmax() == x), "greedy rule"),
        (lambda p, q, x: float(p[x] >= q[x]), "a coin is flipped"),
        (lambda p, q, x: 1 - min(1, p[x] / q[x]), "refusing"),
        (lambda p, q, x: max(1, p[x] / q[x]), "the larger of the two"),
        (lambda p, q, x: 0.123, "expected"),
        (lambda p, q, x: p / q, "Expected a number"),
    ],
)
def test_wrong_accept_probabilities_are_told_why(mistake, complaint):
    assert complaint in found(check_accept_probability, mistake)


def test_right_accept_probabilities():
    assert "in proportion" in is_right(check_accept_probability, lambda p, q, x: min(1, p[x] / q[x]))
    is_right(check_accept_probability, lambda p, q, x: (p[x] / q[x]).clamp(max=1))


# The residual.


def normalised(row):
    return row / row.sum()


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (lambda p, q: p, "That is p itself"),
        (lambda p, q: q, "had its chance"),
        (lambda p, q: (p - q).clamp(min=0), "does not sum to 1"),
        (lambda p, q: normalised((p - q).abs()), "You took |p - q|. Where"),
        (lambda p, q: (p - q).abs(), "and it does not sum to 1"),
        (lambda p, q: normalised((q - p).clamp(min=0)), "wrong way round: q - p"),
        (lambda p, q: (q - p).clamp(min=0), "wrong way round, and not"),
        (lambda p, q: p - q, "negative numbers"),
        (lambda p, q: (p - q).clamp(min=0).softmax(-1), "distorts"),
        (lambda p, q: (p - q).softmax(-1), "softmax of differences"),
        (lambda p, q: normalised(p.where(torch.arange(len(p)) != (q - p).argmax(), 0)), "refused token out of p"),
        (lambda p, q: normalised(p * (p > q)), "what it has *more*"),
        (lambda p, q: normalised((p - q).clamp(min=0)), "0 divided by 0"),
        (lambda p, q: normalised(p / q), "is a difference"),
        (lambda p, q: torch.ones_like(p) / len(p), "expected"),
        (lambda p, q: p.sub_(q), "clone"),
        (lambda p, q: p[:2], "shape"),
    ],
)
def test_wrong_residuals_are_told_why(mistake, complaint):
    assert complaint in found(check_residual, mistake)


# A whole check. One function with every mistake in it as an option.


def whole_check(*, row=0, accept=lambda p, q, x: p[x] / q[x], redraw=residual, bonus=-1):
    def my_check(drafted, q, p, rng):
        for i, token in enumerate(drafted):
            if not rng.accept(min(1.0, float(accept(p[i + row], q[i], token)))):
                return i, rng.choose(redraw(p[i + row], q[i]))
        return len(drafted), rng.choose(p[bonus])

    return my_check


def goes_on(*, redraws):
    """Does not stop at a refusal: counts all that are kept anywhere."""

    def my_check(drafted, q, p, rng):
        kept, last = 0, None
        for i, token in enumerate(drafted):
            if rng.accept(min(1.0, float(p[i][token] / q[i][token]))):
                kept += 1
            else:
                last = rng.choose(residual(p[i], q[i])) if redraws else None
        if last is None:
            last = rng.choose(residual(p[kept], q[kept]) if kept < len(drafted) else p[-1])
        return kept, last

    return my_check


def refused(answer, bonus=lambda drafted, p, rng: (len(drafted), rng.choose(p[-1]))):
    """A right check but for what it returns at a refusal, or when all are kept."""

    def my_check(drafted, q, p, rng):
        for i, token in enumerate(drafted):
            if not rng.accept(min(1.0, float(p[i][token] / q[i][token]))):
                return answer(i, p, q, rng)
        return bonus(drafted, p, rng)

    return my_check


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (goes_on(redraws=False), "go on after a refusal"),
        (goes_on(redraws=True), "go on after a refusal"),
        (refused(lambda i, p, q, rng: (i, rng.choose(p[i + 1]))), "row *after* the refused"),
        (refused(lambda i, p, q, rng: (i, rng.choose(residual(p[i + 1], q[i])))), "row *after* the refused"),
        (refused(lambda i, p, q, rng: (i + 1, rng.choose(residual(p[i], q[i])))), "among those kept"),
        (
            refused(
                lambda i, p, q, rng: (i, int(residual(p[i], q[i]).argmax())),
                lambda drafted, p, rng: (len(drafted), int(p[-1].argmax())),
            ),
            "after a refusal and as the bonus",
        ),
        (
            refused(
                lambda i, p, q, rng: (i, rng.choose(residual(p[i], q[i]))),
                lambda drafted, p, rng: (len(drafted), int(p[-1].argmax())),
            ),
            "likeliest token as the bonus",
        ),
        (
            refused(lambda i, p, q, rng: (i, rng.choose(residual(p[i], q[i]))), lambda drafted, p, rng: None),
            "without an answer in some branches",
        ),
        (
            refused(
                lambda i, p, q, rng: (i, rng.choose(residual(p[i], q[i]))),
                lambda drafted, p, rng: (len(drafted) - 1, drafted[-1]),
            ),
            "bonus token comes on top",
        ),
        (whole_check(accept=lambda p, q, x: p[x] / q[x] >= 0.5), "a bar that"),
        (whole_check(redraw=lambda p, q: p), "you draw from p"),
        (whole_check(redraw=lambda p, q: normalised((p - q).abs())), "|p - q|"),
        (whole_check(row=1), "the row *after*"),
        (whole_check(accept=lambda p, q, x: p[x]), "Divide by q"),
        (whole_check(accept=lambda p, q, x: q[x] / p[x]), "upside down"),
        (whole_check(accept=lambda p, q, x: 1.0), "accept everything"),
        (whole_check(accept=lambda p, q, x: p[x] >= q[x]), "flip the coin"),
        (whole_check(accept=lambda p, q, x: p[x] > 0.3), "fixed threshold. No"),
        (whole_check(accept=lambda p, q, x: p[x] > 0.3, redraw=lambda p, q: p), "threshold and draw from p"),
        (whole_check(accept=lambda p, q, x: p.argmax() == x), "greedy rule"),
        (whole_check(bonus=-2), "wrong row"),
        (whole_check(accept=lambda p, q, x: 0.7), "one by one"),
        (lambda drafted, q, p, rng: (len(drafted), "a"), "Expected a number"),
        (lambda drafted, q, p, rng: (3, 0), "0, 1 or 2"),
        (lambda drafted, q, p, rng: (0, 5), "Expected one of the tokens"),
        (lambda drafted, q, p, rng: drafted[0], "Expected two numbers"),
    ],
)
def test_wrong_checks_are_told_why_with_their_total_variation(mistake, complaint):
    assert complaint in found(check_check, mistake)


def test_a_check_that_is_exact_but_keeps_too_little_is_told_so():
    def as_if_not_drawn(drafted, q, p, rng):
        path, token = exact(TokenTree.chain(drafted), lambda node: p[node + 1], rng)
        return len(path), token

    message = found(check_check, as_if_not_drawn)
    assert "distribution is right" in message and "on average" in message
    assert "0.000" in found(check_check, lambda drafted, q, p, rng: (0, rng.choose(p[0])))


def test_a_right_check_is_proved():
    assert "proved exact" in is_right(check_check, whole_check())


def test_every_wrong_check_has_a_distribution_of_its_own_and_the_right_one_is_the_targets():
    rows = exercises.TARGET_ROWS
    due = {
        tokens: math.prod(row[x] for row, x in zip(rows, tokens)) for tokens in itertools.product(range(3), repeat=3)
    }
    assert total_variation(exercises._law(exercises._right_check), due) < 1e-12
    laws = exercises._mistaken_laws()
    assert min(total_variation(law, due) for _, law in laws) > 0.1
    for (one, law), (other, other_law) in itertools.combinations(laws, 2):
        assert one == other or total_variation(law, other_law) > 0.01, (one, other)


# Expected tokens.


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (lambda a, g: sum(a**i for i in range(g)), "one power too few"),
        (lambda a, g: sum(a**i for i in range(1, g + 1)), "accepted tokens only"),
        (lambda a, g: 1 + sum(a**i for i in range(g + 1)), "One too many"),
        (lambda a, g: 1 + a * g, "first two were accepted too"),
        (lambda a, g: a * g, "That is α·γ"),
        (lambda a, g: 1 / (1 - a) if a < 1 else math.inf, "limit of an endless draft"),
        (lambda a, g: 1 + g * a**g, "all or nothing"),
        (lambda a, g: g + 1, "the most that a round can give"),
        (lambda a, g: 2.0, "expected"),
        (lambda a, g: (1 - a ** (g + 1)) / (1 - a) if a < 1 else math.nan, "0/0"),
        (lambda a, g: (1 - a ** (g + 1)) / (1 - a), "0/0"),
        (lambda a, g: (1 - a**g) / (1 - a), "one power too few"),
        (lambda a, g: 1 / a, "ZeroDivisionError"),
    ],
)
def test_wrong_expectations_are_told_why(mistake, complaint):
    assert complaint in found(check_expected_tokens, mistake)


def test_a_right_expectation():
    assert "γ + 1" in is_right(check_expected_tokens, lambda a, g: sum(a**i for i in range(g + 1)))


# The rollback.


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (lambda g, a: (g - a - 1, max(g - 1 - a, 0)), "one too few: the refused"),
        (lambda g, a: (g - a + 1, max(g - 1 - a, 0)), "one too many: an accepted"),
        (lambda g, a: (g, max(g - 1 - a, 0)), "throw away the whole draft"),
        (lambda g, a: (a, max(g - 1 - a, 0)), "The rest".lower()),
        (lambda g, a: (g - a, g - a), "only said"),
        (lambda g, a: (g - a, g - 1 - a), "Less than nothing"),
        (lambda g, a: (max(g - 1 - a, 0), g - a), "in the other order"),
        (lambda g, a: (g - a, 7), "for the draft, expected"),
        (lambda g, a: (9, 0), "for the target, expected 3"),
        (lambda g, a: g - a, "Expected two numbers"),
    ],
)
def test_wrong_rollbacks_are_told_why(mistake, complaint):
    assert complaint.lower() in found(check_rollback, mistake).lower()


def test_a_right_rollback_is_what_the_sessions_of_a_round_need():
    from tutorlib import TableLM

    assert "nothing to go back from" in is_right(check_rollback, lambda g, a: (g - a, max(g - 1 - a, 0)))
    lm, gamma, drafted = TableLM.random(3, 1, seed=0), 4, [0, 1, 2, 1]
    for accepted in range(gamma + 1):
        target, draft = lm.session([0]), lm.session([0])
        target.feed(drafted)
        draft.feed()
        for token in drafted[:-1]:
            draft.feed([token])
        for session, count in zip((target, draft), (gamma - accepted, max(gamma - 1 - accepted, 0)), strict=True):
            session.rollback(count)
            assert session.tokens == ([0, *drafted[:accepted]])[: len(session.tokens)]
            assert len(session.tokens) >= accepted  # nothing accepted is lost, but the last one may be unread


# γ from a measured cost curve.


def speed(*, tokens=theory.expected_tokens, width=1, drafts=lambda gamma: gamma, flat=False, least=0):
    def my_gamma(alpha, call_times, draft_time):
        def score(gamma):
            call = call_times[0] if flat else call_times[max(gamma + width - 1, 0)]
            return tokens(alpha, gamma) / (drafts(gamma) * draft_time + call)

        return max(range(least, len(call_times)), key=score)

    return my_gamma


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (lambda alpha, times, draft: len(times) - 1, "always the largest"),
        (speed(flat=True), "published formula"),
        (speed(width=0), "It has γ + 1"),
        (speed(drafts=lambda gamma: 0), "left out the time of drafting"),
        (speed(drafts=lambda gamma: min(gamma, 1)), "counted one draft call"),
        (speed(tokens=lambda a, g: theory.expected_tokens(a, g) - 1), "left out one token"),
        (speed(tokens=lambda a, g: theory.expected_tokens(a, g) - a**g, least=1), "left out one token"),
        (speed(least=1), "the answer is 0"),
        (lambda alpha, times, draft: len(times), "cover γ up to"),
        (lambda alpha, times, draft: 1, "you chose 1"),
        (lambda alpha, times, draft: 0.5, "a whole number"),
    ],
)
def test_wrong_choices_of_gamma_are_told_why(mistake, complaint):
    assert complaint in found(check_gamma, mistake)


def test_a_right_choice_of_gamma():
    assert "decide" in is_right(check_gamma, speed())


# The chapter itself.

CHAPTER = "07_speculative"


def test_every_checker_is_used_in_the_chapter():
    uses_every_checker(CHAPTER, exercises)


def test_the_exercises_begin_unanswered_and_the_folded_solutions_are_right(capsys):
    has_right_solutions(CHAPTER, {"torch": torch}, capsys)
