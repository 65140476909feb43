"""Train the modules of multi-token prediction for any target, on texts that the target writes itself.

The target is frozen, as always here; DeepSeek-V3 trains its module together with the target from the beginning. One
module is trained over several of its own steps, as in FastMTP, because it will be used so. Several modules read each
other's outputs. What this file does not do: run the training, measure, and write files (`learner`), or take steps
(`own_steps`).

Source: DeepSeek-AI (2024), "DeepSeek-V3 Technical Report", section 2.2; Cai et al. (2025), "FastMTP: Accelerating LLM
Inference with Enhanced Multi-Token Prediction".
"""

from __future__ import annotations

import torch

from ...drafting.mtp_head import MtpHead
from ...loading import formats
from ...model.lm import LM
from .train_eagle import StepsLearner, joined, layer_config, like


class MtpLearner(StepsLearner):
    """The modules; see `StepsLearner`. Each of several modules takes one step, so that these give the depth."""

    head: MtpHead
    name = "mtp"

    def __init__(self, target: LM, head: MtpHead, tree: dict | None = None, *, depth: int = 7, **how):
        several = len(head.layers) > 1
        super().__init__(target, head, tree, depth=len(head.layers) if several else depth, **how)
        self.depth = self.learnt
        self.settings["modules"] = len(head.layers)
        if several and self.thin > 1:
            raise ValueError("several modules read each other's outputs at all positions: train them with thin=1")

    def steps(self, batch, steps, further=slice(None)):
        if len(self.head.layers) == 1:
            return super().steps(batch, steps, further)
        return self._modules(batch, steps)

    def _modules(self, batch, steps):
        """As `unroll`, but each step is another module's, which attends to its own steps at the positions before."""
        hidden = self.head.start(joined(self.head, batch))
        positions = torch.arange(batch.tokens.shape[1], device=batch.tokens.device)
        for step in range(steps):
            tokens, rotation = batch.tokens.roll(-1 - step, dims=1), self.head.rotation(positions[None] + step)
            hidden = self.head(tokens, hidden, rotation, step=step)
            yield hidden

    def write(self, head, folder, base):
        return formats.save_mtp(head, folder, base=base, layers=self.target.layers)


def new_mtp(target: LM, modules: int = 1) -> MtpHead:
    """Untrained modules with the sizes and the embeddings of a target."""
    return like(target, MtpHead(layer_config(target), modules))
