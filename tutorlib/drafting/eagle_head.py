"""EAGLE's draft networks: a single layer that predicts the target's next feature, and from it the next token.

A feature is a hidden state of the target. At position t the input of a network is the feature f_t *and the token after
it*, x_{t+1}. From these two it predicts the target's next feature f_{t+1}, which an output head turns into the
distribution of x_{t+2}. Then the network takes its own prediction as input and continues without the target.

What this file does not do: compute attention (`head_parts`), keep a sequence (`draft_session`), decide which guesses
are extended (`draft_trees`), train (`tutorlib.lab.training.train_eagle`), or read files (`tutorlib.loading.formats`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import nn
from transformers import PreTrainedConfig  # LlamaConfig takes seconds to import

from ..arguments import ints
from ..model.lm import LM
from .draft_session import DraftSession
from .head_parts import TREE, Layer, MidLayer, Mix, Rotation, causal, rotation_of


class DraftNetwork(nn.Module):
    """The common part of the networks of EAGLE-1 and EAGLE-3.

    Parameters
    ----------
    config : LlamaConfig
        Sizes of the one layer. `hidden_size` is the width of the target's features, `vocab_size` the target's.

    Attributes
    ----------
    feature_layers : tuple of int
        The target's layers whose hidden states, joined, are the features; numbered as in transformers.
    width, vocab_size : int
    ahead : int or float
        The most tokens that it guesses one after another: for most networks no limit.
    tree : dict
        Arguments of `tutorlib.drafting.draft_trees.dynamic_tree`, for the tree that suits this network.
    """

    feature_layers: tuple[int, ...]
    fc: nn.Linear
    ahead: int | float = math.inf

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        self.config = config
        self.width, self.vocab_size = config.hidden_size, config.vocab_size
        self.tree = dict(TREE)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)

    def features(self, hidden: Mapping[int, torch.Tensor]) -> torch.Tensor:
        """The target's features (..., width * layers): its hidden states (..., width) by layer, joined."""
        return torch.cat([hidden[layer] for layer in self.feature_layers], dim=-1)

    def start(self, features: torch.Tensor) -> torch.Tensor:
        """Convert the target's features (..., width * layers) to the input of the network (..., width)."""
        raise NotImplementedError

    def forward(
        self, tokens: torch.Tensor, hidden: torch.Tensor, rotation: Rotation, mix: Mix = causal
    ) -> torch.Tensor:
        """One step: predict the target's features after it has read `tokens`.

        Parameters
        ----------
        tokens : int64 tensor of shape (rows, length)
            At position t, the token *after* the one to which the feature at t belongs.
        hidden : tensor of shape (rows, length, width)
            Features converted by `start`, or the output of an earlier step.
        rotation : pair of tensors
            For the positions, see `rotation`.
        mix : function
            How positions attend to each other; by default each attends to itself and to those before it.

        Returns
        -------
        tensor of shape (rows, length, width)
        """
        raise NotImplementedError

    def again(self, tokens: torch.Tensor, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What a step reads that has no features of the target: here tokens, and the output of the step before."""
        return tokens, hidden

    def read_out(self, hidden: torch.Tensor, target: LM) -> torch.Tensor:
        """Logits (..., vocab_size) of the token after next, from the output of a step; -inf for unknown tokens."""
        raise NotImplementedError

    def rotation(self, positions: torch.Tensor) -> Rotation:
        """Cosines and sines for given positions (rows or 1, length)."""
        return rotation_of(self.config, self.embed_tokens.weight, positions)

    def session(self, target: LM) -> DraftSession:
        """One sequence of drafts for a target; see `DraftSession`."""
        return DraftSession(self, target)


class EagleHead(DraftNetwork):
    """EAGLE-1's network. It predicts the target's feature after the final norm, which the target's own head then reads.

    Source: Li et al. (2024), "EAGLE: Speculative Sampling Requires Rethinking Feature Uncertainty", section 4.1.
    Parameters have the names of the published files. As in these, there is no norm before the attention and none after
    the layer.

    Parameters
    ----------
    config : LlamaConfig
    bias : bool
        Whether the layer that joins token and feature has a bias.

    Examples
    --------
    >>> head = EagleHead(LlamaConfig(vocab_size=5, hidden_size=8, intermediate_size=8, num_attention_heads=2))
    >>> head.feature_layers, tuple(head.fc.weight.shape)
    ((-1,), (8, 16))
    """

    feature_layers = (-1,)

    def __init__(self, config: PreTrainedConfig, *, bias: bool = True):
        super().__init__(config)
        self.fc = nn.Linear(2 * self.width, self.width, bias=bias)
        self.layers = nn.ModuleList([Layer(config, self.width)])

    def start(self, features: torch.Tensor) -> torch.Tensor:
        return features

    def forward(
        self, tokens: torch.Tensor, hidden: torch.Tensor, rotation: Rotation, mix: Mix = causal
    ) -> torch.Tensor:
        joined = self.fc.forward(torch.cat([self.embed_tokens.forward(tokens), hidden], dim=-1))
        return self.layers[0].forward(joined, joined, rotation, mix)

    def read_out(self, hidden: torch.Tensor, target: LM) -> torch.Tensor:
        return target.read_out(hidden.to(target.dtype), normed=True)


class Eagle3Head(DraftNetwork):
    """EAGLE-3's network. It reads features of a low, a middle and a high layer, and has an output head of its own.

    Unlike EAGLE-1, it does not have to predict the target's feature, only the right token. So it can be trained over
    several steps on its own outputs. It continues from its state before the norm, unless `norm_output` is set. Its
    vocabulary may be smaller than the target's.

    Source: Li et al. (2025), "EAGLE-3: Scaling up Inference Acceleration of Large Language Models via Training-Time
    Test", sections 3.1 and 3.2. Parameters have the names of the published files.

    Parameters
    ----------
    config : LlamaConfig
    feature_layers : sequence of int
        The target's layers whose hidden states are the input. The published choice is `usual_layers`.
    tokens : sequence of int, optional
        The target's tokens that this network knows, ascending; by default all.
    norm_before_residual : bool
        Whether the layer adds its result to its normed input. Networks made with `speculators` may do so; published
        ones do not.
    norm_before_fc, fc_norm : bool
        Whether the joined features are normed before `fc`, or each of them by itself; at most one of the two.
    norm_output : bool
        Whether the network continues from its state after the norm. This and `fc_norm` make EAGLE-3.1
        (arXiv:2605.09992), whose guesses stay as good many tokens ahead.

    Raises
    ------
    ValueError
        If there are no layers, if `tokens` is empty, not ascending, or has ids outside the vocabulary, or if both
        `norm_before_fc` and `fc_norm` are given.
    """

    d2t: torch.Tensor
    t2d: torch.Tensor

    def __init__(
        self,
        config: PreTrainedConfig,
        feature_layers: Sequence[int],
        tokens: Sequence[int] | None = None,
        *,
        norm_before_residual: bool = False,
        norm_before_fc: bool = False,
        fc_norm: bool = False,
        norm_output: bool = False,
    ):
        super().__init__(config)
        self.feature_layers = tuple(feature_layers)
        if not self.feature_layers:
            raise ValueError("an EAGLE-3 network needs feature_layers: numbers of the target's layers, such as 2, 6, 9")
        tokens = range(self.vocab_size) if tokens is None else tokens
        # The maps are not weights: they exist even in a network made on the meta device, whose weights come from a
        # file.
        tokens = ints(tokens, "tokens must hold token ids (ints)")
        known = torch.tensor(tokens, dtype=torch.int64, device="cpu")
        if len(known) == 0 or known[0] < 0 or known[-1] >= self.vocab_size or bool((known.diff() <= 0).any()):
            raise ValueError(
                f"tokens must be ids of a vocabulary of {self.vocab_size}, each once and ascending, got {tokens}"
            )
        if norm_before_fc and fc_norm:
            raise ValueError("norm_before_fc and fc_norm are two ways to norm the features: choose one of them")
        self.norm_before_residual, self.norm_output = norm_before_residual, norm_output
        joined, eps = len(self.feature_layers) * self.width, config.rms_norm_eps
        self.input_norm = nn.RMSNorm(joined, eps=eps) if norm_before_fc else None
        each = [nn.RMSNorm(self.width, eps=eps) for _ in self.feature_layers] if fc_norm else None
        self.fc_norm = None if each is None else nn.ModuleList(each)
        self.fc = nn.Linear(joined, self.width, bias=False)
        self.midlayer = MidLayer(config)
        self.norm = nn.RMSNorm(self.width, eps=config.rms_norm_eps)
        self.lm_head = nn.Linear(self.width, len(known), bias=False)
        # As in the published files: the offset from a token of this network to the target's token, and which of the
        # target's tokens this network knows.
        self.register_buffer("d2t", known - torch.arange(len(known), device="cpu"))
        self.register_buffer("t2d", torch.zeros(self.vocab_size, dtype=torch.bool, device="cpu"))
        self.t2d[known] = True

    @property
    def tokens(self) -> torch.Tensor:
        """The target's tokens that this network knows: int64, one for each row of its output head."""
        return torch.arange(len(self.d2t), device=self.d2t.device) + self.d2t

    def start(self, features: torch.Tensor) -> torch.Tensor:
        if self.input_norm is not None:
            features = self.input_norm(features)
        if self.fc_norm is not None:
            parts = features.split(self.width, dim=-1)
            features = torch.cat([norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)], dim=-1)
        return self.fc(features)

    def forward(
        self, tokens: torch.Tensor, hidden: torch.Tensor, rotation: Rotation, mix: Mix = causal
    ) -> torch.Tensor:
        normed = self.midlayer.hidden_norm.forward(hidden)
        states = torch.cat([self.midlayer.input_layernorm.forward(self.embed_tokens.forward(tokens)), normed], dim=-1)
        made = self.midlayer.forward(normed if self.norm_before_residual else hidden, states, rotation, mix)
        return self.norm.forward(made) if self.norm_output else made

    def read_out(self, hidden: torch.Tensor, target: LM | None = None) -> torch.Tensor:
        logits = self.known_logits(hidden)
        if len(self.d2t) == self.vocab_size:
            return logits
        return logits.new_full((*logits.shape[:-1], self.vocab_size), -torch.inf).index_copy_(-1, self.tokens, logits)

    def known_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits (..., known) of the tokens that it knows, from the output of a step."""
        return self.lm_head.forward(hidden if self.norm_output else self.norm.forward(hidden))


def usual_layers(layers: int) -> tuple[int, int, int]:
    """EAGLE-3's published choice of three feature layers, a low, a middle and a high one, for a given number of layers.

    The features are the inputs of layers 2, n // 2 and n - 3, counted from 0.

    Examples
    --------
    >>> usual_layers(32)
    (2, 16, 29)

    Raises
    ------
    ValueError
        If the target has fewer than 7 layers, because these would not be three different layers in this order.
    """
    chosen = (2, layers // 2, layers - 3)
    if not chosen[0] < chosen[1] < chosen[2]:
        raise ValueError(
            f"in a target of {layers} layers the usual three would be {chosen}: choose three, feature_layers=(1, 2, 3) "
            "for instance"
        )
    return chosen
