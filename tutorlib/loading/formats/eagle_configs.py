"""The configuration of an EAGLE network, in the layout of its authors and in that of the package `speculators`.

Both have a Llama configuration for the single layer. Where a configuration says something that the networks here do not
do, the error names the key. The tree to use is not part of either; it is in an entry of our own. What this file does
not do: read or write tensors (`eagle_files`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ...arguments import is_number
from ...drafting.eagle_head import DraftNetwork, Eagle3Head, usual_layers
from ...drafting.head_parts import TREE
from ...drafting.parallel_head import ParallelHead
from .files import OURS, our_entry, whole_number, without_weights

if TYPE_CHECKING:
    from transformers import LlamaConfig, PreTrainedConfig

SPECULATORS = "0.9.0"  # the version of that package whose configuration is written
AUXILIARY = "eagle_aux_hidden_state_layer_ids"  # which of the target's hidden states EAGLE-3 reads
# The token of the masks of a parallel draft, as its authors call it; others have other names for it.
MASKS = ("ptd_token_id", "pard_token", "mask_token_id")
# What EAGLE-3.1 and others do beside EAGLE-3, by the keys that say so; all are false where they are missing.
NORMS = ("norm_before_fc", "fc_norm", "norm_output")
# How `eagle_config`, an object inside some configurations, calls them.
NESTED = {"norm_before_fc": "norm_before_fc", "norm_output": "return_hidden_post_norm"}
# What there is in it beside, and not here.
UNKNOWN = ("eh_proj_before_attn", "use_mtp_layernorm")
FULL = "full_attention"  # how transformers calls a layer's attention if it sees all positions before


# Writing.


def published_config(head: DraftNetwork, base: str) -> dict:
    """What the authors' own code reads."""
    config, rope = head.config, dict(head.config.rope_parameters)
    theirs = {"architectures": ["LlamaForCausalLM"], **_sizes(config)}
    theirs |= {key: value for key in ("bos_token_id", "eos_token_id") if (value := getattr(config, key)) is not None}
    theirs["torch_dtype"] = str(head.fc.weight.dtype).removeprefix("torch.")
    theirs["rope_theta"] = rope.pop("rope_theta")
    kind = rope.pop("rope_type", "default")
    if kind != "default":  # the older name for the two kinds that the authors' code knows
        theirs["rope_scaling"] = {"type" if kind in ("linear", "dynamic") else "rope_type": kind, **rope}
    if getattr(config, "qkv_bias", False):
        theirs["qkv_bias"] = True
    if isinstance(head, Eagle3Head):
        theirs |= {"draft_vocab_size": len(head.d2t), "norm_before_residual": head.norm_before_residual}
        theirs |= extra_norms(head)
        if isinstance(head, ParallelHead):
            theirs[MASKS[0]] = head.mask
        if min(head.feature_layers) >= 0:
            theirs[AUXILIARY] = list(head.feature_layers)
    else:
        theirs["bias"] = head.fc.bias is not None
    return theirs | ({"base_model_name_or_path": base} if base else {})


def speculators_config(head: Eagle3Head, base: str) -> dict:
    """What `speculators` reads: its Eagle3SpeculatorConfig."""
    return {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_version": SPECULATORS,
        "draft_vocab_size": len(head.d2t),
        "norm_before_residual": head.norm_before_residual,
        **extra_norms(head),
        AUXILIARY: list(head.feature_layers),
        "transformer_layer_config": {**_sizes(head.config), "rope_parameters": dict(head.config.rope_parameters)},
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [
                {"proposal_type": "greedy", "speculative_tokens": head.tree.get("depth", TREE["depth"])}
            ],
            "verifier": {"name_or_path": base or None, "architectures": []},
        },
    }


def extra_norms(head: DraftNetwork) -> dict[str, bool]:
    """The keys of the norms that a network has beside those of EAGLE-3, as a configuration says them."""
    if not isinstance(head, Eagle3Head):
        return {}
    there = (head.input_norm is not None, head.fc_norm is not None, head.norm_output)
    return {key: True for key, has in zip(NORMS, there, strict=True) if has}


def _sizes(config: LlamaConfig) -> dict:
    """What either layout of an EAGLE network says of its layer."""
    fixed = {"model_type": "llama", "hidden_act": "silu", "num_hidden_layers": 1, "tie_word_embeddings": False}
    return fixed | layer_sizes(config) | {key: getattr(config, key) for key in ("attention_bias", "mlp_bias")}


def layer_sizes(config: PreTrainedConfig) -> dict:
    """The sizes of a network's layers, by the names that all layouts have for them."""
    keys = (
        "vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim",
        "max_position_embeddings", "rms_norm_eps",
    )  # fmt: skip
    return {key: getattr(config, key) for key in keys}


def check_speculators(head):
    """Raise ValueError for a network that `speculators` has no place for."""
    if not isinstance(head, Eagle3Head):
        raise ValueError('the layout "speculators" is for EAGLE-3 networks alone: use layout="eagle"')
    if isinstance(head, ParallelHead):
        raise ValueError('a parallel draft is unknown to the layout "speculators" here: use layout="eagle"')
    if min(head.feature_layers) < 0:
        raise ValueError(
            f"feature_layers={head.feature_layers} counts the target's layers from the last, but the layout "
            '"speculators" counts from the first: say them so'
        )
    if getattr(head.config, "qkv_bias", False) and not head.config.attention_bias:
        raise ValueError('qkv_bias without attention_bias is unknown to the layout "speculators": use layout="eagle"')


# Reading.


def is_eagles(config: Mapping) -> bool:
    """Whether a configuration is surely that of an EAGLE network, which another may replace."""
    kind = config.get("speculators_model_type")
    ours = config.get(OURS)
    return kind == "eagle3" or kind is None and ("draft_vocab_size" in config or "tree" in (ours or ()))


def eagle_layout(config: Mapping, place: Path) -> str:
    """Which of the `LAYOUTS` a configuration belongs to; a ValueError for that of something else."""
    kind = config.get("speculators_model_type")
    if kind is not None and kind != "eagle3":
        raise ValueError(f'{place}: speculators_model_type must be "eagle3", got {kind!r}: no other is known')
    if kind is None and ("hidden_size" not in config or config.get("model_type") == "medusa"):
        raise ValueError(
            f"{place} is not that of an EAGLE network: expected the sizes of a Llama layer, hidden_size and so on, or "
            f'"speculators_model_type"; it has {", ".join(config) or "no keys"}'
        )
    return "eagle" if kind is None else "speculators"


def read_layer_config(said: Mapping, where) -> LlamaConfig:
    """The sizes of a network's layer, by what a configuration says; a ValueError that names the key that is wrong."""
    whole = {
        key: whole_number(said, key, 1, where)
        for key in ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads")
    }
    heads = whole["num_attention_heads"]
    usual = {"num_key_value_heads": heads, "head_dim": whole["hidden_size"] // heads, "max_position_embeddings": 2048}
    for key, value in usual.items():
        whole[key] = value if said.get(key) is None else whole_number(said, key, 1, where)
    if heads % whole["num_key_value_heads"]:
        raise ValueError(
            f"{where}: num_key_value_heads must divide num_attention_heads, {heads}, got {whole['num_key_value_heads']}"
        )
    if whole["head_dim"] % 2:
        raise ValueError(f"{where}: head_dim must be even, as halves are turned, got {whole['head_dim']}")
    eps = said.get("rms_norm_eps", 1e-6)
    if not is_number(eps) or not eps > 0:
        raise ValueError(f"{where}: rms_norm_eps must be a number above 0, got {eps!r}")
    if said.get("hidden_act", "silu") != "silu":
        raise ValueError(f'{where}: hidden_act must be "silu", got {said["hidden_act"]!r}')
    biases = {key: flag(said, key, False, where) for key in ("attention_bias", "mlp_bias", "qkv_bias")}
    tokens = {key: said[key] for key in ("bos_token_id", "eos_token_id") if key in said}
    from transformers import LlamaConfig  # importing it takes seconds
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    key, rope = rope_parameters(said, where)
    try:
        sizes = LlamaConfig(
            **whole, **biases, **tokens, rms_norm_eps=eps, num_hidden_layers=1, rope_parameters=rope,
            tie_word_embeddings=False,
        )  # fmt: skip
        LlamaRotaryEmbedding(sizes)
    except Exception as error:  # transformers raises all sorts of errors for what is missing or wrong in it
        raise ValueError(f"{where}: these sizes, or {key}, make no layer: {error!r}") from error
    return sizes


def rope_parameters(said: Mapping, where) -> tuple[str, dict]:
    """How positions turn into angles: the key that says it, and its content as transformers 5 has it.

    There it is `rope_parameters`, for some models one for each kind of attention; older configurations say
    `rope_theta`, and `rope_scaling` beside it.
    """
    key = "rope_parameters" if said.get("rope_parameters") is not None else "rope_scaling"
    given = said.get(key)
    if given is not None and not isinstance(given, dict):
        raise ValueError(f"{where}: {key} must be an object, got {given!r}")
    rope = dict(given or {})
    if any(isinstance(value, dict) for value in rope.values()):  # by kind of attention
        if not isinstance(rope.get(FULL), dict):
            raise ValueError(
                f"{where}: {key} is of {', '.join(rope)}, expected of {FULL}: networks with other attention are "
                "unknown here"
            )
        key, rope = f"{key} of {FULL}", dict(rope[FULL])
    turned = rope.get("partial_rotary_factor", said.get("partial_rotary_factor"))
    if turned not in (None, 1):
        raise ValueError(
            f"{where}: partial_rotary_factor is {turned!r}, expected 1: networks that turn a part of each head are "
            "unknown here"
        )
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    kind = rope.pop("type", "default")
    rope.setdefault("rope_type", kind)
    if rope["rope_type"] not in ("default", *ROPE_INIT_FUNCTIONS):
        raise ValueError(f"{where}: {key} has rope_type {rope['rope_type']!r}, which nobody knows")
    theta = said.get("rope_theta")
    theta = rope.setdefault("rope_theta", 10000.0 if theta is None else theta)
    if not is_number(theta) or not 0 < theta < math.inf:
        raise ValueError(f"{where}: rope_theta must be a number above 0, got {theta!r}")
    return key, rope


def checked_tree(tree) -> dict:
    """Arguments of `tutorlib.drafting.draft_trees.dynamic_tree`; a ValueError for what cannot be."""
    known = ("nodes", "depth", "top_k", "confidence", "greedy_temperature")
    if not isinstance(tree, dict) or not tree.keys() <= set(known):
        raise ValueError(f"tree must have the keys {', '.join(known)}, or some of them, got {tree!r}")
    for key, value in tree.items():
        if key == "confidence" and not (is_number(value) and 0 <= value <= 1):
            raise ValueError(f"the tree's confidence must be from 0 to 1, got {value!r}")
        if key == "greedy_temperature" and not (is_number(value) and value > 0):
            raise ValueError(f"the tree's greedy_temperature must be above 0, got {value!r}")
        if key in known[:3] and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise ValueError(f"the tree's {key} must be a whole number of 1 or more, got {value!r}")
    return dict(tree)


def eagle3_network(config, sizes: LlamaConfig, target, layout: str, place) -> Eagle3Head:
    """The network that a configuration describes, without weights; of its vocabulary no more than the size.

    It is a parallel draft if the configuration names the token of its masks. How many masks it was trained with stands
    in our own entry.
    """
    known = sizes.vocab_size
    if config.get("draft_vocab_size") is not None:
        known = whole_number(config, "draft_vocab_size", 1, place)
    if known > sizes.vocab_size:
        raise ValueError(f"{place}: draft_vocab_size is {known}, expected at most vocab_size, {sizes.vocab_size}")
    layers = _feature_layers(config, target, place)
    nested = _nested(config)
    norms = {key: flag(config, key, False, place) for key in NORMS}
    norms |= {key: True for key, there in NESTED.items() if flag(nested, there, False, f"{place}: eagle_config")}
    norms["norm_before_residual"] = flag(config, "norm_before_residual", layout == "speculators", place)
    masks = [key for key in MASKS if key in config]
    if masks:
        if any(norms.values()):
            raise ValueError(f"{place}: {masks[0]} with further norms: such a parallel draft is unknown here")
        ours = our_entry(config, place)
        count = {"masks": whole_number(ours, "masks", 1, place)} if "masks" in ours else {}
        mask = whole_number(config, masks[0], 0, place)
    try:
        if masks:
            return without_weights(ParallelHead, sizes, layers, range(known), mask=mask, **count)
        return without_weights(Eagle3Head, sizes, layers, range(known), **norms)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def _nested(config: Mapping) -> Mapping:
    """The object `eagle_config` of a configuration, where some say what others say beside the sizes."""
    nested = config.get("eagle_config")
    return nested if isinstance(nested, dict) else {}


def _feature_layers(config: Mapping, target, place) -> tuple[int, ...]:
    """Which of the target's hidden states an EAGLE-3 network reads: see the notes of `load_eagle`."""
    nested = _nested(config)
    if nested.get("use_aux_hidden_state") is False:
        raise ValueError(f"{place}: use_aux_hidden_state in eagle_config is false: networks without are unknown")
    places = (
        (f'feature_layers in "{OURS}"', our_entry(config, place).get("feature_layers"), 0),
        (AUXILIARY, config.get(AUXILIARY), 0),
        (f"{AUXILIARY} in eagle_config", nested.get(AUXILIARY), 1),
    )
    for key, layers, shift in places:
        if layers is not None:
            if not isinstance(layers, list) or not layers or any(type(layer) is not int for layer in layers):
                raise ValueError(f"{place}: {key} must be a list of numbers of the target's layers, got {layers!r}")
            return tuple(layer + shift for layer in layers)
    if target is None:
        raise ValueError(
            f"{place} does not say which of the target's layers this network reads, {AUXILIARY}: "
            "load_eagle(folder, target) takes the usual ones"
        )
    try:
        return usual_layers(target.layers)
    except ValueError as error:
        raise ValueError(f"{place} does not say {AUXILIARY}, and {error}") from None


def inner_config(config: Mapping, place: Path) -> tuple[Mapping, str]:
    """The layer's sizes in a configuration of `speculators`, and where they stand."""
    key = "transformer_layer_config"
    said = config.get(key)
    if not isinstance(said, dict):
        raise ValueError(f"{place}: {key} must be an object with the sizes of the layer, got {said!r}")
    if said.get("model_type") != "llama":  # missing, it means another there
        raise ValueError(f'{place}: model_type in {key} must be "llama", got {said.get("model_type")!r}')
    return said, f"{place}: {key}"


def check_one_layer(said: Mapping, tensors: Mapping, where, path) -> None:
    """Raise ValueError unless there is one layer, by the configuration and by the tensors."""
    count = whole_number(said, "num_hidden_layers", 1, where)
    further = sorted(name for name in tensors if re.match(r"layers\.[1-9]\d*\.", name))
    if count == 1 and not further:
        return
    there = further[0] if further else "no layers.1.self_attn.q_proj.weight"
    several = "; draft networks of several layers are unknown here, so take one of a single layer"
    raise ValueError(
        f"{where}: num_hidden_layers is {count}, and {path} has {there}: expected 1, and tensors of one layer"
        + several * (count > 1 and bool(further))
    )


def check_known(config: Mapping, said: Mapping, where) -> None:
    """Raise ValueError for a network that does something which those here do not."""
    for key in UNKNOWN:
        if _nested(config).get(key):
            raise ValueError(f"{where}: {key} in eagle_config is true, expected false: such networks are unknown here")
    kinds = said.get("layer_types")
    if kinds and (not isinstance(kinds, list) or any(kind != FULL for kind in kinds)):
        raise ValueError(
            f"{where}: layer_types is {kinds!r}, expected {FULL!r} alone: networks that see a part of the text, such "
            "as a sliding window, are unknown here"
        )
    other = config.get("target_hidden_size")
    if other is not None and other != said["hidden_size"]:
        raise ValueError(
            f"{where}: target_hidden_size is {other!r}, expected hidden_size, {said['hidden_size']}: networks of "
            "another width than their target's are unknown here"
        )


def flag(config: Mapping, key: str, usual: bool, where) -> bool:
    value = config.get(key)
    if value is not None and not isinstance(value, bool):
        raise ValueError(f"{where}: {key} must be true or false, got {value!r}")
    return usual if value is None else value
