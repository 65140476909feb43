"""Train a parallel draft for any target, on texts that the target writes itself.

It is trained like EAGLE-3, over several steps from each position, except that the steps after the first read masks and
no outputs. So they do not wait for each other, and are computed in one pass when drafting. The target is frozen. What
this file does not do: run the training, measure, and write files (`learner`), or take steps (`own_steps`).

Source: Hui et al. (2026), "P-EAGLE: Parallel-Drafting EAGLE with Scalable Training".
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...drafting.parallel_head import ParallelHead
from ...model.lm import LM
from .sampled_texts import SampledText
from .train_eagle import Eagle3Learner, new_eagle3

MASKS = 7  # after the last token of the text, whose own output guesses too


class ParallelLearner(Eagle3Learner):
    """A parallel draft; see `Eagle3Learner`."""

    head: ParallelHead
    name = "parallel"

    def __init__(self, target: LM, head: ParallelHead, tree: dict | None = None, **how):
        super().__init__(target, head, tree, depth=head.masks + 1, **how)
        self.depth = self.learnt
        self.settings["mask"] = head.mask


def new_parallel(
    target: LM,
    texts: Sequence[SampledText],
    feature_layers: Sequence[int] | None = None,
    vocabulary: int | None = None,
    masks: int = MASKS,
) -> ParallelHead:
    """An untrained parallel draft, see `new_eagle3`. Its masks have the embedding of the target's start token, or of
    its token 0, if it has none.
    """
    start = target.model.config.get_text_config().bos_token_id
    mask = start if isinstance(start, int) else 0
    head = new_eagle3(target, texts, feature_layers, vocabulary, make=ParallelHead, mask=mask, masks=masks)
    torch.nn.init.normal_(head.mask_hidden, generator=torch.Generator().manual_seed(1))
    return head
