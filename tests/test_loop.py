"""The loop of all trainings: checkpoints that are whole or not there, schedules, and means over several processes."""

from dataclasses import replace
from functools import cache, partial

import pytest
import torch
from training_runs import TINY_VILLAGE as TINY

from tutorlib.lab.training import accuracy, loop, train_village
from tutorlib.lab.training.devices import Devices
from tutorlib.lab.training.tokenizers import learn

LEARN_ONCE = cache(partial(learn, stories=30))


@pytest.fixture
def fit(tmp_path, monkeypatch):
    """`fit(steps)`: trains a tiny model of the village's kind in a folder."""
    monkeypatch.setattr(accuracy, "answer_shares", lambda *_: {})
    monkeypatch.setattr(train_village, "learn", LEARN_ONCE)

    def fit(steps):
        recipe = replace(TINY, stages=(replace(TINY.stages[0], steps=steps),))
        return train_village.fit_recipe(recipe, tmp_path, progress=False)

    return fit


def test_a_kill_while_saving_leaves_the_old_checkpoint(fit, tmp_path, monkeypatch):
    fit(4)
    before = (tmp_path / "stage 1" / "checkpoint.pt").read_bytes()

    def dies(state, file):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(loop.torch, "save", dies)
    with pytest.raises(KeyboardInterrupt):
        fit(8)
    assert (tmp_path / "stage 1" / "checkpoint.pt").read_bytes() == before


def test_a_damaged_checkpoint_is_named(fit, tmp_path):
    (tmp_path / "stage 1").mkdir()
    (tmp_path / "stage 1" / "checkpoint.pt").write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match="checkpoint.pt cannot be read.*delete it"):
        fit(2)


def test_a_checkpoint_of_something_else_is_named(fit, tmp_path):
    fit(2)
    path = tmp_path / "stage 1" / "checkpoint.pt"
    right = torch.load(path, weights_only=True)
    for other in ([], {}, right | {"model": {}}, right | {"optimizers": []}, right | {"optimizers": [{}]}):
        torch.save(other, path)
        with pytest.raises(ValueError, match="checkpoint.pt is a checkpoint of something else.*delete it"):
            fit(2)


def test_a_loss_that_is_not_a_number_stops_the_run(tmp_path):
    model = torch.nn.Linear(1, 1)
    with pytest.raises(FloatingPointError, match="lower learning rate"):
        loop.train(
            model,
            lambda step: model(torch.ones(1, 1)).sum() * float("nan"),
            [torch.optim.SGD(model.parameters(), lr=0.1)],
            steps=3,
            folder=tmp_path,
            schedule=lambda step: 1.0,
            progress=False,
        )


class AsIfTheOthersHadMore(Devices):
    """Of several processes, with a mean that is always three times what this one brings."""

    def average(self, tensors):
        for tensor in tensors:
            tensor.mul_(3)

    def wait(self):
        pass


@pytest.mark.parametrize("rank", [0, 1])
def test_gradients_and_losses_are_means_over_the_processes_and_the_first_one_writes(tmp_path, rank):
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(model.weight, 1.0)
    log = loop.train(
        model,
        lambda step: 0.1 * model.weight.sum(),
        [torch.optim.SGD(model.parameters(), lr=1.0)],
        steps=2,
        folder=tmp_path,
        schedule=lambda step: 1.0,
        devices=AsIfTheOthersHadMore(rank=rank, processes=2),
        progress=False,
    )
    assert model.weight.item() == pytest.approx(1 - 2 * 3 * 0.1)
    assert log[-1]["loss"] == pytest.approx(3 * (0.1 + 0.07) / 2)
    assert {path.name for path in tmp_path.iterdir()} == (set() if rank else {"checkpoint.pt", "log.jsonl"})


def test_the_schedule_warms_up_and_decays():
    factor = loop.warmup_then_decay(1000, warmup=100)
    assert factor(0) == pytest.approx(0.01) and factor(400) == 1.0
    assert factor(700) == pytest.approx(0.5) and factor(999) == pytest.approx(0.02)
