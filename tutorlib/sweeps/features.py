"""The sweep of chapter 11: what a draft network must be given. Four of one size, trained alike on the target's texts.

All are EAGLE-1's network and learn what it learns: the target's next feature, and what the target's head reads in it.
They differ in what goes in beside what they guessed themselves: the feature f_t, the token that it belongs to, x_t, the
token after that, x_{t+1}, which is known by then, or two of these. What does not go in is zero, so that all have as
many weights. Such an ablation is in Li et al. (2024), "EAGLE: Speculative Sampling Requires Rethinking Feature
Uncertainty", section 4.3.2.

The texts are told by the target first, which takes some minutes; they are kept in ``runs/sweeps/features``. Each long
row takes some minutes more. Rows with a name in ``short`` are small enough to be computed anew in a chapter, texts
included: what they show is in the long rows too, less clearly. Nothing is timed here.
"""

import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch.nn import functional as F

from ..heads.eagle import EagleHead, causal
from ..training.eagle import DEEP, fit, index, joined, layer_config, new_eagle, unroll
from ..training.own_text import Batches, Telling, Text, own_texts

RUNS = Path("runs/sweeps/features")  # where texts are kept
SETTING = {
    "target": "storyworld target",
    "texts": 384,
    "held_out": 64,
    "length": 256,
    "steps": 400,
    "every": 50,
    "rows": 8,
    "rate": 0.003,
    "noise": 0.2,
    "short": {"texts": 64, "held_out": 64, "length": 96, "steps": 60, "every": 20, "rows": 16},
}


class Given(NamedTuple):
    """What goes into a network.

    Attributes
    ----------
    feature : bool
    token : str or None
        "next", the one after the feature's; "same", the feature's own; None.
    """

    feature: bool
    token: str | None


INPUTS = {
    "token": Given(False, "next"),
    "feature": Given(True, None),
    "feature and token": Given(True, "same"),
    "feature and next token": Given(True, "next"),
}
SHORT = "short: {}"

# A row's name -> what goes in, and whether it is a short one.
SETTINGS = {name: (given, False) for name, given in INPUTS.items()} | {
    SHORT.format(name): (given, True) for name, given in INPUTS.items()
}


class PartlyFed(EagleHead):
    """EAGLE-1's network, but for what it does not get to see."""

    def __init__(self, config, given: Given):
        super().__init__(config)
        self.given = given

    def forward(self, tokens, hidden, rotation, mix=causal):
        if self.given.token == "same":  # `tokens` are one place ahead of the features
            tokens = tokens.roll(1, dims=1)
        embedded = self.embed_tokens(tokens) * (self.given.token is not None)
        states = self.fc(torch.cat([embedded, hidden * self.given.feature], dim=-1))
        return self.layers[0](states, states, rotation, mix)


def new_network(target, given: Given) -> PartlyFed:
    """An untrained network; whatever it is given, it starts from the same weights."""
    head = PartlyFed(layer_config(target), given)
    head.load_state_dict(new_eagle(target).state_dict())
    return head


@cache
def told(lm, short: bool) -> tuple[list[Text], list[Text]]:
    """Texts to learn from and texts to measure with: told by the target, some of them cold from somewhere on."""
    setting = SETTING | (SETTING["short"] if short else {})
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) if short else RUNS
        return tuple(
            own_texts(lm, count, place / seed, Telling(setting["length"], seed=seed), progress=not short)
            for seed, count in (("train", setting["texts"]), ("held out", setting["held_out"]))
        )


@torch.no_grad()
def distances(head, target, batches: Batches, steps: int = DEEP) -> dict[str, list[float]]:
    """How far guessed features are from the target's, step by step, the tokens being the text's.

    Returns
    -------
    dict
        ``distance``: smooth L1, the mean over places and numbers of a feature; ``cosine``: of the angle between the
        two, the mean over places.
    """
    far, near, seen = torch.zeros(steps), torch.zeros(steps), torch.zeros(steps)
    for number in range(len(batches)):
        batch = batches[number]
        features = joined(head, batch)
        for j, hidden in enumerate(unroll(head, batch.tokens, features, steps)):
            rows, at = index(j, batch.texts, hidden.device)
            guessed, right = hidden[rows, at], features[rows, at + 1 + j]
            far[j] += F.smooth_l1_loss(guessed, right, reduction="sum").cpu() / head.width
            near[j] += F.cosine_similarity(guessed, right, dim=-1).sum().cpu()
            seen[j] += len(rows)
    return {"distance": (far / seen).tolist(), "cosine": (near / seen).tolist()}


def row(lm, name: str, texts: tuple[Sequence[Text], Sequence[Text]] | None = None) -> dict:
    """Train one network and measure it on held-out texts: a few minutes on one core, some 15 seconds for a short row.

    Parameters
    ----------
    lm : LM
        The target.
    name : str
        A key of `SETTINGS`.
    texts : pair of sequences of Text, optional
        To learn from and to measure with; by default `told`.

    Returns
    -------
    dict
        ``cold``, ``sampled``: for each step of a draft how often its best guess is right, all tokens before it being
        the text's, where the text was drawn cold (nearly greedy) and where it was sampled; ``distance``, ``cosine``:
        see `distances`; ``curve``: the first two during training, as lists ``step``, ``cold`` and ``sampled`` of the
        first step's guesses, and ``loss``, the mean since the entry before.
    """
    given, short = SETTINGS[name]
    setting = SETTING | (SETTING["short"] if short else {})
    train, held_out = told(lm, short) if texts is None else texts
    options = {key: setting[key] for key in ("steps", "every", "rows", "rate", "noise")}
    with tempfile.TemporaryDirectory() as folder:
        fitted = fit(lm, new_network(lm, given), train, held_out, folder, **options, progress=not short)
    log = fitted.log
    curve = {"step": "step", "cold": "cold 0", "sampled": "sampled 0", "loss": "loss"}
    return {
        **fitted.accuracies,
        **distances(fitted.head, lm, Batches(lm, held_out, setting["rows"])),
        "curve": {name: [entry[key] for entry in log] for name, key in curve.items()},
    }
