"""A cache of tokens instead of keys and values: every row, and each branch of a tree, is computed in full.

It is slow, but correct for any causal model, because the model only ever reads a plain text, without a cache, mask or
positions. `LM` uses it for models that do not respect a mask or positions (found out in `probe.py`). A `TableLM`, which
has no keys, always uses it. If a session rolls back too few tokens or keeps the wrong branch of a tree, the error shows
here just as with keys and values.
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
        Its method `in_full` computes a text.
    slots : list of lists of int
        For each row, the tokens that are already computed.
    """

    reach = math.inf  # how long a sequence may get

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
        self.lm._count_call()
        width = max(map(len, rows))
        logits, states = [None] * len(rows), {}
        for row, (tokens, start, count) in enumerate(zip(rows, starts, keep, strict=True)):
            self.slots[row][start:] = tokens
            top = len(tokens) - count  # the first column whose logits are needed
            for text, columns in self._texts(row, start, len(tokens), tree):
                if not hidden:  # only the rows that are needed are computed
                    columns = [column for column in columns if column >= top]
                if not columns:
                    continue
                found, found_states = self.lm.in_full(text, len(columns), hidden)
                if logits[row] is None:
                    logits[row] = found.new_empty(count, found.shape[-1])
                kept = [number for number, column in enumerate(columns) if column >= top]
                logits[row][[columns[number] - top for number in kept]] = found[kept]
                for layer, state in found_states.items():
                    if layer not in states:
                        states[layer] = state.new_full((len(rows), width, state.shape[-1]), math.nan)
                    states[layer][row, columns] = state
        found = next(found for found in logits if found is not None)
        return [found[:0] if rows_of is None else rows_of for rows_of in logits], states

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
