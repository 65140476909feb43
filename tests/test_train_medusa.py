"""What is Medusa's own in training: the published loss, self-distillation in joint training."""

import copy

import pytest
import torch
from conftest import VOCAB, random_model
from safetensors.torch import load_file
from training_runs import LOW, ODD, fit, habits, loss_of, new, weights

from tutorlib.drafting.choices import grow
from tutorlib.lab.training import learner
from tutorlib.lab.training import train_medusa as training
from tutorlib.lab.training.batches import Batches
from tutorlib.lab.training.sampled_texts import SampledText
from tutorlib.loading.formats import load_medusa
from tutorlib.model.lm import LM

# -- the loss --


def by_hand(heads, texts, *, hard=False):
    """Position by position: head i at t guesses token t + 2 + i, which was drawn from the target's probabilities."""
    total = 0.0
    for i, head in enumerate(heads):
        terms = []
        for text in texts:
            session = habits().session(text.tokens[:1], hidden=-1)
            logits, hidden = [session.feed()], [session.hidden]
            logits, hidden = logits + [session.feed(text.tokens[1:])], hidden + [session.hidden]
            logits, hidden = torch.cat(logits), torch.cat(hidden)
            for t in range(text.own - 1, len(text.tokens) - 2 - i):
                guess, token = head(hidden[t]).log_softmax(-1), t + 2 + i
                right = (logits[token - 1] / (LOW if token >= text.low_from else 1.0)).softmax(-1)
                terms.append(-guess[text.tokens[token]] if hard else -(right * guess).sum())
        total = total + 0.8**i * torch.stack(terms).mean()
    return total


@pytest.mark.parametrize("hard", [False, True])
def test_the_loss_is_the_published_one(hard):
    one = new("medusa", heads=3, hard=hard)
    assert loss_of(one).item() == pytest.approx(by_hand(one.head, ODD, hard=hard).item(), rel=1e-4)


def test_large_logits_are_computed_twice_with_the_same_gradient(monkeypatch):
    one, gradients = new("medusa"), []
    for large in (training.LARGE, 0):
        monkeypatch.setattr(training, "LARGE", large)
        one.head.zero_grad()
        loss_of(one).backward()
        gradients.append([weight.grad.clone() for weight in one.head.parameters()])
    assert all(torch.equal(one, two) for one, two in zip(*gradients))


@pytest.mark.parametrize("hard", [False, True])
def test_heads_that_know_some_tokens_learn_where_the_targets_best_is_one_of_them(hard):
    known = [token for token in range(VOCAB) if token % 3]
    one, total, skipped = new("medusa", tokens=known, hard=hard), 0.0, 0
    for i, head in enumerate(one.head):
        terms = []
        for text in ODD:
            with torch.no_grad():
                hidden = habits().model(torch.tensor([text.tokens]), output_hidden_states=True).hidden_states[-1][0]
                logits = habits().model(torch.tensor([text.tokens])).logits[0]
            for t in range(text.own - 1, len(text.tokens) - 2 - i):
                guess, token = head(hidden[t]).log_softmax(-1), t + 2 + i
                if (text.tokens[token] if hard else int(logits[token - 1].argmax())) not in known:
                    skipped += 1
                elif hard:
                    terms.append(-guess[known.index(text.tokens[token])])
                else:
                    warmth = LOW if token >= text.low_from else 1.0
                    terms.append(-((logits[token - 1][known] / warmth).softmax(-1) * guess).sum())
        total = total + 0.8**i * sum(terms) / one.count(i, ODD)
    assert skipped and loss_of(one).item() == pytest.approx(total.item(), rel=1e-4)


def test_heads_that_borrow_the_targets_output_train_without_it_and_are_written_without_it(tmp_path):
    one = new("medusa", tokens=[1, 2, 3, 5, 8, 13], borrow=True)
    before = [head[-1].weight.clone() for head in one.head]
    fit(one, tmp_path / "run")
    assert all(torch.equal(head[-1].weight, old) for head, old in zip(one.head, before))
    assert not torch.equal(one.head[0][0].linear.weight, torch.zeros(one.head.width, one.head.width))
    path = one.write(one.head, tmp_path / "heads", "base")
    assert not [name for name in load_file(path) if name.startswith("lm_heads")]
    assert torch.equal(weights(load_medusa(tmp_path / "heads", habits())), weights(one.head))
    with pytest.raises(ValueError, match=r"these heads use the target's output layer: load_medusa\(folder, target\)"):
        load_medusa(tmp_path / "heads")


@pytest.mark.parametrize(
    "kind, settings, said",
    [
        ("medusa joint", {}, "cannot borrow the output head of a target that is trained with them"),
        ("medusa", {"layers": 0}, "need layers of 1 or more to learn in"),
    ],
)
def test_heads_that_cannot_borrow_are_refused(kind, settings, said):
    with pytest.raises(ValueError, match=said):
        new(kind, borrow=True, **settings)


# -- training --


def test_heads_come_with_the_tree_that_their_accuracies_make_best(tmp_path):
    one = new("medusa", nodes=9)
    measured = fit(one, tmp_path).accuracies
    assert [len(ranks) for ranks in measured["cold"]] == [training.RANKS] * 2
    assert one.head.accuracies == measured["cold"] and one.head.choices == grow(measured["cold"], 9)


def test_held_out_texts_too_short_to_measure_all_heads_are_named(tmp_path):
    half_cold = [SampledText([3, 1, 4, 1, 5, 9], 1, 3)] * 8
    with pytest.raises(ValueError, match="the held-out texts are too short to measure all 4 heads"):
        fit(new("medusa", heads=4), tmp_path, held_out=half_cold, steps=1)


# -- joint training --


def test_joint_training_moves_a_copy_of_the_target_a_little(tmp_path):
    joint = new("medusa joint")
    fit(joint, tmp_path, steps=40)
    change = (weights(joint.student.model) - weights(habits().model)).abs().max()
    assert 0 < change < 0.01 / training.HEADS_RATE * 40


def test_in_joint_training_the_heads_begin_alone_and_then_both_learn(tmp_path, monkeypatch):
    joint, seen, train = new("medusa joint"), [], learner.train

    def watching(model, loss, optimizers, **rest):
        def watched(step):
            value = loss(step)
            value.backward(retain_graph=True)
            learns = any(weight.grad is not None for weight in model["target"].parameters())
            model.zero_grad(set_to_none=True)
            seen.append((learns, model.training))
            return value

        assert [group["lr"] for group in optimizers[0].param_groups] == [0.01, 0.0025]
        return train(model, watched, optimizers, **rest)

    monkeypatch.setattr(learner, "train", watching)
    fit(joint, tmp_path)
    assert seen == [(False, False)] * 2 + [(True, False)] * 6  # never with dropout


def test_self_distillation_starts_at_nothing_and_pulls_back():
    """The divergence from the frozen copy: 0 for the copy itself; for another model, computed by hand."""
    joint, frozen = new("medusa joint"), new("medusa")
    assert loss_of(joint).item() == pytest.approx(training.HEADS_WEIGHT * loss_of(frozen).item(), rel=1e-4)
    other = random_model("llama", seed=5)
    joint.student.model.load_state_dict(copy.deepcopy(other.state_dict()))
    divergence, positions = 0.0, 0
    for text in ODD:
        tokens = torch.tensor([text.tokens])
        with torch.no_grad():
            old, new_ = (model(tokens).logits[0, :-1].log_softmax(-1) for model in (habits().model, other))
        divergence += (old.exp() * (old - new_)).sum()
        positions += len(text.tokens) - 1
    batch = Batches(habits(), ODD, 3)[0]
    with torch.no_grad():
        hidden = other(batch.tokens, output_hidden_states=True).hidden_states[-1]
        expected = divergence / positions + training.HEADS_WEIGHT * joint.heads_loss(batch, hidden)
    assert loss_of(joint).item() == pytest.approx(float(expected), rel=1e-4) and divergence / positions > 0.1


def test_joint_training_in_float16_is_refused():
    with pytest.raises(ValueError, match="float16 cannot be trained"):
        new("medusa joint", LM(random_model("llama", dtype=torch.float16)))
