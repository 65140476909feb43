"""Medusa heads, EAGLE and DFlash networks in the compiled loops of `tutorlib.model.loops`, without PyTorch's operators.

A draft reads one token at a time or a few, like its target, and so the loops are as good for the one as for the other.
They read the weights of the heads where they lie. `looped_heads`, `looped_network` and `looped_blocks` return None
where the loops do not compute what the heads compute: in half precision, on a GPU, with hooks, for subclasses, and
without numba.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from ..model import llama
from ..model.eight_bits import EightBits
from ..model.fingerprint import has_hooks
from ..model.lm import LM
from ..model.loop_weights import PROJECTIONS, Matrix, array_of, matrix_of, room
from .head_parts import Attention, FeedForward, Layer, MidLayer
from .medusa_heads import MedusaHeads, ResidualBlock, output_layer

_PARTS = (
    MedusaHeads, ResidualBlock, Layer, MidLayer, Attention, FeedForward,
    nn.Embedding, nn.Linear, nn.ModuleList, nn.RMSNorm, nn.Sequential,
)  # fmt: skip
# Networks open the sessions that use these loops, so they are known here by the paths of their classes.
_OF_THEIR_OWN = "eagle_head.Eagle3Head", "parallel_head.ParallelHead"  # have an output head
_NETWORKS = "eagle_head.EagleHead", "mtp_head.MtpHead", "mtp_head.MtpModule", *_OF_THEIR_OWN
_BLOCKS = "dflash_head.DFlashHead", "dflash_head.BlockLayer", "dflash_head.BlockAttention"


def _is_one(module: nn.Module, *names: str) -> bool:
    """Whether a module is of one of these classes, and of no subclass."""
    return f"{type(module).__module__}.{type(module).__name__}" in [f"{__package__}.{name}" for name in names]


def _fit(heads: nn.Module, *sizes: int) -> bool:
    """Whether all parts of some heads are what they seem to be, and these sizes those that the loops take."""
    return (
        llama.are_wanted()
        and not any(size % 16 for size in sizes)
        and all(type(part) in _PARTS or _is_one(part, *_NETWORKS, *_BLOCKS) for part in heads.modules())
        and all(weight.dtype == torch.float32 and weight.device.type == "cpu" for weight in heads.parameters())
        and not has_hooks(heads)
        and llama.loops() is not None
    )


def _product(states: np.ndarray, matrix: Matrix) -> np.ndarray:
    made = room(len(states), len(matrix.weight))
    llama.loops().product(states, *matrix, made, llama.loops().alone())
    return made


def _normed(states: np.ndarray, weight: np.ndarray, eps: np.float32) -> np.ndarray:
    made = room(*states.shape)
    llama.loops().norm(states, weight, eps, made)
    return made


def looped_heads(heads: MedusaHeads, count: int) -> LoopedHeads | None:
    """The first Medusa heads in the loops, or None if these do not fit them."""
    return LoopedHeads(heads, count) if isinstance(heads, MedusaHeads) and _fit(heads, heads.width) else None


class LoopedHeads:
    """The first `count` Medusa heads in the loops: ``guess(hidden)`` is ``heads(hidden)[:count]`` for one state."""

    def __init__(self, heads: MedusaHeads, count: int):
        self.spread = heads.spread
        first = heads.blocks()[:count]
        self.blocks = [
            [matrix_of(block.linear) for block in head if isinstance(block, ResidualBlock)] for head in first
        ]
        self.outputs = [matrix_of(output_layer(head)) for head in first]
        # Heads that borrow the target's output layer have equal ones. Then one is read for all of them.
        self.are_one = all(np.array_equal(output.weight, self.outputs[0].weight) for output in self.outputs[1:])

    def guess(self, hidden: torch.Tensor) -> torch.Tensor:
        """The logits (count, vocab) for one hidden state (width,)."""
        states = hidden.numpy()[None].repeat(len(self.blocks), axis=0)
        for state, blocks in zip(states[:, None], self.blocks, strict=True):
            for block in blocks:
                made = _product(state, block)
                state += made / (1 + np.exp(-made))
        if self.are_one:
            logits = _product(states, self.outputs[0])
        else:
            logits = np.concatenate([_product(*pair) for pair in zip(states[:, None], self.outputs, strict=True)])
        return self.spread(torch.from_numpy(logits))


def looped_network(head: Any, target: LM) -> LoopedNetwork | None:
    """An EAGLE network in the loops, or None if these do not fit it (or the target whose output head it uses)."""
    if not _is_one(head, *_NETWORKS):
        return None
    config = head.config
    if not _fit(head, config.hidden_size, config.intermediate_size, config.head_dim):
        return None
    if config.attention_bias or config.mlp_bias:
        return None
    if _is_one(head, *_OF_THEIR_OWN):
        return LoopedNetwork(head, matrix_of(head.lm_head))
    weights = _weights_of(target)
    return None if weights is None else LoopedNetwork(head, weights.head)


def _weights_of(target: LM) -> llama.Llama | None:
    """The weights of a target as the loops take them, if they do."""
    if isinstance(target, EightBits):
        return target.weights
    return llama.of(target.model) if type(target) is LM else None


class LoopedNetwork:
    """One layer that reads guesses, and an output head that guesses on; see `eagle_head.DraftNetwork`.

    Parameters
    ----------
    head : EagleHead, Eagle3Head, or MtpHead of one module
    output : Matrix
        The weights of the output head, the network's own or its target's.
    """

    def __init__(self, head: Any, output: Matrix):
        self.head, self.output, self.is_first = head, output, _is_one(head, "eagle_head.EagleHead")
        self.is_module = _is_one(head, "mtp_head.MtpHead")
        self.continues_normed = self.is_module or not self.is_first and head.norm_output
        self.known = None if self.is_first or self.is_module else head.tokens.numpy()
        config, self.eps = head.config, np.float32(head.config.rms_norm_eps)
        layer = head.layers[0] if self.is_first or self.is_module else head.midlayer
        matrices = [matrix_of(layer.get_submodule(name)) for name in PROJECTIONS]
        self.embeddings, self.fc = array_of(head.embed_tokens.weight), matrix_of(head.fc)
        self.norms = {
            name.removeprefix("layers.0."): array_of(part.weight)
            for name, part in head.named_modules()
            if isinstance(part, nn.RMSNorm)
        }
        self.layer = (
            array_of(layer.post_attention_layernorm.weight),
            (config.num_attention_heads, config.num_key_value_heads),
            tuple(matrix.weight for matrix in matrices),
            (None,) * 7,
            (*(matrix.more for matrix in matrices[:3]), None, None),
            self.eps,
        )

    def normed(self, states: np.ndarray, name: str) -> np.ndarray:
        """States (tokens, width) after the norm of this name; as they are if there is none."""
        return _normed(states, self.norms[name], self.eps) if name in self.norms else states

    def start(self, features: torch.Tensor) -> torch.Tensor:
        """See `DraftNetwork.start`."""
        if self.is_first or self.is_module:
            return features
        states = self.normed(features.contiguous().numpy(), "input_norm")
        if self.head.fc_norm is not None:
            parts = np.split(states, len(self.head.fc_norm), axis=1)
            normed = [self.normed(part.copy(), f"fc_norm.{number}") for number, part in enumerate(parts)]
            states = np.concatenate(normed, axis=1)
        return torch.from_numpy(_product(states, self.fc))

    def step(self, tokens: Sequence[int], hidden: torch.Tensor, cache: np.ndarray, *where) -> torch.Tensor:
        """One step from hidden (tokens, width), see `DraftNetwork.forward`.

        Parameters
        ----------
        cache : (2, 1, heads, slots, size) array
            Keys and values.
        *where
            Arrays as `loops.layer` takes them: cos, sin, row, slot, before, parent.
        """
        embedded, x = self.embeddings[list(tokens)], hidden.numpy()
        if self.is_first:
            x = read = _product(np.concatenate([embedded, x], axis=1), self.fc)
        elif self.is_module:
            pair = [self.normed(embedded, "enorm"), self.normed(x, "hnorm")]
            x = _product(np.concatenate(pair, axis=1), self.fc)
            read = self.normed(x, "input_layernorm")
        else:
            normed = self.normed(x, "midlayer.hidden_norm")
            read = np.concatenate([self.normed(embedded, "midlayer.input_layernorm"), normed], axis=1)
            x = normed if self.head.norm_before_residual else x.copy()
        made = tuple(room(len(x), len(weight)) for weight in self.layer[2])
        llama.loops().layer_from(x, read, *self.layer, *cache, *where, made, llama.loops().alone())
        return torch.from_numpy(self.normed(x, "norm") if self.continues_normed else x)

    def read_out(self, hidden: torch.Tensor, target: LM) -> torch.Tensor:
        """See `DraftNetwork.read_out`."""
        states = hidden.numpy() if self.continues_normed else self.normed(hidden.numpy(), "norm")
        logits = _product(states, self.output)
        if self.known is None or len(self.known) == self.head.vocab_size:
            return torch.from_numpy(logits)
        spread = np.full((len(logits), self.head.vocab_size), -np.inf, np.float32)
        spread[:, self.known] = logits
        return torch.from_numpy(spread)


def looped_blocks(head: Any, target: LM) -> LoopedBlocks | None:
    """A DFlash network in the loops, or None if these do not fit it, or the target whose output head it uses."""
    config = head.config
    weights = _weights_of(target) if _is_one(head, _BLOCKS[0]) else None
    if weights is None or not _fit(head, config.hidden_size, config.intermediate_size, config.head_dim):
        return None
    return LoopedBlocks(head, weights)


class LoopedBlocks:
    """A DFlash network in the loops; see `dflash_head.BlockSession`.

    Parameters
    ----------
    head : DFlashHead
    weights : Llama
        Those of the target, for its embeddings and its output head.
    """

    def __init__(self, head: Any, weights: llama.Llama):
        self.weights, self.masks, self.eps = (
            weights,
            [head.mask] * (head.block - 1),
            np.float32(head.config.rms_norm_eps),
        )
        self.fc, self.hidden_norm, self.norm = map(
            array_of, (head.fc.weight, head.hidden_norm.weight, head.norm.weight)
        )
        self.heads = (head.config.num_attention_heads, head.config.num_key_value_heads)
        self.layers = []
        for part in head.layers:
            norms = [array_of(part.get_parameter(f"{name}_layernorm.weight")) for name in ("input", "post_attention")]
            of_heads = [array_of(part.get_parameter(f"self_attn.{name}_norm.weight")) for name in "qk"]
            matrices = tuple(array_of(part.get_parameter(f"{name}.weight")) for name in PROJECTIONS)
            extras = (None, None, None, *of_heads)
            self.layers.append((tuple(norms), self.heads, matrices, (None,) * 7, extras, self.eps))
        # The loops let a token see its ancestors and itself. So each token of a block gets all others as ancestors, in
        # a line of its own: nodes that are only seen, and compute nothing.
        count = head.block
        others = [[other for other in range(count) if other != token] for token in range(count)]
        self.seen = np.array([*range(count), *(other for line in others for other in line)])
        firsts = [count + token * (count - 1) for token in range(count)]
        lines = [[*range(first + 1, first + count - 1), -1] for first in firsts]
        self.parent = np.array([*firsts, *(node for line in lines for node in line)])

    def read(self, features: np.ndarray, cache: np.ndarray, turns: np.ndarray, start: int) -> None:
        """Write keys and values of features (tokens, width * layers) into the slots of a cache from `start` on.

        Parameters
        ----------
        cache : (layers, 2, 1, heads, slots, size) array
        turns : (2, positions, size) array
            Cosines and sines of all positions.
        """
        loops, slots = llama.loops(), np.arange(start, start + len(features))
        states = _normed(_product(features, Matrix(self.fc)), self.hidden_norm, self.eps)
        row, some = np.zeros_like(slots), (0, self.heads[1])
        for (_, _, matrices, _, extras, _), (keys, values) in zip(self.layers, cache, strict=True):
            for new, weight, kept in ((matrices[1], extras[4], keys), (matrices[2], None, values)):
                made = _product(states, Matrix(new))
                if weight is not None:
                    loops.turn(made, weight, self.eps, *turns[:, slots], some)
                loops.store(made, kept, row, slots, some)

    def guess(self, token: int, cache: np.ndarray, turns: np.ndarray, end: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Outputs (block - 1, width) and logits (block - 1, vocab) of a block that begins with `token`, after the first
        `end` slots of a cache.
        """
        loops, slots = llama.loops(), self.seen + end
        x = self.weights.embeddings[[token, *self.masks]]
        count = len(x)
        where = *turns[:, slots[:count]], np.zeros(count, np.int64), slots, np.full(count, end), self.parent
        made = tuple(room(count, len(weight)) for weight in self.layers[0][2])
        for layer, (keys, values) in zip(self.layers, cache, strict=True):
            loops.layer(x, *layer, keys, values, *where, made, loops.alone())
        states = _normed(x[1:], self.norm, self.eps)
        return torch.from_numpy(states), self.weights.logits(states)
