"""One method a file. Each is a generator of steps: see `tutorlib.run`."""

from .beam_search import beam_search
from .best_first_beam_search import best_first_beam_search
from .greedy import greedy
from .sample import sample

__all__ = ["beam_search", "best_first_beam_search", "greedy", "sample"]
