"""Medusa heads in files: as their authors publish them, and as vLLM reads them.

What the published configuration has no word for, the tree that pays and how often each guess is right, is in an entry
of our own.
"""

import statistics
from collections.abc import Mapping
from pathlib import Path

import torch

from ..choices import checked_accuracies, checked_choices
from ..medusa import MedusaHeads, check_target, checked_token_map
from .files import (
    CONFIG,
    FILES,
    OURS,
    Names,
    Tensors,
    check_names,
    check_size,
    read_config,
    read_tensors,
    renamed,
    weight_file,
    whole_number,
    words,
    write_folder,
)

LAYOUTS = ("medusa", "vllm")


def medusa_names(heads: int, layers: int) -> Names:
    """The published layout: the names that the authors' modules give their parameters, and ours the same.

    Examples
    --------
    >>> list(medusa_names(heads=1, layers=1).values())
    ['0.0.linear.weight', '0.0.linear.bias', '0.1.weight']
    """
    return {name: name for head in range(heads) for name in head_names(head, layers)}


def vllm_names(heads: int, layers: int) -> Names:
    """The layout that vLLM reads: all residual blocks, and then all output layers.

    Examples
    --------
    >>> list(vllm_names(heads=1, layers=1).values())
    ['blocks.0.layers.0.weight', 'blocks.0.layers.0.bias', 'lm_heads.0.weight']
    """
    names = {}
    for head in range(heads):
        *blocks, output = head_names(head, layers)
        for name in blocks:
            _, layer, _, part = name.split(".")
            names[name] = f"blocks.{head}.layers.{layer}.{part}"
        names[output] = f"lm_heads.{head}.weight"
    return names


def head_names(head: int, layers: int) -> list[str]:
    """The names of one head's parameters in `MedusaHeads`; the last is its output layer's."""
    blocks = [f"{head}.{layer}.linear.{part}" for layer in range(layers) for part in ("weight", "bias")]
    return [*blocks, f"{head}.{layers}.weight"]


def save_medusa(heads: MedusaHeads, folder, layout: str = "medusa", *, base: str = "", pickled: bool = False) -> Path:
    """Write heads to a folder.

    Each file is written beside the old one, and then takes its place, the configuration last. So a kill leaves the old
    heads or the new; or, between the two, new tensors beside the old sizes, and where these differ that is refused.

    Parameters
    ----------
    heads : MedusaHeads
    folder : path
        Made if missing.
    layout : {"medusa", "vllm"}
        As published, or as vLLM reads it.
    base : str
        The target's hub name, which the published layout notes down.
    pickled : bool
        Write a pickle, which is all that the authors' own code reads, in place of safetensors.

    Returns
    -------
    path of the file with the tensors

    Raises
    ------
    ValueError
        For another layout; for a folder that holds something else, a model for instance; for heads with a `token_map`,
        of which the published layout knows nothing.
    """
    if layout not in LAYOUTS:
        raise ValueError(f'layout={layout!r} is not known: use "medusa", as published, or "vllm"')
    if layout == "medusa" and heads.token_map is not None:
        raise ValueError('heads with a token_map cannot be written in the published layout: use layout="vllm"')
    folder = Path(folder)
    if (folder / CONFIG).exists():
        layout_of(read_config(folder), folder)  # raises for anything but heads
    names = (medusa_names if layout == "medusa" else vllm_names)(len(heads), heads.layers)
    # Copies, so that no two share memory, which safetensors refuses.
    tensors = {names[name]: tensor.detach().to("cpu", copy=True) for name, tensor in heads.state_dict().items()}
    if layout == "medusa":
        config = {"medusa_num_heads": len(heads), "medusa_num_layers": heads.layers, "base_model_name_or_path": base}
    else:
        known = heads.vocab_size
        if heads.token_map is not None:
            tensors["token_map"], known = heads.token_map.to("cpu", copy=True), len(heads.token_map)
        config = {
            "model_type": "medusa",
            "architectures": ["MedusaModel"],
            "num_heads": len(heads),
            "num_hidden_layers": heads.layers,
            "hidden_size": heads.width,
            "vocab_size": heads.vocab_size,
            "truncated_vocab_size": known,
            "medusa_fc_bias": True,
        }
    config[OURS] = {"choices": heads.choices}
    if heads.accuracies is not None:
        config[OURS]["accuracies"] = heads.accuracies
    return write_folder(folder, config, tensors, FILES[layout], pickled)


def load_medusa(folder, target=None) -> MedusaHeads:
    """Read heads from a folder, in the published layout or in vLLM's: `config.json` says which.

    Parameters
    ----------
    folder : path
    target : LM, optional
        The heads are checked to fit it, and put on its device. Old published heads, which have no output layers, take
        copies of its output head's weight, and cannot be read without it.

    Returns
    -------
    MedusaHeads
        In evaluation mode, with the bits and the type of the file. `choices` and `accuracies` are those in the file, if
        `tutorlib` has written it.

    Raises
    ------
    ValueError
        That names the file, and the tensor or key: for what is missing, unknown, half-written, of another shape or
        type; for a pickle that holds anything but tensors (nothing in it is executed); for heads of another vocabulary
        or width than the target's.

    Notes
    -----
    The first published `config.json` says 2 heads beside a file with 5. So heads beyond those that it says are taken
    too, if they are whole.
    """
    folder = Path(folder)
    config = read_config(folder)
    layout = layout_of(config, folder)
    path = weight_file(folder, FILES[layout])
    tensors = read_tensors(path)
    for key in ("medusa_num_heads", "medusa_num_layers", "num_heads", "num_hidden_layers"):
        check_size(config, key, tensors, folder / CONFIG, path)
    heads, tensors = (_from_medusa if layout == "medusa" else _from_vllm)(config, tensors, target, path)
    ours = _ours(config, folder / CONFIG)
    token_map = heads.pop("token_map", None)
    try:
        with torch.device("meta"):  # nothing is allocated for what is in the file
            made = MedusaHeads(**heads, **ours, token_map=token_map)
    except ValueError as error:
        raise ValueError(f"{folder / CONFIG}: {error}") from error
    made.token_map = None if token_map is None else torch.tensor(token_map)
    made.load_state_dict(tensors, assign=True)
    return made.eval() if target is None else made.eval().to(target.device)


def layout_of(config: Mapping, folder: Path) -> str:
    """Which of the `LAYOUTS` a configuration belongs to; a ValueError for that of something else."""
    if any(key in config for key in ("medusa_num_heads", "medusa_num_layers")):
        return "medusa"
    if config.get("model_type") == "medusa" or "MedusaModel" in (config.get("architectures") or ()):
        return "vllm"
    raise ValueError(
        f'{folder / CONFIG} is not that of Medusa heads: expected medusa_num_heads, as published, or "model_type": '
        f'"medusa", as vLLM reads it; it has {", ".join(config) or "no keys"}'
    )


def _from_medusa(config, tensors, target, path) -> tuple[dict, Tensors]:
    """Sizes and tensors, by our names, of a file in the published layout."""
    place = path.parent / CONFIG
    heads = whole_number(config, "medusa_num_heads", 1, place)
    layers = whole_number(config, "medusa_num_layers", 0, place)
    outputs = [f"{head}.{layers}.weight" for head in range(heads)]
    reuse = layers > 0 and not any(name in tensors for name in outputs)
    own = slice(None, -1) if reuse else slice(None)  # of a head's names: those that are in the file
    while set(head_names(heads, layers)[own]) <= tensors.keys():
        heads += 1
    names = {name: name for head in range(heads) for name in head_names(head, layers)[own]}
    check_names(tensors, names, path)
    # What most of them say: then the one that says otherwise is the one that is named.
    telling = [f"{head}.0.linear.weight" if reuse else f"{head}.{layers}.weight" for head in range(heads)]
    usual = statistics.mode(tuple(tensors[name].shape) for name in telling)
    if len(usual) != 2:
        raise ValueError(f"{path}: {telling[0]} has shape {tuple(tensors[telling[0]].shape)}, expected a matrix")
    vocab_size, width = usual
    if reuse:
        if target is None:
            raise ValueError(
                f"{path}: these heads have no output layers of their own ({outputs[0]} and so on) and use the "
                "target's: load_medusa(folder, target)"
            )
        vocab_size = target.vocab_size
    _check_target(target, vocab_size, width, path)
    found = renamed(tensors, names, shapes(heads, layers, width, vocab_size), path)
    if reuse:
        output = output_weight(target).to("cpu", next(iter(found.values())).dtype)
        found |= {f"{head}.{layers}.weight": output.clone() for head in range(heads)}
    return {"width": width, "vocab_size": vocab_size, "heads": heads, "layers": layers}, found


def _from_vllm(config, tensors, target, path) -> tuple[dict, Tensors]:
    """Sizes and tensors, by our names, of a file in vLLM's layout."""
    place = path.parent / CONFIG
    heads = whole_number(config, "num_heads", 1, place)
    layers = whole_number(config, "num_hidden_layers", 0, place)
    width = whole_number(config, "hidden_size", 1, place)
    vocab_size = whole_number(config, "vocab_size", 1, place)
    known = vocab_size
    if config.get("truncated_vocab_size") is not None:
        known = whole_number(config, "truncated_vocab_size", 1, place)
    sizes = {"width": width, "vocab_size": vocab_size, "heads": heads, "layers": layers}
    _check_target(target, vocab_size, width, place)

    tensors = {name.removeprefix("medusa_heads."): tensor for name, tensor in tensors.items()}
    names = vllm_names(heads, layers)
    if config.get("original_lm_head"):  # one output layer, the target's own, for all heads
        names |= {f"{head}.{layers}.weight": "lm_heads.0.weight" for head in range(heads)}
    biases = [name for name in names if name.endswith(".bias")]
    if not config.get("medusa_fc_bias"):
        names = {name: there for name, there in names.items() if name not in biases}
    truncated = {"token_map": "token_map"} if known != vocab_size else {}
    check_names(tensors, names | truncated, path)
    if truncated:
        token_map = tensors.pop("token_map")
        if token_map.dtype.is_floating_point or token_map.dtype is torch.bool or tuple(token_map.shape) != (known,):
            raise ValueError(f"{path}: token_map is {words(token_map)}, expected {known} token ids, int64")
        try:
            sizes["token_map"] = checked_token_map(token_map.tolist(), vocab_size)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        # Output layers may be there in full: vLLM cuts them too.
        for name in {names[f"{head}.{layers}.weight"] for head in range(heads)}:
            if tuple(tensors[name].shape) == (vocab_size, width):
                tensors[name] = tensors[name][token_map.long()]

    found = renamed(tensors, names, shapes(heads, layers, width, known), path)
    if config.get("original_lm_head"):
        found = {name: tensor.clone() for name, tensor in found.items()}
    if not config.get("medusa_fc_bias"):
        dtype = next(iter(found.values())).dtype
        found |= {name: torch.zeros(width, dtype=dtype) for name in biases}
    return sizes, found


def shapes(heads: int, layers: int, width: int, known: int) -> dict[str, tuple[int, ...]]:
    """The shape of each parameter of `MedusaHeads`, by name."""
    shape = {"weight": (width, width), "bias": (width,)}
    found = {name: shape[name.rpartition(".")[2]] for head in range(heads) for name in head_names(head, layers)[:-1]}
    return found | {f"{head}.{layers}.weight": (known, width) for head in range(heads)}


def output_weight(target) -> torch.Tensor:
    """The weight of a target's output head, (vocab, width); a ValueError where there is none, or more than that."""
    head = target.model.get_output_embeddings() if target.model is not None else None
    weight = getattr(head, "weight", None)
    if weight is None or tuple(weight.shape) != (target.vocab_size, target.width) or not weight.is_floating_point():
        raise ValueError(f"{target!r} has no output head of shape {(target.vocab_size, target.width)} to be used again")
    if getattr(head, "bias", None) is not None:
        raise ValueError(f"the output head of {target!r} has a bias, for which Medusa heads have no place")
    return weight.detach()


def _check_target(target, vocab_size, width, path):
    """Raise ValueError that names the file when its heads cannot be the target's, if there is one."""
    if target is not None:
        try:
            check_target(target, vocab_size, width)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None


def _ours(config, place) -> dict:
    """What our own entry of a configuration says, as arguments of `MedusaHeads`."""
    entry = config.get(OURS, {})
    try:
        if not isinstance(entry, dict):
            raise ValueError(f"expected an object, got {entry!r}")
        checks = {"choices": checked_choices, "accuracies": checked_accuracies}
        return {key: check(entry[key]) for key, check in checks.items() if key in entry}
    except ValueError as error:
        raise ValueError(f'{place}: "{OURS}": {error}') from error
