"""Measures of texts (`text`, whose names can also be imported from here) and of memory use (`memory`).

`memory` is imported only when it is first used, because it needs torch.
"""

import importlib

from .intervals import bootstrap_interval, wilson_interval
from .text import (
    Consistency,
    consistency,
    distinct_n,
    log_probabilities,
    ngram_entropy,
    ngrams,
    perplexity,
    repetition,
    self_bleu,
)


def __getattr__(name: str):
    if name == "memory":
        return importlib.import_module(".memory", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
