"""Files of a DFlash network, with the names of the published ones. Embeddings and output head are the target's."""

from __future__ import annotations

from pathlib import Path

import torch

from ...drafting.dflash_head import DFlashHead
from ...drafting.draft_session import check_target
from ...drafting.head_parts import TREE
from ...model.lm import LM
from .eagle_configs import checked_tree, layer_sizes, read_layer_config
from .files import OURS, check_sizes, fitting, our_entry, read_folder, whole_number, without_weights, write_folder

KIND = "DFlashDraftModel"  # `architectures` in config.json


def save_dflash(head: DFlashHead, folder, *, base: str = "") -> Path:
    """Write a DFlash network to a folder: ``config.json`` and ``model.safetensors``.

    Parameters
    ----------
    head : DFlashHead
    folder : path
        Created if it is missing.
    base : str
        The target's name, which is stored.

    Returns
    -------
    path of the file with the tensors
    """
    config = {
        "architectures": [KIND],
        "model_type": "qwen3",
        "block_size": head.block,
        # Here layers are numbered by their outputs, from 0: one less than hidden states are.
        "dflash_config": {"mask_token_id": head.mask, "target_layer_ids": [n - 1 for n in head.feature_layers]},
        "hidden_act": "silu",
        "attention_bias": False,
        "num_hidden_layers": len(head.layers),
        **layer_sizes(head.config),
        "rope_parameters": dict(head.config.rope_parameters),
        "base_model_name_or_path": base,
        OURS: {"tree": checked_tree(head.tree)},
    }
    return write_folder(folder, "dflash", config, head.state_dict(), pickled=False)


def load_dflash(folder, target: LM, *, dtype: torch.dtype | None = None) -> DFlashHead:
    """Read a DFlash network for a target.

    Parameters
    ----------
    folder : path
    target : LM
        The network is checked to fit it, and put on its device.
    dtype : torch.dtype, optional
        By default the dtype of the file.

    Returns
    -------
    DFlashHead
        In evaluation mode, with the numbers of the file.

    Raises
    ------
    ValueError
        If anything is missing, unknown, incomplete, or has the wrong shape (the message names the file, and the tensor
        or key), or if the vocabulary, width or number of layers does not fit the target.
    """
    _, config, tensors, place, path = read_folder(folder, _layout_of)
    keys = ("hidden_size", "intermediate_size", "num_attention_heads", "head_dim", "num_hidden_layers")
    check_sizes(config, keys, tensors, place, path)
    sizes = read_layer_config(config, place)
    sizes.num_hidden_layers = whole_number(config, "num_hidden_layers", 1, place)
    entry = config.get("dflash_config")
    if not isinstance(entry, dict):
        raise ValueError(f'{place}: "dflash_config" must be an object with the mask and the layers, got {entry!r}')
    layers = entry.get("target_layer_ids")
    if not isinstance(layers, list) or any(type(layer) is not int or layer < -1 for layer in layers):
        raise ValueError(f"{place}: target_layer_ids must be a list of numbers of the target's layers, got {layers!r}")
    block, mask = whole_number(config, "block_size", 2, place), whole_number(entry, "mask_token_id", 0, place)
    try:
        tree = checked_tree(our_entry(config, place).get("tree", TREE))
        head = without_weights(DFlashHead, sizes, [layer + 1 for layer in layers], block, mask)
        check_target(target, head)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
    found = fitting(head, tensors, {name: name for name in head.state_dict()}, path)
    head.load_state_dict(found, assign=True)
    head.tree = tree
    return head.to(target.device, dtype).eval().requires_grad_(False)


def _layout_of(config: dict, place: Path) -> str:
    if config.get("architectures") != [KIND]:
        raise ValueError(f"{place} is not of a DFlash network: its architectures are {config.get('architectures')!r}")
    return "dflash"
