"""The source of a method's random draws: two functions, ``choose`` and ``accept``, and three classes that have them.

``Seeded`` is an ordinary reproducible generator. ``Exhaustive`` goes through every branch that a method could take and
knows the exact probability of each. ``Greedy`` draws nothing at random. Any other object with these two functions can
be used as well. Nothing here depends on a model, a warp or a method.
"""

import operator
import random
from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import torch

# How far the sum of the probabilities given to ``choose`` may be from 1. A float32 softmax over a large vocabulary has
# rounding errors of this size; real mistakes (a forgotten normalisation, a row cut by a filter) are far larger.
SUM_TOLERANCE = 1e-4


@runtime_checkable
class Randomness(Protocol):
    """The random draws that a method may make. Any object with these two functions is a ``Randomness``."""

    def choose(self, probs: torch.Tensor) -> int:
        """Draw an index with the given probabilities, shape (n,)."""
        ...

    def accept(self, probability: float) -> bool:
        """Return True with this probability. Numbers above 1 count as 1, so the ratio p/q can be passed directly."""
        ...


def as_array(probs) -> np.ndarray:
    """`probs` as a NumPy float64 array of the same shape. For a single row, NumPy is faster than PyTorch."""
    if isinstance(probs, torch.Tensor):
        probs = probs.detach().to("cpu", torch.float64).numpy()
    return np.asarray(probs, dtype=np.float64)


def _checked_probabilities(probs) -> np.ndarray:
    """Return `probs` as a float64 array of shape (n,) that sums to 1.

    Parameters
    ----------
    probs : tensor, array or sequence of floats, shape (n,)
        Probabilities, on any device and in any float type.

    Returns
    -------
    array of float64, shape (n,)
        The same, divided by their sum.

    Raises
    ------
    ValueError
        If they are not a single row, contain NaN or a negative number, or do not sum to 1.
    """
    probs = as_array(probs)
    if probs.ndim != 1 or probs.size == 0:
        raise ValueError(f"choose needs one row of probabilities, shape (n,); got shape {probs.shape}: pass one row")
    total = probs.sum()
    # Written so that NaN fails it too. What exactly is wrong is found out only then.
    if not (probs.min() >= 0 and abs(total - 1) <= SUM_TOLERANCE):
        if np.isnan(probs).any():
            index = int(np.isnan(probs).argmax())
            raise ValueError(f"choose was given NaN at index {index}: look at the logits it came from")
        if probs.min() < 0:
            index = int(probs.argmin())
            raise ValueError(f"choose was given a negative probability, {probs[index]:g} at index {index}")
        raise ValueError(f"choose needs probabilities that sum to 1; these sum to {total:g}: normalise them first")
    return probs / total


def checked_acceptance(probability: float) -> float:
    """Return `probability` as a float of at most 1; raise ValueError if it is negative or NaN."""
    probability = float(probability)
    if not probability >= 0:
        raise ValueError(f"accept needs a probability of 0 or more, got {probability}")
    return min(probability, 1.0)


class Seeded:
    """Ordinary random draws that can be repeated: the same seed gives the same draws on every processor.

    Each draw takes one uniform number from Python's own Mersenne Twister, and finds where it falls in the running sum
    of the probabilities. This is done in float64, whatever device the probabilities come from.

    Parameters
    ----------
    seed : int
        Any integer.

    Examples
    --------
    >>> rng = Seeded(7)
    >>> [rng.choose([0.5, 0.25, 0.25]) for _ in range(8)]
    [0, 0, 1, 0, 1, 0, 0, 1]
    """

    def __init__(self, seed: int):
        if isinstance(seed, bool) or not hasattr(seed, "__index__"):
            raise ValueError(f"Seeded needs an integer seed, got {seed!r}")
        self.seed = operator.index(seed)
        self._random = random.Random(self.seed)

    def choose(self, probs: torch.Tensor | np.ndarray | Sequence[float]) -> int:
        probs = as_array(probs)
        if probs.ndim != 1 or not len(probs):
            _checked_probabilities(probs)
        running_sum = probs.cumsum()
        total = float(running_sum[-1])
        # Written so that NaN fails it too; `_checked_probabilities` then reports what is wrong.
        if not (probs.min() >= 0 and abs(total - 1) <= SUM_TOLERANCE):
            _checked_probabilities(probs)
        # side="right" gives the first index whose running sum is *above* the number drawn, so an index of probability
        # zero is never chosen, not even when the number drawn is 0.
        index = int(running_sum.searchsorted(self._random.random() * total, side="right"))
        if index == len(probs):  # the product was rounded up to the total
            index = int(probs.nonzero()[0][-1])
        return index

    def accept(self, probability: float) -> bool:
        return self._random.random() < checked_acceptance(probability)

    def __repr__(self) -> str:
        return f"Seeded({self.seed})"


class Greedy:
    """Draws nothing: ``choose`` takes the most probable index (the lowest of equals), ``accept`` is True only for 1 or
    more.

    This is used for ``rng=None``: see `tutorlib.running.decoder.decoder`.
    """

    def choose(self, probs: torch.Tensor | np.ndarray | Sequence[float]) -> int:
        probs = as_array(probs)
        if probs.ndim == 1 and len(probs):
            best = int(probs.argmax())
            if probs[best] == 1:  # one-hot, like every row under rng=None: nothing else to check
                return best
        return int(_checked_probabilities(probs).argmax())

    def accept(self, probability: float) -> bool:
        return checked_acceptance(probability) >= 1

    def __repr__(self) -> str:
        return "Greedy()"


class CheckedRandomness:
    """A `Randomness` from outside this package, whose answers are converted to plain ints and bools, or refused.

    Parameters
    ----------
    rng : Randomness
    """

    def __init__(self, rng: Randomness):
        self.rng = rng

    def choose(self, probs: torch.Tensor) -> int:
        answer = self.rng.choose(probs)
        index = operator.index(answer) if hasattr(answer, "__index__") and not isinstance(answer, bool) else -1
        if not 0 <= index < len(probs):
            raise ValueError(
                f"choose must return an index from 0 to {len(probs) - 1}, but that of {self.rng!r} returned {answer!r}"
            )
        return index

    def accept(self, probability: float) -> bool:
        answer = self.rng.accept(probability)
        if not isinstance(answer, bool | np.bool_):
            raise ValueError(f"accept must return True or False, but that of {self.rng!r} returned {answer!r}")
        return bool(answer)

    def __repr__(self) -> str:
        return repr(self.rng)


class Exhaustive:
    """Random draws that go through every branch in turn, with the exact probability of each branch.

    Use it in a loop that runs a method once per iteration. In every iteration the draws have other outcomes, until all
    combinations have occurred. After the method has run, ``weight`` is the exact probability (float64) of the draws in
    this iteration. Outcomes of probability zero are left out, and a draw with only one possible outcome makes no new
    branch. The weights of all branches sum to 1.

    Parameters
    ----------
    max_branches : int
        Raise ValueError if there are more. Their number multiplies with every draw.

    Attributes
    ----------
    weight : float
        Probability of the draws in this branch so far.
    branches : int
        How many branches have been begun.

    Raises
    ------
    RuntimeError
        If a replay makes other draws than before. The method then depends on something besides its random draws, for
        example on state that it keeps from one run to the next, and its distribution cannot be enumerated.

    Examples
    --------
    Two coins, and the distribution of the number of heads:

    >>> heads = {}
    >>> for rng in Exhaustive():
    ...     count = rng.accept(0.5) + rng.accept(0.25)
    ...     heads[count] = heads.get(count, 0) + rng.weight
    >>> heads
    {0: 0.375, 1: 0.5, 2: 0.125}
    """

    def __init__(self, max_branches: int = 1_000_000):
        self.max_branches = max_branches
        self.weight = 1.0
        self.branches = 0
        self._draws = []  # for each draw of the branch: (outcomes, their probabilities, which is taken)
        self._depth = 0  # how many draws this replay has made

    def __iter__(self) -> Iterator["Exhaustive"]:
        self._draws, self.branches = [], 0
        while True:
            if self.branches == self.max_branches:
                raise ValueError(
                    f"more than {self.max_branches} branches: shorten the sequence, shrink the vocabulary, or raise "
                    "max_branches"
                )
            self.branches += 1
            self._depth, self.weight = 0, 1.0
            yield self
            if self._depth < len(self._draws):
                raise self._changed(f"it made {self._depth} draws where {len(self._draws)} were made before")
            # Next branch: the last draw that has an outcome left takes it, and the draws after it are forgotten.
            while self._draws and self._draws[-1][2] + 1 == len(self._draws[-1][0]):
                self._draws.pop()
            if not self._draws:
                return
            outcomes, probs, taken = self._draws[-1]
            self._draws[-1] = (outcomes, probs, taken + 1)

    def choose(self, probs: torch.Tensor | np.ndarray | Sequence[float]) -> int:
        probs = _checked_probabilities(probs)
        outcomes = probs.nonzero()[0]
        return int(self._draw(outcomes, probs[outcomes]))

    def accept(self, probability: float) -> bool:
        probability = checked_acceptance(probability)
        return self.choose([1 - probability, probability]) == 1

    def _draw(self, outcomes: np.ndarray, probs: np.ndarray):
        if self._depth == len(self._draws):
            self._draws.append((outcomes, probs, 0))
        before, before_probs, taken = self._draws[self._depth]
        # A replay must see the same probabilities as before, but not bit for bit: a model's rounding may depend on
        # timing. (`np.allclose` does the same, but would take most of the time of an enumeration.)
        same = np.array_equal(before, outcomes) and (np.abs(before_probs - probs) <= 1e-9 + 1e-6 * probs).all()
        if not same:
            raise self._changed(f"its draw number {self._depth + 1} was between other outcomes than before")
        self._depth += 1
        self.weight *= float(before_probs[taken])
        return outcomes[taken]

    def _changed(self, how: str) -> RuntimeError:
        return RuntimeError(
            f"replaying the same draws, the method did something else: {how}. Its result must depend on its arguments "
            "and its draws only: build sessions and state anew in every run"
        )

    def __repr__(self) -> str:
        return f"Exhaustive(branches={self.branches}, weight={self.weight:g})"
