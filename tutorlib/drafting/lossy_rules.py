"""Rules that keep more of a draft than a lossless rule would, and so change the distribution of the text.

`typical_acceptance` checks the trees of Medusa's heads. `ensemble`, `above` and `alike` check the chain of a draft
model. For these, `token_distance` says how far a checked token is from the target, and `sampled_model` makes the model
that they really sample from. A fair comparison draws from this model directly, or lets a lossless rule check against
it: that keeps at least as many drafted tokens, and all tokens have one distribution.

What this file does not do: say how much whole texts change (`proof` does, and chapter 15 measures it for typical
acceptance), or check trees (`checking.py` does).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch

from ..arguments import check_share, is_number
from ..model.table import TableLM
from ..model.tree import ROOT, TokenTree
from ..sampling.checks import takes
from ..sampling.randomness import Exhaustive, Randomness
from ..sampling.warp import ROUNDING
from .checking import ProbsAt, Rule, drawn, row_or_none
from .rules import ChainRule


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
    check_share(epsilon, "epsilon, the cap on the probability asked for,")
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


# ----------------------------------------------------------------------------------------------------------------------
# Rules for the chain of a draft model


def ensemble(weight: float) -> ChainRule:
    """Check the draft with a mixture of both models, v = w·p + (1 - w)·q, in place of p.

    *Lossy*. A drafted token is kept with probability min(1, v/q). If it is rejected, the next token is drawn from the
    normalised max(v - q, 0). So a token that is checked has the distribution v. The token after a whole draft is drawn
    from p. With w = 1, this is `ratio`.

    Source: the option `assistant_ensemble_weight` of transformers (pull request 45979), after "DIVERSED: Relaxed
    Speculative Decoding via Dynamic Ensemble Verification" (2026), arXiv 2604.07622.

    Parameters
    ----------
    weight : float
        The weight w of the target, from 0 (every draft is kept) to 1 (lossless).

    Returns
    -------
    function, a rule for ``speculative(..., rule=...)``

    Raises
    ------
    ValueError
        For a number outside these bounds.

    Examples
    --------
    >>> p, q = torch.tensor([0.5, 0.5]).double(), torch.tensor([0.9, 0.1]).double()
    >>> checked_token(ensemble(0.75), p, q)
    tensor([0.6000, 0.4000], dtype=torch.float64)
    """
    check_share(weight, "weight, that of the target in the mixture,")

    def ensemble_of(draft_probs: Sequence[torch.Tensor]) -> Rule:
        def accept_ensemble(tree: TokenTree, probs_at: ProbsAt, rng: Randomness) -> tuple[list[int], int | None]:
            def mixed(node: int) -> torch.Tensor:
                row, below = probs_at(node), tree.children(node)
                return weight * row + (1 - weight) * draft_probs[below[0]] if below else row

            return drawn(draft_probs)(tree, mixed, rng)

        return accept_ensemble

    return ensemble_of


def above(least: float) -> ChainRule:
    """Keep a drafted token if the target gives it more than a fixed probability; otherwise draw from the target.

    *Lossy*. The rule needs neither q nor a random draw to accept a token.

    Source: the option `speculative_accept_threshold_single` of SGLang, off by default, is of this kind.

    Parameters
    ----------
    least : float
        From 0 (every token that the target does not exclude is kept) to 1 (none is kept, which is lossless).

    Returns
    -------
    function, a rule for ``speculative(..., rule=...)``

    Raises
    ------
    ValueError
        For a number outside these bounds.

    Examples
    --------
    >>> p, q = torch.tensor([0.8, 0.2]).double(), torch.tensor([0.5, 0.5]).double()
    >>> checked_token(above(0.3), p, q)                                     # a: 0.5 is kept, and 0.5 · 0.8 drawn again
    tensor([0.9000, 0.1000], dtype=torch.float64)
    """
    check_share(least, "least, the target's probability for a kept token,")

    def instead(token: int, row: torch.Tensor, rng: Randomness) -> int | None:
        return None if float(row[token]) > least else rng.choose(row)

    return _one_by_one(instead)


def alike(similarity: Callable[[int, int], float], least: float) -> ChainRule:
    """Let a judge compare each drafted token with one that the target draws, and keep it if the two are alike enough.

    *Lossy*, unless only equal tokens are alike enough: then this is `match_drawn`. If they are not alike enough, the
    target's own token stands in the text.

    Source: new in this form. In "Judge Decoding" (Bachmann et al., 2025), arXiv 2501.19309, the judge is a trained
    classifier, which accepts tokens that the target would not have written.

    Parameters
    ----------
    similarity : function (drafted, own) -> float
        The judge: how well the drafted token can stand for the target's own token.
    least : float
        How similar the two must be.

    Returns
    -------
    function, a rule for ``speculative(..., rule=...)``

    Raises
    ------
    ValueError
        If `similarity` is not a function of two tokens, or `least` is not a finite number.

    Examples
    --------
    >>> p, q = torch.tensor([0.5, 0.25, 0.25]).double(), torch.tensor([0.0, 0.0, 1.0]).double()
    >>> checked_token(alike(lambda drafted, own: drafted + own > 2, 1), p, q)      # c stands for b, but not for a
    tensor([0.5000, 0.0000, 0.5000], dtype=torch.float64)
    """
    if not takes(similarity, 2):
        raise ValueError(f"similarity must be a function of two tokens, got {similarity!r}")
    if not is_number(least):
        raise ValueError(f"least must be how similar two tokens have to be, a finite number, got {least!r}")

    def instead(token: int, row: torch.Tensor, rng: Randomness) -> int | None:
        own = rng.choose(row)
        return None if similarity(token, own) >= least else own

    return _one_by_one(instead)


def _one_by_one(instead: Callable[[int, torch.Tensor, Randomness], int | None]) -> ChainRule:
    """A rule that keeps drafted tokens until ``instead(token, row, rng)`` returns the token that stands in for one."""

    def rule_of(draft_probs: Sequence[torch.Tensor]) -> Rule:
        def accept_one_by_one(tree: TokenTree, probs_at: ProbsAt, rng: Randomness) -> tuple[list[int], int | None]:
            if not tree.is_chain:
                raise ValueError("this rule checks a chain of drafted tokens, and was given a tree: use a chain")
            path: list[int] = []
            while True:
                row = row_or_none(probs_at, path[-1] if path else ROOT)
                if row is None:
                    return path, None
                if len(path) == len(tree):
                    return path, rng.choose(row)
                token = instead(tree.tokens[len(path)], row, rng)
                if token is not None:
                    return path, token
                path.append(len(path))

        return accept_one_by_one

    return rule_of


# ----------------------------------------------------------------------------------------------------------------------
# What a lossy rule really samples


def checked_token(rule: ChainRule, p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """The distribution of a token that was drafted from q and checked by a rule; all draws are enumerated.

    For a lossless rule, this is p.

    Parameters
    ----------
    rule : function
        For a draft whose tokens are drawn: `ensemble`, `above`, `alike`, `ratio`, `block` or `match_drawn`.
    p, q : float64 tensors of shape (vocab,)
        The distributions of target and draft at this position.

    Returns
    -------
    float64 tensor of shape (vocab,)
    """
    found = torch.zeros_like(p)
    for rng in Exhaustive():
        drafted = rng.choose(q)
        path, token = rule([q])(TokenTree.chain([drafted]), lambda node: p, rng)
        found[drafted if path or token is None else token] += rng.weight
    return found


def token_distance(rule: ChainRule, p: torch.Tensor, q: torch.Tensor) -> float:
    """The total variation between p and the distribution of a checked token; 0 for a lossless rule.

    Parameters
    ----------
    rule, p, q
        As for `checked_token`.

    Examples
    --------
    >>> p, q = torch.tensor([0.5, 0.5]).double(), torch.tensor([0.9, 0.1]).double()
    >>> round(token_distance(ensemble(0.75), p, q), 6)                                      # (1 - w) times 0.4
    0.1
    """
    return 0.5 * float((checked_token(rule, p, q) - p).abs().sum())


def sampled_model(rule: ChainRule, target: TableLM, draft: TableLM) -> TableLM:
    """The model that a lossy rule really samples from: after every text, it has the distribution of a checked token.

    This makes a comparison fair. A lossy rule keeps more drafted tokens because its text has another distribution. So
    compare it with ``speculative(sampled_model(...), draft, ...)``, whose rule is lossless *for that distribution*. A
    round of it keeps at least as many drafted tokens. The reason: no rule can keep a token x more often than the draft
    proposes it, q(x), or than it appears in the text, v(x), and `ratio` keeps it with min(v(x), q(x)). Moreover, the
    token after a whole draft then has this distribution too, whereas a lossy rule draws it from the target.

    Parameters
    ----------
    rule : function
        As for `checked_token`.
    target, draft : TableLM
        With the same tokens.

    Returns
    -------
    TableLM

    Raises
    ------
    ValueError
        If the two do not have the same tokens.

    Examples
    --------
    >>> target, draft = TableLM({"": [0.5, 0.5]}), TableLM({"": [0.9, 0.1]})
    >>> sampled_model(ensemble(0.75), target, draft).session("a").feed().exp()
    tensor([[0.6000, 0.4000]], dtype=torch.float64)
    """
    if target.tokenizer.vocab != draft.tokenizer.vocab:
        raise ValueError(
            f"target and draft must have the same tokens, got {target.tokenizer.vocab} and {draft.tokenizer.vocab}"
        )
    order = max(target.order, draft.order)
    texts = itertools.chain(*(itertools.product(range(target.vocab_size), repeat=n) for n in range(order + 1)))
    table = {text: checked_token(rule, target.log_probs(text).exp(), draft.log_probs(text).exp()) for text in texts}
    return TableLM(table, target.tokenizer.vocab, context=target.context, stop_tokens=target.stop_tokens)
