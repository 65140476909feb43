"""A draft that is made of a few layers of its target, with the target's embeddings and output head.

Such a draft needs no tokenizer and no matrices for the vocabulary of its own, which are the largest part of a small
model. Without training, it guesses badly: the layers in between are missing. `tutorlib.lab.training.train_pruned`
trains the others to do without them.

Source: Zhang et al. (2024), "Draft & Verify", drafts with some of the target's layers as they are; Muralidharan et al.
(2024), "Compact Language Models via Pruning and Knowledge Distillation", trains such a model on the whole one's
probabilities.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..arguments import check_whole_number, ints
from .fingerprint import original
from .lm import LM

# The classes of transformers that are built like Llama.
_CLASSES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")


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
    made = without_weights(lm, layers)
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
    return _with_its_ends(made, lm)


def ending_after(lm: LM, count: int) -> LM:
    """The model that ends after its first layers, which are its own and no copies. See `LM.first_layers`."""
    check_whole_number(count, 1, "layers is after how many of the target's layers the draft ends")
    if lm.model is None:
        raise ValueError(
            f"{type(lm).__name__} has no layers after which a draft could end: use a model built like Llama"
        )
    if count >= lm.layers:
        raise ValueError(f"layers must be less than the target's {lm.layers}, or nothing is left out; got {count}")
    check_layers(lm, list(range(count)))
    made = without_weights(lm, range(count))
    model: Any = original(lm.model)
    decoder, own = made.get_decoder(), model.get_decoder()
    decoder.layers, decoder.norm = own.layers[:count], own.norm
    return _with_its_ends(made, lm)


def _with_its_ends(made: Any, lm: LM) -> LM:
    """A model of some layers with the embeddings, the output head and the settings of another one."""
    model: Any = original(lm.model)
    made.set_input_embeddings(model.get_input_embeddings())
    made.set_output_embeddings(model.get_output_embeddings())
    made.get_decoder().rotary_emb = model.get_decoder().rotary_emb
    made.generation_config = model.generation_config
    return LM(made, lm.tokenizer, context=lm.context)


def without_weights(lm: LM, layers: Sequence[int]) -> Any:
    """The same, with only the names and shapes of its weights."""
    model: Any = original(lm.model)
    config = copy.deepcopy(model.config)
    config.num_hidden_layers = len(layers)
    kinds = getattr(config, "layer_types", None)
    if kinds:
        config.layer_types = [kinds[layer] for layer in layers]
    with torch.device("meta"):
        return type(model)(config)


def own_weights(model: Any) -> torch.nn.ModuleDict:
    """The part of a pruned model that it does not share with its target: `layers` and `norm`."""
    decoder = model.get_decoder()
    return torch.nn.ModuleDict({"layers": decoder.layers, "norm": decoder.norm})


def usual_layers(lm: LM) -> list[int]:
    """The first two and the last two layers, or the first and the last of a model with fewer than five."""
    count = lm.layers
    return [0, 1, count - 2, count - 1] if count > 4 else sorted({0, count - 1})


def check_layers(lm: LM, layers: Sequence[int]) -> None:
    """Raise ValueError if a model has no such layers, or is not built like Llama."""
    kind = type(original(lm.model)).__name__
    if kind not in _CLASSES:
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
