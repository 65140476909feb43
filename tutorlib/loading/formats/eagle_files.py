"""Files of EAGLE networks: in the layout of their authors, and in that of the package `speculators`.

Both have a Llama configuration for the single layer. Parameters have the same names as here, except that `speculators`
calls EAGLE-3's layer `layers.0` instead of `midlayer`, and does not support EAGLE-1. The tree to use is not part of
either configuration; it is in an entry of our own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ...arguments import is_number
from ...drafting.eagle_head import TREE, DraftNetwork, Eagle3Head, EagleHead, check_target, usual_layers
from .files import (
    CONFIG,
    OURS,
    check_layout,
    check_sizes,
    fitting,
    layout_names,
    our_entry,
    output_weight,
    read_config,
    read_folder,
    weight_of,
    whole_number,
    without_weights,
    write_folder,
)

if TYPE_CHECKING:
    from transformers import LlamaConfig

LAYOUTS = ("eagle", "speculators")
SPECULATORS = "0.9.0"  # the version of that package whose configuration is written
AUXILIARY = "eagle_aux_hidden_state_layer_ids"  # which of the target's hidden states EAGLE-3 reads
# What an EAGLE-3 network may share with its target.
BORROWED = ("embed_tokens.weight", "lm_head.weight")
# What EAGLE-3.1 and others do beside EAGLE-3, by the keys that say so; all are false where they are missing.
NORMS = ("norm_before_fc", "fc_norm", "norm_output")
# How `eagle_config`, an object inside some configurations, calls them.
NESTED = {"norm_before_fc": "norm_before_fc", "norm_output": "return_hidden_post_norm"}
# What there is in it beside, and not here.
UNKNOWN = ("eh_proj_before_attn", "use_mtp_layernorm")
FULL = "full_attention"  # how transformers calls a layer's attention if it sees all positions before


# Writing.


def save_eagle(
    head: DraftNetwork,
    folder,
    layout: str = "eagle",
    *,
    base: str = "",
    borrowed: Iterable[str] = (),
    pickled: bool = False,
) -> Path:
    """Write an EAGLE-1 or EAGLE-3 network to a folder.

    Like `save_medusa`, it replaces the tensors first and the configuration last.

    Parameters
    ----------
    head : EagleHead or Eagle3Head
    folder : path
        Created if it is missing.
    layout : {"eagle", "speculators"}
        The layout of the authors, or that of the package `speculators` and vLLM, which is for EAGLE-3 only.
    base : str
        The target's hub name, which is stored.
    borrowed : iterable of {"embed_tokens.weight", "lm_head.weight"}
        Weights of an EAGLE-3 network that are the target's own. They are left out of the file, and `load_eagle` takes
        the target's. Many published files leave out the embeddings; only `tutorlib` leaves out the output head.
    pickled : bool
        Whether to write a pickle, `pytorch_model.bin`, in place of safetensors.

    Returns
    -------
    path of the file with the tensors

    Raises
    ------
    ValueError
        If the layout is unknown or does not support the network; if the folder contains something else, such as a
        model; if the network could not be read again, because its `tree` is wrong, or because its vocabulary consists
        of the target's first tokens (the map would be all zeros, like one that was never filled).
    """
    check_layout(layout, LAYOUTS)
    third, place, tensors = isinstance(head, Eagle3Head), Path(folder) / CONFIG, head.state_dict()
    for name in borrowed:
        if not third or name not in BORROWED:
            raise ValueError(f"borrowed may name {', '.join(BORROWED)} of an EAGLE-3 network, got {name!r}")
        del tensors[name]
    if layout == "speculators":
        _check_speculators(head)
    if place.exists() and not _is_eagles(read_config(folder)):
        raise ValueError(f"{place} is not that of an EAGLE network: give a folder of its own")
    if third:
        check_maps(tensors["d2t"], tensors["t2d"], folder)
    if layout == "speculators":
        if len(head.d2t) == head.vocab_size:  # where no map is needed, there is none
            del tensors["d2t"], tensors["t2d"]
        config = _speculators_config(head, base)
    else:
        config = _published_config(head, base)
    config[OURS] = {"tree": checked_tree(head.tree)}
    if third:
        config[OURS]["feature_layers"] = list(head.feature_layers)
    return write_folder(folder, layout, config, tensors, pickled)


def _published_config(head: DraftNetwork, base: str) -> dict:
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
        if min(head.feature_layers) >= 0:
            theirs[AUXILIARY] = list(head.feature_layers)
    else:
        theirs["bias"] = head.fc.bias is not None
    return theirs | ({"base_model_name_or_path": base} if base else {})


def _speculators_config(head: Eagle3Head, base: str) -> dict:
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
    """The layer's sizes, as either layout has them."""
    keys = (
        "vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim",
        "max_position_embeddings", "rms_norm_eps", "attention_bias", "mlp_bias",
    )  # fmt: skip
    fixed = {"model_type": "llama", "hidden_act": "silu", "num_hidden_layers": 1, "tie_word_embeddings": False}
    return fixed | {key: getattr(config, key) for key in keys}


def _check_speculators(head):
    """Raise ValueError for a network that `speculators` has no place for."""
    if not isinstance(head, Eagle3Head):
        raise ValueError('the layout "speculators" is for EAGLE-3 networks alone: use layout="eagle"')
    if min(head.feature_layers) < 0:
        raise ValueError(
            f"feature_layers={head.feature_layers} counts the target's layers from the last, but the layout "
            '"speculators" counts from the first: say them so'
        )
    if getattr(head.config, "qkv_bias", False) and not head.config.attention_bias:
        raise ValueError('qkv_bias without attention_bias is unknown to the layout "speculators": use layout="eagle"')


def _is_eagles(config: Mapping) -> bool:
    """Whether a configuration is surely that of an EAGLE network, which another may replace."""
    kind = config.get("speculators_model_type")
    ours = config.get(OURS)
    return kind == "eagle3" or kind is None and ("draft_vocab_size" in config or "tree" in (ours or ()))


# Reading.


def load_eagle(folder, target=None, *, dtype: torch.dtype | None = None) -> EagleHead | Eagle3Head:
    """Read an EAGLE network from a folder. Its kind and its layout are found from the files.

    It is an EAGLE-3 network if `config.json` has `draft_vocab_size` or is in the layout of `speculators`, or if there
    is a tensor of a `midlayer`; otherwise it is an EAGLE-1 network.

    Parameters
    ----------
    folder : path
    target : LM, optional
        The network is checked to fit it, and put on its device. A target is required if the file lacks one of the
        following. Without `embed_tokens.weight`, as in some published files, the target's embeddings are used. For
        EAGLE-3, without the numbers of the layers whose features are read, `usual_layers` are used; without
        `lm_head.weight`, rows of the target's output head.
    dtype : torch.dtype, optional
        By default the dtype of the file.

    Returns
    -------
    EagleHead or Eagle3Head
        In evaluation mode, with the numbers of the file.

    Raises
    ------
    ValueError
        If anything is missing, unknown, incomplete, or has the wrong shape or dtype (the message names the file, the
        tensor or key, and what was expected); if a pickle contains anything but tensors (nothing in it is executed); if
        there is more than one layer, in the configuration or in the file, or one that sees only a window; if the maps
        `d2t` and `t2d` point outside the vocabulary, are not filled or contradict each other; if the vocabulary, width
        or number of layers does not fit the target; if the network does something that `drafting.eagle_head` does
        not support.

    Notes
    -----
    The layers that EAGLE-3 reads are taken from the first of these that is there: `feature_layers` in our own entry;
    the key `eagle_aux_hidden_state_layer_ids` of `speculators` and vLLM, which numbers hidden states as in transformers
    (0 is the embeddings); the same key in `eagle_config`, as read by SGLang, which numbers the layers whose outputs
    they are, so each number is smaller by one.

    If `norm_before_residual` is missing it is false, except in the layout of `speculators`, where it is true. vLLM
    reads these files in the same way. (That package always writes the key.)
    """
    layout, config, tensors, place, path = read_folder(folder, eagle_layout)
    said, where = _inner(config, place) if layout == "speculators" else (config, place)
    third = layout == "speculators" or "draft_vocab_size" in config or any(n.startswith("midlayer.") for n in tensors)
    _check_layers(said, tensors, where, path)
    keys = ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads", "head_dim")
    check_sizes(said, keys, tensors, where, path)
    sizes = layer_config(said, where)
    _check_known(config, said, where)
    try:
        tree = checked_tree(our_entry(config, place).get("tree", TREE))
    except ValueError as error:
        raise ValueError(f'{place}: "{OURS}": {error}') from None
    if third:
        head = _eagle3(config, sizes, target, layout, place)
    else:
        head = without_weights(EagleHead, sizes, bias=_flag(config, "bias", True, place))
    if target is not None:
        try:
            check_target(target, head)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None

    names, lent = layout_names(head.state_dict(), layout), {}
    if "embed_tokens.weight" not in tensors:
        lent["embed_tokens.weight"] = _embeddings(target, tuple(head.embed_tokens.weight.shape), path)
    if third and len(head.d2t) == head.vocab_size and not {"d2t", "t2d"} & tensors.keys():
        lent |= {"d2t": head.d2t, "t2d": head.t2d}  # where every token is known, no map is needed
    # To be filled when the map of tokens has been checked.
    if third and "lm_head.weight" not in tensors:
        lent["lm_head.weight"] = head.lm_head.weight
    if third and "d2t" in tensors and "t2d" not in tensors:
        lent["t2d"] = head.t2d
    names = {name: there for name, there in names.items() if name not in lent}
    found = fitting(head, tensors, names, path) | lent
    if third:
        known = known_tokens(found["d2t"], head.vocab_size, path)
        if "t2d" in lent:
            found["t2d"] = known
        check_maps(found["d2t"], found["t2d"], path)
        if "lm_head.weight" in lent:
            found["lm_head.weight"] = _output_rows(target, found["d2t"], path)
    dtype = found["fc.weight"].dtype if dtype is None else dtype
    found = {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in found.items()}
    head.load_state_dict(found, assign=True)
    head.tree = tree
    return head.eval() if target is None else head.eval().to(target.device)


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


def layer_config(said: Mapping, where) -> LlamaConfig:
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
    biases = {key: _flag(said, key, False, where) for key in ("attention_bias", "mlp_bias", "qkv_bias")}
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


def check_maps(d2t: torch.Tensor, t2d: torch.Tensor, path) -> None:
    """Raise ValueError that names the map when an EAGLE-3 network's tokens are not tokens of the target's, ascending.

    Parameters
    ----------
    d2t : int64 tensor of shape (known,)
        What to add to a token of the network's to have the target's.
    t2d : bool tensor of shape (vocab_size,)
        Which of the target's tokens are known.
    """
    t2d = t2d.cpu()
    differing = (known_tokens(d2t, len(t2d), path) != t2d).nonzero().flatten().tolist()
    if differing:
        token = differing[0]
        which, other = ("t2d", "d2t") if t2d[token] else ("d2t", "t2d")
        raise ValueError(f"{path}: {which} has the target's token {token}, {other} has not: they contradict each other")


def known_tokens(d2t: torch.Tensor, vocab_size: int, path) -> torch.Tensor:
    """Which of the target's tokens a map `d2t` has, as `t2d` says it: bool, (vocab_size,). Errors as `check_maps`."""
    d2t = d2t.cpu()
    known = len(d2t)
    if known < vocab_size and not d2t.any():
        raise ValueError(
            f"{path}: d2t is all zeros, as a map that was never filled: expected what to add to the network's "
            f"{known} tokens to have {known} of the target's {vocab_size}"
        )
    tokens = torch.arange(known) + d2t
    outside = ((tokens < 0) | (tokens >= vocab_size)).nonzero().flatten().tolist()
    if outside:
        first = outside[0]
        raise ValueError(
            f"{path}: d2t makes token {first} the target's {int(tokens[first])}, expected one of 0 to {vocab_size - 1}"
        )
    falling = (tokens.diff() <= 0).nonzero().flatten().tolist()
    if falling:
        first, second = tokens[falling[0] : falling[0] + 2].tolist()
        raise ValueError(f"{path}: d2t goes from the target's token {first} to {second}: expected ascending, each once")
    return torch.zeros(vocab_size, dtype=torch.bool).index_fill_(0, tokens, True)


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


def _eagle3(config, sizes: LlamaConfig, target, layout: str, place) -> Eagle3Head:
    """The network that a configuration describes, without weights; of its vocabulary no more than the size."""
    known = sizes.vocab_size
    if config.get("draft_vocab_size") is not None:
        known = whole_number(config, "draft_vocab_size", 1, place)
    if known > sizes.vocab_size:
        raise ValueError(f"{place}: draft_vocab_size is {known}, expected at most vocab_size, {sizes.vocab_size}")
    layers = _feature_layers(config, target, place)
    nested = _nested(config)
    norms = {key: _flag(config, key, False, place) for key in NORMS}
    norms |= {key: True for key, there in NESTED.items() if _flag(nested, there, False, f"{place}: eagle_config")}
    norms["norm_before_residual"] = _flag(config, "norm_before_residual", layout == "speculators", place)
    try:
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


def _embeddings(target, shape: tuple[int, int], path) -> torch.Tensor:
    """A copy of the target's embeddings, (vocab, width), for a file that has none."""
    if target is None:
        raise ValueError(
            f"{path}: embed_tokens.weight is missing, so that the target's are used: load_eagle(folder, target)"
        )
    module = target.model.get_input_embeddings() if target.model is not None else None
    weight = weight_of(module)
    if weight is None or tuple(weight.shape) != shape or not weight.is_floating_point():
        raise ValueError(
            f"{path}: embed_tokens.weight is missing, and {target!r} has no embeddings of shape {shape} to be used"
        )
    return weight.detach().to("cpu", copy=True)


def _output_rows(target, d2t: torch.Tensor, path) -> torch.Tensor:
    """A copy of the rows of the target's output head, (known, width), for a file that has none."""
    if target is None:
        raise ValueError(f"{path}: lm_head.weight is missing, so that the target's is used: load_eagle(folder, target)")
    try:
        whole = output_weight(target)
    except ValueError as error:
        raise ValueError(f"{path}: lm_head.weight is missing, and {error}") from error
    return whole.to("cpu")[torch.arange(len(d2t)) + d2t.cpu()]


def _inner(config: Mapping, place: Path) -> tuple[Mapping, str]:
    """The layer's sizes in a configuration of `speculators`, and where they stand."""
    key = "transformer_layer_config"
    said = config.get(key)
    if not isinstance(said, dict):
        raise ValueError(f"{place}: {key} must be an object with the sizes of the layer, got {said!r}")
    if said.get("model_type") != "llama":  # missing, it means another there
        raise ValueError(f'{place}: model_type in {key} must be "llama", got {said.get("model_type")!r}')
    return said, f"{place}: {key}"


def _check_layers(said: Mapping, tensors: Mapping, where, path) -> None:
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


def _check_known(config: Mapping, said: Mapping, where) -> None:
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


def _flag(config: Mapping, key: str, usual: bool, where) -> bool:
    value = config.get(key)
    if value is not None and not isinstance(value, bool):
        raise ValueError(f"{where}: {key} must be true or false, got {value!r}")
    return usual if value is None else value
