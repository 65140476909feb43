"""How candidates in a tree are accepted: the exact rule draw by draw, the typical one against brute force."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tutorlib import checking
from tutorlib.checking import drawn, exact, threshold, typical_acceptance
from tutorlib.drafting.draft_trees import without
from tutorlib.randomness import Exhaustive, Greedy, Seeded
from tutorlib.tree import ROOT, TokenTree
from tutorlib.warp import one_hot

VOCAB = 3


class Asked:
    """Rows of probabilities by node, drawn from a seed; remembers which were asked for."""

    def __init__(self, seed, sure=1.0):
        self.seed, self.sure, self.nodes = seed, sure, []

    def row(self, node):
        logits = torch.randn(VOCAB, generator=torch.Generator().manual_seed(100 * self.seed + node + 1))
        return (self.sure * logits.double()).softmax(-1)

    def __call__(self, node):
        self.nodes.append(node)
        return self.row(node)


@st.composite
def trees(draw, size=10):
    """Trees without twins: siblings hold different tokens, as ranks of one head do."""
    tree = TokenTree([], [])
    for _ in range(draw(st.integers(0, size))):
        parent, token = draw(st.integers(ROOT, len(tree) - 1)), draw(st.integers(0, VOCAB - 1))
        if token not in [tree.tokens[child] for child in tree.children(parent)]:
            tree = TokenTree([*tree.tokens, token], [*tree.parents, parent])
    return tree


# ----------------------------------------------------------------------------------------------------------------------
# Exact


@settings(deadline=None, max_examples=25)
@given(trees(4), st.integers(0, 50))
def test_exact_emits_every_text_with_the_probability_of_its_tokens(tree, seed):
    asked, found = Asked(seed), {}
    for rng in Exhaustive():
        path, token = exact(tree, asked, rng)
        text = (*(tree.tokens[node] for node in path), token)
        found[text] = found.get(text, 0.0) + rng.weight
    for text, probability in found.items():
        node, expected = ROOT, 1.0
        for token in text:
            expected *= float(asked.row(node)[token])
            node = next((child for child in tree.children(node) if tree.tokens[child] == token), None)
        assert node is None, "it goes on as long as the tree holds what was drawn"
        assert probability == pytest.approx(expected, abs=1e-12)
    assert math.fsum(found.values()) == pytest.approx(1, abs=1e-12)


def test_exact_draws_once_for_each_token_and_asks_for_no_other_row():
    tree, asked = TokenTree.from_paths([[0, 1, 2], [1, 1], [2]]), Asked(3)
    path, token = exact(tree, asked, Seeded(5))
    assert asked.nodes == [ROOT, *path]


# ----------------------------------------------------------------------------------------------------------------------
# Drawn


laws = (
    st.lists(st.integers(0, 9), min_size=VOCAB, max_size=VOCAB)
    .filter(any)
    .map(lambda weights: torch.tensor(weights, dtype=torch.float64) / sum(weights))
)


def off(target_row, draft_row, children, spoil=lambda law, first: law):
    """Total variation between the target and what is kept when so many children are drawn without replacement."""
    made = torch.zeros(VOCAB, dtype=torch.float64)
    for rng in Exhaustive():
        tokens, said, left = [], [], draft_row
        while len(tokens) < children and left is not None:
            said.append(spoil(left, draft_row))
            tokens.append(rng.choose(left))
            left = without(left, tokens[-1])
        tree = TokenTree(tokens, [ROOT] * len(tokens))
        path, token = drawn(said)(tree, lambda node: target_row if node == ROOT else draft_row, rng)
        made[tokens[path[0]] if path else token] += rng.weight
    return float((made - target_row).abs().sum()) / 2


@settings(deadline=None, max_examples=80)
@given(laws, laws, st.integers(1, VOCAB))
def test_a_token_that_is_drawn_without_replacement_and_checked_has_the_targets_distribution(target, draft, children):
    assert off(target, draft, children) < 1e-12


def test_it_has_not_where_q_is_not_renormalised_or_the_residual_is_left_out(monkeypatch):
    target, draft = (Asked(seed).row(ROOT) for seed in (5, 6))
    assert off(target, draft, 2) < 1e-12
    assert off(target, draft, 2, lambda law, first: torch.where(law > 0, first, 0)) > 0.05, "q as it was"
    monkeypatch.setattr(checking, "residual", lambda target_row, draft_row: target_row)
    assert off(target, draft, 2) > 0.05, "p as it was"


# ----------------------------------------------------------------------------------------------------------------------
# Typical


def by_brute_force(tree, asked, epsilon, delta):
    """Every path of the tree on which each candidate is likely enough: the longest, then the likeliest."""
    best = (0, 1.0, [])
    for leaf in range(len(tree)):
        path, likelihood, fine = tree.path(leaf), 1.0, True
        for node in path:
            row = asked.row(tree.parents[node])
            entropy = -sum(float(p) * math.log(float(p)) for p in row if p > 0)
            prob = float(row[tree.tokens[node]])
            fine &= prob > min(epsilon, delta * math.exp(-entropy))
            likelihood *= prob
        if fine and (len(path), likelihood) > best[:2]:
            best = (len(path), likelihood, path)
    return best[2]


@settings(deadline=None, max_examples=80)
@given(
    trees(),
    st.integers(0, 200),
    st.sampled_from([1.0, 3.0]),
    st.sampled_from([0.05, 0.2, 0.6]),
    st.sampled_from([0.1, 0.6, 1.0]),
)
def test_typical_keeps_the_longest_path_it_accepts_and_of_those_the_likeliest(tree, seed, sure, epsilon, delta):
    asked = Asked(seed, sure)
    path, token = typical_acceptance(epsilon, delta)(tree, asked, Greedy())
    assert path == by_brute_force(tree, asked, epsilon, delta)
    assert token == int(asked.row(path[-1] if path else ROOT).argmax())


def test_of_equally_long_paths_the_likeliest_wins_by_hand():
    rows = {ROOT: [0.3, 0.7, 0.0], 0: [0.9, 0.1, 0.0], 1: [0.2, 0.2, 0.6], 2: [1.0, 0.0, 0.0], 3: [0.0, 1.0, 0.0]}
    tree = TokenTree([0, 1, 0, 2], [ROOT, ROOT, 0, 1])  # a a: 0.3 * 0.9 = 0.27; b c: 0.7 * 0.6 = 0.42

    def probs_at(node):
        return torch.tensor(rows[node], dtype=torch.float64)

    assert typical_acceptance(0.09, 0.3)(tree, probs_at, Greedy()) == ([1, 3], 1)
    rows[1] = [0.5, 0.49, 0.01]  # then c is not likely enough, and the shorter path counts for less than a a
    assert typical_acceptance(0.09, 0.3)(tree, probs_at, Greedy()) == ([0, 2], 0)


def test_a_path_is_accepted_only_as_far_as_its_first_candidate_that_is_not():
    rows = {ROOT: [0.01, 0.99, 0.0], 0: [1.0, 0.0, 0.0]}
    tree = TokenTree([0, 0], [ROOT, 0])
    assert typical_acceptance()(tree, lambda node: torch.tensor(rows[node]).double(), Greedy()) == ([], 1)


def test_a_candidate_at_the_threshold_is_not_above_it():
    tree = TokenTree([0], [ROOT])
    rows = {ROOT: torch.tensor([0.5, 0.5, 0.0]).double(), 0: torch.tensor([0.0, 0.0, 1.0]).double()}
    assert typical_acceptance(0.5, 1.0)(tree, rows.__getitem__, Greedy())[0] == []
    assert typical_acceptance(0.4999, 1.0)(tree, rows.__getitem__, Greedy()) == ([0], 2)


def test_typical_draws_once_and_what_it_draws_is_the_targets():
    tree, asked, seen = TokenTree.from_paths([[0, 1], [1, 2]]), Asked(8), {}
    rule = typical_acceptance(0.9, 0.1)
    for rng in Exhaustive():
        path, token = rule(tree, asked, rng)
        seen[token] = rng.weight
    row = asked.row(path[-1] if path else ROOT)
    assert seen == pytest.approx({token: float(row[token]) for token in range(VOCAB)})


def test_typical_asks_for_rows_on_accepted_paths_only_and_once():
    for seed in range(20):
        tree, asked = TokenTree.from_paths([[0, 1, 2], [1, 2, 0], [2]]), Asked(seed, sure=3.0)
        path, _ = typical_acceptance(0.3, 0.6)(tree, asked, Greedy())
        assert len(asked.nodes) == len(set(asked.nodes))
        assert {tree.parents[node] for node in path} <= set(asked.nodes)
        accepted = {node for node in range(len(tree)) if by_brute_force_accepts(tree, asked, node)}
        assert set(asked.nodes) <= accepted | {ROOT}


def by_brute_force_accepts(tree, asked, node):
    chain = TokenTree.chain([tree.tokens[above] for above in tree.path(node)])
    rows = dict(zip([ROOT, *range(len(chain))], [ROOT, *tree.path(node)]))
    renumbered = Asked(asked.seed, asked.sure)
    renumbered.row = lambda place: asked.row(rows[place])
    return len(by_brute_force(chain, renumbered, 0.3, 0.6)) == len(chain)


def test_where_greedy_leaves_one_token_typical_accepts_that_alone():
    def probs_at(node):
        return torch.eye(VOCAB, dtype=torch.float64)[{ROOT: 1, 0: 2, 1: 0}[node]]

    assert typical_acceptance()(TokenTree([1, 0], [ROOT, ROOT]), probs_at, Greedy()) == ([0], 2)
    assert typical_acceptance()(TokenTree([0, 2], [ROOT, ROOT]), probs_at, Greedy()) == ([], 1)


def test_a_token_of_probability_zero_is_never_accepted():
    row = one_hot(torch.tensor([[0.0, 1.0, 0.0]]), [[0]]).softmax(-1).double()[0]
    assert typical_acceptance(epsilon=0.0, delta=1e-9)(TokenTree([0], [ROOT]), lambda node: row, Greedy()) == ([], 1)


# ----------------------------------------------------------------------------------------------------------------------
# The threshold


def test_the_threshold_is_a_cap_where_the_target_is_sure_and_falls_with_the_entropy():
    sure, even = torch.tensor([1.0, 0.0]), torch.full((100,), 0.01)
    assert threshold(sure, 0.09, 0.3) == 0.09
    assert threshold(even, 0.09, 0.3) == pytest.approx(0.3 / 100)  # exp(-ln 100) = 1/100
    coin = torch.tensor([0.5, 0.5])
    assert threshold(coin, 0.09, 0.3) == 0.09 and threshold(coin, 0.2, 0.3) == pytest.approx(0.15)


def test_with_the_two_swapped_it_is_another_rule():
    # What a much-read survey has: the cap is then 0.3, and the factor 0.09. Where the target is sure nothing shows.
    sure, even = torch.tensor([1.0, 0.0]), torch.full((8,), 1 / 8)
    assert threshold(sure, 0.09, 0.3) == threshold(sure, 0.3, 0.09) == 0.09
    assert threshold(even, 0.09, 0.3) == pytest.approx(0.0375)
    assert threshold(even, 0.3, 0.09) == pytest.approx(0.01125)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"epsilon": -0.1}, "epsilon, the cap on the probability asked for, must be from 0 to 1, got -0.1"),
        ({"epsilon": 1.1}, "from 0 to 1, got 1.1"),
        ({"epsilon": math.nan}, "from 0 to 1, got nan"),
        ({"epsilon": "0.09"}, "got '0.09'"),
        ({"epsilon": True}, "got True"),
        ({"delta": 0}, r"delta, the factor of exp\(-entropy\), must be a finite number above 0, got 0"),
        ({"delta": -1.0}, "got -1.0"),
        ({"delta": math.inf}, "got inf"),
        ({"delta": math.nan}, "got nan"),
    ],
    ids=str,
)
def test_bad_numbers_are_named(settings, says):
    with pytest.raises(ValueError, match=says):
        typical_acceptance(**settings)
