"""What tests of learning from own texts share: small learners, a family as a folder, trainings as processes."""

import json
import os
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import torch
from conftest import random_model
from tiny_family import write_model

from tutorlib.lab.training import (
    learner,
    train_dflash,
    train_eagle,
    train_medusa,
    train_mtp,
    train_parallel,
    train_pruned,
)
from tutorlib.lab.training.__main__ import main
from tutorlib.lab.training.batches import Batches
from tutorlib.lab.training.devices import ALONE, find_devices
from tutorlib.lab.training.loop import train
from tutorlib.lab.training.sampled_texts import SampledText, TextSettings, sampled_texts
from tutorlib.lab.training.tokenizers import END, START
from tutorlib.lab.training.train_village import Recipe, Stage
from tutorlib.model.lm import LM

TINY_VILLAGE = Recipe(16, 2, 400, "tiny", (START, END), (Stage(2, steps=6, rows=2, drill=4, hinted=4, rate=0.01),))
KINDS = ("medusa", "medusa joint", "eagle", "eagle3", "pruned", "dflash", "mtp", "mtp three", "parallel")
LOW = 0.1
ODD = [SampledText([3, 1, 4, 1, 5, 9, 2, 6], 1, 4), SampledText([6, 5, 3, 5], 3, 4), SampledText([2, 7, 1, 8, 2], 2, 2)]


@cache
def habits():
    """A target with habits: random, but sure enough of itself that its next words can be guessed."""
    return LM(random_model("llama"))


@cache
def sampled():
    """Texts of its own: to learn from, and to measure with."""
    settings = TextSettings(length=24, rows=48, temperature=LOW)
    with tempfile.TemporaryDirectory() as folder:
        texts = sampled_texts(habits(), 48, folder, settings, prompts=[[3], [4, 5]], progress=False)
    return texts[:36], texts[36:]


def new(kind, target=None, texts=ODD, *, feature_layers=(0, 1, 3), vocabulary=12, normed=False, **settings):
    """An untrained learner of a kind."""
    target = target or habits()
    if kind.startswith("medusa"):
        made = train_medusa.JointMedusaLearner if kind.endswith("joint") else train_medusa.MedusaLearner
        return made(target, **{"low_temperature": LOW, "heads": 2, **settings})
    if kind == "pruned":
        return train_pruned.PrunedLearner(target, **{"layers": (0, 2), **settings})
    if kind == "eagle":
        return train_eagle.EagleLearner(target, train_eagle.new_eagle(target), **settings)
    if kind.startswith("mtp"):
        head = train_mtp.new_mtp(target, 3 if "three" in kind else 1)
        return train_mtp.MtpLearner(target, head, **{"depth": 3, **settings})
    if kind == "parallel":
        head = train_parallel.new_parallel(target, texts, feature_layers, vocabulary, masks=3)
        return train_parallel.ParallelLearner(target, head, **settings)
    if kind == "dflash":
        made = train_dflash.DFlashLearner(target, train_dflash.new_dflash(target, feature_layers, 4), **settings)
        made.stride = 2  # texts are short
        return made
    head = train_eagle.new_eagle3(target, texts, feature_layers, vocabulary, normed=normed)
    return train_eagle.Eagle3Learner(target, head, **{"depth": 3, **settings})


def fit(made, folder, texts=None, held_out=None, **settings):
    settings = {"steps": 8, "rows": 8, "rate": 0.01, "progress": False, **settings}
    return learner.fit(made, texts or sampled()[0], held_out or sampled()[1], folder, **settings)


def loss_of(made, texts=ODD, devices=ALONE, step=3, steps=4):
    """A learner's loss on some texts as one batch."""
    batches = Batches(made.target, texts, len(texts), layers=made.layers, best=made.best, devices=devices)
    return learner.losses(made, batches, steps)(step)


def losses_by_step(kind, devices=ALONE, steps=6):
    """The loss of the whole batch at each step of a training, which all processes of `devices` share."""
    made, found = new(kind), []
    batches = Batches(made.target, sampled()[0], 8, layers=made.layers, best=made.best, devices=devices)
    loss = learner.losses(made, batches, steps)

    def noted(step):
        value = loss(step)
        whole = value.detach().clone()
        devices.average([whole])
        found.append(float(whole))
        return value

    optimizers = [torch.optim.AdamW(made.groups(0.01), lr=0.01)]
    with tempfile.TemporaryDirectory() as folder:
        train(
            made.trained, noted, optimizers, steps=steps, folder=folder, schedule=lambda step: 1.0, devices=devices,
            progress=False,
        )  # fmt: skip
    return found


def features(head, target, text):
    """What a draft network reads of each token of a text: (length, width * layers), from the target's own session."""
    session = target.session(text.tokens[:1], hidden=head.feature_layers)
    parts = [(session.feed(), session.hidden)[1], (session.feed(text.tokens[1:]), session.hidden)[1]]
    return torch.cat([torch.cat([part[layer] for part in parts]) for layer in head.feature_layers], dim=-1)


def drafted(head, target, text, place, steps):
    """Logits (steps, vocab) of a draft after a text's first tokens, with the text's own tokens as its guesses."""
    session = head.session(target)
    rows = [session.feed(text.tokens[1 : place + 2], features(head, target, text)[: place + 1])]
    for step in range(1, steps):
        rows.append(session.grow([text.tokens[place + 1 + step]], [step - 2]))
    return torch.cat(rows)


def weights(module):
    """All numbers of a module in one row."""
    return torch.cat([weight.detach().flatten() for weight in module.state_dict().values()])


def write_family(folder):
    """A random target with a tokenizer, as a folder."""
    write_model(folder / "target", 300, "one", weights_seed=3)
    return folder


def arguments(kind, family, folder, *more):
    """Of a small training for a family, which keeps and writes everything in a folder."""
    options = ["--target", str(family), "--runs", str(folder / "runs"), "--out", str(folder / "out")]
    options += ["--texts", "12", "--held-out", "6", "--length", "16", "--steps", "4", "--rows", "4"]
    its_own = {
        "medusa": ["--heads", "2"],
        "eagle3": ["--layers", "0", "1", "2", "--depth", "2"],
        "pruned": ["--layers", "0"],
        "dflash": ["--layers", "0", "1", "2", "--block", "4"],
        "mtp": ["--depth", "2"],
        "mtp three": ["--modules", "3"],
        "parallel": ["--layers", "0", "1", "2", "--masks", "2"],
    }
    its_own["medusa joint"] = [*its_own["medusa"], "--joint"]
    return [kind.split()[0], *options, *its_own.get(kind, []), "--device", "cpu", "--quiet", *more]


def started(arguments, *launcher, program=("-m", "tutorlib.lab.training")):
    """A training as a process of its own, perhaps through a module that launches several."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launcher, *program, *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def two_processes(losses, arguments):
    """Two processes that write the loss of each kind at every step and then share a training; None, or their errors."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--master-addr=127.0.0.1", f"--master-port={port}"]
    process = started([str(losses), *arguments], *launcher, program=[__file__])
    errors = process.communicate()[1]
    return None if process.returncode == 0 else errors


if __name__ == "__main__":  # one of the two
    here = find_devices("cpu")
    found = {kind: losses_by_step(kind, here) for kind in KINDS}
    if here.first:
        Path(sys.argv[1]).write_text(json.dumps(found))
    sys.exit(main(sys.argv[2:]))
