"""Train a DFlash network for any target, on texts that the target writes itself.

From the target's features up to some position, the network guesses a whole block of tokens at once. Its guesses are
compared with the target's probabilities; those at the beginning of a block count most, because a rejected token takes
all tokens after it along. Blocks begin at every few positions of a text, in each training step at others. The target
is frozen. What this file does not do: run the training, measure, and write files (`learner`).

Source: Chen et al. (2026), "DFlash: Block Diffusion for Flash Speculative Decoding", section 4.2.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...drafting.dflash_head import DFlashHead
from ...drafting.head_parts import TREE
from ...loading import formats
from ...model.lm import LM
from .batches import TextBatch
from .labels import Labels, Loss, cross_entropy, readable
from .learner import Learner
from .train_eagle import DECAY, DraftLearner, checked_layers, initialise, layer_config

BLOCK = 9  # tokens in a block, the known one included
LAYERS = 2  # of the network. Together they have about as many weights as an EAGLE-3 network's one wide layer
STRIDE = 12  # positions from the beginning of one block to the next


class DFlashLearner(Learner):
    """A DFlash network. Its step j guesses, at position t, the token at t + 2 + j in the block that begins at t + 1.

    Parameters
    ----------
    target : LM
    head : DFlashHead
        Trained in place, in float32.
    tree : dict, optional
        The tree to use with it: arguments of `draft_trees.dynamic_tree`.
    compare : function
        How guesses are compared with the target's probabilities, see `labels`: `cross_entropy` or `lk`.
    """

    name, betas, given = "dflash", (0.9, 0.95), 1
    first = DraftLearner.first

    def __init__(self, target: LM, head: DFlashHead, tree: dict | None = None, *, compare: Loss = cross_entropy):
        super().__init__(target, head)
        head.requires_grad_(True)
        head.tree = dict(TREE if tree is None else tree)
        self.depth, self.layers = head.block - 1, tuple(dict.fromkeys((*head.feature_layers, -1)))
        self.settings = {"block": head.block, "layers": list(head.feature_layers), "loss": compare.__name__}
        self.noted = {"parameters": sum(weight.numel() for weight in head.parameters()), "tree": head.tree}
        self.compare, self.read, self.stride, self.network = compare, readable(target), STRIDE, head

    def loss(self, batch, step, steps):
        rows, at = self.index(0, batch.texts, batch.tokens.device)  # further steps guess the same tokens, or fewer
        probs = self.read(batch.hidden[-1][rows, at + 1].float()).softmax(-1)
        labels = Labels(probs, rows, at + 1, batch.tokens.shape)
        starts = torch.arange(step % self.stride, batch.tokens.shape[1] - 2, self.stride, device=rows.device)
        states, whole = self.states(batch, starts), batch.hidden[-1].new_zeros((), dtype=torch.float32)
        for j in range(self.depth):
            rows, numbers, at = self.begun(j, batch, starts)
            there, probs = labels.at(rows, at + 1 + j)
            rows, numbers, at = rows[there], numbers[there], at[there]
            count = max(1, self.count(j, batch.everybody) / self.stride)
            whole = (
                whole + DECAY**j * self.lost(states[rows, numbers, j], batch.tokens[rows, at + 1 + j], probs) / count
            )
        return whole

    def lost(self, states: torch.Tensor, before: torch.Tensor, probs: torch.Tensor) -> torch.Tensor:
        """The loss, summed over positions, of their outputs (count, width) and the tokens (count,) before them."""
        return self.compare(self.logits(states, before), probs)

    def logits(self, states: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        """The guesses (count, vocab): here they do not depend on the tokens before them."""
        return self.read(states)

    def guesses(self, batch):
        starts = torch.arange(0, batch.tokens.shape[1] - 2, self.stride, device=batch.tokens.device)
        states = self.states(batch, starts)
        for j in range(self.depth):
            rows, numbers, at = self.begun(j, batch, starts)
            yield rows, at, self.logits(states[rows, numbers, j], batch.tokens[rows, at + 1 + j])

    def begun(self, j: int, batch: TextBatch, starts: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """(rows, blocks, positions) of the positions of `index` at which a block begins."""
        rows, at = self.index(j, batch.texts, starts.device)
        first = int(starts[0]) if len(starts) else 0
        chosen = (at >= first) & ((at - first) % self.stride == 0)
        return rows[chosen], (at[chosen] - first) // self.stride, at[chosen]

    def states(self, batch: TextBatch, starts: torch.Tensor) -> torch.Tensor:
        """The outputs (rows, blocks, block - 1, width) of blocks whose known tokens come after these positions."""
        head, (count, length) = self.network, batch.tokens.shape
        numbers = torch.arange(length, device=starts.device)
        context = head.context(head.features(batch.hidden).float(), head.rotation(numbers[None]))
        places = starts[:, None] + 1 + torch.arange(head.block, device=starts.device)
        tokens = torch.full((count, *places.shape), head.mask, device=starts.device)
        tokens[:, :, 0] = batch.tokens[:, starts + 1]
        with torch.no_grad():
            embedded = self.target.model.get_input_embeddings()(tokens.flatten(1)).float()
        seen = (numbers <= starts[:, None]).repeat_interleave(head.block, dim=0)
        block = torch.arange(len(starts), device=starts.device).repeat_interleave(head.block)
        mask = torch.cat([seen, block[:, None] == block], dim=1)  # the text before a block, and the block itself
        made = head(embedded, head.rotation(places.flatten()[None]), context, mask)
        return made.unflatten(1, places.shape)[:, :, 1:]

    def write(self, head, folder, base):
        return formats.save_dflash(head, folder, base=base)


def new_dflash(target: LM, feature_layers: Sequence[int] | None = None, block: int = BLOCK) -> DFlashHead:
    """An untrained DFlash network with the sizes of a target's layers, half as wide inside.

    Its masks have the embedding of the target's start token, or of its token 0, if it has none.

    Parameters
    ----------
    target : LM
    feature_layers : sequence of int, optional
        By default `usual_layers`.
    block : int
        Tokens in a block, the known one included.

    Raises
    ------
    ValueError
        If the target does not have these layers, or its embeddings another width than its features.
    """
    config = layer_config(target)
    config.num_hidden_layers, config.intermediate_size = LAYERS, 2 * config.hidden_size
    embeddings = target.model.get_input_embeddings().weight
    if embeddings.shape[1] != target.width:
        raise ValueError(
            f"the target's embeddings have width {embeddings.shape[1]} and its features {target.width}: a DFlash "
            "network reads both, and cannot be made for this target"
        )
    mask = config.bos_token_id if isinstance(config.bos_token_id, int) else 0
    head = DFlashHead(config, checked_layers(target, feature_layers), block, mask)
    initialise(head)
    return head
