"""How drafts are checked: a rule for drafts that were drawn at random, and one for those that were not.

Candidates are given as a `TokenTree`; the tokens of a draft model are a tree with one branch, a chain. A *rule* is a
function ``rule(tree, probs_at, rng) -> (path, token)``. ``probs_at(node)`` returns the target's warped probabilities
after a node, a float64 tensor of shape (vocab,); the node -1 stands for the end of the text. `path` is the list of
accepted nodes, from the top of the tree down, and `token` is the token after the last of them.

The rule `exact` checks candidates that were not drawn at random (for example looked up in the text, or the most likely
tokens of a network). The rule `drawn` checks tokens that were drawn from a draft's probabilities. Both are *lossless*:
the tokens they emit have the target's distribution. `check_tree` scores the candidates in one call of the target and
applies a rule. What this file does not do: other rules for the chain of a draft model (`rules.py`), and rules that
change the distribution (`lossy_rules.py`).

Sometimes a row cannot be warped, for example because the filters leave no token in it. This is an error only if plain
sampling would have come to the same row. After an accepted token, such a row ends the round: the returned token is
None. The next round begins with this row and raises the error, unless the run is over by then.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from ..model.tree import ROOT, TokenTree
from ..running.step import Candidates, Step
from ..sampling.checks import takes, warp_names
from ..sampling.known_text import History
from ..sampling.randomness import Randomness
from ..sampling.warp import probabilities, reads_histories

# Up to this many logits, a softmax over all rows takes no longer than over two or three rows one by one.
FEW_NUMBERS = 2**13

ProbsAt = Callable[[int], torch.Tensor]
Rule = Callable[[TokenTree, ProbsAt, Randomness], tuple[list[int], int | None]]


class NotWarped(ValueError):
    """The row after a candidate cannot be warped. If a rule has accepted this candidate, the round ends there."""


class Rows:
    """The target's probabilities after each node of a tree, which are warped only when a rule needs them.

    Parameters
    ----------
    logits : tensor, shape (nodes + 1, vocab)
        The logits after the text, and then those after each node.
    warp : sequence of functions
    text : list of int
    tree : TokenTree

    Raises
    ------
    NotWarped
        If the row of a node cannot be warped. For the row after the text, the original error is raised.
    """

    def __init__(self, logits: torch.Tensor, warp, text: list[int], tree: TokenTree):
        self.logits, self.warp, self.text, self.tree = logits, warp, text, tree
        self._probs: dict[int, torch.Tensor] = {}
        # In a chain most rows are needed, and warping all of them at once is faster. In a small tree, so is a plain
        # softmax, or one_hot, over all rows.
        if tree.is_chain or (logits.numel() <= FEW_NUMBERS and not reads_histories(warp)):
            with contextlib.suppress(Exception):  # if one row cannot be warped, each is warped when it is needed
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
            histories = [
                History(self.text, [self.tree.tokens[above] for above in self.tree.path(node)]) for node in nodes
            ]
        return probabilities(self.logits[nodes[0] + 1 : nodes[-1] + 2], self.warp, histories)


# ----------------------------------------------------------------------------------------------------------------------
# Candidates that were not drawn at random


def walk(tree: TokenTree, choose_at: Callable[[int], int], start: int = ROOT) -> tuple[list[int], list[int]]:
    """Go down a tree of candidates that were not drawn at random, and draw each token from the target.

    At each node, draw a token from the target's warped distribution. If a child has this token, go to the child;
    otherwise stop. The result is lossless by construction: every token is drawn from the target's own distribution, and
    the tree only decides how many tokens are drawn in one step.

    Parameters
    ----------
    tree : TokenTree
    choose_at : callable
        `choose_at(node) -> token` draws the token that follows `node`; -1 stands for the session's last token.
    start : int
        The node to start from: -1 (default), or a node whose token is already accepted.

    Returns
    -------
    path : list of int
        The nodes passed below `start`. (`Session.keep` needs them after the path to `start`.)
    tokens : list of int
        Their tokens, and at the end the token that no child has, so one more than in `path`. The last token is missing
        if `choose_at` raises `NotWarped`.
    """
    node, path, tokens = start, [], []
    while True:
        try:
            token = int(choose_at(node))
        except NotWarped:
            return path, tokens
        tokens.append(token)
        child = next((child for child in tree.children(node) if tree.tokens[child] == token), None)
        if child is None:
            return path, tokens
        path.append(child)
        node = child


def exact(tree: TokenTree, probs_at: ProbsAt, rng: Randomness) -> tuple[list[int], int | None]:
    """Draw each token from the target, and continue as long as the tree contains it. *Lossless*: see `walk`."""
    path, tokens = walk(tree, lambda node: rng.choose(probs_at(node)))
    return path, tokens[-1] if len(tokens) > len(path) else None


# ----------------------------------------------------------------------------------------------------------------------
# Candidates that were drawn at random


def drawn(draft_probs: Sequence[torch.Tensor]) -> Rule:
    """Keep each drafted token with probability min(1, p/q); if it is rejected, draw from the normalised max(p - q, 0).

    *Lossless*. With one child after each node, the token has the distribution p. It is x with probability q(x) · min(1,
    p(x)/q(x)) = min(p(x), q(x)) because x was drafted and kept; the rest, p(x) - min(p(x), q(x)), comes from the
    `residual`. If a node has several children, they are tried in the order in which they were drawn. After a rejection,
    the token must have the distribution of the residual. So the residual takes the place of p, and the next child is
    checked in the same way. Only if all children are rejected is the token drawn from the last residual. If a node has
    no children, the token is drawn from p, as a bonus.

    Source: Leviathan, Kalman and Matias (2023), "Fast Inference from Transformers via Speculative Decoding", algorithm
    1, proof in appendix A.1; Chen et al. (2023), "Accelerating Large Language Model Decoding with Speculative
    Sampling", algorithm 2. With several children: Li et al. (2024), "EAGLE: Speculative Sampling Requires Rethinking
    Feature Uncertainty".

    Parameters
    ----------
    draft_probs : sequence of float64 tensors of shape (vocab,)
        For each node, the distribution q from which its token was actually drawn, after warps. If children were drawn
        without replacement, this is q without the earlier children, normalised again.

    Returns
    -------
    function, a rule
        It raises ValueError if a drafted token has probability 0 in its row of `draft_probs`, because it was then drawn
        from another distribution.
    """

    def accept_drawn(tree, probs_at, rng):
        path, node = [], ROOT
        while True:
            row = row_or_none(probs_at, node)
            if row is None:
                return path, None
            for child in tree.children(node):
                if rng.accept(float(row[tree.tokens[child]]) / prob_drawn(tree, child, draft_probs)):
                    path.append(child)
                    node = child
                    break
                row = residual(row, draft_probs[child])
            else:
                return path, rng.choose(row)

    return accept_drawn


def prob_drawn(tree: TokenTree, node: int, draft_probs: Sequence[torch.Tensor]) -> float:
    """The probability with which the token of a node was drawn; ValueError if it is 0."""
    token = tree.tokens[node]
    prob = float(draft_probs[node][token])
    if not prob > 0:
        raise ValueError(
            f"token {token}, drafted at node {node}, has probability {prob} in draft_probs: they must be the "
            "probabilities it was drawn from"
        )
    return prob


def check_sampled(
    drafted: Sequence[int],
    draft_probs: torch.Tensor | Sequence[torch.Tensor],
    target_probs: torch.Tensor,
    rng: Randomness,
) -> tuple[int, int | None]:
    """Apply the rule `drawn` to a chain whose rows have all been computed.

    Parameters
    ----------
    drafted : sequence of int, length n
    draft_probs : float64 tensor, shape (n, vocab), or n rows of shape (vocab,)
    target_probs : float64 tensor, shape (n + 1, vocab)
        Row i holds the target's probabilities after the text and the first i drafted tokens.
    rng : Randomness

    Returns
    -------
    accepted : int
        How many drafted tokens are kept. They are the first ones.
    token : int
        The token after them.
    """
    path, token = drawn(list(draft_probs))(TokenTree.chain(drafted), lambda node: target_probs[node + 1], rng)
    return len(path), token


def residual(target_row: torch.Tensor, draft_row: torch.Tensor) -> torch.Tensor:
    """The part of p that exceeds q: max(p - q, 0), divided by its sum.

    If p and q are equal except for rounding, the sum may be 0; then p itself is returned. (A token is almost never
    rejected in that case, but it can happen.)

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


def check_rule(rule) -> None:
    """Raise ValueError unless `rule` is a function (tree, probs_at, rng) -> (path, token)."""
    if not takes(rule, 3):
        raise ValueError(
            "rule must be a function (tree, probs_at, rng) -> (path, token), such as exact or "
            f"typical_acceptance(0.09, 0.3), got {warp_names([rule])}: typical is the filter, typical_acceptance is "
            "the rule"
        )


def row_or_none(probs_at: ProbsAt, node: int) -> torch.Tensor | None:
    """The target's probabilities after a node; None if the row cannot be warped, and the round ends."""
    try:
        return probs_at(node)
    except NotWarped:
        return None


# ----------------------------------------------------------------------------------------------------------------------
# One call of the target


class Checked(NamedTuple):
    """The result of checking a tree of drafted tokens.

    Attributes
    ----------
    drafted : TokenTree
    path : list of int
        The nodes of the tree that were accepted.
    tokens : list of int
        Their tokens, and one more token (unless the row after them cannot be warped).
    alternatives : Candidates
        The target's most likely tokens, after warps, at the position of each of the tokens.
    logits : tensor, shape (nodes + 1, vocab)
        The logits after the text, and then those after each node.
    """

    drafted: TokenTree
    path: list[int]
    tokens: list[int]
    alternatives: Candidates
    logits: torch.Tensor

    @property
    def rows(self) -> list[int]:
        """For each token, the row of `logits` (and of the session's hidden states) from which it was chosen."""
        return [0, *(node + 1 for node in self.path)][: len(self.tokens)]

    def step(self, tree: bool = False) -> Step:
        """The step to yield: with the drafted tokens as a chain, or as a tree and the path accepted in it."""
        step = Step(self.tokens, self.drafted.tokens, len(self.path), candidates=self.alternatives)
        if tree:
            step.tree, step.path = self.drafted or None, tuple(self.path)
        return step


def check_tree(
    session, text: list[int], drafted: TokenTree, rng, warp, rule: Rule = exact, *, every_row: bool = False
) -> Checked:
    """Score candidates in one call, accept a path down their tree, and keep this path in the session.

    Parameters
    ----------
    session : Session
        It must hold all of `text` except its last token. Afterwards it holds all new tokens except the last.
    text : list of int
        It may grow afterwards, but what it holds must not change (see `History`).
    drafted : TokenTree
        The tokens that may follow the text; may be empty. At most ``lm.context - len(text) - 1`` tokens deep, so
        that the context also has room for the token after the path.
    rng, warp
    rule : function
        Only the rows that it needs are warped; the rows of a chain are warped together.
    every_row : bool
        Whether candidates are scored that a grammar among the warps refuses, because the caller reads their logits.

    Raises
    ------
    ValueError
        If the session holds a different number of tokens.
    """
    held = session.lm.context - session.room  # computed like this, no list of tokens has to be copied
    if held != len(text) - 1:
        raise ValueError(
            f"the session holds {held} tokens and the text {len(text)}: check_tree feeds the last token "
            "of the text itself, so call session.rollback(1) before the first step"
        )
    if rule is exact and not every_row:
        drafted = without_refused(drafted, text, warp)
    # The last token is fed as the root, so row 0 belongs to the token after the text, and row n + 1 to that after node
    # n.
    rooted = TokenTree([text[-1], *drafted.tokens], [ROOT, *(parent + 1 for parent in drafted.parents)])
    checked = check_logits(session.feed_tree(rooted), text, drafted, rng, warp, rule)
    session.keep(checked.rows)
    return checked


def without_refused(drafted: TokenTree, text: list[int], warp) -> TokenTree:
    """The candidates that a grammar among the warps allows: no draw could reach the others, so no call is wider for
    them.
    """
    for grammar in warp:
        if len(drafted) and hasattr(grammar, "following"):
            kept = grammar.following(text, drafted)
            if len(kept) < len(drafted):
                number = {ROOT: ROOT, **{node: place for place, node in enumerate(kept)}}
                drafted = TokenTree(
                    [drafted.tokens[node] for node in kept], [number[drafted.parents[node]] for node in kept]
                )
    return drafted


def check_logits(logits: torch.Tensor, text: list[int], drafted: TokenTree, rng, warp, rule: Rule = exact) -> Checked:
    """Like `check_tree`, for candidates whose logits (nodes + 1, vocab) are already known."""
    probs_at = Rows(logits, warp, text, drafted)
    path, token = rule(drafted, probs_at, rng)
    tokens = [drafted.tokens[node] for node in path] + ([] if token is None else [token])
    rows = [0, *(node + 1 for node in path)][: len(tokens)]
    histories = [History(text, tokens[:count]) for count in range(len(tokens))] if reads_histories(warp) else None
    return Checked(drafted, path, tokens, Candidates(logits[rows], warp=warp, histories=histories), logits)


# The name of the release before.
check = check_logits
