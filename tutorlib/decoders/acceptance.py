"""How candidates in a tree are accepted: exactly, or when the target finds them typical.

A rule is a function ``accept(tree, probs_at, rng) -> (path, token)``. ``probs_at(node)`` gives the target's warped
probabilities after a node, a float64 tensor of shape (vocab,), where -1 stands for the text itself; rows that nobody
asks for are not computed. `path` are the nodes accepted, from the top of the tree down, and `token` is what comes after
the last of them.
"""

import math
from collections.abc import Callable, Sequence

import torch

from ..randomness import Randomness
from ..tree import ROOT, TokenTree, walk
from ..warp import is_number
from .verification import check_sampled

ProbsAt = Callable[[int], torch.Tensor]
Accept = Callable[[TokenTree, ProbsAt, Randomness], tuple[list[int], int]]


def exact(tree: TokenTree, probs_at: ProbsAt, rng: Randomness) -> tuple[list[int], int]:
    """Draw each token from the target, and go on as long as the tree holds it: *lossless*, see `tutorlib.tree.walk`."""
    path, tokens = walk(tree, lambda node: rng.choose(probs_at(node)))
    return path, tokens[-1]


def drawn(draft_probs: Sequence[torch.Tensor]) -> Accept:
    """Accept a chain whose tokens were drawn from a draft's own law: *lossless*, see `verification.check_sampled`.

    Parameters
    ----------
    draft_probs : sequence of float64 tensors of shape (vocab,)
        For each node of the chain the law that it was drawn from.

    Returns
    -------
    function, a rule for trees that are chains
    """

    def accept_drawn(tree, probs_at, rng):
        target_probs = torch.stack([probs_at(node) for node in (ROOT, *range(len(tree)))])
        accepted, token = check_sampled(tree.tokens, draft_probs, target_probs, rng)
        return list(range(accepted)), token

    return accept_drawn


def typical(epsilon: float = 0.09, delta: float = 0.3) -> Accept:
    """Accept every candidate that the target finds likely enough: p(x) > min(ε, δ·exp(−H(p))).

    *Lossy*. Where the target is sure, its entropy H is near 0 and a candidate needs a probability of almost δ or ε,
    whichever is less; where it is not, less will do. Of the paths on which every candidate is accepted the longest is
    kept, of equally long ones the likeliest. Nothing is drawn for them: luck only enters with the token after the path,
    which is drawn from the target. (The authors' code takes that token greedily too, as the root of the next tree.)

    Source: Cai et al. (2024), "Medusa", section 2.3.1. In the authors' runs ε = 0.09, a cap, and δ = 0.3 = √ε, a
    factor. A function in the same code, and a survey that quotes it, has the two swapped.

    Parameters
    ----------
    epsilon : float
        From 0 (all candidates of any probability) to 1.
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
        rows = {}  # after which nodes the target has been asked
        for node, (token, parent) in enumerate(zip(tree.tokens, tree.parents, strict=True)):
            if parent not in logs:
                continue
            if parent not in rows:
                rows[parent] = probs_at(parent)
            prob = float(rows[parent][token])
            if prob > threshold(rows[parent], epsilon, delta):
                depth, log = logs[parent]
                logs[node] = depth + 1, log + math.log(prob)
        best = max(logs, key=lambda node: logs[node])
        return tree.path(best), rng.choose(rows[best] if best in rows else probs_at(best))

    return accept_typical


def threshold(probs: torch.Tensor, epsilon: float, delta: float) -> float:
    """What probability `typical` asks for where the target says `probs`: min(ε, δ·exp(−H)), H in nats.

    Examples
    --------
    >>> round(threshold(torch.tensor([1.0, 0.0]), 0.09, 0.3), 6), round(threshold(torch.full((10,), 0.1), 0.09, 0.3), 6)
    (0.09, 0.03)
    """
    entropy = float(torch.special.entr(probs).sum())
    return min(epsilon, delta * math.exp(-entropy))
