"""Training on a target's own texts: the common part for Medusa heads and EAGLE networks.

A `Learner` describes one kind of heads: what is trained, its loss, its guesses, its files. `fit` trains it, and `make`
also writes the result. What this file does not do: sample the texts (`sampled_texts`), or run the training steps
(`loop`).
"""

from __future__ import annotations

import copy
import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from ...arguments import check_whole_number, is_number
from ...disk import write_text
from ...model.lm import LM
from .batches import Batches, TextBatch
from .devices import ALONE, Devices
from .loop import train, warmup_then_decay
from .sampled_texts import SampledText, claim, weights_fingerprint
from .stored_features import StoredFeatures
from .texts import TargetTexts


class Learner:
    """One kind of heads for a target. At position t its steps (or heads) 0, 1, ... guess the tokens t + 2, t + 3, ...

    Attributes
    ----------
    name : str
        Of the folder for its checkpoint and log.
    target : LM
        Not changed: batches hold its hidden states.
    reader : LM
        Computes the hidden states that are stored: the target, or the same model in half precision.
    head : nn.Module
        What is made.
    trained : nn.Module
        What training changes and checkpoints hold: `head`, or a module around it.
    settings, noted : dict
        What it is made with, for the log. A training goes on only where it was begun with the same `settings`.
    layers : sequence of int
        The hidden states that it needs.
    best : bool
        Whether it needs the target's most likely tokens.
    betas : pair of floats
        AdamW's.
    given : int
        How many tokens after t it knows at position t.
    depth, ranks : int
        How many steps are measured, and how many guesses of each.
    needed : int
        The number of the last step that must find something to guess.
    part : str
        The subfolder for the head; by default none.
    """

    name: str
    betas: tuple[float, float]
    given: int
    layers: Sequence[int]
    depth, ranks, needed, part = 1, 1, 0, ""

    def __init__(self, target: LM, head: nn.Module):
        self.target, self.head = target, head.to(target.device)
        self.reader = target
        self.trained: nn.Module = self.head
        self.settings, self.noted, self.layers, self.best = {}, {}, (-1,), False

    @staticmethod
    def first(step: int, text: SampledText) -> int:
        """The first position at which this step guesses the model's own words."""
        raise NotImplementedError

    def loss(self, batch: TextBatch, step: int, steps: int) -> torch.Tensor:
        """The loss of a training step: a sum over this process's positions, divided by the number of all positions."""
        raise NotImplementedError

    def guesses(self, batch: TextBatch) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """For each step the rows and positions of `index`, and the logits of its guesses there."""
        raise NotImplementedError

    def write(self, head: nn.Module, folder: Path, base: str) -> Path:
        """Write the head's files with the target's name; return the path of the tensors."""
        raise NotImplementedError

    def groups(self, rate: float) -> list[dict]:
        """The optimizer's groups of weights."""
        return [{"params": [weight for weight in self.trained.parameters() if weight.requires_grad]}]

    def finish(self, accuracies: dict) -> None:
        """Finish the head, given its accuracies."""
        self.trained.eval().requires_grad_(False)

    def save(self, out: Path, base: str) -> None:
        """Write the head, in half precision."""
        path = self.write(copy.deepcopy(self.head).half(), out / self.part, base)
        path.chmod(0o644)  # safetensors are written as private

    @classmethod
    def positions(cls, step: int, text: SampledText) -> range:
        """Positions of a text at which this step's guesses can be checked."""
        first = cls.first(step, text)
        return range(first, max(first, len(text.tokens) - 2 - step))

    @classmethod
    def count(cls, step: int, texts: Sequence[SampledText]) -> int:
        """How many positions there are, at least 1 to divide by."""
        return max(1, sum(len(cls.positions(step, text)) for text in texts))

    @classmethod
    def index(cls, step: int, texts: Sequence[SampledText], device) -> tuple[torch.Tensor, torch.Tensor]:
        """(rows, positions) of all positions for this step."""
        pairs = [(row, position) for row, text in enumerate(texts) for position in cls.positions(step, text)]
        rows, at = torch.tensor(pairs, dtype=torch.int64, device=device).reshape(-1, 2).unbind(1)
        return rows, at


class Fitted(NamedTuple):
    """The results of training, besides the learner's head.

    Attributes
    ----------
    accuracies : dict
        See `accuracies`, on the held-out texts.
    log : list of dict
    """

    accuracies: dict[str, list]
    log: list[dict]


def fit(
    learner: Learner,
    texts: Sequence[SampledText],
    held_out: Sequence[SampledText],
    folder,
    *,
    steps: int,
    rows: int = 16,
    rate: float = 1e-3,
    devices: Devices = ALONE,
    every: int = 250,
    memory: float = 2e9,
    disk: float = 0,
    progress: bool = True,
) -> Fitted:
    """Train a learner on its target's own texts, in place, continuing from the checkpoint in the folder.

    Parameters
    ----------
    learner : Learner
    texts, held_out : sequences of SampledText
        The texts for training and for measuring accuracies: see `sampled_texts.sampled_texts`.
    folder : path
        For the checkpoint and the log.
    steps, rows : int
        Training steps, and texts in each.
    rate : float
        AdamW's learning rate.
    devices : Devices
    every : int
        Steps from one entry of the log to the next.
    memory : float
        Bytes for keeping the target's hidden states from one round over the texts to the next.
    disk : float
        Bytes for storing them once on the disk instead, in half precision, in the folder `features` beside this one. 0:
        none are stored.

    Raises
    ------
    ValueError
        If the folder was begun with other settings or another training writes to it, if the texts are too short to
        guess anything in them, if the number of steps or rows is below 1, or if the rate is not above 0.
    """
    check_training(steps, rows, rate)
    for some, name in ((texts, "texts"), (held_out, "held-out texts")):
        if not any(learner.positions(learner.needed, text) for text in some):
            raise ValueError(
                f"the {name} are too short to learn from: let them have {learner.needed + 2} tokens or more after "
                "the prompt"
            )
    settings = {"steps": steps, "rows": rows, "rate": rate, "texts": len(texts)}
    with devices.keep(folder):
        claim(folder, settings | learner.settings | {"model": weights_fingerprint(learner.target.model)}, devices)
        shared: dict[str, Any] = {"layers": learner.layers, "best": learner.best}
        stored = None
        if disk:
            place = Path(folder).parent / "features"
            stored = StoredFeatures(
                learner.reader, texts, folder=place, **shared, disk=disk, devices=devices, progress=progress
            )
        batches = Batches(learner.target, texts, rows, **shared, devices=devices, memory=memory, features=stored)
        checked = Batches(learner.target, held_out, rows, layers=learner.layers)  # by every process: no rest waits
        log = train(
            learner.trained,
            losses(learner, batches, steps),
            [torch.optim.AdamW(learner.groups(rate), lr=rate, betas=learner.betas, weight_decay=0.0)],
            steps=steps,
            folder=folder,
            schedule=warmup_then_decay(steps, warmup=min(100, steps), flat=0.2),
            report=lambda: {
                f"{kind} {step}": share
                for kind, shares in accuracies(learner, checked).items()
                for step, share in enumerate(shares)
            },
            every=every,
            devices=devices,
            progress=progress,
        )
    measured = accuracies(learner, checked, learner.ranks)
    learner.finish(measured)
    return Fitted(measured, log)


def losses(learner: Learner, batches: Batches, steps: int) -> Callable[[int], torch.Tensor]:
    """A loss for each step, such that the mean over the processes is the loss of the whole batch."""
    return lambda step: batches.devices.processes * learner.loss(batches.step(step), step, steps)


def check_training(steps: int, rows: int, rate: float) -> None:
    """Raise ValueError if the settings of a training are wrong."""
    for name, count in (("steps", steps), ("rows", rows)):
        check_whole_number(count, 1, f"training needs {name}")
    if not is_number(rate) or not rate > 0:
        raise ValueError(f"training needs a rate above 0, got {rate}")


def accuracies(learner: Learner, batches: Batches, ranks: int = 1) -> dict[str, list]:
    """How often each step's guesses are right, as shares rounded to four digits.

    Returns
    -------
    dict
        "cold" and "sampled", see `right_guesses`, without the one that some step has no guesses for → for each step
        the share of its best guess, or with `ranks` above 1 a list of those of its guesses of rank 0, 1, ...
    """
    counted = right_guesses(learner, batches, ranks)
    shares = {
        kind: [[round(share, 4) for share in step] for step in (right.sum(0) / seen.sum(0)[:, None]).tolist()]
        for kind, (right, seen) in counted.items()
        if (seen.sum(0) > 0).all()
    }
    return shares if ranks > 1 else {kind: [share for (share,) in steps] for kind, steps in shares.items()}


@torch.no_grad()
def right_guesses(learner: Learner, batches: Batches, ranks: int = 1) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """For each text, the number of right guesses of each step, and the number of all its guesses.

    Returns
    -------
    dict
        "cold" and "sampled" → two int64 tensors, (texts, steps, ranks) and (texts, steps), the texts in the order of
        the batches. A guess counts as cold if all tokens that are not known at its position, up to the one guessed,
        were drawn at the low temperature, and as sampled if none was.
    """
    found = {"cold": [], "sampled": []}
    for number in range(len(batches)):
        batch = batches[number]
        low_from = torch.tensor([text.low_from for text in batch.texts], device=batch.tokens.device)
        right = torch.zeros(2, len(batch.texts), learner.depth, ranks, dtype=torch.int64, device=low_from.device)
        seen = torch.zeros_like(right[..., 0])
        for step, (rows, at, logits) in enumerate(learner.guesses(batch)):
            guessed = at + 2 + step
            hits = (logits.topk(ranks, dim=-1).indices == batch.tokens[rows, guessed, None]).long()
            for place, which in enumerate((at + 1 + learner.given >= low_from[rows], guessed < low_from[rows])):
                right[place, :, step].index_add_(0, rows[which], hits[which])
                seen[place, :, step] += rows[which].bincount(minlength=len(batch.texts))
        for kind, both in zip(found, zip(right.cpu(), seen.cpu(), strict=True), strict=True):
            found[kind].append(both)
    joined = {kind: [torch.cat(parts) for parts in zip(*both, strict=True)] for kind, both in found.items()}
    return {kind: (right, seen) for kind, (right, seen) in joined.items()}


def make(
    texts: TargetTexts,
    learner: Learner,
    out,
    *,
    steps: int,
    rows: int = 16,
    rate: float = 1e-3,
    devices: Devices = ALONE,
    memory: float = 2e9,
    disk: float = 0,
    command: Sequence[str] = (),
    progress: bool = True,
) -> Path:
    """Train a learner on its target's own texts, continuing from an earlier run, and write its head with a log.

    Parameters
    ----------
    texts : TargetTexts
        See `texts.family_texts`.
    learner : Learner
    out : path
        Where the files go.
    memory, disk : float
        See `fit`.
    command : sequence of str
        The command to make them again, for ``training_log.json``.

    Returns
    -------
    path of the head's folder
    """
    training: dict[str, Any] = {"steps": steps, "rows": rows, "rate": rate}
    folder = Path(out) / learner.part
    fitted = fit(
        learner,
        texts.train,
        texts.held_out,
        texts.place / learner.name,
        **training,
        devices=devices,
        memory=memory,
        disk=disk,
        progress=progress,
    )
    if devices.first:
        folder.mkdir(parents=True, exist_ok=True)
        log = {"command": shlex.join(command), **texts.setting, **training, **learner.settings, **learner.noted}
        log["own_tokens"] = sum(len(text.tokens) - text.own for text in texts.train)
        log |= {"accuracies": fitted.accuracies, "log": fitted.log}
        write_text(folder / "training_log.json", json.dumps(log, indent=1) + "\n")
        learner.save(Path(out), texts.base)
    devices.wait()
    return folder
