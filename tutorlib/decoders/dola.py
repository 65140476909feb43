"""DoLa, decoding by contrasting layers: what the last layer says more of than an early one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

from ..decoding import Prompt, decoder
from ..lm import LM
from ..randomness import Randomness
from ..step import Candidates, Step
from ..warp import Warp, probabilities
from .contrastive_decoding import check_alpha, contrastive_scores, log_probabilities


def jensen_shannon(log_probs: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """The Jensen-Shannon divergence of distributions, row by row: how far both are from their mean, on average.

    ``(KL(p || m) + KL(q || m)) / 2`` with ``m = (p + q) / 2``, in nats: 0 where they are equal, at most log 2.

    Parameters
    ----------
    log_probs, other : float64 tensors of log-probabilities, shapes (n, vocab) or (1, vocab)

    Returns
    -------
    (n,) tensor
    """
    log_mean = torch.logaddexp(log_probs, other) - math.log(2)
    # nansum: 0 · log 0 counts as 0
    return sum((rows.exp() * (rows - log_mean)).nansum(-1) for rows in (log_probs, other)) / 2


def lower_layers(lm: LM) -> list[int]:
    """The even layers of the lower half: the paper's bucket for long answers.

    Layer 0, the embeddings, is left out of models whose output head is the embedding matrix: read out, an embedding
    says only its own token (as transformers' DoLa has it; the paper's models have two matrices).

    Raises
    ------
    ValueError
        If there is none: name the layers yourself then.
    """
    first = 2 if lm.layers and _is_tied(lm.model) else 0
    return _even(lm, first, lm.layers // 2)


def upper_layers(lm: LM) -> list[int]:
    """The even layers of the upper half, the last layer left out: the paper's bucket for short answers.

    Raises
    ------
    ValueError
        If there is none: name the layers yourself then.
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
    """Raise ValueError for what is wrong with the arguments of `dola`."""
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
    """Take the plausible token that the last layer likes most in comparison with an early layer of the same model.

    The final norm and the output head turn the hidden state of any layer into a distribution. In the models of the
    paper, what takes knowledge appears in the later layers: subtracting an early layer's log-probabilities is to bring
    it out. This is contrastive decoding (`contrastive_scores`) with an early layer for an amateur. Of several
    `layers` the one that differs most from the last, by their Jensen-Shannon divergence, is chosen anew for each token
    (the paper's dynamic selection); with one it is always that (static). Of equal scores the lowest id wins, of equally
    far layers the first.

    *Lossy* by design: neither the model's greedy text nor its distribution. With ``alpha=1`` it is greedy (ties aside).

    Cost: one call of `lm` a token, and the output head once more for each of the layers.

    Source: Chuang et al. (2023), "DoLa: Decoding by Contrasting Layers Improves Factuality in Large Language Models",
    section 2. The authors' code, and transformers' DoLa (until 4.52 a part of it), differ: they put the output head on
    early hidden states as they are, without the final norm and without the capping of logits that Gemma 2 has after
    its head; and they compare layers by ``(KL(m || p) + KL(m || q)) / 2``, where the mean comes first.

    Parameters
    ----------
    lm : LM
        With layers to contrast: a `TableLM` has none.
    prompt : str or list of int
    layers : sequence of int
        As sessions number hidden states: 0 is the embeddings, i the output of layer i; the last is not among them.
        `lower_layers(lm)` and `upper_layers(lm)` are the paper's buckets; ``range(0, 20, 2)`` is one as well.
    alpha : float
        Tokens below this share of the likeliest one's probability, both by the last layer, are out.
    rng : Randomness, optional
        Draws from the softmax of the scores. None takes the best one, as the paper does.
    warp : sequence of functions
        Applied in order to the scores, in the way in which `sample` applies them to logits. The paper has
        ``[repetition_penalty(1.2)]``.

    Yields
    ------
    Step
        One token each, endlessly. Its candidates are the softmax of the scores; its note names the layer.

    Raises
    ------
    ValueError
        At the call for a bad argument; while running, for logits that are NaN or +inf, a model that gives no hidden
        states, or one that `LM.read_out` does not know how to read.
    """
    layers = list(layers)
    session = lm.session(prompt, hidden=layers)
    logits = session.feed()  # (1, vocab)
    while True:
        early_logits = lm.read_out(torch.cat([session.hidden[layer] for layer in layers]))  # (layers, vocab)
        distances = jensen_shannon(log_probabilities(early_logits), log_probabilities(logits))  # (layers,)
        chosen = int(distances.argmax())
        scores = contrastive_scores(logits, early_logits[chosen : chosen + 1], alpha)
        probs = probabilities(scores, warp, [session.tokens])
        token = rng.choose(probs[-1])
        yield Step([token], candidates=Candidates(scores), note=f"against layer {layers[chosen]}")
        logits = session.feed([token])
