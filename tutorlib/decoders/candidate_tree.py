"""One call of the target for a whole tree of candidates: what lookups, lookahead, Medusa and EAGLE share."""

from typing import NamedTuple

import torch

from ..tree import ROOT, TokenTree
from ..warp import probabilities
from .acceptance import Accept, exact


class Checked(NamedTuple):
    """What came of a tree of candidates.

    Attributes
    ----------
    path : list of int
        The nodes of the tree that were accepted.
    tokens : list of int
        Their tokens, and one more.
    probs : float64 tensor, shape (tokens, vocab)
        What the target said in the place of each of the tokens.
    logits : tensor, shape (nodes + 1, vocab)
        What follows the text, and then what follows each node.
    """

    path: list[int]
    tokens: list[int]
    probs: torch.Tensor
    logits: torch.Tensor

    @property
    def last_row(self) -> int:
        """The row, of `logits` and of the session's hidden states, after which the last token was drawn."""
        return self.path[-1] + 1 if self.path else 0


def check_tree(session, text: list[int], tree: TokenTree, rng, warp, accept: Accept = exact) -> Checked:
    """Score a tree of candidates in one call, accept a way down it, and keep that branch in the session.

    With `exact` this is lossless: see `tutorlib.tree.walk`. Only the rows that the rule asks for are warped.

    Parameters
    ----------
    session : Session
        Holds all of `text` but its last token. Afterwards it holds all but the last of the new tokens.
    text : list of int
    tree : TokenTree
        What may follow the text; may be empty.
    rng, warp
    accept : function
        A rule of `tutorlib.decoders.acceptance`.
    """
    # The last token goes in as the root, so that row 0 is what follows the text and row n + 1 what follows node n.
    rooted = TokenTree([text[-1], *tree.tokens], [ROOT, *(parent + 1 for parent in tree.parents)])
    logits = session.feed_tree(rooted)
    rows = {}

    def probs_at(node):
        if node not in rows:
            history = text + [tree.tokens[above] for above in tree.path(node)]
            rows[node] = probabilities(logits[node + 1 : node + 2], warp, [history])[0]
        return rows[node]

    path, token = accept(tree, probs_at, rng)
    session.keep([0, *(node + 1 for node in path)])
    tokens = [tree.tokens[node] for node in path] + [token]
    return Checked(path, tokens, torch.stack([probs_at(node) for node in (ROOT, *path)]), logits)
