"""Greedy decoding: always the likeliest next token."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from ..decoding import Prompt, decoder
from ..lm import LM
from ..step import Candidates, Step
from ..warp import probabilities


def likeliest(logits: torch.Tensor) -> int:
    """The token of the largest logit in the last row (vocab,), of equals the lowest id; what `sample` refuses, too."""
    token = int(logits[-1].argmax())
    if not math.isfinite(float(logits[-1, token])):
        probabilities(logits[-1:])  # raises ValueError, and says why
    return token


@decoder
def greedy(lm: LM, prompt: Prompt) -> Iterator[Step]:
    """Take the likeliest next token, over and over. Of equally likely tokens, the lowest id.

    Deterministic: there is nothing to draw. Locally best and, as a search for the likeliest text, globally not (see
    chapter 2).

    Cost: one call of `lm` a token, the first of them with the whole prompt.

    Parameters
    ----------
    lm : LM
    prompt : str or list of int

    Yields
    ------
    Step
        One token each, endlessly.

    Raises
    ------
    ValueError
        At the call for a bad argument; while running, for logits that are NaN, +inf, or nothing but -inf.
    """
    session = lm.session(prompt)
    logits = session.feed()  # (1, vocab): what may follow the prompt
    while True:
        token = likeliest(logits)
        yield Step([token], candidates=Candidates(logits))
        logits = session.feed([token])
