"""The weights of a Llama as the loops of `loops.py` take them: a model's own, where they lie, or rounded to eight bits.

What this file does not do: say for which models the loops are right, or keep keys and values (`llama.py` does both).
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from .cache import grown
from .team import CAN_GIVE_WAY, Team, Trials

# Models of so many bytes may be computed by as many threads as PyTorch has: for smaller ones, meeting takes too long.
_SHARED = 50e6
PROJECTIONS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")  # fmt: skip


@functools.cache
def loops() -> Any:
    """The compiled loops, or None where there is no numba that works with the NumPy at hand."""
    if os.environ.get("NUMBA_DISABLE_JIT", "0") != "0" or importlib.util.find_spec("numba") is None:
        return None
    try:
        from . import loops
    except ImportError:  # numba refuses a NumPy that is newer than itself
        return None
    folder = loops.layer.stats.cache_path
    if folder is None or not any(Path(folder).glob("loops.layer-*.nbi")):
        print("tutorlib compiles its loops for this processor, which takes about 20 seconds, once.", file=sys.stderr)
    return loops


class Matrix(NamedTuple):
    """A matrix (out, in), of float32 or of int8 with a factor for each row; and what is added to its product."""

    weight: np.ndarray
    scale: np.ndarray | None = None
    more: np.ndarray | None = None


class Llama:
    """The weights of a model, as `loops.layer` takes them.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        One for which `of` gives weights.
    round : function from a Matrix to a Matrix, optional
        What happens to each matrix; see `in_eight_bits`.
    """

    def __init__(self, model: Any, round=None):
        inner, config = model.model, model.config
        self.is_rounded, round = round is not None, round or (lambda matrix: matrix)
        self.embeddings = array_of(inner.embed_tokens.weight)
        self.rotate = inner.rotary_emb
        self.heads = (config.num_attention_heads, config.num_key_value_heads)
        self.size = inner.layers[0].self_attn.head_dim
        self.eps = np.float32(config.rms_norm_eps)
        self.layers = []
        for layer in inner.layers:
            matrices = [round(matrix_of(layer.get_submodule(name))) for name in PROJECTIONS]
            norms = (array_of(layer.input_layernorm.weight), array_of(layer.post_attention_layernorm.weight))
            of_heads = [getattr(layer.self_attn, name, None) for name in ("q_norm", "k_norm")]
            extras = (*(matrix.more for matrix in matrices[:3]), *(norm and array_of(norm.weight) for norm in of_heads))
            weights, scales = tuple(matrix.weight for matrix in matrices), tuple(matrix.scale for matrix in matrices)
            self.layers.append((norms, self.heads, weights, scales, extras, self.eps))
        self.norm = array_of(inner.norm.weight)
        self.head = round(matrix_of(model.lm_head))
        self._turns = (np.empty((0, self.size), np.float32),) * 2
        self.is_shared = self.nbytes >= _SHARED and CAN_GIVE_WAY
        self._trials = Trials()

    @property
    def nbytes(self) -> int:
        """Bytes of all weights."""
        arrays = [self.embeddings, self.norm, *self.head]
        for norms, _, weights, scales, extras, _ in self.layers:
            arrays += [*norms, *weights, *scales, *extras]
        return sum({array.ctypes.data: array.nbytes for array in arrays if array is not None}.values())

    def normed(self, states: np.ndarray) -> np.ndarray:
        """States (tokens, width) of the last layer after the final norm."""
        made = room(*states.shape)
        loops().norm(states, self.norm, self.eps, made)
        return made

    def logits(self, states: np.ndarray) -> torch.Tensor:
        """The logits (tokens, vocab) of states that have passed the final norm."""
        logits = torch.empty(len(states), len(self.head.weight))
        self.together(lambda team: loops().product(states, *self.head, logits.numpy(), team), len(states), 0)
        return logits

    def together(self, work: Callable[[Team], None], rows: int, layers: int) -> None:
        """Let as many threads as pay compute some rows in so many layers (0: logits); see `team.Trials`."""
        kind = layers, rows if rows <= 32 else 2 ** rows.bit_length()
        self._trials.together(work, torch.get_num_threads() if self.is_shared else 1, kind)

    def turns(self, positions: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """The cosines and sines (tokens, size) of the rotation at these positions."""
        cos, sin = self._turns
        if max(positions) >= len(cos):
            end = grown(max(positions) + 1)
            with torch.inference_mode():
                made = self.rotate(torch.zeros(1), torch.arange(end)[None])
            cos, sin = self._turns = tuple(part[0].float().numpy().copy() for part in made)
        return cos[positions], sin[positions]


def in_eight_bits(matrix: Matrix) -> Matrix:
    """A matrix in a quarter of its memory: whole numbers from -127 to 127, and a factor for each row."""
    scale = np.maximum(np.abs(matrix.weight).max(axis=1), np.float32(1e-8)) / np.float32(127)
    return Matrix(np.rint(matrix.weight / scale[:, None]).astype(np.int8), scale, matrix.more)


def matrix_of(linear: torch.nn.Linear) -> Matrix:
    return Matrix(array_of(linear.weight), None, None if linear.bias is None else array_of(linear.bias))


def room(*shape: int) -> np.ndarray:
    """An array of float32 that begins at a multiple of 64 bytes, as PyTorch's do: loops read such ones faster."""
    return torch.empty(shape).numpy()


def array_of(weight: torch.Tensor) -> np.ndarray:
    """The weight itself, as an array over the same memory."""
    array = weight.detach().numpy()
    return array if array.flags.c_contiguous and array.flags.aligned else np.ascontiguousarray(array).copy()
