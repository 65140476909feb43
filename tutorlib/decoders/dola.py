"""DoLa, decoding by contrasting layers: prefer tokens that the last layer finds more likely than an early layer
does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

from ..model.lm import LM
from ..running.decoder import Prompt, decoder
from ..running.step import Candidates, Step
from ..sampling.randomness import Randomness
from ..sampling.warp import Warp, probabilities
from .contrastive_decoding import check_alpha, checked_log_softmax, contrastive_scores


def jensen_shannon(log_probs: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """The Jensen-Shannon divergence of two distributions, row by row: the average distance of both from their mean.

    ``(KL(p || m) + KL(q || m)) / 2`` with ``m = (p + q) / 2``, in nats. It is 0 if they are equal, and at most log 2.

    Parameters
    ----------
    log_probs, other : float64 tensors of log-probabilities, shapes (n, vocab) or (1, vocab)

    Returns
    -------
    (n,) tensor
    """
    log_mean = torch.logaddexp(log_probs, other) - math.log(2)
    # nansum: 0 · log 0 counts as 0
    one, two = ((rows.exp() * (rows - log_mean)).nansum(-1) for rows in (log_probs, other))
    return (one + two) / 2


def lower_layers(lm: LM) -> list[int]:
    """The even layers of the lower half, which the paper uses for long answers.

    Layer 0, the embeddings, is left out for models whose output head is the embedding matrix, because the logits of an
    embedding then only point to its own token. (The DoLa of transformers does the same; the paper's models have two
    separate matrices.)

    Raises
    ------
    ValueError
        If there are no such layers. Then pass layer numbers of your choice.
    """
    first = 2 if lm.layers and _is_tied(lm.model) else 0
    return _even(lm, first, lm.layers // 2)


def upper_layers(lm: LM) -> list[int]:
    """The even layers of the upper half without the last layer, which the paper uses for short answers.

    Raises
    ------
    ValueError
        If there are no such layers. Then pass layer numbers of your choice.
    """
    return _even(lm, lm.layers // 2, lm.layers)


def _even(lm, first: int, end: int) -> list[int]:
    layers = [layer for layer in range(first, end) if layer % 2 == 0]
    if not layers:
        raise ValueError(f"a model of {lm.layers} layers has no even ones from {first} to {end - 1}: name others")
    return layers


def _is_tied(model) -> bool:
    return model.get_input_embeddings().weight is model.get_output_embeddings().weight


def check(lm, layers, alpha):
    """Raise ValueError if an argument of `dola` is wrong."""
    if lm.layers == 0:
        raise ValueError(f"dola contrasts layers, but a {type(lm).__name__} has none: its hidden states are its output")
    try:
        layers = list(layers)
    except TypeError:
        raise ValueError(f"layers must be a sequence of layer numbers such as [0, 2, 4], got {layers!r}") from None
    if not layers:
        raise ValueError("layers is empty: give at least one layer to contrast the last one with")
    for layer in layers:
        if isinstance(layer, bool) or not hasattr(layer, "__index__") or not 0 <= layer <= lm.layers:
            raise ValueError(
                f"layers holds {layer!r}, but this model's early layers are 0 (embeddings) to {lm.layers - 1}"
            )
        if layer == lm.layers:
            raise ValueError(f"layers holds {layer}, the last layer, which is what the others are contrasted with")
    check_alpha(alpha)


@decoder(check=check)
def dola(
    lm: LM,
    prompt: Prompt,
    *,
    layers: Sequence[int],
    alpha: float = 0.1,
    rng: Randomness | None = None,
    warp: Sequence[Warp] = (),
) -> Iterator[Step]:
    """Take the plausible token that the last layer favours most over an early layer of the same model.

    The final norm and the output head can turn the hidden state of any layer into a distribution. The authors found
    that factual knowledge appears in the later layers, and subtract an early layer's log-probabilities to bring it out.
    This is contrastive decoding (`contrastive_scores`) with an early layer as the amateur. If several `layers` are
    given, the one that differs most from the last layer is chosen anew for each token, by the Jensen-Shannon divergence
    (the paper's dynamic selection). If one is given, it is always used (static selection). Among equal scores the
    lowest id wins, and among equally distant layers the first.

    *Lossy* by design: the text is neither the model's greedy text nor a sample from its distribution. With ``alpha=1``
    it is greedy decoding (except for ties).

    Cost: one call of `lm` per token, and the output head once more for each of the layers.

    Source: Chuang et al. (2023), "DoLa: Decoding by Contrasting Layers Improves Factuality in Large Language Models",
    section 2. The authors' code and the DoLa of transformers (part of it until version 4.52) differ from this one. They
    apply the output head to early hidden states directly, without the final norm and without the capping of logits that
    Gemma 2 has after its head. And they compare layers by ``(KL(m || p) + KL(m || q)) / 2``, in which the mean comes
    first.

    Parameters
    ----------
    lm : LM
        A model with layers; a `TableLM` has none.
    prompt : str or list of int
    layers : sequence of int
        Numbered like the hidden states of a session: 0 is the embeddings, and i is the output of layer i. The last
        layer is not allowed. The choices in the paper are `lower_layers(lm)` and `upper_layers(lm)`, and also
        ``range(0, 20, 2)``.
    alpha : float
        A token is excluded if the last layer gives it less than this share of the probability of its most likely token.
    rng : Randomness, optional
        Draws from the softmax of the scores. With None, the token with the best score is taken, as in the paper.
    warp : sequence of functions
        Applied in order to the scores, in the way in which `sample` applies them to logits. The paper uses
        ``[repetition_penalty(1.2)]``.

    Yields
    ------
    Step
        One token per step, without end. The candidates are the softmax of the scores, and the note names the layer.

    Raises
    ------
    ValueError
        When called with a bad argument; while running, for logits that are NaN or +inf, for a model that returns no
        hidden states, or for one whose hidden states `LM.read_out` cannot turn into logits.
    """
    layers = list(layers)
    session = lm.session(prompt, hidden=layers)
    logits = session.feed()  # (1, vocab)
    while True:
        early_logits = lm.read_out(torch.cat([session.hidden[layer] for layer in layers]))  # (layers, vocab)
        distances = jensen_shannon(checked_log_softmax(early_logits), checked_log_softmax(logits))  # (layers,)
        chosen = int(distances.argmax())
        scores = contrastive_scores(logits, early_logits[chosen : chosen + 1], alpha)
        probs = probabilities(scores, warp, [session.tokens])
        token = rng.choose(probs[-1])
        yield Step([token], candidates=Candidates(scores), note=f"against layer {layers[chosen]}")
        logits = session.feed([token])
