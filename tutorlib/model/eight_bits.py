"""A copy of a Llama-shaped model whose weights have eight bits: a quarter of the memory to read, so four times quicker.

As a draft for the model itself it needs no training and no second file, and nearly always proposes what the model would
choose. Speculative decoding makes the result exact: what is drafted with rounded weights is checked with the others.

As a target it is a model of its own, whose logits have the same bits in every call: only weights are rounded, so that a
token does not depend on those beside it. (bitsandbytes rounds what the layers read, too.)

Sources: Tiwari et al. (2025), "QuantSpec", section 3 (a model's own quantized copy drafts for it); Georganas et al.
(2025), "ML-SpecQD", section 3; Dettmers et al. (2022), "LLM.int8()", section 2.1 (one factor for each row, from its
largest number).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from . import llama
from .lm import LM
from .loop_weights import Llama, in_eight_bits


class EightBits(LM):
    """A copy of a model with weights of eight bits, for greedy search, sampling and drafts.

    Parameters
    ----------
    lm : LM
        A model that the compiled loops compute: Llama-shaped, in float32, on a processor. Its embeddings, norms and
        tokenizer are shared; its matrices are rounded now, and do not change when the model's weights change.
    release : bool
        Whether the model gives up its own matrices, so that only the copy's stay in memory. The model itself cannot be
        used any more then.

    Attributes
    ----------
    weights : Llama
        As the loops take them.

    Raises
    ------
    ValueError
        If the loops do not compute this model, or if it is such a copy itself.
    """

    def __init__(self, lm: LM, *, release: bool = False):
        if isinstance(lm, EightBits):
            raise ValueError(f"{lm!r} is a copy in eight bits already")
        if llama.of(lm.model) is None:
            dtype = str(lm.dtype).removeprefix("torch.")
            raise ValueError(
                f"{type(lm.model).__name__} in {dtype} on {lm.device.type} has no copy in eight bits: that needs numba "
                "and a Llama-shaped model (Llama, Mistral, Qwen2, Qwen3) in float32 on a processor, without adapters "
                "and hooks"
            )
        super().__init__(lm.model, lm.tokenizer, context=lm.context)
        self.weights = Llama(lm.model, in_eight_bits)
        self._is_alone = release
        if release:
            self._release()

    def _release(self) -> None:
        """Let the model keep only the shapes of its matrices. (An output head that is the embeddings stays.)"""
        kept = self.model.get_input_embeddings().weight
        for module in self.model.modules():
            if isinstance(module, torch.nn.Linear) and module.weight is not kept:
                module.weight = torch.nn.Parameter(module.weight.to("meta"), requires_grad=False)
        forward = self.model.forward

        @functools.wraps(forward)
        def refuse(*args, **kwargs):
            raise ValueError("the model has given up its matrices for those in eight bits: load it without quantize=")

        self.model.forward = refuse
        llama.of(self.model)  # which forgets the numbers now

    @property
    def nbytes(self) -> int:
        """Bytes of its own weights, and of the embeddings and norms that it shares."""
        return self.weights.nbytes

    @property
    def own_bytes(self) -> int:
        """Bytes that it needs beside the model whose copy it is, if that is still there."""
        return self.nbytes - (0 if self._is_alone else self.weights.embeddings.nbytes)

    def open_cache(self, rows: int, static: bool = False) -> llama.LoopCache:
        return llama.LoopCache(self, self.weights, rows, static)

    def read_out(self, hidden: torch.Tensor, normed: bool = False) -> torch.Tensor:
        states = hidden.detach().reshape(-1, hidden.shape[-1]).contiguous().numpy()
        logits = self.weights.logits(states if normed else self.weights.normed(states))
        return logits.reshape(*hidden.shape[:-1], -1)

    def in_full(
        self, tokens: list[int], rows: int, hidden: Sequence[int] = ()
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
        cache = llama.LoopCache(llama.Uncounted, self.weights, 1)
        (logits,), states = cache.call([tokens], [0], [rows], hidden=hidden)
        return logits, {layer: state[0, -rows:] for layer, state in states.items()}
