"""What trainings on a target's own texts have in common: the texts of a model known by name, and the log they leave.

What this file does not do: tell the texts (`own_text`), or learn anything from them (`medusa`, `eagle`).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ..disk import write_text
from ..lm import LM
from ..models import Family
from .devices import ALONE, Devices
from .own_text import Telling, Text, own_texts


class Told(NamedTuple):
    """A target and its own texts.

    Attributes
    ----------
    target : LM
    base : str
        Its name, which files of heads note.
    place : path
        The folder of all that is made for it on the way: texts, checkpoints, logs.
    train, held_out : lists of Text
        To learn from, and to measure with.
    setting : dict
        How they were told, for the log.
    """

    target: LM
    base: str
    place: Path
    train: list[Text]
    held_out: list[Text]
    setting: dict


def tell(
    family: Family,
    runs,
    *,
    texts: int = 4096,
    held_out: int = 256,
    length: int = 256,
    cold: float = 0.5,
    temperature: float = 0.1,
    prompts: str | Path | None = None,
    devices: Devices = ALONE,
    progress: bool = True,
) -> Told:
    """Have a family's target tell texts, or read those that it has told.

    Parameters
    ----------
    family : Family
    runs : path
        A subfolder of it is kept for the family: who is stopped goes on from there, and all heads share the texts.
    texts, held_out : int
        How many to learn from, and to measure with.
    length, cold, temperature :
        How they are told, see `own_text.Telling`.
    prompts : path, optional
        A file with a prompt on each line, in the chat format of a model that has one.

    Raises
    ------
    ValueError
        As `own_text.own_texts` does; for a file without a prompt.
    """
    place = Path(runs) / re.sub(r"[^\w.-]", "_", family.name)
    lines = Path(prompts).read_text(encoding="utf-8").splitlines() if prompts else []
    asked = [family.chat(line) for line in lines if line.strip()]
    if prompts and not asked:
        raise ValueError(f"{prompts} holds no prompt: write one on each line, or leave the file out")
    told = [
        own_texts(
            family.target,
            count,
            place / f"{seed} texts",
            Telling(length, cold, temperature, seed),
            prompts=asked,
            devices=devices,
            progress=progress,
        )
        for seed, count in (("train", texts), ("held out", held_out))
    ]
    base = family.published.target.hub if family.published else family.name
    setting = {"texts": texts, "held_out": held_out, "length": length, "cold": cold, "temperature": temperature}
    return Told(family.target, base, place, *told, setting)


def write_log(folder: Path, command: Sequence[str], settings: dict, accuracies: dict, log: list[dict]) -> None:
    """Write ``training_log.json``: how to make a folder's heads again, what they were made with, what came of it."""
    folder.mkdir(parents=True, exist_ok=True)
    told = {"command": shlex.join(command), **settings, "accuracies": accuracies, "log": log}
    write_text(folder / "training_log.json", json.dumps(told, indent=1) + "\n")
