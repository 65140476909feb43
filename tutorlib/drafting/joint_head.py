"""What the joints of a DFlash network share: the network stays as it is, and a bias from the token before is added.

A joint has a table of all pairs of tokens, stored as the product of two narrow matrices. `dspark_head` and
`dflash2_head` say how it becomes a bias. What this file does not do: compute a pass (`dflash_head`), keep its cache
(`dflash_session`), decide which guesses are tried (`draft_trees`), train (`tutorlib.lab.training.train_joints`), or
read files (`tutorlib.loading.formats`).
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

RANK = 32  # columns of the two matrices of the bundled joints


class JointHead(nn.Module):
    """A DFlash network and a joint: a bias from the token before each position.

    Parameters
    ----------
    network : DFlashHead
        Not copied: other heads may use the same network.
    rank : int
        The width of the two matrices whose product is a table of all pairs of tokens.

    Attributes
    ----------
    tree : dict
        Arguments of `tutorlib.drafting.draft_trees.dynamic_tree`, for the tree that suits this head.

    Raises
    ------
    ValueError
        If `network` is no DFlash network, or the rank is below 1.
    """

    title: str  # what a message calls the joint

    def __init__(self, network: DFlashHead, rank: int = RANK):
        super().__init__()
        if not isinstance(network, DFlashHead):
            raise ValueError(f"a joint needs a DFlashHead: family.dflash, for instance, got {type(network).__name__}")
        check_whole_number(rank, 1, "rank is the width of a joint's two matrices")
        self.network, self.rank, self.tree = network, rank, dict(TREE)
        self.before = nn.Embedding(network.vocab_size, rank)  # a row for each token that may stand before
        self.after = nn.Linear(rank, network.vocab_size, bias=False)  # from such a row to logits

    def bias(self, tokens: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """What is added to the logits (..., vocab_size) of positions.

        Parameters
        ----------
        tokens : int64 tensor of shape (...)
            The tokens before them.
        states : tensor of shape (..., width)
            The network's outputs there.
        """
        raise NotImplementedError

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

    def session(self, target: LM) -> JointedSession:
        """One sequence of drafts for a target; see `JointedSession`."""
        return JointedSession(self, target)


class JointedSession(BlockSession):
    """One sequence of a DFlash network with a joint. Only `feed` takes a pass; `grow` adds a bias for each token."""

    def __init__(self, head: JointHead, target: LM):
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

    def _after(self, tokens):
        with torch.inference_mode():
            self.before = torch.tensor(list(tokens), device=self.logits.device)  # of the rows that are returned
            bias = self.jointed.bias(self.before, self.states_there)
            logits = self.logits[self._depth] + bias.to(self.logits.dtype)
            refuse_nan(logits, f"the {self.jointed.title}")
        return logits

    @property
    def states_there(self) -> torch.Tensor:
        """The network's outputs (tokens, width) at the position of the rows that were returned last."""
        state = self.states[self._depth].to(self.jointed.after.weight.dtype)
        return state.expand(len(self.before), -1)
