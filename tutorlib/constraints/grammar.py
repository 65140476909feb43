"""A grammar is a warp: it drops the tokens after which the text could no longer become one of a language.

The result depends only on the new tokens, those after the prompt of each row. Nothing is advanced and nothing is rolled
back, so a rejected draft leaves no trace. What this file does not do: know a language (`automaton`, `json_schema`).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from ..model.lm import LM
from ..model.tree import ROOT, TokenTree
from ..model.vocabularies import found_once, spellings, tokens_of, whole_characters
from ..sampling.checks import one_history_each, prompt_length
from .automaton import Automaton, Vocabulary, Words
from .expressions import quoted
from .json_schema import json_schema

KEPT = 4096  # of this many texts, the state is kept
ENDED = "ended"  # the state after a token that ends the text


class Language(Protocol):
    """Which tokens may follow, state by state."""

    start: Any

    def allowed(self, state: Any) -> np.ndarray:
        """Which tokens of the vocabulary may follow, bool, shape (vocab,), without the tokens that end a text."""

    def step(self, state: Any, token: int) -> Any:
        """The state after a token; None if it is not allowed. The state that was given does not change."""

    def ends(self, state: Any) -> bool:
        """Whether the text may end here."""

    def forced(self, state: Any) -> bytes:
        """Bytes that every text of the language has next; they may be none."""


class Grammar:
    """A warp that keeps a text inside a language; see `grammar`, which makes it."""

    def __init__(self, language: Language, lm: LM, name: str):
        self.__name__, self.language, self.lm = name, language, lm
        if not lm.stop_tokens:
            raise ValueError("this model has no token that ends a text, so a text of a grammar could never end")
        self._stop = np.zeros(lm.vocab_size, dtype=bool)
        self._stop[list(lm.stop_tokens)] = True
        self._states: OrderedDict[tuple[int, ...], Any] = OrderedDict()

    def __call__(self, logits: torch.Tensor, histories: Sequence[Sequence[int]] | None = None) -> torch.Tensor:
        rows = one_history_each(histories, logits, self.__name__)
        if logits.shape[-1] < len(self._stop):
            raise ValueError(
                f"{self.__name__} was made for a vocabulary of {len(self._stop)} tokens and got logits for "
                f"{logits.shape[-1]}: make it with the model that writes the text"
            )
        # Ids beyond the vocabulary stand for no text.
        dropped = np.ones(logits.shape, dtype=bool)
        for row, history in enumerate(rows):
            dropped[row, : len(self._stop)] = ~self.allowed(self.new_tokens(history))
        return logits.masked_fill(torch.from_numpy(dropped).to(logits.device), -math.inf)

    def new_tokens(self, history: Sequence[int]) -> tuple[int, ...]:
        """The tokens after the prompt; ValueError if the history does not know where the prompt ends."""
        return tuple(history[prompt_length(history, self.__name__) :])

    def allowed(self, tokens: tuple[int, ...]) -> np.ndarray:
        """Which tokens may follow these new tokens, bool, shape (vocab,)."""
        state = self.state(tokens)
        if state is ENDED:
            return self._stop
        allowed = self.language.allowed(state)
        return allowed | self._stop if self.language.ends(state) else allowed

    def state(self, tokens: tuple[int, ...]) -> Any:
        """The state after some new tokens; ValueError if the language has no text that begins with them."""
        known = len(tokens)
        while known and tokens[:known] not in self._states:
            known -= 1
        state = self._states[tokens[:known]] if known else self.language.start
        for place in range(known, len(tokens)):
            state = self._after(state, tokens[place])
            if state is None:
                raise ValueError(
                    f"{self.__name__}: the new text {self.lm.decode(tokens[: place + 1])!r} is outside the language"
                )
            self._states[tokens[: place + 1]] = state
        while len(self._states) > KEPT:
            self._states.popitem(last=False)
        return state

    def following(self, history: Sequence[int], tree: TokenTree) -> list[int]:
        """The nodes of a tree after a text that can be part of a text of the language, in order."""
        states = {ROOT: self.state(self.new_tokens(history))}
        for node, (token, parent) in enumerate(zip(tree.tokens, tree.parents)):
            state = self._after(states[parent], token) if parent in states else None
            if state is not None:
                states[node] = state
        return list(states)[1:]

    def _after(self, state: Any, token: int) -> Any:
        if 0 <= token < len(self._stop) and self._stop[token]:
            return ENDED if state is ENDED or self.language.ends(state) else None
        return None if state is ENDED else self.language.step(state, token)

    def forced_tokens(self, history: Sequence[int]) -> list[int]:
        """What every text of the language has next, in tokens as the tokenizer would write it. It is only a guess:
        other tokens may spell the same text.
        """
        state = self.state(self.new_tokens(history))
        if state is ENDED:
            return []
        guess = tokens_of(self.lm, whole_characters(self.language.forced(state))) or []
        for place, token in enumerate(guess):
            state = self._after(state, token)
            if state is None:
                return guess[:place]
        ended = self.language.ends(state) and not self.language.allowed(state).any()
        return guess + list(self.lm.stop_tokens[:1]) * ended

    def __repr__(self) -> str:
        return self.__name__


def grammar(language: str | Mapping, lm: LM) -> Grammar:
    """Keep a text inside a language: a warp that drops every token after which no text of the language is possible.

    The text is what comes after the prompt, in each row of a batch, and its end. Where it may end, the tokens that end
    a text are allowed; after one, only these. Special tokens are never allowed elsewhere, not even in a string.
    ``[grammar(...), temperature(0.7)]`` masks first: a filter before it may drop all tokens that the grammar allows.

    A grammar is a pure function of the new tokens, so every lossless method stays lossless under it. But it changes
    the distribution of whole texts: among the allowed tokens, it does not see which ones lead the model to texts that
    it finds unlikely. `measures.constrained` computes by how much.

    Parameters
    ----------
    language : str or dict
        A regular expression, which the whole text has to match (see `constraints.expressions.read_expression`), or a
        JSON schema (see `constraints.json_schema`). A schema needs the package llguidance.
    lm : LM
        The model that writes the text, for its tokens. A draft model is not needed.

    Returns
    -------
    Grammar, a warp

    Raises
    ------
    ValueError
        If the expression or schema is wrong or uses what is not supported, if no text matches it, or if the tokens
        of the model cannot write any text of it.
    ImportError
        For a schema without the package llguidance.

    Examples
    --------
    >>> from tutorlib import TableLM, run, greedy, sample
    >>> lm = TableLM({"": [0.5, 0.4, 0.1]}, ["a", "b", "."], stop_tokens=["."])
    >>> run(sample(lm, "a", warp=[grammar("b{3}", lm)]), 9).text
    'bbb'
    """
    if getattr(lm, "tokenizer", None) is None:
        raise ValueError("a grammar needs a model with a tokenizer, to know the text of each token")
    lm = getattr(lm, "original", lm)
    if isinstance(language, str):
        return Grammar(Words(Automaton(language), vocabulary(lm)), lm, f"grammar({quoted(language)})")
    if isinstance(language, Mapping):
        return Grammar(json_schema(language, vocabulary(lm)), lm, "grammar(schema)")
    raise ValueError(f"a grammar is a regular expression (str) or a JSON schema (dict), got {language!r}")


@found_once
def vocabulary(lm: LM) -> Vocabulary:
    """The tokens of a model as bytes, found once for each model."""
    return Vocabulary(spellings(lm), lm.vocab_size)
