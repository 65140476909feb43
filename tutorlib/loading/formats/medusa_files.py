"""Files of Medusa heads: in the layout of their authors, and in the layout that vLLM reads.

Two things are not part of the published configuration: the tree to use, and how often each guess is right. They are in
an entry of our own.
"""

import statistics
from collections.abc import Mapping
from pathlib import Path

import torch

from ...drafting.choices import checked_accuracies, checked_choices
from ...drafting.medusa_heads import MedusaHeads, check_heads_fit, checked_token_map
from .files import (
    CONFIG,
    OURS,
    Names,
    Tensors,
    check_layout,
    check_names,
    check_sizes,
    fitting,
    layout_names,
    our_entry,
    output_weight,
    read_config,
    read_folder,
    whole_number,
    without_weights,
    words,
    write_folder,
)

LAYOUTS = ("medusa", "vllm")


def save_medusa(
    heads: MedusaHeads,
    folder,
    layout: str = "medusa",
    *,
    base: str = "",
    borrowed: bool = False,
    shared: bool = False,
    pickled: bool = False,
) -> Path:
    """Write heads to a folder.

    Each new file is written next to the old one and then replaces it, the configuration last. So if the process is
    killed, the folder contains the old heads or the new ones. Between the two, it may contain new tensors with the old
    sizes, which is refused when it is read, if the sizes differ.

    Parameters
    ----------
    heads : MedusaHeads
    folder : path
        Created if it is missing.
    layout : {"medusa", "vllm"}
        The published layout, or the one that vLLM reads.
    base : str
        The target's hub name, which is stored in the published layout.
    borrowed : bool
        Whether the output layers are the target's own. They are then left out of the file, and `load_medusa` takes the
        target's.
    shared : bool
        Whether the output layers are the target's own. They are then stored once, because vLLM does not take the
        target's.
    pickled : bool
        Whether to write a pickle in place of safetensors. The authors' own code reads only pickles.

    Returns
    -------
    path of the file with the tensors

    Raises
    ------
    ValueError
        If the layout is unknown, if the folder contains something else, such as a model, or if the heads have a
        `token_map`, which the published layout does not support.
    """
    check_layout(layout, LAYOUTS)
    if layout == "medusa" and heads.token_map is not None:
        raise ValueError('heads with a token_map cannot be written in the published layout: use layout="vllm"')
    place, tensors = Path(folder) / CONFIG, heads.state_dict()
    borrowed |= shared
    if borrowed and (layout == "medusa" or not heads.layers):
        raise ValueError('heads that borrow the output layer need layout="vllm" and a residual block of their own')
    if borrowed:
        kept = ("0.",) if shared else ()
        outputs = [name for name in tensors if name.endswith(f".{heads.layers}.weight") and not name.startswith(kept)]
        tensors = {name: tensor for name, tensor in tensors.items() if name not in outputs}
    if place.exists():
        there = read_config(folder)
        if layout_of(there, place) == "medusa" and "num_hidden_layers" in there:  # raises for anything but heads
            raise ValueError(f"{place} is that of a whole model with heads inside: give a folder of its own")
    if layout == "medusa":
        config = {"medusa_num_heads": len(heads), "medusa_num_layers": heads.layers, "base_model_name_or_path": base}
    else:
        known = heads.vocab_size
        if heads.token_map is not None:
            tensors["token_map"], known = heads.token_map, len(heads.token_map)
        config = {
            "model_type": "medusa",
            "architectures": ["MedusaModel"],
            "num_heads": len(heads),
            "num_hidden_layers": heads.layers,
            "hidden_size": heads.width,
            "vocab_size": heads.vocab_size,
            "truncated_vocab_size": known,
            "medusa_fc_bias": True,
        } | ({"original_lm_head": True} if borrowed else {})
    ours: dict = {"choices": heads.choices}
    if heads.accuracies is not None:
        ours["accuracies"] = heads.accuracies
    config[OURS] = ours
    return write_folder(folder, layout, config, tensors, pickled)


def load_medusa(folder, target=None) -> MedusaHeads:
    """Read heads from a folder, in the published layout or in vLLM's, which is found from `config.json`.

    Parameters
    ----------
    folder : path
        With the heads alone, or with the whole model that was trained with them, whose files hold them as
        `medusa_head.0.0.linear.weight` and so on.
    target : LM, optional
        The heads are checked to fit it, and put on its device. Heads without output layers of their own, such as old
        published ones, take copies of the weight of its output head, and cannot be read without it.

    Returns
    -------
    MedusaHeads
        In evaluation mode, with the numbers and the dtype of the file. `choices` and `accuracies` are those in the
        file, if it was written by `tutorlib`.

    Raises
    ------
    ValueError
        If anything is missing, unknown, incomplete, or has the wrong shape or dtype (the message names the file and the
        tensor or key); if a pickle contains anything but tensors (nothing in it is executed); if the vocabulary or
        width is not the target's.

    Notes
    -----
    The first published `config.json` gives 2 heads, but its file contains 5. So further heads in the file are read too,
    if they are complete.
    """
    layout, config, tensors, place, path = read_folder(folder, layout_of)
    keys = ("medusa_num_heads", "medusa_num_layers", "num_heads", "num_hidden_layers")
    check_sizes(config, keys, tensors, place, path)
    sizes, names, tensors = (_published if layout == "medusa" else _for_vllm)(config, tensors, target, path)
    entry, checks = our_entry(config, place), {"choices": checked_choices, "accuracies": checked_accuracies}
    try:
        ours = {key: check(entry[key]) for key, check in checks.items() if key in entry}
        heads = without_weights(MedusaHeads, **sizes, **ours)
    except ValueError as error:
        raise ValueError(f'{place}: "{OURS}": {error}') from error
    if heads.token_map is not None:
        heads.token_map = torch.tensor(sizes["token_map"])
    found = fitting(heads, tensors, names, path)
    if len(set(names.values())) < len(names):
        found = {name: tensor.clone() for name, tensor in found.items()}
    dtype = next(iter(found.values())).dtype
    for name in heads.state_dict().keys() - found.keys():  # what a file may leave out: see the two layouts
        is_bias = name.endswith(".bias")
        found[name] = (
            torch.zeros(heads.width, dtype=dtype) if is_bias else _output(target, heads).to("cpu", dtype, copy=True)
        )
    heads.load_state_dict(found, assign=True)
    return heads.eval() if target is None else heads.eval().to(target.device)


def _output(target, heads) -> torch.Tensor:
    """The rows of the target's output head that some heads know."""
    return output_weight(target) if heads.token_map is None else output_weight(target)[heads.token_map.cpu()]


def layout_of(config: Mapping, place: Path) -> str:
    """Which of the `LAYOUTS` a configuration belongs to; a ValueError for that of something else."""
    if any(key in config for key in ("medusa_num_heads", "medusa_num_layers")):
        return "medusa"
    if config.get("model_type") == "medusa" or "MedusaModel" in (config.get("architectures") or ()):
        return "vllm"
    raise ValueError(
        f'{place} is not that of Medusa heads: expected medusa_num_heads, as published, or "model_type": '
        f'"medusa", as vLLM reads it; it has {", ".join(config) or "no keys"}'
    )


def _parameter_names(layers: int) -> list[str]:
    """The names of one head's parameters, after the head's number; the last is its output layer's."""
    heads = without_weights(MedusaHeads, 1, 1, 1, layers, choices=[(0,)])
    return [name.removeprefix("0.") for name in heads.state_dict()]


def _published(config, tensors, target, path) -> tuple[dict, Names, Tensors]:
    """Of a file in the published layout: arguments of `MedusaHeads`, what is in the file by our names, its tensors.

    Where it holds no output layers, they are the target's.
    """
    place = path.parent / CONFIG
    heads = whole_number(config, "medusa_num_heads", 1, place)
    layers = whole_number(config, "medusa_num_layers", 0, place)
    own = _parameter_names(layers)
    reuse = layers > 0 and not any(f"{head}.{own[-1]}" in tensors for head in range(heads))
    if reuse:
        del own[-1]
    while {f"{heads}.{part}" for part in own} <= tensors.keys():
        heads += 1
    names = layout_names((f"{head}.{part}" for head in range(heads) for part in own), "medusa")
    check_names(tensors, names, path)
    # What most of them say: then the one that says otherwise is the one that is named.
    telling = [f"{head}.{own[0 if reuse else -1]}" for head in range(heads)]
    usual = statistics.mode(tuple(tensors[name].shape) for name in telling)
    if len(usual) != 2:
        raise ValueError(f"{path}: {telling[0]} has shape {tuple(tensors[telling[0]].shape)}, expected a matrix")
    vocab_size, width = usual
    if reuse:
        if target is None:
            raise ValueError(
                f"{path}: these heads have no output layers of their own (0.{layers}.weight and so on) and use the "
                "target's: load_medusa(folder, target)"
            )
        vocab_size = target.vocab_size
    _check_target(target, vocab_size, width, path)
    return {"width": width, "vocab_size": vocab_size, "heads": heads, "layers": layers}, names, tensors


def _for_vllm(config, tensors, target, path) -> tuple[dict, Names, Tensors]:
    """The same of a file in vLLM's layout. Where it holds no biases, they are zeros."""
    place = path.parent / CONFIG
    least = {"num_heads": 1, "num_hidden_layers": 0, "hidden_size": 1, "vocab_size": 1}
    heads, layers, width, vocab_size = (whole_number(config, key, number, place) for key, number in least.items())
    known = vocab_size
    if config.get("truncated_vocab_size") is not None:
        known = whole_number(config, "truncated_vocab_size", 1, place)
    borrowed = known == vocab_size and config.get("original_lm_head")  # then nothing in the file need be of this size
    known_here = () if borrowed else ("vocab_size" if known == vocab_size else "truncated_vocab_size",)
    check_sizes(config, ("hidden_size", *known_here), tensors, place, path)
    sizes: dict = {"width": width, "vocab_size": vocab_size, "heads": heads, "layers": layers}
    _check_target(target, vocab_size, width, place)

    tensors = {name.removeprefix("medusa_heads."): tensor for name, tensor in tensors.items()}
    own = [part for part in _parameter_names(layers) if config.get("medusa_fc_bias") or not part.endswith(".bias")]
    names = layout_names((f"{head}.{part}" for head in range(heads) for part in own), "vllm")
    outputs = [f"{head}.{own[-1]}" for head in range(heads)]
    if config.get("original_lm_head"):  # one output layer, the target's own, for all heads
        names |= dict.fromkeys(outputs, "lm_heads.0.weight")
        if "lm_heads.0.weight" not in tensors:
            if target is None:
                raise ValueError(f"{path}: these heads use the target's output layer: load_medusa(folder, target)")
            names = {name: there for name, there in names.items() if name not in outputs}
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
        for name in {names[output] for output in outputs if output in names}:
            if tuple(tensors[name].shape) == (vocab_size, width):
                tensors[name] = tensors[name][token_map.long()]
    return sizes, names, tensors


def _check_target(target, vocab_size, width, path):
    """Raise ValueError that names the file when its heads cannot be the target's, if there is one."""
    if target is not None:
        try:
            check_heads_fit(target, vocab_size, width)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
