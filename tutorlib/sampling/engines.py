"""The settings of other engines as lists of warps: ``as_in("llama.cpp", temperature=0.7, top_p=0.9)``.

The same setting is not the same distribution everywhere: engines apply filters in different orders, have different
defaults, and look back over different parts of the text. `engine_chains` has a function for each engine, with the
engine's own names and defaults; this file finds it, and refuses what it would ignore. What neither does: beam search,
lengths, stop words, and the speed of anything.
"""

import inspect
from typing import Any

from ..arguments import check_whole_number
from .checks import Warp
from .engine_chains import CHAINS, SAMPLERS, added_below_zero

__all__ = ["CHAINS", "IGNORED", "SAMPLERS", "VERSIONS", "added_below_zero", "as_in", "engine_settings"]

# The version of each engine whose chain is given here.
VERSIONS = {
    "transformers": "5.23.0",
    "llama.cpp": "xllamacpp 2026.10.11549",
    "openvino-genai": "2026.4.1",
    "ctranslate2": "4.8.5",
    "onnxruntime-genai": "0.18.0",
    "mlx-lm": "0.32.2",
    "keras-hub": "0.32.0",
    "litgpt": "0.5.13",
    "transformers.js": "4.3.1",
    "node-llama-cpp": "3.22.1",
    "vllm": "0.32.0, by its source",  # not run: the version is that of tests/engine_requirements.txt
}
# Settings that an engine accepts and does not use.
IGNORED = {
    "openvino-genai": ("no_repeat_ngram_size",),
    "transformers.js": (
        "top_p",
        "min_p",
        "typical_p",
        "epsilon_cutoff",
        "eta_cutoff",
        "presence_penalty",
        "frequency_penalty",
        "penalty_alpha",
        "num_beams",
        "seed",
    ),
    "llama.cpp": ("min_tokens",),
}


def as_in(engine: str, *, prompt_length: int | None = None, **settings: Any) -> list[Warp]:
    """The warps that give the distribution from which an engine draws with these settings.

    Parameters
    ----------
    engine : str
        One of `VERSIONS`, which also says which version is meant.
    prompt_length : int, optional
        How many tokens the prompt has. Some engines have penalties that do not see the prompt; they need this number.
    **settings
        In the engine's own names: ``temp`` in mlx-lm, ``sampling_temperature`` in CTranslate2. What is left out has the
        engine's default. Token ids are used where an engine takes words (for the breakers of DRY).

    Returns
    -------
    list of functions
        For the argument `warp` of every method. For greedy decoding the last one is `one_hot`.

    Raises
    ------
    ValueError
        For an unknown engine, for a setting that it does not have, and for one that it would ignore.

    Examples
    --------
    >>> [warp.__name__ for warp in as_in("llama.cpp", temperature=2, top_p=0.8, top_k=0, min_p=0)]
    ['top_p(0.8)', 'temperature(2)']
    >>> [warp.__name__ for warp in as_in("transformers", do_sample=True, temperature=2, top_p=0.8, top_k=0)]
    ['temperature(2)', 'top_p(0.8)']
    """
    if engine not in CHAINS:
        raise ValueError(f"as_in knows {', '.join(CHAINS)}, not {engine!r}")
    if prompt_length is not None:
        check_whole_number(prompt_length, 0, "as_in needs in prompt_length how many tokens the prompt has")
    chain, known = CHAINS[engine], engine_settings(engine)
    for name in settings:
        if name in IGNORED.get(engine, ()):
            raise ValueError(f"{engine} {VERSIONS[engine]} accepts {name} and ignores it: leave it out")
        if name not in known:
            raise ValueError(f"{engine} has no setting {name!r} here; it has {', '.join(known)}")
    needs = {"prompt_length": prompt_length} if "prompt_length" in inspect.signature(chain).parameters else {}
    return chain(**settings, **needs)


def engine_settings(engine: str) -> list[str]:
    """The names of the settings that `as_in` takes for an engine."""
    return [name for name in inspect.signature(CHAINS[engine]).parameters if name != "prompt_length"]
