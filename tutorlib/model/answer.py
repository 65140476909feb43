"""The answer of a call that is computed as several texts, one after the other (`uncached.py`, `own_cache.py`)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch


class Answer:
    """The logits and hidden states of a call, put together from those of single texts.

    Parameters
    ----------
    rows : list of lists of int
        The tokens of the call.
    keep : list of int
        For each row, for how many of its last tokens logits are needed.
    hidden : sequence of int
        The layers whose hidden states are needed, for all tokens.

    Attributes
    ----------
    width : int
        How many tokens the longest row has.
    logits : list of (kept, vocab) tensors, one for each row
    states : dict from layer to (rows, width, features) tensor
        Columns beyond a row's own tokens are NaN.
    """

    def __init__(self, rows: list[list[int]], keep: list[int], hidden: Sequence[int]):
        self.width, self.keep, self.hidden = max(map(len, rows)), keep, hidden
        self.firsts = [len(row) - count for row, count in zip(rows, keep, strict=True)]
        self.states: dict[int, torch.Tensor] = {}
        self._logits: list[torch.Tensor | None] = [None] * len(rows)

    @property
    def logits(self) -> list[torch.Tensor]:
        known = next(logits for logits in self._logits if logits is not None)
        return [known[:0] if logits is None else logits for logits in self._logits]

    def needed(self, row: int, columns: Sequence[int]) -> Sequence[int]:
        """The columns of a text's last tokens without those at the front that nobody wants."""
        return columns if self.hidden else [column for column in columns if column >= self.firsts[row]]

    def put(self, row: int, columns: Sequence[int], logits: torch.Tensor, states: dict[int, torch.Tensor]) -> None:
        """Add the logits (columns, vocab) and the hidden states, by layer, of some columns of a row."""
        wanted = self._logits[row]
        if wanted is None:
            wanted = self._logits[row] = logits.new_empty(self.keep[row], logits.shape[-1])
        first = self.firsts[row]
        kept = [number for number, column in enumerate(columns) if column >= first]
        wanted[[columns[number] - first for number in kept]] = logits[kept]
        for layer, state in states.items():
            if layer not in self.states:
                self.states[layer] = state.new_full((len(self.keep), self.width, state.shape[-1]), math.nan)
            self.states[layer][row, list(columns)] = state
