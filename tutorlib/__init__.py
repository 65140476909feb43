"""How language models choose their words: decoding methods that read like their papers.

This is the front door. Names are looked up when they are first used, so that `import tutorlib` is quick and a method
loads nothing that it does not need.
"""

import sys
from importlib import import_module
from types import ModuleType

__version__ = "0.1.0"

# Public name -> the module that defines it; a module's own name stands for the module.
_HOME = {
    "LM": "lm",
    "NaNLogits": "lm",
    "TableLM": "table",
    "TokenTree": "tree",
    "Exhaustive": "randomness",
    "Greedy": "randomness",
    "Seeded": "randomness",
    "temperature": "warp",
    "top_k": "warp",
    "top_p": "warp",
    "min_p": "warp",
    "typical": "warp",
    "repetition_penalty": "warp",
    "frequency_penalty": "warp",
    "presence_penalty": "warp",
    "no_repeat_ngram": "warp",
    "checking": "checking",
    "walk": "checking",
    "exact": "checking",
    "typical_acceptance": "checking",
    "Step": "run",
    "Trace": "run",
    "decoder": "run",
    "run": "run",
    "run_batch": "run",
    "greedy": "decoders.greedy",
    "sample": "decoders.sample",
    "beam_search": "decoders.beam_search",
    "best_first_beam_search": "decoders.best_first_beam_search",
    "contrastive_decoding": "decoders.contrastive_decoding",
    "contrastive_sampling": "decoders.contrastive_decoding",
    "contrastive_beam_search": "decoders.contrastive_decoding",
    "contrastive_search": "decoders.contrastive_search",
    "dola": "decoders.dola",
    "lower_layers": "decoders.dola",
    "upper_layers": "decoders.dola",
    "adaptive": "decoders.speculative",
    "speculative": "decoders.speculative",
    "speculative_batch": "decoders.speculative_batch",
    "prompt_lookup": "decoders.prompt_lookup",
    "suffix_lookup": "decoders.suffix_lookup",
    "lookahead": "decoders.lookahead",
    "string_match": "decoders.string_match",
    "token_intersection": "decoders.token_intersection",
    "medusa": "decoders.medusa",
    "eagle": "decoders.eagle",
    "chain": "decoders.draft_trees",
    "drawn_chain": "decoders.draft_trees",
    "drawn_tree": "decoders.draft_trees",
    "static": "decoders.draft_trees",
    "dynamic": "decoders.draft_trees",
    "MedusaHeads": "heads.medusa",
    "EagleHead": "heads.eagle",
    "Eagle3Head": "heads.eagle",
    "custom_generate": "hugging_face",
    "metrics": "metrics",
    "models": "models",
    "proof": "proof",
    "storyworld": "storyworld",
    "sweeps": "sweeps",
    "zoo": "zoo",
}

__all__ = sorted(_HOME)


def __getattr__(name):
    if name not in _HOME:
        raise AttributeError(f"tutorlib has no {name!r}; its names are {', '.join(__all__)}")
    module = import_module(f".{_HOME[name]}", __name__)
    is_module = _HOME[name].rpartition(".")[2] == name and not hasattr(module, name)
    value = globals()[name] = module if is_module else getattr(module, name)
    return value


def __dir__():
    return sorted({*globals(), *__all__})


class _FrontDoor(ModuleType):
    """Keeps `tutorlib.run` the function: importing the file run.py would otherwise put the module in its place."""

    def __setattr__(self, name, value):
        if isinstance(value, ModuleType) and name in _HOME:
            value = getattr(value, name, value)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _FrontDoor
