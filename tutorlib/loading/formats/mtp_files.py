"""Files of multi-token prediction's modules, with the names of DeepSeek-V3's files and of those made like it.

There a module stands in its target's own files, as a layer after the last one: `model.layers.{layers + k}`. Here the
modules have a folder of their own, with the same names. Embeddings and output head are the target's.
"""

from __future__ import annotations

from pathlib import Path

import torch

from ...drafting.draft_session import check_target
from ...drafting.head_parts import TREE
from ...drafting.mtp_head import MtpHead
from ...model.lm import LM
from .eagle_configs import checked_tree, layer_sizes, read_layer_config
from .files import (
    OURS,
    Names,
    check_sizes,
    fitting,
    our_entry,
    read_folder,
    whole_number,
    without_weights,
    write_folder,
)

KIND = "MtpModel"  # `architectures` in config.json
COUNT = "num_nextn_predict_layers"  # how the published configurations call the number of modules


def save_mtp(head: MtpHead, folder, *, base: str = "", layers: int = 0) -> Path:
    """Write the modules to a folder: ``config.json`` and ``model.safetensors``.

    Parameters
    ----------
    head : MtpHead
    folder : path
        Created if it is missing.
    base : str
        The target's name, which is stored.
    layers : int
        How many layers the target has. The modules are numbered from there on, as in published files.

    Returns
    -------
    path of the file with the tensors
    """
    config = {
        "architectures": [KIND],
        "model_type": "llama",
        COUNT: len(head.layers),
        "hidden_act": "silu",
        "attention_bias": False,
        "num_hidden_layers": layers,
        **layer_sizes(head.config),
        "rope_parameters": dict(head.config.rope_parameters),
        "base_model_name_or_path": base,
        OURS: {"tree": checked_tree(head.tree)},
    }
    tensors = {there: head.state_dict()[name] for name, there in _names(head, layers).items()}
    return write_folder(folder, "mtp", config, tensors, pickled=False)


def load_mtp(folder, target: LM, *, dtype: torch.dtype | None = None) -> MtpHead:
    """Read the modules of multi-token prediction for a target.

    Parameters
    ----------
    folder : path
    target : LM
        The modules are checked to fit it, get its embeddings, and are put on its device.
    dtype : torch.dtype, optional
        By default the dtype of the file.

    Returns
    -------
    MtpHead
        In evaluation mode, with the numbers of the file.

    Raises
    ------
    ValueError
        If anything is missing, unknown, incomplete, or has the wrong shape (the message names the file, and the tensor
        or key), or if the vocabulary or width does not fit the target.
    """
    _, config, tensors, place, path = read_folder(folder, _layout_of)
    check_sizes(config, ("hidden_size", "intermediate_size", "num_attention_heads", "head_dim"), tensors, place, path)
    modules, layers = whole_number(config, COUNT, 1, place), whole_number(config, "num_hidden_layers", 0, place)
    check_sizes(config, (COUNT,), tensors, place, path)
    try:
        tree = checked_tree(our_entry(config, place).get("tree", TREE))
        head = without_weights(MtpHead, read_layer_config(config, place), modules)
        check_target(target, head)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
    found = fitting(head, tensors, _names(head, layers), path)
    embeddings = target.model.get_input_embeddings().weight.detach().to("cpu", copy=True)
    if embeddings.shape != head.embed_tokens.weight.shape:
        raise ValueError(f"{place}: {target!r} has no embeddings of shape {tuple(head.embed_tokens.weight.shape)}")
    found["embed_tokens.weight"] = embeddings.to(next(iter(found.values())).dtype)
    head.load_state_dict(found, assign=True)
    head.tree = tree
    return head.to(target.device, dtype).eval().requires_grad_(False)


def _names(head: MtpHead, layers: int) -> Names:
    """The names of the published files for the tensors of some modules, without the embeddings."""
    names = {}
    for name in head.state_dict():
        if name != "embed_tokens.weight":
            _, number, rest = name.split(".", 2)
            rest = "shared_head.norm.weight" if rest == "norm.weight" else rest
            names[name] = f"model.layers.{layers + int(number)}.{rest}"
    return names


def _layout_of(config: dict, place: Path) -> str:
    if config.get("architectures") != [KIND]:
        raise ValueError(f"{place} holds no modules of MTP: its architectures are {config.get('architectures')!r}")
    return "mtp"
