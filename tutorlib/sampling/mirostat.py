"""Mirostat: a filter that keeps a text's surprise near a target, and so remembers what the text has surprised it with.

Its state is one number, and a function of the text: which tokens were written, and how surprising each was when it was
written. The warp keeps this number for every beginning of a text that it was asked about. So a rejected draft leaves
nothing to undo, and a method that checks several tokens at once writes the distribution of plain sampling.
"""

import math
from collections import OrderedDict
from dataclasses import dataclass, field

import torch

from ..arguments import is_number, number_text
from .checks import Warp, named, one_history_each
from .known_text import History

TEXTS = 256  # how many texts are remembered at once: those of a batch, for instance


@dataclass
class State:
    """What is known after some beginning of a text: the limit, in bits, and the limits after each next token."""

    limit: float
    surprise: torch.Tensor | None = None  # of each next token, in bits, among those that are kept
    after: dict[int, "State"] = field(default_factory=dict)


def mirostat(tau: float, eta: float = 0.1) -> Warp:
    """Keep the tokens whose surprise, -log2 p, is at most a limit that follows the text.

    The limit begins at ``2 · tau``. After each token, it changes by ``-eta · (surprise - tau)``, where the surprise is
    that of the token among the tokens that were kept. So after surprising tokens the filter becomes stricter, and the
    mean surprise stays near `tau` bits.

    Its limit depends on the rows before, which a list of tokens does not contain. So the histories must be `History`
    objects over one list that grows, which is what the methods pass; a text begins where its first row is. A draft's
    rows are filtered with the limit at the last token that the target has read, and change nothing: this affects how
    many of its tokens are accepted, but not what is written.

    Source: Basu et al. (2021), "Mirostat: A Neural Text Decoding Algorithm that Directly Controls Perplexity" (arXiv
    2007.14966), in the authors' second version, which needs no estimate of the vocabulary's shape. llama.cpp calls it
    mirostat 2.

    Parameters
    ----------
    tau : float
        Bits per token. Above 0 and finite; otherwise ValueError.
    eta : float
        How fast the limit changes. Above 0 and finite; otherwise ValueError.
    """
    for word, value in (("tau", tau), ("eta", eta)):
        if not is_number(value) or value <= 0:
            raise ValueError(f"mirostat needs a finite number above 0 as {word}, got {value!r}")
    name = f"mirostat({number_text(tau)}, {number_text(eta)})"
    texts: OrderedDict[int, tuple[list, int, list[State]]] = OrderedDict()  # the list, where it began, its states

    def next_state(state: State, token: int) -> State | None:
        if token not in state.after:
            if state.surprise is None:
                return None
            state.after[token] = State(state.limit - eta * (float(state.surprise[token]) - tau))
        return state.after[token]

    def deepest(history: History) -> tuple[State, bool]:
        """The state after a history, and whether it is just that, or one before it."""
        if id(history.text) not in texts:
            texts[id(history.text)] = history.text, history.same, [State(2 * tau)]
            if len(texts) > TEXTS:
                texts.popitem(last=False)
        text, began, states = texts[id(history.text)]
        while began + len(states) <= history.same:
            state = next_state(states[-1], text[began + len(states) - 1])
            if state is None:
                return states[-1], False
            states[-1].surprise, states[-1].after = None, {text[began + len(states) - 1]: state}  # the text went on
            states.append(state)
        state = states[history.same - began]
        for token in history.more:
            found = next_state(state, token)
            if found is None:
                return state, False
            state = found
        return state, True

    def checked(logits, histories) -> list[History]:
        histories = one_history_each(histories, logits, name)
        for history in histories:
            if not isinstance(history, History):
                raise ValueError(f"{name} needs a History over the text that grows (methods pass one), got {history!r}")
        return histories

    def kept(row: torch.Tensor, limit: float) -> torch.Tensor:
        surprise = -row.double().log_softmax(-1) / math.log(2)
        return row.masked_fill((surprise > limit) & (row < row.max()), -math.inf)

    def mirostat_warp(logits, histories=None):
        rows, histories = list(logits), checked(logits, histories)
        for row in sorted(range(len(rows)), key=lambda row: len(histories[row])):  # a row after those before it
            state, known = deepest(histories[row])
            if not known:
                raise ValueError(f"{name} has not seen the row before the last token of {list(histories[row])[-5:]}")
            rows[row] = kept(logits[row], state.limit)
            if not state.after:
                state.surprise = -rows[row].double().log_softmax(-1) / math.log(2)
        return torch.stack(rows) if rows else logits

    def of_drafts(logits, histories=None):
        histories = checked(logits, histories)
        rows = [kept(row, deepest(history)[0].limit) for row, history in zip(logits, histories, strict=True)]
        return torch.stack(rows) if rows else logits

    mirostat_warp.of_drafts = named(of_drafts, name)  # type: ignore[attr-defined]
    return named(mirostat_warp, name)
