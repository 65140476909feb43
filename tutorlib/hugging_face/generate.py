"""Use the methods of this book inside Hugging Face's `generate`: ``model.generate(..., custom_generate=...)``.

`generate` first does its usual preparations: it reads its options and builds the logits processors and the stopping
criteria. Then it passes all of them to a given function, which runs in place of its own loop. `custom_generate` turns a
method of this book into such a function. What this file does not do: any decoding. For example::

    import transformers
    from tutorlib import LM, custom_generate, speculative

    large = transformers.AutoModelForCausalLM.from_pretrained("gpt2-large")
    small = transformers.AutoModelForCausalLM.from_pretrained("gpt2")
    tokenizer = transformers.AutoTokenizer.from_pretrained("gpt2")

    ours = custom_generate(speculative, draft=LM(small), gamma=4)
    inputs = tokenizer("Once upon a time", return_tensors="pt")
    large.generate(**inputs, custom_generate=ours, max_new_tokens=64, do_sample=True, temperature=0.7, top_p=0.9)
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
import transformers

from ..arguments import concrete
from ..model.lm import LM
from ..running.decoder import BatchSteps, Steps
from ..running.decoding import pull
from ..running.step import Step
from ..running.trace import Text, Trace, cut_to_fit
from ..sampling.checks import checked_warp
from ..sampling.randomness import Seeded
from ..sampling.warp import Warp
from .inputs import read_criteria, refuse_model_kwargs, refuse_positions, refuse_prepared_elsewhere, unpadded
from .options import KEPT, own_options, refuse, refuse_options, said
from .processors import as_warps

# Arguments that `generate` does not pass to a custom function, and that these methods do not support.
_DROPPED = (
    "assistant_model", "assistant_tokenizer", "synced_gpus", "negative_prompt_ids", "negative_prompt_attention_mask",
    "trust_remote_code",
)  # fmt: skip

# Options that need no processor, or only where something is drawn.
_NO_WARPS = {
    "max_length", "max_new_tokens", "max_time", "stop_strings", "eos_token_id", "bos_token_id", "pad_token_id",
    "num_return_sequences", "return_dict_in_generate", "do_sample", "temperature", "top_k", "top_p", "min_p", "top_h",
    "typical_p", "epsilon_cutoff", "eta_cutoff",
}  # fmt: skip


def custom_generate(
    method: Callable, *, seed: int | None = None, tokenizer: Any = None, **settings: Any
) -> "CustomGenerate":
    """Make a method usable as ``model.generate(..., custom_generate=custom_generate(method, ...))``.

    The output is that of ``run(method(LM(model), prompt, ...))`` in the format of `generate`: prompt and new tokens,
    padded with `pad_token_id`. For a lossless method, it has the distribution of ``generate(do_sample=True)`` with the
    same options; with ``do_sample=False``, it has the same tokens (apart from rounding).

    The options of `generate` are treated as follows:

    - *temperature, top_k, top_p, min_p, typical_p, repetition_penalty, no_repeat_ngram_size* and all others that change
      logits, including ``logits_processor=[...]``: `generate` makes a list of processors from them, which becomes the
      warp. It is computed in float64, like every warp here. The defaults of `generate` apply too, so ``do_sample=True``
      is *not* plain sampling: it keeps only the 50 most likely tokens (``top_k=0`` keeps all). Your own processors must
      depend only on their arguments.
    - *do_sample*: False is greedy, like ``rng=None``. With True, the random draws come from ``Seeded(seed)``, and are
      the same in every call. Without a `seed`, a seed is drawn from torch's generator; ``torch.manual_seed(7)`` makes
      this repeatable. (The tokens are not those that `generate` itself would draw with this seed. Only the distribution
      is the same, if the method is lossless.)
    - *max_new_tokens, max_length, eos_token_id, stopping_criteria, max_time*, *stop_strings* (with ``tokenizer=...``):
        supported. Criteria are checked after each new token of each text, with the tokens of this text only.
    - *num_return_sequences*, and several rows of `input_ids`: methods that take several prompts, `sample_batch` and
        `speculative_batch`, compute the rows together; others write one text after another. Rows of different lengths
        are padded on the left and need their `attention_mask`. Each row gives the same text as it would alone; with a
        `seed`, row i uses ``Seeded(seed + i)``.
    - *streamer*: receives all tokens of a step together.
    - *return_dict_in_generate*: the dict has only `sequences`.
    - All others, including those for caches, drafts and beams, are refused by name unless they have their defaults: see
      `tutorlib.hugging_face.options`. Options of the model's own generation settings count as given, except those that
      change no text (``use_cache``). (``cache_implementation="paged"`` cannot be refused, because `generate` then never
      calls a custom function.)

    The text ends when the context is full (``max_position_embeddings``), where `generate` itself might continue.

    Parameters
    ----------
    method : function
        A method such as `speculative`. Its first model is the one whose `generate` is called.
    seed : int, optional
        The seed for ``do_sample=True``. Instead you may pass the method's own `rng` (or `rngs`), which can be any
        `Randomness`. It is not reset between calls.
    tokenizer : transformers tokenizer, optional
        The target's tokenizer, for methods that compare texts (`string_match`, `token_intersection`). None means the
        tokenizer that is passed to `generate`.
    **settings
        The method's own arguments by name: ``draft=LM(small)``, ``gamma=4``. A `warp` is applied before the processors
        of `generate`.

    Returns
    -------
    CustomGenerate
        It may be used for many calls. Its `traces` are those of the last call.

    Raises
    ------
    ValueError
        At once, if a setting is missing or the method does not have it. In `generate`, for options that do not apply to
        the method (``num_beams=4``), are not supported, or do not meet a condition named above.

    Examples
    --------
    >>> ours = custom_generate(speculative, draft=LM(small), gamma=4)                           # doctest: +SKIP
    >>> model.generate(**inputs, custom_generate=ours, max_new_tokens=64)                       # doctest: +SKIP
    >>> ours.traces[0].tokens_per_call                                                          # doctest: +SKIP
    3.2
    """
    return CustomGenerate(method, settings, seed, tokenizer)


class _HandedOn:
    """The signature of a `CustomGenerate`. When `generate` reads it, the tokenizers are given back to `generate`.

    `generate` passes to a custom function those of its arguments that are in the function's signature, but it removes
    the tokenizers first. So ``stop_strings=[...]`` would fail there without a tokenizer.
    """

    def __get__(self, made, owner):
        if made is None:
            return None
        frame = inspect.currentframe()
        while frame is not None and frame.f_code.co_name != "_extract_generation_mode_kwargs":
            frame = frame.f_back
        if frame is not None:
            taken = frame.f_locals.get("generation_mode_kwargs", {})
            names = ("tokenizer", "assistant_tokenizer")
            frame.f_locals["kwargs"].update({name: taken[name] for name in names if name in taken})
        return inspect.signature(made.__call__)


class CustomGenerate:
    """The result of `custom_generate`: a function that `generate` calls after its preparations.

    Attributes
    ----------
    traces : list of Trace
        The traces of the last call, one for each text.
    """

    __signature__ = _HandedOn()

    def __init__(self, method, settings: dict, seed: int | None, tokenizer):
        self.method, self.settings, self.seed, self.tokenizer = method, dict(concrete(settings)), seed, tokenizer
        self.name = getattr(method, "__name__", repr(method))
        self.traces: list[Trace] = []
        self._lm: LM | None = None
        names = list(inspect.signature(method).parameters) if callable(method) else []
        if not {"prompt", "prompts"} & set(names[1:]):
            raise ValueError(f"custom_generate needs a method such as speculative, got {method!r}")
        self.takes_several = "prompts" in names
        self._rng_name = next((name for name in ("rng", "rngs") if name in names), None)
        self._names = names
        given_by_generate = {names[0], "prompt", "prompts", "max_new_tokens", "stop"}
        open_names = [name for name in names if name not in given_by_generate]
        for name in self.settings:
            if name not in open_names:
                raise ValueError(f"{self.name} has no setting {name!r} to make here: there are {', '.join(open_names)}")
        if seed is not None:
            if self._rng_name in self.settings:
                raise ValueError(f"give either seed or {self._rng_name}: both determine the random draws")
            Seeded(seed)  # raises ValueError for what is no seed
        if "warp" in self.settings:
            self.settings["warp"] = checked_warp(self.settings["warp"])
        for name, parameter in inspect.signature(method).parameters.items():
            is_needed = parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
            if is_needed and name in open_names and name not in {*self.settings, self._rng_name}:
                raise ValueError(f"{self.name} needs {name}: custom_generate({self.name}, {name}=...)")

    def __repr__(self) -> str:
        settings = "".join(f", {name}={value!r}" for name, value in self.settings.items())
        return f"custom_generate({self.name}{settings})"

    @torch.no_grad()
    def __call__(
        self,
        model,
        input_ids: torch.Tensor,
        *,
        logits_processor: Sequence[Callable] = (),
        stopping_criteria: Sequence[Callable] = (),
        generation_config=None,
        streamer=None,
        synced_gpus: bool = False,
        tokenizer=None,
        assistant_tokenizer=None,
        **model_kwargs,
    ):
        """Called by `generate`; see `custom_generate`. `input_ids` has shape (rows, longest prompt)."""
        # transformers (5.15 to 5.23 at least) hands these to its own loops and drops them for all others, though it has
        # already put the prompt into the streamer. They are still in the frame of `generate`.
        dropped = _variables_of_generate("streamer", "kwargs", *_DROPPED)
        given = dropped.pop("kwargs")  # what the caller gave; the model's class and its file add to it
        streamer = dropped.pop("streamer") if streamer is None else streamer
        dropped |= {"assistant_tokenizer": assistant_tokenizer, "synced_gpus": synced_gpus or dropped["synced_gpus"]}
        self._refuse(model, dropped, generation_config, model_kwargs, given)

        pad = getattr(generation_config, "_pad_token_tensor", None)
        pad = None if pad is None else int(pad)
        has_mask = given is None or given.get("attention_mask") is not None
        prompts, padding = unpadded(input_ids, model_kwargs.get("attention_mask"), pad, has_mask)
        refuse_positions(model_kwargs.get("position_ids"), padding)
        if len(prompts) > 1 and streamer is not None:
            raise ValueError(f"a streamer takes one text, but there are {len(prompts)} rows in input_ids")

        lm = self._lm_of(model, tokenizer if self.tokenizer is None else self.tokenizer)
        budget, stop, criteria = read_criteria(stopping_criteria, input_ids.shape[1], lm)
        may_end_apart = criteria or any(lm.context - len(prompt) < budget for prompt in prompts)
        if len(prompts) > 1 and pad is None and may_end_apart:
            raise ValueError("rows may end after different numbers of tokens: pass pad_token_id to pad them with")
        fronts = [row[:count] for row, count in zip(input_ids.tolist(), padding, strict=True)]
        warp = as_warps(logits_processor, fronts, prompts)
        own = {name: value for name, value in own_options(model, given).items() if name in KEPT}
        do_sample = bool(getattr(generation_config, "do_sample", False))

        texts = []
        for first in range(0, len(prompts), len(prompts) if self.takes_several else 1):
            rows = prompts if self.takes_several else prompts[first : first + 1]
            steps = self._steps(lm, rows, first, warp, do_sample, budget, stop, own)
            together = [Text(steps, prompt, budget, frozenset(stop)) for prompt in rows]
            decode(steps, together, criteria, streamer)
            texts += together
        self.traces = [text.trace() for text in texts]
        sequences = _padded(input_ids, [text.tokens for text in texts], pad)
        if getattr(generation_config, "return_dict_in_generate", False):
            return transformers.generation.GenerateDecoderOnlyOutput(sequences=sequences)
        return sequences

    def _refuse(self, model, dropped: dict, config, model_kwargs: dict, given: dict | None) -> None:
        """Raise ValueError for what these methods do not support: of the model, the options and other arguments.

        Parameters
        ----------
        dropped : dict
            The arguments named in `_DROPPED`.
        config : GenerationConfig or None
        model_kwargs : dict
            What `generate` has prepared for the model.
        given : dict or None
            What the caller gave to `generate`; None if this is not known.
        """
        if model.config.is_encoder_decoder:
            raise ValueError(f"{type(model).__name__} has an encoder: these methods are for decoder-only models")
        for name in _DROPPED:
            if dropped[name] is not None and dropped[name] is not False:
                refuse(name, dropped[name], model)
        if config is not None:
            refuse_options(config, model, given, has_beams="beams" in self._names)
        options = vars(config) if config is not None else ()
        refuse_model_kwargs(
            model_kwargs, None if given is None else {name: given[name] for name in given if name not in options}
        )
        refuse_prepared_elsewhere(model)

    def _lm_of(self, model, tokenizer) -> LM:
        """The model as an LM. It is kept for the next call, because it remembers what it has found out about it."""
        if self._lm is None or self._lm.model is not model or self._lm.tokenizer is not tokenizer:
            self._lm = LM(model, tokenizer)
        return self._lm

    def _steps(
        self, lm: LM, prompts, first: int, warp: list[Warp], do_sample: bool, budget: int, stop, own: dict
    ) -> Steps | BatchSteps:
        """The method's steps for these prompts, from row `first` on. `own` are options that the caller did not give."""
        if do_sample and self._rng_name is None:
            advice = said({"do_sample": True}) if "do_sample" in own else "leave out do_sample=True"
            raise ValueError(f"{self.name} draws nothing: {advice}")
        arguments = dict(self.settings)
        arguments["prompts" if self.takes_several else "prompt"] = prompts if self.takes_several else prompts[0]
        if "warp" in self._names:
            arguments["warp"] = [*arguments.get("warp", ()), *warp]
        elif warp:
            own = {name: value for name, value in own.items() if name not in _NO_WARPS}
            raise ValueError(
                f"{self.name} takes no warp, but generate has made {', '.join(one.__name__ for one in warp)} of its "
                f"options: {said(own) if own else 'leave them out'} (sample with do_sample=False is greedy decoding "
                "that takes them)"
            )
        if self._rng_name is not None:
            arguments[self._rng_name] = self._randomness(first, len(prompts)) if do_sample else None
        if "max_new_tokens" in self._names:
            arguments["max_new_tokens"] = budget
        if "stop" in self._names:
            arguments["stop"] = stop
        return self.method(lm, **arguments)

    def _randomness(self, first: int, count: int):
        if self.settings.get(self._rng_name) is not None:
            return self.settings[self._rng_name]
        seed = int(torch.randint(2**62, ())) if self.seed is None else self.seed + first
        rngs = [Seeded(seed + row) for row in range(count)]
        return rngs if self._rng_name == "rngs" else rngs[0]


def _variables_of_generate(*names: str) -> dict:
    """Local variables of `generate`, which called the caller; None if it was called by something else."""
    frame = inspect.currentframe()
    for _ in range(4):  # there may be decorators in between
        frame = frame.f_back if frame is not None else None
        if frame is not None and frame.f_code.co_name == "generate":
            return {name: frame.f_locals.get(name) for name in names}
    return dict.fromkeys(names)


# ----------------------------------------------------------------------------------------------------------------------
# What comes out


def decode(steps: Steps | BatchSteps, texts: list[Text], criteria: Sequence[Callable], streamer=None) -> None:
    """Like `run` and `run_batch`, with the additions that `generate` needs: criteria, and tokens for a streamer.

    Ctrl-C and errors are passed on to the caller, as in `generate`.
    """
    try:
        for text, step in pull(steps, texts):
            step, met = until_met(criteria, text, step)
            step = text.add(step)
            if met and text.stopped is None:
                text.end("end")
            if streamer is not None and step.tokens:
                streamer.put(torch.tensor(step.tokens))
    finally:
        steps.close()
    if streamer is not None:
        streamer.end()


def until_met(criteria: Sequence[Callable], text: Text, step: Step) -> tuple[Step, bool]:
    """Cut a step after the first token that meets one of the criteria; also return whether there was one."""
    if not criteria:
        return step, False
    step, _ = cut_to_fit(step, text.limit - len(text.tokens), text.stop)
    device = None if text.lm is None else text.lm.device
    for count in range(1, len(step.tokens) + 1):
        tokens = torch.tensor([text.prompt + text.tokens + step.tokens[:count]], device=device)
        answers = [bool(torch.as_tensor(criterion(tokens, None)).all()) for criterion in criteria]
        if any(answers):  # all are called, because some of them count
            return step.first(count), True
    return step, False


def _padded(input_ids: torch.Tensor, new: list[list[int]], pad: int | None) -> torch.Tensor:
    """The prompts as given and the new tokens of each, padded on the right: shape (rows, columns)."""
    longest = max(map(len, new))
    rows = [[*tokens, *[pad] * (longest - len(tokens))] for tokens in new]
    new_ids = torch.tensor(rows, dtype=input_ids.dtype, device=input_ids.device).reshape(len(rows), longest)
    return torch.cat([input_ids, new_ids], dim=1)
