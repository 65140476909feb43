"""The key-value cache for rows of tokens, with which most models are computed.

Nearly all code that depends on the internals of transformers' caches is here: it decides where the tokens of a call are
stored, which tokens may attend to which, and what remains when tokens are forgotten, a branch of a tree is kept, or
rows are reordered. `own_cache.py` and `uncached.py` have the same functions for models that cannot be computed in this
way.

How it works: the keys and values of a row's token at position s are always in slot s of that row's cache. So to forget
tokens, it is enough to reduce a length. A row of a batch needs no padding mask, because slots beyond its length are
never attended to, and are overwritten before the length reaches them. To keep a branch of a tree, its slots are copied
to the front. Layers with a sliding window keep all earlier tokens too, because otherwise nothing could be undone; the
window is part of the mask.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import Cache, DynamicLayer
from transformers.modeling_outputs import CausalLMOutputWithPast

from . import lengths
from .fingerprint import original
from .tree import TokenTree

# Slots of a static cache beyond the context: a tree takes one slot per node, although nodes share positions.
TREE_SLOTS = 128
# Up to this many columns of logits where one is needed, one pass of the model is quicker than two.
_COLUMNS_FOR_ONE = 4
# From so many tokens of a prompt on, one more pass of a model takes less time than another row, or its draft, takes to
# read them.
WORTH_SHARING = 16
# The smallest number of spare slots that a growing cache gets each time it is enlarged.
_SPARE_SLOTS = 64


class KeyValues:
    """Keys and values of some rows of tokens. The token at position s of a row is in slot s of that row.

    `lm.forward` computes. A static cache allocates the whole context at once, as `torch.compile` needs.
    """

    takes_positions = True  # see `uncached.TokenCache`

    def __init__(self, lm, static: bool = False):
        if static:
            check_static(lm)
        self.lm, self.forward = lm, lm.forward
        self.device = self.forward.device
        self.reach = lengths.next_turn(lm.turns, 0)  # the length of a sequence at which the model is tested again
        self.slots = _Slots(lm.context + TREE_SLOTS if static else None)
        layer = _StaticLayer if static else _Layer
        self.cache = Cache(layers=[layer(self.slots) for _ in range(self.forward.config.num_hidden_layers)])
        self.name = cache_name(self.forward.model)

    def call(
        self,
        rows: list[list[int]],
        starts: list[int],
        keep: list[int],
        tree: TokenTree | None = None,
        hidden: Sequence[int] = (),
    ) -> tuple[list[torch.Tensor], dict[int, torch.Tensor]]:
        """One call: `rows[i]` are the tokens at positions `starts[i]`, `starts[i] + 1`, ... of row i.

        Logits are computed for the same columns of all rows. Where prompts of different lengths end, many of them would
        be computed for nothing, more with every row. Then all tokens before those whose logits are needed are computed
        first, in a pass of their own, which fills only the cache.

        Parameters
        ----------
        keep : list of int
            For each row, for how many of its last tokens logits are needed.
        tree : TokenTree, optional
            The last len(tree) tokens of the only row are the nodes of this tree.
        hidden : sequence of int
            The layers whose hidden states are needed; then there must be only one row.

        Returns
        -------
        logits : list of (kept, vocab) tensors, one for each row
        hidden : dict from layer to (rows, columns, width)
        """
        self.lm.count_call()
        width, firsts = max(map(len, rows)), [len(row) - count for row, count in zip(rows, keep, strict=True)]
        columns = sorted(set().union(*(range(first, len(row)) for first, row in zip(firsts, rows, strict=True))))
        try:
            if len(columns) > _COLUMNS_FOR_ONE * max(keep) and self.forward.keeps_logits:
                self._pass([row[:first] for row, first in zip(rows, firsts, strict=True)], starts, [0], rows)
                starts = [start + first for start, first in zip(starts, firsts, strict=True)]
                rows = [row[first:] for row, first in zip(rows, firsts, strict=True)]
                firsts, columns = [0] * len(rows), list(range(max(keep)))
            logits, states = self._pass(rows, starts, columns, rows, tree, hidden)
        except torch.OutOfMemoryError as error:
            raise torch.OutOfMemoryError(
                f"{error}\nThis call had {len(rows)} rows of {width} new tokens after {max(starts)} in the cache: "
                "use fewer rows, a shorter prompt or a smaller model."
            ) from error
        places = [columns.index(first) if count else 0 for first, count in zip(firsts, keep, strict=True)]
        return [row[place : place + count] for row, place, count in zip(logits, places, keep, strict=True)], states

    def read_for_all(self, tokens: list[int], rows: int) -> bool:
        """Read the beginning of a prompt that all rows have in common once, as part of the call that follows.

        Returns whether this was done.
        """
        if len(tokens) < WORTH_SHARING:
            return False
        self.reorder([0], 0)  # a call that failed may have left more rows
        self._pass([tokens], [0], [len(tokens) - 1], [tokens])
        self.reorder([0] * rows, len(tokens))
        return True

    def first_layers(self, lm) -> KeyValues:
        """The same keys and values, for the model `lm` that ends after some first layers of this one."""
        other = copy.copy(self)
        other.lm, other.forward = lm, lm.forward
        other.cache = Cache(layers=self.cache.layers[: lm.layers])
        return other

    def forget(self, starts: list[int]) -> None:
        """Clear the slots of each row i from `starts[i]` on: NaN in them would spoil later calls, masked or not."""
        with torch.inference_mode():
            for layer in self.cache.layers:
                layer.clear(starts)

    def _pass(self, rows, starts, columns: list[int], texts, tree=None, hidden=()):
        """One pass of the model: the logits (rows, columns, vocab) of these columns, and the hidden states of all.

        Shorter rows are padded on the right. No other token attends to the padding, and its slots in the cache are
        beyond the row's length. But it must be a token that the model can compute, because a weight of 0 times NaN
        would be NaN: the last token of the row in `texts`, which hold the rows of the whole call.
        """
        # The model's inputs are made in NumPy, which is faster than PyTorch for small operations.
        width = max(map(len, rows))
        fillers = [(text or max(texts))[-1] for text in texts]
        tokens = np.array([row + [filler] * (width - len(row)) for row, filler in zip(rows, fillers, strict=True)])
        positions = self._positions(starts, width, tree)
        at_the_end = columns[0] == width - len(columns)
        keep = len(columns) if at_the_end else torch.tensor(columns, device=self.device)
        uneven = min(starts) != max(starts)
        self.slots.aim(starts, width, uneven, self.device)
        mask = None
        # The tokens of a new cache, and a single token, need no mask. For a chain after other tokens the model could
        # make the mask itself, but it would be converted to numbers in each layer.
        if tree is not None or uneven or self.slots.fixed or (width > 1 and starts[0] > 0):
            mask = self._mask(positions, tree)
        if uneven:  # padding of short rows may be beyond the context, where there are no position embeddings
            positions = positions.clip(max=self.lm.context - 1)
        logits, states, _ = self.forward(
            torch.from_numpy(tokens).to(self.device),
            keep,
            hidden,
            attention_mask=mask,
            position_ids=torch.from_numpy(positions).to(self.device),
            use_cache=True,
            **{self.name: self.cache},
        )
        return logits, states

    def move(self, start: int, path: list[int]) -> None:
        """Move the slots of a tree's nodes, which begin at `start`, to the front in the order of `path`."""
        if path == list(range(len(path))):
            return
        source = torch.tensor(path) + start
        with torch.inference_mode():
            for states in self._stacked():
                states[..., start : start + len(path), :] = states.index_select(-2, source.to(states.device))

    def _stacked(self) -> list[torch.Tensor]:
        """All keys and values, stacked by their shape, so that one operation changes all of them."""
        layers = [layer for layer in self.cache.layers if layer.is_initialized]
        if self.slots.fixed:  # the tensors of a static cache must not move
            return [states for layer in layers for states in (layer.keys, layer.values)]
        if self.slots.stacked is None:
            alike = {}
            for layer in layers:
                for name in ("keys", "values"):
                    states = getattr(layer, name)
                    alike.setdefault((states.shape, states.device), []).append((layer, name))
            self.slots.stacked = [torch.stack([getattr(*part) for part in parts]) for parts in alike.values()]
            for parts, stack in zip(alike.values(), self.slots.stacked, strict=True):
                for (layer, name), states in zip(parts, stack, strict=True):
                    setattr(layer, name, states)
        return self.slots.stacked

    def reorder(self, rows: list[int], length: int) -> None:
        source = torch.tensor(rows, device=self.device)
        with torch.inference_mode():
            for layer in self.cache.layers:
                layer.reorder(source, length)

    def _positions(self, starts: list[int], width: int, tree: TokenTree | None) -> np.ndarray:
        """The position of each token, (rows, width); (1, width) if all rows begin at the same position."""
        if tree is not None:
            top = starts[0] + width - len(tree)  # tokens of the prompt come before it, in the same call
            return np.array([[*range(starts[0], top), *(top + depth for depth in tree.depths)]])
        if min(starts) == max(starts):
            return np.arange(starts[0], starts[0] + width)[None]
        return np.array(starts)[:, None] + np.arange(width)

    def _mask(self, positions: np.ndarray, tree: TokenTree | None):
        """Whom the tokens at these positions attend to, as the model's mask (see `Forward.masks`)."""
        end = self.slots.end
        slots = np.arange(self.slots.fixed or end)
        unseen = slots > positions[:, :, None]
        if tree is not None:
            # Slots of the tree hold nodes. Their positions depend on their depths, and only descendants may attend to
            # them.
            top = end - len(tree)
            unseen[:, :, top:] = True
            unseen[0, -len(tree) :, top:end] = ~tree.mask().numpy()
            slots[top:end] = positions[0, -len(tree) :]
        return self.forward.masks(unseen, positions, slots, self.device)


class _Slots:
    """The slots for the tokens of the present call. They are the same for every layer, so they are stored once.

    `start` and `end` are the bounds of the slots for the longest row. `rows` and `columns` list the slots one by one,
    if not all rows begin at `start` (and in a static cache).
    """

    def __init__(self, fixed: int | None):
        self.fixed = fixed
        self.start = self.end = 0
        self.rows: torch.Tensor | None = None
        self.columns: torch.Tensor | None = None
        self.stacked: list[torch.Tensor] | None = None  # see `KeyValues._stacked`

    def aim(self, starts: list[int], width: int, uneven: bool, device) -> None:
        self.start, self.end = min(starts), max(starts) + width
        self.rows = self.columns = None
        if self.fixed:
            if self.end > self.fixed:
                raise ValueError(f"a tree of this size needs {self.end} slots, but the static cache has {self.fixed}")
            self.columns = torch.arange(self.start, self.end, device=device)
        elif uneven:
            self.rows = torch.arange(len(starts), device=device)[:, None]
            self.columns = torch.tensor(starts, device=device)[:, None] + torch.arange(width, device=device)


class _Layer(DynamicLayer):
    """Keys and values of one layer, (rows, heads, slots, head size), in tensors with spare slots.

    They are written in place: adding a token copies only this token, and forgetting tokens copies nothing.
    """

    keys: torch.Tensor
    values: torch.Tensor
    is_initialized: bool

    def __init__(self, slots: _Slots):
        super().__init__()
        self.slots = slots

    def update(self, keys, values, *args, **kwargs):
        slots = self.slots
        if not self.is_initialized or slots.end > self.keys.shape[2]:
            self._grow(keys, values)
        if slots.columns is None or slots.rows is None:
            self.keys[:, :, slots.start : slots.end] = keys
            self.values[:, :, slots.start : slots.end] = values
        else:
            rows, columns = slots.rows.to(keys.device), slots.columns.to(keys.device)  # layers may be elsewhere
            self.keys[rows, :, columns] = keys.transpose(1, 2)
            self.values[rows, :, columns] = values.transpose(1, 2)
        return self.keys[:, :, : slots.end], self.values[:, :, : slots.end]

    def _grow(self, keys, values):
        """Make room for at least `slots.end` tokens. New slots are zero, because a weight of 0 times NaN would be
        NaN.
        """
        size = self.slots.fixed or grown(self.slots.end)
        old = (self.keys, self.values) if self.is_initialized else None
        self.keys, self.values = (new.new_zeros(*new.shape[:2], size, new.shape[3]) for new in (keys, values))
        if old is not None:
            self.keys[:, :, : old[0].shape[2]] = old[0]
            self.values[:, :, : old[1].shape[2]] = old[1]
        self.dtype, self.device = keys.dtype, keys.device
        self.is_initialized, self.slots.stacked = True, None

    def clear(self, starts):
        if self.is_initialized:
            for row, start in enumerate(starts):
                self.keys[row, :, start:] = 0
                self.values[row, :, start:] = 0

    def get_seq_length(self):
        return self.slots.start

    def get_mask_sizes(self, query_length, *args, **kwargs):
        return self.slots.fixed or self.slots.end, 0

    def reorder(self, source, length):
        if self.is_initialized:
            source, self.slots.stacked = source.to(self.device), None
            for name, states in (("keys", self.keys), ("values", self.values)):
                chosen = states[:, :, :length].index_select(0, source)
                if len(source) == len(states):
                    states[:, :, :length] = chosen
                else:
                    spare = states.new_zeros(len(source), states.shape[1], states.shape[2] - length, states.shape[3])
                    setattr(self, name, torch.cat([chosen, spare], dim=2))


class _StaticLayer(_Layer):
    """Keys and values for the whole context: the tensors and their shapes are the same in every call."""

    def update(self, keys, values, *args, **kwargs):
        if not self.is_initialized:
            self._grow(keys, values)
        assert self.slots.columns is not None, "a static cache lists its slots in every call"
        columns = self.slots.columns.to(keys.device)
        self.keys.index_copy_(2, columns, keys)
        self.values.index_copy_(2, columns, values)
        return self.keys, self.values


def check_static(lm) -> None:
    if lm.context > 1_000_000:
        raise ValueError(f"a static cache holds the whole context, but it is {lm.context}: give LM a context")


def grown(tokens: int) -> int:
    """The new number of slots for a growing cache that has too few for `tokens` tokens."""
    return tokens + max(_SPARE_SLOTS, tokens // 2)


def cache_name(model) -> str:
    """What the model calls its cache: transformers 5.24 renamed `past_key_values` to `cache`."""
    kind: type = type(original(model))
    return _cache_name(kind)


@functools.cache  # reading a signature is slower than a call of a small model
def _cache_name(kind: Any) -> str:
    given = inspect.signature(kind.forward).parameters
    for name in ("cache", "past_key_values"):
        if name in given:
            return name
    # The model is in a wrapper that names no arguments.
    new = any(field.name == "cache" for field in dataclasses.fields(CausalLMOutputWithPast))
    return "cache" if new else "past_key_values"


def call_with_cache(
    model, input_ids: torch.Tensor, cache: Cache | None = None, **options
) -> tuple[torch.Tensor, Cache]:
    """One forward call of a transformers model, in which the new tokens attend to those in the cache.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    input_ids : (rows, tokens) tensor of int64
        Only tokens that are not in the cache yet.
    cache : transformers.Cache, optional
        Keys and values of the tokens before; None if there are none.
    **options
        Other arguments of the call, such as ``position_ids``.

    Returns
    -------
    logits : (rows, tokens, vocab) tensor
    cache : transformers.Cache
        It holds the new tokens too. One that was given is changed in place.
    """
    output = model(input_ids=input_ids, use_cache=True, **{cache_name(model): cache}, **options)
    return output.logits, returned_cache(output)


def returned_cache(output) -> Cache:
    """The cache in what a model returned, by either of its names; see `cache_name`."""
    return output["cache" if "cache" in output else "past_key_values"]
