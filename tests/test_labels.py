"""What heads learn to say, and the two losses, against tables and gradients that are computed by hand."""

import math

import pytest
import torch
from training_runs import ODD, fit, habits, loss_of, new, sampled

from tutorlib.lab.training import learner
from tutorlib.lab.training.batches import Batches
from tutorlib.lab.training.labels import ETA, LOSSES, Labels, cross_entropy, lk, readable

P = torch.tensor([[0.6, 0.3, 0.1, 0.0]])


def logits_of(probs):
    return torch.tensor([probs]).log().requires_grad_()


def acceptance(logits, probs):
    return torch.minimum(logits.softmax(-1), probs).sum(-1)


# -- the losses --


def test_lk_is_the_divergence_and_the_rejections_weighted_by_the_acceptance():
    draft = [0.2, 0.2, 0.2, 0.4]
    divergence = 0.6 * math.log(3) + 0.3 * math.log(1.5) + 0.1 * math.log(0.5)
    weight = math.exp(-ETA * 0.5)  # 0.2 + 0.2 + 0.1 + 0 are accepted
    assert lk(logits_of(draft), P).item() == pytest.approx(weight * divergence + (1 - weight) * 0.5, rel=1e-5)


def test_no_gradient_flows_through_the_weight_of_lk():
    logits = logits_of([0.2, 0.2, 0.2, 0.4])
    lk(logits, P).backward()
    draft = torch.tensor([0.2, 0.2, 0.2, 0.4])
    # d alpha / d logit_i = q_i ([q_i < p_i] - sum of q_j with q_j < p_j), and d KL / d logit = q - p.
    below = torch.tensor([1.0, 1.0, 0.0, 0.0])
    of_alpha = draft * (below - 0.4)
    weight = math.exp(-ETA * 0.5)
    assert torch.allclose(logits.grad[0], weight * (draft - P[0]) - (1 - weight) * of_alpha, atol=1e-6)


def test_lk_learns_from_guesses_that_are_never_accepted_as_fast_as_the_divergence():
    """The rejections alone would have no gradient there."""
    gradients = []
    for loss in (lk, cross_entropy, lambda logits, probs: -acceptance(logits, probs).sum()):
        logits = torch.tensor([[-20.0, -20.0, -20.0, 20.0]], requires_grad=True)
        loss(logits, P).backward()
        gradients.append(logits.grad.abs().sum().item())
    assert gradients[0] == pytest.approx(gradients[1], rel=1e-3) and gradients[2] < 1e-6 < gradients[1]


def test_positions_are_summed_whatever_shares_their_batch():
    torch.manual_seed(0)
    logits, probs = torch.randn(5, 7), torch.randn(5, 7).softmax(-1)
    for loss in LOSSES.values():
        alone = sum(loss(logits[i : i + 1], probs[i : i + 1]) for i in range(5))
        assert loss(logits, probs).item() == pytest.approx(alone.item(), rel=1e-5)


# -- the labels --


def test_a_position_has_its_label_or_none():
    probs = torch.eye(3)
    labels = Labels(probs, torch.tensor([0, 0, 1]), torch.tensor([1, 3, 0]), torch.Size((2, 4)))
    there, found = labels.at(torch.tensor([0, 1, 0, 1]), torch.tensor([3, 0, 2, 1]))
    assert there.tolist() == [True, True, False, False] and torch.equal(found, probs[[1, 2]])


def test_some_tokens_are_read_out_as_all_are():
    states, tokens = torch.randn(5, habits().width), torch.tensor([2, 3, 11])
    whole = habits().read_out(states, normed=True)
    torch.testing.assert_close(readable(habits(), tokens)(states), whole[:, tokens])
    torch.testing.assert_close(readable(habits())(states), whole)


# -- in training --


@pytest.mark.parametrize("kind", ["medusa", "eagle3"])
def test_heads_trained_on_the_acceptance_are_accepted_more_often(kind, tmp_path):
    train, held_out = sampled()
    one = new(kind, texts=train, compare=lk)
    before = loss_of(one, held_out).item()
    fit(one, tmp_path, steps=60, rate=0.01)
    assert loss_of(one, held_out).item() < 0.9 * before
    checked = Batches(habits(), held_out, 8, layers=one.layers)
    untrained = learner.accuracies(new(kind, texts=train), checked)
    assert learner.accuracies(one, checked)["sampled"][0] > untrained["sampled"][0]


def test_the_loss_is_a_setting_of_a_training(tmp_path):
    fit(new("eagle3", compare=lk), tmp_path, steps=1)
    with pytest.raises(ValueError, match="begun with loss 'lk' instead of 'cross_entropy': use another"):
        fit(new("eagle3"), tmp_path, steps=1)


def test_hard_labels_have_no_acceptance():
    with pytest.raises(ValueError, match="hard labels are tokens, and lk compares with probabilities"):
        new("medusa", hard=True, compare=lk)


def test_eagle3s_loss_may_be_lk():
    one = new("eagle3", vocabulary=None, compare=lk, depth=1)
    batch = Batches(habits(), ODD, 3, layers=one.layers)[0]
    with torch.no_grad():
        said = habits().model(batch.tokens).logits.softmax(-1)
    expected = 0.0
    for rows, at, logits in one.guesses(batch):
        expected = lk(logits, said[rows, at + 1]) / len(rows)
        break
    assert loss_of(one).item() == pytest.approx(expected.item(), rel=1e-4)
