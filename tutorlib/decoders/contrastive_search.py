"""Contrastive search: of the few likeliest tokens, one that does not say again what has been said."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from ..arguments import check_whole_number, is_number
from ..decoding import Prompt, decoder
from ..lm import LM
from ..step import Candidates, Step, likeliest
from ..tree import TokenTree
from ..warp import in_float64, probabilities


class Directions:
    """The directions of the hidden states so far: vectors of length 1, in one tensor that has rows to spare.

    Parameters
    ----------
    states : (n, width) tensor
    """

    def __init__(self, states: torch.Tensor):
        self._rows = direction(states)
        self._count = len(states)

    def nearest(self, directions: torch.Tensor) -> torch.Tensor:
        """The cosine between each of some directions, (m, width), and whichever of these is nearest to it: (m,)."""
        return (directions @ self._rows[: self._count].T).amax(-1)

    def append(self, row: torch.Tensor) -> None:
        if self._count == len(self._rows):
            self._rows = torch.cat([self._rows, torch.empty_like(self._rows)])  # twice the size: seldom copied
        self._rows[self._count] = row
        self._count += 1


def direction(states: torch.Tensor) -> torch.Tensor:
    """Rows (n, width) of length 1, in float64; ValueError where a row has no direction."""
    states = torch.nn.functional.normalize(in_float64(states), dim=-1)
    if math.isnan(float(states.sum())):
        raise ValueError(
            "a hidden state holds NaN or an infinite number, so that it has no direction to compare "
            "(in a TableLM: give every token a probability above 0)"
        )
    return states


def check(k, penalty):
    """Raise ValueError for what is wrong with the arguments of `contrastive_search`."""
    check_whole_number(k, 1, "k says how many tokens are candidates")
    if not is_number(penalty) or not 0 <= penalty <= 1:
        raise ValueError(f"penalty must be a weight from 0 (greedy) to 1 (similarity alone), got {penalty!r}")


@decoder(check=check)
def contrastive_search(lm: LM, prompt: Prompt, *, k: int = 4, penalty: float = 0.6) -> Iterator[Step]:
    """Take, of the `k` likeliest tokens, the one that is likely and unlike everything before it.

    A candidate x scores ``(1 - penalty) · p(x) - penalty · max_j cos(h_x, h_j)``: its probability, less how much its
    hidden state resembles the most similar one of all tokens before it, the prompt's included. Hidden states are those
    of the last layer, after the final norm. What repeats has a state much like one that was there. Of equal scores the
    lowest id wins.

    *Lossy* by design: neither the greedy text nor the model's distribution. Deterministic. With ``penalty=0`` or
    ``k=1`` it is greedy decoding (for ties: the lowest id, as there).

    Cost: one call of `lm` a token, `k` tokens wide, which gives the candidates' hidden states and what may follow them;
    and one for the prompt.

    Source: Su et al. (2022), "A Contrastive Framework for Neural Text Generation", section 3.2; the paper has k = 8 and
    a penalty (there: alpha) of 0.6 for open-ended text.

    Parameters
    ----------
    lm : LM
    prompt : str or list of int
    k : int
        How many candidates, at least 1. As many as the vocabulary has, or more, compare all that have a probability.
    penalty : float
        From 0 to 1.

    Yields
    ------
    Step
        One token each, endlessly. Its candidates are the model's; its `hypotheses` are the `k` compared, each
        ``[[token], score]``, best first, and `score` is the winner's.

    Raises
    ------
    ValueError
        At the call for a bad argument; while running, for logits that are NaN or +inf, a model that gives no hidden
        states, or hidden states that are not finite.
    """
    session = lm.session(prompt, hidden=-1)
    logits = session.feed()
    past = Directions(session.prompt_hidden)
    while True:
        probs = probabilities(logits)  # (1, vocab)
        tokens = sorted(token for token, _ in likeliest(probs[0], k))
        after = session.feed_tree(TokenTree(tokens, parents=[-1] * len(tokens)))  # (k, vocab)
        directions = direction(session.hidden)  # (k, width)
        scores = (1 - penalty) * probs[0, tokens] - penalty * past.nearest(directions)
        best = int(scores.argmax())
        session.keep([best])
        past.append(directions[best])
        compared = sorted(zip(scores.tolist(), tokens, strict=True), key=lambda pair: -pair[0])
        yield Step(
            [tokens[best]],
            candidates=Candidates(logits),
            hypotheses=[[[token], score] for score, token in compared],
            score=compared[0][0],
            scored=len(tokens),
        )
        logits = after[best : best + 1]
