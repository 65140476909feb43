"""One sequence of drafts by an EAGLE network: its cache, the confirmed positions, and the tree of its own guesses.

What this file does not do: compute a step (`eagle_head`), or decide which guesses are extended (`draft_trees`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch.nn import functional as F

from ..model.llama import MANY
from ..model.session import NaNLogits
from ..model.tree import ROOT
from .head_loops import looped_network

_SPARE_SLOTS = 64  # spare slots that a session's cache gets each time it is enlarged


def check_target(target, head) -> None:
    """Raise ValueError if a draft network does not fit a target."""
    if head.vocab_size != target.vocab_size:
        raise ValueError(
            f"the draft network knows {head.vocab_size} tokens, the target {target.vocab_size}: it does not fit"
        )
    if head.width != target.width:
        raise ValueError(
            f"the draft network reads features of width {head.width}, the target's have {target.width}: it does not fit"
        )
    beyond = [layer for layer in head.feature_layers if not -target.layers - 1 <= layer <= target.layers]
    if beyond:
        raise ValueError(
            f"the draft network reads features of layer {beyond[0]}, but the target has hidden states 0 to "
            f"{target.layers}: it does not fit"
        )


def check_device(target, head, name: str = "draft network") -> None:
    """Raise ValueError if a head is on another device than its target."""
    device = next(head.parameters()).device
    if device != target.device:
        raise ValueError(f"the {name} is on {device}, the target on {target.device}: head.to(target.device)")


def check_fed(head, tokens: Sequence[int], features: torch.Tensor) -> None:
    """Raise ValueError unless there are tokens, each with the feature of the token before it."""
    expected = (len(tokens), len(head.feature_layers) * head.width)
    if not len(tokens) or tuple(features.shape) != expected:
        raise ValueError(
            f"{len(tokens)} tokens and features of shape {tuple(features.shape)}, expected {expected}: each token "
            "needs the feature of the token before it"
        )
    check_tokens(head, tokens)


def check_tokens(head, tokens: Sequence[int]) -> None:
    """Raise ValueError if a token is outside the vocabulary."""
    if len(tokens) and not 0 <= min(tokens) <= max(tokens) < head.vocab_size:
        raise ValueError(f"{list(tokens)} are not all tokens of a vocabulary of {head.vocab_size}")


class DraftSession:
    """One sequence of a draft network, with a cache: confirmed positions, followed by a tree of its own guesses.

    Made by `DraftNetwork.session(target)`.

    Attributes
    ----------
    length : int
        The number of confirmed positions, for which the target's features were fed.
    calls : int
    """

    def __init__(self, head, target):
        check_target(target, head)
        self.head, self.target = head, target
        self.length = self.calls = 0
        self._device, self._dtype = head.fc.weight.device, head.fc.weight.dtype
        self._loops = looped_network(head, target)  # None where PyTorch computes
        self._cache: torch.Tensor | None = None  # keys and values, (2, 1, heads, slots, head size), with spare slots
        self._rotation: torch.Tensor | None = None  # for the first positions
        self._hidden: list[torch.Tensor] = []  # (width,): outputs of the last confirmed position and of the nodes
        self._paths: list[list[int]] = []  # for each node of the tree, the nodes down to it

    def feed(self, tokens: Sequence[int], features: torch.Tensor) -> torch.Tensor:
        """Add confirmed tokens with their features, and forget the tree of guesses.

        Parameters
        ----------
        tokens : sequence of int, at least one
            The next tokens of the text.
        features : tensor of shape (tokens, width * layers)
            The target's features for the token *before* each of them.

        Returns
        -------
        logits (1, vocab_size)
            The logits for the token after the last one.

        Raises
        ------
        NaNLogits
            The session is then unchanged.
        ValueError
            If there are no tokens, if the number of features differs from the number of tokens or their width is wrong,
            or if a token is outside the vocabulary.
        """
        check_fed(self.head, tokens, features)
        start, end = self.length, self.length + len(tokens)
        loops = self._loops if len(tokens) < MANY else None
        with torch.inference_mode():
            hidden = (loops or self.head).start(features.to(self._device, self._dtype))
            cache = self._cache
            overwritten = None if cache is None else cache[:, :, :, start:end].clone()
            hidden = self._call(loops, tokens, hidden, start, list(range(start, end)))
            try:
                logits = self._read_out(hidden[-1:])
            except NaNLogits:  # the nodes of the tree are still needed
                self._cache = cache
                if cache is not None and overwritten is not None:
                    cache[:, :, :, start:end] = overwritten
                raise
        self.length, self._hidden, self._paths = end, [hidden[-1]], []  # not before the logits are known to be good
        return logits

    def grow(self, tokens: Sequence[int], parents: Sequence[int]) -> torch.Tensor:
        """Add the nodes of one level to the tree of guesses, and guess what follows each of them.

        Parameters
        ----------
        tokens : sequence of int
        parents : sequence of int
            The node that each of them follows; -1 for the text itself. Nodes are numbered in the order in which they
            were added since the last `feed`.

        Returns
        -------
        logits (tokens, vocab_size)

        Raises
        ------
        NaNLogits
        ValueError
            If there are no tokens, if the number of parents differs from the number of tokens or a parent does not
            exist, if the nodes are on several levels, or if a token is outside the vocabulary.
        """
        check_tokens(self.head, tokens)
        first = len(self._paths)
        if not len(tokens) or len(tokens) != len(parents) or not all(ROOT <= parent < first for parent in parents):
            raise ValueError(f"{list(tokens)} after {list(parents)}: each token needs a parent from -1 to {first - 1}")
        paths = [
            [*(self._paths[parent] if parent != ROOT else ()), first + place] for place, parent in enumerate(parents)
        ]
        depth = len(paths[0])
        if any(len(path) != depth for path in paths):
            raise ValueError(f"{list(parents)} are parents of several levels: add the nodes of one level at a time")
        with torch.inference_mode():
            above = torch.stack([self._hidden[parent + 1] for parent in parents])
            positions = [self.length + depth - 1] * len(tokens)
            hidden = self._call(self._loops, tokens, above, self.length + first, positions, paths)
            logits = self._read_out(hidden)
            self._hidden += hidden.unbind()
            self._paths += paths
            return logits

    def _call(self, loops, tokens, hidden, start, positions, paths=()):
        """One step of the network for tokens (n) and hidden (n, width), whose keys go to slots from `start` on.

        The tokens continue the text, or are the last nodes of these paths.
        """
        self.calls += 1
        end = start + len(tokens)
        cache, rotation = self._with_room(end)
        if loops is not None:
            turns = (table[positions] for table in rotation[:, 0, 0].numpy())
            return loops.step(tokens, hidden, cache.numpy(), *turns, *self._where(len(tokens), start, paths))
        mask = self._mask(start, len(tokens), paths)

        def cached(queries, keys, values):
            cache[0, :, :, start:end], cache[1, :, :, start:end] = keys, values
            keys, values = cache[:, :, :, :end]
            return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, enable_gqa=True)

        cos, sin = rotation[..., positions, :]
        given = torch.tensor([list(tokens)], device=self._device)
        return self.head.forward(given, hidden[None], (cos, sin), cached)[0]

    def _with_room(self, end):
        """The cache and the rotations, enlarged if they have less than `end` slots and positions."""
        if self._cache is None or end > self._cache.shape[3]:
            config = self.head.config
            shape = 2, 1, config.num_key_value_heads, end + _SPARE_SLOTS, config.head_dim
            old, self._cache = self._cache, torch.zeros(shape, dtype=self._dtype, device=self._device)
            if old is not None:
                self._cache[:, :, :, : old.shape[3]] = old
        if self._rotation is None or end > self._rotation.shape[-2]:
            # Not beyond the context, where some kinds of rotation change.
            most = max(end, min(2 * end + _SPARE_SLOTS, self.target.context))
            positions = torch.arange(most, device=self._device)[None]
            self._rotation = torch.stack(self.head.rotation(positions))
        return self._cache, self._rotation

    def _mask(self, start, count, paths):
        """What each of some nodes attends to: the text and its path. None if that is all there is."""
        # A text needs no mask: with a single layer, only the output of its last position is needed, and that attends to
        # all of them.
        nodes = start - self.length + len(paths)
        if not paths or len(paths[0]) == nodes:
            return None
        seen = np.zeros((len(paths), self.length + nodes), dtype=bool)
        seen[:, : self.length] = True
        for row, path in zip(seen, paths, strict=True):
            row[[self.length + node for node in path]] = True
        return torch.from_numpy(seen).to(self._device)

    def _where(self, count, start, paths):
        """The same for the loops: row, slot, before and parent of the new tokens, and then those of the older nodes."""
        slot, parent = list(range(start, start + count)), list(range(-1, count - 1))
        if paths:
            slot += range(self.length, start)
            parent = [count + path[-2] if len(path) > 1 else ROOT for path in [*paths, *self._paths]]
        return map(np.array, ([0] * count, slot, [self.length] * count, parent))

    def _read_out(self, hidden):
        logits = (self._loops or self.head).read_out(hidden, self.target)
        refuse_nan(logits, "the draft network")
        return logits


def refuse_nan(logits: torch.Tensor, name: str) -> None:
    """Raise NaNLogits if some of the logits are NaN."""
    top = float(logits.max())  # NaN if any of them is
    if top != top:
        raise NaNLogits(
            f"{name} returned logits that are NaN: its weights may be damaged, its dtype too narrow (load it in "
            "bfloat16 or float32), or the target's features not finite"
        )
