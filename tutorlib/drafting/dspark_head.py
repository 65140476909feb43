"""DSpark: what a small joint adds to a DFlash network, so that a block's guesses depend on each other again.

The network guesses all positions of a block in one pass. The joint then adds to the logits of each position a bias that
depends on the token before it. So a guess knows the guess before it, and costs a small product instead of a pass. The
joint also says, before a token is drawn, how probable it is that the target will accept it.

What this file does not do: what all joints do (`joint_head`), or cut a draft (`survival`).
"""

from __future__ import annotations

import torch
from torch import nn

from ..model.lm import LM
from .dflash_head import DFlashHead
from .joint_head import RANK, JointedSession, JointHead


class DSparkHead(JointHead):
    """A DFlash network and a joint: a bias from the token before each position, and a prediction of its acceptance.

    Its parameters, attributes and errors are those of `JointHead`.

    Source: Cheng et al. (2026), "DSpark: Confidence-Scheduled Speculative Decoding with Semi-Autoregressive
    Generation", sections 3.1 and 3.2: its plain ("vanilla") Markov head and its confidence head. There the network is
    trained together with the joint. Here it is a finished DFlash network, which stays as it is.
    """

    title = "DSpark joint"

    def __init__(self, network: DFlashHead, rank: int = RANK):
        super().__init__(network, rank)
        self.confidence = nn.Linear(network.width + rank, 1)

    def bias(self, tokens: torch.Tensor, states: torch.Tensor | None = None) -> torch.Tensor:
        """What is added to the logits (..., vocab_size) of a position if these tokens (...) stand before it.

        It is the same at every position: the network's outputs there are not read.
        """
        return self.after.forward(self.before.forward(tokens))

    def confidences(self, states: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Logits (...) of the probability that the target accepts a token drawn at a position.

        Parameters
        ----------
        states : tensor of shape (..., width)
            The network's outputs at the positions.
        tokens : int64 tensor of shape (...)
            The tokens before them.
        """
        return self.confidence.forward(torch.cat([states, self.before.forward(tokens)], dim=-1))[..., 0]

    def session(self, target: LM) -> ConfidentSession:
        """One sequence of drafts for a target; see `ConfidentSession`."""
        return ConfidentSession(self, target)


class ConfidentSession(JointedSession):
    """One sequence of a DFlash network with DSpark's joint, which also predicts acceptance."""

    jointed: DSparkHead

    @property
    def chances(self) -> list[float]:
        """For each row that was returned last, the predicted probability that the target accepts a token drawn there.

        Computed when it is asked for, because most shapes do not ask.
        """
        with torch.inference_mode():
            return self.jointed.confidences(self.states_there, self.before).sigmoid().tolist()
