"""An n-gram model: a language model that only counts, and therefore the cheapest draft that has probabilities.

It looks up how often each token has followed the last few tokens in some text. An n-gram is n tokens in a row. The
counts of all n-grams up to some length are stored in a trie, as a few arrays. What this file does not do: count
(`lab.training.train_ngram` does), read or write files (`loading.formats.ngram_files`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np
import torch

from .table import TableLM


class Level(NamedTuple):
    """The n-grams of one length. Those that differ only in the last token are stored together, sorted by that token.

    Attributes
    ----------
    tokens : (n,) array of whole numbers
        The last token of each n-gram. The first level has all tokens of the vocabulary.
    counts : (n,) array of whole numbers
        How often each n-gram was seen.
    children : (n,) array of whole numbers, or None
        How many n-grams of the next length begin with each n-gram; None in the last level. They are stored next to each
        other there.
    """

    tokens: np.ndarray
    counts: np.ndarray
    children: np.ndarray | None = None


class NgramLM(TableLM):
    """A language model that looks up how often each token has followed the last few tokens.

    Counts alone would give probability 0 to everything that was never seen. So they are smoothed by *interpolated
    absolute discounting*: every count is reduced by the same number d between 0 and 1, and the probability that becomes
    free is distributed like the predictions for the context without its first token::

        P(w | context) = max(count(context w) - d, 0) / count(context) + rest(context) P(w | shorter context)

    ``rest(context)`` makes the row sum to 1. It includes the probability of n-grams that were left out to save space.
    After the empty context, the rest is distributed evenly over all tokens. So every token has a probability above 0. A
    row takes a few lookups and a few passes over the vocabulary.

    Source: Ney, Essen and Kneser (1994), "On structuring probabilistic dependences in stochastic language modelling";
    Chen and Goodman (1999), "An empirical study of smoothing techniques for language modeling", section 2.7.

    Parameters
    ----------
    levels : sequence of Level
        The n-grams of 1, 2, 3, ... tokens.
    discounts : sequence of float
        d for each level, above 0 and at most 1.
    tokenizer, stop_tokens
        From the model whose texts were counted.
    device : torch.device
        The device of the rows. Lookups are done on the processor.

    Attributes
    ----------
    order : int
        Length of the longest context.

    Examples
    --------
    >>> ones, twos = Level([0, 1], np.array([2, 3]), [1, 2]), Level(np.array([1, 0, 1]), np.array([2, 1, 1]))
    >>> NgramLM([ones, twos], [0.5, 0.5]).session([0]).feed().exp()
    tensor([[0.1000, 0.9000]])
    """

    dtype = torch.float32

    def __init__(
        self,
        levels: Sequence[Level],
        discounts: Sequence[float],
        *,
        tokenizer=None,
        stop_tokens: Sequence[int] = (),
        device: torch.device | str = "cpu",
    ):
        self.levels, self.discounts = list(levels), list(discounts)
        self.vocab_size = self.width = len(levels[0].counts)
        self.tokenizer, self.stop_tokens, self.device = tokenizer, tuple(stop_tokens), torch.device(device)
        self.order, self.context, self.calls = len(levels) - 1, 1_000_000_000, 0
        # Where the children of each n-gram begin in the next level, and finally where all of them end.
        self._begins = [
            np.append(0, np.cumsum(cast(np.ndarray, level.children), dtype=np.int64)) for level in levels[:-1]
        ]
        seen = torch.from_numpy(levels[0].counts.astype(np.float64)) - self.discounts[0]
        seen = seen.clamp(min=0) / max(int(levels[0].counts.sum()), 1)
        self._shortest = (seen + (1 - seen.sum()) / self.vocab_size).float()

    def __repr__(self) -> str:
        sizes = ", ".join(f"{len(level.tokens):,}" for level in self.levels)
        return f"NgramLM(vocab_size={self.vocab_size}, order={self.order}, n-grams by length: {sizes})"

    def log_probs(self, tokens: Sequence[int]) -> torch.Tensor:
        """Log-probabilities of the token after `tokens`: float32, shape (vocab,). This is not counted as a call."""
        probs = self._shortest
        for length in range(1, min(self.order, len(tokens)) + 1):
            node = self._find(tokens[len(tokens) - length :])
            if node is None:
                break  # then longer contexts are missing too
            followers, discounted = self._followers(length, node)
            probs = probs * (1 - discounted.sum())
            probs[torch.from_numpy(followers)] += torch.from_numpy(discounted).float()
        return probs.log().to(self.device)

    def _find(self, context: Sequence[int]) -> int | None:
        """The index of the n-gram of these tokens in its level."""
        node = context[0]
        for length, token in enumerate(context[1:], 1):
            first, last = self._begins[length - 1][node : node + 2]
            node = first + np.searchsorted(self.levels[length].tokens[first:last], token)
            if node == last or self.levels[length].tokens[node] != token:
                return None
        return int(node)

    def _followers(self, length: int, node: int) -> tuple[np.ndarray, np.ndarray]:
        """The tokens that followed an n-gram of `length` tokens, and their discounted shares."""
        first, last = self._begins[length - 1][node : node + 2]
        level, count = self.levels[length], int(self.levels[length - 1].counts[node])
        shares = (level.counts[first:last] - self.discounts[length]).clip(0) / max(count, 1)
        return level.tokens[first:last].astype(np.int64), shares
