"""Load the language model or the tokenizer that is in a folder, with transformers' `from_pretrained`.

Before the weights are read, their size is compared with the free memory, and the configuration with what can be
computed. What this file does not do: find folders (`hub`), or load heads (`formats`).
"""

from __future__ import annotations

import pickle
import re
import warnings
from pathlib import Path

import psutil
import torch

from ..disk import read_json
from ..measures import memory
from ..model import llama, quantization
from ..model.eight_bits import EightBits
from ..model.lm import LM
from . import formats, hub
from .families import largest_family
from .weight_files import check_config, count_weights, prediction_layers, weight_files


def load_model(folder, name, device, dtype, form=None, placement=None):
    """The model in a folder, in evaluation mode.

    Parameters
    ----------
    folder : path
    name : str
        What error messages call it.
    device : torch.device
    dtype : torch.dtype
    form : quantization.Form, optional
        How its linear layers are stored.
    placement : dict, optional
        `device_map` and `offload_folder`, in place of `device`.

    Raises
    ------
    ValueError
        If the folder holds no language model, or not a whole one, or weights and configuration do not belong together.
    MemoryError
    """
    files = weight_files(folder)
    if not files:
        raise ValueError(f"{folder} holds no weights: expected model.safetensors (or pytorch_model.bin, or an index)")
    weights, most = count_weights(files)
    check_config(Path(folder) / "config.json", most)
    config = read_json(Path(folder) / "config.json")
    saved = quantization.saved_form(config)
    unpacked = saved in quantization.UNPACKED
    _check_form(folder, saved, form, dtype, placement)

    stays = saved and not unpacked
    needed = sum(path.stat().st_size for path in files) if stays else _bytes_needed(folder, weights, dtype, form)
    for place in (torch.device("cpu"), device):  # weights pass through the processor's memory
        if not placement and needed > _free(place):
            raise MemoryError(_too_large(name, weights, dtype, place, needed, form))

    where = ", ".join(map(str, files))
    settings = dict(placement or {})
    if form:
        settings |= {"quantization_config": quantization.quantization_settings(form, dtype), "device_map": {"": device}}
    try:
        model, report = _from_pretrained(folder, files, dtype, settings | quantization.unpacking(saved))
        if unpacked and not placement:
            model = model.to(dtype)  # they are unpacked in bfloat16, beside others that are in `dtype`
        model = quantization.settle(model) if form else model if placement else model.to(device)
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise MemoryError(_too_large(name, weights, dtype, device, needed, form)) from error
    except pickle.UnpicklingError:  # without torch's message, which advises to run the code in the file
        raise ValueError(
            f"{where}: the pickle is broken, or holds more than weights; no code in it was run. "
            "Ask for a copy in safetensors"
        ) from None
    except Exception as error:  # transformers and torch raise nearly anything for a broken file
        raise ValueError(
            f"{name} cannot be loaded as a language model from {where}: {error} "
            "(tutorlib runs no code from a model's repository)"
        ) from error
    _check_missing(sorted(report["missing_keys"]), where)
    _check_unused(sorted(report["unexpected_keys"]), model, config, where)
    if not placement and device.type == "cpu":
        _align(model)
    return model.eval()


def _align(model) -> None:
    """Copy weights to multiples of 64 bytes, one at a time: in a file they begin anywhere, and are read more slowly."""
    for weight in model.parameters():
        if weight.data_ptr() % 64:
            weight.data = weight.data.clone()


def may_be_looped(form: quantization.Form, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether the compiled loops compute models in this form, if they are shaped like a Llama."""
    return form.name == "int8" and device.type == "cpu" and dtype == torch.float32


def load_looped(folder, name, device, dtype, tokenizer) -> EightBits | None:
    """The model in a folder, in eight bits and computed by the compiled loops; None if they do not fit it, or if there
    is no memory to read it in float32. Arguments and errors are those of `load_model`.
    """
    config = read_json(Path(folder) / "config.json")
    if quantization.saved_form(config) or not set(config.get("architectures") or ()) & set(llama.CLASSES):
        return None
    try:
        lm = LM(load_model(folder, name, device, dtype), tokenizer)
    except MemoryError:
        return None
    return EightBits(lm, release=True) if llama.of(lm.model) is not None else None


def _check_form(folder, saved, form, dtype, placement) -> None:
    """Raise ValueError if a model that is stored in the form `saved` cannot be loaded as it was asked for."""
    if form and saved:
        raise ValueError(
            f"{folder} holds a model that is already quantized ({saved}, says its config.json), and quantize= asks "
            f"for {form.name}: load it without quantize=, or take the original"
        )
    if saved in quantization.UNPACKED and placement and dtype != torch.bfloat16:
        raise ValueError(f'{folder} holds weights in {saved}: with a device_map, they take dtype="bfloat16" alone')


def _from_pretrained(folder, files, dtype, settings: dict):
    """The model, and transformers' report on the tensors that it found."""
    with hub.quiet():
        return memory.auto_class(_read_config(folder)).from_pretrained(
            folder,
            dtype=dtype,
            use_safetensors=files[0].suffix == ".safetensors",
            weights_only=True,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
            **settings,
        )


def _check_missing(missing: list[str], where) -> None:
    if missing:
        raise ValueError(
            f"{where}: {len(missing)} of the model's tensors are missing, {missing[0]} among "
            "them; the weights do not belong to the config.json beside them"
        )


def _read_config(folder):
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)


def _check_unused(unused, model, config, where) -> None:
    """Raise ValueError if tensors of a file that are no part of the model are further layers of it; warn of others."""
    first = getattr(model.config.get_text_config(), "num_hidden_layers", 0)
    predicting = range(first, first + prediction_layers(config))
    layers = {_any_layer(name) for name in model.state_dict()}
    ahead = [name for name in unused if _layer(name) in predicting or "mtp" in name]
    further = [name for name in unused if _any_layer(name) in layers and name not in ahead]
    if further:  # ignoring them would give another model
        raise ValueError(
            f"{where}: {len(further)} tensors are of more layers than the config.json beside them says, {further[0]} "
            "among them: the two do not belong together. (If they are layers for multi-token prediction, it must say "
            'how many: "num_nextn_predict_layers".)'
        )
    inside = formats.INSIDE["medusa"] if "medusa_num_heads" in config else None
    unused = [name for name in unused if not (inside and name.startswith(inside))]  # `load_medusa` reads them
    if unused:
        why = "layers for multi-token prediction, with which no method here drafts" if ahead else "no part of the model"
        warnings.warn(
            f"{where}: not all tensors are used ({len(unused)} are not, {(ahead or unused)[0]} among them: {why})",
            stacklevel=2,
        )


def _layer(name: str) -> int | None:
    """The number of a tensor's layer, by its name."""
    found = re.search(r"\.(\d+)\.", name)
    return int(found[1]) if found else None


def _any_layer(name: str) -> str:
    """The name of a tensor, without the number of its layer."""
    return re.sub(r"\.\d+\.", ".N.", name, count=1)


def load_tokenizer(folder):
    from transformers import AutoTokenizer

    if not hub.has_tokenizer(folder):
        return None
    try:
        with hub.quiet():
            return AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # as above
        raise ValueError(f"the tokenizer in {folder} cannot be loaded: {error}") from error


def _free(device) -> float:
    """Free bytes of memory on a device."""
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + cached
    return psutil.virtual_memory().available  # Linux kills a process that takes too much memory, so check first


def _bytes_needed(folder, weights, dtype, form) -> float:
    """How many bytes the weights will take in memory."""
    if form is None:
        return weights * dtype.itemsize
    double = form.double if form.name == "nf4" else None
    with hub.quiet():
        try:
            config = _read_config(folder)
            memory.auto_class(config)
        except (OSError, ValueError, KeyError):  # loading will report what is wrong with it
            return 0
        return memory.predicted(config, dtype=dtype, quantize=form.name, double_quantization=double).weights


def _too_large(name, weights, dtype, device, needed, form) -> str:
    free, kept = _free(device) / 1e9, str(dtype).removeprefix("torch.")
    smaller = largest_family(free, needed / weights, weights / 1e6)
    again = f", quantize={form.name!r}" if form else ""
    fewer = [] if form and form.name == "nf4" else ["quantize='nf4'"] if form else ["dtype=", "quantize="]
    return (
        f"{name} does not fit: {weights / 1e6:,.0f} million weights in {form or kept} take "
        f"{needed / 1e9:.1f} GB, and {device} has {free:.1f} GB free. Take a smaller family, "
        f"load({smaller!r}{again})" + f", or fewer bytes a weight ({', '.join(fewer)})" * bool(fewer)
    )
