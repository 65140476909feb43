"""What a model returns for its next call (`past_key_values`, `cache_params`, `state`), and copies of it.

It is copied part by part, whatever it consists of. Keys and values are told from all other parts, because they alone
can be cut after any token. What this file does not do: decide which state a text is continued from (`own_cache.py`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedConfig
from transformers.cache_utils import DynamicLayer

# What a snapshot has in place of keys and values.
_LEFT_OUT = object()


class CachedState(NamedTuple):
    """What a model returned after the first `length` tokens of some rows."""

    past: dict[str, Any]  # by the names of the arguments with which the next call gets it
    length: int
    rows: int

    def holds_more_than_keys(self) -> bool:
        others = []
        self.copied(others.append, lambda keys: keys)
        return bool(others)

    def without_keys(self) -> CachedState:
        """A copy, with nothing in place of keys and values."""
        return self.copied(torch.clone, lambda keys: _LEFT_OUT)

    def chosen_keys(self, rows: Sequence[int], length: int) -> list[torch.Tensor]:
        """The keys and values of some rows, up to a length, in the order in which `chosen` takes them."""
        keys = []
        self.copied(lambda part: part, keys.append)
        return [_chosen_keys(part, rows)[..., :length, :] for part in keys]

    def chosen(self, rows: Sequence[int], keys: Sequence[torch.Tensor] | None = None) -> CachedState:
        """A copy for some rows, which may be repeated; with these keys and values, by default its own."""
        given = iter(keys or ())
        copied = self.copied(
            lambda part: _chosen(part, rows, self.rows),
            lambda own: _chosen_keys(own, rows) if keys is None else next(given),
        )
        return copied._replace(rows=len(rows))

    def copied(self, fixed: Callable, grown: Callable) -> CachedState:
        """A copy with its tensors changed: keys and values by `grown`, all others by `fixed`."""
        seen = {}

        def visit(value, grows=False):
            is_tensor = isinstance(value, torch.Tensor)
            if value is _LEFT_OUT or (grows and is_tensor and value.shape[-2:-1] == (self.length,)):
                return grown(value)
            if is_tensor:
                return fixed(value)
            if id(value) in seen:
                return seen[id(value)]
            made = value
            if isinstance(value, tuple):
                made = tuple(map(visit, value))
            elif isinstance(value, dict | list):
                made = copy.copy(value)
                for key in value if isinstance(value, dict) else range(len(value)):
                    made[key] = visit(value[key])
            elif hasattr(value, "__dict__") and not callable(value) and not isinstance(value, PreTrainedConfig):
                made = copy.copy(value)
                # Such layers append tokens to their keys and values, so they can be cut after any token.
                appends = getattr(type(value), "update", None) is DynamicLayer.update
                for name, part in vars(value).items():
                    vars(made)[name] = visit(part, appends and name in ("keys", "values"))
            seen[id(value)] = made
            return made

        return self._replace(past=visit(self.past))


def _chosen(part: torch.Tensor, rows: Sequence[int], of: int) -> torch.Tensor:
    """A copy of some rows of a tensor, or of the tensor if it has not one part for each of the `of` rows."""
    if not part.ndim or len(part) != of:
        return part.clone()
    return part.index_select(0, torch.tensor(rows, device=part.device))


def _chosen_keys(part: torch.Tensor, rows: Sequence[int]) -> torch.Tensor:
    """Some rows of keys or values: not copied if there is only one, because nobody changes them in place."""
    if len(part) == 1:
        return part.expand(len(rows), *part.shape[1:])
    return part.index_select(0, torch.tensor(rows, device=part.device))
