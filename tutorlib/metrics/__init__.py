"""What can be measured: of a text (`text`, whose names are here too), and of the memory that decoding takes (`memory`).

`memory` is loaded when it is first asked for, because it needs torch, and texts do not.
"""

import importlib

from .text import (
    Consistency,
    bootstrap_interval,
    consistency,
    distinct_n,
    log_probabilities,
    ngram_entropy,
    ngrams,
    perplexity,
    repetition,
    self_bleu,
    wilson_interval,
)

__all__ = [
    "Consistency",
    "bootstrap_interval",
    "consistency",
    "distinct_n",
    "log_probabilities",
    "memory",
    "ngram_entropy",
    "ngrams",
    "perplexity",
    "repetition",
    "self_bleu",
    "wilson_interval",
]


def __getattr__(name: str):
    if name == "memory":
        return importlib.import_module(".memory", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
