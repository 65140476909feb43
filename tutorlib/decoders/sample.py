"""Sampling: draw the next token from the model's distribution, or from a warped one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..model.lm import LM
from ..running.decoder import Prompt, decoder
from ..running.step import Candidates, Step
from ..sampling.known_text import History
from ..sampling.randomness import Randomness
from ..sampling.warp import Warp, probabilities


@decoder
def sample(lm: LM, prompt: Prompt, *, rng: Randomness | None = None, warp: Sequence[Warp] = ()) -> Iterator[Step]:
    """Draw each next token from the model's distribution, after the warps have changed it.

    *Lossless* by definition: a method is called lossless if its texts have the same distribution as these.

    Cost: one call of `lm` per token; the first call also reads the prompt.

    Parameters
    ----------
    lm : LM
    prompt : str or list of int
    rng : Randomness or None
        For example ``Seeded(7)``. With None, the most likely token is taken instead.
    warp : sequence of functions
        Applied to the logits in order, before the softmax: ``[temperature(0.7), top_p(0.9)]``. A token that a filter
        drops is never drawn. Penalties look at the prompt and the text so far.

    Yields
    ------
    Step
        One token per step, without end.
    """
    session = lm.session(prompt)
    text = session.tokens
    logits = session.feed()  # (1, vocab): what may follow the prompt
    while True:
        history = [History(text)]
        token = rng.choose(probabilities(logits, warp, history)[-1])
        yield Step([token], candidates=Candidates(logits, warp=warp, histories=history))
        text.append(token)
        logits = session.feed([token])
