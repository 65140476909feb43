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

import copy
import inspect
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import transformers

from ..arguments import concrete
from ..model.lm import LM
from ..running.decoding import BatchSteps, Steps, pull
from ..running.step import Step
from ..running.trace import Text, Trace, cut_to_fit
from ..sampling.randomness import Seeded
from ..sampling.warp import Warp, checked_histories, checked_warp, named
from .options import KEPT, own_options, refuse, refuse_options, said

# Arguments that `generate` does not pass to a custom function, and that these methods do not support.
_DROPPED = (
    "assistant_model", "assistant_tokenizer", "synced_gpus", "negative_prompt_ids", "negative_prompt_attention_mask",
    "trust_remote_code",
)  # fmt: skip
# What a cache is called; transformers 5.24 has one name for all.
_CACHES = {"cache", "cache_params", "past_key_values"}
# Arguments that `generate` prepares for the model, with those that are options too; sessions make their own.
_PREPARED = _CACHES | {
    "attention_mask", "cache_position", "input_ids", "logits_to_keep", "output_attentions", "output_hidden_states",
    "position_ids", "use_cache",
}  # fmt: skip

# Processors, by what they depend on besides the logits. Those not named here depend on the text.
_NOTHING = {  # so all rows can be processed at once
    "TemperatureLogitsWarper", "TopKLogitsWarper", "TopPLogitsWarper", "MinPLogitsWarper", "TypicalLogitsWarper",
    "EpsilonLogitsWarper", "EtaLogitsWarper", "TopHLogitsWarper", "SuppressTokensLogitsProcessor", "LogitNormalization",
}  # fmt: skip
_LENGTH = {  # which counts the padding
    "MinLengthLogitsProcessor", "MinNewTokensLengthLogitsProcessor", "ForcedBOSTokenLogitsProcessor",
    "ForcedEOSTokenLogitsProcessor", "ExponentialDecayLengthPenalty", "SuppressTokensAtBeginLogitsProcessor",
}  # fmt: skip
_ROW = {  # of the batch
    "EncoderRepetitionPenaltyLogitsProcessor", "EncoderNoRepeatNGramLogitsProcessor",
    "PrefixConstrainedLogitsProcessor",
}  # fmt: skip
# Options that need no processor, or only where something is drawn.
_NO_WARPS = {
    "max_length", "max_new_tokens", "max_time", "stop_strings", "eos_token_id", "bos_token_id", "pad_token_id",
    "num_return_sequences", "return_dict_in_generate", "do_sample", "temperature", "top_k", "top_p", "min_p", "top_h",
    "typical_p", "epsilon_cutoff", "eta_cutoff",
}  # fmt: skip
_EARLIER_CALLS = {"UnbatchedClassifierFreeGuidanceLogitsProcessor", "SynthIDTextWatermarkLogitsProcessor"}


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
        if model.config.is_encoder_decoder:
            raise ValueError(f"{type(model).__name__} has an encoder: these methods are for decoder-only models")
        # transformers (5.15 to 5.23 at least) hands these to its own loops and drops them for all others, though it has
        # already put the prompt into the streamer. They are still in the frame of `generate`.
        dropped = _variables_of_generate("streamer", "kwargs", *_DROPPED)
        given = dropped.pop("kwargs")  # what the caller gave; the model's class and its file add to it
        streamer = dropped.pop("streamer") if streamer is None else streamer
        dropped |= {"assistant_tokenizer": assistant_tokenizer, "synced_gpus": synced_gpus or dropped["synced_gpus"]}
        for name in _DROPPED:
            if dropped[name] is not None and dropped[name] is not False:
                refuse(name, dropped[name], model)
        if generation_config is not None:
            refuse_options(generation_config, model, given, has_beams="beams" in self._names)
        options = vars(generation_config) if generation_config is not None else ()
        refuse_model_kwargs(
            model_kwargs, None if given is None else {name: given[name] for name in given if name not in options}
        )
        refuse_prepared_elsewhere(model)
        pad = getattr(generation_config, "_pad_token_tensor", None)
        pad = None if pad is None else int(pad)
        has_mask = given is None or given.get("attention_mask") is not None
        prompts, padding = unpadded(input_ids, model_kwargs.get("attention_mask"), pad, has_mask)
        refuse_positions(model_kwargs.get("position_ids"), padding)
        if len(prompts) > 1 and streamer is not None:
            raise ValueError(f"a streamer takes one text, but there are {len(prompts)} rows in input_ids")
        lm, tokenizer = self._lm, tokenizer if self.tokenizer is None else self.tokenizer
        if lm is None or lm.model is not model or lm.tokenizer is not tokenizer:
            self._lm = lm = LM(model, tokenizer)  # kept, because it remembers what it has found out about the model
        budget, stop, criteria = read_criteria(stopping_criteria, input_ids.shape[1], lm)
        may_end_apart = criteria or any(lm.context - len(prompt) < budget for prompt in prompts)
        if len(prompts) > 1 and pad is None and may_end_apart:
            raise ValueError("rows may end after different numbers of tokens: pass pad_token_id to pad them with")
        fronts = [row[:count] for row, count in zip(input_ids.tolist(), padding, strict=True)]
        warp = as_warps(logits_processor, fronts, prompts)
        own = {name: value for name, value in own_options(model, given).items() if name in KEPT}
        do_sample, texts = bool(getattr(generation_config, "do_sample", False)), []
        for first in range(0, len(prompts), len(prompts) if self.takes_several else 1):
            rows = prompts if self.takes_several else prompts[first : first + 1]
            steps = self._steps(lm, rows, first, warp, do_sample, budget, stop, own)
            together = [Text(steps, prompt, budget, frozenset(stop)) for prompt in rows]
            decode(steps, together, criteria, streamer)
            texts += together
        self.traces = [text.trace() for text in texts]
        sequences = padded(input_ids, [text.tokens for text in texts], pad)
        if getattr(generation_config, "return_dict_in_generate", False):
            return transformers.generation.GenerateDecoderOnlyOutput(sequences=sequences)
        return sequences

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
# What goes in


def refuse_model_kwargs(model_kwargs: dict, given: dict | None) -> None:
    """Raise ValueError for arguments that `generate` would pass to the model and sessions cannot.

    Parameters
    ----------
    model_kwargs : dict
        What `generate` has prepared. Some models' classes add to it what says nothing: an empty dict, a new cache.
    given : dict or None
        What of it the caller passed, as it was passed; None if this is not known.
    """
    given = model_kwargs if given is None else given
    for name in _CACHES & given.keys():
        if given[name] is not None and _holds_tokens(given[name]):
            raise ValueError(
                f"{name} already holds tokens: methods keep caches of their own, so leave it out and give the whole "
                "text as input_ids"
            )
    for name, value in (model_kwargs | given).items():
        if name not in _PREPARED and not _says_nothing(value):
            source = "was given" if name in given else "has prepared"
            raise ValueError(f"generate {source} {name}, which these methods cannot hand to the model: leave it out")


def _says_nothing(value) -> bool:
    empty = isinstance(value, (dict, list, tuple, str)) and not value
    return value is None or empty or (isinstance(value, torch.Tensor) and not value.numel())


def _holds_tokens(cache) -> bool:
    # Recurrent layers count no tokens.
    states = [getattr(layer, "has_previous_state", None) for layer in getattr(cache, "layers", ())]
    return bool(cache.get_seq_length()) or any(any(state.values()) for state in states if isinstance(state, dict))


def refuse_prepared_elsewhere(model) -> None:
    """Raise ValueError if something else prepares the model's inputs, which sessions would pass by.

    peft does so for a prompt that it has learned: it calls `generate` of the model inside.
    """
    prepare = getattr(model, "prepare_inputs_for_generation", None)
    if getattr(prepare, "__func__", None) is not getattr(type(model), "prepare_inputs_for_generation", None):
        owner = type(getattr(prepare, "__self__", prepare)).__name__
        raise ValueError(
            f"prepare_inputs_for_generation of this {type(model).__name__} was replaced (by {owner}), for instance to "
            "put a learned prompt before the text, which these methods would leave out. Give the whole model to LM, as "
            "in run(method(LM(peft_model), prompt), 40): it tests how such a model can be computed"
        )


def unpadded(
    input_ids: torch.Tensor, mask: torch.Tensor | None, pad: int | None, has_mask: bool = True
) -> tuple[list[list[int]], list[int]]:
    """The rows without their padding.

    Parameters
    ----------
    input_ids, mask : tensors, shape (rows, columns)
        0 in the mask means padding. Without a mask there is no padding.
    pad : int or None
        The token that pads.
    has_mask : bool
        Whether the mask was given. If not, `generate` has made it: wherever the token that pads is, it has a 0.

    Returns
    -------
    prompts : list of lists of int
    padding : list of int
        How many columns were removed at the left of each row.
    """
    rows = input_ids.tolist()
    if mask is None:
        mask = torch.ones_like(input_ids)
    if mask.shape != input_ids.shape:
        raise ValueError(f"attention_mask has shape {tuple(mask.shape)}, but input_ids {tuple(input_ids.shape)}")
    padding = [sum(value == 0 for value in row) for row in mask.tolist()]
    for row, (values, count) in enumerate(zip(mask.tolist(), padding, strict=True)):
        if any(values[:count]) or not all(values[count:]):
            source = "attention_mask" if has_mask else f"the attention_mask that generate has made of the tokens {pad}"
            raise ValueError(
                f"row {row}: {source} has a 0 after a 1; padding must be on the left (tokenizer.padding_side = "
                "'left'), and the text without a gap" + ". If they are no padding, pass attention_mask" * (not has_mask)
            )
        if count == len(values):
            raise ValueError(f"row {row} of input_ids is empty, or padding alone: give at least one token")
    fronts = [next((place for place, token in enumerate(row) if token != pad), len(row)) for row in rows]
    if not has_mask and not any(padding) and len(set(fronts)) > 1:
        raise ValueError(
            f"the rows begin with {', '.join(map(str, fronts))} tokens {pad}, which is pad_token_id, and no "
            "attention_mask says which of them are padding: pass the tokenizer's attention_mask"
        )
    return [row[count:] for row, count in zip(rows, padding, strict=True)], padding


def refuse_positions(position_ids: torch.Tensor | None, padding: list[int]) -> None:
    """Raise ValueError for positions other than 0, 1, 2, ... from the first token of each row."""
    if position_ids is None or position_ids.ndim != 2:
        return
    for row, count in zip(position_ids.expand(len(padding), -1).tolist(), padding, strict=True):
        if row[count:] != list(range(len(row) - count)):
            raise ValueError(f"position_ids={row}: these methods count positions from the first token; leave it out")


def read_criteria(criteria: Sequence[Callable], width: int, lm: LM) -> tuple[int, list[int], list[Callable]]:
    """Find in the criteria the largest number of new tokens and the stop tokens; return the other criteria
    unchanged.
    """
    budgets, stop, others = [], [], []
    for one in criteria:
        if isinstance(one, transformers.generation.MaxLengthCriteria):
            budgets.append(one.max_length - width)
        elif isinstance(one, transformers.generation.EosTokenCriteria):
            stop += [token for token in one.eos_token_id.tolist() if 0 <= token < lm.vocab_size]
        else:
            others.append(one)
    return min(budgets, default=lm.context), stop, others


def as_warps(
    processors: Sequence[Callable], fronts: Sequence[Sequence[int]] = ((),), prompts: Sequence[Sequence[int]] = ((),)
) -> list[Warp]:
    """Turn the processors of `generate` into warps that change logits in the same way, one warp for each.

    Parameters
    ----------
    processors : sequence of functions
        ``(input_ids (n, length), scores (n, vocab)) -> scores``, as transformers has them.
    fronts : sequence of lists of int
        The padding of each row. It is not in the histories.
    prompts : sequence of lists of int
        The prompt of each row.

    Raises
    ------
    ValueError
        If a processor depends on more than logits and text.
    """
    return [_as_warp(processor, [list(front) for front in fronts], prompts) for processor in processors]


def _as_warp(processor: Callable, fronts: list[list[int]], prompts: Sequence[Sequence[int]]) -> Warp:
    name, padding = type(processor).__name__, [len(front) for front in fronts]
    processor = _without_padding(processor, padding)
    if name in _EARLIER_CALLS:
        raise ValueError(
            f"{name} (guidance_scale, or a watermark) changes with every call: a method that checks several tokens at "
            "once cannot use it"
        )
    if name in _ROW and (len(padding) > 1 or any(padding)):
        raise ValueError(f"{name} depends on the row of the batch: call generate for one unpadded prompt at a time")
    counts = name in _LENGTH
    if counts:
        _check_told_apart(name, prompts)

    def before(history):  # the padding is counted too, and may differ from row to row
        if not counts or len(set(padding)) == 1:
            return fronts[0] if counts else []
        return next(front for front, prompt in zip(fronts, prompts) if history[: len(prompt)] == prompt)

    def warp_all(logits, histories=None):
        return _beside(processor, logits)(None, logits)

    def warp_each(logits, histories=None):
        histories = checked_histories(histories, logits, name)
        rows, change = [], _beside(processor, logits)
        for row, history in zip(logits.clone(), histories, strict=True):
            rows.append(change(torch.tensor([before(history) + history], device=logits.device), row[None]))
        return torch.cat(rows)

    return named(warp_all if name in _NOTHING else warp_each, name)


def _check_told_apart(name: str, prompts: Sequence[Sequence[int]]) -> None:
    """Raise ValueError if a text could continue either of two prompts that differ in length."""
    for short, long in itertools.permutations(prompts, 2):
        if len(short) < len(long) and long[: len(short)] == short:
            raise ValueError(
                f"{name} (min_new_tokens or another option that counts tokens) must know which prompt a text "
                f"continues, but the prompt {long} begins with another, {short}: call generate for one of them at a "
                "time"
            )


def _beside(processor: Callable, logits: torch.Tensor) -> Callable:
    """The processor with its tensors on the device of the logits: the CPU if the model's GPU does not support
    float64.
    """
    held = getattr(processor, "__dict__", {})
    moved = {name: value.to(logits.device) for name, value in held.items() if isinstance(value, torch.Tensor)}
    if all(moved[name] is held[name] for name in moved):
        return processor
    processor = copy.copy(processor)
    vars(processor).update(moved)
    return processor


def _without_padding(processor: Callable, padding: Sequence[int]) -> Callable:
    """Adapt a repetition penalty that skips padding to texts without padding."""
    ignored = getattr(processor, "prompt_ignore_length", None)
    if ignored is None or (len(padding) == 1 and not padding[0]):
        return processor
    if not isinstance(ignored, torch.Tensor) or ignored.tolist() != list(padding):
        raise ValueError(
            f"prompt_ignore_length={ignored} counts the padding: call generate for one unpadded prompt at a time"
        )
    processor = copy.copy(processor)
    processor.prompt_ignore_length = None
    return processor


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
    for count in range(1, len(step.tokens) + 1):
        tokens = torch.tensor([text.prompt + text.tokens + step.tokens[:count]], device=text.lm.device)
        answers = [bool(torch.as_tensor(criterion(tokens, None)).all()) for criterion in criteria]
        if any(answers):  # all are called, because some of them count
            return step.first(count), True
    return step, False


def padded(input_ids: torch.Tensor, new: list[list[int]], pad: int | None) -> torch.Tensor:
    """The prompts as given and the new tokens of each, padded on the right: shape (rows, columns)."""
    longest = max(map(len, new))
    rows = [tokens + [pad] * (longest - len(tokens)) for tokens in new]
    new_ids = torch.tensor(rows, dtype=input_ids.dtype, device=input_ids.device).reshape(len(rows), longest)
    return torch.cat([input_ids, new_ids], dim=1)
