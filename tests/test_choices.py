"""Trees of ranks: grown trees are the best there are, by going through all; what a tree should give, by enumeration."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tutorlib.drafting.choices import (
    best_size,
    checked_accuracies,
    checked_choices,
    expected_tokens,
    full,
    grow,
    usual_accuracies,
)

# Sixteenths: sums of their products are exact, and equal ones are common.
sixteenths = st.integers(0, 16).map(lambda count: count / 16)


def accuracies(heads, ranks):
    return st.lists(st.lists(sixteenths, min_size=1, max_size=ranks), min_size=1, max_size=heads)


def subtrees(paths, nodes):
    """All sets of so many paths that hold the beginning of each of their paths."""
    for chosen in itertools.combinations(paths, nodes):
        if all(len(path) == 1 or path[:-1] in chosen for path in chosen):
            yield chosen


def all_paths(rows):
    return [
        path for depth in range(1, len(rows) + 1) for path in itertools.product(*map(range, map(len, rows[:depth])))
    ]


# ----------------------------------------------------------------------------------------------------------------------
# What a tree should give


def tokens_by_enumeration(rows, choices):
    """Go through all ways the heads can be right: head i's token is its guess of rank r with probability rows[i][r]."""
    choices, total = checked_choices(choices), 0.0
    for ranks in itertools.product(*([*range(len(row)), None] for row in rows)):  # None: no guess is right
        probs = [1 - math.fsum(row) if rank is None else row[rank] for row, rank in zip(rows, ranks, strict=True)]
        accepted = max((len(path) for path in choices if path == ranks[: len(path)]), default=0)
        total += math.prod(probs) * (accepted + 1)
    return total


@pytest.mark.parametrize(
    "choices", [[(0,)], [(0, 0, 0)], [(0,), (1,), (2, 1)], [(1, 0, 1), (0, 1), (0, 0, 1)]], ids=str
)
def test_expected_tokens_are_those_of_all_ways_it_can_go(choices):
    rows = [[0.5, 0.2, 0.1], [0.4, 0.3], [0.25, 0.125]]
    assert expected_tokens(rows, choices) == pytest.approx(tokens_by_enumeration(rows, choices), abs=1e-12)


@pytest.mark.parametrize("choices", [[(0, 0, 0)], [(2,)], [(0, 2)]], ids=str)
def test_a_guess_without_an_accuracy_is_named(choices):
    with pytest.raises(ValueError, match="but there is no accuracy for the guess"):
        expected_tokens([[0.6, 0.2], [0.5, 0.1]], choices)


# ----------------------------------------------------------------------------------------------------------------------
# Growing


@settings(deadline=None, max_examples=60)
@given(accuracies(heads=3, ranks=2), st.integers(1, 6))
def test_no_tree_of_so_many_nodes_is_better(rows, nodes):
    paths = all_paths(rows)
    chosen = grow(rows, nodes)
    nodes = min(nodes, len(paths))
    assert len(chosen) == len(set(chosen)) == nodes
    assert expected_tokens(rows, chosen) == max(expected_tokens(rows, tree) for tree in subtrees(paths, nodes))


@settings(deadline=None, max_examples=60)
@given(accuracies(heads=4, ranks=3), st.integers(1, 40))
def test_a_tree_is_the_beginning_of_every_larger_one_and_parents_come_first(rows, nodes):
    larger = grow(rows, nodes + 5)
    assert grow(rows, nodes) == larger[:nodes]
    assert checked_choices(larger) == larger


def test_growing_by_hand():
    # 0.6; then 0.6 * 0.5 = 0.3 before 0.2; then 0.2 before 0.2 * 0.5 = 0.1 and 0.6 * 0.1 = 0.06.
    assert grow([[0.6, 0.2], [0.5, 0.1]], 10) == [(0,), (0, 0), (1,), (1, 0), (0, 1), (1, 1)]


@pytest.mark.parametrize("nodes", [0, -1, 2.5, "3", True])
def test_a_number_of_nodes_that_is_none_is_refused(nodes):
    with pytest.raises(ValueError, match="nodes is how many candidates the tree holds, a whole number of 1 or more"):
        grow([[0.5]], nodes)


@pytest.mark.parametrize("rows", [[], [[]], [[0.5], []], [[1.1]], [[-0.1]], [[math.nan]], 0.5, [0.5], [["a"]]], ids=str)
def test_accuracies_that_are_none_are_refused(rows):
    for function in (checked_accuracies, lambda rows: grow(rows, 2), lambda rows: expected_tokens(rows, [(0,)])):
        with pytest.raises(ValueError, match="accuracies must hold, for each head, shares from 0 to 1 by rank"):
            function(rows)


def test_usual_accuracies_are_shares_that_fall_with_the_rank_and_the_head():
    rows = usual_accuracies(5, 50_000)
    assert len(rows) == 5 and checked_accuracies(rows) == rows
    assert all(sum(row) <= 1 for row in rows), "of one token, one guess can be right"
    assert all(row == sorted(row, reverse=True) for row in rows)
    assert [row[0] for row in rows] == sorted((row[0] for row in rows), reverse=True)
    assert [len(row) for row in usual_accuracies(2, 3)] == [3, 3]


# ----------------------------------------------------------------------------------------------------------------------
# How large

ROWS = [[0.6, 0.2], [0.5, 0.1]]  # trees of 0, 1, 2, 3, 4 nodes give 1, 1.6, 1.9, 2.1, 2.2 tokens


@pytest.mark.parametrize(
    ("seconds", "heads", "size"),
    [
        ([2.0, 2.1, 2.2, 4.0], 0.0, 2),  # 0.50, 0.76, 0.86, 0.53 tokens a second
        ([2.0, 2.1, 2.2, 2.3, 2.4], 0.0, 4),  # and 0.91, 0.92
        ([2.0, 2.1, 2.2, 2.3, 2.5], 0.0, 3),  # the fourth node brings 0.88
        ([1.0, 1.7, 2.2, 2.9, 3.5], 0.0, 0),  # 1, 0.94, 0.86, ...: none pays
        ([1.0, 1.0, 1.0], 0.95, 0),  # 1, 0.82, 0.97: the heads cost too much
        ([1.0, 1.0, 1.0], 0.85, 2),  # 1, 0.86, 1.03; without the heads' time the same
        ([1.0], 0.0, 0),
        ([3.0] * 60, 0.0, 6),  # what there is
    ],
)
def test_the_best_size_by_hand(seconds, heads, size):
    assert best_size(ROWS, seconds, heads) == size


@settings(deadline=None, max_examples=60)
@given(accuracies(3, 2), st.lists(st.integers(1, 40).map(float), min_size=2, max_size=12), st.sampled_from([0.0, 0.5]))
def test_no_other_size_makes_more_tokens_a_second(rows, seconds, heads):
    def speed(nodes):
        if not nodes:
            return 1 / seconds[0]
        return expected_tokens(rows, grow(rows, nodes)) / (seconds[nodes] + heads)

    sizes = range(min(len(seconds) - 1, len(all_paths(rows))) + 1)
    assert speed(best_size(rows, seconds, heads)) == max(map(speed, sizes))


@pytest.mark.parametrize("seconds", [[], [0.0, 1.0], [1.0, -1.0], [1.0, math.nan], [1.0, math.inf]], ids=str)
def test_times_that_are_none_are_refused(seconds):
    with pytest.raises(ValueError, match="call_seconds must be times of calls with 1, 2, 3, ... tokens"):
        best_size(ROWS, seconds)


# ----------------------------------------------------------------------------------------------------------------------
# Trees in full, and trees given


def test_four_heads_of_three_guesses_have_81_paths():
    choices = full([3, 3, 3, 3])
    assert len(choices) == 3 + 9 + 27 + 81
    assert sum(len(path) == 4 for path in choices) == 81
    assert set(choices) == {path for depth in (1, 2, 3, 4) for path in itertools.product(range(3), repeat=depth)}
    assert checked_choices(choices) == choices


def test_a_full_tree_may_be_wider_at_the_top():
    assert full([2, 1]) == [(0,), (0, 0), (1,), (1, 0)]
    with pytest.raises(ValueError, match="ranks are how many guesses of each head are candidates"):
        full([2, 0])


def test_the_beginnings_of_a_path_are_added_before_it_and_each_path_once():
    assert checked_choices([(0, 2, 1), [1], (0,), (0, 2)]) == [(0,), (0, 2), (0, 2, 1), (1,)]


@pytest.mark.parametrize(
    ("choices", "says"),
    [
        ([], "the tree is empty"),
        ((), "the tree is empty"),
        ([()], r"paths of ranks, such as \(0,\) or \(0, 2\); got \(\)"),
        ([(0, -1)], r"got \(0, -1\)"),
        ([(0, 0.5)], r"got \(0, 0.5\)"),
        ([0, 1], "got 0"),
        (["00"], "got '00'"),
        (7, "a tree is given by paths of ranks.*got 7"),
    ],
    ids=str,
)
def test_a_tree_that_is_none_is_refused(choices, says):
    with pytest.raises(ValueError, match=says):
        checked_choices(choices)
