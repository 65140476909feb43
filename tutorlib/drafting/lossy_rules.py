"""Rules that keep more of a draft than a lossless rule would, and so change the distribution of the text.

What this file does not do: say how much it changes (chapter 12 measures that), or check trees (`checking.py` does).
"""

from __future__ import annotations

import math

import torch

from ..arguments import is_number
from ..model.tree import ROOT
from ..sampling.warp import ROUNDING
from .checking import Rule, row_or_none


def typical_acceptance(epsilon: float = 0.09, delta: float = 0.3) -> Rule:
    """Accept every candidate that is likely enough under the target: p(x) > min(ε, δ·exp(−H(p))).

    *Lossy*. If the target is sure of the next token, its entropy H is near 0, and a candidate needs a probability of
    about δ or ε, whichever is smaller. If the target is unsure, a smaller probability is enough. Among the paths on
    which every candidate is accepted, the longest is kept; among equally long ones, the most probable. Accepting takes
    no random draws. The only draw is that of the token after the path, from the target. (The authors' code also takes
    this token greedily, as the root of the next tree.)

    Source: Cai et al. (2024), "Medusa", section 2.3.1. In the authors' runs the cap is ε = 0.09 and the factor is δ =
    0.3 = √ε. One function in their code swaps the two, and so does a survey that quotes it.

    Parameters
    ----------
    epsilon : float
        From 0 (every candidate of nonzero probability is accepted) to 1.
    delta : float
        Above 0.

    Returns
    -------
    function, a rule

    Raises
    ------
    ValueError
        For a number outside these bounds.
    """
    if not is_number(epsilon) or not 0 <= epsilon <= 1:
        raise ValueError(f"epsilon, the cap on the probability asked for, must be from 0 to 1, got {epsilon!r}")
    if not is_number(delta) or delta <= 0:
        raise ValueError(f"delta, the factor of exp(-entropy), must be a finite number above 0, got {delta!r}")

    def accept_typical(tree, probs_at, rng):
        logs = {ROOT: (0, 0.0)}  # accepted node -> its depth, and the log-probability of its path
        rows = {}  # the target's probabilities after the nodes looked at so far
        for node, (token, parent) in enumerate(zip(tree.tokens, tree.parents, strict=True)):
            if parent not in logs:
                continue
            if parent not in rows:
                rows[parent] = row_or_none(probs_at, parent)
            row = rows[parent]
            if row is None:
                continue
            prob = float(row[token])
            if prob > threshold(row, epsilon, delta) * (1 + ROUNDING):
                depth, log = logs[parent]
                logs[node] = depth + 1, log + math.log(prob)
        best = max(logs, key=lambda node: logs[node])
        row = rows[best] if best in rows else row_or_none(probs_at, best)
        return tree.path(best), None if row is None else rng.choose(row)

    return accept_typical


def threshold(probs: torch.Tensor, epsilon: float, delta: float) -> float:
    """The probability that `typical_acceptance` requires if the target gives `probs`: min(ε, δ·exp(−H)), H in nats.

    Examples
    --------
    >>> round(threshold(torch.tensor([1.0, 0.0]), 0.09, 0.3), 6), round(threshold(torch.full((10,), 0.1), 0.09, 0.3), 6)
    (0.09, 0.03)
    """
    entropy = float(torch.special.entr(probs).sum())
    return min(epsilon, delta * math.exp(-entropy))
