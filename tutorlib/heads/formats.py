"""The files that heads are published in: each layout a plain map, from the names of tensors here to those in the file.

A layout is a folder with a `config.json`, which tells the sizes, and one file of tensors, safetensors or a pickle.
Tensors keep their bits and their type both ways. Files come from anywhere, so nothing in them is executed, and nothing
is guessed: a tensor that is missing, unknown or of another shape is an error that names it.

What this file does not do: find or download folders (`tutorlib.models`), or train (`tutorlib.training`).
"""

import contextlib
import json
import os
import pickle
import statistics
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from .choices import checked_accuracies, checked_choices
from .medusa import MedusaHeads, check_target, checked_token_map

Tensors = dict[str, torch.Tensor]
Names = dict[str, str]  # of a tensor: name here -> name in the file

CONFIG = "config.json"
# Where the tensors are: the first is looked for first, and is what is written unless a pickle is asked for.
FILES = {
    "medusa": ("medusa_lm_head.safetensors", "medusa_lm_head.pt"),
    "vllm": ("model.safetensors", "pytorch_model.bin"),
}
# Our own entry in config.json, which other readers pass over: the tree that pays, and how often each guess is right.
OURS = "tutorlib"


# ----------------------------------------------------------------------------------------------------------------------
# Medusa: names


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


# ----------------------------------------------------------------------------------------------------------------------
# Medusa: whole folders


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
    if layout not in FILES:
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
    """Which layout of `FILES` a configuration belongs to; a ValueError for that of something else."""
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
            raise ValueError(f"{path}: token_map is {_words(token_map)}, expected {known} token ids, int64")
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


# ----------------------------------------------------------------------------------------------------------------------
# Files of any layout


def read_config(folder: Path) -> dict:
    """What a folder's configuration says; a ValueError if there is none, or it is broken."""
    place = Path(folder) / CONFIG
    try:
        config = json.loads(place.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(
            f"{place} is missing: this folder holds no heads, or they were not written to the end"
        ) from None
    except ValueError as error:
        raise ValueError(f"{place} is half-written or broken ({error}): download or copy it again") from error
    if not isinstance(config, dict):
        raise ValueError(f"{place} must hold an object with keys and values, got {config!r}")
    return config


def whole_number(config: Mapping, key: str, least: int, place: Path) -> int:
    """A number of a configuration; a ValueError if it is missing, or none of at least `least`."""
    if key not in config:
        raise ValueError(f"{place} lacks the key {key!r}; it has {', '.join(config)}")
    number = config[key]
    if not isinstance(number, int) or isinstance(number, bool) or number < least:
        raise ValueError(f"{place}: {key} must be a whole number of {least} or more, got {number!r}")
    return number


def weight_file(folder: Path, files: tuple[str, ...]) -> Path:
    """The first of these files that there is; a ValueError if there is none."""
    for name in files:
        if (folder / name).is_file():
            return folder / name
    raise ValueError(f"{folder} has a {CONFIG} but no tensors: expected {' or '.join(files)}")


def read_tensors(path: Path) -> Tensors:
    """The tensors in a file, by the names they have there, on the processor.

    Raises
    ------
    ValueError
        If it is half-written or broken, or a pickle with anything but tensors by name. No code in it is executed:
        torch's reader for weights alone refuses whatever would have to be called.
    """
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
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
    return tensors


def check_names(tensors: Mapping, names: Names, path: Path) -> None:
    """Raise ValueError that names the tensors which are missing in a file, and those that nobody knows."""
    expected = set(names.values())
    missing = [name for name in dict.fromkeys(names.values()) if name not in tensors]
    unknown = sorted(name for name in tensors if name not in expected)
    problems = [f"{_listed(found)} {verb}" for found, verb in ((missing, "missing"), (unknown, "unknown")) if found]
    if problems:
        raise ValueError(
            f"{path}: {', and '.join(problems)}, by what {path.parent / CONFIG} says: the two do not belong together"
        )


def renamed(tensors: Mapping, names: Names, shapes: Mapping, path: Path) -> Tensors:
    """The tensors of a file by their names here, checked.

    Parameters
    ----------
    tensors : dict of tensors, by name in the file
    names : dict
        From names here to names in the file; two of them may share a tensor.
    shapes : dict
        From names here to the shape expected.

    Raises
    ------
    ValueError
        If one is missing or unknown, has another shape, or is not of the floating type that they all have.
    """
    check_names(tensors, names, path)
    dtype = None
    for name, there in names.items():
        tensor = tensors[there]
        if tuple(tensor.shape) != tuple(shapes[name]):
            raise ValueError(f"{path}: {there} has shape {tuple(tensor.shape)}, expected {tuple(shapes[name])}")
        dtype = dtype or tensor.dtype
        if tensor.dtype != dtype or not dtype.is_floating_point:
            expected = f"{dtype} as the others" if tensor.dtype != dtype else "numbers of a floating type"
            raise ValueError(f"{path}: {there} is {tensor.dtype}, expected {expected}")
    return {name: tensors[there] for name, there in names.items()}


def write_folder(folder: Path, config: Mapping, tensors: Tensors, files: tuple[str, str], pickled: bool) -> Path:
    """Write tensors to the first of two files, or as a pickle to the second, and a configuration; return the file."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / files[pickled]
    with replacing(path) as fresh:
        if pickled:
            torch.save(tensors, fresh)
        else:
            save_file(tensors, fresh, metadata={"format": "pt"})
    (folder / files[not pickled]).unlink(missing_ok=True)  # older, and it might be read in place of this one
    with replacing(folder / CONFIG) as fresh:
        fresh.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    return path


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A place to write to, which becomes `path` once all is written: a kill before that leaves the old file whole."""
    fresh = path.with_name(path.name + ".new")
    try:
        yield fresh
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)


def _listed(names: list[str], most: int = 6) -> str:
    """Some names in words."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest + (" is" if len(names) == 1 else " are")


def _words(tensor: torch.Tensor) -> str:
    return f"of shape {tuple(tensor.shape)} and {tensor.dtype}"
