"""How an EAGLE-3 network starts from its target's own weights, where there is little time for training.

What this file does not do: train (`train_eagle`).
"""

from __future__ import annotations

import torch
from torch import nn

from ...drafting.eagle_head import Eagle3Head
from ...model.lm import LM
from .sampled_texts import hidden_states

SMALL = 0.2  # factor for random weights, if a network starts as a copy of the target's last layer


@torch.no_grad()
def start_from_last_layer(target: LM, head: Eagle3Head) -> None:
    """Make an EAGLE-3 network start as a copy of its target's last layer, in place of random weights.

    At the start, the network passes on the highest of its features with a small part of the others, and treats the
    result like the last layer. Only the weights for the token's embedding are not copied: they are random and scaled
    down. Norms of the features start with the usual size of these, so that the network starts as it would without.

    Parameters
    ----------
    target : LM
    head : Eagle3Head
        Changed in place.

    Raises
    ------
    ValueError
        If the target's last layer is not built like Llama's, or its sizes differ from those of the network.
    """
    layers = getattr(target.model.get_decoder(), "layers", [])
    renamed = {"input_layernorm.weight": "hidden_norm.weight"}  # the norm before the features
    weights = layers[-1].state_dict() if len(layers) else {}
    theirs = {renamed.get(name, name): weight.float() for name, weight in weights.items()}
    ours = {name: weight for name, weight in head.midlayer.state_dict().items() if name not in renamed}
    if set(theirs) != set(ours) or any(
        theirs[name].shape != weight[..., -theirs[name].shape[-1] :].shape for name, weight in ours.items()
    ):
        raise ValueError(
            "the target's last layer is not built like Llama's, so an EAGLE-3 network cannot start as a copy of it: "
            "train without from_last_layer"
        )
    for name, weight in ours.items():
        copied = theirs[name].shape[-1]
        weight[..., :-copied] *= SMALL  # the weights for the token's embedding
        weight[..., -copied:] = theirs[name]
    if head.fc_norm is not None:
        text = torch.arange(64, device=target.device)[None] % target.vocab_size
        states = hidden_states(target.model, text[:, : target.context], head.feature_layers)
        for norm, layer in zip(head.fc_norm, head.feature_layers, strict=True):
            sizes = states[layer].float().square().mean(-1).sqrt()
            # The median, as that of a first token may be a hundred times as large.
            norm.get_parameter("weight").fill_(float(sizes.median()))
    head.fc.weight *= SMALL
    head.fc.weight[:, -head.width :] += torch.eye(head.width, device=head.fc.weight.device)


def copy_final_norm(target: LM, norm: nn.RMSNorm) -> None:
    """Initialise the norm before the output head with the target's final norm, if it is of the same kind."""
    weight = getattr(getattr(target.model.get_decoder(), "norm", None), "weight", None)
    if weight is not None and weight.shape == norm.weight.shape:
        norm.weight.data.copy_(weight.detach().float())
