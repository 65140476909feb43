"""The list of models: the bundled family, and the published ones with their licences and sizes.

What this file does not do: find, download or check files (`hub`), or load models (`models`).
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

BUNDLED = "storyworld"
ENVIRONMENT = "TUTORLIB_MODELS"  # names the family that `load()` returns
MODELS = ("target", "draft", "other_draft")
# For the target. They are trained for it, and need it.
HEADS = {
    "medusa": "Medusa heads", "eagle": "EAGLE network", "eagle3": "EAGLE-3 network", "pruned": "pruned draft",
    "dflash": "DFlash network", "dflash2": "DFlash2 joint", "dspark": "DSpark joint", "mtp": "MTP modules",
    "parallel": "parallel draft",
}  # fmt: skip
RESERVE = 2.0  # GB besides the weights: cache, logits, and CUDA itself
_T4 = 15.0  # GB


@dataclass(frozen=True)
class PublishedModel:
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
        Whether you have to accept its licence on the hub before you can download it.
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


# The name of the release before.
Model = PublishedModel


@dataclass(frozen=True, repr=False)
class Published:
    """A published target with its drafts, if there are any.

    Attributes
    ----------
    name : str
        The name to pass to `load`.
    target : Model
    draft : Model, optional
        A draft with the same tokenizer.
    other_draft : Model, optional
        A draft with another tokenizer.
    medusa, eagle, eagle3, pruned, dflash, dflash2, dspark, mtp, parallel : str, optional
        Hub names of published heads (or of a draft made of some of its layers) for the target.
    chat : str, optional
        The chat template, if the model needs one but the repository has none.
    note : str
    in_a_wheel : float
        Size in GB of the Python package that contains the target, see `loading.wheel`; 0 if it comes from the hub.
    """

    name: str
    target: PublishedModel
    draft: PublishedModel | None = None
    other_draft: PublishedModel | None = None
    medusa: str | None = None
    eagle: str | None = None
    eagle3: str | None = None
    pruned: str | None = None
    dflash: str | None = None
    dflash2: str | None = None
    dspark: str | None = None
    mtp: str | None = None
    parallel: str | None = None
    chat: str | None = None
    note: str = ""
    in_a_wheel: float = 0

    @property
    def models(self) -> list[PublishedModel]:
        """Target, draft, and the other draft if there is one."""
        return [model for model in (self.target, self.draft, self.other_draft) if model]

    @property
    def sources(self) -> dict[str, str]:
        """The hub names of its models and heads, by role."""
        found = {role: getattr(self, role) for role in (*MODELS, *HEADS)}
        return {role: getattr(place, "hub", place) for role, place in found.items() if place}

    @property
    def download(self) -> float:
        """Size of target and draft as published, in GB. The other draft is downloaded only when it is used."""
        return self.in_a_wheel or sum(model.download for model in (self.target, self.draft) if model)

    @property
    def licence(self) -> str:
        """The licences of all its models, without repetitions."""
        return ", ".join(dict.fromkeys(model.licence for model in self.models))

    @property
    def gated(self) -> bool:
        """Whether the target or the draft is gated."""
        return self.target.gated or bool(self.draft and self.draft.gated)

    def memory(self, bytes_per_weight: float = 2) -> float:
        """GB that the weights of target and draft take. The draft's weights take at least 2 bytes each."""
        of_the_draft = self.draft.parameters * max(bytes_per_weight, 2) if self.draft else 0
        return (self.target.parameters * bytes_per_weight + of_the_draft) / 1000

    @property
    def t4(self) -> str:
        """Whether target and draft fit on a T4 with 15 GB: "float16", "4 bits" (for the target), or "no"."""
        # Four bits a weight, and half precision for embeddings and scales: about 0.7 bytes a weight.
        for way, size in (("float16", 2), ("4 bits", 0.7)):
            if self.memory(size) + RESERVE <= _T4:
                return way
        return "no"

    def __repr__(self) -> str:
        gate = "gated" if self.gated else "open"
        return (
            f"{self.name}: {f'{self.draft.hub} -> ' if self.draft else ''}{self.target.hub}, {self.download:.1f} GB, "
            f"{self.licence}, {gate}, "
            f"T4: {self.t4}"
        )


_VICUNA = (
    "{{ bos_token }}A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions.{% for message in messages %}"
    "{% if message.role == 'user' %} USER: {{ message.content }}"
    "{% elif message.role == 'assistant' %} ASSISTANT: {{ message.content }}{{ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %} ASSISTANT:{% endif %}"
)
_GPT2 = PublishedModel("openai-community/gpt2", 124, 0.55, "MIT")
_PYTHIA = PublishedModel("EleutherAI/pythia-70m", 70, 0.17, "Apache 2.0")
_QWEN = PublishedModel("Qwen/Qwen2.5-0.5B-Instruct", 494, 0.99, "Apache 2.0")
_SMOL = PublishedModel("HuggingFaceTB/SmolLM2-135M-Instruct", 135, 0.27, "Apache 2.0")

PUBLISHED = (
    Published(
        "smollm2",
        _SMOL,
        note="Needs no hub: a Python package contains it in four bits, and it runs in float32. An n-gram draft, "
        "a pruned draft, Medusa heads and an EAGLE-3 network come with tutorlib.",
        in_a_wheel=0.093,
    ),
    Published(
        "smollm2-360m",
        PublishedModel("HuggingFaceTB/SmolLM2-360M-Instruct", 362, 0.72, "Apache 2.0"),
        _SMOL,
        note="The draft is nearly as deep as the target (30 and 32 layers), so it rarely helps.",
    ),
    Published(
        "smollm2-1.7b",
        PublishedModel("HuggingFaceTB/SmolLM2-1.7B-Instruct", 1711, 3.42, "Apache 2.0"),
        _SMOL,
        note="On a GPU the draft is slow for its size: it has 30 layers, and the target 24. On a processor it helps.",
    ),
    Published("gpt2", PublishedModel("openai-community/gpt2-large", 774, 3.25, "MIT"), _GPT2, _PYTHIA),
    Published(
        "opt",
        PublishedModel("facebook/opt-1.3b", 1316, 2.63, "OPT (research only)"),
        PublishedModel("facebook/opt-125m", 125, 0.25, "OPT (research only)"),
        _PYTHIA,
        note="Published only as pickle files.",
    ),
    Published("pythia", PublishedModel("EleutherAI/pythia-1.4b", 1415, 2.93, "Apache 2.0"), _PYTHIA, _GPT2),
    Published("qwen2.5", PublishedModel("Qwen/Qwen2.5-1.5B-Instruct", 1544, 3.09, "Apache 2.0"), _QWEN, _SMOL),
    Published(
        "qwen2.5-3b", PublishedModel("Qwen/Qwen2.5-3B-Instruct", 3086, 6.17, "Qwen (research only)"), _QWEN, _SMOL
    ),
    Published(
        "gemma-2",
        PublishedModel("google/gemma-2-9b-it", 9242, 18.5, "Gemma", gated=True),
        PublishedModel("google/gemma-2-2b-it", 2614, 5.23, "Gemma", gated=True),
        _SMOL,
        note="Made for bfloat16, which a T4 does not support; float16 may overflow.",
    ),
    Published(
        "llama-2",
        PublishedModel("meta-llama/Llama-2-7b-chat-hf", 6738, 13.5, "Llama 2", gated=True),
        PublishedModel("JackFram/llama-68m", 68, 0.27, "Apache 2.0"),
        PublishedModel("google/gemma-2b", 2506, 5.01, "Gemma", gated=True),
        eagle="yuhuili/EAGLE-llama2-chat-7B",
    ),
    Published(
        "vicuna",
        PublishedModel("lmsys/vicuna-7b-v1.3", 6738, 13.5, "Llama (non-commercial)"),
        PublishedModel("double7/vicuna-68m", 68, 0.27, "Apache 2.0"),
        medusa="FasterDecoding/medusa-vicuna-7b-v1.3",
        eagle="yuhuili/EAGLE-Vicuna-7B-v1.3",
        chat=_VICUNA,
        note="Published only as pickle files; its tokenizer needs `sentencepiece` and `protobuf`.",
    ),
)


def families() -> list[Published]:
    """The published families, each with its licence, its size and whether it fits on a T4. (Without the bundled
    one.)
    """
    return list(PUBLISHED)


def published_named(name: str) -> Published | None:
    """The published family with this name, or whose target has this hub name, with or without its owner."""
    for row in PUBLISHED:
        target = row.target.hub
        names = [row.name] if row.in_a_wheel else [row.name, target, target.partition("/")[2]]
        if name.casefold() in {known.casefold() for known in names}:
            return row
    return None


def largest_family(gigabytes: float, bytes_per_weight: float, below: float) -> str:
    """The open family with the largest target that fits into the memory and has fewer than `below` million weights."""
    fitting = [row for row in PUBLISHED if not row.gated and row.memory(bytes_per_weight) + RESERVE <= gigabytes]
    smaller = [row for row in fitting if row.target.parameters < below]
    return max(smaller, key=lambda row: row.target.parameters).name if smaller else BUNDLED


def by_hub_name() -> dict[str, PublishedModel]:
    """Every published model by its hub name."""
    return {model.hub: model for row in PUBLISHED for model in row.models}


def by_short_name() -> dict[str, str]:
    """The hub names, by the part after the owner in lower case."""
    return {hub.partition("/")[2].casefold(): hub for hub in by_hub_name()}


def nearest(name: str, known: dict[str, str], cutoff: float = 0.6) -> str:
    """The end of an error message that suggests the nearest known name; empty if none is near."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
    return f" Did you mean {known[near[0]]!r}?" if near else ""
