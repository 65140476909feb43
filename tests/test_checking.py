"""Checking drafts: what is kept and redrawn has the target's distribution, by hand and by enumeration."""

import itertools
import math

import pytest
import torch

from tutorlib import theory
from tutorlib.checking import check_sampled, exact, residual
from tutorlib.randomness import Exhaustive, Greedy, Seeded
from tutorlib.tree import TokenTree

EXACT = 1e-12


def row(*probs):
    return torch.tensor(probs, dtype=torch.float64)


# Target and draft at one place: unlike, with zeros on either side, equal, and as sure as they can be.
PAIRS = [
    (row(0.5, 0.3, 0.2), row(0.2, 0.2, 0.6)),
    (row(0.0, 0.7, 0.3), row(0.6, 0.4, 0.0)),
    (row(0.25, 0.25, 0.5), row(0.25, 0.25, 0.5)),
    (row(0.0, 1.0, 0.0), row(1.0, 0.0, 0.0)),
    (row(0.1, 0.2, 0.7), row(0.0, 0.0, 1.0)),
    (row(0.0, 1.0, 0.0), row(0.3, 0.4, 0.3)),
]


def outcomes(method):
    """What comes of all draws, each with its probability."""
    found = {}
    for rng in Exhaustive():
        outcome = method(rng)
        found[outcome] = found.get(outcome, 0.0) + rng.weight
    return found


def draft_and_check(rng, target_rows, draft_rows):
    """One round on rows that do not depend on what came before: the tokens it emits."""
    drafted = [rng.choose(draft_row) for draft_row in draft_rows]
    accepted, token = check_sampled(drafted, torch.stack(draft_rows), torch.stack(target_rows), rng)
    return (*drafted[:accepted], token)


def beginnings(distribution, length):
    """The distribution of the first `length` tokens of those outcomes that have so many; and how probable these are."""
    found = {}
    for tokens, probability in distribution.items():
        if len(tokens) >= length:
            found[tokens[:length]] = found.get(tokens[:length], 0.0) + probability
    return found


@pytest.mark.parametrize(("target_row", "draft_row"), PAIRS)
def test_one_token_kept_or_redrawn_has_the_targets_distribution(target_row, draft_row):
    bonus = row(0.2, 0.5, 0.3)
    first = beginnings(outcomes(lambda rng: draft_and_check(rng, [target_row, bonus], [draft_row])), 1)
    for token, probability in enumerate(target_row.tolist()):
        assert first.get((token,), 0.0) == pytest.approx(probability, abs=EXACT)


@pytest.mark.parametrize(("target_row", "draft_row"), PAIRS)
def test_it_is_kept_as_often_as_the_two_distributions_overlap(target_row, draft_row):
    made = outcomes(lambda rng: draft_and_check(rng, [target_row, target_row], [draft_row]))
    kept = sum(probability for tokens, probability in made.items() if len(tokens) == 2)
    assert kept == pytest.approx(theory.acceptance_rate(target_row.tolist(), draft_row.tolist()), abs=EXACT)


def test_every_place_of_a_longer_draft_and_the_bonus_token_have_their_rows_distribution():
    rows = [pair[0] for pair in PAIRS[:2]] + [row(0.2, 0.5, 0.3)]
    made = outcomes(lambda rng: draft_and_check(rng, rows, [pair[1] for pair in PAIRS[:2]]))
    assert {len(tokens) for tokens in made} == {1, 2, 3}
    for length in (1, 2, 3):
        reached = beginnings(made, length)
        total = sum(reached.values())
        for tokens in itertools.product(range(3), repeat=length):
            # Whether a place is reached depends on the tokens before it, so only the last is free.
            before = sum(p for found, p in reached.items() if found[:-1] == tokens[:-1])
            expected = before * float(rows[length - 1][tokens[-1]])
            assert reached.get(tokens, 0.0) == pytest.approx(expected, abs=EXACT)
        assert total > 0.1


def check_chain(drafted, target_probs, rng):
    """The rule for tokens that were not drawn, on a chain whose rows are all there."""
    path, token = exact(TokenTree.chain(drafted), lambda node: target_probs[node + 1], rng)
    return len(path), token


class Script:
    """Luck that says what it is told to, and writes down what it was asked."""

    def __init__(self, answers, choices):
        self.answers, self.choices, self.asked, self.rows = list(answers), list(choices), [], []

    def accept(self, probability):
        self.asked.append(probability)
        return self.answers.pop(0)

    def choose(self, probs):
        self.rows.append(probs.tolist())
        return self.choices.pop(0)


TARGET = torch.stack([row(0.5, 0.3, 0.2), row(0.1, 0.1, 0.8), row(0.4, 0.4, 0.2)])
DRAFT = torch.stack([row(0.25, 0.5, 0.25), row(0.5, 0.25, 0.25)])


def test_the_first_token_that_is_not_kept_ends_the_check_by_hand():
    rng = Script([True, False], [2])
    assert check_sampled([0, 1], DRAFT, TARGET, rng) == (1, 2)
    assert rng.asked == [2.0, pytest.approx(0.4)], "p/q of each token in its own row"
    assert rng.rows == [[0.0, 0.0, 1.0]], "max(p - q, 0) = (0, 0, 0.55), normalised"


def test_the_bonus_token_comes_from_the_last_row_by_hand():
    rng = Script([True, True], [1])
    assert check_sampled([0, 1], DRAFT, TARGET, rng) == (2, 1)
    assert rng.rows == [TARGET[2].tolist()]


def test_no_draft_is_a_plain_draw():
    assert check_sampled([], [], TARGET[:1], rng := Script([], [1])) == (0, 1)
    assert rng.rows == [TARGET[0].tolist()]
    assert check_chain([], TARGET[:1], Script([], [2])) == (0, 2)


def test_rows_may_come_one_by_one():
    for seed in range(20):
        assert check_sampled([0, 1], list(DRAFT), TARGET, Seeded(seed)) == check_sampled(
            [0, 1], DRAFT, TARGET, Seeded(seed)
        )


def test_a_token_that_the_draft_could_not_have_drawn_is_an_error():
    with pytest.raises(ValueError, match=r"token 1, drafted in place 0, has probability 0.0 in draft_probs"):
        check_sampled([1], row(1.0, 0.0, 0.0)[None], TARGET[:2], Seeded(0))


def test_the_residual_by_hand():
    assert residual(row(0.5, 0.3, 0.2), row(0.2, 0.2, 0.6)).tolist() == pytest.approx([0.75, 0.25, 0.0])
    assert residual(row(0.5, 0.5), row(0.5, 0.5)).tolist() == [0.5, 0.5], "nothing is left: the target's own"
    assert float(residual(row(0.1, 0.2, 0.7), row(0.4, 0.3, 0.3)).sum()) == pytest.approx(1)


def test_a_rejection_that_only_rounding_allows_draws_from_the_target():
    target_row = row(0.1, 0.2, 0.7)
    above = target_row + row(0.0, 0.0, 1e-16)
    rng = Script([False], [1])
    check_sampled([2], above[None], torch.stack([target_row, target_row]), rng)
    assert math.fsum(rng.rows[0]) == pytest.approx(1)


def test_every_token_of_a_chain_has_its_rows_distribution():
    made = outcomes(lambda rng: check_chain([0, 2], TARGET, rng))
    expected = {(0, 1): 0.3, (0, 2): 0.2, (1, 0): 0.5 * 0.1, (1, 1): 0.5 * 0.1}
    expected |= {(2, token): 0.5 * 0.8 * float(TARGET[2][token]) for token in range(3)}
    assert made == pytest.approx(expected)


def test_a_draft_that_is_certain_is_kept_as_often_as_one_that_was_not_drawn():
    sure = torch.eye(3, dtype=torch.float64)[[0, 2]]
    sampled = outcomes(lambda rng: check_sampled([0, 2], sure, TARGET, rng))
    assert sampled == pytest.approx(outcomes(lambda rng: check_chain([0, 2], TARGET, rng)))


def test_without_luck_the_likeliest_tokens_come_out():
    target = torch.eye(3, dtype=torch.float64)[[1, 0, 2]]
    draft = torch.eye(3, dtype=torch.float64)
    assert check_sampled([1, 0], draft[[1, 0]], target, Greedy()) == (2, 2) == check_chain([1, 0], target, Greedy())
    assert check_sampled([1, 2], draft[[1, 2]], target, Greedy()) == (1, 0) == check_chain([1, 2], target, Greedy())
    assert check_sampled([2, 0], draft[[2, 0]], target, Greedy()) == (0, 1) == check_chain([2, 0], target, Greedy())
