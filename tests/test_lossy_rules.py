"""Lossy rules for the chain of a draft model: what they sample, by hand, and what a fair comparison shows."""

import pytest
import torch

from tutorlib import Exhaustive, Seeded, TableLM, TokenTree, block, exact, match_drawn, ratio, run, speculative
from tutorlib.drafting.lossy_rules import above, alike, checked_token, ensemble, sampled_model, token_distance
from tutorlib.drafting.rules import kept_tokens
from tutorlib.measures.proof import exact_distribution, target_distribution, total_variation

P = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
Q = torch.tensor([0.2, 0.2, 0.6], dtype=torch.float64)
TARGET, DRAFT = TableLM.random(3, 2, 5), TableLM.random(3, 1, 3)


def neighbours(drafted, own):
    """A judge for whom a token can stand for itself and for the next one."""
    return float(own - drafted in (0, 1))


LOSSY = {"ensemble": ensemble(0.6), "above": above(0.25), "alike": alike(neighbours, 1)}


def test_a_checked_token_is_as_worked_out_by_hand():
    torch.testing.assert_close(checked_token(ensemble(0.6), P, Q), 0.6 * P + 0.4 * Q)
    # Kept are a and b; c, drafted with 0.6, is replaced by a token of the target.
    torch.testing.assert_close(checked_token(above(0.25), P, Q), torch.tensor([0.2, 0.2, 0.0]).double() + 0.6 * P)
    # a stays if the target draws a or b, b if b or c, c if c; otherwise the target's own token stands there.
    kept = Q * torch.tensor([0.8, 0.5, 0.2]).double()
    own = P * torch.tensor([0.2 + 0.6, 0.6, 0.2]).double()
    torch.testing.assert_close(checked_token(alike(neighbours, 1), P, Q), kept + own)


@pytest.mark.parametrize("rule", [ratio, block, match_drawn, ensemble(1), above(1), alike(lambda x, y: x == y, 1)])
def test_a_lossless_rule_and_the_lossless_end_of_a_lossy_one_give_the_target(rule):
    assert token_distance(rule, P, Q) < 1e-12
    made = exact_distribution(lambda rng: speculative(TARGET, DRAFT, "a", gamma=1, rule=rule, rng=rng), 3)
    assert total_variation(made, target_distribution(TARGET, "a", 3)) < 1e-9


def test_alike_for_equal_tokens_alone_is_match_drawn_to_the_draw():
    texts = [
        run(speculative(TARGET, DRAFT, "a", rule=rule, rng=Seeded(3)), 30).tokens
        for rule in (match_drawn, alike(lambda drafted, own: drafted == own, 1))
    ]
    assert texts[0] == texts[1]


def test_ensemble_is_the_rule_of_transformers():
    generation = pytest.importorskip("transformers.generation.utils")
    accepted = torch.tensor(0.0)
    torch.manual_seed(0)
    for _ in range(2000):
        drafted = torch.multinomial(Q, 1)[None]
        logits = torch.stack([P, P]).log()[None].float()
        _, matches = generation._speculative_sampling(
            drafted, Q.log()[None, None].float(), 1, logits, assistant_ensemble_weight=0.6
        )
        accepted += matches
    assert float(accepted) / 2000 == pytest.approx(kept_tokens(ensemble(0.6), P, Q, 1), abs=0.04)


@pytest.mark.parametrize("name", LOSSY)
def test_a_lossy_rule_changes_texts_and_keeps_no_more_than_a_lossless_one_for_what_it_samples(name):
    rule, fair = LOSSY[name], sampled_model(LOSSY[name], TARGET, DRAFT)

    def texts(target, rule):
        return exact_distribution(lambda rng: speculative(target, DRAFT, "a", gamma=1, rule=rule, rng=rng), 3)

    due, honest = target_distribution(TARGET, "a", 3), target_distribution(fair, "a", 3)
    assert total_variation(texts(TARGET, rule), due) > 0.05
    assert total_variation(texts(fair, ratio), honest) < 1e-9

    def kept(target, rule):
        mean = 0.0
        for rng in Exhaustive():
            step = next(iter(speculative(target, DRAFT, "ba", gamma=2, rule=rule, rng=rng)))
            mean += rng.weight * step.accepted
        return mean

    assert kept(fair, ratio) >= kept(TARGET, rule) - 1e-12


def test_the_first_token_of_a_text_has_the_distribution_of_the_sampled_model():
    for rule in LOSSY.values():
        made = exact_distribution(
            lambda rng, rule=rule: speculative(TARGET, DRAFT, "a", gamma=1, rule=rule, rng=rng), 1
        )
        fair = target_distribution(sampled_model(rule, TARGET, DRAFT), "a", 1)
        assert total_variation(made, fair) < 1e-9


def test_wrong_arguments_are_refused_and_a_tree_too():
    for make in (ensemble, above):
        for number in (-0.1, 1.1, "a"):
            with pytest.raises(ValueError, match="from 0 to 1"):
                make(number)
    with pytest.raises(ValueError, match="two tokens"):
        alike(lambda token: 1, 0.5)
    with pytest.raises(ValueError, match="finite number"):
        alike(neighbours, "much")
    with pytest.raises(ValueError, match="same tokens"):
        sampled_model(ratio, TARGET, TableLM.random(2, 1, 0))
    tree = TokenTree([0, 1], [-1, -1])
    with pytest.raises(ValueError, match="chain"):
        above(0.5)([Q, Q])(tree, lambda node: P, Seeded(0))
    with pytest.raises(ValueError, match="rule must be a function"):
        speculative(TARGET, DRAFT, "a", rule=exact)


def test_at_the_end_of_the_context_a_round_is_cut():
    target, draft = TableLM.random(2, 1, 5, context=8), TableLM.random(2, 1, 3, context=8)
    for rule in (ensemble(0.5), above(0.2), alike(neighbours, 1)):
        trace = run(speculative(target, draft, "a", rule=rule, rng=Seeded(0)), 20)
        assert len(trace.tokens) == 7 and trace.stopped == "context"
