"""How much of a draft is worth checking: the probability that each token survives, against what it costs to check it.

A draft's tokens are accepted up to the first rejection. So the probability that token k is of use, its *survival*, is
the product of the chances of all tokens up to it. Every token that is checked makes the call longer, however small its
survival is. What this file does not do: predict chances (`dspark_head`), or measure costs (`tutorlib.measures.cost`).

Source: Cheng et al. (2026), "DSpark: Confidence-Scheduled Speculative Decoding with Semi-Autoregressive Generation",
section 3.2.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence

import torch

from ..arguments import is_number
from ..model.tree import ROOT, TokenTree
from .checking import Rule, drawn
from .draft_trees import Draft, Shape


def confident_chain(costs: Sequence[float]) -> Shape:
    """A chain that ends where its next token would not be worth its cost, as the head predicts it.

    Before each token, the expected tokens of the round, for the time that the round takes, are compared with and
    without it. The token is drafted only if it improves this rate. The comparison comes *before* the token is drawn,
    and knows only the tokens before it. So the check stays exact. (To look at a token first, and to drop it afterwards
    if it seems bad, would change the distribution of what is checked.)

    Tokens are drawn from the head's distribution, as in `drawn_chain`; in greedy decoding they are the most likely
    ones.

    Parameters
    ----------
    costs : sequence of floats
        The measured time of a round, in any unit, with 0, 1, 2, ... drafted tokens: the pass of the head and the
        target's call. A chain has at most ``len(costs) - 1`` tokens.

    Raises
    ------
    ValueError
        If there are fewer than two costs, or one is not a finite number above 0; while running, if the head does not
        predict chances.
    """
    costs = checked_costs(costs)

    def shape(draft: Draft) -> TokenTree | tuple[TokenTree, Rule]:
        tokens: list[int] = []
        draft_probs: list[torch.Tensor] = []
        survival = expected = 1.0  # a round gives one token, whatever is drafted
        for deep in range(min(draft.depth, len(costs) - 1)):
            if deep:
                draft.grow(tokens[-1:], [deep - 2 if deep > 1 else ROOT])
            survival *= _chance(draft)
            if (expected + survival) / costs[deep + 1] <= expected / costs[deep]:
                break
            expected += survival
            (probs,) = draft.probs()
            if probs is None:
                break
            tokens.append(int(probs.argmax()) if draft.is_greedy else draft.rng.choose(probs))
            draft_probs.append(probs)
        chain = TokenTree.chain(tokens)
        return chain if draft.is_greedy else (chain, drawn(draft_probs))

    return shape


def shared_lengths(chances: Sequence[Sequence[float]], cost: Callable[[int], float]) -> list[int]:
    """How many tokens of each text's draft to check, if one call of the target checks the drafts of several texts.

    Of all drafts together, the token with the highest survival comes first, as long as the tokens that the call is
    expected to give, for its time, become more. It ends at the first token that would make them fewer: tokens after it
    are not asked, because the decision about a token may not depend on what was drawn after it.

    Parameters
    ----------
    chances : sequence of sequences of floats
        For each text, the chance of each token of its draft, given that those before it were accepted.
    cost : function
        From the number of tokens in a call, one for each text and the drafted ones, to the time that it takes.

    Examples
    --------
    >>> shared_lengths([[0.9, 0.8], [0.3, 0.9]], lambda tokens: 4 + tokens)
    [2, 0]
    """
    expected, tokens = float(len(chances)), len(chances)
    lengths = [0] * len(chances)
    waiting = [(-row[0], text) for text, row in enumerate(chances) if row]
    heapq.heapify(waiting)
    while waiting:
        lost, text = heapq.heappop(waiting)
        if (expected - lost) / cost(tokens + 1) <= expected / cost(tokens):
            break
        expected, tokens = expected - lost, tokens + 1
        lengths[text] += 1
        if lengths[text] < len(chances[text]):
            heapq.heappush(waiting, (lost * chances[text][lengths[text]], text))
    return lengths


def checked_costs(costs: Sequence[float]) -> list[float]:
    """The costs of `confident_chain` as a list, or a ValueError."""
    values = list(costs)
    if len(values) < 2 or not all(is_number(cost) and math.isfinite(cost) and cost > 0 for cost in values):
        raise ValueError(
            "costs are the times of rounds with 0, 1, 2, ... drafted tokens: two or more finite numbers above 0, got "
            f"{values!r}"
        )
    return values


def _chance(draft: Draft) -> float:
    chances = getattr(draft.session, "chances", None)
    if chances is None:
        raise ValueError(
            "confident_chain needs a head that predicts acceptance: use dspark with a DSparkHead, family.dspark for "
            "instance"
        )
    return chances[0]
