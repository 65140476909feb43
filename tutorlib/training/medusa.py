"""Medusa heads for any target, trained on texts that the target tells itself, with what it says as the labels.

The target is frozen (Medusa-1), or trained a little with the heads while it is held to what it said before (Medusa-2,
``joint=True``). What this file does not do: tell the texts (`own_text`), or take the steps (`loop`).

Source: Cai et al. (2024), "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads", sections
2.2 and 2.3.2.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from ..disk import filling
from ..heads.choices import grow
from ..heads.formats import save_medusa
from ..heads.medusa import NODES, MedusaHeads
from ..lm import LM
from .devices import ALONE, Devices
from .loop import train, warmup_then_decay
from .own_text import Batch, Batches, Text, claim, fingerprint, hidden_states
from .tell import Told, write_log

DECAY = 0.8  # the weight of each head's loss, in proportion to that of the head before
HEADS_WEIGHT = 0.2  # of the heads' losses beside the target's own, in joint training
HEADS_RATE = 4  # times as large as the target's, the learning rate of the heads in joint training
ALONE_FIRST = 0.25  # the share of joint training in which only the heads learn, so that they do the target no harm
RANKS = 10  # of a head's guesses, whose accuracies are measured
LARGE = 2**27  # logits of one head, above which they are computed once more rather than kept for the gradient


class Fitted(NamedTuple):
    """What training gave.

    Attributes
    ----------
    heads : MedusaHeads
        With the choices that their accuracies make best.
    target : LM
        As it was given; a new one after joint training.
    accuracies : dict
        "cold" and "sampled" → list, for each head, of how often its guesses of rank 0, 1, ... were right in held-out
        texts, where those had become cold and where they were sampled at temperature 1. Without such places, missing.
    log : list of dict
    """

    heads: MedusaHeads
    target: LM
    accuracies: dict[str, list[list[float]]]
    log: list[dict]


def fit(
    target: LM,
    texts: Sequence[Text],
    held_out: Sequence[Text],
    folder,
    *,
    cold_temperature: float,
    heads: int = 4,
    layers: int = 1,
    nodes: int = NODES,
    steps: int = 3000,
    rows: int = 16,
    rate: float = 1e-3,
    hard: bool = False,
    joint: bool = False,
    devices: Devices = ALONE,
    every: int = 250,
    progress: bool = True,
) -> Fitted:
    """Train Medusa heads on a target's own texts, going on from what is in the folder.

    Parameters
    ----------
    target : LM
        Not changed. For joint training in float32 (or bfloat16).
    texts, held_out : sequences of Text
        What is learnt from, and what accuracies are measured on: see `own_text.own_texts`.
    folder : path
        For the checkpoint and the log.
    cold_temperature : float
        At which the cold parts of the texts were drawn.
    heads, layers : int
        How many, and residual blocks in each.
    nodes : int
        Of the tree that the heads come with.
    steps, rows : int
        Training steps, and texts in each.
    rate : float
        AdamW's learning rate for the heads.
    hard : bool
        The labels are the texts' tokens; by default they are the law that each of them was drawn from.
    joint : bool
        Train a copy of the target too, at a fourth of the heads' rate and after they have had a fourth of the steps to
        themselves: it is to give what the target gives (the Kullback-Leibler divergence is added to the loss) from
        hidden states that tell the heads more.
    devices : Devices

    Returns
    -------
    Fitted

    Raises
    ------
    ValueError
        For a folder that was begun with other settings; for a target in float16 if `joint`; for texts all too short for
        the heads to guess anything in them.
    """
    if joint and target.dtype == torch.float16:
        raise ValueError("a target in float16 cannot be trained: load it with dtype=float32 (or bfloat16)")
    settings = {"heads": heads, "layers": layers, "steps": steps, "rows": rows, "rate": rate, "hard": hard}
    settings |= {"joint": joint, "texts": len(texts), "model": fingerprint(target.model)}
    claim(folder, settings, devices)
    output = target.model.get_output_embeddings().weight
    learner = MedusaHeads(target.width, target.vocab_size, heads, layers, output=output.detach().float())
    learner.to(target.device)
    batches = Batches(target, texts, rows, devices=devices)
    checked = Batches(target, held_out, rows)  # by every process: no rest waits for the first
    if not max(_places(heads - 1, text).stop for text in [*texts, *held_out]) > 0:
        raise ValueError(f"the texts are too short for {heads} heads: let them be longer")
    label = partial(_labels, target, cold_temperature=cold_temperature, hard=hard)

    if joint:
        student = copy.deepcopy(target.model).requires_grad_(True)
        model, loss = Joint(learner, student), _joint_loss(learner, student, batches, label, steps, devices)
        groups = [{"params": learner.parameters()}, {"params": student.parameters(), "lr": rate / HEADS_RATE}]
    else:
        student, model, loss = target.model, learner, _loss(learner, batches, label, devices)
        groups = [{"params": learner.parameters()}]
    fitted = LM(student, target.tokenizer, context=target.context)
    log = train(
        model,
        loss,
        [torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98), weight_decay=0.0)],
        steps=steps,
        folder=folder,
        schedule=warmup_then_decay(steps, warmup=min(100, steps), flat=0.2),
        report=lambda: _best(accuracies(learner, fitted, checked, ranks=1)),
        every=every,
        devices=devices,
        progress=progress,
    )
    student.requires_grad_(False)
    measured = accuracies(learner, fitted, checked)
    learner.accuracies = measured.get("cold") or measured["sampled"]
    learner.choices = grow(learner.accuracies, nodes)
    return Fitted(learner.eval().requires_grad_(False), fitted if joint else target, measured, log)


class Joint(nn.ModuleDict):
    """Heads and target as one module. It never trains with dropout: the target is to say what it said."""

    def __init__(self, heads: MedusaHeads, target: nn.Module):
        super().__init__({"heads": heads, "target": target})

    def train(self, mode: bool = True):
        return super().train(False)


# The loss.


def head_losses(heads: MedusaHeads, hidden: torch.Tensor, labels: torch.Tensor, texts, everybody) -> list[torch.Tensor]:
    """Cross-entropy of each head's guesses, averaged over the places of all processes' texts.

    Head i at position t guesses token t + 2 + i, of which the target says at position t + 1 + i what it thinks.

    Parameters
    ----------
    heads : MedusaHeads
    hidden : (rows, length, width) tensor
    labels : (rows, length, vocab) tensor of probabilities, or (rows, length) int64 tensor of tokens
        At position t what is right for token t + 1.
    texts, everybody : lists of Text
        The rows, and those of all processes.
    """
    losses = []
    hidden = hidden.to(next(heads.parameters()).dtype)
    for i, head in enumerate(heads):
        rows, positions = _index(i, texts, hidden.device)
        total = sum(len(_places(i, text)) for text in everybody)

        def cross_entropy(head=head, rows=rows, positions=positions, ahead=i + 1):
            right = labels[rows, positions + ahead]
            return F.cross_entropy(head(hidden[rows, positions]), right, reduction="sum")

        if len(rows) * heads.vocab_size > LARGE:
            summed = checkpoint(cross_entropy, use_reentrant=False)
        else:
            summed = cross_entropy()
        losses.append(summed / max(total, 1))
    return losses


def _places(head: int, text: Text) -> range:
    """Positions t of a text from which this head's guess can be checked, and the one token before it is own text."""
    return range(text.own - 1, max(text.own - 1, len(text.tokens) - 2 - head))


def _index(head, texts, device):
    """(rows, positions) of all places for this head."""
    pairs = [(row, position) for row, text in enumerate(texts) for position in _places(head, text)]
    return torch.tensor(pairs, dtype=torch.int64, device=device).reshape(-1, 2).unbind(1)


def _labels(target, batch: Batch, *, cold_temperature, hard):
    """At each position what is right for the next token: the law that it was drawn from, or (hard) the token itself."""
    if hard:
        return batch.tokens.roll(-1, dims=1)
    degrees = torch.ones(batch.tokens.shape, device=batch.tokens.device)
    for row, text in enumerate(batch.texts):
        degrees[row, text.cold - 1 : len(text.tokens) - 1] = cold_temperature
    logits = target.read_out(batch.hidden[-1], normed=True).float()
    return (logits / degrees[..., None]).softmax(-1)


def _weighted(losses):
    return sum(DECAY**i * loss for i, loss in enumerate(losses))


def _loss(heads, batches, label, devices):
    """The loss of a step with a frozen target. The mean over the processes is the loss of the whole batch."""

    def loss(step):
        batch = batches.step(step)
        return devices.processes * _weighted(
            head_losses(heads, batch.hidden[-1], label(batch), batch.texts, batch.everybody)
        )

    return loss


def _joint_loss(heads, student, batches, label, steps, devices):
    """The loss of a step in which the target learns too: held to itself as it was, and the heads' beside that."""
    heads_alone = _loss(heads, batches, label, devices)

    def loss(step):
        if step < ALONE_FIRST * steps:
            return heads_alone(step)
        batch = batches.step(step)
        said = student(input_ids=batch.tokens, use_cache=False, output_hidden_states=True)
        old = batches.lm.read_out(batch.hidden[-1], normed=True)
        places = [(row, position) for row, text in enumerate(batch.texts) for position in range(len(text.tokens) - 1)]
        rows, positions = torch.tensor(places, device=old.device).unbind(1)
        old, new = (logits[rows, positions].float().log_softmax(-1) for logits in (old, said.logits))
        divergence = F.kl_div(new, old, reduction="sum", log_target=True)
        divergence = divergence / sum(len(text.tokens) - 1 for text in batch.everybody)
        losses = head_losses(heads, said.hidden_states[-1], label(batch), batch.texts, batch.everybody)
        return devices.processes * (divergence + HEADS_WEIGHT * _weighted(losses))

    return loss


# What the heads have learnt.


@torch.no_grad()
def accuracies(heads: MedusaHeads, target: LM, batches: Batches, ranks: int = RANKS) -> dict[str, list[list[float]]]:
    """How often each head's guess of each rank is the token that came.

    Returns
    -------
    dict
        See `Fitted`. A place counts as cold if all tokens from the next one to the one guessed were drawn cold, as
        sampled if none of them was.
    """
    ranks = min(ranks, heads.vocab_size)
    right = torch.zeros(2, len(heads), ranks)
    seen = torch.zeros(2, len(heads), 1)
    for number in range(len(batches)):
        batch = batches[number]
        hidden = batch.hidden[-1]
        if target.model is not batches.lm.model:
            hidden = hidden_states(target.model, batch.tokens, (-1,))[-1]
        hidden = hidden.to(next(heads.parameters()).dtype)
        cold = torch.tensor([text.cold for text in batch.texts], device=hidden.device)
        for i, head in enumerate(heads):
            rows, positions = _index(i, batch.texts, hidden.device)
            guessed = head(hidden[rows, positions]).topk(ranks, dim=-1).indices
            hits = (guessed == batch.tokens[rows, positions + 2 + i, None]).float()
            for kind, which in enumerate((positions + 1 >= cold[rows], positions + 2 + i < cold[rows])):
                right[kind, i] += hits[which].sum(0).cpu()
                seen[kind, i] += which.sum().cpu()
    return {
        name: [[round(share, 4) for share in head] for head in (right[kind] / seen[kind]).tolist()]
        for kind, name in enumerate(("cold", "sampled"))
        if (seen[kind] > 0).all()
    }


def _best(measured):
    """Each head's best guess, for the log."""
    return {f"{name} {i}": head[0] for name, heads in measured.items() for i, head in enumerate(heads)}


# Files.


def write(
    fitted: Fitted,
    out,
    *,
    settings: dict,
    command: Sequence[str] = (),
    base: str = "",
    joint: bool = False,
    half: bool = True,
) -> Path:
    """Write the heads with their log into a folder, after joint training as a family: ``target`` and ``medusa`` in it.

    Parameters
    ----------
    settings : dict
        What the heads were made with, for the log.
    command : sequence of str
        How to make them again.
    base : str
        The target's name.
    half : bool
        In half precision.

    Returns
    -------
    path of the heads' folder
    """
    out = Path(out)
    folder = out / "medusa" if joint else out
    if joint:
        model = fitted.target.model
        with filling(out / "target", model.num_parameters() * model.dtype.itemsize) as fresh:
            model.save_pretrained(fresh)
            if fitted.target.tokenizer is not None:
                fitted.target.tokenizer.save_pretrained(fresh)
    write_log(folder, command, settings, fitted.accuracies, fitted.log)
    heads = copy.deepcopy(fitted.heads)
    save_medusa(heads.half() if half else heads, folder, base=base).chmod(0o644)  # safetensors are written as private
    return folder


def make(
    told: Told,
    out,
    *,
    joint: bool = False,
    devices: Devices = ALONE,
    command: Sequence[str] = (),
    progress: bool = True,
    **settings,
) -> Path:
    """Train heads on a target's own texts, and write them; what was done before is gone on from.

    Parameters
    ----------
    told : Told
        See `tell.tell`.
    out : path
        Where the heads go.
    **settings
        See `fit`.

    Returns
    -------
    path of the heads' folder
    """
    fitted = fit(
        told.target,
        told.train,
        told.held_out,
        told.place / ("medusa joint" if joint else "medusa"),
        cold_temperature=told.setting["temperature"],
        joint=joint,
        devices=devices,
        progress=progress,
        **settings,
    )
    if devices.first:
        settings = told.setting | {"joint": joint} | settings
        write(fitted, out, settings=settings, command=command, base=told.base, joint=joint)
    devices.wait()
    return Path(out) / "medusa" if joint else Path(out)
