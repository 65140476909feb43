"""The sweep of chapter 16: which inputs a draft network needs. Four networks of one size are trained in the same way.

All have the architecture of EAGLE-1's network and learn the same: the target's next feature, and the distribution that
the target's head computes from it. They differ in their inputs, apart from their own guesses: the feature f_t, the
token x_t to which it belongs, the token after it, x_{t+1}, which is already known, or two of these. Inputs that a
network does not get are set to zero, so all have the same number of weights. There is a similar ablation in Li et al.
(2024), "EAGLE: Speculative Sampling Requires Rethinking Feature Uncertainty", section 4.3.2.

The target writes the texts first; they are stored in ``runs/experiments/features``. Each row takes some minutes.
Nothing is timed here.
"""

import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch.nn import functional as F

from ...drafting.eagle_head import EagleHead
from ...drafting.head_parts import causal
from ...measures import bootstrap_interval
from ..training.batches import Batches
from ..training.learner import fit, right_guesses
from ..training.sampled_texts import SampledText, TextSettings, sampled_texts
from ..training.train_eagle import DEEP, EagleLearner, joined, layer_config, new_eagle, unroll
from . import Experiment, Setting

RUNS = Path("runs/experiments/features")  # where texts are stored
SETTING: Setting = {
    "target": "storyworld target",
    "texts": 384,
    "held_out": 64,
    "length": 256,
    "steps": 400,
    "every": 50,
    "rows": 8,
    "rate": 0.003,
    "noise": 0.2,
}


class Given(NamedTuple):
    """The inputs of a network.

    Attributes
    ----------
    feature : bool
    token : str or None
        "next", the token after the feature's; "same", the feature's own token; or None.
    """

    feature: bool
    token: str | None


INPUTS = {
    "token": Given(False, "next"),
    "feature": Given(True, None),
    "feature and token": Given(True, "same"),
    "feature and next token": Given(True, "next"),
}
SETTINGS = INPUTS  # a row's name -> the inputs


class PartlyFed(EagleHead):
    """EAGLE-1's network, without some of its inputs."""

    def __init__(self, config, given: Given):
        super().__init__(config)
        self.given = given

    def forward(self, tokens, hidden, rotation, mix=causal):
        if self.given.token == "same":  # `tokens` are one position ahead of the features
            tokens = tokens.roll(1, dims=1)
        embedded = self.embed_tokens(tokens) * (self.given.token is not None)
        states = self.fc(torch.cat([embedded, hidden * self.given.feature], dim=-1))
        return self.layers[0](states, states, rotation, mix)


def new_network(target, given: Given) -> PartlyFed:
    """An untrained network. It starts from the same weights, whatever its inputs are."""
    head = PartlyFed(layer_config(target), given)
    head.load_state_dict(new_eagle(target).state_dict())
    return head


@cache
def _sampled(lm) -> tuple[list[SampledText], list[SampledText]]:
    """Texts for training and for measuring, sampled from the target. The temperature schedule of some ends low."""
    train, held_out = (
        sampled_texts(lm, count, RUNS / seed, TextSettings(SETTING["length"], seed=seed))
        for seed, count in (("train", SETTING["texts"]), ("held out", SETTING["held_out"]))
    )
    return train, held_out


@torch.no_grad()
def distances(head, target, batches: Batches, steps: int = DEEP) -> dict[str, list[float]]:
    """How far predicted features are from the target's, step by step. The tokens are those of the text.

    Returns
    -------
    dict
        ``distance``: the smooth L1 distance, averaged over positions and the dimensions of a feature; ``cosine``: the
        cosine similarity, averaged over positions.
    """
    far, near, seen = torch.zeros(steps), torch.zeros(steps), torch.zeros(steps)
    for number in range(len(batches)):
        batch = batches[number]
        features = joined(head, batch)
        for j, hidden in enumerate(unroll(head, batch.tokens, features, steps)):
            rows, at = EagleLearner.index(j, batch.texts, hidden.device)
            guessed, right = hidden[rows, at], features[rows, at + 1 + j]
            far[j] += F.smooth_l1_loss(guessed, right, reduction="sum").cpu() / head.width
            near[j] += F.cosine_similarity(guessed, right, dim=-1).sum().cpu()
            seen[j] += len(rows)
    return {"distance": (far / seen).tolist(), "cosine": (near / seen).tolist()}


def row(family, name: str, texts: tuple[Sequence[SampledText], Sequence[SampledText]] | None = None) -> dict:
    """Train one network and measure it on held-out texts: a few minutes on one core.

    Parameters
    ----------
    family : Family
        Has the target.
    name : str
        A key of `SETTINGS`.
    texts : pair of sequences of SampledText, optional
        For training and for measuring; by default `_sampled`.

    Returns
    -------
    dict
        ``cold``, ``sampled``: for each step of a draft, how often its best guess is right if all tokens before it are
        those of the text, in the parts of the texts that were drawn cold (nearly greedy) and in the sampled parts;
        ``distance``, ``cosine``: see `distances`; ``curve``: the course of the training, as lists: ``step``, ``cold``
        and ``sampled`` for the guesses of the first step of a draft, and ``loss``, the mean since the previous entry;
        ``right``, ``seen``: the counts whose ratios are ``cold`` and ``sampled``, a list for each step with a number
        for each held-out text.
    """
    lm = family.target
    train, held_out = _sampled(lm) if texts is None else texts
    options = {key: SETTING[key] for key in ("steps", "every", "rows", "rate")}
    learner = EagleLearner(lm, new_network(lm, INPUTS[name]), noise=SETTING["noise"])
    with tempfile.TemporaryDirectory() as folder:
        fitted = fit(learner, train, held_out, folder, **options)
    log, batches = fitted.log, Batches(lm, held_out, SETTING["rows"])
    curve = {"step": "step", "cold": "cold 0", "sampled": "sampled 0", "loss": "loss"}
    counted = right_guesses(learner, batches)
    return {
        **fitted.accuracies,
        **distances(learner.head, lm, batches),
        "curve": {name: [entry[key] for entry in log] for name, key in curve.items()},
        "right": {kind: right[..., 0].T.tolist() for kind, (right, _) in counted.items()},
        "seen": {kind: seen.T.tolist() for kind, (_, seen) in counted.items()},
    }


EXPERIMENT = Experiment("features", SETTING, SETTINGS, row)


def bounds(row: dict, kind: str) -> list[tuple[float, float]]:
    """Intervals for the shares of a row, step by step, in other held-out texts of the same kind.

    Whole texts are resampled, because the guesses in one text depend on each other. The intervals do not include the
    variation between networks that are trained on other texts or from other initial weights.

    Parameters
    ----------
    row : dict
        A row of the results.
    kind : str
        "cold" or "sampled".
    """
    return [bootstrap_interval(*both) for both in zip(row["right"][kind], row["seen"][kind], strict=True)]


def lead(row: dict, other: dict, kind: str) -> list[tuple[float, float, float]]:
    """How far a row is ahead of another, step by step: the difference of the shares, and its interval as in `bounds`.

    Both were measured in the same texts, which are resampled together. So a text that is hard for both does not count
    as a difference between them.
    """
    found = []
    for mine, theirs, seen in zip(row["right"][kind], other["right"][kind], row["seen"][kind], strict=True):
        gains = [a - b for a, b in zip(mine, theirs, strict=True)]
        found.append((sum(gains) / sum(seen), *bootstrap_interval(gains, seen)))
    return found
