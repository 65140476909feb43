"""The cache that a model makes for itself, with an undo: for models that do not work with `cache.KeyValues`.

Hybrids and recurrent models (Qwen3.5, LFM2, Falcon-H1, Mamba and others) read a text into a state of constant size,
from which no token can be removed. Others number positions or build masks in their own way. All of them can continue a
plain text with the cache that they returned for it. So a call here passes no mask and no positions, and its rows have
the same length:

- To forget tokens, the latest snapshot of the state before them is restored, and the tokens since then are computed
  again, as a part of the next call. Keys and values are only cut, so a snapshot does not contain them, and its size
  does not depend on the text. There are at most three snapshots of a row.
- The branches of a tree are rows of one call, each with a copy of the state.
- Rows of a batch are computed in one call as long as their lengths are the same, otherwise one after the other.

No model family is known here, and only `state.py` looks into what a model returns. `probe.py` finds out whether the
results are right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from . import lengths
from .answer import Answer
from .state import CachedState
from .tree import TokenTree
from .uncached import TokenCache

# Snapshots of a row: the first, which is usually at the end of the prompt, and the latest ones.
_SNAPSHOTS = 3
# How many tokens are computed again with others before that is worth a snapshot.
_AGAIN = 8
# How many branches of a tree are computed at once: each has a copy of the state, and of the keys and values.
_BRANCHES = 16


class _Mark(NamedTuple):
    """One row of a state."""

    state: CachedState
    row: int


class OwnCache(TokenCache):
    """Used in place of `cache.KeyValues`, and called in the same way.

    Parameters
    ----------
    lm : LM
    slots : list of lists of int
        For each row, the tokens so far. They are computed in the first call.
    pieces : bool
        Whether the model can continue a text by several tokens at once. Otherwise it gets one token at a time, except
        at the beginning of a text.
    positions : bool
        Whether the model is told the positions of its tokens. Most find them out from their cache.
    """

    stateful = True  # whether there is more to it than keys and values; known after the first pass

    def __init__(self, lm, slots: list[list[int]], pieces: bool = True, positions: bool = False):
        super().__init__(lm, slots)
        self.pieces, self.positions = pieces, positions
        self.reach = lengths.next_turn(lm.turns, 0)  # the length of a sequence at which the model is tested again
        # For each row, its snapshots from short to long, and its latest state, which includes keys and values.
        self.snapshots: list[list[_Mark]] = [[] for _ in slots]
        self.latest: list[_Mark | None] = [None] * len(slots)

    def compute(self, rows: list[list[int]], starts: list[int], tree: TokenTree | None, answer: Answer) -> None:
        """In several passes if rows differ in length or there is a tree."""
        top = answer.width - len(tree or ())  # where the nodes of a tree begin
        groups: dict[tuple, list[int]] = {}  # rows that can be computed in one pass
        for row, (tokens, start) in enumerate(zip(rows, starts, strict=True)):
            self.slots[row][start:] = tokens[:top]
            if not self.slots[row]:  # everything was forgotten
                self.snapshots[row], self.latest[row] = [], None
            latest, base = self.latest[row], self._base(row, start)
            behind = self.slots[row] and (latest is None or latest is not base or latest.state.length != start)
            if tokens[:top] or (tree is not None and behind):
                key = (len(self.slots[row]), start, *(mark and id(mark.state) for mark in (base, latest)))
                groups.setdefault(key, []).append(row)
        for group in groups.values():
            self._continue(group, starts[group[0]], answer)
        if tree is not None:
            self._branch(tree, top, answer)
            self.slots[0] += tree.tokens

    def reorder(self, rows: list[int], length: int) -> None:
        super().reorder(rows, length)
        self.snapshots = [list(self.snapshots[row]) for row in rows]
        self.latest = [self.latest[row] for row in rows]

    def _base(self, row: int, start: int) -> _Mark | None:
        """The state from which a row is continued at `start`, with the tokens in between computed again."""
        latest = self.latest[row]
        if latest is None or latest.state.length <= start or not self.stateful:
            return latest
        return next((mark for mark in reversed(self.snapshots[row]) if mark.state.length <= start), None)

    def _continue(self, group: list[int], start: int, answer: Answer) -> None:
        """Compute the tokens of some rows from their states on; those from `start` on are new."""
        state = self._restored(group, start)
        length = state.length if state else 0
        snapshots = [[mark for mark in self.snapshots[row] if mark.state.length <= start] for row in group]
        for row in group:  # if the model raises an error, its state is of no use
            self.snapshots[row], self.latest[row] = [], None
        texts = [self.slots[row] for row in group]
        if state and start - length > _AGAIN:
            *_, state = self._run(state, [text[length:start] for text in texts])
            length = start
        before = snapshots[0][-1].state.length if snapshots[0] else 0
        new = len(texts[0]) - start
        # Several tokens may be a draft, and soon be forgotten.
        if state and self.stateful and length == start and start - before >= (1 if new > 1 else _AGAIN):
            snapshot = state.without_keys()
            for number, marks in enumerate(snapshots):
                marks.append(_Mark(snapshot, number))
                del marks[1 : 1 - _SNAPSHOTS]
        if len(texts[0]) > length:
            columns = max((answer.needed(row, range(new)) for row in group), key=len)
            rest = [text[length:] for text in texts]
            logits, states, state = self._run(state, rest, len(columns) or 1, answer.hidden)
            for number, row in enumerate(group if columns else ()):
                found = {layer: part[number, -len(columns) :] for layer, part in states.items()}
                answer.put(row, columns, logits[number], found)
        for number, row in enumerate(group):
            self.snapshots[row], self.latest[row] = snapshots[number], _Mark(state, number) if state else None

    def _restored(self, group: list[int], start: int) -> CachedState | None:
        """The state of some rows, to be changed in place; None at the beginning of a text."""
        bases = [mark for row in group if (mark := self._base(row, start))]
        latest = [mark for row in group if (mark := self.latest[row])]
        if not bases:  # all rows of a group have one, the same, or none
            return None
        old, source = bases[0].state, latest[0].state
        users = [mark.row for mark in self.latest if mark and mark.state is source]
        if old is source and old.length <= start and users == [mark.row for mark in latest] == list(range(old.rows)):
            return source
        keys = source.chosen_keys([mark.row for mark in latest], min(old.length, start))
        return old.chosen([mark.row for mark in bases], keys)._replace(length=min(old.length, start))

    def _branch(self, tree: TokenTree, top: int, answer: Answer) -> None:
        """Compute the branches of a tree, each as a row, and leave the state as it was."""
        paths = tree.paths()
        for first in range(0, len(paths), _BRANCHES):
            some = paths[first : first + _BRANCHES]
            latest = self.latest[0]
            state = latest and latest.state.chosen([latest.row] * len(some))
            tokens = [[tree.tokens[node] for node in path] for path in some]
            width = max(map(len, tokens))
            # What comes after a row's own tokens changes nothing before it, so short rows are padded with anything.
            rows = [row + row[-1:] * (width - len(row)) for row in tokens]
            logits, states, _ = self._run(state, rows, width, answer.hidden)
            for number, path in enumerate(some):
                found = {layer: part[number, : len(path)] for layer, part in states.items()}
                answer.put(0, [top + node for node in path], logits[number, : len(path)], found)

    def _run(self, state: CachedState | None, rows: list[list[int]], last: int = 1, hidden: Sequence[int] = ()):
        """Continue some rows of the same length.

        Returns
        -------
        logits : (rows, last, vocab)
        hidden : dict from layer to (rows, columns, width)
        state : State
        """
        if state is None or self.pieces:
            return self._pass(state, rows, last, hidden)
        logits, states = [], []
        for column in range(len(rows[0])):
            *found, state = self._pass(state, [row[column : column + 1] for row in rows], 1, hidden)
            logits.append(found[0])
            states.append(found[1])
        joined = {layer: torch.cat([part[layer] for part in states], dim=1) for layer in hidden}
        return torch.cat(logits[-last:], dim=1), joined, state

    def _pass(self, state: CachedState | None, rows: list[list[int]], last: int, hidden: Sequence[int]):
        """One pass of the model; see `_run`."""
        forward, start = self.lm.forward, state.length if state else 0
        tokens = torch.tensor(rows, device=forward.device)
        options = dict(state.past) if state else {}
        if self.positions:
            options["position_ids"] = torch.arange(start, start + tokens.shape[1], device=tokens.device)[None]
        logits, states, output = forward(tokens, last, hidden, use_cache=True, **options)
        names = state.past if state else [name for name in output if name in forward.parameters]
        past = {name: output[name] for name in names if name in output}
        if not past:
            raise ValueError(f"{type(forward.model).__name__} returns no cache")
        new = CachedState(past, start + tokens.shape[1], len(rows))
        if state is None:
            self.stateful = new.holds_more_than_keys()
        return logits[:, -last:], states, new
