"""A draft for which a lookup drafts: the lookup guesses for the draft, and the draft for the target.

A draft is asked for one token after another, and each takes a call. But if the text copies from itself, the next tokens
can be guessed before the draft is asked: they are those that followed the same words the last time. So each call
computes some guesses as well. If the draft then chooses what was guessed, its next logits are there already.

The draft itself does not change, and so it is still the one that `speculative` needs to know: every token is drawn from
the draft's own probabilities, wherever its logits come from. What this file does not do: check anything (the draft's
choices are compared with the guesses, and that is all).

Source: Chen et al. (2024), "Cascade Speculative Drafting for Even Faster LLM Inference" (the vertical cascade, whose
last draft is a statistical model).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import torch

from ..arguments import check_whole_number
from ..model.lm import LM
from ..model.session import Session
from ..model.tree import TokenTree


def with_lookup(draft: LM, *, ahead: int = 3, ngrams: Sequence[int] = (4, 3, 2)) -> LM:
    """The same draft, whose sessions look up in the text what it will choose next.

    It pays if the text copies from itself, and if a call of the draft takes hardly longer for some tokens more: for
    SmolLM2's copy in eight bits, four tokens take a quarter longer than one. Calls of a `Batch` stay as they are.

    Parameters
    ----------
    draft : LM
        A model of which only some parts of its calls are saved, so a network rather than an n-gram model.
    ahead : int
        How many tokens are guessed at most, 1 or more. They make each call wider.
    ngrams : sequence of int
        How many tokens at the end of the text must have occurred before, in the order in which they are tried.

    Examples
    --------
    >>> draft = with_lookup(family.quantized)                                              # doctest: +SKIP
    >>> run(speculative(family.target, draft, prompt, gamma=5), max_new_tokens=96)         # doctest: +SKIP
    """
    check_whole_number(ahead, 1, "ahead is how many tokens are guessed at most")
    for n in ngrams:
        check_whole_number(n, 1, "ngrams must be how many tokens at the end of the text are looked up")
    made = draft.counted()
    made.kind_of_session = partial(LookupSession, most=ahead, ngrams=tuple(ngrams))
    return made


def looked_up(text: Sequence[int], most: int, ngrams: Sequence[int]) -> list[int]:
    """Up to `most` tokens that followed the same last tokens of the text the last time.

    Examples
    --------
    >>> looked_up([7, 1, 2, 3, 1, 2, 4, 1, 2], 2, ngrams=(3, 2))
    [4, 1]
    """
    for n in ngrams:
        end = text[-n:]
        for place in range(len(text) - 1, n - 1, -1):
            if text[place - n : place] == end:
                return list(text[place : place + most])
    return []


class LookupSession(Session):
    """A session whose calls also compute tokens that will probably be fed next. It returns what a `Session` does."""

    def __init__(self, lm, prompt, hidden=None, cache: str = "dynamic", *, most: int, ngrams: Sequence[int]):
        super().__init__(lm, prompt, hidden, cache)
        self._most, self._ngrams = most, ngrams
        self._ahead: list[tuple[int, torch.Tensor]] = []  # in the cache after the text: tokens, with the logits after

    def feed(self, tokens: Iterable[int] = ()) -> torch.Tensor:
        tokens, rows = self.lm.check_tokens(tokens, "tokens"), []
        while tokens[len(rows) :] and self._ahead and self._ahead[0][0] == tokens[len(rows)]:
            token, row = self._ahead.pop(0)
            self._tokens.append(token)
            rows.append(row[None])
        self._computed += len(rows)
        if rows and len(rows) == len(tokens):
            return torch.cat(rows)
        new = tokens[len(rows) :]
        room = 0 if self._layers else max(0, self.room - len(new))  # (hidden states are those of the last call)
        guesses = looked_up(self._tokens + new, self._most, self._ngrams)[:room]
        logits = super().feed(new + guesses)
        first = len(logits) - len(guesses)
        self.rollback(len(guesses))  # they stay in the cache until another call
        self._ahead = list(zip(guesses, logits[first:], strict=True))
        return torch.cat([*rows, logits[:first]])

    def rollback(self, n: int) -> None:
        super().rollback(n)
        if n:
            self._ahead = []

    def _call(self, pending: list[int], tokens: list[int], rows: int, tree: TokenTree | None = None) -> torch.Tensor:
        self._ahead = []
        return super()._call(pending, tokens, rows, tree)
