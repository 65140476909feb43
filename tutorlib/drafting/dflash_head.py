"""DFlash's network: it reads the target's features, and guesses a whole block of tokens in one pass.

A block is the last token of the text, which the target has not read yet, and masks after it. The masks all have the
same embedding, and differ only in their positions. In each layer they attend to the target's features of the text, as
keys and values, and to each other in both directions. Each mask's output is a guess of the token in its place. No guess
knows which tokens the others will become: the guesses are the distributions of single positions.

What this file does not do: keep a sequence (`dflash_session`), decide which guesses are tried (`draft_trees`), train
(`tutorlib.lab.training.train_dflash`), or read files (`tutorlib.loading.formats`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import nn
from torch.nn import functional as F
from transformers import PreTrainedConfig

from ..arguments import check_whole_number
from ..model.lm import LM
from .dflash_session import BlockSession
from .head_parts import TREE, FeedForward, Rotation, rotated, rotation_of

States = tuple[torch.Tensor, torch.Tensor]  # keys and values, each (rows, heads, length, head size)


class BlockAttention(nn.Module):
    """Attention of a block to the target's features and to itself. Queries and keys are normed in each head.

    Parameters
    ----------
    config : LlamaConfig
    """

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        size, width = config.head_dim, config.hidden_size
        self.q_proj = nn.Linear(width, config.num_attention_heads * size, bias=False)
        self.k_proj = nn.Linear(width, config.num_key_value_heads * size, bias=False)
        self.v_proj = nn.Linear(width, config.num_key_value_heads * size, bias=False)
        self.o_proj = nn.Linear(config.num_attention_heads * size, width, bias=False)
        self.q_norm = nn.RMSNorm(size, eps=config.rms_norm_eps)
        self.k_norm = nn.RMSNorm(size, eps=config.rms_norm_eps)

    def keys_and_values(self, states: torch.Tensor, rotation: Rotation) -> States:
        """From states (rows, length, width), of the text or of a block."""
        keys = self.k_norm.forward(self._heads(self.k_proj.forward(states)))
        return rotated(keys.transpose(1, 2), rotation), self._heads(self.v_proj.forward(states)).transpose(1, 2)

    def forward(self, states: torch.Tensor, rotation: Rotation, seen: States, mask=None) -> torch.Tensor:
        """States (rows, length, width) of blocks attend to keys and values, those of the blocks included."""
        queries = self.q_norm.forward(self._heads(self.q_proj.forward(states))).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(rotated(queries, rotation), *seen, attn_mask=mask, enable_gqa=True)
        return self.o_proj.forward(mixed.transpose(1, 2).flatten(-2))

    def _heads(self, states: torch.Tensor) -> torch.Tensor:
        return states.unflatten(-1, (-1, self.q_norm.normalized_shape[0]))


class BlockLayer(nn.Module):
    """A layer of the network."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.self_attn = BlockAttention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.mlp = FeedForward(config)

    def forward(self, states: torch.Tensor, rotation: Rotation, context: States, mask=None) -> torch.Tensor:
        """States (rows, length, width) of blocks, which attend to the keys and values of the text."""
        normed = self.input_layernorm.forward(states)
        own = self.self_attn.keys_and_values(normed, rotation)
        keys, values = (torch.cat(pair, dim=2) for pair in zip(context, own, strict=True))
        states = states + self.self_attn.forward(normed, rotation, (keys, values), mask)
        return states + self.mlp.forward(self.post_attention_layernorm.forward(states))


class DFlashHead(nn.Module):
    """A network that guesses the tokens of a block at once, from the target's features of the text before them.

    The embeddings and the output head are the target's own.

    Source: Chen et al. (2026), "DFlash: Block Diffusion for Flash Speculative Decoding", section 4. Parameters have the
    names of the published files.

    Parameters
    ----------
    config : LlamaConfig
        Sizes of the layers. `hidden_size` is the width of the target's features, `vocab_size` the target's.
    feature_layers : sequence of int
        The target's layers whose hidden states, joined, are the features; numbered as in transformers.
    block : int
        The tokens of a block, 2 or more: one that is known, and the masks.
    mask : int
        The token whose embedding the masks have. It should be one that does not occur within texts.

    Attributes
    ----------
    tree : dict
        Arguments of `tutorlib.drafting.draft_trees.dynamic_tree`, for the tree that suits this network.

    Raises
    ------
    ValueError
        If there are no layers to read, the block has fewer than 2 tokens, or the mask is outside the vocabulary.
    """

    def __init__(self, config: PreTrainedConfig, feature_layers: Sequence[int], block: int, mask: int):
        super().__init__()
        self.config, self.feature_layers, self.block, self.mask = config, tuple(feature_layers), block, mask
        self.width, self.vocab_size, self.tree = config.hidden_size, config.vocab_size, dict(TREE)
        if not self.feature_layers:
            raise ValueError("a DFlash network needs feature_layers: numbers of the target's layers, such as 2, 6, 9")
        check_whole_number(block, 2, "block is how many tokens a block has, the known one included")
        if not 0 <= mask < self.vocab_size:
            raise ValueError(f"mask must be a token of a vocabulary of {self.vocab_size}, got {mask}")
        self.fc = nn.Linear(len(self.feature_layers) * self.width, self.width, bias=False)
        self.hidden_norm = nn.RMSNorm(self.width, eps=config.rms_norm_eps)
        self.layers = nn.ModuleList(BlockLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = nn.RMSNorm(self.width, eps=config.rms_norm_eps)

    def features(self, hidden: Mapping[int, torch.Tensor]) -> torch.Tensor:
        """The target's features (..., width * layers): its hidden states (..., width) by layer, joined."""
        return torch.cat([hidden[layer] for layer in self.feature_layers], dim=-1)

    def context(self, features: torch.Tensor, rotation: Rotation) -> list[States]:
        """What blocks attend to: for each layer, keys and values of features (rows, length, width * layers)."""
        read = self.hidden_norm.forward(self.fc.forward(features))
        return [layer.self_attn.keys_and_values(read, rotation) for layer in self._layers()]

    def forward(
        self, embedded: torch.Tensor, rotation: Rotation, context: Sequence[States], mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The outputs (rows, length, width) of blocks, which the target's output head turns into logits.

        Parameters
        ----------
        embedded : tensor of shape (rows, length, width)
            The embeddings of one block after another.
        rotation : pair of tensors
            For their positions, see `rotation`.
        context : sequence of pairs of tensors
            See `context`.
        mask : bool tensor of shape (length, features + length), optional
            What each position of the blocks attends to; by default everything, as for a single block.
        """
        states = embedded
        for layer, seen in zip(self._layers(), context, strict=True):
            states = layer.forward(states, rotation, seen, mask)
        return self.norm.forward(states)

    def begun_with(self, token: int, target: LM) -> torch.Tensor:
        """The embeddings (1, block, width) of a block that begins with this token: the target's own."""
        tokens = torch.tensor([[token] + [self.mask] * (self.block - 1)], device=self.fc.weight.device)
        return target.model.get_input_embeddings()(tokens).to(self.fc.weight.dtype)

    def read_out(self, states: torch.Tensor, target: LM) -> torch.Tensor:
        """Logits (..., vocab_size) from outputs of `forward`, by the target's own head."""
        return target.read_out(states.to(target.dtype), normed=True)

    def _layers(self) -> list[BlockLayer]:
        return [layer for layer in self.layers if isinstance(layer, BlockLayer)]

    def rotation(self, positions: torch.Tensor) -> Rotation:
        """Cosines and sines for given positions (rows or 1, length)."""
        return rotation_of(self.config, self.fc.weight, positions)

    def session(self, target: LM) -> BlockSession:
        """One sequence of drafts for a target; see `BlockSession`."""
        return BlockSession(self, target)
