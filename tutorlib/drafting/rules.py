"""The rules by which the chain of a draft model can be checked: what methods with a draft model take as ``rule=``.

All of them are lossless. They differ in how many tokens of a draft they keep, and in what they have to know of it:

- `ratio` asks, token after token, whether the target likes the token at least as much as the draft does;
- `block` asks how likely the draft is as a whole, and never keeps fewer tokens than `ratio` on average;
- `match_drawn` and `match` let the target draw its own token, and keep the drafted one if it is the same. They need no
  probabilities of the draft, which is why many programs use them, and keep fewer tokens.

A rule is a function from the draft's distributions to what `checking.check_tree` applies. What this file does not do:
check trees (`checking.py` does).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ..model.tree import ROOT, TokenTree
from ..sampling.checks import takes, warp_names
from ..sampling.randomness import Exhaustive, Randomness
from .checking import ProbsAt, Rule, drawn, exact, prob_drawn, row_or_none

# From the distribution (vocab,) of each drafted token, float64, to the rule that checks them.
ChainRule = Callable[[Sequence[torch.Tensor]], Rule]


def ratio(draft_probs: Sequence[torch.Tensor]) -> Rule:
    """Keep each drafted token with probability min(1, p/q). *Lossless*: see `checking.drawn`.

    A token of the draft is kept with probability Σ min(p, q), which no rule for a single token can exceed.

    Source: Leviathan, Kalman and Matias (2023), "Fast Inference from Transformers via Speculative Decoding", algorithm
    1.

    Examples
    --------
    >>> p, q = torch.tensor([1 / 3, 2 / 3]).double(), torch.tensor([2 / 3, 1 / 3]).double()
    >>> round(kept_tokens(ratio, p, q, 2), 6)                                               # 10/9
    1.111111
    """
    return drawn(draft_probs)


def match_drawn(draft_probs: Sequence[torch.Tensor]) -> Rule:
    """Draw a token from the target, and keep the drafted one if it is the same. *Lossless*: see `checking.exact`.

    A token of the draft is kept with probability Σ p·q, less often than with `ratio`. With the same seed, the text is
    not that of plain sampling, because the draft draws too.

    Source: Gante (2023), "Assisted Generation: a new direction toward low-latency text generation", for greedy
    decoding.
    """
    return exact


def match(draft_probs: Sequence[torch.Tensor]) -> Rule:
    """The same for a draft that takes its most likely token in place of a drawn one: see `draft_token`.

    A token of the draft is kept with probability p(argmax q). With the same seed, the text is that of `sample`, because
    only the target draws.
    """
    return exact


def block(draft_probs: Sequence[torch.Tensor]) -> Rule:
    """Accept or reject a draft as a whole: the longest beginning of it that the target's probabilities allow.

    *Lossless*. `ratio` rejects a token that the target finds unlikely, even if the tokens before it were likelier for
    the target than for the draft. Here, what one token has too much makes up for what another one lacks: the weight of
    a beginning is the product of p/q over its tokens, cut to 1 after each of them. From the last token to the first,
    ask whether the draft is kept up to here: with probability w at the end of the draft, and else with probability s /
    (s + 1 - w), where s is the sum of max(w·p - q, 0) over all tokens that may follow. The token after what is kept has
    the normalised distribution max(w·p - q, 0), and p after a whole draft.

    Source: Sun et al. (2025), "Block Verification Accelerates Speculative Decoding", algorithm 2.

    Examples
    --------
    >>> p, q = torch.tensor([1 / 3, 2 / 3]).double(), torch.tensor([2 / 3, 1 / 3]).double()
    >>> round(kept_tokens(block, p, q, 2), 6)                                               # 11/9
    1.222222
    """

    def accept_block(tree: TokenTree, probs_at: ProbsAt, rng: Randomness) -> tuple[list[int], int | None]:
        if not tree.is_chain:
            raise ValueError("block checks a chain of drafted tokens, and was given a tree: use exact, or a chain")
        # After the text, and after each token of the draft; only the last row may be missing.
        rows: list = [row_or_none(probs_at, ROOT)]
        weights = [1.0]
        for node, token in enumerate(tree.tokens):
            if rows[-1] is None:  # plain sampling ends with this token too, if it comes so far
                break
            odds = float(rows[-1][token]) / prob_drawn(tree, node, draft_probs)
            weights.append(min(1.0, weights[-1] * odds))
            rows.append(row_or_none(probs_at, node))
        end = len(weights) - 1
        for kept in range(end, -1, -1):
            row, weight = rows[kept], weights[kept]
            if kept == end:
                if kept == 0 or rng.accept(weight):
                    return list(range(end)), None if row is None else rng.choose(row)
                continue
            excess = (weight * row - draft_probs[kept]).clamp(min=0)
            total = float(excess.sum())
            if kept == 0 or rng.accept(total / (total + 1 - weight) if total + 1 - weight > 0 else 1.0):
                return list(range(kept)), rng.choose(excess / total if total > 0 else row)
        raise AssertionError("nothing kept is always possible")

    return accept_block


def draft_token(rule: ChainRule, row: torch.Tensor, rng: Randomness) -> int:
    """The token that a draft proposes under a rule: its most likely one for `match`, and else one that it draws.

    Parameters
    ----------
    row : float64 tensor of shape (vocab,)
        The draft's distribution, after warps.
    """
    return int(row.argmax()) if rule is match else rng.choose(row)


def check_chain_rule(rule) -> None:
    """Raise ValueError unless `rule` is a function from the draft's distributions to a rule."""
    if rule is exact or not takes(rule, 1):
        raise ValueError(
            "rule must be a function of the draft's distributions: ratio, block, match or match_drawn; got "
            f"{warp_names([rule])}"
        )


def kept_tokens(rule: ChainRule, p: torch.Tensor, q: torch.Tensor, gamma: int) -> float:
    """How many of γ drafted tokens a rule keeps on average, if the target has p and the draft q after every text.

    Every draft and every draw is gone through; see `proof`.

    Parameters
    ----------
    p, q : float64 tensors of shape (vocab,)
    gamma : int
    """
    expected = 0.0
    for rng in Exhaustive():
        drafted = [draft_token(rule, q, rng) for _ in range(gamma)]
        path, _token = rule([q] * gamma)(TokenTree.chain(drafted), lambda node: p, rng)
        expected += rng.weight * len(path)
    return expected
