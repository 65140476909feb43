"""Train DSpark's joint for a finished DFlash network, on texts that the target writes itself.

The network stays as it is. The joint learns its bias from texts: at each position of a block it is given the text's own
token before it, and is compared with the target's probabilities. The confidence head learns how much of the target's
distribution the corrected guess covers, the sum over tokens of min(p, q): that is the probability that speculative
sampling accepts a token drawn there. What this file does not do: run the training, measure, and write files
(`learner`), or compute the blocks (`train_dflash`).

Source: Cheng et al. (2026), "DSpark", section 3.3. There the network is trained too.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from ...drafting.dflash_head import DFlashHead
from ...drafting.dspark_head import RANK, DSparkHead
from ...loading import formats
from ...model.lm import LM
from .labels import Loss, cross_entropy
from .train_dflash import DFlashLearner


class DSparkLearner(DFlashLearner):
    """DSpark's joint. Its step j guesses, at position t, the token at t + 2 + j, and is given the one at t + 1 + j.

    So its accuracies are those of single guesses, each after a right one.

    Parameters
    ----------
    target : LM
    head : DSparkHead
        Its joint is trained in place, in float32.
    tree, compare
        As in `DFlashLearner`.
    """

    head: DSparkHead
    name = "dspark"

    def __init__(self, target: LM, head: DSparkHead, tree: dict | None = None, *, compare: Loss = cross_entropy):
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

    def lost(self, states, before, probs):
        logits = self.logits(states, before)
        covered = torch.minimum(logits.detach().softmax(-1), probs).sum(-1)
        confidence = self.head.confidences(states, before)
        return self.compare(logits, probs) + F.binary_cross_entropy_with_logits(confidence, covered, reduction="sum")

    def logits(self, states, before):
        return self.read(states) + self.head.bias(before)

    def write(self, head, folder, base):
        return formats.save_dspark(head, folder, base=base)


def new_dspark(network: DFlashHead, rank: int = RANK) -> DSparkHead:
    """A DFlash network with an untrained joint, whose bias is zero: it guesses what the network guesses."""
    head = DSparkHead(network, rank)
    nn.init.normal_(head.before.weight, generator=torch.Generator().manual_seed(0))
    nn.init.zeros_(head.after.weight)
    nn.init.zeros_(head.confidence.weight)
    nn.init.zeros_(head.confidence.bias)
    return head
