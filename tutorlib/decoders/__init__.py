"""One method a file. Each is a generator of steps: see `tutorlib.run`."""

from .greedy import greedy
from .sample import sample

__all__ = ["greedy", "sample"]
