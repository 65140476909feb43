"""The steps of an EAGLE network on whole texts, as in drafting: it continues from its own outputs at every position.

What this file does not do: compare what it predicts with anything (`train_eagle`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from ...drafting.eagle_head import DraftNetwork
from ...drafting.head_parts import causal


def unroll(
    head: DraftNetwork, tokens: torch.Tensor, features: torch.Tensor, steps: int, further: slice = slice(None)
) -> Iterator[torch.Tensor]:
    """The outputs of a network at every position of some texts, then its outputs from these, and so on.

    Step j at position t is the output of the network in drafting after j right guesses. The network uses the target's
    features up to position t and its own after that, but always the actual tokens of the text. Source: EAGLE-3's
    training-time test, section 3.2.

    Parameters
    ----------
    head : DraftNetwork
    tokens : (rows, length) int64 tensor
    features : (rows, length, width * layers) tensor
    steps : int
    further : slice
        The positions at which steps after the first are taken; by default all. Each depends only on the first step and
        on earlier steps at its own position, so the others may be left out.

    Yields
    ------
    (rows, length, width) tensor
        After step j, counted from 0, the output at position t is the prediction of the target's feature at position t +
        1 + j. Ignore the last 1 + j positions of a text. After the first step, only the positions of `further` are
        there.
    """
    hidden = head.start(features)
    positions = torch.arange(tokens.shape[1], device=tokens.device)
    mix = _Unrolled(positions[further])
    for step in range(steps):
        here = slice(None) if step == 0 else further
        hidden = hidden[:, further] if step == 1 else hidden
        rotation = head.rotation(positions[None, here] + step)
        given = tokens.roll(-1 - step, dims=1)[:, here]
        if step:
            given, hidden = head.again(given, hidden)
        hidden = head(given, hidden, rotation, mix)
        yield hidden


class _Unrolled:
    """Attention in `unroll`: step j at position t attends to the target's features up to t, and to its own steps after
    t.
    """

    def __init__(self, further: torch.Tensor):
        self.further, self.keys, self.values = further, [], []

    def __call__(self, queries, keys, values):
        groups = queries.shape[1] // keys.shape[1]
        self.keys.append(keys.repeat_interleave(groups, dim=1))
        self.values.append(values.repeat_interleave(groups, dim=1))
        if len(self.keys) == 1:
            return causal(queries, keys, values)
        queries = queries / math.sqrt(queries.shape[-1])
        length = self.keys[0].shape[2]
        later = torch.arange(length, device=queries.device) > self.further[:, None]
        before = (queries @ self.keys[0].transpose(-1, -2)).masked_fill(later, -math.inf)
        since = [(queries * own).sum(-1, keepdim=True) for own in self.keys[1:]]
        weights = torch.cat([before, *since], dim=-1).softmax(-1)
        mixed = weights[..., :length] @ self.values[0]
        for step, own in enumerate(self.values[1:]):
            mixed = mixed + weights[..., length + step, None] * own
        return mixed
