"""How long a sequence may get, and at which lengths a model may begin to compute differently.

A configuration holds such lengths beside many other numbers: the width of a sliding window, the positions after which
queries are scaled anew. Their names differ from family to family. So every whole number in it counts as one, unless it
determines the size of a weight. What this file does not do: test what happens at these lengths (`probe.py`).
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# So many rows of a table of positions may come before that of the first token.
_ROWS_BEFORE = 8
_SIZES: dict[tuple, bool] = {}  # by kind of model and number: whether the number is the size of a weight
_lock = threading.Lock()


def longest_sequence(model, config) -> tuple[int | None, str]:
    """The longest possible sequence (None if there is no limit), and the reason if the configuration gives a higher
    number.
    """
    name = type(model).__name__
    limit = getattr(config, "max_position_embeddings", None) or getattr(config, "max_target_positions", None) or 0
    limit = limit if limit > 0 else None
    table = getattr(getattr(model.base_model, "embeddings", None), "position_embeddings", None)
    padding = getattr(table, "padding_idx", None)
    if limit and padding is not None:
        limit -= padding + 1
        return limit, f"{name} goes to {limit}: the first positions of its table are not for tokens"
    if limit and _has_table(model, limit):
        return limit, f"{name} goes to {limit}: its table of positions has no more rows"
    ropes = getattr(config, "rope_parameters", None) or {}
    for rope in (ropes, *(rope for rope in ropes.values() if isinstance(rope, dict))):
        scaling = rope.get("rope_type") or ""
        # Both rotate every token of a call by the position of the last token.
        if scaling == "longrope" or "long_mscale" in rope:
            short = rope.get("original_max_position_embeddings") or config.original_max_position_embeddings
        elif "dynamic" in scaling and limit:
            short = limit - 1  # at the limit itself, it depends on earlier calls
        else:
            continue
        if limit is None or short < limit:
            return short, (
                f'{name} goes to {short}: in longer sequences its rotary scaling ("{scaling}") turns all positions '
                "differently, so that logits would depend on later tokens"
            )
    return limit, ""


def _has_table(model: PreTrainedModel, limit: int) -> bool:
    """Whether a model looks positions up in a table, learned or not: beyond its last row there is nothing."""
    tokens = model.get_input_embeddings()
    tables = [module.weight.shape[:1] for module in model.modules()
              if isinstance(module, torch.nn.Embedding) and module is not tokens]  # fmt: skip
    if getattr(model.config, "quantization_config", None) is None:  # it keeps its weights in buffers too
        tables += [buffer.shape for buffer in model.buffers()]
    # Some tables begin with rows for padding.
    return any(limit <= size <= limit + _ROWS_BEFORE for shape in tables for size in shape)


def turns(config, shortest: int, context: int) -> list[int]:
    """The whole numbers in a configuration from `shortest` to below `context`, in ascending order.

    A sequence of so many tokens has to be tested, because the model might compute differently from there on.
    """
    return sorted({number for _, number in _numbers(config.to_dict()) if shortest <= number < context})


def next_turn(turns: list[int], length: int) -> float:
    """The greatest length that needs no other test than `length` does."""
    return min((turn - 1 for turn in turns if turn > length), default=float("inf"))


def _numbers(values, path: tuple = ()) -> Iterator[tuple[tuple, int]]:
    """Every whole number in a nested dict or list, with the keys that lead to it. Ids of tokens are left out."""
    entries = values.items() if isinstance(values, dict) else enumerate(values)
    for key, value in entries:
        if isinstance(value, dict | list | tuple):
            yield from _numbers(value, (*path, key))
        elif type(value) is int and not str((*path, key)[0]).endswith(("token_id", "token_index")):
            yield (*path, key), value


def is_size(model: torch.nn.Module, kind: tuple, number: int) -> bool:
    """Whether a number in the configuration is there only because it determines the size of weights.

    Found out by making the model without memory for its weights, from a configuration with twice the number. If it is
    not known how to make the model, the answer is False.

    Parameters
    ----------
    kind : tuple
        Models of one kind have the same answer, see `probe.kind`.
    """
    with _lock:
        if (kind, number) not in _SIZES:
            _SIZES[kind, number] = _is_size(model, number)
        return _SIZES[kind, number]


def _is_size(model, number: int) -> bool:
    # An adapter or a wrapper contains the model that its configuration describes.
    made = [module for module in model.modules() if hasattr(type(module), "_from_config")][:1]
    try:
        shapes = _shapes(type(made[0]), model.config)
    except Exception:
        return False
    paths = [path for path, value in _numbers(model.config.get_text_config(decoder=True).to_dict()) if value == number]
    return all(_shapes_with(type(made[0]), model.config, path, 2 * number) != shapes for path in paths)


def _shapes(make: type, config) -> dict[str, torch.Size]:
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        return {name: weight.shape for name, weight in make(copy.deepcopy(config)).state_dict().items()}


def _shapes_with(make: type, config, path: tuple, number: int) -> dict[str, torch.Size] | None:
    """The sizes of the weights with another number in the configuration; None if they do not fit together."""
    config = copy.deepcopy(config)
    text = config.get_text_config(decoder=True)
    try:
        if len(path) == 1:
            setattr(text, path[0], number)
        else:
            holder = getattr(text, path[0])
            for key in path[1:-1]:
                holder = holder[key]
            holder[path[-1]] = number
        return _shapes(make, config)
    except Exception:
        return None
