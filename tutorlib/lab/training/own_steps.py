"""The steps of an EAGLE network on whole texts, as in drafting: it continues from its own outputs at every position.

What this file does not do: compare what it predicts with anything (`train_eagle`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from ...drafting.eagle_head import DraftNetwork, causal


def unroll(head: DraftNetwork, tokens: torch.Tensor, features: torch.Tensor, steps: int) -> Iterator[torch.Tensor]:
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

    Yields
    ------
    (rows, length, width) tensor
        After step j, counted from 0, the output at position t is the prediction of the target's feature at position t +
        1 + j. Ignore the last 1 + j positions of a text.
    """
    hidden = head.start(features)
    mix = _Unrolled()
    position = torch.arange(tokens.shape[1], device=tokens.device)[None]
    for step in range(steps):
        hidden = head(tokens.roll(-1 - step, dims=1), hidden, head.rotation(position + step), mix)
        yield hidden


class _Unrolled:
    """Attention in `unroll`: step j at position t attends to the target's features up to t, and to its own steps after
    t.
    """

    def __init__(self):
        self.keys, self.values = [], []

    def __call__(self, queries, keys, values):
        groups = queries.shape[1] // keys.shape[1]
        self.keys.append(keys.repeat_interleave(groups, dim=1))
        self.values.append(values.repeat_interleave(groups, dim=1))
        if len(self.keys) == 1:
            return causal(queries, keys, values)
        queries = queries / math.sqrt(queries.shape[-1])
        length = queries.shape[2]
        later = torch.ones(length, length, dtype=torch.bool, device=queries.device).triu(1)
        before = (queries @ self.keys[0].transpose(-1, -2)).masked_fill(later, -math.inf)
        since = [(queries * own).sum(-1, keepdim=True) for own in self.keys[1:]]
        weights = torch.cat([before, *since], dim=-1).softmax(-1)
        mixed = weights[..., :length] @ self.values[0]
        for step, own in enumerate(self.values[1:]):
            mixed = mixed + weights[..., length + step, None] * own
        return mixed
