"""What penalties know of the texts before the rows, kept from call to call: a step takes no longer in a long text.

A penalty is a pure function of the histories, but from one call to the next a history changes only at its end. So each
history is compared with the text that is known for its row, which takes nanoseconds per token, and only the tokens that
differ are taken back or added. The result depends on the history alone.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import numpy as np

from ..arguments import ints


class KnownText:
    """A text, and what follows from it. Subclasses define `push` and `pop` for its last token.

    Parameters
    ----------
    vocab : int
        Tokens are smaller than this.
    """

    def __init__(self, vocab: int):
        self.vocab = vocab
        self.tokens: list[int] = []

    def become(self, history: Sequence[int], name: str) -> None:
        """Change to another text; ValueError if a token is outside the vocabulary (the text is then unchanged)."""
        history = history if type(history) is list else list(history)
        same = shared_beginning(self.tokens, history)
        fresh = ints(history[same:], f"{name} needs histories of token ids (ints)")
        if fresh and not 0 <= min(fresh) <= max(fresh) < self.vocab:
            wrong = [token for token in fresh if not 0 <= token < self.vocab]
            raise ValueError(
                f"{name} was given a history with {wrong[:5]}, outside the vocabulary of {self.vocab} tokens"
            )
        while len(self.tokens) > same:
            self.pop()
        for token in fresh:
            self.push(token)

    def push(self, token: int) -> None:
        self.tokens.append(token)

    def pop(self) -> int:
        return self.tokens.pop()


class TokenCounts(KnownText):
    """How often each token occurs: `counts`, shape (vocab,)."""

    def __init__(self, vocab: int):
        super().__init__(vocab)
        self.counts = np.zeros(vocab, dtype=np.int64)

    def push(self, token):
        super().push(token)
        self.counts[token] += 1

    def pop(self):
        token = super().pop()
        self.counts[token] -= 1
        return token


class Followers(KnownText):
    """Which tokens have followed each piece of n - 1 tokens."""

    def __init__(self, vocab: int, n: int):
        super().__init__(vocab)
        self.n = n
        self._after: dict[tuple[int, ...], dict[int, int]] = defaultdict(dict)  # piece -> token -> how often

    def push(self, token):
        if len(self.tokens) >= self.n - 1:
            after = self._after[self._end()]
            after[token] = after.get(token, 0) + 1
        super().push(token)

    def pop(self):
        token = super().pop()
        if len(self.tokens) >= self.n - 1:
            after = self._after[self._end()]
            after[token] -= 1
            if not after[token]:
                del after[token]
        return token

    def of_the_end(self) -> list[int]:
        """The tokens that have followed the last n - 1 tokens of the text."""
        return list(self._after.get(self._end(), ())) if len(self.tokens) >= self.n - 1 else []

    def _end(self) -> tuple[int, ...]:
        return tuple(self.tokens[len(self.tokens) - self.n + 1 :])


Known = TypeVar("Known", bound=KnownText)


class Memory(threading.local, Generic[Known]):
    """The known texts of one penalty, by row and size of the vocabulary; each thread has its own.

    Parameters
    ----------
    make : function from the size of the vocabulary to a `KnownText`
    """

    def __init__(self, make: Callable[[int], Known]):
        self._make = make
        self._known: dict[tuple[int, int], Known] = {}

    def of(self, row: int, history: Sequence[int], vocab: int, name: str) -> Known:
        """What is known of the history of a row."""
        # It is taken out meanwhile: what an interrupt may have left half changed is not used again.
        known = self._known.pop((row, vocab), None) or self._make(vocab)
        known.become(history, name)
        self._known[row, vocab] = known
        return known


def shared_beginning(one: list[int], other: list[int]) -> int:
    """How many tokens two texts have in common, from the beginning. (Comparing slices is much faster than a loop.)

    Examples
    --------
    >>> shared_beginning([1, 2, 3, 4], [1, 2, 5]), shared_beginning([1, 2], [1, 2, 5])
    (2, 2)
    """
    low, high = 0, min(len(one), len(other))
    middle = high  # the usual case is tried first: one text is the beginning of the other
    while low < high:
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
    return low
