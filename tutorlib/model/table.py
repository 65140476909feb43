"""A language model that is a table: small enough for proofs, and for checking by hand.

`TableLM` is an `LM` whose model is a table: the distribution of the next token, in float64, is looked up by the last
few tokens. The log-probabilities also serve as its hidden states. Sessions and batches are those of any `LM`, so every
method runs on it unchanged. Only the cache is different: it holds the tokens themselves. If a session rolls back too
few tokens or keeps the wrong branch of a tree, the error shows here just as with a real model.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import SupportsIndex

import torch

from ..arguments import check_whole_number, concrete
from .lm import LM
from .uncached import TokenCache


class TableLM(LM):
    """A language model whose distributions are looked up in a table.

    Parameters
    ----------
    table : mapping from contexts to distributions
        A context is the last few tokens, as a tuple of ids or texts, or as one text. The longest context that matches
        the end of the text is used. The empty context, ``()`` or ``""``, is used if no other matches; if the table
        lacks it, it is the uniform distribution. A distribution is a list of probabilities, one for each token, or a
        mapping from tokens (ids or texts) to probabilities, in which missing tokens have probability zero. A token of
        probability zero has the logit -inf.
    vocab : sequence of str, optional
        The tokens' texts. By default "a", "b", "c" … (``<0>``, ``<1>`` … when there are more than 26), as many as the
        lists in the table are long.
    context : int
        The largest number of tokens, including the prompt.
    stop_tokens : sequence of token ids or texts
        Tokens that end a text. They are special tokens, which `decode` leaves out.

    Attributes
    ----------
    order : int
        Length of the longest context in the table.
    vocab_size, context, layers, stop_tokens, tokenizer, device, dtype, calls
        As for every `LM`. `dtype` is float64, and `device` is the CPU.

    Raises
    ------
    ValueError
        If a distribution has the wrong length, contains a negative number, or does not sum to 1; if a context or token
        is outside the vocabulary.

    Examples
    --------
    >>> lm = TableLM({"": [0.6, 0.4], "a": [0.1, 0.9]})
    >>> lm.session("a").feed().exp()
    tensor([[0.1000, 0.9000]], dtype=torch.float64)
    """

    model = None
    device = torch.device("cpu")
    dtype = torch.float64
    layers = 0  # hidden states 0 and -1 are both the log-probabilities

    def __init__(
        self,
        table: Mapping,
        vocab: Sequence[str] | None = None,
        *,
        context: int = 64,
        stop_tokens: Sequence[int | str] = (),
    ):
        table = concrete(table)
        if vocab is None:
            lengths = [len(probs) for probs in table.values() if not isinstance(probs, Mapping)]
            if not lengths:
                raise ValueError("no distribution of the table is a list, so its tokens are unknown: pass vocab=[...]")
            vocab = default_vocab(max(lengths))
        check_whole_number(context, 1, "context must be how many tokens fit")
        self.tokenizer = TableTokenizer(vocab)
        self.vocab_size = self.width = len(self.tokenizer.vocab)
        self.context = int(context)
        self.calls = 0
        self.stop_tokens = tuple(self._token(token) for token in stop_tokens)
        self.tokenizer.special = frozenset(self.stop_tokens)
        self._rows = {self._context_key(key): self._distribution(key, probs).log() for key, probs in table.items()}
        self._rows.setdefault((), torch.full((self.vocab_size,), 1 / self.vocab_size, dtype=self.dtype).log())
        self.order = max(len(key) for key in self._rows)

    @classmethod
    def random(
        cls,
        vocab: int | Sequence[str],
        order: int,
        seed: int,
        *,
        context: int = 64,
        stop_tokens: Sequence[int | str] = (),
    ) -> TableLM:
        """A table with a random distribution for every context of up to `order` tokens.

        Each is drawn uniformly from all possible distributions (Dirichlet, all parameters 1).

        Parameters
        ----------
        vocab : int or sequence of str
            The size of the vocabulary, or the tokens' texts.
        order : int
            Length of the longest contexts. There are ``vocab ** order`` contexts of this length.
        seed : int
            The same seed makes the same table on every machine.
        """
        check_whole_number(order, 0, "order must be the length of the longest contexts")
        vocab = default_vocab(vocab.__index__()) if isinstance(vocab, SupportsIndex) else list(vocab)
        rng = random.Random(seed)
        table = {}
        for length in range(order + 1):
            for key in itertools.product(range(len(vocab)), repeat=length):
                weights = [rng.expovariate(1.0) for _ in vocab]
                table[key] = [weight / sum(weights) for weight in weights]
        return cls(table, vocab, context=context, stop_tokens=stop_tokens)

    def __repr__(self) -> str:
        return f"TableLM(vocab_size={self.vocab_size}, order={self.order}, context={self.context})"

    def open_cache(self, rows: int, static: bool = False) -> TokenCache:
        return TokenCache(self, [[] for _ in range(rows)])

    def in_full(
        self, tokens: list[int], rows: int, hidden: Sequence[int] = ()
    ) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
        """Log-probabilities after each of the last `rows` tokens, which also serve as hidden states."""
        ends = range(len(tokens) - rows + 1, len(tokens) + 1)
        logits = torch.stack([self.log_probs(tokens[:end]) for end in ends])
        return logits, {layer: logits.clone() for layer in hidden}

    def read_out(self, hidden: torch.Tensor, normed: bool = False) -> torch.Tensor:
        """The logits of hidden states, which are the hidden states themselves here."""
        return hidden.clone()

    def log_probs(self, tokens: Sequence[int]) -> torch.Tensor:
        """Log-probabilities of the token after `tokens`: float64, shape (vocab,). This is not counted as a call."""
        for length in range(min(self.order, len(tokens)), -1, -1):
            row = self._rows.get(tuple(tokens[len(tokens) - length :]))
            if row is not None:
                return row
        raise AssertionError("the empty context is always in the table")

    def _token(self, token: int | str) -> int:
        if isinstance(token, str):
            if token not in self.tokenizer.vocab:
                raise ValueError(f"{token!r} is not a token of this table; its tokens are {self.tokenizer.vocab}")
            return self.tokenizer.vocab.index(token)
        return self.check_tokens([token], "the table")[0]

    def _context_key(self, key) -> tuple[int, ...]:
        return tuple(self.encode(key)) if isinstance(key, str) else tuple(self._token(token) for token in key)

    def _distribution(self, key, probs) -> torch.Tensor:
        if isinstance(probs, Mapping):
            by_token = {self._token(token): prob for token, prob in probs.items()}
            probs = [by_token.get(token, 0.0) for token in range(self.vocab_size)]
        probs = torch.as_tensor(probs, dtype=self.dtype)
        if probs.shape != (self.vocab_size,):
            raise ValueError(
                f"the table gives {probs.numel()} probabilities after {key!r}, but there are {self.vocab_size} tokens"
            )
        if not bool((probs >= 0).all()) or not math.isclose(float(probs.sum()), 1, abs_tol=1e-6):
            raise ValueError(f"the probabilities after {key!r} must be 0 or more and sum to 1, got {probs.tolist()}")
        return probs / probs.sum()


def default_vocab(size: int) -> list[str]:
    """Names for `size` tokens: letters, or ``<0>``, ``<1>`` … if there are more than 26."""
    return [chr(ord("a") + token) for token in range(size)] if size <= 26 else [f"<{token}>" for token in range(size)]


class TableTokenizer:
    """The tokenizer of a `TableLM`, with those parts of a transformers tokenizer that `LM` needs.

    Parameters
    ----------
    vocab : sequence of str
        The texts of the tokens, all different and not empty.
    """

    eos_token_id = None

    def __init__(self, vocab: Sequence[str]):
        self.vocab = list(vocab)
        self.special: frozenset[int] = frozenset()
        if not self.vocab or len(set(self.vocab)) < len(self.vocab) or not all(self.vocab):
            raise ValueError(f"a vocab needs texts that are all different and not empty, got {self.vocab}")
        self._longest_first = sorted(range(len(self.vocab)), key=lambda token: -len(self.vocab[token]))

    def __len__(self) -> int:
        return len(self.vocab)

    def __call__(self, text: str) -> dict[str, list[int]]:
        """Split a text into tokens, always taking the longest that fits. Raise ValueError if none fits."""
        tokens, place = [], 0
        while place < len(text):
            fitting = (token for token in self._longest_first if text.startswith(self.vocab[token], place))
            token = next(fitting, None)
            if token is None:
                raise ValueError(f"no token of this table reads {text[place:]!r}; its tokens are {self.vocab}")
            tokens.append(token)
            place += len(self.vocab[token])
        return {"input_ids": tokens}

    def decode(self, tokens: Iterable[int], skip_special_tokens: bool = False, **_) -> str:
        """Join the tokens' texts."""
        return "".join(self.vocab[token] for token in tokens if not (skip_special_tokens and token in self.special))

    def get_vocab(self) -> dict[str, int]:
        return {text: token for token, text in enumerate(self.vocab)}

    def convert_ids_to_tokens(self, token: int) -> str:
        return self.vocab[token]
