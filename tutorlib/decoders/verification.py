"""How drafts are checked: the arithmetic that speculative methods share. Nothing here asks a model.

A round has a text, `drafted` tokens that may follow it, and rows of probabilities: row i of `target_probs` is what the
target, warped, says after the text and the first i of them. There is one row more than there are drafted tokens. A
check says how many of them are kept, and the token that comes after those: one more than was kept is always emitted,
and everything emitted has the target's own distribution.

Drafts are of two kinds. *Sampled* ones were drawn from probabilities of their own, and `check_sampled` has to know
these. *Deterministic* ones (found, looked up, or the best of many) were not drawn at all: `check_chain`, or
`tutorlib.tree.walk` where they are a tree.
"""

from collections.abc import Sequence

import torch

from ..randomness import Randomness


def check_sampled(
    drafted: Sequence[int],
    draft_probs: torch.Tensor | Sequence[torch.Tensor],
    target_probs: torch.Tensor,
    rng: Randomness,
) -> tuple[int, int]:
    """Keep each drafted token with probability min(1, p/q); where one is not kept, draw from what p has more than q.

    Exact: kept or redrawn, a token has the distribution p. It is x with probability q(x) · min(1, p(x)/q(x)) =
    min(p(x), q(x)) by being drafted and kept, and with what p(x) has above that by the residual.

    Source: Leviathan, Kalman and Matias (2023), "Fast Inference from Transformers via Speculative Decoding", algorithm
    1, proof in appendix A.1; Chen et al. (2023), "Accelerating Large Language Model Decoding with Speculative
    Sampling", algorithm 2.

    Parameters
    ----------
    drafted : sequence of int, length n
    draft_probs : float64 tensor, shape (n, vocab), or n rows of shape (vocab,)
        Row i is the law q that ``drafted[i]`` was really drawn from, warps included.
    target_probs : float64 tensor, shape (n + 1, vocab)
    rng : Randomness

    Returns
    -------
    accepted : int
        How many drafted tokens are kept, from the front.
    token : int
        The one after them: redrawn in the place of the first that is not kept or, when all are, a bonus drawn from the
        last row.

    Raises
    ------
    ValueError
        When a drafted token has probability 0 in its row of `draft_probs`: it was drawn from another law.
    """
    for place, token in enumerate(drafted):
        draft_prob, target_prob = float(draft_probs[place][token]), float(target_probs[place, token])
        if not draft_prob > 0:
            raise ValueError(
                f"token {token}, drafted in place {place}, has probability {draft_prob} in draft_probs: they must be "
                "the probabilities it was drawn from"
            )
        if not rng.accept(target_prob / draft_prob):
            return place, rng.choose(residual(target_probs[place], draft_probs[place]))
    return len(drafted), rng.choose(target_probs[len(drafted)])


def residual(target_row: torch.Tensor, draft_row: torch.Tensor) -> torch.Tensor:
    """What the target has more than the draft: max(p - q, 0), divided by its sum.

    Where p and q are equal but for rounding, nothing may be left: then p itself. (A token is hardly ever rejected
    there, but hardly ever is not never.)

    Parameters
    ----------
    target_row, draft_row : tensors of floats, shape (vocab,)
        Each sums to 1.

    Returns
    -------
    tensor of floats, shape (vocab,), that sums to 1

    Examples
    --------
    >>> residual(torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.75, 0.0, 0.25]))
    tensor([0., 1., 0.])
    """
    excess = (target_row - draft_row).clamp(min=0)
    total = float(excess.sum())
    return excess / total if total > 0 else target_row


def check_chain(drafted: Sequence[int], target_probs: torch.Tensor, rng: Randomness) -> tuple[int, int]:
    """Draw each token from the target, and go on as long as it is the drafted one.

    Exact by construction: every token is drawn from p, and the draft only decides how many are drawn in one round. For
    a draft that was not drawn from anything, q has all its weight on the drafted token, and `check_sampled` would keep
    it with the same probability, p. The same as `tutorlib.tree.walk` down a chain.

    Parameters
    ----------
    drafted : sequence of int, length n
    target_probs : float64 tensor, shape (n + 1, vocab)
    rng : Randomness

    Returns
    -------
    accepted : int
        How many drafted tokens were drawn, from the front.
    token : int
        The one drawn after them.
    """
    for place, drafted_token in enumerate(drafted):
        token = rng.choose(target_probs[place])
        if token != drafted_token:
            return place, token
    return len(drafted), rng.choose(target_probs[len(drafted)])


def histories(tokens: list[int], drafted: list[int]) -> list[list[int]]:
    """The tokens before each row of a check, as warps want them: the text, then the text and ``drafted[:1]``, ...

    Examples
    --------
    >>> histories([5], [7, 8])
    [[5], [5, 7], [5, 7, 8]]
    """
    return [tokens + drafted[:count] for count in range(len(drafted) + 1)]
