"""Confidence intervals for what was measured in a sample: of prompts, or of independent trials.

What this file does not do: compare two distributions (`proof`).
"""

import math
from collections.abc import Sequence

import numpy as np

from ..arguments import takes_iterators


@takes_iterators
def bootstrap_interval(
    values: Sequence[float],
    over: Sequence[float] | None = None,
    *,
    level: float = 0.95,
    seed: int = 0,
    resamples: int = 2000,
) -> tuple[float, float]:
    """A confidence interval for a mean or a ratio of sums, as if it were measured with other prompts of the same kind.

    The percentile bootstrap (Efron 1979): draw as many prompts as there are, with replacement, and compute the number
    from them. Do this many times, and take the range of the middle `level` of the results. With few prompts (below
    about 20) the interval is too narrow.

    Parameters
    ----------
    values : sequence of floats, shape (n,)
        One a prompt.
    over : sequence of floats, shape (n,), optional
        With it, the number is ``sum(values) / sum(over)``, for example the share of readable sentences that are
        consistent, and both values of a prompt are drawn together. Without it, the number is the mean of `values`.
    level : float
        Between 0 and 1.
    seed : int
        The same seed gives the same bounds everywhere.
    resamples : int

    Returns
    -------
    (float, float)
        Lower and upper bound; both are NaN if `over` sums to 0. Draws in which it sums to 0 are left out.

    Raises
    ------
    ValueError
        If there are no values, if one of them is NaN, if `over` has another length, or if `level` is not between 0 and
        1.
    """
    tops = np.asarray(values, dtype=float)
    bottoms = np.ones_like(tops) if over is None else np.asarray(over, dtype=float)
    if tops.ndim != 1 or not tops.size or bottoms.shape != tops.shape:
        raise ValueError(f"expected one value a prompt, and as many in `over`; got {tops.shape} and {bottoms.shape}")
    if np.isnan(tops).any() or np.isnan(bottoms).any():
        raise ValueError("NaN among the values: leave out prompts that have none, or give counts and `over`")
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, such as 0.95; got {level!r}")
    # RandomState, because its stream never changes; int64, because the default differs between systems.
    drawn = np.random.RandomState(seed).randint(tops.size, size=(resamples, tops.size), dtype=np.int64)
    top, bottom = tops[drawn].sum(1), bottoms[drawn].sum(1)
    figures = top[bottom != 0] / bottom[bottom != 0]
    if not figures.size:
        return math.nan, math.nan
    low, high = np.quantile(figures, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def wilson_interval(successes: int, trials: int, *, level: float = 0.95) -> tuple[float, float]:
    """A confidence interval for a probability, from the number of successes in independent trials.

    This is Wilson's score interval: all probabilities that a test would not reject. It always stays between 0 and 1,
    and it has a sensible width even if there are few trials or if none or all of them succeeded. If the trials depend
    on each other, it is too narrow.

    Source: Wilson (1927), "Probable Inference, the Law of Succession, and Statistical Inference".

    Parameters
    ----------
    successes, trials : int
        `successes` is from 0 to `trials`; `trials` is at least 1.
    level : float
        Between 0 and 1.

    Returns
    -------
    (float, float)
        Lower and upper bound.

    Raises
    ------
    ValueError
        If a number is outside these bounds.

    Examples
    --------
    >>> low, high = wilson_interval(15, 148)
    >>> round(low, 4), round(high, 4)
    (0.0624, 0.1605)
    """
    if trials < 1 or not 0 <= successes <= trials:
        raise ValueError(f"expected from 0 to all of 1 or more trials to succeed, got {successes} of {trials}")
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, such as 0.95; got {level!r}")
    from scipy import stats  # not at the top: it takes half a second to import

    low, high = stats.binomtest(successes, trials).proportion_ci(level, method="wilson")
    return float(low), float(high)
