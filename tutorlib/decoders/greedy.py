"""Greedy decoding: always take the most likely next token."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from ..model.lm import LM
from ..running.decoder import Prompt, decoder
from ..running.step import Candidates, Step
from ..sampling.warp import probabilities


def _likeliest(logits: torch.Tensor) -> int:
    """The token with the largest logit in the last row (vocab,); of equal logits, the lowest id.

    Raises the same ValueError as `sample` for logits that have no softmax.
    """
    token = int(logits[-1].argmax())
    if not math.isfinite(float(logits[-1, token])):
        probabilities(logits[-1:])  # raises ValueError, and says why
    return token


@decoder
def greedy(lm: LM, prompt: Prompt) -> Iterator[Step]:
    """Take the most likely next token, again and again. If several are equally likely, take the lowest id.

    Nothing is random here. Each choice is the best one for the next token, but the text as a whole is usually not the
    most likely text (see chapter 2).

    Cost: one call of `lm` per token; the first call also reads the prompt.

    Parameters
    ----------
    lm : LM
    prompt : str or list of int

    Yields
    ------
    Step
        One token per step, without end.

    Raises
    ------
    ValueError
        When called with a bad argument; while running, for logits that are NaN or +inf, or that are all -inf.
    """
    session = lm.session(prompt)
    logits = session.feed()  # (1, vocab): what may follow the prompt
    while True:
        token = _likeliest(logits)
        yield Step([token], candidates=Candidates(logits))
        logits = session.feed([token])
