"""Where a method's random draws come from: two verbs, ``choose`` and ``accept``, and three things that provide them.

``Seeded`` is an ordinary reproducible generator, ``Exhaustive`` takes every branch a method could take, one after the
other, and knows the exact probability of each, and ``Greedy`` draws nothing at random. Any other object with the
two verbs will do. Nothing here knows a model, a warp or a method.
"""

import operator
import random
from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import torch

# How far from 1 the probabilities given to ``choose`` may sum: the rounding of a float32 softmax over a large
# vocabulary, and far below any real mistake (a forgotten normalisation, a row cut by a filter).
SUM_TOLERANCE = 1e-4


@runtime_checkable
class Randomness(Protocol):
    """What a method may draw. Any object with these two verbs is a ``Randomness``."""

    def choose(self, probs: torch.Tensor | np.ndarray | Sequence[float]) -> int:
        """Draw an index with the given probabilities, shape (n,)."""
        ...

    def accept(self, probability: float) -> bool:
        """Say yes with this probability. Above 1 means surely, so that the ratio p/q can be passed as it is."""
        ...


def as_array(probs) -> np.ndarray:
    """`probs` as a float64 array of the same shape, in NumPy: on one row its operations are quicker than PyTorch's."""
    if isinstance(probs, torch.Tensor):
        probs = probs.detach().to("cpu", torch.float64).numpy()
    return np.asarray(probs, dtype=np.float64)


def checked_probabilities(probs) -> np.ndarray:
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
        When they are not one row, hold NaN or a negative number, or do not sum to 1.
    """
    probs = as_array(probs)
    if probs.ndim != 1 or probs.size == 0:
        raise ValueError(f"choose needs one row of probabilities, shape (n,); got shape {probs.shape}: pass one row")
    total = probs.sum()
    # Written so that NaN fails it too; the questions of what exactly is wrong are asked only then.
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
    """Return `probability` as a float no larger than 1; raise ValueError when it is negative or NaN."""
    probability = float(probability)
    if not probability >= 0:
        raise ValueError(f"accept needs a probability of 0 or more, got {probability}")
    return min(probability, 1.0)


class Seeded:
    """Ordinary random draws that can be repeated: the same seed draws the same on every processor.

    It draws from Python's own Mersenne Twister, in float64, whatever device the probabilities come from, by inverting
    their running sum: one uniform number a draw.

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
            checked_probabilities(probs)
        running_sum = probs.cumsum()
        total = float(running_sum[-1])
        # Written so that NaN fails it too; `checked_probabilities` then says what is wrong.
        if not (probs.min() >= 0 and abs(total - 1) <= SUM_TOLERANCE):
            checked_probabilities(probs)
        # side="right" gives the first index whose running sum is *above* the number drawn, so an index of probability
        # zero is never chosen, not even when the number drawn is 0.
        index = int(running_sum.searchsorted(self._random.random() * total, side="right"))
        if index == len(probs):  # the product was rounded up to the total itself
            index = int(probs.nonzero()[0][-1])
        return index

    def accept(self, probability: float) -> bool:
        return self._random.random() < checked_acceptance(probability)

    def __repr__(self) -> str:
        return f"Seeded({self.seed})"


class Greedy:
    """Nothing random: ``choose`` takes the most probable index (the lowest of equals), ``accept`` only what is certain.

    This is what ``rng=None`` means: see `tutorlib.decoding.decoder`.
    """

    def choose(self, probs: torch.Tensor | np.ndarray | Sequence[float]) -> int:
        probs = as_array(probs)
        if probs.ndim == 1 and len(probs):
            best = int(probs.argmax())
            if probs[best] == 1:  # one-hot, as rng=None makes every row: there is nothing else to look at
                return best
        return int(checked_probabilities(probs).argmax())

    def accept(self, probability: float) -> bool:
        return checked_acceptance(probability) >= 1

    def __repr__(self) -> str:
        return "Greedy()"


class CheckedRandomness:
    """Somebody's `Randomness`, whose answers are made plain ints and bools, and refused where they are none.

    Parameters
    ----------
    rng : Randomness
    """

    def __init__(self, rng: Randomness):
        self.rng = rng

    def choose(self, probs: torch.Tensor | np.ndarray | Sequence[float]) -> int:
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
    """Random draws that take every branch in turn, and know how probable each branch was.

    Iterating over it replays a method once for every way its draws can fall. Each time around, the same object is
    handed out with a fresh ``weight``: after the method has run, the exact probability (float64) of the draws it saw.
    Branches of probability zero are never entered, and a draw with one possible outcome opens no branch. The weights
    of all branches sum to 1.

    Parameters
    ----------
    max_branches : int
        Raise ValueError when there are more: their number multiplies with every draw.

    Attributes
    ----------
    weight : float
        Probability of the branch taken so far.
    branches : int
        How many branches have been begun.

    Raises
    ------
    RuntimeError
        When a replay asks for other draws than before: the method then depends on something that is not its random
        draws, for instance on state it keeps from one run to the next, and its distribution cannot be enumerated.

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
        self._draws = []  # one entry a draw of the current branch: (its outcomes, their probabilities, which is taken)
        self._depth = 0  # how many draws this replay has asked for

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
            # On to the next branch: the last draw that has an outcome left takes it, and what came after is forgotten.
            while self._draws and self._draws[-1][2] + 1 == len(self._draws[-1][0]):
                self._draws.pop()
            if not self._draws:
                return
            outcomes, probs, taken = self._draws[-1]
            self._draws[-1] = (outcomes, probs, taken + 1)

    def choose(self, probs: torch.Tensor | np.ndarray | Sequence[float]) -> int:
        probs = checked_probabilities(probs)
        outcomes = probs.nonzero()[0]
        return int(self._draw(outcomes, probs[outcomes]))

    def accept(self, probability: float) -> bool:
        probability = checked_acceptance(probability)
        return self.choose([1 - probability, probability]) == 1

    def _draw(self, outcomes: np.ndarray, probs: np.ndarray):
        if self._depth == len(self._draws):
            self._draws.append((outcomes, probs, 0))
        before, before_probs, taken = self._draws[self._depth]
        # A replay must see what was seen before. Bit-equality is not asked: a model's rounding may depend on timing.
        # (`np.allclose` would ask the same, and most of the time of an enumeration would be its own.)
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
