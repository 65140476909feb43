"""What heads learn to say, and two ways to measure how far they are from it.

The labels are the target's own probabilities of the tokens that the heads know. Where the target's most likely token is
unknown to them, there is nothing to learn.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional as F

from ...model.lm import LM
from ...model.read_out import scaled_or_capped

# From logits (positions, known) and the target's probabilities of the same tokens, the sum over all positions.
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
ETA = 3.0  # how fast `lk` turns from the divergence to the acceptance, as published
PIECE = 128  # positions whose logits are computed together, if they are over a large vocabulary


def cross_entropy(logits: torch.Tensor, probs: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of the guesses with the target's probabilities, summed over positions."""
    return F.cross_entropy(logits, probs, reduction="sum")


def lk(logits: torch.Tensor, probs: torch.Tensor) -> torch.Tensor:
    """The LK loss: what is lost is the acceptance itself, wherever that has a useful gradient.

    Speculative sampling accepts a guess with probability alpha, the sum over tokens of min(p, q). So 1 - alpha, the
    total variation, is what a draft should minimise. But it hardly has a gradient where q is far from p: a small change
    of q cannot help there. The Kullback-Leibler divergence has. So the loss is ``weight * KL + (1 - weight) *
    (1 - alpha)`` with ``weight = exp(-3 * alpha)``, through which no gradient flows: a divergence as long as almost
    nothing is accepted, and nearly the rejections alone when almost everything is. Both are lowest at q = p.

    Source: Samarin et al. (2026), "LK Losses: Direct Acceptance Rate Optimization for Speculative Decoding",
    arXiv:2602.23881, sections 4.2 and 4.4. They have one weight for all positions of a batch. Here each position has
    its own, so that a loss does not depend on which texts share its batch.

    Parameters
    ----------
    logits, probs : tensors of shape (positions, tokens)
        Of the draft, and the target's probabilities.

    Returns
    -------
    scalar tensor
        Summed over positions.
    """
    log_draft = logits.log_softmax(-1)
    divergence = F.kl_div(log_draft, probs, reduction="none").sum(-1)
    alpha = torch.minimum(probs, log_draft.exp()).sum(-1)
    weight = torch.exp(-ETA * alpha.detach())
    return (weight * divergence + (1 - weight) * (1 - alpha)).sum()


LOSSES: dict[str, Loss] = {"ce": cross_entropy, "lk": lk}


def in_pieces(compared: Loss, states: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """A loss summed over positions, computed for a few positions at a time.

    The logits of a whole batch over a large vocabulary take gigabytes. So the gradient is computed together with the
    loss of each piece, and only the gradient is kept. It reaches `states` alone: no weights inside `compared` learn.

    Parameters
    ----------
    compared : function
        From states and from what is right at some positions, the loss summed over these positions.
    states, right : tensors of shape (positions, width)

    Returns
    -------
    scalar tensor
    """
    whole, gradients = states.new_zeros(()), []
    for piece, there in zip(states.detach().split(PIECE), right.split(PIECE), strict=True):
        with torch.enable_grad():
            loss = compared(piece.requires_grad_(), there)
            gradients += torch.autograd.grad(loss, piece)
        whole = whole + loss.detach()
    moved = (states * torch.cat(gradients)).sum() if gradients else states.sum()
    return whole + moved - moved.detach()  # the value is that of `whole`, and the gradient that of `moved`


class Labels:
    """The labels of some positions of texts.

    Parameters
    ----------
    labels : tensor of shape (count, known), or int64 tensor of shape (count,)
        Probabilities, or tokens.
    rows, positions : int64 tensors of shape (count,)
        The positions whose next token they are about.
    shape : (rows, length)
        Of the texts.
    """

    def __init__(self, labels: torch.Tensor, rows: torch.Tensor, positions: torch.Tensor, shape: torch.Size):
        self.labels = labels
        self._number = torch.full(shape, -1, device=labels.device)
        self._number[rows, positions] = torch.arange(len(labels), device=labels.device)

    def at(self, rows: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Which of these positions have a label, and the labels of those that have."""
        numbers = self._number[rows, positions]
        there = numbers >= 0
        return there, self.labels[numbers[there]]


def readable(target: LM, tokens: torch.Tensor | None = None) -> Callable[[torch.Tensor], torch.Tensor]:
    """`LM.read_out` for the last features, as a function through which gradients flow, but not into the target.

    With `tokens`, only the logits of these are computed, in their order: (..., tokens).
    """
    output = target.model.get_output_embeddings()
    weight, bias = output.weight.detach(), getattr(output, "bias", None)
    bias = None if bias is None else bias.detach()
    if tokens is not None and len(tokens) < target.vocab_size:
        weight, bias = weight[tokens.to(weight.device)], None if bias is None else bias[tokens.to(bias.device)]
    weight, bias = weight.float(), None if bias is None else bias.float()
    return lambda features: scaled_or_capped(F.linear(features, weight, bias), target.forward.config)
