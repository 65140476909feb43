"""Train a joint, DSpark's or DFlash2's, for a finished DFlash network, on texts that the target writes itself.

The network stays as it is. The joint learns its bias from texts: at each position of a block it is given the text's own
token before it, and is compared with the target's probabilities. DSpark's confidence head learns how much of the
target's distribution the corrected guess covers, the sum over tokens of min(p, q): that is the probability that
speculative sampling accepts a token drawn there. What this file does not do: run the training, measure, and write files
(`learner`), or compute the blocks (`train_dflash`).

Source: Cheng et al. (2026), "DSpark", section 3.3. There, and in DFlash2, the network is trained too.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from ...drafting.dflash2_head import DFlash2Head
from ...drafting.dflash_head import DFlashHead
from ...drafting.dspark_head import DSparkHead
from ...drafting.joint_head import RANK, JointHead
from ...loading import formats
from ...model.lm import LM
from .labels import Loss, cross_entropy
from .train_dflash import DFlashLearner


class JointLearner(DFlashLearner):
    """A joint. Its step j guesses, at position t, the token at t + 2 + j, and is given the one at t + 1 + j.

    So its accuracies are those of single guesses, each after a right one.

    Parameters
    ----------
    target : LM
    head : JointHead
        Its joint is trained in place, in float32.
    tree, compare
        As in `DFlashLearner`.
    """

    head: JointHead

    def __init__(self, target: LM, head: JointHead, tree: dict | None = None, *, compare: Loss = cross_entropy):
        its_tree = head.network.tree
        super().__init__(target, head.network, tree, compare=compare)
        self.head = self.trained = head.to(target.device).float()
        head.requires_grad_(True)
        head.network.requires_grad_(False)
        head.tree, head.network.tree = head.network.tree, its_tree
        self.settings |= {"rank": head.rank}
        self.noted = {"parameters": sum(weight.numel() for weight in head.joint.values()), "tree": head.tree}

    def states(self, batch, starts):
        with torch.no_grad():
            return super().states(batch, starts)

    def logits(self, states, before):
        return self.read(states) + self.head.bias(before, states)


class DSparkLearner(JointLearner):
    """DSpark's joint, which also learns to predict acceptance."""

    head: DSparkHead
    name = "dspark"

    def lost(self, states, before, probs):
        logits = self.logits(states, before)
        covered = torch.minimum(logits.detach().softmax(-1), probs).sum(-1)
        confidence = self.head.confidences(states, before)
        return self.compare(logits, probs) + F.binary_cross_entropy_with_logits(confidence, covered, reduction="sum")

    def write(self, head, folder, base):
        return formats.save_dspark(head, folder, base=base)


class DFlash2Learner(JointLearner):
    """DFlash2's joint."""

    name = "dflash2"

    def write(self, head, folder, base):
        return formats.save_dflash2(head, folder, base=base)


def new_dspark(network: DFlashHead, rank: int = RANK) -> DSparkHead:
    """A DFlash network with an untrained joint, whose bias is zero: it guesses what the network guesses."""
    head = DSparkHead(network, rank)
    _initialise(head)
    nn.init.zeros_(head.confidence.weight)
    nn.init.zeros_(head.confidence.bias)
    return head


def new_dflash2(network: DFlashHead, rank: int = RANK) -> DFlash2Head:
    """The same for DFlash2. Its gate is open: it begins as a bias that does not depend on the position."""
    head = DFlash2Head(network, rank)
    _initialise(head)
    nn.init.zeros_(head.gate.weight)
    nn.init.ones_(head.gate.bias)
    return head


def _initialise(head: JointHead) -> None:
    nn.init.normal_(head.before.weight, generator=torch.Generator().manual_seed(0))
    nn.init.zeros_(head.after.weight)
