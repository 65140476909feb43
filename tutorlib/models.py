"""Which models there are, and how they are loaded.

A family is a target with the drafts that go with it. `load()` gives the bundled family, or a published one on a machine
with a GPU; `load("gpt2")` a published one; `load("path/to/directory")` or `load("owner/name")` any other. `families()`
lists the published ones. What this file does not do: train (`training`), or decode (`decoders`).

Nothing is printed, and nothing from a model's repository is executed: weights are safetensors or, where a repository
has none, pickles read with `weights_only`. What is on this machine is used as it is; what is missing is downloaded.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import hashlib
import json
import math
import os
import pickle
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from .disk import full, plain_name, read_json, room_in, write_text
from .heads import formats
from .heads.eagle import Eagle3Head, EagleHead
from .heads.medusa import MedusaHeads
from .lm import LM

WEIGHTS = Path(__file__).parent / "weights"
BUNDLED = "storyworld"
ON_A_GPU = "gpt2"  # the published family that `load()` gives where there is a GPU: open, and without a chat format
ENVIRONMENT = "TUTORLIB_MODELS"
CHECKSUMS = "checksums.json"

_ROLES = ("target", "draft", "other_draft")
_HEADS = ("medusa", "eagle", "eagle3")  # networks on top of the target, which need no tokenizer
_UNCHECKED = ("*.md", ".*", "training_log.json", "figures.json", CHECKSUMS)  # in a family's folder, but not loaded
_SMALL_FILES = ["*.json", "*.jinja", "*.txt", "*.model"]  # of a hub repository: all but the weights
_T4 = 15.0  # GB
_RESERVE = 2.0  # GB beside the weights: cache, logits, and what CUDA takes for itself


@dataclass(frozen=True)
class Model:
    """A published model.

    Attributes
    ----------
    hub : str
        Its name on the hub.
    parameters : float
        In millions.
    download : float
        Size of its weights as published, in GB.
    licence : str
    gated : bool
        Whether its licence has to be accepted on the hub before it can be downloaded.
    """

    hub: str
    parameters: float
    download: float
    licence: str
    gated: bool = False

    @property
    def page(self) -> str:
        """Its address on the hub."""
        return f"https://huggingface.co/{self.hub}"


@dataclass(frozen=True, repr=False)
class Published:
    """A published target with its drafts.

    Attributes
    ----------
    name : str
        What `load` takes.
    target, draft : Model
        With one tokenizer.
    other_draft : Model, optional
        With another tokenizer.
    medusa, eagle, eagle3 : str, optional
        Hub names of published heads for the target.
    chat : str, optional
        The chat template, where the repository has none although the model wants one.
    note : str
    """

    name: str
    target: Model
    draft: Model
    other_draft: Model | None = None
    medusa: str | None = None
    eagle: str | None = None
    eagle3: str | None = None
    chat: str | None = None
    note: str = ""

    @property
    def models(self) -> list[Model]:
        """Target, draft, and the other draft if there is one."""
        return [model for model in (self.target, self.draft, self.other_draft) if model]

    @property
    def download(self) -> float:
        """Size of target and draft as published, in GB. The other draft is downloaded when it is used."""
        return self.target.download + self.draft.download

    @property
    def licence(self) -> str:
        """The licences of all its models, each once."""
        return ", ".join(dict.fromkeys(model.licence for model in self.models))

    @property
    def gated(self) -> bool:
        """Whether target or draft are."""
        return self.target.gated or self.draft.gated

    def memory(self, bytes_per_weight: float = 2) -> float:
        """GB that the weights of target and draft take; the draft's with at least 2 bytes each."""
        return (self.target.parameters * bytes_per_weight + self.draft.parameters * max(bytes_per_weight, 2)) / 1000

    @property
    def t4(self) -> str:
        """How target and draft fit a T4 of 15 GB: "float16", "4 bits" (of the target), or "no"."""
        # Four bits a weight, and half precision for embeddings and scales: about 0.7 bytes a weight.
        for way, size in (("float16", 2), ("4 bits", 0.7)):
            if self.memory(size) + _RESERVE <= _T4:
                return way
        return "no"

    def __repr__(self) -> str:
        gate = "gated" if self.gated else "open"
        return (
            f"{self.name}: {self.draft.hub} -> {self.target.hub}, {self.download:.1f} GB, {self.licence}, {gate}, "
            f"T4: {self.t4}"
        )


_VICUNA = (
    "{{ bos_token }}A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions.{% for message in messages %}"
    "{% if message.role == 'user' %} USER: {{ message.content }}"
    "{% elif message.role == 'assistant' %} ASSISTANT: {{ message.content }}{{ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %} ASSISTANT:{% endif %}"
)
_GPT2 = Model("openai-community/gpt2", 124, 0.55, "MIT")
_PYTHIA = Model("EleutherAI/pythia-70m", 70, 0.17, "Apache 2.0")
_QWEN = Model("Qwen/Qwen2.5-0.5B-Instruct", 494, 0.99, "Apache 2.0")
_SMOL = Model("HuggingFaceTB/SmolLM2-135M-Instruct", 135, 0.27, "Apache 2.0")

PUBLISHED = (
    Published("gpt2", Model("openai-community/gpt2-large", 774, 3.25, "MIT"), _GPT2, _PYTHIA),
    Published(
        "opt",
        Model("facebook/opt-1.3b", 1316, 2.63, "OPT (research only)"),
        Model("facebook/opt-125m", 125, 0.25, "OPT (research only)"),
        _PYTHIA,
        note="Published as pickles only.",
    ),
    Published("pythia", Model("EleutherAI/pythia-1.4b", 1415, 2.93, "Apache 2.0"), _PYTHIA, _GPT2),
    Published("qwen2.5", Model("Qwen/Qwen2.5-1.5B-Instruct", 1544, 3.09, "Apache 2.0"), _QWEN, _SMOL),
    Published("qwen2.5-3b", Model("Qwen/Qwen2.5-3B-Instruct", 3086, 6.17, "Qwen (research only)"), _QWEN, _SMOL),
    Published(
        "gemma-2",
        Model("google/gemma-2-9b-it", 9242, 18.5, "Gemma", gated=True),
        Model("google/gemma-2-2b-it", 2614, 5.23, "Gemma", gated=True),
        _SMOL,
        note="Made for bfloat16, which a T4 has not: float16 may overflow.",
    ),
    Published(
        "llama-2",
        Model("meta-llama/Llama-2-7b-chat-hf", 6738, 13.5, "Llama 2", gated=True),
        Model("JackFram/llama-68m", 68, 0.27, "Apache 2.0"),
        Model("google/gemma-2b", 2506, 5.01, "Gemma", gated=True),
        eagle="yuhuili/EAGLE-llama2-chat-7B",
    ),
    Published(
        "vicuna",
        Model("lmsys/vicuna-7b-v1.3", 6738, 13.5, "Llama (non-commercial)"),
        Model("double7/vicuna-68m", 68, 0.27, "Apache 2.0"),
        medusa="FasterDecoding/medusa-vicuna-7b-v1.3",
        eagle="yuhuili/EAGLE-Vicuna-7B-v1.3",
        chat=_VICUNA,
        note="Published as pickles only; its tokenizer needs `sentencepiece` and `protobuf`.",
    ),
)


def families() -> list[Published]:
    """The published families (the bundled one is not among them), each with licence, size and whether it fits a T4."""
    return list(PUBLISHED)


def load(
    name=None,
    *,
    draft=None,
    other_draft=None,
    medusa=None,
    eagle=None,
    eagle3=None,
    device=None,
    dtype=None,
    quantization=None,
) -> Family:
    """Find a family of models. Its models are loaded when they are first used.

    Parameters
    ----------
    name : str or path, optional
        - None: what the environment variable `TUTORLIB_MODELS` says; without it "storyworld", or "gpt2" where there is
          a GPU.
        - "storyworld": the bundled family.
        - A published family, by its name or its target's hub name, see `families`.
        - Any other model of the hub, as "owner/name": a family with a target only.
        - A directory that holds a model (a family with a target only), or the subdirectories target, draft,
          other_draft, medusa, eagle and eagle3, as `python -m tutorlib.training` writes them. A family's name goes
          before a directory of that name; write "./gpt2" for the directory.
    draft, other_draft, medusa, eagle, eagle3 : str or path, optional
        A hub name or a directory, in place of the family's own.
    device : str or torch.device, optional
        By default a GPU of the CUDA kind if there is one, else the processor. "mps", an Apple GPU, has to be
        asked for: probabilities are then computed on the processor, in float64. Not yet run on one.
    dtype : torch.dtype or str, optional
        By default float32 on a processor and for the bundled family; on a GPU bfloat16 if it has it, else float16.
    quantization : transformers quantization config, optional
        For the target, such as `BitsAndBytesConfig(load_in_4bit=True)`. Needs bitsandbytes and accelerate, and a GPU.
        Not yet run on one.

    Returns
    -------
    Family

    Raises
    ------
    ValueError
        For an unknown name (the nearest is suggested), device or dtype; for a directory without a model; for a file of
        the bundled family that is missing, truncated or altered.
    ConnectionError
        If a published model is not on this machine and cannot be downloaded.
    PermissionError
        If it is gated and this machine has no access.
    MemoryError
        When a model is first used, if it does not fit.

    Examples
    --------
    >>> family = load("storyworld")                                  # doctest: +SKIP
    >>> run(greedy(family.target, "Once upon a time"), max_new_tokens=40)  # doctest: +SKIP
    """
    argument = "name"
    if name is None:
        argument, name = ENVIRONMENT, os.environ.get(ENVIRONMENT)
    if not name and argument == ENVIRONMENT:
        name = ON_A_GPU if torch.cuda.is_available() else BUNDLED
    device = _device(device)
    name, sources, published, checked = _find(name, argument)
    given = {"draft": draft, "other_draft": other_draft, "medusa": medusa, "eagle": eagle, "eagle3": eagle3}
    sources |= {role: _source(place, role) for role, place in given.items() if place is not None}
    dtype = _dtype(dtype, device, checked)
    return Family(name, sources, device=device, dtype=dtype, quantization=quantization, published=published)


class Family:
    """A target, and the drafts and heads that go with it, each loaded when it is first used. Made by `load`.

    Attributes
    ----------
    name : str
    device : torch.device
    dtype : torch.dtype
    published : Published, or None
        Licence, size and so on, if it is one of the published families.
    """

    def __init__(self, name, sources, *, device, dtype, quantization=None, published=None):
        self.name, self.device, self.dtype, self.published = name, device, dtype, published
        self._sources, self._quantization = dict(sources), quantization
        # The target's settings and tokenizer are fetched at once, so that what cannot be had is found out here.
        _folder(self._sources["target"])

    def __repr__(self) -> str:
        places = ", ".join(f"{role}={str(place)!r}" for role, place in self._sources.items())
        return f"Family({self.name!r}, {places}, {self.device}, {str(self.dtype).removeprefix('torch.')})"

    @cached_property
    def target(self) -> LM:
        """The model whose words are wanted."""
        return self._load("target", self.tokenizer, self._quantization)

    @cached_property
    def draft(self) -> LM:
        """A smaller model, which writes with the target's tokenizer (see `same_tokenizer`)."""
        return self._load("draft", self._tokenizer_of("draft"))

    @cached_property
    def other_draft(self) -> LM:
        """A smaller model with a tokenizer of its own."""
        return self._load("other_draft", self._tokenizer_of("other_draft"))

    @cached_property
    def medusa(self) -> MedusaHeads:
        """Medusa heads for the target, in its type and on its device. The target is loaded with them."""
        if "medusa" not in self._sources:
            raise self._no_heads("Medusa heads", "medusa")
        folder = _heads_folder(self._sources["medusa"], formats.FILES["medusa"] + formats.FILES["vllm"])
        return formats.load_medusa(folder, target=self.target).to(self.dtype)

    @cached_property
    def eagle(self) -> EagleHead:
        """An EAGLE-1 network for the target, in its type and on its device. The target is loaded with it."""
        return self._network("eagle", EagleHead)

    @cached_property
    def eagle3(self) -> Eagle3Head:
        """An EAGLE-3 network for the target, in its type and on its device. The target is loaded with it."""
        return self._network("eagle3", Eagle3Head)

    @cached_property
    def tokenizer(self):
        """The target's tokenizer; None if its directory holds none."""
        return self._tokenizer_of("target")

    @cached_property
    def same_tokenizer(self) -> bool:
        """Whether the same ids stand for the same pieces of text in target and draft, as speculative decoding needs it.

        It is read from the tokenizers; no weights are loaded for it.
        """
        target, draft = self.tokenizer, self._tokenizer_of("draft")
        return target is not None and draft is not None and target.get_vocab() == draft.get_vocab()

    def chat(self, messages: str | Iterable[Mapping[str, str]]) -> list[int]:
        """The prompt that asks an instruct model to answer.

        Parameters
        ----------
        messages : str, or iterable of {"role": …, "content": …}
            A text is one message of the user's; roles are "user", "assistant" and, for most models, "system".

        Returns
        -------
        list of int
            Tokens, in the target's own chat format: text would get its special tokens twice. For a model without a chat
            format (a base model) the messages as plain text, a line each.

        Raises
        ------
        ValueError
            If there is no message, one is not of that form, or the format refuses them; if there is no tokenizer.
        """
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        messages = list(messages)
        wrong = [m for m in messages if not (isinstance(m, Mapping) and {"role", "content"} <= m.keys())]
        if wrong or not messages:
            raise ValueError(f'messages must each be {{"role": …, "content": …}}, got {wrong or messages!r}')
        if self.tokenizer is None:
            raise ValueError(f"the family {self.name!r} has no tokenizer to write messages with")
        if not self.tokenizer.chat_template:
            return list(self.tokenizer("\n".join(m["content"] for m in messages))["input_ids"])
        try:
            tokens = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        except Exception as error:  # templates raise whatever they like
            raise ValueError(f"the chat format of {self.name!r} refuses {messages!r}: {error}") from error
        return list(tokens)

    def _load(self, role, tokenizer, quantization=None) -> LM:
        folder = _folder(self._sources[role], weights=True)
        model = _load_model(folder, str(self._sources[role]), self.device, self.dtype, quantization)
        return LM(model, tokenizer)

    def _tokenizer_of(self, role):
        if role not in self._sources:
            raise AttributeError(
                f"the family {self.name!r} has no {role}: add one with load(…, {role}=hub name or directory)"
            )
        tokenizer = _load_tokenizer(_folder(self._sources[role]))
        if role == "target" and tokenizer is not None and not tokenizer.chat_template and self.published:
            tokenizer.chat_template = self.published.chat
        return tokenizer

    def _network(self, role, kind):
        what = {"eagle": "EAGLE network", "eagle3": "EAGLE-3 network"}
        if role not in self._sources:
            raise self._no_heads(what[role], role)
        folder = _heads_folder(self._sources[role], formats.FILES["eagle"])
        network = formats.load_eagle(folder, self.target, dtype=self.dtype)
        if not isinstance(network, kind):
            (other,) = what.keys() - {role}
            raise ValueError(f"{folder} holds an {what[other]}, expected an {what[role]}: load(…, {other}=…) takes it")
        return network

    def _no_heads(self, what, role):
        return AttributeError(
            f"the family {self.name!r} has no {what} yet: make some with `python -m tutorlib.training {role}`, and "
            f"load(…, {role}=their directory)"
        )


# Finding a family by its name.


def _find(name, argument):
    """(name, {role: hub name or folder}, its row of the table or None, whether its files have checksums)."""
    if isinstance(name, str):
        if name.casefold() == BUNDLED:
            _verify(WEIGHTS / BUNDLED)
            return BUNDLED, _models_in(WEIGHTS / BUNDLED), None, True
        for row in PUBLISHED:
            target = row.target.hub
            if name.casefold() in {other.casefold() for other in (row.name, target, target.partition("/")[2])}:
                sources = {role: getattr(row, role).hub for role in _ROLES if getattr(row, role)}
                sources |= {role: getattr(row, role) for role in _HEADS if getattr(row, role)}
                return row.name, sources, row, False
    elif not isinstance(name, os.PathLike):
        raise ValueError(f"{argument}={name!r}: expected a family's name, a hub name (owner/name) or a directory")
    folder = _directory(name)
    if folder is not None:
        checked = (folder / CHECKSUMS).is_file()
        if checked:
            _verify(folder)
        return folder.resolve().name, _models_in(folder), None, checked
    return str(name), {"target": _source(name, argument)}, None, False


def _directory(place) -> Path | None:
    """The directory of a name, if there is one."""
    try:
        folder = Path(place).expanduser()
        return folder if place and folder.is_dir() else None
    except (OSError, RuntimeError, ValueError):  # too long, of nobody's home, or with a NUL in it
        return None


def _source(place, argument) -> str | Path:
    """A folder that holds a model, or a hub name; a ValueError that says what there is for anything else."""
    folder = _directory(place)
    if folder is not None:
        return _models_in(folder)["target"]
    if isinstance(place, str) and re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", place):
        return place
    if isinstance(place, str) and place.casefold() in _hub_names():
        return _hub_names()[place.casefold()]
    families = [BUNDLED, *(row.name for row in PUBLISHED)]
    names = _hub_names() | {family: family for family in families}
    near = difflib.get_close_matches(str(place).casefold(), names, n=1, cutoff=0.5)
    hint = f" Did you mean {names[near[0]]!r}?" if near else ""
    raise ValueError(
        f"{argument}={str(place)!r} is no known model and no directory.{hint} Families: {', '.join(families)}; any hub "
        "name (owner/name) and any directory with a model will do too"
    )


def _hub_names() -> dict[str, str]:
    """The hub names in the table, by what stands after the owner, in lower case."""
    models = [model.hub for row in PUBLISHED for model in row.models]
    return {hub.partition("/")[2].casefold(): hub for hub in models}


def _models_in(folder: Path) -> dict[str, Path]:
    if (folder / "config.json").is_file():
        return {"target": folder}
    roles = {role: folder / role for role in _ROLES + _HEADS if (folder / role / "config.json").is_file()}
    if "target" not in roles:
        raise ValueError(f"{folder} holds no model: expected config.json in it, or target/config.json")
    return roles


def _device(device) -> torch.device:
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f'device={device!r}: expected "cpu", "cuda", "cuda:1" or "mps"') from error
    there = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}.get(device.type, lambda: True)
    if not there():
        raise ValueError(f"device={str(device)!r}, but this machine (or this build of torch) has none: leave it out")
    return device


def _dtype(dtype, device, bundled) -> torch.dtype:
    if dtype is None:
        if bundled or device.type != "cuda":
            return torch.float32  # half precision is slow on a processor, and gains nothing on models of this size
        return torch.bfloat16 if torch.cuda.get_device_capability(device) >= (8, 0) else torch.float16
    given = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not (isinstance(given, torch.dtype) and given.is_floating_point):
        raise ValueError(f"dtype={dtype!r}: expected float32, bfloat16, float16 or float64")
    if given == torch.float64 and device.type == "mps":
        raise ValueError('device="mps" with dtype=float64: Apple\'s GPUs have no float64; take float32, or the CPU')
    return given


# Checksums.


def write_checksums(folder) -> Path:
    """Write down size and SHA-256 of every file that loading a family reads, for `load` to compare.

    Parameters
    ----------
    folder : path
        With a subfolder for each model.

    Returns
    -------
    path of the file written: {path relative to `folder`: {"bytes": int, "sha256": str}}
    """
    folder = Path(folder)
    sums = {name: _checksum(folder / name) for name in _checked_files(folder)}
    place = folder / CHECKSUMS
    write_text(place, json.dumps(sums, indent=1) + "\n")
    return place


def _checked_files(folder) -> list[str]:
    """The files of a family that have checksums, by their paths in its folder: all that loading might look at."""
    files = [path for path in sorted(folder.glob("**/*")) if not path.is_dir()]
    files = [path for path in files if not any(path.match(pattern) for pattern in _UNCHECKED)]
    return [path.relative_to(folder).as_posix() for path in files]


def _checksum(path):
    content = path.read_bytes()
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _verify(folder):
    """Raise a ValueError that names the file if anything in the folder is not as its checksums say."""
    cure = (
        "restore it (in a clone with `git checkout`, else by installing tutorlib again), or make the models anew: "
        f"`python -m tutorlib.training storyworld --out {folder}`"
    )
    place = folder / CHECKSUMS
    try:
        sums = read_json(place, cure)
        entries = [(folder / path, entry["bytes"], entry["sha256"]) for path, entry in sums.items()]
    except FileNotFoundError:
        raise ValueError(f"{place} is missing: {cure}") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{place} holds no checksums ({error}): {cure}") from error
    added = [name for name in _checked_files(folder) if name not in sums]
    if added:
        raise ValueError(
            f"{folder / added[0]} has no checksum in {place}: remove it if it was added, {cure}; or, for files of your "
            "own, tutorlib.models.write_checksums(folder)"
        )
    for path, size, digest in entries:
        if not path.is_file():
            raise ValueError(f"{path} is missing: {cure}")
        found = _checksum(path)
        if found["bytes"] != size:
            raise ValueError(f"{path} has {found['bytes']} bytes where {size} are expected: {cure}")
        if found["sha256"] != digest:
            raise ValueError(f"{path} was altered: its checksum is {found['sha256']}, not {digest}; {cure}")


# Models on disk.


def _weight_files(folder) -> list[Path]:
    """The files that hold a model's weights, there or not: safetensors if there are any, else pickles, else none."""
    for single in ("model.safetensors", "pytorch_model.bin"):
        index = folder / f"{single}.index.json"
        if (folder / single).is_file():
            return [folder / single]
        if index.is_file():
            try:
                names = set(read_json(index)["weight_map"].values())
            except (KeyError, TypeError, AttributeError) as error:
                raise ValueError(f"{index} is broken ({error!r}): download it again") from error
            odd = [name for name in names if not plain_name(name)]
            if odd or not names:
                raise ValueError(f"{index} must name files beside it, got {odd[0]!r}" if odd else f"{index} names none")
            return [folder / name for name in sorted(names)]
    return []


def _count_weights(files) -> tuple[int, int]:
    """How many numbers the files hold, and the most of anything that there can be: tensors, or a tensor's longest side.

    Both are from their headers alone; a ValueError if one is missing or cut off.
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
                shapes = [tensors.get_slice(name).get_shape() for name in tensors.keys()]  # noqa: SIM118
                count += sum(map(math.prod, shapes))
                most = max(most + len(shapes), *(side for shape in shapes for side in shape), 0)
        except SafetensorError as error:
            raise ValueError(
                f"{path} is truncated or altered ({path.stat().st_size} bytes; {error}): download or copy it again"
            ) from error
    return count, most


_SIZES = {  # in any configuration of a language model: no such number is larger than a side of a tensor, or than all
    *("vocab_size", "hidden_size", "intermediate_size", "head_dim", "n_embd", "n_inner", "d_model", "ffn_dim"),
    *("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "n_layer", "n_head", "num_layers"),
    *("n_positions", "num_experts", "num_local_experts", "word_embed_proj_dim"),
}


def _check_sizes(place, most):
    """Raise ValueError for a configuration with a size beyond all that its weights have, before it is made."""
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


def _load_model(folder, name, device, dtype, quantization=None):
    from transformers import AutoModelForCausalLM

    files = _weight_files(folder)
    if not files:
        raise ValueError(f"{folder} holds no weights: expected model.safetensors (or pytorch_model.bin, or an index)")
    weights, most = _count_weights(files)
    _check_sizes(Path(folder) / "config.json", most)
    needed = weights * dtype.itemsize  # bytes
    settings = {"quantization_config": quantization, "device_map": {"": device}} if quantization else {}
    for place in (torch.device("cpu"), device):  # weights go through the processor's memory
        if not quantization and needed > _free(place):
            raise MemoryError(_too_large(name, weights, dtype, place))
    try:
        with _quiet():
            model, report = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=dtype,
                use_safetensors=files[0].suffix == ".safetensors",
                weights_only=True,
                trust_remote_code=False,
                local_files_only=True,
                output_loading_info=True,
                **settings,
            )
        model = model if quantization else model.to(device)
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise MemoryError(_too_large(name, weights, dtype, device)) from error
    except pickle.UnpicklingError:  # without torch's message, whose advice is to run whatever the file brings
        raise ValueError(
            f"{', '.join(map(str, files))}: the pickle is broken, or holds more than weights; no code in it was run. "
            "Ask for a copy in safetensors"
        ) from None
    except Exception as error:  # transformers and torch raise nearly anything for a broken file
        raise ValueError(
            f"{name} cannot be loaded as a language model from {', '.join(map(str, files))}: {error} "
            "(tutorlib runs no code from a model's repository)"
        ) from error
    if report["missing_keys"]:
        missing = sorted(report["missing_keys"])
        raise ValueError(
            f"{', '.join(map(str, files))}: {len(missing)} of the model's tensors are missing, {missing[0]} among "
            "them; the weights do not belong to the config.json beside them"
        )
    layers = {_any_layer(name) for name in model.state_dict()}
    further = sorted(name for name in report["unexpected_keys"] if _any_layer(name) in layers)
    if further:  # left out, they would make another model of it
        raise ValueError(
            f"{', '.join(map(str, files))}: {len(further)} tensors are of more layers than the config.json beside them "
            f"says, {further[0]} among them: the two do not belong together"
        )
    return model.eval()


def _any_layer(name: str) -> str:
    """A tensor's name with its layer's number left out."""
    return re.sub(r"\.\d+\.", ".N.", name, count=1)


def _load_tokenizer(folder):
    from transformers import AutoTokenizer

    if not _has_tokenizer(folder):
        return None
    try:
        with _quiet():
            return AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # as above
        raise ValueError(f"the tokenizer in {folder} cannot be loaded: {error}") from error


def _has_tokenizer(folder) -> bool:
    return any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"))


def _free(device) -> float:
    """Free bytes of memory on a device; infinite where there is no way to tell."""
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + cached
    try:  # Linux ends a process that takes too much without a word, so ask first
        found = re.search(r"MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        found = None
    return int(found.group(1)) * 1024 if found else math.inf


def _too_large(name, weights, dtype, device) -> str:
    free = _free(device) / 1e9
    fitting = [row for row in PUBLISHED if not row.gated and row.memory(dtype.itemsize) + _RESERVE <= free]
    smaller = [row for row in fitting if row.target.parameters < weights / 1e6]
    best = max(smaller, key=lambda row: row.target.parameters).name if smaller else BUNDLED
    return (
        f"{name} does not fit: {weights / 1e6:,.0f} million weights in {str(dtype).removeprefix('torch.')} take "
        f"{weights * dtype.itemsize / 1e9:.1f} GB, and {device} has {free:.1f} GB free. Take a smaller family, "
        f"load({best!r}), or fewer bytes a weight (dtype=, quantization=)"
    )


@contextlib.contextmanager
def _quiet(bars=False):
    """No progress bars (unless wanted), log messages or warnings while files are fetched and read."""
    import huggingface_hub.utils.logging as hub_logging
    import transformers.utils.logging as logging

    shown, levels = logging.is_progress_bar_enabled(), (logging.get_verbosity(), hub_logging.get_verbosity())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.set_verbosity_error()
        hub_logging.set_verbosity_error()
        if shown and not bars:
            logging.disable_progress_bar()
        try:
            yield
        finally:
            logging.set_verbosity(levels[0])
            hub_logging.set_verbosity(levels[1])
            if shown and not bars:
                logging.enable_progress_bar()


# Models of the hub.


def _folder(source, weights=False) -> Path:
    """Where a model's files are on this machine; they are downloaded first if they are not there."""
    if isinstance(source, Path):
        return source
    folder = _cached(source, weights)
    if folder is not None:
        return folder
    with _quiet(bars=weights):  # gigabytes without a sign of life would be worse than a progress bar
        folder = _download(source, ["model*.safetensors"] if weights else [])
        if weights and not _weight_files(folder):
            folder = _download(source, ["pytorch_model*.bin"])
    if _cached(source, weights) is None:
        raise _unreachable(source, "the files on this machine are incomplete")
    return folder


def _heads_folder(source, files) -> Path:
    """Where the files of some heads are: `config.json`, and the first of these files that there is, or that is had."""
    if isinstance(source, Path):
        return source
    if (folder := _cached_heads(source, files)) is not None:
        return folder
    with _quiet(bars=True):
        for name in files:
            if (_download(source, [name]) / name).is_file():
                break
    if (folder := _cached_heads(source, files)) is None:
        raise _unreachable(source, f"it has no config.json, or none of {', '.join(files)}")
    return folder


def _cached_heads(hub, files) -> Path | None:
    folder = _snapshot(hub)
    complete = folder and (folder / "config.json").is_file() and any((folder / name).is_file() for name in files)
    return folder if complete else None


def _snapshot(hub) -> Path | None:
    """What this machine has of a repository, whole or not."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(hub, local_files_only=True, allow_patterns=_SMALL_FILES))
    except LocalEntryNotFoundError:
        return None


def _cached(hub, weights) -> Path | None:
    folder = _snapshot(hub)
    if folder is None:
        return None
    files = _weight_files(folder) if weights else []
    complete = (folder / "config.json").is_file() and all(path.is_file() for path in files)
    return folder if complete and (files or not weights) and _has_tokenizer(folder) else None


def _download(hub, weights) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.constants import HF_HOME
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    try:
        # Subfolders hold the same weights in other formats.
        return Path(snapshot_download(hub, allow_patterns=_SMALL_FILES + weights, ignore_patterns=["*/*"]))
    except GatedRepoError as error:
        raise PermissionError(
            f"{hub} is gated: accept its licence at https://huggingface.co/{hub}, then run `hf auth login` on this "
            f'machine and try again. The bundled models need neither: load("{BUNDLED}")'
        ) from error
    except RepositoryNotFoundError as error:
        known = [model.hub for row in PUBLISHED for model in row.models]
        near = difflib.get_close_matches(hub, known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"there is no directory {hub!r}, and no such model on the hub (or a private one: `hf auth login`).{hint}"
        ) from error
    except Exception as error:  # no network looks different on every machine: refused, timed out, a proxy, switched off
        if full(error) is not None:
            with room_in(HF_HOME, hub, int(1e9 * _gigabytes(hub))):
                raise
        if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EROFS):
            raise
        raise _unreachable(hub, f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}") from error


def _gigabytes(hub) -> float:
    """Size of a repository's weights, as far as the table knows it; else 0."""
    return {model.hub: model.download for row in PUBLISHED for model in row.models}.get(hub, 0)


def _unreachable(hub, cause) -> ConnectionError:
    size = f", about {_gigabytes(hub):.1f} GB" if _gigabytes(hub) else ""
    return ConnectionError(
        f"{hub} is not on this machine, and it cannot be downloaded now ({cause}). With a network, once: "
        f"`hf download {hub}` (into HF_HOME{size}); or copy the model here from elsewhere and give its directory, "
        f'load("path/to/directory"). Without any download: the bundled models, load("{BUNDLED}"), or set '
        f"{ENVIRONMENT}={BUNDLED}"
    )
