"""Several drafted tokens for one position, checked so that as often as possible one of them is kept.

With one drafted token, `checking.drawn` keeps it as often as any rule can: with probability Σ min(p, q). With two, its
way of trying one child after the other is exact too, but another rule may keep one of them more often. The best rule is
the solution of a linear program, whose size grows with the vocabulary: for small vocabularies only, to see how much is
left to gain.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch

from ..model.tree import ROOT, TokenTree
from .checking import ProbsAt, Rule, prob_drawn, row_or_none

NUMBERS = 20_000  # the largest linear program, which takes about a second


def optimal(draft_probs: Sequence[torch.Tensor]) -> Rule:
    """Keep one of several drafted tokens as often as possible. *Lossless*: see `optimal_choice`.

    At each node, the children's tokens decide which row of `optimal_choice` the next token is drawn from. If it is a
    child's, go there. `drawn` does the same with a row that is easier to compute, and not always the best.

    Source: Sun et al. (2023), "SpecTr: Fast Speculative Decoding via Optimal Transport", section 3; the linear program
    for drafts without replacement: Hu et al. (2025), "Towards Optimal Multi-draft Speculative Decoding".

    Parameters
    ----------
    draft_probs : sequence of float64 tensors of shape (vocab,)
        For each node, the distribution its token was drawn from. The children of a node must be drawn without
        replacement: each row is that of the first child without the earlier children, normalised again.

    Returns
    -------
    function, a rule
        It raises ValueError if the linear program is too large, or the rows are not those of one draw without
        replacement.
    """

    def accept_optimal(tree: TokenTree, probs_at: ProbsAt, rng) -> tuple[list[int], int | None]:
        path, node = [], ROOT
        while True:
            row, children = row_or_none(probs_at, node), tree.children(node)
            if row is None or not children:
                return path, None if row is None else rng.choose(row)
            for child in children:
                prob_drawn(tree, child, draft_probs)
            tokens = tuple(tree.tokens[child] for child in children)
            if len(children) > 1 and float(draft_probs[children[1]][tokens[0]]) > 0:
                raise ValueError(
                    f"the children of node {node} were drawn with replacement: optimal checks those drawn without it"
                )
            token = rng.choose(optimal_choice(row, draft_probs[children[0]], len(children))[tokens])
            if token not in tokens:
                return path, token
            node = children[tokens.index(token)]
            path.append(node)

    return accept_optimal


def optimal_choice(p: torch.Tensor, q: torch.Tensor, drafts: int = 2) -> dict[tuple[int, ...], torch.Tensor]:
    """For each draft, the distribution of the next token that keeps a drafted token as often as possible.

    How much of each draft's probability goes to which next token? The linear program looks for such a division. Each
    draft must give away exactly the probability that it has, and each token x must receive exactly p(x), which makes
    the rule lossless. Of all divisions like this, take one that gives the most to tokens of their own draft.

    Parameters
    ----------
    p, q : float64 tensors of shape (vocab,)
    drafts : int
        How many tokens are drawn from q, without replacement.

    Returns
    -------
    dict from drafts (tuples of tokens, in the order in which they were drawn) to tensors of shape (vocab,)

    Raises
    ------
    ValueError
        If the linear program is too large, or q cannot give so many different tokens.
    """
    from scipy import optimize, sparse  # not at the top: it takes half a second to import

    law, vocab = drafts_without_replacement(q, drafts), len(p)
    if len(law) * vocab > NUMBERS:
        raise ValueError(
            f"{len(law)} possible drafts and {vocab} tokens make a linear program of {len(law) * vocab} numbers, and "
            f"{NUMBERS} is the most: use a smaller vocabulary or fewer drafts"
        )
    kept = torch.tensor([[token in draft for token in range(vocab)] for draft in law]).double()
    given = sparse.kron(sparse.eye(len(law)), torch.ones(1, vocab).numpy())  # what each draft gives away
    received = sparse.kron(torch.ones(1, len(law)).numpy(), sparse.eye(vocab))  # what each token receives
    due = torch.cat([torch.tensor(list(law.values()), dtype=torch.float64), p.double()])
    # All drafts give what all tokens receive, so one equation follows from the others; rounding could deny it.
    equations = sparse.vstack([given, received]).tocsr()[:-1]
    found = optimize.linprog(-kept.flatten().numpy(), A_eq=equations, b_eq=due[:-1].numpy())
    if not found.success:
        raise ValueError(f"there is no solution ({found.message}): p and q must each sum to 1")
    plan = torch.from_numpy(found.x).clamp(min=0).reshape(len(law), vocab)
    return {draft: row / row.sum() for draft, row in zip(law, plan, strict=True)}


def drafts_without_replacement(q: torch.Tensor, drafts: int) -> dict[tuple[int, ...], float]:
    """The probability of every possible draft of so many different tokens, drawn from q one after the other."""
    law = {}
    for draft in itertools.permutations(q.nonzero()[:, 0].tolist(), drafts):
        left, prob = 1.0, 1.0
        for token in draft:
            prob *= float(q[token]) / left
            left -= float(q[token])
        law[draft] = prob
    if not law:
        raise ValueError(
            f"q gives only {int((q > 0).sum())} tokens a probability, and {drafts} different ones are drawn"
        )
    return law


def kept_of_several(choice: dict[tuple[int, ...], torch.Tensor], q: torch.Tensor) -> float:
    """How often a drafted token is kept, if the next token of each draft has the distribution in `choice`."""
    law = drafts_without_replacement(q, len(next(iter(choice))))
    return sum(prob * float(choice[draft][list(draft)].sum()) for draft, prob in law.items())
