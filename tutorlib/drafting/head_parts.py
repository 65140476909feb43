"""Parts of draft networks: attention, feed-forward and layers as in Llama, the rotation of positions, the usual tree.

A step of such a network consists of a few dozen small operations, so any overhead matters. Modules here call each
other's `forward` directly and bypass PyTorch's hooks, which are not used and would take a fifth of the time.

What this file does not do: put them together (`eagle_head` and `dflash_head` do).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F
from transformers import PreTrainedConfig  # LlamaConfig takes seconds to import

# How queries attend to keys and values, each (rows, heads, length, head size). The result has the queries' shape.
Mix = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
Rotation = tuple[torch.Tensor, torch.Tensor]  # cosines and sines, each (rows or 1, 1, length, head size)

# The default tree, until a better one has been measured: EAGLE-2's 60 nodes, including the root.
TREE = {"nodes": 59, "depth": 8, "top_k": 10}


def causal(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Each position attends to itself and to the positions before it."""
    return F.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=True)


class Attention(nn.Module):
    """Self-attention as in Llama, from states of any width.

    Parameters
    ----------
    config : LlamaConfig
    inputs : int
        Width of the states it reads. The width of its output is `config.hidden_size`.
    """

    def __init__(self, config: PreTrainedConfig, inputs: int):
        super().__init__()
        self.head_dim = config.head_dim
        bias = bool(config.attention_bias or getattr(config, "qkv_bias", False))
        self.q_proj = nn.Linear(inputs, config.num_attention_heads * self.head_dim, bias=bias)
        self.k_proj = nn.Linear(inputs, config.num_key_value_heads * self.head_dim, bias=bias)
        self.v_proj = nn.Linear(inputs, config.num_key_value_heads * self.head_dim, bias=bias)
        self.o_proj = nn.Linear(
            config.num_attention_heads * self.head_dim, config.hidden_size, bias=bool(config.attention_bias)
        )

    def forward(self, states: torch.Tensor, rotation: Rotation, mix: Mix) -> torch.Tensor:
        """From states (rows, length, inputs) to (rows, length, hidden_size)."""
        rows, length, _ = states.shape
        queries, keys = self.q_proj.forward(states), self.k_proj.forward(states)
        turned = torch.cat([queries, keys], dim=-1).view(rows, length, -1, self.head_dim).transpose(1, 2)
        values = self.v_proj.forward(states).view(rows, length, -1, self.head_dim).transpose(1, 2)
        queries, keys = rotated(turned, rotation).split([turned.shape[1] - values.shape[1], values.shape[1]], dim=1)
        mixed = mix(queries, keys, values)
        return self.o_proj.forward(mixed.transpose(1, 2).flatten(-2))


def rotated(states: torch.Tensor, rotation: Rotation) -> torch.Tensor:
    """Rotary position embeddings (Su et al., 2021): the two halves of a head are rotated against each other."""
    cos, sin = rotation
    first, second = states.chunk(2, dim=-1)
    return states * cos + torch.cat([-second, first], dim=-1) * sin


def rotation_of(config: PreTrainedConfig, like: torch.Tensor, positions: torch.Tensor) -> Rotation:
    """Cosines and sines for given positions (rows or 1, length), in the dtype of `like`."""
    # Made each time, because `half()` would also round the angles of a module stored in a network.
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    cos, sin = LlamaRotaryEmbedding(config).to(positions.device)(like, positions)
    return cos[:, None], sin[:, None]


class FeedForward(nn.Module):
    """SwiGLU, as in Llama."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.mlp_bias)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.down_proj.forward(F.silu(self.gate_proj.forward(states)) * self.up_proj.forward(states))


class Layer(nn.Module):
    """A decoder layer whose attention may read other states than those to which its result is added."""

    def __init__(self, config: PreTrainedConfig, inputs: int):
        super().__init__()
        self.self_attn = Attention(config, inputs)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.mlp = FeedForward(config)

    def forward(self, residual: torch.Tensor, states: torch.Tensor, rotation: Rotation, mix: Mix) -> torch.Tensor:
        hidden = residual + self.self_attn.forward(states, rotation, mix)
        return hidden + self.mlp.forward(self.post_attention_layernorm.forward(hidden))


class MidLayer(Layer):
    """EAGLE-3's layer. Its attention reads token and feature side by side, both normed."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__(config, 2 * config.hidden_size)
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.hidden_norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
