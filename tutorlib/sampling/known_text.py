"""What penalties know of the texts before the rows, kept from call to call: a step takes no longer in a long text.

A penalty is a pure function of the histories, but from one call to the next a history changes only at its end. So each
history is compared with the text that is known for its row, which takes nanoseconds per token, and only the tokens that
differ are taken back or added. The result depends on the history alone. A method passes its text as a `History`: then
not even the comparison takes longer in a long text.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence, Set
from typing import Generic, TypeVar

import numpy as np

from ..arguments import Prompted, ints, shared_beginning
from .checks import prompt_length


class History(Sequence[int]):
    """The tokens that a list holds now, followed by some more, without a copy of the list.

    Parameters
    ----------
    text : list of int
        It may grow afterwards, but what it holds must not change: a method's own text, for instance.
    more : sequence of int
        Drafted tokens, for instance. They are copied.
    same : int, optional
        How many tokens of the list count; all that it holds now if it is not given.

    Attributes
    ----------
    prompt_length : int or None
        How many of the tokens are the prompt's, if the list knows it (see `Prompted`).

    Examples
    --------
    >>> text = [5, 6]
    >>> history = History(text, [7])
    >>> text.append(9)
    >>> list(history), history[-1], history[1:]
    ([5, 6, 7], 7, [6, 7])
    """

    __slots__ = ("more", "prompt_length", "same", "text")

    def __init__(self, text: list, more: Sequence[int] = (), same: int | None = None):
        self.text, self.same, self.more = text, len(text) if same is None else same, list(more)
        self.prompt_length: int | None = getattr(text, "prompt_length", None)

    def __len__(self) -> int:
        return self.same + len(self.more)

    def __getitem__(self, index):
        if not isinstance(index, slice):
            place = range(len(self))[index]
            return self.text[place] if place < self.same else self.more[place - self.same]
        start, stop, step = index.indices(len(self))
        if step != 1:
            return list(self)[index]
        return self.text[start : min(stop, self.same)] + self.more[max(0, start - self.same) : max(0, stop - self.same)]

    def __iter__(self):
        return iter(self[:])

    def __repr__(self) -> str:
        return repr(self[:])

    def as_list(self) -> list[int]:
        """A copy of all tokens, which knows where the prompt ends if this history does."""
        return self[:] if self.prompt_length is None else Prompted(self[:], self.prompt_length)


class KnownText:
    """A text, and what follows from it. Subclasses define `push` and `pop` for its last token.

    Parameters
    ----------
    vocab : int
        Tokens are smaller than this.
    """

    # How many tokens at the beginning do not count, so that they may be anything.
    ignored = 0

    def __init__(self, vocab: int):
        self.vocab = vocab
        self.tokens: list[int] = []
        self._read: History | None = None  # what the tokens were read from, if it was a `History`

    def become(self, history: Sequence[int], name: str) -> None:
        """Change to another text; ValueError if a token is outside the vocabulary (the text is then unchanged)."""
        history = history if type(history) in (list, Prompted, History) else list(history)
        read = history if isinstance(history, History) else None
        # Two histories of one text are alike as far as both are this text, so only the rest has to be compared.
        known = min(self._read.same, read.same) if self._read and read and self._read.text is read.text else 0
        same = known + shared_beginning(self.tokens[known:], history[known:])
        fresh = ints(history[same:], f"{name} needs histories of token ids (ints)")
        counted = fresh[max(0, self.ignored - same) :]
        if counted and not 0 <= min(counted) <= max(counted) < self.vocab:
            wrong = [token for token in counted if not 0 <= token < self.vocab]
            raise ValueError(
                f"{name} was given a history with {wrong[:5]}, outside the vocabulary of {self.vocab} tokens"
            )
        while len(self.tokens) > same:
            self.pop()
        for token in fresh:
            self.push(token)
        self._read = read

    def push(self, token: int) -> None:
        self.tokens.append(token)

    def pop(self) -> int:
        return self.tokens.pop()


class TokenCounts(KnownText):
    """How often tokens occur, in `counts` (vocab,), after the first `ignored` tokens and among the `last` ones.

    If `ignored` is None, the tokens of each text's prompt are ignored.
    """

    def __init__(self, vocab: int, ignored: int | None = 0, last: int | None = None):
        super().__init__(vocab)
        self.ignored, self._without_prompt, self.last = ignored or 0, ignored is None, last
        self.counts = np.zeros(vocab, dtype=np.int64)

    def become(self, history, name):
        if self._without_prompt and (length := prompt_length(history, name)) != self.ignored:
            self.tokens, self._read, self.ignored = [], None, length
            self.counts[:] = 0
        super().become(history, name)

    def push(self, token):
        super().push(token)
        self._count(len(self.tokens) - 1, 1)
        if self.last is not None:
            self._count(len(self.tokens) - 1 - self.last, -1)  # it leaves the window

    def pop(self):
        self._count(len(self.tokens) - 1, -1)
        if self.last is not None:
            self._count(len(self.tokens) - 1 - self.last, 1)
        return super().pop()

    def _count(self, place: int, change: int) -> None:
        if place >= self.ignored:
            self.counts[self.tokens[place]] += change


LONGEST = 100


class Places(KnownText):
    """Where each token stands in the text."""

    def __init__(self, vocab: int):
        super().__init__(vocab)
        self._places: dict[int, list[int]] = defaultdict(list)

    def push(self, token):
        self._places[token].append(len(self.tokens))
        super().push(token)

    def pop(self):
        token = super().pop()
        self._places[token].pop()
        return token

    def repeated(self, breakers: Set[int] = frozenset(), last: int | None = None) -> dict[int, int]:
        """For each token that has followed the end of the text: how long the longest such end is.

        An end holds no token of `breakers`, and only the `last` tokens of the text are read. Lengths are counted up to
        `LONGEST`, so that a text that goes round in circles takes no time.
        """
        text, found = self.tokens, {}
        begin = 0 if last is None else max(0, len(text) - last)
        # The token of a place is the last one of an earlier copy of the end, and what comes after it may come again.
        for place in self._places.get(text[-1], ())[:-1] if text else ():
            length = 0
            while (
                length < LONGEST
                and place - length >= begin
                and text[place - length] == text[-1 - length] not in breakers
            ):
                length += 1
            if length:
                found[text[place + 1]] = max(found.get(text[place + 1], 0), length)
        return found


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


class KnownTexts(threading.local, Generic[Known]):
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
