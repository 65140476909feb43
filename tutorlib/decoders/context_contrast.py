"""Context-aware decoding, alias classifier-free guidance: what a model says more of because it has read the context."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from ..arguments import is_number
from ..decoding import Prompt, decoder
from ..lm import LM
from ..randomness import Randomness
from ..step import Candidates, Step
from ..warp import Warp, probabilities
from .contrastive_decoding import IMPOSSIBLE, log_probabilities


def context_scores(logits_with: torch.Tensor, logits_without: torch.Tensor, weight: float) -> torch.Tensor:
    """Log-probabilities with the context, plus `weight` times what the context has added to them.

    That is ``(1 + weight) · log p_with - weight · log p_without``. The papers write it with logits in place of the
    log-probabilities, which is the same up to a constant.

    Source: Shi et al. (2023), "Trusting Your Evidence: Hallucinate Less with Context-aware Decoding", section 2.

    Parameters
    ----------
    logits_with, logits_without : tensors of floats, shape (n, vocab)
    weight : float
        At least 0, which leaves the log-probabilities with the context.

    Returns
    -------
    tensor of float64, shape (n, vocab)
        -inf for what is impossible with the context. Never NaN or +inf: where something is possible with the context
        alone, its log-probability without counts as -1e6.

    Raises
    ------
    ValueError
        When a row of logits holds NaN or +inf, or nothing but -inf.

    Examples
    --------
    >>> context_scores(torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.2, 0.8]]).log(), 1.0).softmax(-1)
    tensor([[0.8000, 0.2000]], dtype=torch.float64)
    """
    log_with, log_without = log_probabilities(logits_with), log_probabilities(logits_without)
    added = log_with.clamp(min=-IMPOSSIBLE) - log_without.clamp(min=-IMPOSSIBLE)
    return (log_with + weight * added).clamp(max=torch.finfo(torch.float64).max)


def check(lm, without, weight):
    """Raise ValueError for what is wrong with the arguments of `context_contrast`."""
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
) -> Iterator[Step]:
    """Contrast a model that has read the context with the same model that has not: what the context says counts more.

    Asked about a document, a model may answer from what it has learnt in training. The same question `without` the
    document shows what that is. Each token is drawn with a probability proportional to
    ``p_with · (p_with / p_without) ** weight``, the softmax of `context_scores`: what the context has made more likely
    gains, and what it has made less likely loses. With ``rng=None`` the best score is taken, of equal ones the lowest
    id.

    *Lossy* by design: not the model's distribution, and under ``rng=None`` not its greedy text. With ``weight=0`` it is
    `sample`, and greedy decoding.

    Cost: one call of `lm` a token, with two rows: one for each of the two texts. The new tokens are added to both.

    Source: Shi et al. (2023), "Trusting Your Evidence: Hallucinate Less with Context-aware Decoding", section 2, whose
    α is `weight`: 0.5 for summaries, 1 where the context contradicts what was learnt. Sanchez et al. (2023), "Stay on
    Topic with Classifier-Free Guidance", call the same guidance: their γ, ``guidance_scale`` in transformers, is
    1 + `weight`. Their text `without` begins at the prompt's last token, or is a negative prompt.

    Parameters
    ----------
    lm : LM
    prompt : str or list of int
        With the context. This is the text that is written on.
    without : str or list of int
        A prompt that lacks the context: usually `prompt` with the document left out. At least one token, of any length.
    weight : float
        0 or more: how much the context counts beyond what it does anyway.
    rng : Randomness or None
    warp : sequence of functions
        Applied in order to the scores, in the way in which `sample` applies them to logits. A `repetition_penalty`,
        which looks at signs, makes something else of scores than of logits, even when the weight is 0.

    Yields
    ------
    Step
        One token each; ends when the longer of the two texts fills the model's context. Its candidates are the softmax
        of the warped scores.

    Raises
    ------
    ValueError
        At the call for a bad argument; while running, for logits that are NaN or +inf.
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
