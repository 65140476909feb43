"""Medusa heads: additional output heads on the target, each of which guesses a token further ahead."""

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import nn
from torch.nn import functional as F

from ..arguments import ints
from .choices import Accuracies, Choices, checked_accuracies, checked_choices, grow, usual_accuracies

NODES = 16  # size of the default tree, until a better one has been measured


class ResidualBlock(nn.Module):
    """x + SiLU(Wx + b), which keeps the width. It starts as the identity, with W and b zero.

    Parameters
    ----------
    width : int
    """

    def __init__(self, width: int):
        super().__init__()
        self.linear = nn.Linear(width, width)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + F.silu(self.linear.forward(hidden))


def output_layer(head: nn.Sequential) -> nn.Linear:
    return cast(nn.Linear, head[-1])


class MedusaHeads(nn.ModuleList):
    """Heads that guess the tokens at t + 2, t + 3, ... from a model's hidden state at position t.

    The model's own head predicts the token at t + 1 from the same state. Head i, counted from 0, consists of residual
    blocks and an output layer of its own, and guesses the token at t + 2 + i. No head sees the guesses of the others.

    Source: Cai et al. (2024), "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads",
    section 2.1. Parameters have the names of the published files, ``{head}.{block}.linear.weight`` and so on.

    Parameters
    ----------
    width : int
        Width of the target's hidden state after its final norm, which is also the input of its own output head.
    vocab_size : int
        The target's.
    heads : int
        How many tokens are guessed beyond the next one.
    layers : int
        Residual blocks in each head, 0 or more.
    output : tensor of shape (vocab_size, width), optional
        Initial weights of the output layers, usually those of the target's own output head. Then each head starts by
        predicting the *next* token, like the target. By default small random numbers.
    choices : sequence of tuples of int, optional
        The tree of guesses to use with these heads, see `tutorlib.drafting.choices`. By default a tree of 16 nodes,
        made from their accuracies.
    accuracies : sequence of sequences of floats, optional
        How often each head's guess of each rank is right, if this has been measured.
    token_map : sequence of int, optional
        The tokens that the output layers know, if they do not know all: row j belongs to token ``token_map[j]``, and
        other tokens are never guessed. This makes heads for a large vocabulary smaller.

    Raises
    ------
    ValueError
        If a number is below 1 (`layers`: below 0), `output` has the wrong shape, the tree has more levels than there
        are heads, the accuracies are for another number of heads, or `token_map` contains a token twice or one outside
        the vocabulary.
    """

    token_map: torch.Tensor | None

    def __init__(
        self,
        width: int,
        vocab_size: int,
        heads: int = 4,
        layers: int = 1,
        output: torch.Tensor | None = None,
        choices: Choices | None = None,
        accuracies: Accuracies | None = None,
        token_map: Sequence[int] | None = None,
    ):
        for name, number, least in (("width", width, 1), ("vocab_size", vocab_size, 1), ("heads", heads, 1)):
            if number < least:
                raise ValueError(f"Medusa heads need {name} of at least {least}, got {number}")
        if layers < 0:
            raise ValueError(f"Medusa heads need layers, the residual blocks of each, of 0 or more, got {layers}")
        token_map = None if token_map is None else checked_token_map(token_map, vocab_size)
        known = vocab_size if token_map is None else len(token_map)
        if output is not None and tuple(output.shape) != (known, width):
            raise ValueError(f"output must have shape {(known, width)}, got {tuple(output.shape)}")
        super().__init__(
            nn.Sequential(*(ResidualBlock(width) for _ in range(layers)), nn.Linear(width, known, bias=False))
            for _ in range(heads)
        )
        self.width, self.vocab_size, self.layers = width, vocab_size, layers
        self.accuracies = None if accuracies is None else checked_accuracies(accuracies)
        if self.accuracies is not None and len(self.accuracies) != heads:
            raise ValueError(f"accuracies are of {len(self.accuracies)} heads, but there are {heads}")
        if choices is None:
            choices = grow(self.accuracies or usual_accuracies(heads, vocab_size), NODES)
        self.choices = checked_choices(choices)
        check_depth(self.choices, heads)
        # Not a parameter, because the parameters have the names of the published files. It moves with them to a device.
        self.register_buffer("token_map", None if token_map is None else torch.tensor(token_map), persistent=False)
        if output is not None:
            for head in self.blocks():
                output_layer(head).weight.data.copy_(output)

    def blocks(self) -> list[nn.Sequential]:
        """The heads, each with its blocks and its output layer."""
        return [cast(nn.Sequential, head) for head in self.children()]

    @property
    def dtype(self) -> torch.dtype:
        return output_layer(self.blocks()[0]).weight.dtype

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Guess tokens from hidden states.

        Parameters
        ----------
        hidden : tensor of shape (..., width)

        Returns
        -------
        tensor of shape (heads, ..., vocab_size)
            Logits. Row i is the guess of head i for the token i + 2 positions further on. -inf for tokens that the
            heads do not know.
        """
        guesses = []
        for head in self.blocks():
            state = hidden
            for module in head:  # without PyTorch's hooks, which are not used and take as long as the arithmetic
                state = module.forward(state)
            guesses.append(state)
        return self.spread(torch.stack(guesses))

    def spread(self, logits: torch.Tensor) -> torch.Tensor:
        """Extend logits (..., known) of the tokens that the heads know to (..., vocab_size), with -inf for the
        others.
        """
        if self.token_map is None:
            return logits
        scattered = logits.new_full((*logits.shape[:-1], self.vocab_size), -math.inf)
        scattered[..., self.token_map] = logits
        return scattered

    def extra_repr(self) -> str:
        return f"heads={len(self)}, width={self.width}, vocab_size={self.vocab_size}, layers={self.layers}"


def check_heads_fit(target, vocab_size: int, width: int) -> None:
    """Raise ValueError if heads with this vocabulary and width do not fit a target."""
    if vocab_size != target.vocab_size:
        raise ValueError(f"the heads know {vocab_size} tokens, the target {target.vocab_size}: they do not fit")
    if width != target.width:
        raise ValueError(
            f"the heads read hidden states of width {width}, the target's have {target.width}: they do not fit"
        )


def check_depth(choices: Choices, heads: int) -> None:
    """Raise ValueError if a tree has more levels than there are heads."""
    deepest = max(map(len, choices))
    if deepest > heads:
        raise ValueError(f"the tree is {deepest} tokens deep, but there are {heads} heads: one for each level")


def checked_token_map(tokens: Sequence[int], vocab_size: int) -> list[int]:
    """Return the tokens as ints; raise ValueError if there are none, or some are outside the vocabulary or not
    different.
    """
    tokens = ints(tokens, "token_map must hold token ids (ints)")
    wrong = [token for token in tokens if not 0 <= token < vocab_size]
    if not tokens or wrong or len(set(tokens)) < len(tokens):
        what = f"{wrong[:5]} among them" if wrong else "some of them twice" if tokens else "none"
        raise ValueError(f"token_map must hold different tokens of a vocabulary of {vocab_size}, got {what}")
    return tokens
