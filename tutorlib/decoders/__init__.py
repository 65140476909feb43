"""One method a file. Each is a generator of steps: see `tutorlib.run`."""

from .beam_search import beam_search
from .best_first_beam_search import best_first_beam_search
from .contrastive_decoding import contrastive_beam_search, contrastive_decoding, contrastive_sampling
from .contrastive_search import contrastive_search
from .dola import dola, lower_layers, upper_layers
from .greedy import greedy
from .sample import sample

__all__ = [
    "beam_search",
    "best_first_beam_search",
    "contrastive_beam_search",
    "contrastive_decoding",
    "contrastive_sampling",
    "contrastive_search",
    "dola",
    "greedy",
    "lower_layers",
    "sample",
    "upper_layers",
]
