"""The files of heads as an engine loads them; a head with which it would compute something else is refused."""

from __future__ import annotations

import json

import torch

from ...disk import write_text
from ...drafting.eagle_head import Eagle3Head
from ...drafting.head_parts import TREE
from ...drafting.medusa_heads import output_layer
from ..formats import load_eagle, load_medusa, save_eagle, save_medusa
from ..formats.eagle_configs import AUXILIARY, extra_norms
from ..formats.files import CONFIG, read_config
from .commands import MEDUSA_IN, UNTRACKED, chain

KINDS = {"eagle": "an EAGLE-1 network", "eagle3": "an EAGLE-3 network"}


def write_medusa(folder, target, fresh) -> tuple[dict, tuple[str, ...]]:
    """Write Medusa heads for vLLM; return their tree, which is a chain there, and the options that the file needs."""
    heads = load_medusa(folder, target)
    first, *others = (output_layer(head).weight for head in heads.blocks())
    shared = heads.layers > 0 and all(torch.equal(first, other) for other in others)
    if heads.token_map is not None and not shared:
        raise ValueError(
            f"{folder}: {MEDUSA_IN} lets heads know a part of the vocabulary only where all share the target's output "
            "layer: train them with --borrow, or for all tokens"
        )
    save_medusa(heads, fresh, "vllm", shared=shared).chmod(0o644)  # safetensors are written as private
    return chain(len(heads)), UNTRACKED if heads.token_map is not None else ()


def write_eagle(kind, engine, folder, target, base, tokens, fresh) -> dict:
    """Write an EAGLE network for an engine, which is to draft so many tokens in a row; return its tree."""
    head = load_eagle(folder, target)
    third = isinstance(head, Eagle3Head)
    if third != (kind == "eagle3"):
        raise ValueError(f"{folder} holds {KINDS['eagle3' if third else 'eagle']}, expected {KINDS[kind]}")
    if tokens is not None:
        head.tree = {**head.tree, "depth": tokens}
    if third:
        head.feature_layers = _between(head.feature_layers, target.layers, folder)
    if engine == "sglang":
        _check_for_sglang(head, target, folder)
        if not third and head.fc.bias is None:
            head.fc.bias = torch.nn.Parameter(torch.zeros_like(head.fc.weight[:, 0]))  # or there are random numbers
    elif not third and head.fc.bias is not None:
        raise ValueError(
            f"{folder}: vLLM has no place for fc.bias of an EAGLE-1 network: export to sglang, or train one "
            "with --no-bias"
        )
    save_eagle(head, fresh, "speculators" if third and engine == "vllm" else "eagle", base=base).chmod(0o644)
    config = read_config(fresh)
    (_config_for_vllm if engine == "vllm" else _config_for_sglang)(config, head)
    write_text(fresh / CONFIG, json.dumps(config, indent=2) + "\n")
    return TREE | head.tree


def _config_for_vllm(config, head) -> None:
    """Add what vLLM reads beside what is published."""
    if isinstance(head, Eagle3Head):  # it does not count the layers itself, and takes them for 3
        config["transformer_layer_config"]["num_aux_hidden_states"] = len(head.feature_layers)


def _config_for_sglang(config, head) -> None:
    """Add what SGLang reads beside what is published."""
    third = isinstance(head, Eagle3Head)
    config.pop("bias", None)  # of the layer in front; SGLang takes it for one of the attention
    config["architectures"] = ["LlamaForCausalLMEagle3" if third else "LlamaForCausalLMEagle"]
    if third:
        layers = list(head.feature_layers)
        config["num_aux_hidden_states"] = len(layers)
        config["eagle_config"] = {"use_aux_hidden_state": True, AUXILIARY: [layer - 1 for layer in layers]}


def _between(feature_layers, layers, folder) -> tuple[int, ...]:
    """The hidden states that an EAGLE-3 network reads, counted from the first, if engines give them in this order."""
    counted = tuple(layer if layer >= 0 else layer + layers + 1 for layer in feature_layers)
    # The last one that engines could give has not passed the final norm, unlike ours.
    if list(counted) != sorted(set(counted)) or not 0 < counted[0] <= counted[-1] < layers:
        raise ValueError(
            f"{folder}: the network reads the hidden states {counted}, but engines give those between the layers, "
            f"1 to {layers - 1}, each once and ascending: train it with other --layers"
        )
    return counted


def _check_for_sglang(head, target, folder) -> None:
    """Raise ValueError for what SGLang would leave out without a word."""
    config = head.config
    odd = [key for key in ("attention_bias", "qkv_bias", "mlp_bias") if getattr(config, key, False)]
    odd += ["norm_before_residual"] if getattr(head, "norm_before_residual", False) else []
    odd += extra_norms(head)
    if odd:
        raise ValueError(f"{folder}: SGLang knows no {' and no '.join(odd)} in such a network: export to vllm")
    own = head.embed_tokens.weight
    if not torch.equal(target.model.get_input_embeddings().weight.detach().to(own), own):
        raise ValueError(
            f"{folder}: SGLang gives the network the target's embeddings, but it has others, which it has learnt with: "
            "export to vllm, or name the target that it was trained for"
        )
