"""Texts of a target in one small file, so that heads can be trained without writing them again.

Writing texts takes as long as training does. A file holds all of them as plain arrays, two bytes a token where the
vocabulary allows it, and notes how they were made. What this file does not do: sample texts (`sampled_texts`).
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...disk import replacing
from .sampled_texts import SampledText

PARTS = ("train", "held_out")


def write_texts(path, train: Sequence[SampledText], held_out: Sequence[SampledText], made: dict) -> Path:
    """Write texts to a compressed ``.npz`` file, completely or not at all.

    Parameters
    ----------
    path : path
    train, held_out : sequences of SampledText
    made : dict
        How they were made, for the log of what is trained: plain numbers and strings.

    Returns
    -------
    the path
    """
    arrays: dict[str, Any] = {"made": np.frombuffer(json.dumps(made).encode(), dtype=np.uint8)}
    for name, texts in zip(PARTS, (train, held_out), strict=True):
        tokens = np.array([token for text in texts for token in text.tokens], dtype=np.int64)
        small = np.uint16 if tokens.max(initial=0) < 2**16 else np.uint32
        arrays[name] = tokens.astype(small)
        places = [(len(text.tokens), text.own, text.low_from) for text in texts]
        arrays[f"{name} places"] = np.array(places, dtype=np.uint32).reshape(-1, 3)
    with replacing(path, sum(array.nbytes for array in arrays.values())) as fresh, open(fresh, "wb") as file:
        np.savez_compressed(file, **arrays)
    return Path(path)


def read_texts(path, vocab_size: int) -> tuple[list[SampledText], list[SampledText], dict]:
    """The texts of a file: those for training, those held out, and how they were made.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is damaged, holds something else, or has tokens that a vocabulary of this size has not.
    """
    path, found = Path(path), []
    try:
        with np.load(path, allow_pickle=False) as stored:
            made = json.loads(stored["made"].tobytes())
            for name in PARTS:
                tokens, places = stored[name], stored[f"{name} places"]
                ends = places[:, 0].cumsum()
                if ends[-1:].sum() != len(tokens) or (places[:, 1:] > places[:, :1]).any():
                    raise ValueError("lengths and tokens do not fit")
                rows = np.split(tokens, ends[:-1]) if len(places) else []
                found.append(
                    [SampledText(row.tolist(), *map(int, at[1:])) for row, at in zip(rows, places, strict=True)]
                )
    except FileNotFoundError:
        raise
    except (ValueError, KeyError, IndexError, EOFError, OSError, zipfile.BadZipFile, json.JSONDecodeError) as error:
        raise ValueError(f"{path} holds no texts, or is damaged ({error}): write it again, or leave it out") from error
    largest = max((max(text.tokens, default=0) for texts in found for text in texts), default=0)
    if largest >= vocab_size:
        raise ValueError(
            f"{path} has the token {largest}, and the target's vocabulary has {vocab_size}: these texts are of another "
            "target"
        )
    return found[0], found[1], made
