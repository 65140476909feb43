"""Texts sampled from a target, for training drafts of this target. This works for any target and needs no data.

Each text is sampled by a temperature schedule: some begin at temperature 1, for variety, and continue at a low
temperature, similar to the texts of greedy decoding. The texts are stored in files with several texts each. A file is
written completely or not at all, and its contents depend only on its number. So if the program is stopped, it
continues after the last file and writes the same texts.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from tqdm import tqdm

from ...disk import differences, read_json, write_text
from ...model.lm import LM
from .devices import ALONE, Devices


class SampledText(NamedTuple):
    """A text that was sampled from a model.

    Attributes
    ----------
    tokens : list of int
        The prompt and its continuation, including the end-of-text token if there was one.
    own : int
        The index at which the model's own tokens begin.
    low_from : int
        The index at which the tokens drawn at the low temperature begin; len(tokens) if there are none.
    """

    tokens: list[int]
    own: int
    low_from: int


@dataclass(frozen=True)
class TextSettings:
    """How texts are sampled.

    Attributes
    ----------
    length : int
        The largest number of tokens in a text, including the prompt.
    low_share : float
        The share of texts whose temperature schedule ends low, from 0 to 1.
    temperature : float
        The low temperature of their schedule.
    seed : str
        Different seeds give different texts.
    rows : int
        The number of texts that are generated together and stored in a file.
    """

    length: int = 256
    low_share: float = 0.5
    temperature: float = 0.1
    seed: str = "train"
    rows: int = 64

    def __post_init__(self):
        if self.length < 8 or self.rows < 1:
            raise ValueError(f"texts need length >= 8 and rows >= 1, got {self.length} and {self.rows}")
        if not 0 <= self.low_share <= 1 or not 0 < self.temperature <= 1:
            raise ValueError(
                "low_share is from 0 to 1 and temperature above 0 and up to 1, "
                f"got {self.low_share}, {self.temperature}"
            )


def sampled_texts(
    lm: LM,
    count: int,
    folder,
    settings: TextSettings | None = None,
    *,
    prompts: Sequence[Sequence[int]] = (),
    devices: Devices = ALONE,
    progress: bool = True,
) -> list[SampledText]:
    """Let a model write `count` texts, or read those that it has already written.

    Parameters
    ----------
    lm : LM
    count : int
    folder : path
        The folder of the texts, created if it is missing. A second call writes only the texts that are missing.
    settings : TextSettings, optional
    prompts : sequence of sequences of int, optional
        The beginnings of the texts, used in turn; by default only the start token.
    devices : Devices
        Several processes write different files.
    progress : bool
        Show a progress bar on the standard error stream.

    Raises
    ------
    ValueError
        If the folder contains texts of another model or with other settings, or another process is writing texts there;
        if a prompt leaves no room; if there is neither a prompt nor a start token.
    """
    settings, folder = settings or TextSettings(), Path(folder)
    prompts = [lm.prompt_tokens(prompt) for prompt in prompts] or [[start_token(lm)]]
    length = min(settings.length, lm.context)
    longest = max(map(len, prompts))
    if longest >= length:
        raise ValueError(f"a prompt has {longest} tokens, which leaves no room in texts of {length}: shorten it")
    digest = hashlib.sha256(json.dumps(prompts).encode()).hexdigest()
    files = [folder / f"{number:05}.json" for number in range(-(-count // settings.rows))]
    missing = [number for number, file in enumerate(files) if not file.exists()]
    with devices.keep(folder) if missing else contextlib.nullcontext():  # texts that are there may be shared
        # The key of the share is older than its name: folders that were begun before the renaming are continued.
        stored = {"cold" if name == "low_share" else name: value for name, value in vars(settings).items()}
        claim(folder, {"model": weights_fingerprint(lm.model), "prompts": digest, **stored}, devices)
        bar = tqdm(
            total=len(files), initial=len(files) - len(missing), disable=not (progress and devices.first), unit="file",
            desc=f"{settings.seed} texts", dynamic_ncols=True,
        )  # fmt: skip
        with bar:
            for number in missing:
                if number % devices.processes != devices.rank:  # by number: others may have written some by now
                    continue
                places = range(number * settings.rows, (number + 1) * settings.rows)
                seed = f"{settings.seed} {number}"
                texts = _sampled(lm, [prompts[i % len(prompts)] for i in places], length, settings, seed)
                write_text(files[number], json.dumps(texts))
                bar.update(min(devices.processes, len(files) - bar.n))
        devices.wait()
    return [text for file in files for text in _read(file)][:count]


def _read(file):
    cure = "delete it to have these texts sampled anew"
    try:
        return [SampledText(*text) for text in read_json(file, cure)]
    except TypeError as error:
        raise ValueError(f"{file} holds no texts ({error}): {cure}") from error


def _sampled(lm, prompts, length, settings, seed) -> list[SampledText]:
    """Write one text for each prompt, all in one batch; finished texts leave the batch.

    One generator draws for all rows, on the model's device. `sample_batch` has one for each row, on the processor, and
    one warp for all: a GPU would wait for it, and no text could have a temperature schedule of its own.
    """
    plan = random.Random(seed)
    generator = torch.Generator(lm.device).manual_seed(plan.getrandbits(60))
    low_from = [
        len(prompt) + plan.randrange(max(1, (length - len(prompt)) // 2))
        if plan.random() < settings.low_share
        else length
        for prompt in prompts
    ]
    rows, going = [list(prompt) for prompt in prompts], list(range(len(prompts)))
    batch, fresh = lm.batch(prompts), [[] for _ in prompts]
    while True:
        logits = torch.stack([last[-1] for last in batch.feed(fresh)]).float()
        degrees = [settings.temperature if len(rows[i]) >= low_from[i] else 1.0 for i in going]
        probs = (logits / torch.tensor(degrees, device=lm.device)[:, None]).softmax(-1)
        drawn = torch.multinomial(probs, 1, generator=generator)[:, 0].tolist()
        for i, token in zip(going, drawn, strict=True):
            rows[i].append(token)
        staying = [k for k, i in enumerate(going) if drawn[k] not in lm.stop_tokens and len(rows[i]) < length]
        if not staying:
            return [
                SampledText(row, len(prompt), min(first, len(row)))
                for row, prompt, first in zip(rows, prompts, low_from, strict=True)
            ]
        if len(staying) < len(going):
            batch.reorder(staying)
            going = [going[k] for k in staying]
        fresh = [[rows[i][-1]] for i in going]


def start_token(lm: LM) -> int:
    """The token that the model's texts begin with, according to its tokenizer or its settings."""
    config = lm.model.config.get_text_config()
    for place, name in ((lm.tokenizer, "bos_token_id"), (config, "bos_token_id"), (lm.tokenizer, "eos_token_id")):
        token = getattr(place, name, None)
        if isinstance(token, int) and 0 <= token < lm.vocab_size:
            return token
    raise ValueError("this model has no start token for its texts to begin with: give prompts")


def weights_fingerprint(model) -> str:
    """A fingerprint from a few numbers of each weight, which differs between models and changes with training."""
    digest = hashlib.sha256()
    for name, weight in model.state_dict().items():
        digest.update(f"{name} {tuple(weight.shape)}".encode())
        digest.update(weight.flatten()[:16].float().cpu().numpy().tobytes())
    return digest.hexdigest()


def claim(folder, setting: dict, devices: Devices = ALONE) -> None:
    """Store the settings of a folder's files in the folder; raise ValueError if they were made with other settings."""
    folder = Path(folder)
    file = folder / "setting.json"
    if devices.first:
        folder.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            write_text(file, json.dumps(setting, indent=1) + "\n")
    devices.wait()
    other = differences(read_json(file, "delete this folder to start anew"), setting)
    if other:
        raise ValueError(f"{folder} was begun with {other}: use another folder, or delete this one to start anew")


def hidden_states(model, tokens: torch.Tensor, layers: Sequence[int]) -> dict[int, torch.Tensor]:
    """Hidden states (rows, length, width) of the given layers for tokens (rows, length), by layer."""
    states = model.get_decoder()(input_ids=tokens, use_cache=False, output_hidden_states=True).hidden_states
    return {layer: states[layer] for layer in layers}


def best_tokens(lm: LM, states: torch.Tensor) -> torch.Tensor:
    """The target's most likely token after each token, int64 (rows, length), from its last states (rows, length,
    width).
    """
    # Text by text, because the logits of a whole batch may be larger than all its hidden states.
    return torch.stack([lm.read_out(state, normed=True).argmax(-1) for state in states])


def padded(rows: Sequence[Sequence[int]], device) -> torch.Tensor:
    """Rows of tokens as one tensor (rows, longest), padded on the right with token 0."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows], dtype=torch.int64, device=device)


def frequent(texts: Sequence[SampledText], count: int, vocab_size: int) -> list[int]:
    """The most frequent tokens in texts, ascending. If too few tokens occur, the first ones of the vocabulary are
    added.
    """
    check_vocabulary(count, vocab_size)
    counts = Counter(token for text in texts for token in text.tokens)
    order = sorted(range(vocab_size), key=lambda token: (-counts[token], token))
    if max(order[:count]) < count < vocab_size:
        # The map of the vocabulary's first tokens is all zeros, in files the sign of one that was never filled.
        order[count - 1], order[count] = order[count], order[count - 1]
    return sorted(order[:count])


def check_vocabulary(count: int, vocab_size: int) -> None:
    """Raise ValueError if heads cannot know this number of the target's tokens."""
    if not 1 <= count <= vocab_size:
        raise ValueError(f"the vocabulary must have from 1 to {vocab_size} tokens, the target's, got {count}")
