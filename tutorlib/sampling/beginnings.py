"""What a warp remembers of the target's rows, for each beginning of a text: so a rejected draft leaves nothing to undo.

A warp sees the tokens before a row, and not the logits of the rows before it. A warp that needs those keeps what they
told in a tree: one node for each beginning that it was asked about, whether its tokens are accepted later or not. What
this file does not do: warp, or say what is worth remembering (`mirostat`, `budgets`).
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from .checks import Warp, named, one_history_each
from .known_text import History

TEXTS = 256  # how many texts are remembered at once: those of a batch, for instance


@dataclass
class Beginning:
    """A beginning of a text: the state that follows from the rows in it, and what the row at its end told, if seen."""

    state: Any
    told: Any = None
    after: dict[int, "Beginning"] = field(default_factory=dict)


class Beginnings:
    """The beginnings of the texts that a warp was asked about.

    Parameters
    ----------
    name : str
        The warp's, for errors.
    first : the state before a text's first row
    follow : function (state, told, token) -> state
        The state after one more token, chosen from a row that told this.
    """

    def __init__(self, name: str, first, follow: Callable[[Any, Any, int], Any]):
        self.name, self.first, self.follow = name, first, follow
        self.texts: OrderedDict[int, tuple[list, int, list[Beginning]]] = OrderedDict()  # list, where it began, path

    def _next(self, beginning: Beginning, token: int) -> Beginning | None:
        if token not in beginning.after:
            if beginning.told is None:
                return None
            beginning.after[token] = Beginning(self.follow(beginning.state, beginning.told, token))
        return beginning.after[token]

    def deepest(self, history: History) -> tuple[Beginning, bool]:
        """The beginning that a history is, or the longest known one of it; and whether it is the first of these."""
        if id(history.text) not in self.texts:
            self.texts[id(history.text)] = history.text, history.same, [Beginning(self.first)]
            if len(self.texts) > TEXTS:
                self.texts.popitem(last=False)
        text, began, path = self.texts[id(history.text)]
        while began + len(path) <= history.same:
            token = text[began + len(path) - 1]
            beginning = self._next(path[-1], token)
            if beginning is None:
                return path[-1], False
            path[-1].told, path[-1].after = None, {token: beginning}  # the text went on
            path.append(beginning)
        beginning = path[history.same - began]
        for token in history.more:
            found = self._next(beginning, token)
            if found is None:
                return beginning, False
            beginning = found
        return beginning, True

    def warp(self, warp_row: Callable[[torch.Tensor, Any], tuple[torch.Tensor, Any]]) -> Warp:
        """The warp that is ``warp_row(row, state) -> (row, what it told)`` for each row, a row after those before it.

        Its version for a draft's rows, `of_drafts`, remembers nothing that they tell. Their state is that of the last
        token which the target has read.
        """

        def of_texts(logits, histories=None):
            return self._warped(logits, histories, warp_row, False)

        def of_drafts(logits, histories=None):
            return self._warped(logits, histories, warp_row, True)

        of_texts.of_drafts = named(of_drafts, self.name)  # type: ignore[attr-defined]
        return named(of_texts, self.name)

    def _warped(self, logits: torch.Tensor, histories, warp_row: Callable, drafts: bool) -> torch.Tensor:
        rows, histories = list(logits), one_history_each(histories, logits, self.name)
        for history in histories:
            if not isinstance(history, History):
                needs = "needs a History over the text that grows (methods pass one)"
                raise ValueError(f"{self.name} {needs}, got {history!r}")
        for row in sorted(range(len(rows)), key=lambda row: len(histories[row])):
            beginning, known = self.deepest(histories[row])
            if not (known or drafts):
                end = list(histories[row])[-5:]
                raise ValueError(f"{self.name} has not seen the row before the last token of {end}")
            rows[row], told = warp_row(logits[row], beginning.state)
            if not (drafts or beginning.after):
                beginning.told = told
        return torch.stack(rows) if rows else logits
