"""Which options of Hugging Face's `generate` the methods of this book support, and what to use in place of the others.

This file is used by `hugging_face`. An option that is not in `KEPT` is refused by name if its value is not the default.
This includes options of new versions of transformers, until support for them is added.

An option can come from the caller of `generate`, or from the model's own generation settings (the file
generation_config.json). What the caller did not give is ignored if it changes no text; otherwise the refusal says where
it comes from.
"""

from collections.abc import Callable, Collection
from typing import Any

from transformers import GenerationConfig

from ..decoders.dola import lower_layers, upper_layers
from ..model.lm import LM

# Options that `generate` turns into processors, criteria or arguments; a test compares the effect of each.
KEPT = {
    "max_length", "max_new_tokens", "min_length", "min_new_tokens", "max_time", "stop_strings",
    "eos_token_id", "bos_token_id", "pad_token_id", "num_return_sequences", "return_dict_in_generate",
    "do_sample", "temperature", "top_k", "top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff",
    "renormalize_logits", "repetition_penalty", "encoder_repetition_penalty", "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size", "bad_words_ids", "sequence_bias", "suppress_tokens", "begin_suppress_tokens",
    "forced_bos_token_id", "forced_eos_token_id", "exponential_decay_length_penalty", "remove_invalid_values",
    "watermarking_config",
}  # fmt: skip
_NOTES = {"transformers_version"}  # only information about the options
_LONG = {"assistant_model", "assistant_tokenizer", "negative_prompt_ids", "negative_prompt_attention_mask"}

_BEAMS = "it is a setting of the method, custom_generate(beam_search, beams=4, {name}={value!r})"
_DRAFT = "a draft and its length are settings of the method, custom_generate(speculative, draft=LM(model), gamma=4)"
_LOOKUP = "it is a setting of the method, custom_generate(prompt_lookup, gamma=10, max_ngram={value})"
_CACHE = "methods keep caches of their own, which can be rolled back"
_SCORES = "methods may score a token never, once or several times, and return only sequences; look at .traces"
_GUIDANCE = (
    "contrast with a negative prompt is a method here, custom_generate(context_contrast, without=negative_prompt, "
    "weight=guidance_scale - 1)"
)
_WORDS = "no method here forces words into the text"


def _dola(layers, model) -> str:
    try:
        layers = {"low": lower_layers, "high": upper_layers}[layers](LM(model)) if isinstance(layers, str) else layers
    except (KeyError, ValueError):  # another word; a model with too few layers for the bucket
        layers = [0]
    return f"use custom_generate(dola, layers={list(layers)})"


# What to use in place of an option: a text, or a function of its value and the model that returns one.
_ADVICE: dict[str, str | Callable] = {
    "num_beams": "use custom_generate(beam_search, beams={value})",
    "early_stopping": _BEAMS,
    "length_penalty": _BEAMS,
    "num_beam_groups": "use custom_generate(beam_search, beams=4, groups={value})",
    "diversity_penalty": "use custom_generate(beam_search, beams=4, groups=2, diversity={value})",
    "constraints": _WORDS,
    "force_words_ids": _WORDS,
    "penalty_alpha": "use custom_generate(contrastive_search, k=4, penalty={value})",
    "dola_layers": _dola,
    "prompt_lookup_num_tokens": "use custom_generate(prompt_lookup, gamma={value})",
    "max_matching_ngram_size": _LOOKUP,
    "guidance_scale": _GUIDANCE,
    "token_healing": "heal the prompt before the call",
    "decoder_start_token_id": "it is for models with an encoder",
    "assistant_tokenizer": "a draft has its own, custom_generate(string_match, draft=LM(model, tokenizer))",
    "synced_gpus": "these methods decode on one process",
    **dict.fromkeys(("negative_prompt_ids", "negative_prompt_attention_mask"), _GUIDANCE),
    "trust_remote_code": "nothing is fetched here",
    **dict.fromkeys(("output_scores", "output_logits", "output_attentions", "output_hidden_states"), _SCORES),
    **dict.fromkeys(
        ("use_cache", "cache_implementation", "cache_config", "max_cache_len", "prefill_chunk_size", "low_memory"),
        _CACHE,
    ),
    **dict.fromkeys(
        (
            "assistant_model", "is_assistant", "num_assistant_tokens", "num_assistant_tokens_schedule",
            "assistant_confidence_threshold", "assistant_early_exit", "assistant_lookbehind", "target_lookbehind",
            "assistant_ensemble_weight", "speculation_type", "use_mtp",
        ),
        _DRAFT,
    ),
}  # fmt: skip
# Options that change no text by themselves: how `generate` computes, what else it returns, how long the drafts are if
# there is a draft, and where a decoder starts that has an encoder.
_WITHOUT_EFFECT = {name for name, advice in _ADVICE.items() if advice in (_CACHE, _SCORES)} | {
    "compile_config", "disable_compile", "continuous_batching_config", "max_matching_ngram_size", "is_assistant",
    "num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold", "assistant_lookbehind",
    "target_lookbehind", "decoder_start_token_id",
}  # fmt: skip
_ONLY_FOR_BEAMS = {"early_stopping", "length_penalty", "num_beam_groups", "diversity_penalty"}


def refuse(name: str, value, model) -> None:
    """Raise a ValueError about this option, with advice."""
    advice = _ADVICE.get(name, "no method here supports it")
    advice = advice(value, model) if callable(advice) else advice.format(name=name, value=value)
    shown = name if name in _LONG else f"{name}={value!r}"
    raise ValueError(f"{shown}: these methods do not support this option of generate. Leave it out: {advice}")


def refuse_options(config: GenerationConfig, model, given: Collection[str] | None, has_beams: bool) -> None:
    """Raise ValueError for the first option that is neither supported nor at its default.

    Parameters
    ----------
    config : GenerationConfig
        The configuration that `generate` has put together from its arguments and ``model.generation_config``.
    model : transformers model
    given : names of arguments, or None
        What the caller passed to `generate`; None if this is not known.
    has_beams : bool
        Whether the method is a search, whose result depends on the options for beams.
    """
    defaults = _defaults()
    ignored = _WITHOUT_EFFECT if has_beams else _WITHOUT_EFFECT | _ONLY_FOR_BEAMS
    own = own_options(model, given)
    for name, value in vars(config).items():
        if name.startswith("_") or name in KEPT | _NOTES:
            continue
        # A model's own file may contain options of other programs, which `generate` ignores.
        default = defaults[name] if name in defaults else getattr(model.generation_config, name, None)
        is_off = value is None or (value is False and not default)
        if is_off or value == default:
            continue
        if name not in own:
            refuse(name, value, model)
        if name not in ignored:
            raise ValueError(f"{said({name: value})}. These methods do not support this option of generate")


def own_options(model, given: Collection[str] | None) -> dict[str, Any]:
    """The options in the model's own generation settings that differ from the defaults, without those that the caller
    gave.
    """
    if given is None:
        return {}
    settings, defaults = vars(model.generation_config), _defaults()
    return {
        name: value
        for name, value in settings.items()
        if name in defaults and name not in given and value is not None and value != defaults[name]
    }


def said(own: dict[str, Any]) -> str:
    """Where these options come from, and how to turn them off."""
    default, have = _defaults(), ", ".join(f"{name}={value!r}" for name, value in own.items())
    off = ", ".join(f"{name}={default[name]!r}" for name in own)
    return f"the model's own generation settings have {have}: pass {off} to generate"


def _defaults() -> dict[str, Any]:
    # Values that `generate` sets by default; older versions set them when a config is made.
    return vars(GenerationConfig()) | getattr(GenerationConfig, "_get_default_generation_params", dict)()
