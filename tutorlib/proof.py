"""Is a method's output distribution the one it should be? Answered with numbers.

`exact_distribution` enumerates everything a method can draw and returns its output distribution, not an estimate;
`target_distribution` multiplies out what it should be; `total_variation` is the distance of the two. For decoders that
do not draw from our `Randomness`, `empirical_check` samples and tests. No method is known here by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from .arguments import ints, takes_iterators
from .decoding import checked_budget, checked_stop, run
from .randomness import Exhaustive, Randomness
from .step import Step
from .warp import Warp, checked_warp, probabilities

if TYPE_CHECKING:
    from .lm import LM

Sequences = dict[tuple[int, ...], float]  # new tokens -> probability


@takes_iterators
def exact_distribution(
    make_steps: Callable[[Randomness], Iterable[Step]],
    length: int,
    *,
    stop: Iterable[int] | None = None,
    max_branches: int = 1_000_000,
) -> Sequences:
    """Enumerate the output distribution of a method.

    The method is replayed once for each way its draws can fall (see `randomness.Exhaustive`), about 4 ms a branch on a
    small real model and far less on a `TableLM`. Keep to a vocabulary of 2 or 3; for speculative methods to 2 drafted
    tokens and a length two longer, which is what it takes to see the bonus token and the rollback after it.

    Parameters
    ----------
    make_steps : function
        Takes a `Randomness` and returns a method's steps, new each time:
        ``lambda rng: sample(lm, prompt, rng=rng)``.
    length : int
        How many new tokens to look at.
    stop : token ids, optional
        As in `run`: None for the model's own, ``()`` for none. A sequence that meets one ends there.
    max_branches : int
        Raise ValueError beyond so many.

    Returns
    -------
    dict from tuples of tokens to probabilities (float64), which sum to 1
        Tuples are `length` long, or shorter where the run ended earlier.
    """
    distribution: Sequences = {}
    for rng in Exhaustive(max_branches):
        tokens = tuple(run(make_steps(rng), length, stop, progress=False).tokens)
        distribution[tokens] = distribution.get(tokens, 0.0) + rng.weight
    return distribution


@takes_iterators
def target_distribution(
    lm: LM, prompt: str | Sequence[int], length: int, *, warp: Iterable[Warp] = (), stop: Iterable[int] | None = None
) -> Sequences:
    """The distribution that plain sampling from the warped model has, and that every lossless method has to keep.

    Every probability comes from a session of its own that is fed its whole text as a prompt, so nothing rests on caches
    being rolled back rightly, and no method is run.

    Parameters
    ----------
    lm, prompt, warp
        As for `sample`.
    length, stop
        As for `exact_distribution`.

    Returns
    -------
    dict from tuples of tokens to probabilities (float64)
        Sequences of probability zero are left out.
    """
    next_probs = _model_reference(lm, prompt, warp)
    stop = checked_stop(stop, lm)
    open_ends: Sequences = {(): 1.0}
    distribution: Sequences = {}
    for _ in range(checked_budget(length)):
        longer: Sequences = {}
        for tokens, probability in open_ends.items():
            probs = next_probs(tokens)
            for token in probs.nonzero()[0].tolist():
                ended = distribution if token in stop else longer
                ended[(*tokens, token)] = probability * float(probs[token])
        open_ends = longer
    return distribution | open_ends


def total_variation(a: Mapping, b: Mapping) -> float:
    """Half the sum of the absolute differences: the largest difference in probability that any event can show.

    Parameters
    ----------
    a, b : mapping from outcomes to probabilities
        An outcome that is missing has none.

    Returns
    -------
    float between 0 (the same distribution) and 1 (nothing in common)

    Raises
    ------
    ValueError
        When the probabilities of one of them do not sum to 1.

    Examples
    --------
    >>> total_variation({"a": 0.5, "b": 0.5}, {"a": 0.75, "c": 0.25})
    0.5
    """
    for distribution in (a, b):
        total = math.fsum(distribution.values())
        if not abs(total - 1) < 1e-6:
            raise ValueError(f"a distribution must sum to 1; this one ({len(distribution)} outcomes) sums to {total}")
    return 0.5 * math.fsum(abs(a.get(outcome, 0.0) - b.get(outcome, 0.0)) for outcome in a.keys() | b.keys())


# ----------------------------------------------------------------------------------------------------------------------
# Decoders that are not ours


@dataclass
class Check:
    """What `empirical_check` found.

    Attributes
    ----------
    statistic : float
        G = 2 Σ observed · ln(observed / expected), summed over cells; infinite when something impossible came up.
    dof : int
        Degrees of freedom: cells less one.
    p_value : float
        How often a right decoder would show a G at least as large.
    samples : int
    level : float
        The p value below which the decoder is said to be wrong.
    impossible : int
        How many samples have probability zero under the reference.
    observed, expected : dict from cells to numbers of samples
        A cell is a tuple of tokens. One that ends in None pools the rarer ways to go on from there.
    """

    statistic: float
    dof: int
    p_value: float
    samples: int
    level: float
    impossible: int = 0
    observed: dict[tuple, int] = field(default_factory=dict, repr=False)
    expected: dict[tuple, float] = field(default_factory=dict, repr=False)

    @property
    def passed(self) -> bool:
        """Whether the samples are what the reference would give."""
        return self.p_value >= self.level

    @property
    def verdict(self) -> str:
        """One sentence."""
        figures = f"G({self.dof}) = {self.statistic:.1f}, p = {self.p_value:.2g}, {self.samples} samples"
        if self.impossible:
            return f"wrong: {self.impossible} samples have probability zero under the reference ({figures})"
        if self.passed:
            return f"no difference found ({figures})"
        return f"wrong: a right decoder shows this in less than {self.level:g} of all checks ({figures})"

    def worst(self, count: int = 5) -> list[tuple[tuple, int, float]]:
        """The cells furthest off, by (observed - expected)² / expected: lists of (cell, observed, expected)."""
        cells = [(cell, self.observed[cell], due) for cell, due in self.expected.items()]
        return sorted(cells, key=lambda cell: -((cell[1] - cell[2]) ** 2) / cell[2])[:count]

    def __str__(self) -> str:
        return self.verdict


@takes_iterators
def empirical_check(
    decode: Callable[[str | Sequence[int]], Sequence[int]],
    prompt: str | Sequence[int],
    reference: LM | Mapping[tuple[int, ...], float],
    length: int,
    samples: int,
    *,
    warp: Iterable[Warp] = (),
    stop: Iterable[int] | None = None,
    level: float = 1e-4,
    least_expected: float = 5.0,
) -> Check:
    """Sample from any decoder, and test whether its sequences have the distribution they should.

    A G-test over whole sequences (all positions jointly), so that faults are seen which leave every single position's
    distribution right. Sequences expected less than `least_expected` times are pooled: with the other rare ways to go
    on from the same beginning, or, where those are too rare together, one token further up. Which cells there are
    depends on the reference only, not on the samples. Passing is no proof: a small enough fault hides in any number of
    samples. To prove, there is `exact_distribution`.

    Parameters
    ----------
    decode : function from a prompt to tokens
        Called `samples` times with `prompt` as it is given here. Returns the *new* tokens, at least `length` of them
        unless it ends with a stop token. It draws its own random numbers; seed it if the check is to be repeatable.
    prompt : str or list of int
    reference : LM, or mapping from tuples of tokens to probabilities
        What to compare with: plain sampling from this model under `warp`, or a distribution as `exact_distribution`
        returns it.
    length : int
        How many new tokens to look at; what comes after them, or after a stop token, is ignored.
    samples : int
    warp, stop
        As for `sample` and `run`; for an `LM` as the reference. With a mapping, sequences end where its own do.
    level : float
        The p value below which the decoder is called wrong: the chance that a right one is.
    least_expected : float
        The smallest expected number of samples that makes a cell of its own.

    Returns
    -------
    Check

    Raises
    ------
    ValueError
        For too few samples to say anything, or a decoder that returns too few tokens.
    """
    length = checked_budget(length)
    if samples < 1:
        raise ValueError(f"samples must be at least 1, got {samples}")
    if isinstance(reference, Mapping):
        next_probs, ended = _mapping_reference(reference, length)
    else:
        next_probs = _model_reference(reference, prompt, warp)
        stop = checked_stop(stop, reference)

        def ended(tokens):
            return len(tokens) == length or bool(tokens and tokens[-1] in stop)

    expected, possible = _cells(next_probs, ended, least_expected / samples)
    if list(expected) == [(None,)]:
        raise ValueError(
            f"{samples} samples are too few: no sequence of {length} tokens is expected {least_expected:g} times; "
            "take more samples, or shorter sequences"
        )
    # A root pool too small for a cell of its own (it has no further up to go) joins the smallest cell there is.
    small = expected.get((None,), 1.0) * samples < least_expected
    pool = expected.pop((None,)) if small else 0.0
    smallest = min(expected, key=expected.get)
    expected[smallest] += pool

    observed: dict[tuple, int] = dict.fromkeys(expected, 0)
    impossible = 0
    for _ in range(samples):
        tokens = _cut(ints(decode(prompt), "decode must return token ids (ints)"), ended)
        if tokens is None:
            raise ValueError(f"decode must return at least {length} new tokens, or end with a stop token")
        if not _is_possible(tokens, possible):
            impossible += 1
        else:
            observed[_cell(tokens, expected, smallest)] += 1

    expected = {cell: probability * samples for cell, probability in expected.items()}
    statistic, p_value = _g_test(list(observed.values()), list(expected.values()))
    if impossible:
        statistic, p_value = math.inf, 0.0
    return Check(statistic, len(expected) - 1, p_value, samples, level, impossible, observed, expected)


# A reference is asked two things: next_probs(tokens), the probabilities of what follows as an array of shape (vocab,),
# and ended(tokens), whether a sequence is complete.


def _model_reference(lm: LM, prompt, warp):
    prompt = lm.prompt_tokens(prompt)
    warp = checked_warp(warp)

    def next_probs(tokens):
        text = [*prompt, *tokens]
        return probabilities(lm.session(text).feed(), warp, [text])[-1].cpu().numpy()

    return next_probs


def _mapping_reference(distribution: Mapping, length: int):
    """Conditional probabilities of a distribution that is given as a table of whole sequences."""
    total_variation(distribution, distribution)  # raises ValueError where it does not sum to 1
    beginnings: Sequences = {}
    whole = set()
    vocab = 1 + max(token for tokens in distribution for token in tokens)
    for tokens, probability in distribution.items():
        tokens = tuple(tokens[:length])
        whole.add(tokens)
        for end in range(len(tokens) + 1):
            beginnings[tokens[:end]] = beginnings.get(tokens[:end], 0.0) + probability

    def next_probs(tokens):
        return np.array([beginnings.get((*tokens, token), 0.0) for token in range(vocab)]) / beginnings[tokens]

    return next_probs, lambda tokens: len(tokens) == length or tokens in whole


def _cells(next_probs, ended, least: float) -> tuple[dict[tuple, float], dict[tuple, np.ndarray]]:
    """Divide all sequences into cells of at least `least` probability (but for the root's pool, which may have less).

    Returns
    -------
    expected : dict from cells to probabilities
        A cell is a sequence, or a beginning and None: all that begins so and has no cell of its own.
    possible : dict from beginnings to bool arrays (vocab,)
        Which tokens can follow, for each beginning that was looked into.
    """
    expected: dict[tuple, float] = {}
    possible: dict[tuple, np.ndarray] = {}
    pools: dict[tuple, float] = {}  # beginning -> probability of its rare continuations
    open_ends = {(): 1.0}
    while open_ends:
        tokens, probability = open_ends.popitem()
        if ended(tokens):
            expected[tokens] = probability
            continue
        probs = probability * next_probs(tokens)
        possible[tokens] = probs > 0
        pools[tokens] = float(probs[probs < least].sum())
        open_ends.update({(*tokens, token): float(probs[token]) for token in (probs >= least).nonzero()[0].tolist()})
    for tokens in sorted(pools, key=len, reverse=True):
        if tokens and pools[tokens] < least:
            pools[tokens[:-1]] += pools[tokens]
        elif pools[tokens] > 0:
            expected[(*tokens, None)] = pools[tokens]
    return expected, possible


def _cell(tokens: tuple[int, ...], expected: Mapping, otherwise: tuple) -> tuple:
    """The cell of a sequence: itself, or the pool of its longest beginning that has one."""
    pools = ((*tokens[:end], None) for end in range(len(tokens) - 1, -1, -1))
    return next((cell for cell in (tokens, *pools) if cell in expected), otherwise)


def _is_possible(tokens: tuple[int, ...], possible: Mapping[tuple, np.ndarray]) -> bool:
    """Whether no token of the sequence has probability zero, as far as the reference has been looked into."""
    for place, token in enumerate(tokens):
        follows = possible.get(tokens[:place])
        if follows is not None and not (0 <= token < len(follows) and follows[token]):
            return False
    return True


def _cut(tokens: list[int], ended) -> tuple[int, ...] | None:
    """The shortest beginning that is a complete sequence; None where there is none."""
    for end in range(1, len(tokens) + 1):
        if ended(tuple(tokens[:end])):
            return tuple(tokens[:end])
    return None


def _g_test(observed: list[int], expected: list[float]) -> tuple[float, float]:
    """G and its p value. One cell alone cannot be wrong."""
    if len(observed) == 1:
        return 0.0, 1.0
    from scipy import stats  # not at the top: it takes half a second to import

    total = sum(observed)
    scale = total / sum(expected) if total else 1.0  # the sums must agree to the last digits
    result = stats.power_divergence(observed, [due * scale for due in expected], lambda_="log-likelihood")
    return float(result.statistic), float(result.pvalue)
