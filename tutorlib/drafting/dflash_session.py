"""One sequence of drafts by a DFlash network: what it has made of the target's features, and the last block.

What this file does not do: compute a pass (`dflash_head`), or decide which guesses are tried (`draft_trees`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..model.llama import MANY
from ..model.lm import LM
from .draft_session import check_target, refuse_nan
from .head_loops import looped_blocks
from .head_parts import Rotation

_SPARE_SLOTS = 64  # spare slots that a session's cache gets each time it is enlarged


class BlockSession:
    """One sequence of a DFlash network: a cache of what it has made of the target's features, and the last block.

    It has the verbs of `DraftSession`, so that every shape of `draft_trees` can ask it for guesses. Only `feed` takes a
    pass of the network. `grow` computes nothing: what follows a guess is the next position of the block, whatever the
    guess is.

    Attributes
    ----------
    length : int
        The number of tokens whose features were fed.
    calls : int
        Passes so far.
    logits : tensor of shape (block - 1, vocab_size)
        The guesses for the tokens after the text.
    states : tensor of shape (block - 1, width)
        The network's outputs there.
    """

    logits: torch.Tensor
    states: torch.Tensor

    def __init__(self, head, target: LM):
        check_target(target, head)
        self.head, self.target = head, target
        self.length = self.calls = self._depth = 0
        self._loops = looped_blocks(head, target)  # None where PyTorch computes
        self._cache: torch.Tensor | None = None  # (layers, 2, 1, heads, slots, head size), with spare slots
        self._rotation: torch.Tensor | None = None  # for the first positions

    def feed(self, tokens: Sequence[int], features: torch.Tensor) -> torch.Tensor:
        """Add the target's features of some tokens, and guess the block that begins with the last token of the text.

        Parameters
        ----------
        tokens : sequence of int, at least one
            The next tokens of the text. Only the last one is read; the features know the others.
        features : tensor of shape (tokens, width * layers)
            The target's features for the token *before* each of them.

        Returns
        -------
        logits (1, vocab_size)
            For the first position of the block; `grow` returns the others.

        Raises
        ------
        NaNLogits
        ValueError
            If the number of features differs from the number of tokens, their width is wrong, or the last token is
            outside the vocabulary.
        """
        head, count = self.head, len(tokens)
        expected = (count, len(head.feature_layers) * head.width)
        if not count or tuple(features.shape) != expected:
            raise ValueError(
                f"{count} tokens and features of shape {tuple(features.shape)}, expected {expected}: each token needs "
                "the feature of the token before it"
            )
        if not 0 <= tokens[-1] < head.vocab_size:
            raise ValueError(f"{tokens[-1]} is no token of a vocabulary of {head.vocab_size}")
        start, end = self.length, self.length + count
        with torch.inference_mode():
            cache, rotation = self._with_room(end + head.block)
            features = features.to(head.fc.weight)
            if self._loops is not None and count < MANY:
                self._loops.read(features.numpy(), cache.numpy(), rotation[:, 0, 0].numpy(), start)
            else:
                new = head.context(features[None], _part(rotation, start, end))
                cache[..., start:end, :] = torch.stack([torch.stack(pair) for pair in new])
            if self._loops is not None:
                states, logits = self._loops.guess(tokens[-1], cache.numpy(), rotation[:, 0, 0].numpy(), end)
            else:
                context = [(keys, values) for keys, values in cache[..., :end, :]]
                block = head.begun_with(tokens[-1], self.target)
                states = head.forward(block, _part(rotation, end, end + head.block), context)[0, 1:]
                logits = head.read_out(states, self.target)
            refuse_nan(logits, "the DFlash network")
        self.calls += 1
        self.length, self.logits, self.states, self._depth = end, logits, states, 0
        return logits[:1]

    def grow(self, tokens: Sequence[int], parents: Sequence[int]) -> torch.Tensor:
        """The guesses (tokens, vocab_size) for the next position of the block, the same after each of the tokens."""
        self._depth += 1
        return self.logits[self._depth].expand(len(tokens), -1)

    def _with_room(self, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The cache and the rotations, enlarged if they have less than `end` slots and positions."""
        if self._cache is None or end > self._cache.shape[4]:
            config, like = self.head.config, self.head.fc.weight
            heads, size = config.num_key_value_heads, config.head_dim
            made = like.new_zeros((len(self.head.layers), 2, 1, heads, end + _SPARE_SLOTS, size))
            if self._cache is not None:
                made[..., : self._cache.shape[4], :] = self._cache
            self._cache = made
            positions = torch.arange(end + _SPARE_SLOTS, device=like.device)[None]
            self._rotation = torch.stack(self.head.rotation(positions))
        assert self._rotation is not None
        return self._cache, self._rotation


def _part(rotation: torch.Tensor, start: int, end: int) -> Rotation:
    cos, sin = rotation[..., start:end, :]
    return cos, sin
