"""Find and load a family of models.

A family is a target together with its drafts. `load()` returns the bundled family, which is on every machine.
`load("smollm2")` returns a small published model that needs no download from the hub, and `load("gpt2")` one from the
hub. `load("path/to/directory")` or `load("owner/name")` returns any other. `families()` lists the published ones. What
this file does not do: list the models (`families`), find out what a name means (`finding`), find and check files
(`hub`), read them (`pretrained`, `formats`), train (`training`), or decode (`decoders`).

Nothing is printed, and no code from a model's repository is executed: weights are safetensors or, if a repository has
none, pickles read with `weights_only`. Files that are already on this machine are used as they are; missing files are
downloaded.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path

from ..drafting.dflash2_head import DFlash2Head
from ..drafting.dflash_head import DFlashHead
from ..drafting.dspark_head import DSparkHead
from ..drafting.eagle_head import Eagle3Head, EagleHead
from ..drafting.medusa_heads import MedusaHeads
from ..drafting.mtp_head import MtpHead
from ..drafting.parallel_head import ParallelHead
from ..model import llama, quantization
from ..model.eight_bits import EightBits
from ..model.lm import LM
from . import formats, hub
from .devices import check_map, checked_device, checked_dtype
from .families import BUNDLED, ENVIRONMENT, HEADS, MODELS, families
from .finding import find_family, place_of
from .formats.ngram_files import is_ngram, load_ngram
from .hub import write_checksums
from .pretrained import load_looped, load_model, load_tokenizer, may_be_looped

__all__ = ["Family", "families", "load", "write_checksums"]


def load(
    name=None,
    *,
    draft=None,
    other_draft=None,
    medusa=None,
    eagle=None,
    eagle3=None,
    pruned=None,
    dflash=None,
    dflash2=None,
    dspark=None,
    mtp=None,
    parallel=None,
    device=None,
    dtype=None,
    quantize=None,
    double_quantization=None,
    device_map=None,
    offload_folder=None,
) -> Family:
    """Find a family of models. Its models are loaded when they are first used.

    Parameters
    ----------
    name : str or path, optional
        - None: the family named in the environment variable `TUTORLIB_MODELS`, or "storyworld" if it is not set.
        - "storyworld": the bundled family.
        - The name of a published family, or the hub name of its target, see `families`.
        - Any other model on the hub, as "owner/name": this gives a family with only a target.
        - A directory that contains a model (a family with only a target), or the subdirectories target, draft,
          other_draft, medusa, eagle, eagle3, pruned, dflash, dflash2, dspark, mtp and parallel, as written by `python
          -m tutorlib train`. If a directory has the same name as a family, the family is loaded; write "./gpt2" for the
          directory.
    draft, other_draft, medusa, eagle, eagle3, pruned, dflash, dflash2, dspark, mtp, parallel : str or path, optional
        A hub name or a directory, to be used in place of the family's own model.
    device : str or torch.device, optional
        By default a CUDA GPU if there is one, otherwise the processor. An Apple GPU is used only if you pass "mps";
        probabilities are then computed on the processor, in float64. This has not been tried on such a GPU yet.
    dtype : torch.dtype or str, optional
        By default float32 on a processor, and on any device for the bundled family and "smollm2". Other families use
        bfloat16 on a GPU that supports it, otherwise float16.
    quantize : "nf4", "int8", or dict from roles to one of these, optional
        Store the linear layers in four or eight bits with bitsandbytes, on a GPU or a processor. This applies to the
        target and its draft (an n-gram draft stays as it is), or to the given roles, as in ``{"draft": "nf4"}``.
        Embeddings, norms, the output head and the drafting heads stay in `dtype`, in which everything is computed. This
        has not been tried on a GPU yet. On a processor, Llama-shaped models in float32 need no bitsandbytes for "int8":
        the compiled loops compute them, in less than half the time that float32 takes (see `EightBits`; their output
        head has eight bits too). They are read in float32, and bitsandbytes is used if there is no memory for that.
    double_quantization : bool, optional
        Whether the scales of "nf4" are quantized too, which takes 4.13 instead of 4.5 bits per weight. True by default.
    device_map : str or dict, optional
        Use this in place of `device` for a target that does not fit on a GPU. "auto" puts as many layers as possible on
        the GPUs, others into the processor's memory, and the rest on the disk, from where they are read in every call.
        A dict gives a device for each module: ``{"model.layers.0": 0, "model.layers.1": "cpu", ...}``. It needs
        `accelerate`. This has not been tried on a GPU yet.
    offload_folder : path, optional
        A folder for the layers on the disk, needed if the weights are not safetensors, which can be read from their own
        files.

    Returns
    -------
    Family

    Raises
    ------
    ValueError
        If both `device` and `device_map` are given; if the name (the nearest known one is suggested), device or dtype
        is unknown; if a directory contains no model; if a file of the bundled family is missing, truncated or altered;
        if `quantize` is unknown, names a model that the family lacks, or is not possible with this device or dtype.
        When it is first used, also for a model that is already quantized.
    ImportError
        If `device_map` or `quantize` is given and `accelerate` is missing, or `quantize` is given and bitsandbytes is
        missing. With "int8" on a processor, when a model is first used that needs them.
    ConnectionError
        If a published model is not on this machine and cannot be downloaded.
    PermissionError
        If a published model is gated and this machine has no access to it.
    MemoryError
        When a model is first used, if it does not fit into memory.

    Examples
    --------
    >>> family = load("storyworld")                                  # doctest: +SKIP
    >>> run(greedy(family.target, "Once upon a time"), max_new_tokens=40)  # doctest: +SKIP
    """
    argument = "name"
    if name is None:
        argument, name = ENVIRONMENT, os.environ.get(ENVIRONMENT)
    if not name and argument == ENVIRONMENT:
        name = BUNDLED
    check_map(device_map, device, offload_folder)
    device = checked_device(device)
    name, sources, published, checked = find_family(name, argument)
    given = {"draft": draft, "other_draft": other_draft}
    given |= {"medusa": medusa, "eagle": eagle, "eagle3": eagle3, "pruned": pruned, "dflash": dflash}
    given |= {"dflash2": dflash2, "dspark": dspark, "mtp": mtp, "parallel": parallel}
    sources |= {role: place_of(place, role) for role, place in given.items() if place is not None}
    dtype = checked_dtype(dtype, device, checked)
    networks = [role for role in MODELS if role in sources and not is_ngram(sources[role])]
    forms = quantization.forms(quantize, double_quantization, networks)
    if any(not may_be_looped(form, device, dtype) for form in forms.values()):
        quantization.check_bitsandbytes(device, dtype)
    placement = {"device_map": device_map, "offload_folder": offload_folder} if device_map is not None else {}
    return Family(name, sources, device=device, dtype=dtype, forms=forms, published=published, placement=placement)


class Family:
    """A target, and the drafts and heads that go with it, each loaded when it is first used. Made by `load`.

    Attributes
    ----------
    name : str
    device : torch.device
    dtype : torch.dtype
    published : Published, or None
        Licence, size and so on, if it is one of the published families.
    forms : dict
        The form of the quantized models, by role.
    """

    def __init__(self, name, sources, *, device, dtype, forms=None, published=None, placement=None):
        self.name, self.device, self.dtype, self.published = name, device, dtype, published
        self._sources, self._placement, self.forms = dict(sources), placement, dict(forms or {})
        # The target's settings and tokenizer are fetched now, so that a missing model is reported here.
        folder = hub.model_folder(self._sources["target"])
        if hub.has_heads(folder):  # a hub name does not say so, and its configuration is known only now
            self._sources.setdefault("medusa", self._sources["target"])

    def __repr__(self) -> str:
        places = ", ".join(f"{role}={str(place)!r}" for role, place in self._sources.items())
        kept = "".join(f", {role} in {form}" for role, form in self.forms.items())
        return f"Family({self.name!r}, {places}, {self.device}, {str(self.dtype).removeprefix('torch.')}{kept})"

    @cached_property
    def target(self) -> LM:
        """The model whose text is written."""
        return self._load("target", self.tokenizer, self._placement)

    @cached_property
    def draft(self) -> LM:
        """A smaller model with the same tokenizer as the target (see `same_tokenizer`).

        It may be an n-gram model, which counts the target's tokens. Then the target is loaded too.
        """
        tokenizer = self._tokenizer_of("draft")
        if is_ngram(self._sources["draft"]):
            return load_ngram(self._sources["draft"], self.target)
        return self._load("draft", tokenizer)

    @cached_property
    def quantized(self) -> EightBits:
        """The target's own copy in eight bits, made now: the first draft to try on a processor; see `EightBits`.

        A target in eight bits has none.
        """
        return EightBits(self.target)

    @cached_property
    def other_draft(self) -> LM:
        """A smaller model with another tokenizer."""
        return self._load("other_draft", self._tokenizer_of("other_draft"))

    @cached_property
    def medusa(self) -> MedusaHeads:
        """Medusa heads for the target, with its dtype and on its device. The target is loaded too."""
        folder = self._heads_folder("medusa", formats.FILES["medusa"] + formats.FILES["vllm"])
        return formats.load_medusa(folder, target=self.target).to(self.dtype)

    @cached_property
    def eagle(self) -> EagleHead:
        """An EAGLE-1 network for the target, with its dtype and on its device. The target is loaded too."""
        return self._network("eagle", EagleHead)

    @cached_property
    def eagle3(self) -> Eagle3Head:
        """An EAGLE-3 network for the target, with its dtype and on its device. The target is loaded too."""
        return self._network("eagle3", Eagle3Head)

    @cached_property
    def pruned(self) -> LM:
        """A draft made of some of the target's layers, with its embeddings and output head. The target is loaded too.

        Where compiled loops compute it, its matrices are rounded to eight bits, as in `quantized`: that is quicker, and
        a draft may guess a little worse. See `tutorlib.model.pruned`.
        """
        folder = self._heads_folder("pruned", formats.FILES["pruned"])
        draft = formats.load_pruned(folder, self.target, dtype=self.dtype)
        return EightBits(draft) if llama.of(draft.model) else draft

    @cached_property
    def dflash(self) -> DFlashHead:
        """A DFlash network for the target, with its dtype and on its device. The target is loaded too."""
        folder = self._heads_folder("dflash", formats.FILES["dflash"])
        return formats.load_dflash(folder, self.target, dtype=self.dtype)

    @cached_property
    def mtp(self) -> MtpHead:
        """Modules of multi-token prediction for the target, with its dtype and on its device."""
        folder = self._heads_folder("mtp", formats.FILES["mtp"])
        return formats.load_mtp(folder, self.target, dtype=self.dtype)

    @cached_property
    def parallel(self) -> ParallelHead:
        """A parallel draft for the target, with its dtype and on its device. The target is loaded too."""
        return self._network("parallel", ParallelHead)

    @cached_property
    def dspark(self) -> DSparkHead:
        """The family's DFlash network with DSpark's joint. The target is loaded too."""
        folder = self._heads_folder("dspark", formats.FILES["dspark"])
        return formats.load_dspark(folder, self.dflash)

    @cached_property
    def dflash2(self) -> DFlash2Head:
        """The family's DFlash network with DFlash2's joint. The target is loaded too."""
        folder = self._heads_folder("dflash2", formats.FILES["dflash2"])
        return formats.load_dflash2(folder, self.dflash)

    @cached_property
    def tokenizer(self):
        """The target's tokenizer; None if its directory contains none."""
        return self._tokenizer_of("target")

    @cached_property
    def same_tokenizer(self) -> bool:
        """Whether target and draft use the same ids for the same pieces of text, which speculative decoding needs.

        Only the tokenizers are read; no weights are loaded.
        """
        target, draft = self.tokenizer, self._tokenizer_of("draft")
        return target is not None and draft is not None and target.get_vocab() == draft.get_vocab()

    def place(self, role) -> str:
        """Where other programs find the model or heads of a role such as "target": a hub name, or a path.

        A target that comes in a package is in the folder with its converted files. (The hub's has other weights.)
        """
        place = self._sources[role]
        return str(place.resolve()) if isinstance(place, Path) else place

    def chat(self, messages: str | Iterable[Mapping[str, str]]) -> list[int]:
        """Make the prompt for a chat (instruct) model from messages.

        Parameters
        ----------
        messages : str, or iterable of {"role": …, "content": …}
            A text is a single message by the user. Roles are "user", "assistant" and, for most models, "system".

        Returns
        -------
        list of int
            Tokens in the target's own chat format. (Tokens and not text, because the tokenizer would add special tokens
            to a text once more.) For a model without a chat format (a base model), a text is only tokenised.

        Raises
        ------
        ValueError
            If there are no messages, if one of them has the wrong form or the chat format refuses it, if there is no
            tokenizer, or if messages have roles but there is no chat format.
        """
        text = isinstance(messages, str)
        messages = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
        wrong = [m for m in messages if not (isinstance(m, Mapping) and {"role", "content"} <= m.keys())]
        if wrong or not messages:
            raise ValueError(f'messages must each be {{"role": …, "content": …}}, got {wrong or messages!r}')
        if self.tokenizer is None:
            raise ValueError(f"the family {self.name!r} has no tokenizer to write messages with")
        if not self.tokenizer.chat_template:
            if not text:
                raise ValueError(
                    f"the family {self.name!r} has no chat format, so the roles of {messages!r} would be lost: "
                    "write them into one text, or take a chat model"
                )
            return list(self.tokenizer(messages[0]["content"])["input_ids"])
        try:
            tokens = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        except Exception as error:  # templates may raise anything
            raise ValueError(f"the chat format of {self.name!r} refuses {messages!r}: {error}") from error
        return list(tokens)

    def _load(self, role, tokenizer, placement=None) -> LM:
        folder = hub.model_folder(self._sources[role], weights=True)
        form, where = self.forms.get(role), (folder, str(self._sources[role]), self.device, self.dtype)
        if form and may_be_looped(form, self.device, self.dtype):
            if not placement and (copy := load_looped(*where, tokenizer)) is not None:
                return copy
            quantization.check_bitsandbytes(self.device, self.dtype)
        return LM(load_model(*where, form, placement), tokenizer)

    def _tokenizer_of(self, role):
        if role not in self._sources:
            raise AttributeError(
                f"the family {self.name!r} has no {role}: add one with load(…, {role}=hub name or directory)"
            )
        if role == "draft" and is_ngram(self._sources[role]):
            return self.tokenizer
        tokenizer = load_tokenizer(hub.model_folder(self._sources[role]))
        if role == "target" and tokenizer is not None and not tokenizer.chat_template and self.published:
            tokenizer.chat_template = self.published.chat
        return tokenizer

    def _network(self, role, kind):
        folder = self._heads_folder(role, formats.FILES["eagle"])
        network = formats.load_eagle(folder, self.target, dtype=self.dtype)
        if type(network) is not kind:
            other = {EagleHead: "eagle", Eagle3Head: "eagle3", ParallelHead: "parallel"}[type(network)]
            raise ValueError(
                f"{folder} holds an {HEADS[other]}, expected an {HEADS[role]}: load(…, {other}=…) takes it"
            )
        return network

    def _heads_folder(self, role, files) -> Path:
        if role not in self._sources:
            raise AttributeError(
                f"the family {self.name!r} has no {HEADS[role]} yet: make some with `python -m tutorlib train "
                f"{role}`, and load(…, {role}=their directory)"
            )
        return hub.heads_folder(self._sources[role], files)
