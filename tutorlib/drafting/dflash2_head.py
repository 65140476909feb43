"""DFlash2's path selector: scores of pairs of tokens that depend on the position, added to a DFlash network's guesses.

A bias from the token before is the same wherever this token stands. Here the network's output at the position, the
state, says how much each column of the table of pairs counts. So the token before may decide nearly everything at one
position, and little at another.

What this file does not do: what all joints do (`joint_head`).
"""

from __future__ import annotations

import torch
from torch import nn

from .dflash_head import DFlashHead
from .joint_head import RANK, JointHead


class DFlash2Head(JointHead):
    """A DFlash network and a joint: scores of pairs of tokens, weighted by the network's state at each position.

    Its parameters, attributes and errors are those of `JointHead`. With a gate of ones, the bias is that of DSpark.

    Source: Inco AI (2026), "DFlash 2", https://inco.ai/blog/dflash2/, the path selector. There only the 16 most likely
    tokens of each position are scored, which matters for a large vocabulary; here all are. DFlash2 also adds
    convolutions to the network. Here it is a finished DFlash network, which stays as it is.
    """

    title = "DFlash2 joint"

    def __init__(self, network: DFlashHead, rank: int = RANK):
        super().__init__(network, rank)
        self.gate = nn.Linear(network.width, rank)  # from a state to a weight for each column

    def bias(self, tokens: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """What is added to the logits (..., vocab_size) of positions, see `JointHead.bias`."""
        return self.after.forward(self.before.forward(tokens) * self.gate.forward(states))
