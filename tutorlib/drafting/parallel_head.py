"""A network that guesses several tokens in one pass: EAGLE-3's, with masks in place of what is not known yet.

EAGLE-3 takes a step for each token, because a step needs the token and the output of the step before it. Here each
further position gets the same two stand-ins: the embedding of a mask, and a learnt vector in place of the target's
features. So all positions can be computed together. A mask sees the text and the masks before it, but no guess: what is
guessed at a position is the same whatever the guesses before it are.

What this file does not do: keep a sequence (`parallel_session`), train (`tutorlib.lab.training.train_parallel`), or
read files (`tutorlib.loading.formats`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from transformers import PreTrainedConfig

from ..arguments import check_whole_number
from ..model.lm import LM
from .eagle_head import Eagle3Head
from .parallel_session import ParallelSession


class ParallelHead(Eagle3Head):
    """EAGLE-3's network with masks as inputs. In one pass it guesses a token for each mask, and one more.

    Source: Hui et al. (2026), "P-EAGLE: Parallel-Drafting EAGLE with Scalable Training". An et al. (2025), "PARD", does
    the same with a whole draft model.

    Parameters
    ----------
    config, feature_layers, tokens :
        See `Eagle3Head`.
    mask : int
        The token whose embedding the masks have. It should be one that does not occur within texts.
    masks : int
        How many masks follow the last token of the text.

    Attributes
    ----------
    mask_hidden : tensor of shape (1, width * layers)
        What the masks have in place of features; learnt.
    """

    def __init__(
        self,
        config: PreTrainedConfig,
        feature_layers: Sequence[int],
        tokens: Sequence[int] | None = None,
        *,
        mask: int = 0,
        masks: int = 7,
    ):
        super().__init__(config, feature_layers, tokens)
        check_whole_number(masks, 1, "masks is how many follow the last token of the text")
        if not 0 <= mask < self.vocab_size:
            raise ValueError(f"mask must be a token of a vocabulary of {self.vocab_size}, got {mask}")
        self.mask, self.masks, self.ahead = mask, masks, masks + 1
        self.mask_hidden = nn.Parameter(torch.zeros(1, len(self.feature_layers) * self.width))

    def again(self, tokens: torch.Tensor, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.full_like(tokens, self.mask), self.start(self.mask_hidden).expand_as(hidden)

    def session(self, target: LM) -> ParallelSession:
        """One sequence of drafts for a target; see `ParallelSession`."""
        return ParallelSession(self, target)
