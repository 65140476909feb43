"""The files of an n-gram model: a configuration, and the arrays of its trie in the smallest types that suffice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from ...arguments import is_number
from ...disk import read_json
from ...model.lm import LM
from ...model.ngram import Level, NgramLM
from .files import CONFIG, check_names, read_folder, whole_number, write_folder

KIND = "ngram"  # `model_type` in config.json


def is_ngram(folder) -> bool:
    """Whether a folder contains an n-gram model."""
    try:
        return read_json(Path(folder) / CONFIG).get("model_type") == KIND
    except (OSError, ValueError, AttributeError):
        return False


def save_ngram(lm: NgramLM, folder, *, base: str = "") -> Path:
    """Write an n-gram model to a folder: ``config.json`` and ``model.safetensors``, in the smallest types that suffice.

    Parameters
    ----------
    lm : NgramLM
    folder : path
        Created if it is missing.
    base : str
        The name of the model whose texts were counted.

    Returns
    -------
    path of the file with the counts
    """
    config = {
        "model_type": KIND,
        "vocab_size": lm.vocab_size,
        "order": lm.order,
        "discounts": lm.discounts,
        "vocabulary": vocabulary_checksum(lm.tokenizer),
        "base_model_name_or_path": base,
    }
    path = write_folder(folder, KIND, config, as_tensors(lm), pickled=False)
    path.chmod(0o644)  # safetensors are written as private
    return path


def load_ngram(folder, target: LM) -> NgramLM:
    """Read an n-gram model to be used as a draft for a target.

    Raises
    ------
    ValueError
        If a file is missing, incomplete or inconsistent (the message names the file), or if the model counted the
        tokens of another vocabulary than the target's.
    """
    _, config, tensors, place, path = read_folder(folder, _layout_of)
    order, size = whole_number(config, "order", 0, place), whole_number(config, "vocab_size", 1, place)
    if size != target.vocab_size or config.get("vocabulary") not in (None, vocabulary_checksum(target.tokenizer)):
        base = config.get("base_model_name_or_path") or "another model"
        raise ValueError(
            f"{folder} counts the {size} tokens of {base}, but the target has another vocabulary, of "
            f"{target.vocab_size}: count texts of its own with `python -m tutorlib train ngram`"
        )
    names = [_names(length, order) for length in range(order + 1)]
    check_names(tensors, {name: name for level in names for name in level.values()}, path)
    levels = []
    for level in names:
        arrays: dict = {"tokens": np.arange(size), "children": None}
        arrays |= {part: tensors[name].numpy() for part, name in level.items()}
        levels.append(Level(**arrays))
    _check(levels, size, path)
    discounts = config.get("discounts")
    if (
        not isinstance(discounts, list)
        or len(discounts) != order + 1
        or not all(is_number(d) and 0 < d <= 1 for d in discounts)
    ):
        raise ValueError(f"{place}: discounts must be {order + 1} numbers above 0 and up to 1, got {discounts!r}")
    return NgramLM(levels, discounts, tokenizer=target.tokenizer, stop_tokens=target.stop_tokens, device=target.device)


def vocabulary_checksum(tokenizer) -> str | None:
    """A checksum by which vocabularies can be compared; None without a tokenizer."""
    if tokenizer is None:
        return None
    return hashlib.sha256(json.dumps(sorted(tokenizer.get_vocab().items())).encode()).hexdigest()


def as_tensors(lm: NgramLM) -> dict[str, torch.Tensor]:
    """The tensors that are stored for an n-gram model, by their names in the file."""
    return {
        name: torch.from_numpy(array.astype(np.min_scalar_type(int(array.max(initial=0)))))
        for length, level in enumerate(lm.levels)
        for part, name in _names(length, lm.order).items()
        for array in (getattr(level, part),)
    }


def _names(length: int, order: int) -> dict[str, str]:
    """The names of the arrays that are stored for a level. The first has all tokens, and the last no children."""
    parts = ["tokens"] * (length > 0) + ["counts"] + ["children"] * (length < order)
    return {part: f"{length + 1}.{part}" for part in parts}


def _layout_of(config: dict, place: Path) -> str:
    if config.get("model_type") != KIND:
        raise ValueError(f"{place} is not of an n-gram model: its model_type is {config.get('model_type')!r}")
    return KIND


def _check(levels: Sequence[Level], size: int, path: Path) -> None:
    """Raise ValueError if the arrays are not a trie of counts."""
    above, parents = np.array([size]), np.array([np.iinfo(np.int64).max])
    for length, level in enumerate(levels, 1):
        arrays = [array for array in level if array is not None]
        if any(array.dtype.kind not in "iu" or array.ndim != 1 or array.min(initial=0) < 0 for array in arrays):
            raise ValueError(f"{path}: the arrays of {length}-grams must be rows of whole numbers, 0 or more")
        tokens, counts = level.tokens.astype(np.int64), level.counts.astype(np.int64)
        ends = np.cumsum(above)
        if {len(array) for array in arrays} != {int(ends[-1])}:
            raise ValueError(f"{path}: there must be {int(ends[-1])} {length}-grams, by the numbers of those before")
        if tokens.max(initial=0) >= size or (np.diff(tokens) <= 0)[~np.isin(np.arange(1, len(tokens)), ends)].any():
            raise ValueError(f"{path}: the tokens of {length}-grams must be below {size} and in ascending order")
        sums = np.diff(np.append(0, np.cumsum(counts))[np.append(0, ends)])
        if (sums > parents).any():
            raise ValueError(f"{path}: some {length}-grams were seen more often than what they begin with")
        if level.children is not None:
            above, parents = level.children.astype(np.int64), counts
