"""Several sequences over a model, computed together in one call: like `session.py` for one, but without trees."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING

import torch

from ..arguments import Prompted, concrete, ints
from .session import refuse_nan_and_forget

if TYPE_CHECKING:
    from .protocol import Sequences


class Batch:
    """Several sequences computed together, with the same results as one by one. Made by `LM.batch(prompts)`.

    Rows may differ in length from the start, and may be fed and rolled back by different amounts.

    Attributes
    ----------
    tokens : list of lists of int
        All tokens so far, row by row, prompts included (a copy).
    room : list of int
        How many more tokens fit into the context, row by row.
    calls : int
        Calls so far. Prompts of very different lengths, and several equal prompts (which are read once for all rows),
        are computed in two passes of the model, counted as one call.
    """

    def __init__(self, lm: Sequences, prompts: Sequence[str | Sequence[int]]):
        prompts = concrete(prompts)
        if isinstance(prompts, str | bytes | Mapping | Set) or not len(prompts):
            raise ValueError(f"a batch needs a list of at least one prompt, got {prompts!r}")
        self.lm = lm
        self.calls = 0
        self._tokens = [Prompted(tokens, len(tokens)) for tokens in map(lm.prompt_tokens, prompts)]
        self._computed = [0] * len(prompts)
        self._cache = lm.open_cache(rows=len(prompts))

    def __len__(self) -> int:
        return len(self._tokens)

    def __repr__(self) -> str:
        return f"Batch({len(self)} rows of {[len(row) for row in self._tokens]} tokens, {self.calls} calls)"

    @property
    def tokens(self) -> list[list[int]]:
        return [Prompted(row, row.prompt_length) for row in self._tokens]

    @property
    def room(self) -> list[int]:
        return [self.lm.context - len(row) for row in self._tokens]

    def feed(self, lists: Sequence[Iterable[int]]) -> list[torch.Tensor]:
        """Add tokens to each row, in one call.

        Parameters
        ----------
        lists : one iterable of int for each row
            They may differ in length, and may be empty for rows that have nothing to add. Not all of them may be empty,
            unless prompts still have to be computed.

        Returns
        -------
        list of (rows, vocab) tensors
            For each row of the batch, what `Session.feed` would return; (0, vocab) if nothing was computed for it.

        Raises
        ------
        ValueError
            As for `Session.feed`; `NaNLogits` if the model returns NaN for any row. The batch is then unchanged.
        """
        lists = concrete(lists)
        self._expect_one_each(lists, "feed")
        given = [self.lm.check_tokens(tokens, f"row {row}") for row, tokens in enumerate(lists)]
        for row, (tokens, room) in enumerate(zip(given, self.room, strict=True)):
            if len(tokens) > room:
                raise ValueError(f"row {row}: {len(tokens)} tokens to feed, room for {room}: cut them to batch.room")
        starts = self._computed
        pending = [tokens[computed:] for tokens, computed in zip(self._tokens, starts, strict=True)]
        new = [old + tokens for old, tokens in zip(pending, given, strict=True)]
        if not any(new):
            raise ValueError("feed: no row has anything to compute: give at least one of them a token")
        length = max(self._computed) + max(map(len, new))
        if length > self._cache.reach:
            computed = [tokens[:count] for tokens, count in zip(self._tokens, self._computed, strict=True)]
            self._cache = self.lm.reach(self._cache, computed, length)
        self.calls += 1
        if not any(starts) and len(self) > 1 and all(tokens == self._tokens[0] for tokens in self._tokens):
            prompt = self._tokens[0][:-1]
            if self._cache.read_for_all(prompt, len(self)):
                starts, new = [len(prompt)] * len(self), [tokens[len(prompt) :] for tokens in new]
        # Each row needs logits from the last token of its prompt, or from its first new token, up to its end.
        keep = [len(tokens) + bool(old) for old, tokens in zip(pending, given, strict=True)]
        rows, _ = self._cache.call(new, starts, keep)
        refuse_nan_and_forget(rows, self._cache, self._computed)
        for row, tokens in enumerate(given):
            self._tokens[row] += tokens
        self._computed = [len(tokens) for tokens in self._tokens]
        return rows

    def rollback(self, counts: Sequence[int]) -> None:
        """Forget the last ``counts[i]`` tokens of each row i."""
        counts = concrete(counts)
        self._expect_one_each(counts, "rollback")
        counts = ints(counts, "rollback needs how many tokens each row forgets (ints)")
        for row, (count, tokens) in enumerate(zip(counts, self._tokens, strict=True)):
            if not 0 <= count <= len(tokens):
                raise ValueError(f"rollback: row {row} has {len(tokens)} tokens, so it cannot forget {count}")
        for row, count in enumerate(counts):
            del self._tokens[row][len(self._tokens[row]) - count :]
            self._computed[row] = min(self._computed[row], len(self._tokens[row]))

    def reorder(self, rows: Sequence[int]) -> None:
        """Let row i continue from the present state of row `rows[i]`, as beam search does with its beams.

        Rows may be repeated or left out, and there may be more or fewer of them than before.
        """
        rows = ints(rows, "reorder needs row numbers (ints)")
        if not rows or min(rows) < 0 or max(rows) >= len(self):
            raise ValueError(f"reorder({rows}): expected at least one row number from 0 to {len(self) - 1}")
        if rows == list(range(len(self))):
            return
        self._cache.reorder(rows, max(self._computed))
        self._tokens = [Prompted(self._tokens[row], self._tokens[row].prompt_length) for row in rows]
        self._computed = [self._computed[row] for row in rows]

    def _expect_one_each(self, values, verb: str) -> None:
        if len(values) != len(self):
            raise ValueError(f"{verb}: the batch has {len(self)} rows, got {len(values)} entries: give one for each")
