"""A test by samples, for decoders that do not draw from a `Randomness` of this package, and how many samples it needs.

A test can show that a decoder is wrong, but never that it is right. What this file does not do: enumerate
(`enumeration`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..arguments import ints, takes_iterators
from ..running.decoding import checked_budget, checked_stop
from ..sampling.warp import Warp
from .enumeration import EXACT, Sequences, next_token_probs, total_variation

if TYPE_CHECKING:
    from ..model.lm import LM


def samples_needed(made: Mapping, due: Mapping, *, level: float = 0.05, power: float = 0.9) -> float:
    """How many samples a χ² test needs to notice that a decoder has the distribution `made`, where `due` is right.

    The test compares counts of outcomes with the counts that `due` leads to expect. Its statistic has a χ² distribution
    if the decoder is right. If not, it has a noncentral χ² distribution with the parameter n · Σ (made - due)² / due
    for n samples. The result is the smallest n for which the test finds the mistake with probability `power`.

    An outcome that `due` excludes needs no test: one such sample is enough. So the result is at most the number of
    samples in which one appears with probability `power`. The χ² distribution is an approximation. It is good if every
    outcome is expected at least five times, so a result of a few samples only says that the mistake is easy to see.

    Parameters
    ----------
    made, due : mapping from outcomes to probabilities
        An outcome that is missing has probability zero. `token_distribution` makes such a mapping for one token.
    level : float
        The probability that the test judges a correct decoder to be wrong.
    power : float
        The probability that the test finds the mistake; it must be above `level`.

    Returns
    -------
    int, or infinity if the two distributions agree up to rounding

    Raises
    ------
    ValueError
        If a distribution does not sum to 1, or for a level or a power outside these bounds.

    Examples
    --------
    >>> samples_needed({"heads": 0.6, "tails": 0.4}, {"heads": 0.5, "tails": 0.5})
    263
    """
    if not 0 < level < power < 1:
        raise ValueError(f"level and power must be probabilities with 0 < level < power < 1, got {level} and {power}")
    if total_variation(made, due) < EXACT:
        return math.inf
    from scipy import stats  # not at the top: it takes half a second to import

    possible = [outcome for outcome, probability in due.items() if probability > 0]
    excluded = 1 - math.fsum(made.get(outcome, 0.0) for outcome in possible)
    needed = math.inf
    if excluded > EXACT:
        needed = 1 if excluded > 1 - EXACT else math.ceil(math.log(1 - power) / math.log1p(-excluded))
    effect = math.fsum((made.get(outcome, 0.0) - due[outcome]) ** 2 / due[outcome] for outcome in possible)
    dof = len(possible) - 1
    if dof == 0:
        return needed
    bound = stats.chi2.isf(level, dof)

    def finds(samples: int) -> bool:
        return stats.ncx2.sf(bound, dof, samples * effect) >= power

    most = 1
    while most < needed and not finds(most):
        most *= 2
    if most >= needed:
        return needed
    least = most // 2  # too few, or 0
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (least, middle) if finds(middle) else (middle, most)
    return most


@dataclass
class Check:
    """The result of `empirical_check`.

    Attributes
    ----------
    statistic : float
        G = 2 Σ observed · ln(observed / expected), summed over cells; infinite if an impossible sequence occurred.
    dof : int
        Degrees of freedom: the number of cells minus one.
    p_value : float
        The probability that a correct decoder gives a G at least as large.
    samples : int
    level : float
        The p value below which the decoder is judged to be wrong.
    impossible : int
        How many samples have probability zero under the reference.
    observed, expected : dict from cells to numbers of samples
        A cell is a tuple of tokens. If it ends in None, it stands for all rarer continuations of the tokens before.
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
        """Whether the samples agree with the reference."""
        return self.p_value >= self.level

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        figures = f"G({self.dof}) = {self.statistic:.1f}, p = {self.p_value:.2g}, {self.samples} samples"
        if self.impossible:
            return f"wrong: {self.impossible} samples have probability zero under the reference ({figures})"
        if self.passed:
            return f"no difference found ({figures})"
        return f"wrong: a correct decoder shows this in less than {self.level:g} of all checks ({figures})"

    def worst(self, count: int = 5) -> list[tuple[tuple, int, float]]:
        """The cells that differ most, by (observed - expected)² / expected: a list of (cell, observed, expected)."""
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
    """Take samples from any decoder, and test whether its sequences have the correct distribution.

    This is a G-test over whole sequences, that is, over all positions jointly. So it also finds errors that leave the
    distribution at every single position correct. Sequences that are expected fewer than `least_expected` times are
    pooled with the other rare continuations of the same beginning, or, if those are still too rare together, one token
    earlier. The cells depend only on the reference, not on the samples. To pass the test is not a proof, because a
    small error needs many samples to be seen. For a proof, use `exact_distribution`.

    Parameters
    ----------
    decode : function from a prompt to tokens
        Called `samples` times with `prompt` as given here. It returns the *new* tokens: at least `length` of them,
        unless they end with a stop token. It draws its own random numbers; seed it if you want to repeat the check.
    prompt : str or list of int
    reference : LM, or mapping from tuples of tokens to probabilities
        The reference to compare with: plain sampling from this model under `warp`, or a distribution such as
        `exact_distribution` returns.
    length : int
        How many new tokens to look at; tokens after them, or after a stop token, are ignored.
    samples : int
    warp, stop
        As for `sample` and `run`, if the reference is an `LM`. If it is a mapping, sequences end where those of the
        mapping end.
    level : float
        The p value below which the decoder is judged to be wrong. This is also the probability that a correct decoder
        is judged to be wrong.
    least_expected : float
        The smallest expected number of samples for a cell of its own.

    Returns
    -------
    Check

    Raises
    ------
    ValueError
        If there are too few samples for a test, or the decoder returns too few tokens.
    """
    length = checked_budget(length)
    if samples < 1:
        raise ValueError(f"samples must be at least 1, got {samples}")
    if isinstance(reference, Mapping):
        next_probs, ended = _mapping_reference(reference, length)
    else:
        next_probs = next_token_probs(reference, prompt, warp)
        stop = checked_stop(stop, reference)

        def ended(tokens):
            return len(tokens) == length or bool(tokens and tokens[-1] in stop)

    expected, possible = _cells(next_probs, ended, least_expected / samples)
    if list(expected) == [(None,)]:
        raise ValueError(
            f"{samples} samples are too few: no sequence of {length} tokens is expected {least_expected:g} times; "
            "take more samples, or shorter sequences"
        )
    # If the pool at the root is too small for a cell of its own, it joins the smallest cell.
    small = expected.get((None,), 1.0) * samples < least_expected
    pool = expected.pop((None,)) if small else 0.0
    smallest = min(expected, key=lambda cell: expected[cell])
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


# A reference has two functions: next_probs(tokens), the probabilities of the next token as an array of shape (vocab,),
# and ended(tokens), whether a sequence is complete.


def _mapping_reference(distribution: Mapping, length: int):
    """The conditional probabilities of a distribution that is given as a table of whole sequences."""
    total_variation(distribution, distribution)  # raises ValueError if it does not sum to 1
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
    """Divide all sequences into cells with a probability of at least `least`. (The pool at the root may have less.)

    Returns
    -------
    expected : dict from cells to probabilities
        A cell is a sequence, or a beginning and None, which stands for all sequences that begin like this and have no
        cell of their own.
    possible : dict from beginnings to bool arrays (vocab,)
        For each beginning that was looked at, which tokens can follow.
    """
    expected: dict[tuple, float] = {}
    possible: dict[tuple, np.ndarray] = {}
    pools: dict[tuple, float] = {}  # beginning -> probability of its rare continuations
    open_ends: dict[tuple, float] = {(): 1.0}
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
    """Whether no token of the sequence has probability zero, as far as the reference has been looked at."""
    for place, token in enumerate(tokens):
        follows = possible.get(tokens[:place])
        if follows is not None and not (0 <= token < len(follows) and follows[token]):
            return False
    return True


def _cut(tokens: list[int], ended) -> tuple[int, ...] | None:
    """The shortest beginning that is a complete sequence; None if there is none."""
    for end in range(1, len(tokens) + 1):
        if ended(tuple(tokens[:end])):
            return tuple(tokens[:end])
    return None


def _g_test(observed: list[int], expected: list[float]) -> tuple[float, float]:
    """G and its p value. A single cell always agrees."""
    if len(observed) == 1:
        return 0.0, 1.0
    from scipy import stats  # not at the top: it takes half a second to import

    total = sum(observed)
    scale = total / sum(expected) if total else 1.0  # SciPy requires the sums to agree closely
    result = stats.power_divergence(observed, [due * scale for due in expected], lambda_="log-likelihood")
    return float(result.statistic), float(result.pvalue)
