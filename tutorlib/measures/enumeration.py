"""The distribution of a method's output as numbers: every random draw is enumerated, none is left to chance.

`exact_distribution` is what a method does, and `target_distribution` what it should do. What this file does not do:
draw samples (`sampled_check`), or ask for more than the texts (`own_draft`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..arguments import Prompted, check_whole_number, takes_iterators
from ..running.decoding import checked_budget, checked_stop, run
from ..running.step import Step
from ..sampling.checks import checked_warp
from ..sampling.randomness import Exhaustive, Randomness
from ..sampling.warp import Warp, probabilities

if TYPE_CHECKING:
    from ..model.lm import LM

Sequences = dict[tuple[int, ...], float]  # new tokens -> probability
EXACT = 1e-9  # a total variation below this is rounding


@takes_iterators
def exact_distribution(
    make_steps: Callable[[Randomness], Iterable[Step]],
    length: int,
    *,
    stop: Iterable[int] | None = None,
    max_branches: int = 1_000_000,
) -> Sequences:
    """Enumerate the output distribution of a method.

    The method is run once for every combination of outcomes of its random draws (see `randomness.Exhaustive`). A run
    takes about 4 ms on a small real model, and much less on a `TableLM`. Use a vocabulary of 2 or 3 tokens. For
    speculative methods, draft 2 tokens and look at 4 new ones: this is long enough to include the bonus token and the
    rollback after it.

    Parameters
    ----------
    make_steps : function
        Takes a `Randomness` and returns new steps of the method each time: ``lambda rng: sample(lm, prompt, rng=rng)``.
    length : int
        How many new tokens to look at.
    stop : token ids, optional
        As in `run`: None for those of the model, ``()`` for none. A sequence ends at its first stop token.
    max_branches : int
        Raise ValueError if there are more branches.

    Returns
    -------
    dict from tuples of tokens to probabilities (float64), which sum to 1
        The tuples are `length` tokens long, or shorter if the run ended earlier.
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
    """The distribution of plain sampling from the warped model, which every lossless method must have.

    Every probability is computed in a new session, with the whole text as the prompt. So the result does not depend on
    a correct rollback of caches, and no method is run.

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
    next_probs = next_token_probs(lm, prompt, warp)
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
    """Half the sum of the absolute differences: the largest difference that the probability of any event can have.

    Parameters
    ----------
    a, b : mapping from outcomes to probabilities
        An outcome that is missing has probability zero.

    Returns
    -------
    float between 0 (the same distribution) and 1 (nothing in common)

    Raises
    ------
    ValueError
        If the probabilities of one of them do not sum to 1.

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


@takes_iterators
def token_distribution(distribution: Mapping[tuple[int, ...], float], position: int) -> Sequences:
    """The distribution of one token of the texts: what a test sees that counts the tokens at one position only.

    Parameters
    ----------
    distribution : mapping from tuples of tokens to probabilities
        For example from `exact_distribution`.
    position : int
        0 for the first new token.

    Returns
    -------
    dict from tuples of one token to probabilities
        The empty tuple stands for texts that end before this position.

    Examples
    --------
    >>> token_distribution({(0, 1): 0.25, (1, 1): 0.5, (1, 0): 0.25}, 1)
    {(1,): 0.75, (0,): 0.25}
    """
    check_whole_number(position, 0, "position must be that of a new token, from 0")
    found: Sequences = {}
    for tokens, probability in distribution.items():
        token = tokens[position : position + 1]
        found[token] = found.get(token, 0.0) + probability
    return found


def next_token_probs(lm: LM, prompt, warp: Iterable[Warp]) -> Callable[[Sequence[int]], np.ndarray]:
    """From new tokens after a prompt to the probabilities (vocab,) of the token that follows, float64."""
    prompt = lm.prompt_tokens(prompt)
    warp = checked_warp(warp)

    def next_probs(tokens):
        text = Prompted([*prompt, *tokens], len(prompt))
        return probabilities(lm.session(text).feed(), warp, [text])[-1].cpu().numpy()

    return next_probs
