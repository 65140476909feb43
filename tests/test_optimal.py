"""The best exact rule for several drafted tokens of one position: it never keeps fewer than trying them in turn."""

import itertools

import pytest
import torch

from tutorlib.drafting.checking import drawn
from tutorlib.drafting.optimal import drafts_without_replacement, kept_of_several, optimal, optimal_choice
from tutorlib.model.tree import TokenTree
from tutorlib.sampling.randomness import Exhaustive


def pair(vocab, seed):
    weights = torch.rand(2, vocab, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) ** 3
    return weights / weights.sum(-1, keepdim=True)


def drafted(q, drafts, rng):
    """Tokens drawn without replacement, and the distribution that each was drawn from."""
    tokens, rows = [], []
    for _ in range(drafts):
        rows.append(q)
        tokens.append(rng.choose(q))
        q = q.clone()
        q[tokens[-1]] = 0
        q = q / q.sum()
    return tokens, rows


def first_token(rule, p, q, drafts):
    """The distribution of the next token, and how often it is a drafted one: every draft and every draw."""
    found, kept = torch.zeros_like(p), 0.0
    for rng in Exhaustive():
        tokens, rows = drafted(q, drafts, rng)
        path, token = rule(rows)(TokenTree(tokens, [-1] * drafts), lambda node: p, rng)
        found[tokens[path[0]] if path else token] += rng.weight
        kept += rng.weight * len(path)
    return found, kept


@pytest.mark.parametrize(("vocab", "drafts"), [(3, 1), (3, 2), (4, 2), pytest.param(4, 3, marks=pytest.mark.slow)])
def test_the_token_has_the_targets_distribution_and_is_a_drafted_one_as_often_as_can_be(vocab, drafts):
    for seed in range(3):
        p, q = pair(vocab, seed)
        found, kept = first_token(optimal, p, q, drafts)
        torch.testing.assert_close(found, p, rtol=0, atol=1e-9)
        assert kept == pytest.approx(kept_of_several(optimal_choice(p, q, drafts), q), abs=1e-9)
        tried, kept_by_trying = first_token(drawn, p, q, drafts)
        torch.testing.assert_close(tried, p, rtol=0, atol=1e-12)
        assert kept >= kept_by_trying - 1e-9
        if drafts == 1:
            assert kept == pytest.approx(float(torch.minimum(p, q).sum()), abs=1e-9)


def test_it_goes_on_below_a_kept_token_and_ends_with_a_token_of_the_target():
    """A tree of two levels, with two children after its first node: texts of two tokens have the right distribution."""
    (p, q), found = pair(3, 5), {}
    for rng in Exhaustive():
        tokens, rows = drafted(q, 2, rng)
        more, of_more = drafted(q, 2, rng)
        tree, law, parents = [*tokens, *more], [*rows, *of_more], [-1, -1, 0, 0]
        path, token = optimal(law)(TokenTree(tree, parents), lambda node: p, rng)
        text = [*(tree[node] for node in path), token][:2]
        # A text of one token goes on with the next round, whose first token has the distribution p.
        for ends in itertools.product(range(3), repeat=2 - len(text)):
            weight = rng.weight * float(torch.prod(p[list(ends)])) if ends else rng.weight
            found[(*text, *ends)] = found.get((*text, *ends), 0.0) + weight
    for text, prob in found.items():
        assert prob == pytest.approx(float(torch.prod(p[list(text)])), abs=1e-9)


def test_what_can_be_drawn_without_replacement_sums_to_one_and_leaves_out_what_q_excludes():
    law = drafts_without_replacement(torch.tensor([0.5, 0.3, 0.2, 0.0], dtype=torch.float64), 2)
    assert set(law) == set(itertools.permutations(range(3), 2)) and sum(law.values()) == pytest.approx(1)
    assert law[1, 0] == pytest.approx(0.3 * 0.5 / 0.7)


def test_bad_input_is_named():
    p, q = pair(4, 1)
    with pytest.raises(ValueError, match="20000 is the most: use a smaller vocabulary"):
        optimal_choice(*pair(60, 1))
    with pytest.raises(ValueError, match="gives only 2 tokens a probability, and 3 different ones"):
        optimal_choice(p, torch.tensor([0.5, 0.5, 0.0, 0.0]).double(), 3)
    with pytest.raises(ValueError, match="p and q must each sum to 1"):
        optimal_choice(2 * p, q)
    with pytest.raises(ValueError, match="drawn with replacement"):
        optimal([q, q])(TokenTree([0, 1], [-1, -1]), lambda node: p, Exhaustive())
    with pytest.raises(ValueError, match="has probability 0.0"):
        optimal([torch.tensor([0, 1.0, 0, 0]).double()])(TokenTree([0], [-1]), lambda node: p, Exhaustive())
