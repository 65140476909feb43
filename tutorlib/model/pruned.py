"""A draft that is made of a few layers of its target, with the target's embeddings and output head.

Such a draft needs no tokenizer and no matrices for the vocabulary of its own, which are the largest part of a small
model. Without training, it guesses badly: the layers in between are missing. `tutorlib.lab.training.train_pruned`
trains the others to do without them.

Source: Zhang et al. (2024), "Draft & Verify", drafts with some of the target's layers as they are; Muralidharan et al.
(2024), "Compact Language Models via Pruning and Knowledge Distillation", trains such a model on the whole one's
probabilities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .fingerprint import original
from .lm import LM
from .some_layers import check_layers, layers_without_weights, with_its_ends


def pruned(lm: LM, layers: Sequence[int], weights: Mapping[str, torch.Tensor] | None = None) -> LM:
    """The model that has only some of a model's layers, in the same order.

    Parameters
    ----------
    lm : LM
        A model built like Llama (Llama, Mistral, Qwen2, Qwen3). Its embeddings and output head are shared.
    layers : sequence of int
        The numbers of its layers, from 0, ascending.
    weights : dict of tensors, optional
        The weights of the layers and of the final norm, by their names in `own_weights`. They are used as they are, and
        not copied. By default, copies of the model's.

    Returns
    -------
    LM
        With the model's tokenizer, context and stop tokens.

    Raises
    ------
    ValueError
        If the model is not built like Llama, or is quantized; if `layers` are not different layers of it in ascending
        order.
    """
    model: Any = original(lm.model)
    check_layers(lm, layers)
    made = layers_without_weights(lm, layers)
    if weights is None:
        inside = model.get_decoder()
        weights = {f"norm.{name}": weight for name, weight in inside.norm.state_dict().items()}
        for number, layer in enumerate(layers):
            of_layer = inside.layers[layer].state_dict()
            weights |= {f"layers.{number}.{name}": weight for name, weight in of_layer.items()}
        weights = {name: weight.detach().clone() for name, weight in weights.items()}
    found = {name: weight.shape for name, weight in weights.items()}
    if found != {name: weight.shape for name, weight in own_weights(made).state_dict().items()}:
        raise ValueError(
            f"the layers of this {type(model).__name__} have other weights than their class says, as if it were "
            "quantized or had an adapter: make the draft of the plain model"
        )
    made.get_decoder().load_state_dict(weights, strict=False, assign=True)
    return LM(with_its_ends(made, lm), lm.tokenizer, context=lm.context)


def own_weights(model: Any) -> torch.nn.ModuleDict:
    """The part of a pruned model that it does not share with its target: `layers` and `norm`."""
    decoder = model.get_decoder()
    return torch.nn.ModuleDict({"layers": decoder.layers, "norm": decoder.norm})


def first_and_last_layers(lm: LM) -> list[int]:
    """The first two and the last two layers, or the first and the last of a model with fewer than five."""
    count = lm.layers
    return [0, 1, count - 2, count - 1] if count > 4 else sorted({0, count - 1})
