"""A cache of tokens instead of keys and values: every row, and each branch of a tree, is computed in full.

It is slow, but correct for any causal model, because the model only ever reads a plain text, without a cache, mask or
positions. `LM` uses it for models that neither respect a mask and positions nor return a cache with which they can be
continued (found out in `probe.py`). A `TableLM`, which has no keys, always uses it. If a session rolls back too few
tokens or keeps the wrong branch of a tree, the error shows here just as with keys and values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from .tree import TokenTree


class TokenCache:
    """Used in place of `cache.KeyValues`. The token at position s of a row is in slot s of that row.

    Parameters
    ----------
    lm : LM
        Its method `in_full` computes a text, and `count_call` counts.
    slots : list of lists of int
        For each row, the tokens that are already computed.
    """

    reach = math.inf  # how long a sequence may get
    takes_positions = False  # whether the nodes of a tree are placed where it is said, and not where their texts end

    def __init__(self, lm, slots: list[list[int]]):
        self.lm = lm
        self.slots = slots

    def call(
        self,
        rows: list[list[int]],
        starts: list[int],
        keep: list[int],
        tree: TokenTree | None = None,
        hidden: Sequence[int] = (),
    ) -> tuple[list[torch.Tensor], dict[int, torch.Tensor]]:
        """One call; see `cache.KeyValues.call`."""
        self.lm.count_call()
        answer = Answer(rows, keep)
        for row, (tokens, start) in enumerate(zip(rows, starts, strict=True)):
            self.slots[row][start:] = tokens
            for text, columns in self._texts(row, start, len(tokens), tree):
                columns = answer.needed(row, columns, bool(hidden))
                if columns:
                    answer.put(row, columns, *self.lm.in_full(text, len(columns), hidden))
        return answer.logits, answer.states

    def forget(self, starts: list[int]) -> None:
        """Forget the tokens of each row i from position `starts[i]` on."""
        for slots, start in zip(self.slots, starts, strict=True):
            del slots[start:]

    def _texts(self, row: int, start: int, length: int, tree: TokenTree | None):
        """The texts to compute for a row, each with the columns of this call to which its last tokens belong."""
        slots = self.slots[row]
        if tree is None:
            return [(slots, list(range(length)))] if length else []
        top = length - len(tree)  # where the nodes of the tree begin
        leaves = set(range(len(tree))) - set(tree.parents)
        paths = [tree.path(leaf) for leaf in sorted(leaves)]
        before = slots[: start + top]
        return [
            (before + [tree.tokens[node] for node in path], [*range(top), *(top + node for node in path)])
            for path in paths
        ]

    def move(self, start: int, path: list[int]) -> None:
        """Move the slots of a tree's nodes to the front, in the order of `path`."""
        self.slots[0][start:] = [self.slots[0][start + node] for node in path]

    def reorder(self, rows: list[int], length: int) -> None:
        self.slots = [self.slots[row][:length] for row in rows]


class Answer:
    """The logits and hidden states of a call, put together from those of single texts.

    Parameters
    ----------
    rows : list of lists of int
        The tokens of the call.
    keep : list of int
        For each row, for how many of its last tokens logits are needed.

    Attributes
    ----------
    width : int
        How many tokens the longest row has.
    logits : list of (kept, vocab) tensors, one for each row
    states : dict from layer to (rows, width, features) tensor
        Columns beyond a row's own tokens are NaN.
    """

    def __init__(self, rows: list[list[int]], keep: list[int]):
        self.width, self.keep = max(map(len, rows)), keep
        self.firsts = [len(row) - count for row, count in zip(rows, keep, strict=True)]
        self.states: dict[int, torch.Tensor] = {}
        self._logits: list[torch.Tensor | None] = [None] * len(rows)

    @property
    def logits(self) -> list[torch.Tensor]:
        known = next(logits for logits in self._logits if logits is not None)
        return [known[:0] if logits is None else logits for logits in self._logits]

    def needed(self, row: int, columns: Sequence[int], all_of_them: bool) -> Sequence[int]:
        """The columns of a text's last tokens without those at the front that nobody wants."""
        return columns if all_of_them else [column for column in columns if column >= self.firsts[row]]

    def put(self, row: int, columns: Sequence[int], logits: torch.Tensor, states: dict[int, torch.Tensor]) -> None:
        """Add the logits (columns, vocab) and the hidden states, by layer, of some columns of a row."""
        if self._logits[row] is None:
            self._logits[row] = logits.new_empty(self.keep[row], logits.shape[-1])
        first = self.firsts[row]
        kept = [number for number, column in enumerate(columns) if column >= first]
        self._logits[row][[columns[number] - first for number in kept]] = logits[kept]
        for layer, state in states.items():
            if layer not in self.states:
                self.states[layer] = state.new_full((len(self.keep), self.width, state.shape[-1]), math.nan)
            self.states[layer][row, list(columns)] = state
