"""The texts that all trainings for a target share, of a model known by name.

What this file does not do: tell them (`own_text`), or learn anything from them (`learner`).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from ..models import Family
from .devices import ALONE, Devices
from .own_text import OwnText, Telling, own_texts


class Told(NamedTuple):
    """A target's own texts.

    Attributes
    ----------
    base : str
        The target's name, which files of heads note.
    place : path
        The folder of all that is made for it on the way: texts, checkpoints, logs.
    train, held_out : lists of OwnText
        To learn from, and to measure with.
    setting : dict
        How they were told, for the log.
    """

    base: str
    place: Path
    train: list[OwnText]
    held_out: list[OwnText]
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
    return Told(base, place, *told, setting)
