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

from .answer import Answer
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
        """One call; see `cache.KeyValues.call`. It counts as one, although it may take several passes of the model."""
        self.lm.count_call()
        answer = Answer(rows, keep, hidden)
        self.compute(rows, starts, tree, answer)
        return answer.logits, answer.states

    def compute(self, rows: list[list[int]], starts: list[int], tree: TokenTree | None, answer: Answer) -> None:
        """Put the results for all rows into the answer, and their tokens into the slots."""
        for row, (tokens, start) in enumerate(zip(rows, starts, strict=True)):
            self.slots[row][start:] = tokens
            for text, columns in self._texts(row, start, len(tokens), tree):
                columns = answer.needed(row, columns)
                if columns:
                    answer.put(row, columns, *self.lm.in_full(text, len(columns), answer.hidden))

    def read_for_all(self, tokens: list[int], rows: int) -> bool:
        """Nothing can be read for several rows at once; see `cache.KeyValues.read_for_all`."""
        return False

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
        before = slots[: start + top]
        return [
            (before + [tree.tokens[node] for node in path], [*range(top), *(top + node for node in path)])
            for path in tree.paths()
        ]

    def move(self, start: int, path: list[int]) -> None:
        """Move the slots of a tree's nodes to the front, in the order of `path`."""
        self.slots[0][start:] = [self.slots[0][start + node] for node in path]

    def reorder(self, rows: list[int], length: int) -> None:
        self.slots = [self.slots[row][:length] for row in rows]
