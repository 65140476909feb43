"""What the rules for the chain of a draft model keep, and what they ask for; that they are exact is in the contract."""

import pytest
import torch
from lossless import distance, tables

from tutorlib import block, match, match_drawn, ratio, speculative
from tutorlib.drafting.checking import exact
from tutorlib.drafting.rules import draft_token, kept_tokens
from tutorlib.model.table import TableLM
from tutorlib.model.tree import TokenTree
from tutorlib.running.decoding import run
from tutorlib.sampling.randomness import Exhaustive, Greedy, Seeded
from tutorlib.sampling.warp import temperature

RULES = (ratio, block, match, match_drawn)


def rows(*numbers):
    return [torch.tensor(row, dtype=torch.float64) / sum(row) for row in numbers]


def kept_on_tables(rule, vocab, gamma, seed):
    """Tokens of the first round, all drafts and draws gone through, where the models look back."""
    target, draft = TableLM.random(vocab, 2, seed), TableLM.random(vocab, 1, seed + 100)
    expected = 0.0
    for rng in Exhaustive():
        first = next(iter(speculative(target, draft, [0, 1], gamma=gamma, rule=rule, rng=rng)))
        expected += rng.weight * len(first.tokens)
    return expected


def test_the_two_tokens_of_the_paper():
    """Sun et al. (2025), section 3: the same pair after every text, and drafts of two tokens."""
    p, q = rows([1, 2], [2, 1])
    assert kept_tokens(ratio, p, q, 2) == pytest.approx(10 / 9, abs=1e-12)
    assert kept_tokens(block, p, q, 2) == pytest.approx(11 / 9, abs=1e-12)
    # By hand: Σ p q = 4/9 a token, and the draft's likelier token has probability 1/3.
    assert kept_tokens(match_drawn, p, q, 2) == pytest.approx(4 / 9 + 16 / 81, abs=1e-12)
    assert kept_tokens(match, p, q, 2) == pytest.approx(1 / 3 + 1 / 9, abs=1e-12)


@pytest.mark.parametrize(("vocab", "gamma"), [(3, 2), (3, 3), (2, 3)])
def test_block_keeps_at_least_as_much_as_ratio_and_ratio_more_than_drawing_the_same(vocab, gamma):
    gains = []
    for seed in range(3):
        kept = {rule: kept_on_tables(rule, vocab, gamma, seed) for rule in (ratio, block, match_drawn)}
        assert kept[block] >= kept[ratio] - 1e-12 and kept[ratio] > kept[match_drawn] > 1
        gains.append(kept[block] / kept[ratio])
    assert max(gains) > 1.001


@pytest.mark.parametrize("rule", RULES)
def test_for_one_token_block_and_ratio_are_the_same_rule(rule):
    p, q = rows([5, 3, 2], [1, 1, 6])
    least = torch.minimum(p, q).sum()
    due = {ratio: least, block: least, match_drawn: (p * q).sum(), match: p[q.argmax()]}
    assert kept_tokens(rule, p, q, 1) == pytest.approx(float(due[rule]), abs=1e-12)


@pytest.mark.parametrize("rule", RULES)
def test_a_draft_that_ends_early_is_checked_exactly(rule):
    """Its length depends on what was drafted, so it is not the same in all branches."""
    target, draft = tables(2)
    how = {"gamma": 2, "confidence": 0.5, "rule": rule}
    assert distance(lambda lm, prompt, **more: speculative(lm, draft, prompt, **how, **more), target, "a", 4) < 1e-9


def test_a_target_that_is_its_own_draft_keeps_everything_by_ratio_and_block():
    target, _ = tables(3)
    for rule in (ratio, block):
        trace = run(speculative(target, target, "a", gamma=3, rule=rule, rng=Seeded(1), warp=[temperature(1.3)]), 40)
        assert trace.acceptance == 1
    trace = run(speculative(target, target, "a", gamma=3, rule=match_drawn, rng=Seeded(1)), 40)
    assert trace.acceptance < 1


def test_greedily_all_rules_are_one():
    target, draft = tables(3)
    traces = [run(speculative(target, draft, "a", gamma=3, rule=rule), 30) for rule in RULES]
    assert len({(tuple(trace.tokens), trace.target_calls) for trace in traces}) == 1


def test_match_alone_leaves_the_drafts_choice_to_its_probabilities():
    (row,) = rows([1, 6, 3])
    assert draft_token(match, row, rng=None) == 1
    assert {draft_token(ratio, row, Seeded(seed)) for seed in range(40)} == {0, 1, 2}


@pytest.mark.parametrize("rule", [exact, "block", None, lambda tree, probs_at, rng: None])
def test_what_is_no_rule_for_a_chain_is_refused(rule):
    target, draft = tables(3)
    with pytest.raises(ValueError, match="ratio, block, match or match_drawn"):
        speculative(target, draft, "a", rule=rule)


def test_block_refuses_a_tree_and_a_token_that_was_not_drawn_from_these_probabilities():
    p, q = rows([1, 1], [1, 0])
    with pytest.raises(ValueError, match="was given a tree"):
        block([q, q])(TokenTree([0, 1], [-1, -1]), lambda node: p, Greedy())
    with pytest.raises(ValueError, match="token 1, drafted at node 0, has probability 0.0"):
        block([q])(TokenTree.chain([1]), lambda node: p, Greedy())
