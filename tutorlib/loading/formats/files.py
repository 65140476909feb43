"""Files of any layout: a configuration and named tensors, which are checked when read and written all or nothing.

A layout is a folder with a `config.json`, which contains the sizes, and one file of tensors, safetensors or a pickle,
which may be in several parts. Their contents depend on the layout: see the other files here.
"""

import json
import pickle
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ...disk import read_json, replacing, write_text
from ..weight_files import refuse_adapter, shards, weight_files

Tensors = dict[str, torch.Tensor]
Names = dict[str, str]  # of a tensor: name here -> name in the file

CONFIG = "config.json"
# The file of tensors: the first is tried first, and is the one that is written unless a pickle is requested.
MODEL = ("model.safetensors", "pytorch_model.bin")
FILES = {
    "medusa": ("medusa_lm_head.safetensors", "medusa_lm_head.pt"),
    "vllm": MODEL,
    "eagle": MODEL,
    "speculators": MODEL,
    "ngram": MODEL,
    "pruned": MODEL,
    "dflash": MODEL,
    "mtp": MODEL,
    "dspark": MODEL,
    "dflash2": MODEL,
}
# Heads that may stand in the files of their target, beside its own tensors, and what their names begin with there.
INSIDE = {"medusa": "medusa_head."}
# Tensors that a layout names differently from our modules: patterns of their names, and the names in the file.
OTHERWISE = {
    "vllm": {r"^(\d+)\.(\d+)\.linear\.": r"blocks.\1.layers.\2.", r"^(\d+)\.\d+\.weight$": r"lm_heads.\1.weight"},
    "speculators": {r"^midlayer\.": "layers.0."},
}
# Our own entry in config.json, which other programs ignore.
OURS = "tutorlib"


def read_config(folder: Path) -> dict:
    """Read a folder's configuration; a ValueError if it is missing or broken."""
    place = Path(folder) / CONFIG
    refuse_adapter(folder)
    try:
        config = read_json(place)
    except FileNotFoundError:
        raise ValueError(
            f"{place} is missing: this folder holds no heads, or they were not written to the end"
        ) from None
    if not isinstance(config, dict):
        raise ValueError(f"{place} must hold an object with keys and values, got {config!r}")
    return config


def whole_number(config: Mapping, key: str, least: int, place: Path) -> int:
    """Get a whole number of a configuration; a ValueError if it is missing or below `least`."""
    if key not in config:
        raise ValueError(f"{place} lacks the key {key!r}; it has {', '.join(config)}")
    number = config[key]
    if not isinstance(number, int) or isinstance(number, bool) or number < least:
        raise ValueError(f"{place}: {key} must be a whole number of {least} or more, got {number!r}")
    return number


def check_sizes(config: Mapping, keys: Iterable[str], tensors: Mapping, place, path: Path) -> None:
    """Raise ValueError if a size is larger than anything in the file, before anything of that size is created."""
    most = max((len(tensors), *(side for tensor in tensors.values() for side in tensor.shape)))
    for key in keys:
        if isinstance(config.get(key), int) and config[key] > most:
            raise ValueError(
                f"{place}: {key} is {config[key]}, but {path} has {len(tensors)} tensors, and no side longer than "
                f"{most}: the two do not belong together"
            )


def our_entry(config: Mapping, place) -> dict:
    """Our own entry in a configuration."""
    entry = config.get(OURS, {})
    if not isinstance(entry, dict):
        raise ValueError(f'{place}: "{OURS}" must be an object, got {entry!r}')
    return entry


def check_layout(layout: str, known: tuple[str, str]) -> None:
    """Raise ValueError unless a layout is one of the two known ones."""
    if layout not in known:
        raise ValueError(f'layout={layout!r} is not known: use "{known[0]}", as published, or "{known[1]}"')


def read_folder(folder, layout_of: Callable) -> tuple[str, dict, Tensors, Path, Path]:
    """A folder's layout, configuration and tensors, and the paths of the two files.

    `layout_of` finds the layout of a configuration, given the configuration and its path.
    """
    folder = Path(folder)
    config, place = read_config(folder), folder / CONFIG
    layout = layout_of(config, place)
    files, prefix = FILES[layout], ""
    paths = weight_files(folder, files)
    if not paths and layout in INSIDE:
        files, prefix = MODEL, INSIDE[layout]
        paths = weight_files(folder, files)
    if paths and paths[0].name in files:
        path, tensors = paths[0], read_tensors(paths[0], prefix)
    elif paths:
        path = next(index for name in files if (index := folder / f"{name}.index.json").is_file())
        tensors = _read_parts(path, prefix)
    if not paths or prefix and not tensors:
        raise ValueError(f"{folder} has a {CONFIG} but no tensors: expected {' or '.join(FILES[layout])}")
    return layout, config, tensors, place, path


def _read_parts(index: Path, prefix: str) -> Tensors:
    """The tensors of a file in several parts, each from the part that the index says; see `read_tensors`."""
    there = {name: part for name, part in shards(index).items() if name.startswith(prefix)}
    tensors = {}
    for part in sorted(set(there.values())):
        path = index.parent / part
        if not path.is_file():
            raise ValueError(f"{path} is missing, though {index.name} names it: download it again")
        found = read_tensors(path, prefix)
        differing = found.keys() ^ {name.removeprefix(prefix) for name in there if there[name] == part}
        if differing:
            raise ValueError(f"{path} and {index.name} differ in {min(differing)}: the two do not belong together")
        tensors |= found
    return tensors


def read_tensors(path: Path, prefix: str = "") -> Tensors:
    """The tensors in a file, by their names in the file, on the processor.

    With a `prefix`, only those whose names begin with it, without it.

    Raises
    ------
    ValueError
        If it is incomplete or broken, or a pickle that contains anything but named tensors. No code in it is executed:
        torch's reader for weights refuses everything that would have to be called.
    """
    if path.suffix == ".safetensors":
        try:
            with safe_open(path, framework="pt") as file:
                names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118
                return {name.removeprefix(prefix): file.get_tensor(name) for name in names}
        except SafetensorError as error:
            raise ValueError(f"{path} is half-written or broken ({error}): download or copy it again") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of unusual protocols: what comes of them is looked at below
            tensors = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:  # without torch's message, whose advice is to run whatever the file brings
        raise ValueError(
            f"{path} is broken, or a pickle that holds more than tensors; no code in it was run. Ask for a copy in "
            "safetensors"
        ) from None
    except Exception as error:  # torch raises nearly anything for a broken file
        raise ValueError(f"{path} is half-written or broken ({error}): download or copy it again") from error
    if not isinstance(tensors, dict):
        raise ValueError(f"{path} must hold tensors by name, got {type(tensors).__name__}")
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise ValueError(f"{path} must hold tensors by name, got {type(tensor).__name__} at {name!r}")
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def check_names(tensors: Mapping, names: Names, path: Path) -> None:
    """Raise a ValueError that names the missing and the unknown tensors of a file."""
    expected = set(names.values())
    missing = [name for name in dict.fromkeys(names.values()) if name not in tensors]
    unknown = sorted(name for name in tensors if name not in expected)
    problems = [f"{_listed(found)} {verb}" for found, verb in ((missing, "missing"), (unknown, "unknown")) if found]
    if problems:
        raise ValueError(
            f"{path}: {', and '.join(problems)}, by what {path.parent / CONFIG} says: the two do not belong together"
        )


def without_weights(module: type, *arguments, **settings):
    """A module with only the names and shapes of its tensors, without memory for them."""
    with torch.device("meta"):
        return module(*arguments, **settings)


def layout_names(names: Iterable[str], layout: str) -> Names:
    """The names that a layout has for the tensors of our modules.

    Examples
    --------
    >>> list(layout_names(["0.0.linear.bias", "0.1.weight"], "vllm").values())
    ['blocks.0.layers.0.bias', 'lm_heads.0.weight']
    >>> layout_names(["midlayer.mlp"], "speculators")
    {'midlayer.mlp': 'layers.0.mlp'}
    """
    there = {name: name for name in names}
    for pattern, instead in OTHERWISE.get(layout, {}).items():
        there = {name: re.sub(pattern, instead, other) for name, other in there.items()}
    return there


def fitting(module: torch.nn.Module, tensors: Mapping, names: Names, path: Path) -> Tensors:
    """The tensors of a file, by their names in a module, checked against those of the module.

    Parameters
    ----------
    module : Module
        May be one `without_weights`.
    tensors : dict of tensors, by name in the file
    names : dict
        From names in the module, all or some, to names in the file; two of them may share a tensor.

    Raises
    ------
    ValueError
        If one is missing or unknown, has the wrong shape, contains numbers that are not finite, or does not have the
        floating dtype of the others. Tensors that are not floating in the module, such as maps, must have the dtype of
        the module.
    """
    check_names(tensors, names, path)
    dtype, expected = None, module.state_dict()
    for name, there in names.items():
        tensor, like = tensors[there], expected[name]
        if tensor.shape != like.shape:
            raise ValueError(f"{path}: {there} has shape {tuple(tensor.shape)}, expected {tuple(like.shape)}")
        if like.is_floating_point():
            dtype = dtype or tensor.dtype
            right = tensor.dtype == dtype and dtype.is_floating_point
            wanted = "numbers of a floating type" if tensor.dtype == dtype else f"{dtype} as the others"
        else:
            right, wanted = tensor.dtype == like.dtype, like.dtype
        if not right:
            raise ValueError(f"{path}: {there} is {tensor.dtype}, expected {wanted}")
        if not tensor.isfinite().all():
            raise ValueError(f"{path}: {there} has numbers that are not finite, such as NaN: the training went wrong")
    return {name: tensors[there] for name, there in names.items()}


def output_weight(target) -> torch.Tensor:
    """The weight of a target's output head, (vocab, width); a ValueError if there is no such head or it has a bias."""
    head = target.model.get_output_embeddings() if target.model is not None else None
    weight = weight_of(head)
    if weight is not None and (weight.is_meta or not weight.is_floating_point()):
        weight = None
    if weight is None or tuple(weight.shape) != (target.vocab_size, target.width):
        raise ValueError(f"{target!r} has no output head of shape {(target.vocab_size, target.width)} to be used again")
    if getattr(head, "bias", None) is not None:
        raise ValueError(f"the output head of {target!r} has a bias, for which these heads have no place")
    return weight.detach()


def weight_of(module) -> torch.Tensor | None:
    """A module's weight, if it has one; fetched from storage if it is on a device only during calls."""
    weight = getattr(module, "weight", None)
    if weight is None or not weight.is_meta or not hasattr(module, "_hf_hook"):
        return weight
    return module._hf_hook.weights_map["weight"]  # as accelerate does before a call


def write_folder(folder, layout: str, config: Mapping, tensors: Tensors, pickled: bool) -> Path:
    """Write tensors, given by our names, and a configuration in a layout; return the path of the file of tensors."""
    folder, files, names = Path(folder), FILES[layout], layout_names(tensors, layout)
    # Copies, so that no two share memory, which safetensors refuses.
    tensors = {names[name]: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / files[pickled]
    with replacing(path, sum(tensor.nbytes for tensor in tensors.values())) as fresh:
        if pickled:
            with open(fresh, "wb") as file:  # of a full disk, torch's own file says "unexpected pos"
                torch.save(tensors, file)
        else:
            save_file(tensors, fresh, metadata={"format": "pt"})
    (folder / files[not pickled]).unlink(missing_ok=True)  # older, and it might be read in place of this one
    write_text(folder / CONFIG, json.dumps(config, indent=2) + "\n")
    return path


def _listed(names: list[str], most: int = 6) -> str:
    """Some names in words."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest + (" is" if len(names) == 1 else " are")


def words(tensor: torch.Tensor) -> str:
    """What kind of tensor it is."""
    return f"of shape {tuple(tensor.shape)} and {tensor.dtype}"
