"""One sequence over a model, with an undo: feed tokens, roll them back, try several ways at once, keep one of them.

What this file does not do: compute (`cache.py`, or `uncached.py`), or choose tokens (methods do).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch

from .arguments import ints
from .tree import TokenTree

if TYPE_CHECKING:
    from .lm import LM


class NaNLogits(ValueError):
    """The model returned logits that are not numbers."""


class Session:
    """One sequence over a model: its tokens, their cache, and verbs to go on, back, or several ways at once.

    Made by `LM.session(prompt)`. The prompt is computed at the first feed.

    Parameters
    ----------
    lm : LM
    prompt : str or sequence of int
    hidden : int or sequence of int, optional
        Layers whose hidden states are wanted after each call, counted as transformers counts them: 0 is the embeddings,
        i is what layer i puts out and layer i + 1 takes in, and the last one (also -1) has passed the final norm: it is
        what the output head reads.
    cache : {"dynamic", "static"}
        "dynamic" grows as needed. "static" allocates the whole context at once and keeps every shape the same from one
        call to the next, as `torch.compile` wants; slower without it.

    Attributes
    ----------
    prompt_length : int
    calls : int
        Forward calls so far, the prompt's included (the prompt's is the first feed's: they are one call).
    hidden : (rows, width) tensor, or a dict of them by layer, or None
        Hidden states of the last call, row for row with the logits it returned; a dict if several layers were asked
        for.
    prompt_hidden : like `hidden`, with prompt_length rows
        Hidden states of the prompt's tokens; None until it is computed.

    Examples
    --------
    >>> session = lm.session([3, 1, 4])                      # doctest: +SKIP
    >>> logits = session.feed()                              # (1, vocab): what follows the prompt
    >>> logits = session.feed([1, 5])                        # (2, vocab): what follows 1, and what follows 5
    >>> session.rollback(1)                                  # the 5 is forgotten
    """

    def __init__(self, lm: LM, prompt, hidden=None, cache: str = "dynamic"):
        if cache not in ("dynamic", "static"):
            raise ValueError(f'cache={cache!r} is not a kind of cache: use "dynamic" or "static"')
        self.lm = lm
        self.calls = 0
        self.hidden = None
        self.prompt_hidden = None
        self._tokens = lm.prompt_tokens(prompt)
        self.prompt_length = len(self._tokens)
        self._single = hasattr(hidden, "__index__")  # hidden states of one layer: a tensor, not a dict
        self._layers = _hidden_layers(hidden, lm.layers)
        self._cache = lm.open_cache(rows=1, static=cache == "static")
        self._computed = 0  # how many of the tokens are in the cache; the rest is a prompt not yet computed
        self._tree: TokenTree | None = None

    def __repr__(self) -> str:
        return f"Session({len(self._tokens)} tokens, room for {self.room}, {self.calls} calls)"

    @property
    def tokens(self) -> list[int]:
        """All tokens so far, the prompt's included (a copy). Tokens of a tree count once they are kept."""
        return list(self._tokens)

    @property
    def room(self) -> int:
        """How many more tokens fit into the context."""
        return self.lm.context - len(self._tokens)

    def feed(self, tokens: Iterable[int] = ()) -> torch.Tensor:
        """Add tokens, and get the logits of what follows each of them.

        Parameters
        ----------
        tokens : iterable of int
            May be empty at the first feed, which computes the prompt.

        Returns
        -------
        (rows, vocab) tensor, in the model's dtype and on its device
            One row for each token given. At the first feed the prompt's last row comes before them; the prompt's
            other rows are not computed.

        Raises
        ------
        ValueError
            If there is nothing to compute, more tokens than `room`, an id outside the vocabulary, or a tree of which
            no branch has been kept; `NaNLogits` if the model returns what is not a number. The session is unchanged.
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
        """Forget the last n tokens, of the prompt too if n reaches that far. Costs nothing."""
        (n,) = ints([n], "rollback needs how many tokens to forget, a whole number")
        self._refuse_open_tree("rollback")
        if not 0 <= n <= len(self._tokens):
            raise ValueError(f"rollback({n}): expected 0 to {len(self._tokens)}, the number of tokens so far")
        if n:
            del self._tokens[-n:]
            self._computed = min(self._computed, len(self._tokens))

    def advance_to(self, tokens: Sequence[int]) -> torch.Tensor:
        """Go to another sequence: back to what both begin with, then feed the rest.

        Parameters
        ----------
        tokens : sequence of int
            The whole sequence wanted, prompt included. Its last token is always fed, even if it is there already.

        Returns
        -------
        (rows, vocab) tensor
            As `feed` returns them; the last row tells what follows the sequence.
        """
        tokens = self.lm.check_tokens(tokens, "tokens")
        if not tokens:
            raise ValueError("advance_to needs the whole sequence wanted, prompt included, but got no tokens")
        self._refuse_open_tree("advance_to")
        if len(tokens) > self.lm.context:
            raise ValueError(f"a sequence of {len(tokens)} tokens does not fit the context of {self.lm.context}")
        common = min(len(self._tokens), len(tokens) - 1)
        if self._tokens[:common] != tokens[:common]:
            common = next(i for i in range(common) if self._tokens[i] != tokens[i])
        self.rollback(len(self._tokens) - common)
        return self.feed(tokens[common:])

    def feed_tree(self, tree: TokenTree) -> torch.Tensor:
        """Score every node of a tree in one call; `keep` must follow.

        Returns
        -------
        (nodes, vocab) tensor
            One row a node, in the tree's order: what follows the node's token, given the tokens so far and the node's
            ancestors, and nothing else of the tree.

        Raises
        ------
        ValueError
            If the tree is empty or deeper than `room`, holds ids outside the vocabulary, or another tree is open.
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
        """Keep one branch of the tree just fed, and forget the rest of it.

        Parameters
        ----------
        path : sequence of int
            Nodes from the top of the tree downwards, each the child of the one before; empty keeps nothing.
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
        """Compute `pending` (a chain) and then `tokens` (a chain, or the tree's nodes); the last `rows` rows."""
        length = self._computed + len(pending) + len(tokens)
        if length > self._cache.reach:
            self._cache = self.lm.reach(self._cache, [self._tokens[: self._computed]], length)
        self.calls += 1
        logits, states = self._cache.call([pending + tokens], [self._computed], rows, tree=tree, hidden=self._layers)
        logits = logits[0]
        refuse_nan(logits)
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


def refuse_nan(*logits: torch.Tensor) -> None:
    # The largest of some numbers is NaN if any of them is.
    tops = [rows.max() for rows in logits if rows.numel()]
    top = float(tops[0] if len(tops) == 1 else torch.stack(tops).max())
    if top != top:
        raise NaNLogits(
            "the model returned logits that are NaN: its weights may be damaged, or its dtype too narrow "
            "(float16 overflows in models trained in bfloat16: load them in bfloat16 or float32)"
        )
