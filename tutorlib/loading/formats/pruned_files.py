"""Files of a pruned draft: some of a target's layers, trained, and a final norm.

The embeddings and the output head are the target's, and are not stored. The matrices may be stored in eight bits: whole
numbers from -127 to 127, and a factor for each row in a tensor of the same name with `.scale` after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from ...model.lm import LM
from ...model.pruned import own_weights, pruned
from ...model.some_layers import check_layers, layers_without_weights
from .files import Tensors, fitting, read_folder, whole_number, write_folder

KIND = "pruned"  # `model_type` in config.json
SCALE = ".scale"


def save_pruned(
    own: torch.nn.Module, folder, target: LM, layers: Sequence[int], *, base: str = "", eight_bits: bool = False
) -> Path:
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
    eight_bits : bool
        Whether matrices are stored in eight bits, in half the bytes of half precision.

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
    tensors = own.state_dict()
    return write_folder(folder, KIND, config, packed(tensors) if eight_bits else tensors, pickled=False)


def packed(tensors: Tensors) -> Tensors:
    """Matrices in eight bits with the factors of their rows, in half precision; other tensors as they are."""
    found = {}
    for name, tensor in tensors.items():
        if tensor.dim() == 2:
            scale = (tensor.float().abs().amax(1) / 127).clamp(min=1e-6).half()
            tensor, found[name + SCALE] = (tensor / scale[:, None].float()).round().clamp(-127, 127).char(), scale
        found[name] = tensor
    return found


def unpacked(tensors: Tensors, path: Path) -> Tensors:
    """The matrices of a file with factors for their rows, in single precision; other files as they are."""
    scales = {name.removesuffix(SCALE): tensor for name, tensor in tensors.items() if name.endswith(SCALE)}
    if not scales:
        return tensors
    found = {name: tensor for name, tensor in tensors.items() if not name.endswith(SCALE)}
    for name, scale in scales.items():
        matrix = found.get(name)
        if matrix is None or matrix.dtype != torch.int8 or scale.shape != matrix.shape[:1]:
            raise ValueError(f"{path}: {name}{SCALE} must have a factor for each row of {name}, a matrix of int8")
        found[name] = matrix.float() * scale.float()[:, None]
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in found.items()}


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
    own = own_weights(layers_without_weights(target, layers))
    tensors = unpacked(tensors, path)
    found = fitting(own, tensors, {name: name for name in own.state_dict()}, path)
    dtype = target.dtype if dtype is None else dtype
    return pruned(target, layers, {name: tensor.to(target.device, dtype) for name, tensor in found.items()})


def _layout_of(config: dict, place: Path) -> str:
    if config.get("model_type") != KIND:
        raise ValueError(f"{place} is not of a pruned draft: its model_type is {config.get('model_type')!r}")
    return KIND
