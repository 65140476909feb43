"""Random draws: reproducible, as frequent as they should be, enumerated without a branch too many, and checked."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tutorlib.sampling.randomness import Exhaustive, Greedy, Randomness, Seeded


def enumerate_outcomes(method, **options):
    distribution = {}
    for rng in Exhaustive(**options):
        outcome = method(rng)
        distribution[outcome] = distribution.get(outcome, 0.0) + rng.weight
    return distribution


def test_seeded_draws_what_it_has_always_drawn():
    # Python promises that random.Random(seed).random() stays the same; so do these, on any machine.
    rng = Seeded(7)
    assert [rng.choose([0.5, 0.25, 0.25]) for _ in range(8)] == [0, 0, 1, 0, 1, 0, 0, 1]
    assert [rng.accept(0.5) for _ in range(6)] == [True, True, True, True, True, False]


def test_seeded_draws_the_same_from_a_list_an_array_and_a_tensor_of_any_float_type():
    probs = [0.5, 0.125, 0.25, 0.125]
    forms = [probs, np.array(probs), torch.tensor(probs), torch.tensor(probs).bfloat16(), torch.tensor(probs).double()]
    draws = [[rng.choose(form) for _ in range(50)] for form, rng in zip(forms, map(Seeded, [3] * 5), strict=True)]
    assert all(row == draws[0] for row in draws)


def test_seeded_chooses_with_the_given_probabilities():
    probs = [0.5, 0.0, 0.3, 0.15, 0.05]
    rng = Seeded(0)
    counts = np.bincount([rng.choose(probs) for _ in range(4_000)], minlength=5)
    assert counts[1] == 0
    kept = [0, 2, 3, 4]
    assert stats.chisquare(counts[kept], 4_000 * np.array(probs)[kept]).pvalue > 0.001


def test_seeded_accepts_with_the_given_probability():
    rng = Seeded(1)
    accepted = sum(rng.accept(0.3) for _ in range(4_000))
    assert stats.binomtest(accepted, 4_000, 0.3).pvalue > 0.001
    assert all(rng.accept(1.7) for _ in range(100)), "a ratio above 1 is surely accepted"
    assert not any(rng.accept(0.0) for _ in range(100))


class Scripted:
    """Stands in for random.Random: the numbers it draws are given."""

    def __init__(self, *numbers):
        self.numbers = list(numbers)

    def random(self):
        return self.numbers.pop(0)


@pytest.mark.parametrize(
    ("number", "probs", "index"),
    [
        (0.0, [0.0, 0.5, 0.5], 1),  # the smallest number drawn does not fall on an index of probability zero
        (0.5, [0.5, 0.0, 0.5], 2),  # nor does one on the border before such an index
        (math.nextafter(1, 0), [0.5, 0.5, 0.0], 1),  # nor the largest
        (math.nextafter(1, 0), [0.1] * 10, 9),  # ten tenths sum to just below 1
    ],
)
def test_seeded_never_chooses_what_has_probability_zero(number, probs, index):
    rng = Seeded(0)
    rng._random = Scripted(number)
    assert rng.choose(probs) == index


@pytest.mark.parametrize("rng", [Seeded(0), Greedy(), Exhaustive()], ids=repr)
class TestNonsense:
    def test_is_a_randomness(self, rng):
        assert isinstance(rng, Randomness)

    @pytest.mark.parametrize(
        ("probs", "words"),
        [
            ([0.5, float("nan")], "NaN at index 1"),
            ([0.5, 0.7, -0.2], "negative probability, -0.2 at index 2"),
            ([0.5, 0.4], "sum to 0.9"),
            ([0.0, 0.0], "sum to 0"),
            ([float("inf"), 0.0], "sum to"),
            ([], "one row"),
            ([[0.5, 0.5]], r"one row .* \(1, 2\)"),
            (torch.tensor([0.5, 0.5, 0.5]), "sum to 1.5"),
        ],
    )
    def test_bad_probabilities_are_named(self, rng, probs, words):
        with pytest.raises(ValueError, match=words):
            rng.choose(probs)

    @pytest.mark.parametrize("probability", [-0.1, float("nan")])
    def test_bad_acceptance_is_named(self, rng, probability):
        with pytest.raises(ValueError, match=str(probability)):
            rng.accept(probability)

    def test_the_rounding_of_a_float32_softmax_is_allowed(self, rng):
        if isinstance(rng, Exhaustive):
            rng = next(iter(rng))
        assert 0 <= rng.choose(torch.randn(50_000, generator=torch.Generator().manual_seed(0)).softmax(0)) < 50_000


@pytest.mark.parametrize("seed", [1.5, "7", None, True])
def test_a_seed_must_be_an_integer(seed):
    with pytest.raises(ValueError, match="integer seed"):
        Seeded(seed)


def test_greedy_takes_the_likeliest_the_lowest_of_equals_and_accepts_only_what_is_certain():
    assert Greedy().choose([0.2, 0.4, 0.4]) == 1
    assert Greedy().accept(1.0)
    assert not Greedy().accept(0.999)


def test_exhaustive_follows_draws_that_depend_on_draws():
    def geometric(rng):  # how many acceptances before the first refusal, at most 3
        return next((count for count in range(3) if not rng.accept(0.25)), 3)

    assert enumerate_outcomes(geometric) == pytest.approx({0: 3 / 4, 1: 3 / 16, 2: 3 / 64, 3: 1 / 64}, abs=1e-15)


def test_exhaustive_enters_no_branch_of_probability_zero_and_opens_none_where_there_is_no_choice():
    engine = Exhaustive()
    for rng in engine:
        assert rng.choose([0.0, 1.0, 0.0]) == 1
        assert rng.accept(1.0)
        assert not rng.accept(0.0)
        assert rng.choose([0.5, 0.0, 0.5]) != 1
    assert engine.branches == 2


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(any), max_size=3))
def test_exhaustive_weights_are_the_products_of_the_probabilities_and_sum_to_one(rows):
    rows = [[weight / sum(row) for weight in row] for row in rows]
    distribution = enumerate_outcomes(lambda rng: tuple(rng.choose(row) for row in rows))
    by_hand = {
        outcome: math.prod(row[index] for row, index in zip(rows, outcome, strict=True))
        for outcome in itertools.product(*(range(len(row)) for row in rows))
    }
    assert math.fsum(distribution.values()) == pytest.approx(1, abs=1e-12)
    assert distribution == pytest.approx({outcome: p for outcome, p in by_hand.items() if p > 0}, abs=1e-12)


def test_exhaustive_refuses_a_method_that_remembers_earlier_runs():
    calls = []

    def other_outcomes(rng):
        calls.append(1)
        return rng.choose([0.5, 0.5] if len(calls) == 1 else [0.9, 0.1])

    with pytest.raises(RuntimeError, match="draw number 1 .* state anew"):
        enumerate_outcomes(other_outcomes)

    def fewer_draws(rng):
        calls.append(1)
        return [rng.accept(0.5) for _ in range(2 if len(calls) == 1 else 1)] and 0

    calls.clear()
    with pytest.raises(RuntimeError, match="1 draws where 2 were made"):
        enumerate_outcomes(fewer_draws)


def test_exhaustive_stops_at_a_limit_that_says_what_to_do():
    with pytest.raises(ValueError, match="more than 100 branches: shorten"):
        enumerate_outcomes(lambda rng: [rng.accept(0.5) for _ in range(7)] and 0, max_branches=100)
    assert enumerate_outcomes(lambda rng: [rng.accept(0.5) for _ in range(7)] and 0, max_branches=128) == {0: 1.0}
