"""A copy of a Llama-shaped model whose weights have eight bits: a quarter of the memory to read, so four times quicker.

As a draft for the model itself it needs no training and no second file, and nearly always proposes what the model would
choose. Speculative decoding makes the result exact: what is drafted with rounded weights is checked with the others.

Sources: Tiwari et al. (2025), "QuantSpec", section 3 (a model's own quantized copy drafts for it); Georganas et al.
(2025), "ML-SpecQD", section 3; Dettmers et al. (2022), "LLM.int8()", section 2.1 (one factor for each row, from its
largest number).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from . import llama
from .lm import LM


class EightBits(LM):
    """A copy of a model with weights of eight bits, for greedy search, sampling and drafts.

    Parameters
    ----------
    lm : LM
        A model that the compiled loops compute: Llama-shaped, in float32, on a processor. Its embeddings, norms and
        tokenizer are shared; its matrices are rounded now, and do not change when the model's weights change.

    Raises
    ------
    ValueError
        If the loops do not compute this model.
    """

    def __init__(self, lm: LM):
        if llama.of(lm.model) is None:
            dtype = str(lm.dtype).removeprefix("torch.")
            raise ValueError(
                f"{type(lm.model).__name__} in {dtype} on {lm.device.type} has no copy in eight bits: that needs numba "
                "and a Llama-shaped model (Llama, Mistral, Qwen2, Qwen3) in float32 on a processor, without adapters "
                "and hooks"
            )
        super().__init__(lm.model, lm.tokenizer, context=lm.context)
        self._weights = llama.Llama(lm.model, llama.in_eight_bits)

    @property
    def nbytes(self) -> int:
        """Bytes of its own weights, and of the embeddings and norms that it shares."""
        return self._weights.nbytes

    @property
    def own_bytes(self) -> int:
        """Bytes that it needs beside the model whose copy it is."""
        return self.nbytes - self._weights.embeddings.nbytes

    def open_cache(self, rows: int, static: bool = False) -> llama.LoopCache:
        return llama.LoopCache(self, self._weights, rows, static)

    def read_out(self, hidden: torch.Tensor, normed: bool = False) -> torch.Tensor:
        states = hidden.detach().reshape(-1, hidden.shape[-1]).contiguous().numpy()
        logits = self._weights.logits(states if normed else self._weights.normed(states))
        return logits.reshape(*hidden.shape[:-1], -1)

    def in_full(
        self, tokens: list[int], rows: int, hidden: Sequence[int] = ()
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
        cache = llama.LoopCache(llama.Uncounted, self._weights, 1)
        (logits,), states = cache.call([tokens], [0], [rows], hidden=hidden)
        return logits, {layer: state[0, -rows:] for layer, state in states.items()}
