"""Contrastive search: among a few likely tokens, take one that does not repeat what the text already contains."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from ..arguments import check_whole_number, is_number
from ..model.lm import LM
from ..model.tree import TokenTree
from ..running.decoder import Prompt, decoder
from ..running.step import Candidates, Step, likeliest
from ..sampling.warp import in_float64, probabilities


class Directions:
    """The directions of the hidden states so far: vectors of length 1, in one tensor with spare rows.

    Parameters
    ----------
    states : (n, width) tensor
    """

    def __init__(self, states: torch.Tensor):
        self._rows = direction(states)
        self._count = len(states)

    def nearest(self, directions: torch.Tensor) -> torch.Tensor:
        """For each of the given directions (m, width), its largest cosine with any of the stored ones: (m,)."""
        return (directions @ self._rows[: self._count].T).amax(-1)

    def append(self, row: torch.Tensor) -> None:
        if self._count == len(self._rows):
            self._rows = torch.cat([self._rows, torch.empty_like(self._rows)])  # doubled, so rarely copied
        self._rows[self._count] = row
        self._count += 1


def direction(states: torch.Tensor) -> torch.Tensor:
    """Scale rows (n, width) to length 1, in float64; ValueError if a row has no direction."""
    states = torch.nn.functional.normalize(in_float64(states), dim=-1)
    if math.isnan(float(states.sum())):
        raise ValueError(
            "a hidden state contains NaN or an infinite number, so it has no direction to compare "
            "(in a TableLM: give every token a probability above 0)"
        )
    return states


def check(k, penalty):
    """Raise ValueError if an argument of `contrastive_search` is wrong."""
    check_whole_number(k, 1, "k says how many tokens are candidates")
    if not is_number(penalty) or not 0 <= penalty <= 1:
        raise ValueError(f"penalty must be a weight from 0 (greedy) to 1 (similarity alone), got {penalty!r}")


@decoder(check=check)
def contrastive_search(lm: LM, prompt: Prompt, *, k: int = 4, penalty: float = 0.6) -> Iterator[Step]:
    """Take, among the `k` most likely tokens, one that is likely and also unlike everything before it.

    A candidate x scores ``(1 - penalty) · p(x) - penalty · max_j cos(h_x, h_j)``: its probability counts for it, and
    the similarity of its hidden state to that of an earlier token counts against it. The similarity is the largest
    cosine with any token before it, including the prompt. Hidden states are those of the last layer, after the final
    norm. A token that repeats earlier text has a hidden state close to an earlier one, so it scores low. If scores are
    equal, the lowest id wins.

    *Lossy* by design: the text is neither the greedy text nor a sample from the model's distribution. Nothing is
    random. With ``penalty=0`` or ``k=1`` it is greedy decoding, including how ties are broken.

    Cost: one call of `lm` for the prompt, and then one call with `k` tokens per new token. That call gives the hidden
    states of the candidates and also the logits that follow each of them.

    Source: Su et al. (2022), "A Contrastive Framework for Neural Text Generation", section 3.2. For open-ended text the
    paper uses k = 8 and a penalty of 0.6 (called alpha there).

    Parameters
    ----------
    lm : LM
    prompt : str or list of int
    k : int
        The number of candidates, at least 1. If `k` is as large as the vocabulary, all tokens of nonzero probability
        are compared.
    penalty : float
        From 0 to 1.

    Yields
    ------
    Step
        One token per step, without end. The candidates are the model's. The `hypotheses` are the `k` tokens compared,
        each as ``[[token], score]``, best first, and `score` is the score of the winner.

    Raises
    ------
    ValueError
        When called with a bad argument; while running, for logits that are NaN or +inf, for a model that returns no
        hidden states, or for hidden states that are not finite.
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
