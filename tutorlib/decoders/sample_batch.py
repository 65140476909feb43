"""Sampling of several texts at once: one call of the model gives each of them its next token."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import torch

from ..model.lm import LM
from ..running.decoder import Prompt, decoder
from ..running.step import Candidates, Step
from ..sampling.known_text import History
from ..sampling.randomness import Randomness
from ..sampling.warp import Warp, probabilities


@decoder
def sample_batch(
    lm: LM, prompts: Sequence[Prompt], *, rngs: Sequence[Randomness] | None = None, warp: Sequence[Warp] = ()
) -> Generator[list[Step], set[int] | None, str]:
    """Draw the next token of several texts, with one call of the model for all of them.

    *Lossless* for every row: each text is the one that `sample` would write for the same prompt and rng, apart from
    rounding (a call for several rows may add numbers in a different order). The texts may have different lengths, and
    no row waits for another.

    Cost: one call of `lm` per round, with one row for each text that has not ended; the first call also reads the
    prompts (once for all rows if they are equal). As long as most of a call's time goes into reading the weights from
    memory, a call for several rows takes little longer than a call for one. Rows that have ended are removed from the
    cache.

    Parameters
    ----------
    lm : LM
    prompts : list of str or of lists of int
        At least one; their lengths may differ.
    rngs : list of Randomness, or None
        One for each prompt, such as ``[Seeded(0), Seeded(1)]``. With None, the most likely tokens are taken instead.
    warp : sequence of functions
        As for `sample`. All rows use the same warps.

    Yields
    ------
    list of Step
        One round: a step for each prompt, which is empty if the text has ended. Run the rounds with `run_batch`.

    Raises
    ------
    ValueError
        When called with a bad argument; while running, for logits that are NaN or +inf, or when the warps leave a row
        without any token.
    """
    batch = lm.batch(prompts)
    texts = batch.tokens
    numbers = list(range(len(texts)))  # which of the texts each row of the batch is
    wanted = set(numbers)
    unread: list[list[int]] = [[] for _ in texts]  # what the batch has not been fed yet, text by text
    while True:
        going = [row for row, number in enumerate(numbers) if number in wanted and len(texts[number]) < lm.context]
        if not going:
            return "context"
        batch.reorder(going)
        numbers = [numbers[row] for row in going]
        fed = batch.feed([unread[number] for number in numbers])
        logits = torch.cat([rows[-1:] for rows in fed])  # (rows, vocab)
        histories = [History(texts[number]) for number in numbers]
        probs = probabilities(logits, warp, histories)
        steps = [Step() for _ in texts]
        for row, number in enumerate(numbers):
            token = rngs[number].choose(probs[row])
            texts[number].append(token)
            unread[number] = [token]
            here = slice(row, row + 1)
            steps[number] = Step([token], candidates=Candidates(logits[here], warp=warp, histories=histories[here]))
        wanted = (yield steps) or wanted
