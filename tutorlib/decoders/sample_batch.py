"""Sampling of several texts at once: one call of the model gives each of them its next token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from ..decoding import Prompt, decoder
from ..lm import LM
from ..randomness import Randomness
from ..step import Candidates, Step
from ..warp import Warp, probabilities


@decoder
def sample_batch(
    lm: LM, prompts: Sequence[Prompt], *, rngs: Sequence[Randomness] | None = None, warp: Sequence[Warp] = ()
) -> Iterator[list[Step]]:
    """Draw the next token of several texts, with one call of the model for all of them.

    *Lossless*, row by row: each is what `sample` makes of its own prompt and rng (up to rounding: a wider call is
    computed in another order). No row waits for another, whatever their lengths.

    Cost: one call of `lm` a round, as high as there are rows still going, the first of them with the whole prompts.
    Such a call takes little longer than one for a single text as long as the model waits for its weights to be read.
    Rows that have ended are taken out of the cache.

    Parameters
    ----------
    lm : LM
    prompts : list of str or of lists of int
        At least one; their lengths may differ.
    rngs : list of Randomness, or None
        One for each prompt, such as ``[Seeded(0), Seeded(1)]``. None takes the likeliest tokens instead.
    warp : sequence of functions
        As for `sample`, the same for all rows.

    Yields
    ------
    list of Step
        A round: one step for each prompt, empty for those that have ended. Pass it to `run_batch`.

    Raises
    ------
    ValueError
        At the call for a bad argument; while running, for logits that are NaN or +inf, or a warp that leaves some row
        no token.
    """
    texts, batch = [list(prompt) for prompt in prompts], lm.batch(prompts)
    numbers = list(range(len(texts)))  # which of the texts each row of the batch is
    wanted = set(numbers)
    while True:
        going = [row for row, number in enumerate(numbers) if number in wanted and len(texts[number]) < lm.context]
        if not going:
            return "context"
        batch.reorder(going)
        numbers = [numbers[row] for row in going]
        unread = [texts[number][len(read) :] for number, read in zip(numbers, batch.tokens, strict=True)]
        logits = torch.cat([rows[-1:] for rows in batch.feed(unread)])  # (rows, vocab)
        histories = batch.tokens
        probs = probabilities(logits, warp, histories)
        steps = [Step() for _ in texts]
        for row, number in enumerate(numbers):
            token = rngs[number].choose(probs[row])
            texts[number].append(token)
            here = slice(row, row + 1)
            steps[number] = Step([token], candidates=Candidates(logits[here], warp=warp, histories=histories[here]))
        wanted = (yield steps) or wanted
