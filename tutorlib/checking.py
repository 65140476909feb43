"""How drafts are checked: one rule for tokens that were drawn, one for tokens that were not, and one that is lossy.

Candidates are a `TokenTree`; a draft model's tokens are a tree with one branch, a chain. A *rule* is a function
``accept(tree, probs_at, rng) -> (path, token)``. ``probs_at(node)`` gives the target's warped probabilities after a
node, a float64 tensor of shape (vocab,), where -1 stands for the text itself. `path` are the nodes accepted, from the
top of the tree down, and `token` is what comes after the last of them.

Candidates that were not drawn (found, looked up, or the best of many) are checked by `exact`, tokens drawn from
probabilities of their own by `drawn`. Both are *lossless*: everything that they emit has the target's distribution.
`typical_acceptance` is *lossy*. `check_tree` scores the candidates in one call of the target and applies a rule.

A row that cannot be warped, because the filters leave it no token for instance, is an error only where plain sampling
would have met it. After an accepted token such a row ends the round: the token is None, and the next round, which has
the row in front, raises its error, unless the run is over by then.
"""

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from .arguments import is_number
from .randomness import Randomness
from .step import Candidates
from .tree import ROOT, TokenTree
from .warp import probabilities, reads_histories, takes, warp_names

# Up to so many logits, a softmax over all rows takes no longer than one over two or three of them, one by one.
FEW_NUMBERS = 2**13

ProbsAt = Callable[[int], torch.Tensor]
Accept = Callable[[TokenTree, ProbsAt, Randomness], tuple[list[int], int | None]]


class NotWarped(ValueError):
    """The row after a candidate cannot be warped. A rule that has accepted the candidate ends the round there."""


class Rows:
    """The target's probabilities after each node of a tree, warped when a rule asks for them.

    Parameters
    ----------
    logits : tensor, shape (nodes + 1, vocab)
        What follows the text, and then what follows each node.
    warp : sequence of functions
    text : list of int
    tree : TokenTree

    Raises
    ------
    NotWarped
        When asked for a node's row that cannot be warped. The error of the text's own row is raised as it is.
    """

    def __init__(self, logits: torch.Tensor, warp, text: list[int], tree: TokenTree):
        self.logits, self.warp, self.text, self.tree = logits, warp, text, tree
        self._probs: dict[int, torch.Tensor] = {}
        # Most of a chain's rows are asked for, and warping all of them in one go is quicker. So is a softmax alone, or
        # its one-hot counterpart, over all rows of a tree that is small.
        if tree.is_chain or (logits.numel() <= FEW_NUMBERS and not reads_histories(warp)):
            with contextlib.suppress(Exception):  # where one of them cannot be warped, each is when it is asked for
                nodes = [ROOT, *range(len(tree))]
                self._probs = dict(zip(nodes, self._warped(nodes).unbind(), strict=True))

    def __call__(self, node: int) -> torch.Tensor:
        if node not in self._probs:
            try:
                self._probs[node] = self._warped([node])[0]
            except Exception as error:  # a warp may be anybody's, and raise anything
                if node == ROOT:
                    raise
                raise NotWarped(str(error)) from error
        return self._probs[node]

    def _warped(self, nodes: list[int]) -> torch.Tensor:
        histories = None
        if reads_histories(self.warp):
            histories = [self.text + [self.tree.tokens[above] for above in self.tree.path(node)] for node in nodes]
        return probabilities(self.logits[nodes[0] + 1 : nodes[-1] + 2], self.warp, histories)


# ----------------------------------------------------------------------------------------------------------------------
# Candidates that were not drawn


def walk(tree: TokenTree, choose_at: Callable[[int], int], start: int = ROOT) -> tuple[list[int], list[int]]:
    """Go down a tree of deterministic candidates, drawing each token from the target; exact by construction.

    At a node, draw one token from the (warped) target. If a child holds it, go there; otherwise it is the last token.
    Every token is drawn from the target's own distribution, and the tree only decides how many are drawn in one step.

    Parameters
    ----------
    tree : TokenTree
    choose_at : callable
        `choose_at(node) -> token` draws the token that follows `node`; -1 stands for the session's last token.
    start : int
        Where to begin: -1 (default), or a node that is known to be right, such as a root holding the last token drawn.

    Returns
    -------
    path : list of int
        The nodes passed, below `start`: what `Session.keep` wants (after `start`'s own path).
    tokens : list of int
        Their tokens and, at the end, the one that no child held: one more than `path`. That one is missing where
        `choose_at` raises `NotWarped`.
    """
    node, path, tokens = start, [], []
    while True:
        try:
            token = int(choose_at(node))
        except NotWarped:
            return path, tokens
        tokens.append(token)
        node = next((child for child in tree.children(node) if tree.tokens[child] == token), None)
        if node is None:
            return path, tokens
        path.append(node)


def exact(tree: TokenTree, probs_at: ProbsAt, rng: Randomness) -> tuple[list[int], int | None]:
    """Draw each token from the target, and go on as long as the tree holds it: *lossless*, see `walk`."""
    path, tokens = walk(tree, lambda node: rng.choose(probs_at(node)))
    return path, tokens[-1] if len(tokens) > len(path) else None


# ----------------------------------------------------------------------------------------------------------------------
# Candidates that were drawn


def drawn(draft_probs: Sequence[torch.Tensor]) -> Accept:
    """Keep each drafted token with probability min(1, p/q); where none is kept, draw from what p has more than q.

    *Lossless*. With one child after each node, kept or redrawn, a token has the distribution p: it is x with
    probability q(x) · min(1, p(x)/q(x)) = min(p(x), q(x)) by being drafted and kept, and with what p(x) has above that
    by the `residual`. Several children are tried in the order in which they were drawn. After a rejection a token is
    due that has the distribution of the residual, so that takes the place of p, and the next child is checked in the
    same way; only when no child is kept is the token drawn. After a node without children it is a bonus.

    Source: Leviathan, Kalman and Matias (2023), "Fast Inference from Transformers via Speculative Decoding", algorithm
    1, proof in appendix A.1; Chen et al. (2023), "Accelerating Large Language Model Decoding with Speculative
    Sampling", algorithm 2. With several children: Li et al. (2024), "EAGLE: Speculative Sampling Requires Rethinking
    Feature Uncertainty".

    Parameters
    ----------
    draft_probs : sequence of float64 tensors of shape (vocab,)
        For each node the distribution q that it was really drawn from, warps included: where children were drawn
        without replacement, q without the earlier children, made to sum to 1 again.

    Returns
    -------
    function, a rule
        It raises ValueError when a drafted token has probability 0 in its row of `draft_probs`: it was drawn from
        another distribution.
    """

    def accept_drawn(tree, probs_at, rng):
        path, node = [], ROOT
        while True:
            row = row_or_none(probs_at, node)
            if row is None:
                return path, None
            for child in tree.children(node):
                token = tree.tokens[child]
                draft_prob = float(draft_probs[child][token])
                if not draft_prob > 0:
                    raise ValueError(
                        f"token {token}, drafted in place {child}, has probability {draft_prob} in draft_probs: they "
                        "must be the probabilities it was drawn from"
                    )
                if rng.accept(float(row[token]) / draft_prob):
                    path.append(child)
                    node = child
                    break
                row = residual(row, draft_probs[child])
            else:
                return path, rng.choose(row)

    return accept_drawn


def check_sampled(
    drafted: Sequence[int],
    draft_probs: torch.Tensor | Sequence[torch.Tensor],
    target_probs: torch.Tensor,
    rng: Randomness,
) -> tuple[int, int]:
    """The rule `drawn` for a draft whose rows are all there.

    Parameters
    ----------
    drafted : sequence of int, length n
    draft_probs : float64 tensor, shape (n, vocab), or n rows of shape (vocab,)
    target_probs : float64 tensor, shape (n + 1, vocab)
        Row i is what the target says after the text and the first i drafted tokens.
    rng : Randomness

    Returns
    -------
    accepted : int
        How many drafted tokens are kept, from the front.
    token : int
        The one after them.
    """
    path, token = drawn(draft_probs)(TokenTree.chain(drafted), lambda node: target_probs[node + 1], rng)
    return len(path), token


def residual(target_row: torch.Tensor, draft_row: torch.Tensor) -> torch.Tensor:
    """What the target has more than the draft: max(p - q, 0), divided by its sum.

    Where p and q are equal but for rounding, nothing may be left: then p itself. (A token is hardly ever rejected
    there, but hardly ever is not never.)

    Parameters
    ----------
    target_row, draft_row : tensors of floats, shape (vocab,)
        Each sums to 1.

    Returns
    -------
    tensor of floats, shape (vocab,), that sums to 1

    Examples
    --------
    >>> residual(torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.75, 0.0, 0.25]))
    tensor([0., 1., 0.])
    """
    excess = (target_row - draft_row).clamp(min=0)
    total = float(excess.sum())
    return excess / total if total > 0 else target_row


# ----------------------------------------------------------------------------------------------------------------------
# Candidates that are likely enough


def typical_acceptance(epsilon: float = 0.09, delta: float = 0.3) -> Accept:
    """Accept every candidate that the target finds likely enough: p(x) > min(ε, δ·exp(−H(p))).

    *Lossy*. Where the target is sure, its entropy H is near 0 and a candidate needs a probability of almost δ or ε,
    whichever is less; where it is not, less will do. Of the paths on which every candidate is accepted the longest is
    kept, of equally long ones the most probable. Nothing is drawn for them: the only random draw is that of the token
    after the path, from the target. (The authors' code takes that token greedily too, as the root of the next tree.)

    Source: Cai et al. (2024), "Medusa", section 2.3.1. In the authors' runs ε = 0.09, a cap, and δ = 0.3 = √ε, a
    factor. A function in the same code, and a survey that quotes it, has the two swapped.

    Parameters
    ----------
    epsilon : float
        From 0 (all candidates of any probability) to 1.
    delta : float
        Above 0.

    Returns
    -------
    function, a rule

    Raises
    ------
    ValueError
        For a number outside these bounds.
    """
    if not is_number(epsilon) or not 0 <= epsilon <= 1:
        raise ValueError(f"epsilon, the cap on the probability asked for, must be from 0 to 1, got {epsilon!r}")
    if not is_number(delta) or delta <= 0:
        raise ValueError(f"delta, the factor of exp(-entropy), must be a finite number above 0, got {delta!r}")

    def accept_typical(tree, probs_at, rng):
        logs = {ROOT: (0, 0.0)}  # accepted node -> its depth, and the log-probability of its path
        rows = {}  # after which nodes the target has been asked
        for node, (token, parent) in enumerate(zip(tree.tokens, tree.parents, strict=True)):
            if parent not in logs:
                continue
            if parent not in rows:
                rows[parent] = row_or_none(probs_at, parent)
            if rows[parent] is None:
                continue
            prob = float(rows[parent][token])
            if prob > threshold(rows[parent], epsilon, delta):
                depth, log = logs[parent]
                logs[node] = depth + 1, log + math.log(prob)
        best = max(logs, key=lambda node: logs[node])
        row = rows[best] if best in rows else row_or_none(probs_at, best)
        return tree.path(best), None if row is None else rng.choose(row)

    return accept_typical


def threshold(probs: torch.Tensor, epsilon: float, delta: float) -> float:
    """What probability `typical_acceptance` asks for where the target says `probs`: min(ε, δ·exp(−H)), H in nats.

    Examples
    --------
    >>> round(threshold(torch.tensor([1.0, 0.0]), 0.09, 0.3), 6), round(threshold(torch.full((10,), 0.1), 0.09, 0.3), 6)
    (0.09, 0.03)
    """
    entropy = float(torch.special.entr(probs).sum())
    return min(epsilon, delta * math.exp(-entropy))


def check_rule(accept) -> None:
    """Raise ValueError for anything but a rule (tree, probs_at, rng) -> (path, token)."""
    if not takes(accept, 3):
        raise ValueError(
            "accept must be a rule (tree, probs_at, rng) -> (path, token), such as exact or "
            f"typical_acceptance(0.09, 0.3), got {warp_names([accept])}: typical is the filter, typical_acceptance is "
            "the rule"
        )


def row_or_none(probs_at: ProbsAt, node: int) -> torch.Tensor | None:
    """The target's probabilities after a node; None where they cannot be had, and the round ends."""
    try:
        return probs_at(node)
    except NotWarped:
        return None


# ----------------------------------------------------------------------------------------------------------------------
# One call of the target


class Checked(NamedTuple):
    """What came of a tree of candidates.

    Attributes
    ----------
    path : list of int
        The nodes of the tree that were accepted.
    tokens : list of int
        Their tokens, and one more (unless the row after them cannot be warped).
    weighed : Candidates
        What the target said, warped, in the position of each of the tokens.
    logits : tensor, shape (nodes + 1, vocab)
        What follows the text, and then what follows each node.
    """

    path: list[int]
    tokens: list[int]
    weighed: Candidates
    logits: torch.Tensor

    @property
    def rows(self) -> list[int]:
        """For each token the row, of `logits` and of the session's hidden states, after which it came."""
        return [0, *(node + 1 for node in self.path)][: len(self.tokens)]


def check_tree(session, text: list[int], tree: TokenTree, rng, warp, accept: Accept = exact) -> Checked:
    """Score candidates in one call, accept a way down their tree, and keep that branch in the session.

    Parameters
    ----------
    session : Session
        Holds all of `text` but its last token. Afterwards it holds all but the last of the new tokens.
    text : list of int
    tree : TokenTree
        What may follow the text; may be empty. At most ``lm.context - len(text) - 1`` tokens deep, so that the token
        that is drawn after it has room too.
    rng, warp
    accept : function
        A rule. Only the rows that it asks for are warped, but for a chain, whose rows are warped together.

    Raises
    ------
    ValueError
        For a session that holds another number of tokens.
    """
    held = session.lm.context - session.room  # asked for so, no list of tokens is copied in every step
    if held != len(text) - 1:
        raise ValueError(
            f"the session holds {held} tokens and the text {len(text)}: check_tree feeds the last token "
            "of the text itself, so call session.rollback(1) before the first step"
        )
    # The last token goes in as the root, so that row 0 is what follows the text and row n + 1 what follows node n.
    rooted = TokenTree([text[-1], *tree.tokens], [ROOT, *(parent + 1 for parent in tree.parents)])
    checked = check(session.feed_tree(rooted), text, tree, rng, warp, accept)
    session.keep(checked.rows)
    return checked


def check(logits: torch.Tensor, text: list[int], tree: TokenTree, rng, warp, accept: Accept = exact) -> Checked:
    """Apply a rule to candidates whose logits (nodes + 1, vocab) are known; otherwise as `check_tree`."""
    probs_at = Rows(logits, warp, text, tree)
    path, token = accept(tree, probs_at, rng)
    tokens = [tree.tokens[node] for node in path] + ([] if token is None else [token])
    rows = [0, *(node + 1 for node in path)][: len(tokens)]
    histories = [text + tokens[:count] for count in range(len(tokens))] if reads_histories(warp) else None
    return Checked(path, tokens, Candidates(logits[rows], warp=warp, histories=histories), logits)
