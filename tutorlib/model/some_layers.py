"""A transformers model of some layers of another one, with the other one's embeddings, output head and settings.

What this file does not do: wrap it in an `LM`. `LM.first_layers` and `pruned` do.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch

from ..arguments import check_whole_number, ints
from .fingerprint import original
from .llama import CLASSES


def ending_after(lm, count: int) -> Any:
    """The model that ends after its first layers, which are its own and no copies. See `LM.first_layers`."""
    check_whole_number(count, 1, "layers is after how many of the target's layers the draft ends")
    if lm.model is None:
        raise ValueError(
            f"{type(lm).__name__} has no layers after which a draft could end: use a model built like Llama"
        )
    if count >= lm.layers:
        raise ValueError(f"layers must be less than the target's {lm.layers}, or nothing is left out; got {count}")
    check_layers(lm, list(range(count)))
    made = layers_without_weights(lm, range(count))
    model: Any = original(lm.model)
    decoder, own = made.get_decoder(), model.get_decoder()
    decoder.layers, decoder.norm = own.layers[:count], own.norm
    return with_its_ends(made, lm)


def with_its_ends(made: Any, lm) -> Any:
    """A model of some layers with the embeddings, the output head and the settings of another one."""
    model: Any = original(lm.model)
    made.set_input_embeddings(model.get_input_embeddings())
    made.set_output_embeddings(model.get_output_embeddings())
    made.get_decoder().rotary_emb = model.get_decoder().rotary_emb
    made.generation_config = model.generation_config
    return made


def layers_without_weights(lm, layers: Sequence[int]) -> Any:
    """A model of some layers, with only the names and shapes of its weights."""
    model: Any = original(lm.model)
    config = copy.deepcopy(model.config)
    config.num_hidden_layers = len(layers)
    kinds = getattr(config, "layer_types", None)
    if kinds:
        config.layer_types = [kinds[layer] for layer in layers]
    with torch.device("meta"):
        return type(model)(config)


def check_layers(lm, layers: Sequence[int]) -> None:
    """Raise ValueError if a model has no such layers, or is not built like Llama."""
    kind = type(original(lm.model)).__name__
    if kind not in CLASSES:
        raise ValueError(
            f"{kind} is not built like Llama (Llama, Mistral, Qwen2, Qwen3), so no draft can be made of its layers: "
            "train heads for it, or load a smaller model as its draft"
        )
    chosen = ints(layers, "layers must be numbers of the target's layers (ints)")
    if not chosen or sorted(set(chosen)) != chosen or not 0 <= chosen[0] <= chosen[-1] < lm.layers:
        raise ValueError(
            f"layers must be numbers of the target's {lm.layers} layers, from 0 to {lm.layers - 1}, ascending and each "
            f"once, got {chosen}"
        )
