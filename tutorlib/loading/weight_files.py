"""The files of weights in a folder, looked at before anything in them is loaded.

What this file does not do: find or download folders (`hub`), or load what is in them (`models`, `loading.formats`).
"""

from __future__ import annotations

import math
import re
from pathlib import Path

from ..disk import plain_name, read_json

ADAPTER = "adapter_config.json"


def weight_files(folder, names=("model.safetensors", "pytorch_model.bin")) -> list[Path]:
    """The files with the weights in a folder, which may be missing: those of the first of `names` that is there.

    A file in several parts (shards) is listed in an index, `NAME.index.json`; then these are its parts.
    """
    for single in names:
        path, index = Path(folder) / single, Path(folder) / f"{single}.index.json"
        if path.is_file():
            return [path]
        if index.is_file():
            return [Path(folder) / name for name in sorted(set(shards(index).values()))]
    return []


def shards(index: Path) -> dict[str, str]:
    """Which file beside an index has which tensor: {tensor: file}. A ValueError if it names anything else."""
    try:
        there = dict(read_json(index)["weight_map"])
        odd = [name for name in set(there.values()) if not plain_name(name)]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{index} is broken ({error!r}): download it again") from error
    if odd or not there:
        raise ValueError(f"{index} must name files beside it, got {odd[0]!r}" if odd else f"{index} names none")
    return there


def refuse_adapter(folder) -> None:
    """Raise ValueError if a folder holds an adapter of peft, which is a part of a model and not one of its own.

    With peft installed, transformers would load the model that the adapter names; without it, it would ignore the
    adapter.
    """
    place = Path(folder) / ADAPTER
    if not place.is_file():
        return
    said = read_json(place)
    said = said if isinstance(said, dict) else {}
    raise ValueError(
        f"{folder} holds an adapter of peft ({said.get('peft_type', 'of an unknown kind')}) for the model "
        f"{said.get('base_model_name_or_path') or '(not named)'}, says {ADAPTER}: merge the two, "
        "`AutoPeftModelForCausalLM.from_pretrained(FOLDER).merge_and_unload().save_pretrained(OUT)`, and load OUT"
    )


def count_weights(files) -> tuple[int, int]:
    """The number of weights in the files, and an upper bound on any size: the number of tensors or the longest side of
    one.

    Both are read from the headers only; a ValueError if a file is missing or cut off.
    """
    from safetensors import SafetensorError, safe_open

    count = most = 0
    for path in files:
        if not path.is_file():
            raise ValueError(f"{path} is missing, though the index beside it names it: download it again")
        if path.suffix != ".safetensors":
            count += path.stat().st_size // 2  # a guess: pickles of language models are mostly in half precision
            most += path.stat().st_size
            continue
        try:
            with safe_open(path, framework="pt") as tensors:
                slices = {name: tensors.get_slice(name) for name in tensors.keys()}  # noqa: SIM118
                shapes = [part.get_shape() for part in slices.values()]
                count += sum(math.prod(part.get_shape()) * _packed(name, part) for name, part in slices.items())
                most = max(most + len(shapes), *(side for shape in shapes for side in shape), 0)
        except SafetensorError as error:
            raise ValueError(
                f"{path} is truncated or altered ({path.stat().st_size} bytes; {error}): download or copy it again"
            ) from error
    return count, most


def prediction_layers(config: dict) -> int:
    """How many layers for multi-token prediction follow the model's own in its file, as its configuration says.

    Families have several keys for it: num_nextn_predict_layers, num_mtp_layers, mtp_num_hidden_layers and so on.
    """
    nested = (config, *(value for value in config.values() if isinstance(value, dict)))
    said = [value for settings in nested for key, value in settings.items() if _PREDICTION.search(key)]
    return max((value for value in said if type(value) is int), default=0)


_PREDICTION = re.compile(r"(?=.*(nextn|mtp))(?=.*(layers|modules))")


def _packed(name: str, part) -> int:
    """How many weights an element of a tensor holds: bytes are two weights of four bits each, as in MXFP4."""
    return 2 if part.get_dtype() == "U8" and "scale" not in name else 1


_SIZES = {  # in any configuration of a language model: no such number is larger than a side of a tensor, or than all
    *("vocab_size", "hidden_size", "intermediate_size", "head_dim", "n_embd", "n_inner", "d_model", "ffn_dim"),
    *("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "n_layer", "n_head", "num_layers"),
    *("n_positions", "num_experts", "num_local_experts", "word_embed_proj_dim"),
}


def check_config(place, most):
    """Raise ValueError if a size in a configuration is larger than anything in its weights, before a model is made from
    it.
    """
    config = read_json(place)
    if not isinstance(config, dict):
        raise ValueError(f"{place} must hold an object with keys and values, got {str(config)[:80]!r}")
    for settings in (config, *(value for value in config.values() if isinstance(value, dict))):
        for key in _SIZES & settings.keys():
            if isinstance(settings[key], int) and not 0 < settings[key] <= most:
                raise ValueError(
                    f"{place}: {key} is {settings[key]}, expected 1 to {most}, by the number and the sides of the "
                    "tensors beside it: the two do not belong together; download or copy them again"
                )
