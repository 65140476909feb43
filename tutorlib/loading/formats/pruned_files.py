"""Files of a pruned draft: some of a target's layers, trained, and a final norm.

The embeddings and the output head are the target's, and are not stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from ...model.lm import LM
from ...model.pruned import check_layers, own_weights, pruned, without_weights
from .files import fitting, read_folder, whole_number, write_folder

KIND = "pruned"  # `model_type` in config.json


def save_pruned(own: torch.nn.Module, folder, target: LM, layers: Sequence[int], *, base: str = "") -> Path:
    """Write a pruned draft to a folder: ``config.json`` and ``model.safetensors``.

    Parameters
    ----------
    own : Module
        What it does not share with its target, see `tutorlib.model.pruned.own_weights`.
    folder : path
        Created if it is missing.
    target : LM
    layers : sequence of int
        The target's layers of which it was made.
    base : str
        The target's name, which is stored.

    Returns
    -------
    path of the file with the tensors
    """
    config = {
        "model_type": KIND,
        "vocab_size": target.vocab_size,
        "hidden_size": target.width,
        "target_layers": target.layers,
        "layers": list(layers),
        "base_model_name_or_path": base,
    }
    return write_folder(folder, KIND, config, own.state_dict(), pickled=False)


def load_pruned(folder, target: LM, *, dtype: torch.dtype | None = None) -> LM:
    """Read a pruned draft of a target, whose embeddings and output head it shares.

    Parameters
    ----------
    folder : path
    target : LM
    dtype : torch.dtype, optional
        Of its layers; by default the target's.

    Raises
    ------
    ValueError
        If a file is missing, incomplete or inconsistent (the message names the file and the tensor or key), or if it
        was made of a target of another size.
    """
    _, config, tensors, place, path = read_folder(folder, _layout_of)
    sizes = {"vocab_size": target.vocab_size, "hidden_size": target.width, "target_layers": target.layers}
    for key, size in sizes.items():
        if whole_number(config, key, 1, place) != size:
            base = config.get("base_model_name_or_path") or "another model"
            raise ValueError(
                f"{place} is of a draft made of layers of {base}: {key} is {config[key]}, but the target's is {size}. "
                "Make one of this target's layers with `python -m tutorlib train pruned`"
            )
    layers = config.get("layers")
    if not isinstance(layers, list) or any(type(layer) is not int for layer in layers):
        raise ValueError(f"{place}: layers must be a list of numbers of the target's layers, got {layers!r}")
    try:
        check_layers(target, layers)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
    own = own_weights(without_weights(target, layers))
    found = fitting(own, tensors, {name: name for name in own.state_dict()}, path)
    dtype = target.dtype if dtype is None else dtype
    return pruned(target, layers, {name: tensor.to(target.device, dtype) for name, tensor in found.items()})


def _layout_of(config: dict, place: Path) -> str:
    if config.get("model_type") != KIND:
        raise ValueError(f"{place} is not of a pruned draft: its model_type is {config.get('model_type')!r}")
    return KIND
