"""The texts that all trainings for a target share.

What this file does not do: sample them (`sampled_texts`), or train on them (`learner`).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

from ...arguments import check_whole_number
from ...loading.models import Family
from .devices import ALONE, Devices
from .sampled_texts import SampledText, TextSettings, sampled_texts
from .text_files import read_texts

LINES_OF_JSON = (".jsonl", ".ndjson")  # the names of files with JSON on each line end so, in letters of either case


class TargetTexts(NamedTuple):
    """Texts sampled from a target.

    Attributes
    ----------
    base : str
        The target's name, which files of heads note.
    place : path
        The folder of all that is made for it on the way: texts, checkpoints, logs.
    train, held_out : lists of SampledText
        To learn from, and to measure with.
    setting : dict
        How they were sampled, for the log.
    """

    base: str
    place: Path
    train: list[SampledText]
    held_out: list[SampledText]
    setting: dict


def read_prompts(file: str | Path, family: Family) -> list[list[int]]:
    """The prompts in a file as tokens; see `family_texts` for what a line may hold. A line ends with a line feed alone.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is no text in UTF-8, holds no prompt, holds JSON under a name that says text, or has a line that is no
        prompt. The message names the file and the prompt.
    """
    file = Path(file)
    try:
        text = file.read_text(encoding="utf-8-sig")  # a byte order mark is no part of the first prompt
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is no text in UTF-8 ({error}): save it in UTF-8") from None
    # Not `splitlines`: JSON may hold U+2028, U+0085 and other characters that it takes for the ends of lines.
    lines = [line for line in text.split("\n") if line.strip()]
    if not lines:
        raise ValueError(f"{file} holds no prompt: write one on each line, or leave the file out")
    if file.suffix.lower() not in LINES_OF_JSON:
        if file.suffix.lower() == ".json" or _holds_an_object(lines[0]):
            raise ValueError(
                f"{file} holds JSON, and would be read as plain text: write one object on each line, and let the "
                f"file's name end in {' or '.join(LINES_OF_JSON)}"
            )
        return [family.chat(line) for line in lines]
    asked = []
    for number, line in enumerate(lines, 1):
        try:
            found = json.loads(line)
            json.dumps(found, ensure_ascii=False).encode()  # raises for half of a pair of surrogates
            match found:
                case {"messages": list(messages)}:
                    asked.append(family.chat(messages))
                case {"prompt": str(text)}:
                    asked.append(family.target.prompt_tokens(text))
                case other:
                    raise ValueError(f'expected {{"messages": [...]}} or {{"prompt": "..."}}, got {other!r}')
        except (ValueError, RecursionError) as error:  # a JSONDecodeError is a ValueError too
            raise ValueError(f"{file}, prompt {number}: {error}") from error
    return asked


def _holds_an_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def family_texts(
    family: Family,
    runs,
    *,
    texts: int = 4096,
    held_out: int = 256,
    length: int = 256,
    low_share: float = 0.5,
    temperature: float = 0.1,
    prompts: str | Path | None = None,
    devices: Devices = ALONE,
    progress: bool = True,
) -> TargetTexts:
    """Sample texts from a family's target, or read those that were sampled before.

    Parameters
    ----------
    family : Family
    runs : path
        A subfolder of it is kept for the family: who is stopped goes on from there, and all heads share the texts.
    texts, held_out : int
        How many to learn from, and to measure with.
    length, low_share, temperature :
        How they are sampled, see `sampled_texts.TextSettings`.
    prompts : path, optional
        A file with a prompt on each line, each asked in the chat format of a model that has one. In a file that ends
        in .jsonl or .ndjson each line is JSON instead: {"messages": [...]} for a chat of several messages (see
        `Family.chat`), or {"prompt": "..."} for the opening of a text that the model goes on with.

    Raises
    ------
    ValueError
        As `sampled_texts.sampled_texts` does; for a file without a prompt, or with a line that is not a prompt.
    """
    place = Path(runs) / _plain(family.name)
    asked = read_prompts(prompts, family) if prompts else []
    train, measured = (
        sampled_texts(
            family.target,
            count,
            place / f"{seed} texts",
            TextSettings(length, low_share, temperature, seed),
            prompts=asked,
            devices=devices,
            progress=progress,
        )
        for seed, count in (("train", texts), ("held out", held_out))
    )
    setting = {"texts": texts, "held_out": held_out, "length": length, "cold": low_share, "temperature": temperature}
    return TargetTexts(_base(family), place, train, measured, setting)


def written_texts(family: Family, runs, file, *, texts: int = 4096, held_out: int = 256) -> TargetTexts:
    """The texts of a file that ``train texts`` has written, in place of new ones; see `family_texts`.

    Parameters
    ----------
    texts, held_out : int
        The most to learn from, and to measure with. If the file holds fewer, all are taken.

    Raises
    ------
    ValueError
        As `text_files.read_texts` does; if the texts are another target's; for a number below 1.
    """
    train, measured, made = read_texts(file, family.target.vocab_size)
    base = _base(family)
    if made.get("target") != base:
        raise ValueError(f"the texts in {file} are those of {made.get('target')}, and heads for {base} need its own")
    for name, count in (("--texts", texts), ("--held-out", held_out)):
        check_whole_number(count, 1, f"{name} is how many texts are taken from {file}")
    train, measured = train[:texts], measured[:held_out]
    setting = {**made, "texts": len(train), "held_out": len(measured), "written": Path(file).name}
    setting["texts_command"] = setting.pop("command", None)
    return TargetTexts(base, Path(runs) / _plain(family.name), train, measured, setting)


def _base(family: Family) -> str:
    """The target's name, which files of heads note."""
    return family.published.target.hub if family.published else family.name


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name)
