"""One sequence over a model, with an undo: feed tokens, roll them back, try several branches at once, keep one.

What this file does not do: compute (see `cache.py`, `own_cache.py` and `uncached.py`), or choose tokens (the methods
do).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..arguments import Prompted, ints, shared_beginning
from .llama import LoopCache
from .tree import TokenTree

if TYPE_CHECKING:
    from .protocol import Sequences


class NaNLogits(ValueError):
    """The model returned logits that are NaN."""


class Session:
    """One sequence over a model: its tokens, their cache, and methods to add tokens, remove them, or try a tree of
    them.

    Made by `LM.session(prompt)`. The prompt is computed at the first feed.

    Parameters
    ----------
    lm : LM, or another model
    prompt : str or sequence of int
    hidden : int or sequence of int, optional
        Layers whose hidden states are kept after each call, numbered as in transformers: 0 is the embeddings, and i is
        the output of layer i, which is the input of layer i + 1. The last one (also -1) has passed the final norm, and
        is the input of the output head.
    cache : {"dynamic", "static"}
        "dynamic" grows as needed. "static" allocates the whole context at once and keeps all shapes the same from call
        to call, which `torch.compile` needs; without `torch.compile` it is slower.

    Attributes
    ----------
    prompt_length : int
    calls : int
        Forward calls so far. The prompt has no call of its own: it is computed together with the first feed.
    hidden : (rows, width) tensor, or a dict of them by layer, or None
        Hidden states of the last call, one row for each row of logits it returned; a dict if several layers were given.
    prompt_hidden : like `hidden`, with prompt_length rows
        Hidden states of the prompt's tokens; None until the prompt is computed.

    Examples
    --------
    >>> session = lm.session([3, 1, 4])                      # doctest: +SKIP
    >>> logits = session.feed()                              # (1, vocab): what follows the prompt
    >>> logits = session.feed([1, 5])                        # (2, vocab): what follows 1, and what follows 5
    >>> session.rollback(1)                                  # the 5 is forgotten
    """

    def __init__(self, lm: Sequences, prompt, hidden=None, cache: str = "dynamic"):
        if cache not in ("dynamic", "static"):
            raise ValueError(f'cache={cache!r} is not a kind of cache: use "dynamic" or "static"')
        self.lm = lm
        self.calls = 0
        self.hidden: Any = None
        self.prompt_hidden: Any = None
        self._tokens = lm.prompt_tokens(prompt)
        self.prompt_length = len(self._tokens)
        self._single = hasattr(hidden, "__index__")  # one layer: hidden states are a tensor and not a dict
        self._layers = _hidden_layers(hidden, lm.layers)
        self._cache = lm.open_cache(rows=1, static=cache == "static")
        self._computed = 0  # how many tokens are in the cache; the others are a prompt that is not yet computed
        self._tree: TokenTree | None = None

    def __repr__(self) -> str:
        return f"Session({len(self._tokens)} tokens, room for {self.room}, {self.calls} calls)"

    @property
    def tokens(self) -> list[int]:
        """All tokens so far, including the prompt (a copy). Tokens of a tree are included once they are kept.

        The list knows where the prompt ends (see `Prompted`).
        """
        return Prompted(self._tokens, self.prompt_length)

    @property
    def room(self) -> int:
        """How many more tokens fit into the context."""
        return self.lm.context - len(self._tokens)

    def feed(self, tokens: Iterable[int] = ()) -> torch.Tensor:
        """Add tokens, and get the logits for the token after each of them.

        Parameters
        ----------
        tokens : iterable of int
            May be empty at the first feed, which computes the prompt.

        Returns
        -------
        (rows, vocab) tensor, in the model's dtype and on its device
            One row for each token given. At the first feed, the row after the last token of the prompt comes first; the
            other rows of the prompt are not computed.

        Raises
        ------
        ValueError
            If there is nothing to compute, if there are more tokens than `room` or an id outside the vocabulary, or if
            no branch of the last tree has been kept; `NaNLogits` if the model returns NaN. The session is then
            unchanged.
        """
        tokens = self.lm.check_tokens(tokens, "tokens")
        self._refuse_open_tree("feed")
        pending = self._tokens[self._computed :]
        if not tokens and not pending:
            raise ValueError("feed() without tokens, but everything so far is computed: give at least one token")
        if len(tokens) > self.room:
            raise ValueError(
                f"{len(tokens)} tokens to feed, but room for {self.room} in the context of {self.lm.context}: "
                "cut them to session.room"
            )
        logits = self._call(pending, tokens, len(tokens) + bool(pending))
        self._tokens += tokens
        self._computed = len(self._tokens)
        return logits

    def rollback(self, n: int) -> None:
        """Forget the last n tokens, which may include tokens of the prompt. This takes no call of the model."""
        (n,) = ints([n], "rollback needs how many tokens to forget, a whole number")
        self._refuse_open_tree("rollback")
        if not 0 <= n <= len(self._tokens):
            raise ValueError(f"rollback({n}): expected 0 to {len(self._tokens)}, the number of tokens so far")
        if n:
            del self._tokens[-n:]
            self._computed = min(self._computed, len(self._tokens))

    def share_prompt(self, draft: Session) -> None:
        """Read the prompt for the session of a draft too, if its model is a copy of this one; otherwise do nothing.

        A copy with rounded weights (`EightBits`) would compute nearly the same keys and values, and take nearly as long
        as the model itself: many tokens at once take their time for computing, and not for reading weights. So it takes
        over those of the model. This may change what it proposes, but what it proposes is checked in any case, and
        depends on the tokens of the text alone, as lossless methods need it. What this session computes keeps its bits.
        Use it for drafts only: a text of the copy itself is that of its own weights.

        It is counted with this session's next call, and takes no longer than that one would have taken for the same
        tokens; if there are fewer than 32, it takes one more reading of the weights.
        """
        tokens = self._tokens[: len(draft._tokens) - 1]  # the draft has to compute the last one itself
        if not isinstance(self._cache, LoopCache) or tokens != draft._tokens[: len(tokens)]:
            return
        is_new = not (self._computed or draft._computed or self._layers or draft._layers)
        if is_new and self._cache.share(tokens, draft._cache):
            self._computed = draft._computed = len(tokens)

    def first_layers(self, early: Any) -> Session:
        """The same sequence over the model that ends after some first layers of this one; see `LM.first_layers`.

        It uses the keys and values that this session has, and computes none of them again. What is fed to it is
        overwritten by what is fed to this session next. (Models without such a cache compute the whole sequence again.)
        """
        self._refuse_open_tree("first_layers")
        whole = getattr(early, "first_of", None)
        is_mine = whole is not None and whole is getattr(self.lm, "original", None)
        shared = getattr(self._cache, "first_layers", None)
        if not is_mine or shared is None:
            return early.session(self._tokens)
        other = copy.copy(self)
        other.lm, other.calls, other._tokens, other._cache = early, 0, self.tokens, shared(early)
        return other

    def advance_to(self, tokens: Sequence[int]) -> torch.Tensor:
        """Change to another sequence: roll back to the beginning that both share, then feed the rest.

        Parameters
        ----------
        tokens : sequence of int
            The whole new sequence, including the prompt. Its last token is always fed, even if it is already there.

        Returns
        -------
        (rows, vocab) tensor
            As for `feed`. The last row belongs to the token after the sequence.
        """
        tokens = tokens if isinstance(tokens, list) else self.lm.check_tokens(tokens, "tokens")
        if not tokens:
            raise ValueError("advance_to needs the whole sequence wanted, prompt included, but got no tokens")
        self._refuse_open_tree("advance_to")
        if len(tokens) > self.lm.context:
            raise ValueError(f"a sequence of {len(tokens)} tokens does not fit the context of {self.lm.context}")
        common = shared_beginning(self._tokens, tokens[:-1])
        new = self.lm.check_tokens(tokens[common:], "tokens")  # the others were checked when they were fed
        self.rollback(len(self._tokens) - common)
        return self.feed(new)

    def feed_tree(self, tree: TokenTree) -> torch.Tensor:
        """Score every node of a tree in one call. Call `keep` afterwards.

        Returns
        -------
        (nodes, vocab) tensor
            One row for each node, in the order of the tree: the logits after the node's token, given the tokens so far
            and the ancestors of the node, but no other part of the tree.

        Raises
        ------
        ValueError
            If the tree is empty, deeper than `room` or contains ids outside the vocabulary, or if no branch of the last
            tree has been kept.
        """
        self._refuse_open_tree("feed_tree")
        tokens = self.lm.check_tokens(tree.tokens, "the tree")
        if not tokens:
            raise ValueError("the tree is empty: give at least one node")
        deepest = max(tree.depths) + 1
        if deepest > self.room:
            raise ValueError(
                f"the tree is {deepest} tokens deep, but there is room for {self.room} in the context of "
                f"{self.lm.context}: cut it to session.room"
            )
        logits = self._call(self._tokens[self._computed :], tokens, len(tokens), None if tree.is_chain else tree)
        self._computed = len(self._tokens)
        self._tree = tree
        return logits

    def keep(self, path: Sequence[int]) -> None:
        """Keep one branch of the tree that was just fed, and forget the rest.

        Parameters
        ----------
        path : sequence of int
            Nodes from the top of the tree downwards, each a child of the node before it. An empty path keeps nothing.
        """
        if self._tree is None:
            raise ValueError("keep: there is no tree; call feed_tree first, and keep once after each")
        path = ints(path, "keep needs a path of nodes (ints)")
        parent = -1
        for node in path:
            if not 0 <= node < len(self._tree) or self._tree.parents[node] != parent:
                raise ValueError(
                    f"{path} is not a path down the tree: node {node} is not a child of {parent} "
                    f"(parents: {self._tree.parents})"
                )
            parent = node
        self._cache.move(self._computed, path)
        self._tokens += [self._tree.tokens[node] for node in path]
        self._computed = len(self._tokens)
        self._tree = None

    def _refuse_open_tree(self, verb: str) -> None:
        if self._tree is not None:
            raise ValueError(f"{verb}: a tree has been fed; keep a branch of it first, or keep(()) to forget it")

    def _call(self, pending: list[int], tokens: list[int], rows: int, tree: TokenTree | None = None) -> torch.Tensor:
        """Compute `pending` (a chain) and then `tokens` (a chain, or the nodes of the tree). Return the last `rows`
        rows.
        """
        length = self._computed + len(pending) + len(tokens)
        if length > self._cache.reach:
            self._cache = self.lm.reach(self._cache, [self._tokens[: self._computed]], length)
        self.calls += 1
        (logits,), states = self._cache.call([pending + tokens], [self._computed], [rows], tree, self._layers)
        refuse_nan_and_forget([logits], self._cache, [self._computed])
        if self._layers:
            last = {layer: state[0, -rows:] for layer, state in states.items()}
            self.hidden = last[self._layers[0]] if self._single else last
            if self.prompt_hidden is None:
                prompt = {layer: state[0, : len(pending)] for layer, state in states.items()}
                self.prompt_hidden = prompt[self._layers[0]] if self._single else prompt
        return logits


def _hidden_layers(hidden: int | Sequence[int] | None, n_layers: int) -> tuple[int, ...]:
    given = [] if hidden is None else [hidden] if hasattr(hidden, "__index__") else hidden
    layers = tuple(ints(given, f"hidden={hidden!r} must be the number of a layer, or several"))
    for layer in layers:
        if not -n_layers - 1 <= layer <= n_layers:
            raise ValueError(
                f"hidden={hidden!r}: there is no layer {layer}; the model has hidden states 0 (embeddings) "
                f"to {n_layers} (after the final norm)"
            )
    return layers


def refuse_nan_and_forget(logits: list[torch.Tensor], cache, starts: list[int]) -> None:
    """Raise NaNLogits if some of the logits are NaN, and let the cache forget the call that gave them."""
    # The largest of some numbers is NaN if any of them is.
    tops = [rows.max() for rows in logits if rows.numel()]
    top = float(tops[0] if len(tops) == 1 else torch.stack(tops).max())
    if top != top:
        cache.forget(starts)
        raise NaNLogits(
            "the model returned logits that are NaN: its weights may be damaged, or its dtype too narrow "
            "(float16 overflows in models trained in bfloat16: load them in bfloat16 or float32)"
        )
