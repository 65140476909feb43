"""An automaton of our own: which texts a regular expression allows, byte by byte and token by token.

Each state is what may still come, an expression (`expressions`). All states and their steps are in one table, so a
whole vocabulary is walked through it at once: a token is allowed if its bytes lead to a state from which the text can
still be completed. What this file does not do: change logits (`grammar`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping

import numpy as np

from .expressions import NOTHING, Expression, accepts_empty, derivative, first_bytes, quoted, read_expression

DEAD = 0  # the state after a wrong byte: no text is right any more
MOST_STATES = 10_000
KEPT = 256  # for this many states, the steps of all tokens are kept


class Automaton:
    """The texts that match a regular expression, as a table of states and bytes.

    Attributes
    ----------
    start : int
        The state before the first byte.
    table : int32 array, shape (states, 256)
        The state after each byte. In state 0, `DEAD`, no text is right any more.
    accepting : bool array, shape (states,)
        Where a text may end.

    Raises
    ------
    ValueError
        If the expression is wrong or unknown (see `expressions.read_expression`), if no text matches it, or if it needs
        more than 10,000 states.
    """

    start = 1

    def __init__(self, pattern: str):
        whole = read_expression(pattern)
        number: dict[Expression, int] = {NOTHING: DEAD, whole: self.start}
        rows, queue = {DEAD: np.zeros(256, dtype=np.int32)}, [whole]
        for state in queue:  # it grows meanwhile
            rows[number[state]] = row = np.zeros(256, dtype=np.int32)
            for alike in _alike(first_bytes(state)):
                after = derivative(state, alike[0])
                if after not in number:
                    number[after] = len(number)
                    queue.append(after)
                    if len(number) > MOST_STATES:
                        raise ValueError(
                            f"the regular expression {quoted(pattern)} needs more than {MOST_STATES:,} states"
                        )
                row[alike] = number[after]
        if whole == NOTHING:
            raise ValueError(f"no text matches the regular expression {quoted(pattern)}")
        self.table = np.stack([rows[state] for state in range(len(rows))])
        self.accepting = np.array([accepts_empty(state) for state in number])

    def after(self, data: bytes, state: int | None = None) -> int:
        """The state after some bytes, from the start or from a state."""
        state = self.start if state is None else state
        for byte in data:
            state = int(self.table[state, byte])
        return state

    def matches(self, text: str) -> bool:
        return bool(self.accepting[self.after(text.encode())])


def _alike(sets: Iterable[frozenset[int]]) -> list[list[int]]:
    """The bytes of some sets, divided into lists: bytes of one list are in the same of the sets."""
    signatures: dict[int, list[int]] = {}
    for number, one in enumerate(sets):
        for byte in one:
            signatures.setdefault(byte, []).append(number)
    lists: dict[tuple[int, ...], list[int]] = {}
    for byte, signature in signatures.items():
        lists.setdefault(tuple(signature), []).append(byte)
    return list(lists.values())


class Vocabulary:
    """The bytes of all tokens, in the order in which they are walked: the i-th bytes of all tokens longer than i.

    Parameters
    ----------
    spellings : mapping from token ids to bytes
        Tokens that are missing, special tokens for instance, are never allowed.
    size : int
        The size of the vocabulary: the width of the logits.
    """

    def __init__(self, spellings: Mapping[int, bytes], size: int):
        self.size, self.spellings = size, spellings
        longest_first = sorted(spellings.items(), key=lambda pair: -len(pair[1]))
        texts = [data for _, data in longest_first]
        self.ids = np.array([token for token, _ in longest_first], dtype=np.int64)
        self.columns = [
            np.array([data[place] for data in texts if len(data) > place], dtype=np.int64)
            for place in range(max(map(len, texts), default=0))
        ]
        self.alone = {data[0] for data in texts if len(data) == 1}
        self.bytes = sorted(set().union(*texts))


class Words:
    """A vocabulary, walked through an automaton: which tokens may follow, and the state after each.

    Raises
    ------
    ValueError
        If the tokens cannot write any text of the language.
    """

    def __init__(self, automaton: Automaton, vocabulary: Vocabulary):
        self.start, self._accepting, self._vocabulary = automaton.start, automaton.accepting, vocabulary
        self._table = np.zeros_like(automaton.table)
        self._table[:, vocabulary.bytes] = automaton.table[:, vocabulary.bytes]  # the other bytes are in no token
        self._kept: OrderedDict[int, np.ndarray] = OrderedDict()
        self._live = self._completed({state: np.unique(row) for state, row in enumerate(self._table)})
        used = (self._live[self._table] & self._live[:, None]).any(0)
        if not vocabulary.alone.issuperset(used.nonzero()[0].tolist()):
            # Some bytes are written only together with others: follow whole tokens from the start.
            steps, queue = {}, [self.start]
            for state in queue:  # it grows meanwhile
                if state not in steps:
                    steps[state] = np.unique(self.after_each(state))
                    queue += steps[state].tolist()
            self._live &= self._completed(steps)
            self._kept.clear()
        if not self._live[self.start]:
            raise ValueError("the tokens of this vocabulary cannot write any text of the language")

    def _completed(self, steps: Mapping[int, np.ndarray]) -> np.ndarray:
        """From which states an accepting one can be reached."""
        before: dict[int, list[int]] = {}
        for state, after in steps.items():
            for other in after.tolist():
                before.setdefault(other, []).append(state)
        live = self._accepting.copy()
        queue = live.nonzero()[0].tolist()
        for state in queue:  # it grows meanwhile
            for other in before.get(state, ()):
                if not live[other] and other != DEAD:
                    live[other] = True
                    queue.append(other)
        return live

    def after_each(self, state: int) -> np.ndarray:
        """The state after each token of the vocabulary, shape (vocab,); `DEAD` for tokens that are not allowed."""
        if state in self._kept:
            self._kept.move_to_end(state)
            return self._kept[state]
        states = np.full(len(self._vocabulary.ids), state, dtype=np.int32)
        for column in self._vocabulary.columns:
            states[: len(column)] = self._table[states[: len(column)], column]
        after = np.full(self._vocabulary.size, DEAD, dtype=np.int32)
        after[self._vocabulary.ids] = np.where(self._live[states], states, DEAD)
        self._kept[state] = after
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return after

    def allowed(self, state: int) -> np.ndarray:
        """Which tokens may follow, bool, shape (vocab,)."""
        return self.after_each(state) != DEAD

    def step(self, state: int, token: int) -> int | None:
        """The state after a token; None if it is not allowed."""
        after = int(self.after_each(state)[token])
        return None if after == DEAD else after

    def ends(self, state: int) -> bool:
        """Whether the text may end here."""
        return bool(self._accepting[state])

    def forced(self, state: int) -> bytes:
        """The bytes that every text of the language has next."""
        found, passed = bytearray(), set()
        while not self._accepting[state] and state not in passed:
            passed.add(state)
            ways = self._live[self._table[state]].nonzero()[0]
            if len(ways) != 1:
                break
            found.append(int(ways[0]))
            state = int(self._table[state, ways[0]])
        return bytes(found)
