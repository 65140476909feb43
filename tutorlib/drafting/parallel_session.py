"""One sequence of parallel drafts: EAGLE-3's cache of confirmed positions, with masks after them in the same pass.

What this file does not do: compute a step (`eagle_head`, `parallel_head`), or decide which guesses are tried
(`draft_trees`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..model.llama import MANY
from .draft_session import DraftSession, check_fed


class ParallelSession(DraftSession):
    """One sequence of a parallel draft, with the verbs of `DraftSession`. Only `feed` takes a pass of the network.

    Attributes
    ----------
    logits : tensor of shape (masks + 1, vocab_size)
        The guesses for the tokens after the text.
    """

    logits: torch.Tensor

    def feed(self, tokens: Sequence[int], features: torch.Tensor) -> torch.Tensor:
        """Add confirmed tokens with their features, and guess all tokens after them; see `DraftSession.feed`.

        The masks' keys and values go into the slots after those of the text, and are overwritten by the next call.
        """
        head = self.head
        check_fed(head, tokens, features)
        count, start = len(tokens), self.length
        loops = self._loops if count + head.masks < MANY else None
        with torch.inference_mode():
            features = torch.cat([features.to(self._device, self._dtype), head.mask_hidden.expand(head.masks, -1)])
            given = [*tokens, *[head.mask] * head.masks]
            positions = list(range(start, start + len(given)))
            hidden = self._call(loops, given, (loops or head).start(features), start, positions)
            logits = self._read_out(hidden[count - 1 :])
        self.length, self.logits, self._depth = start + count, logits, 0
        return logits[:1]

    def grow(self, tokens: Sequence[int], parents: Sequence[int]) -> torch.Tensor:
        """The guesses (tokens, vocab_size) of the next mask, the same after each of the tokens."""
        self._depth += 1
        return self.logits[self._depth].expand(len(tokens), -1)

    def _mask(self, start, count, paths):
        """What each position attends to: itself and all before it. More outputs are needed than the last."""
        return torch.ones(count, start + count, dtype=torch.bool, device=self._device).tril(start)
