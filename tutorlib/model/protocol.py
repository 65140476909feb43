"""What a model is, for every method and every session. `LM` is one, and so are table models and n-gram models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import torch


class Sequences(Protocol):
    """What a session or a batch asks of a model.

    Attributes
    ----------
    context, layers : int
        A sequence has at most `context` tokens. Hidden states are numbered 0 (what the first layer reads) to `layers`.
    """

    context: int
    layers: int

    def prompt_tokens(self, prompt: str | Sequence[int]) -> list[int]:
        """A prompt as ids; ValueError for what is none."""

    def check_tokens(self, tokens: Iterable[int], name: str) -> list[int]:
        """Ids as a list; ValueError, with this name, for what is outside the vocabulary."""

    def open_cache(self, rows: int, static: bool = False) -> Any:
        """An empty cache, which also makes the model's calls."""

    def reach(self, cache: Any, texts: list[list[int]], length: int) -> Any:
        """A cache of these texts that is right up to a length: this one, or another."""


class Model(Sequences, Protocol):
    """What methods ask of a model.

    Attributes
    ----------
    vocab_size : int
        Ids are 0 to vocab_size - 1.
    stop_tokens : tuple of int
        Tokens that end a text.
    tokenizer : a transformers tokenizer, or None
    device : torch.device
        Where its logits are.
    """

    vocab_size: int
    stop_tokens: tuple[int, ...]
    tokenizer: Any
    device: torch.device

    def session(self, prompt: str | Sequence[int], hidden: Any = None, cache: str = "dynamic") -> Any:
        """One sequence over the model."""

    def batch(self, prompts: Sequence[str | Sequence[int]]) -> Any:
        """Several sequences in one call."""

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of ids."""


def is_model(value) -> bool:
    """Whether `value` can be decoded: whether it opens sessions and reads prompts."""
    return all(hasattr(value, name) for name in ("session", "prompt_tokens"))
