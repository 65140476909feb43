"""Context-aware decoding, also called classifier-free guidance: prefer tokens that the context made more likely."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import torch

from ..arguments import is_number
from ..model.lm import LM
from ..running.decoder import Prompt, decoder
from ..running.step import Candidates, Step
from ..sampling.randomness import Randomness
from ..sampling.warp import Warp, probabilities
from .contrastive_decoding import IMPOSSIBLE, checked_log_softmax


def context_scores(logits_with: torch.Tensor, logits_without: torch.Tensor, weight: float) -> torch.Tensor:
    """Log-probabilities with the context, plus `weight` times what the context has added to them.

    That is ``(1 + weight) · log p_with - weight · log p_without``. The papers write it with logits in place of the
    log-probabilities, which is the same up to a constant.

    Source: Shi et al. (2023), "Trusting Your Evidence: Hallucinate Less with Context-aware Decoding", section 2.

    Parameters
    ----------
    logits_with, logits_without : tensors of floats, shape (n, vocab)
    weight : float
        At least 0. With 0, the result is the log-probabilities with the context.

    Returns
    -------
    tensor of float64, shape (n, vocab)
        -inf for tokens that are impossible with the context. Never NaN or +inf: if a token is possible with the context
        and impossible without it, its log-probability without the context counts as -1e6.

    Raises
    ------
    ValueError
        When a row of logits holds NaN or +inf, or is all -inf.

    Examples
    --------
    >>> context_scores(torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.2, 0.8]]).log(), 1.0).softmax(-1)
    tensor([[0.8000, 0.2000]], dtype=torch.float64)
    """
    log_with, log_without = checked_log_softmax(logits_with), checked_log_softmax(logits_without)
    added = log_with.clamp(min=-IMPOSSIBLE) - log_without.clamp(min=-IMPOSSIBLE)
    return (log_with + weight * added).clamp(max=torch.finfo(torch.float64).max)


def check(lm, without, weight):
    """Raise ValueError if an argument of `context_contrast` is wrong."""
    try:
        lm.prompt_tokens(without)
    except ValueError as error:
        raise ValueError(f"without, the prompt that lacks the context: {error}") from None
    if not is_number(weight) or weight < 0:
        raise ValueError(
            f"weight must be a finite number of 0 (no contrast) or more, got {weight!r}: a guidance scale, as other "
            "libraries have it, is 1 + weight"
        )


@decoder(check=check)
def context_contrast(
    lm: LM,
    prompt: Prompt,
    *,
    without: Prompt,
    weight: float,
    rng: Randomness | None = None,
    warp: Sequence[Warp] = (),
) -> Generator[Step, None, str | None]:
    """Compare the model with and without the context, and strengthen what the context has changed.

    A model that is asked about a document may ignore the document and answer from what it learnt in training. The same
    question `without` the document shows what that answer would be. Each token is drawn with a probability proportional
    to ``p_with · (p_with / p_without) ** weight``, which is the softmax of `context_scores`: tokens that the context
    has made more likely gain, and tokens that it has made less likely lose. With ``rng=None`` the token with the best
    score is taken; if scores are equal, the lowest id.

    *Lossy* by design: the texts do not have the model's distribution, and with ``rng=None`` the text is not the model's
    greedy text. With ``weight=0`` it is the same as `sample`, or as greedy decoding if ``rng=None``.

    Cost: one call of `lm` per token, with two rows: one for each of the two texts. The new tokens are added to both.

    Source: Shi et al. (2023), "Trusting Your Evidence: Hallucinate Less with Context-aware Decoding", section 2. Their
    α is `weight`: 0.5 for summaries, 1 where the context contradicts what the model has learnt. Sanchez et al. (2023),
    "Stay on Topic with Classifier-Free Guidance", use the same formula under the name of guidance: their γ, which is
    ``guidance_scale`` in transformers, is 1 + `weight`. Their text `without` is the prompt's last token alone, or a
    negative prompt.

    Parameters
    ----------
    lm : LM
    prompt : str or list of int
        The prompt with the context. This is the text that is continued.
    without : str or list of int
        A prompt without the context: usually `prompt` with the document left out. It needs at least one token.
    weight : float
        0 or more: how strongly the effect of the context is increased.
    rng : Randomness or None
    warp : sequence of functions
        Applied in order to the scores, in the way in which `sample` applies them to logits. A `repetition_penalty`
        depends on the sign of a number, so it changes scores differently from logits, even when the weight is 0.

    Yields
    ------
    Step
        One token per step, until the longer of the two texts fills the model's context. The candidates are the softmax
        of the warped scores.

    Raises
    ------
    ValueError
        When called with a bad argument; while running, for logits that are NaN or +inf.
    """
    batch = lm.batch([prompt, without])
    new = []  # the first feed computes the prompts
    while len(new) < min(batch.room):
        logits_with, logits_without = batch.feed([new, new])  # (1, vocab) each
        scores = context_scores(logits_with, logits_without, weight)
        history = batch.tokens[:1]
        new = [rng.choose(probabilities(scores, warp, history)[-1])]
        yield Step(new, candidates=Candidates(scores, warp=warp, histories=history))
    return "context"
