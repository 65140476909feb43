"""Each engine's chain: which warps its settings are, in its order, with its own names and defaults.

What this file does not do: refuse an unknown engine or setting, which `engines` does. The chains were compared with the
engines themselves: see `tutorlib.lab.experiments.settings`, and chapter 22. Only vLLM's was read in its source.
"""

from collections.abc import Callable, Mapping, Sequence

import torch

from ..arguments import number_text
from . import filters, penalties, temperatures
from .checks import Warp, named
from .filters import one_hot
from .mirostat import mirostat as mirostat_warp

# ----------------------------------------------------------------------------------------------------------------------
# What the chains share


def _chain(*steps: tuple) -> list[Warp]:
    """The warps of the steps (condition, function that makes a warp, its arguments) whose condition holds."""
    return [make(*arguments) for condition, make, *arguments in steps if condition]


def _refuse(engine: str, because: str, **settings) -> None:
    """Raise ValueError if one of these settings was given: the engine would not use it."""
    for name, value in settings.items():
        if value is not None:
            raise ValueError(f"{engine} ignores {name} {because}: leave it out")


def _prompt(prompt_length: int | None, what: str) -> int:
    if prompt_length is None:
        raise ValueError(f"{what} does not see the prompt: pass prompt_length=len(prompt)")
    return prompt_length


def _some(value, off) -> bool:
    """Whether a setting was given, and does not mean "off"."""
    return value is not None and value != off


def _penalties(repeat, frequency, presence, *window) -> tuple[tuple, ...]:
    return (
        (repeat != 1, penalties.repetition_penalty, repeat, *window),
        (frequency != 0, penalties.frequency_penalty, frequency, *window),
        (presence != 0, penalties.presence_penalty, presence, *window),
    )


# ----------------------------------------------------------------------------------------------------------------------
# The chains


def _transformers(
    *, do_sample=False, temperature=None, top_k=None, top_p=None, min_p=None, top_h=None, typical_p=None,
    epsilon_cutoff=None, eta_cutoff=None, repetition_penalty=1.0, no_repeat_ngram_size=0, sequence_bias=None,
):  # fmt: skip
    before = _chain(
        (sequence_bias, _single_biases, sequence_bias),
        (repetition_penalty != 1, penalties.repetition_penalty, repetition_penalty),
        (no_repeat_ngram_size, penalties.no_repeat_ngram, no_repeat_ngram_size),
    )
    if not do_sample:
        _refuse(
            "transformers", "without do_sample=True", temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p,
            top_h=top_h, typical_p=typical_p, epsilon_cutoff=epsilon_cutoff, eta_cutoff=eta_cutoff,
        )  # fmt: skip
        return [*before, one_hot]
    return before + _chain(
        (_some(temperature, 1), temperatures.temperature, temperature),
        (top_h is not None, filters.top_h, top_h),
        (top_k != 0, filters.top_k, 50 if top_k is None else top_k),  # keeps ties
        (_some(top_p, 1), filters.top_p, top_p),
        (min_p is not None, filters.min_p, min_p),
        (_some(typical_p, 1), filters.typical, typical_p),
        (_some(epsilon_cutoff, 0), filters.epsilon_cutoff, epsilon_cutoff),
        (_some(eta_cutoff, 0), filters.eta_cutoff, eta_cutoff),
    )


def _single_biases(sequence_bias: Mapping[Sequence[int], float]) -> Warp:
    if any(len(tokens) != 1 for tokens in sequence_bias):
        raise ValueError(f"as_in knows sequence_bias for single tokens only, got {dict(sequence_bias)}")
    return temperatures.logit_bias({tokens[0]: value for tokens, value in sequence_bias.items()})


SAMPLERS = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")


def _llama_cpp(
    *, temperature=0.8, top_k=40, top_p=0.95, min_p=0.05, typical_p=1.0, top_n_sigma=-1.0, xtc_probability=0.0,
    xtc_threshold=0.1, dynatemp_range=0.0, dynatemp_exponent=1.0, repeat_penalty=1.0, repeat_last_n=64,
    presence_penalty=0.0, frequency_penalty=0.0, dry_multiplier=0.0, dry_base=1.75, dry_allowed_length=2,
    dry_sequence_breakers=(), mirostat=0, mirostat_tau=5.0, mirostat_eta=0.1, logit_bias=None, samplers=SAMPLERS,
):  # fmt: skip
    if repeat_last_n < 0:
        raise ValueError(f"llama.cpp refuses a repeat_last_n below 0, got {repeat_last_n}: give the context's length")
    hot: tuple = (temperatures.temperature, temperature) if temperature > 0 else (lambda: one_hot,)
    if dynatemp_range > 0 and temperature > 0:
        hot = temperatures.dynamic_temperature, temperature, dynatemp_range, dynatemp_exponent
    bias = _chain((logit_bias, temperatures.logit_bias, logit_bias))
    if mirostat:
        if mirostat != 2:
            raise ValueError(f"as_in knows mirostat 2 of llama.cpp, got mirostat={mirostat!r}")
        given = {"repeat_penalty": (repeat_penalty, 1), "presence_penalty": (presence_penalty, 0)}
        given |= {"frequency_penalty": (frequency_penalty, 0), "dry_multiplier": (dry_multiplier, 0)}
        _refuse("llama.cpp", "with mirostat", **{name: value for name, (value, off) in given.items() if value != off})
        return [*bias, *_chain((True, *hot), (temperature > 0, mirostat_warp, mirostat_tau, mirostat_eta))]
    steps = {
        "penalties": _penalties(repeat_penalty, frequency_penalty, presence_penalty, 0, repeat_last_n or None),
        "dry": ((dry_multiplier > 0, penalties.dry, dry_multiplier, dry_base, dry_allowed_length,
                 dry_sequence_breakers),),
        "top_n_sigma": ((top_n_sigma > 0, filters.top_n_sigma, top_n_sigma),),
        "top_k": ((top_k > 0, filters.exactly_k, top_k),),
        "typ_p": ((typical_p < 1, filters.typical, typical_p),),
        "top_p": ((top_p < 1, filters.top_p, top_p),),
        "min_p": ((min_p > 0, filters.min_p, min_p),),
        "temperature": ((True, *hot),),
    }  # fmt: skip
    if repeat_last_n == 0:
        steps["penalties"] = ()
    unknown = [name for name in samplers if name not in SAMPLERS]
    if unknown:
        raise ValueError(f"llama.cpp has no sampler {unknown[0]!r}; it has {', '.join(SAMPLERS)}")
    first = samplers[: samplers.index("xtc")] if "xtc" in samplers else samplers
    then = [warp for name in samplers[len(first) + 1 :] for warp in _chain(*steps[name])]
    chain = [*bias, *(warp for name in first for warp in _chain(*steps[name]))]
    on = "xtc" in samplers and xtc_probability > 0 and xtc_threshold <= 0.5
    return chain + ([filters.xtc(xtc_probability, xtc_threshold, then)] if on else then)


def _openvino_genai(
    *, prompt_length=None, do_sample=False, temperature=None, top_k=None, top_p=None, min_p=None,
    repetition_penalty=1.0, presence_penalty=0.0, frequency_penalty=0.0,
):  # fmt: skip
    what = "OpenVINO GenAI's presence or frequency penalty"
    begin = _prompt(prompt_length, what) if presence_penalty or frequency_penalty else 0
    before = _chain(
        (repetition_penalty != 1, penalties.repetition_penalty, repetition_penalty),
        (presence_penalty != 0, added_below_zero, presence_penalty, begin, False),
        (frequency_penalty != 0, added_below_zero, frequency_penalty, begin, True),
    )
    if not do_sample:
        given = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
        _refuse("openvino-genai", "without do_sample=True", **given)
        return [*before, one_hot]
    return before + _chain(
        (_some(temperature, 1), temperatures.temperature, temperature),
        (top_k is not None, filters.exactly_k, top_k),
        (_some(top_p, 1), filters.top_p, top_p),
        (_some(min_p, 0), filters.min_p, min_p),
    )


def added_below_zero(strength: float, ignore_first: int = 0, each: bool = True) -> Warp:
    """OpenVINO GenAI's frequency penalty (or presence penalty): subtracted from logits of 0 or more, added to others.

    So a token whose logit is below 0 is rewarded for being there already.

    Parameters
    ----------
    strength, ignore_first
        As for `frequency_penalty`.
    each : bool
        Whether each occurrence counts, as in a frequency penalty, or only the first one.
    """
    kind = penalties.frequency_penalty if each else penalties.presence_penalty
    right = kind(strength, ignore_first)

    def added_below_zero_warp(logits, histories=None):
        change = right(logits, histories) - logits
        return logits + torch.where(logits < 0, -change, change).nan_to_num(0)

    return named(added_below_zero_warp, f"added_below_zero({number_text(strength)})")


def _ctranslate2(
    *, prompt_length=None, sampling_topk=1, sampling_topp=None, sampling_temperature=None, repetition_penalty=1.0,
    no_repeat_ngram_size=0, include_prompt_in_result=True,
):  # fmt: skip
    begin = 0
    if not include_prompt_in_result and (repetition_penalty != 1 or no_repeat_ngram_size):
        begin = _prompt(prompt_length, "CTranslate2's penalty, with include_prompt_in_result=False,")
        if no_repeat_ngram_size and begin:
            raise ValueError("as_in knows no_repeat_ngram_size of CTranslate2 only with the prompt in the result")
    before = _chain(
        (repetition_penalty != 1, penalties.repetition_penalty, repetition_penalty, begin),
        (no_repeat_ngram_size, penalties.no_repeat_ngram, no_repeat_ngram_size),
    )
    if sampling_topk == 1:
        given = {"sampling_topp": sampling_topp, "sampling_temperature": sampling_temperature}
        _refuse("ctranslate2", "unless sampling_topk is set", **given)
        return [*before, one_hot]
    return before + _chain(
        (sampling_topk > 0, filters.exactly_k, sampling_topk),
        (_some(sampling_temperature, 1), temperatures.temperature, sampling_temperature),
        (_some(sampling_topp, 1), filters.top_p, sampling_topp),
    )


def _onnxruntime_genai(
    *, do_sample=False, temperature=None, top_k=None, top_p=None, repetition_penalty=1.0, no_repeat_ngram_size=0
):
    before = _chain(
        (repetition_penalty != 1, penalties.repetition_penalty, repetition_penalty),
        (no_repeat_ngram_size, penalties.no_repeat_ngram, no_repeat_ngram_size),
    )
    if not do_sample:
        _refuse("onnxruntime-genai", "without do_sample=True", temperature=temperature, top_k=top_k, top_p=top_p)
        return [*before, one_hot]
    if top_k == 1 or (top_k == 0 and top_p is None):  # greedy; with top_p=1.0 it draws from all tokens
        _refuse("onnxruntime-genai", f"with top_k={top_k}", temperature=temperature, top_p=top_p)
        return [*before, one_hot]
    return before + _chain(
        (top_k != 0, filters.exactly_k, 50 if top_k is None else top_k),
        (_some(temperature, 1), temperatures.temperature, temperature),
        (_some(top_p, 1), filters.top_p, top_p),
    )


def _mlx_lm(
    *, temp=0.0, top_p=None, min_p=None, top_k=None, xtc_probability=None, xtc_threshold=None, logit_bias=None,
    repetition_penalty=None, repetition_context_size=20, presence_penalty=None, presence_context_size=20,
    frequency_penalty=None, frequency_context_size=20,
):  # fmt: skip
    before = _chain(
        (logit_bias, temperatures.logit_bias, logit_bias),
        (repetition_penalty, penalties.repetition_penalty, repetition_penalty, 0, repetition_context_size),
        (presence_penalty, penalties.presence_penalty, presence_penalty, 0, presence_context_size),
        (frequency_penalty, penalties.frequency_penalty, frequency_penalty, 0, frequency_context_size),
    )
    if temp == 0:
        given = {"top_p": top_p, "min_p": min_p, "top_k": top_k, "xtc_probability": xtc_probability}
        _refuse("mlx-lm", "at temp=0", **given)
        return [*before, one_hot]
    before += _chain(
        (top_p is not None and 0 < top_p < 1, filters.top_p, top_p),  # of the whole vocabulary: top-k comes later
        (_some(min_p, 0), filters.min_p, min_p),
    )
    then = _chain((top_k, filters.exactly_k, top_k), (temp != 1, temperatures.temperature, temp))
    if xtc_probability:
        return [*before, filters.xtc(xtc_probability, 0.1 if xtc_threshold is None else xtc_threshold, then)]
    return before + then


def _keras_hub(*, temperature=1.0, k=None, p=None):
    """The samplers `Random`, `TopK` (with k) and `TopP` (with p, and k if it is given)."""
    return _chain(
        (temperature != 1, temperatures.temperature, temperature),
        (_some(p, 1), filters.top_p, p),  # of the whole vocabulary, also with k
        (k is not None, filters.exactly_k, k),
    )


def _litgpt(*, temperature=1.0, top_k=None, top_p=1.0):
    if temperature == 0 or top_p == 0:
        return [one_hot]
    return _chain(
        (top_k is not None, filters.exactly_k, top_k),
        (temperature != 1, temperatures.temperature, temperature),
        (top_p != 1, filters.top_p, top_p),
    )


def _transformers_js(*, do_sample=False, temperature=None, top_k=None, repetition_penalty=1.0, no_repeat_ngram_size=0):
    before = _chain(
        (repetition_penalty != 1, penalties.repetition_penalty, repetition_penalty),
        (no_repeat_ngram_size, penalties.no_repeat_ngram, no_repeat_ngram_size),
    )
    if not do_sample:
        _refuse("transformers.js", "without do_sample", temperature=temperature, top_k=top_k)
        return [*before, one_hot]
    return before + _chain(
        (_some(temperature, 1), temperatures.temperature, temperature),
        (top_k != 0, filters.exactly_k, 50 if top_k is None else top_k),
    )


def _node_llama_cpp(
    *, prompt_length=None, temperature=0.0, topK=None, topP=None, minP=None, penalty=1.0, presencePenalty=0.0,
    frequencyPenalty=0.0, lastTokens=64, tokenBias=None,
):  # fmt: skip
    penalised = penalty != 1 or presencePenalty or frequencyPenalty
    begin = _prompt(prompt_length, "node-llama-cpp's repeatPenalty") if penalised else 0
    before = _chain(
        (tokenBias, temperatures.logit_bias, tokenBias),
        *_penalties(penalty, frequencyPenalty, presencePenalty, begin, lastTokens),
    )
    if temperature == 0:
        _refuse("node-llama-cpp", "at temperature 0", topK=topK, topP=topP, minP=minP)
        return [*before, one_hot]
    return before + _chain(
        (topK != 0, filters.exactly_k, 40 if topK is None else topK),
        (topP != 1, filters.top_p, 0.95 if topP is None else topP),
        (_some(minP, 0), filters.min_p, minP),
        (temperature != 1, temperatures.temperature, temperature),
    )


def _vllm(
    *, prompt_length=None, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0,
    presence_penalty=0.0, frequency_penalty=0.0, logit_bias=None,
):  # fmt: skip
    """The order of `Sampler` and of its processors in ``vllm/v1/sample``."""
    penalised = presence_penalty or frequency_penalty
    begin = _prompt(prompt_length, "vLLM's presence or frequency penalty") if penalised else 0
    before = _chain(
        (logit_bias, temperatures.logit_bias, logit_bias),
        (repetition_penalty != 1, penalties.repetition_penalty, repetition_penalty),
        *_penalties(1, frequency_penalty, presence_penalty, begin),
    )
    if temperature < 1e-5:
        given = {"top_k": top_k or None, "top_p": None if top_p == 1 else top_p, "min_p": min_p or None}
        _refuse("vllm", "at temperature 0", **given)
        return [*before, one_hot]
    return before + _chain(
        (temperature != 1, temperatures.temperature, max(temperature, 0.01)),  # a lower one is raised
        (min_p != 0, filters.min_p, min_p),
        (top_k not in (0, -1), filters.top_k, top_k),  # keeps ties
        (top_p != 1, filters.top_p, top_p),
    )


CHAINS: dict[str, Callable[..., list[Warp]]] = {
    "transformers": _transformers,
    "llama.cpp": _llama_cpp,
    "openvino-genai": _openvino_genai,
    "ctranslate2": _ctranslate2,
    "onnxruntime-genai": _onnxruntime_genai,
    "mlx-lm": _mlx_lm,
    "keras-hub": _keras_hub,
    "litgpt": _litgpt,
    "transformers.js": _transformers_js,
    "node-llama-cpp": _node_llama_cpp,
    "vllm": _vllm,
}
