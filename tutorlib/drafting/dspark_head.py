"""DSpark: what a small joint adds to a DFlash network, so that a block's guesses depend on each other again.

The network guesses all positions of a block in one pass. The joint then adds to the logits of each position a bias that
depends on the token before it: a table of all pairs of tokens, stored as the product of two narrow matrices. So a guess
knows the guess before it, and costs a small product instead of a pass. The joint also says, before a token is drawn,
how probable it is that the target will accept it.

What this file does not do: compute a pass (`dflash_head`), keep its cache (`dflash_session`), decide which guesses are
tried (`draft_trees`, `confident_chain`), train (`tutorlib.lab.training.train_dspark`), or read files
(`tutorlib.loading.formats`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import nn
from transformers import PreTrainedConfig

from ..arguments import check_whole_number
from ..model.lm import LM
from .dflash_head import DFlashHead
from .dflash_session import BlockSession
from .draft_session import refuse_nan
from .head_parts import TREE

RANK = 32  # columns of the two matrices of the bundled joint


class DSparkHead(nn.Module):
    """A DFlash network and a joint: a bias from the token before each position, and a prediction of its acceptance.

    Source: Cheng et al. (2026), "DSpark: Confidence-Scheduled Speculative Decoding with Semi-Autoregressive
    Generation", sections 3.1 and 3.2: its plain ("vanilla") Markov head and its confidence head. There the network is
    trained together with the joint. Here it is a finished DFlash network, which stays as it is.

    Parameters
    ----------
    network : DFlashHead
        Not copied: other heads may use the same network.
    rank : int
        The width of the two matrices whose product is the table of biases.

    Attributes
    ----------
    tree : dict
        Arguments of `tutorlib.drafting.draft_trees.dynamic_tree`, for the tree that suits this head.

    Raises
    ------
    ValueError
        If `network` is no DFlash network, or the rank is below 1.
    """

    def __init__(self, network: DFlashHead, rank: int = RANK):
        super().__init__()
        if not isinstance(network, DFlashHead):
            raise ValueError(f"a joint needs a DFlashHead: family.dflash, for instance, got {type(network).__name__}")
        check_whole_number(rank, 1, "rank is the width of a joint's two matrices")
        self.network, self.rank, self.tree = network, rank, dict(TREE)
        self.before = nn.Embedding(network.vocab_size, rank)  # W1: a row for each token that may stand before
        self.after = nn.Linear(rank, network.vocab_size, bias=False)  # W2: from such a row to logits
        self.confidence = nn.Linear(network.width + rank, 1)

    @property
    def joint(self) -> dict[str, torch.Tensor]:
        """The joint's own weights, by name: all that is trained, and all that is in its files."""
        return {name: weight for name, weight in self.state_dict().items() if not name.startswith("network.")}

    @property
    def config(self) -> PreTrainedConfig:
        return self.network.config

    @property
    def vocab_size(self) -> int:
        return self.network.vocab_size

    @property
    def width(self) -> int:
        return self.network.width

    @property
    def block(self) -> int:
        return self.network.block

    @property
    def feature_layers(self) -> tuple[int, ...]:
        return self.network.feature_layers

    def features(self, hidden: Mapping[int, torch.Tensor]) -> torch.Tensor:
        """See `DFlashHead.features`."""
        return self.network.features(hidden)

    def bias(self, tokens: torch.Tensor) -> torch.Tensor:
        """What is added to the logits (..., vocab_size) of a position if these tokens (...) stand before it."""
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

    def session(self, target: LM) -> JointedSession:
        """One sequence of drafts for a target; see `JointedSession`."""
        return JointedSession(self, target)


class JointedSession(BlockSession):
    """One sequence of a DFlash network with a joint. Only `feed` takes a pass; `grow` adds a bias for each token."""

    _before: torch.Tensor  # the tokens before the rows that were returned last

    def __init__(self, head: DSparkHead, target: LM):
        super().__init__(head.network, target)
        self.jointed = head

    def feed(self, tokens: Sequence[int], features: torch.Tensor) -> torch.Tensor:
        """See `BlockSession.feed`; the bias of the last token is added."""
        super().feed(tokens, features)
        return self._after(tokens[-1:])

    def grow(self, tokens: Sequence[int], parents: Sequence[int]) -> torch.Tensor:
        """The guesses (tokens, vocab_size) for the next position of the block, each with the bias of its token."""
        super().grow(tokens, parents)
        return self._after(tokens)

    @property
    def chances(self) -> list[float]:
        """For each row that was returned last, the predicted probability that the target accepts a token drawn there.

        Computed when it is asked for, because most shapes do not ask.
        """
        with torch.inference_mode():
            states = self.states[self._depth].to(self.jointed.after.weight.dtype).expand(len(self._before), -1)
            return self.jointed.confidences(states, self._before).sigmoid().tolist()

    def _after(self, tokens):
        with torch.inference_mode():
            self._before = torch.tensor(list(tokens), device=self.logits.device)
            logits = self.logits[self._depth] + self.jointed.bias(self._before).to(self.logits.dtype)
            refuse_nan(logits, "the DSpark joint")
        return logits
