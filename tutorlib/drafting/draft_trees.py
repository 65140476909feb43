"""Choose which guesses of a draft network become candidates: a chain, a tree of a fixed shape, or a dynamic tree.

A shape is a function that takes a `Draft`, asks it for guesses level by level, and returns a `TokenTree`, and the rule
that checks it if this is not `exact`. Most shapes
take the most likely guesses, and nothing is random; `check_tree` then draws the tokens from the target. `drawn_tree`
and `drawn_chain` draw from the network, like a draft model, and are checked like the tokens of a draft model.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Sequence

import torch

from ..arguments import check_whole_number, is_number
from ..model.tree import ROOT, TokenTree
from ..sampling.checks import takes
from ..sampling.known_text import History
from ..sampling.warp import draft_probabilities, in_float64, one_hot
from .checking import Rule, exact
from .choices import Choices, checked_choices
from .rules import ChainRule, check_chain_rule, draft_token, ratio


class Draft:
    """A draft network's guesses after a text, level by level.

    Parameters
    ----------
    session : DraftSession
        Fed with the text, up to its last token.
    logits : tensor of shape (1, vocab)
        The logits that the session returned.
    text : list of int
    warp : sequence of functions
        The warps of the target. The tokens are drawn from the warped distribution, so the guesses are warped too. (A
        `one_hot` at the end is left out, because guesses are ranked by their probabilities even in greedy decoding.)
    depth : int
        The largest number of levels for which the context has room.
    rng : Randomness
        For shapes that draw their tokens.
    """

    def __init__(self, session, logits: torch.Tensor, text: list[int], warp, depth: int, rng=None):
        self.session, self.depth, self.text, self.rng = session, depth, text, rng
        self.warp = [function for function in warp if function is not one_hot]
        self.is_greedy = one_hot in warp
        self._logits = logits
        self._paths: list[list[int]] = [[]]  # the drafted tokens before each row of logits
        self._tokens: list[list[int]] = []  # for each node grown, the drafted tokens up to it

    def guesses(self, ranks: int, greedy_temperature: float = 1.0) -> tuple[list[list[int]], list[list[float]]]:
        """The most likely tokens after the text or, if the tree has nodes, after each node that was added last.

        Parameters
        ----------
        ranks : int
            How many tokens; at most the size of the vocabulary.
        greedy_temperature : float
            Temperature of the guesses in greedy decoding, see `dynamic_tree`.

        Returns
        -------
        tokens : list of lists of int, most likely first
        log_probs : list of lists of floats
            -inf for a token that the network does not know, or that a warp has filtered out.
        """
        log_probs = self._log_probs(greedy_temperature)
        best = log_probs.topk(min(ranks, log_probs.shape[-1]), dim=-1)
        return best.indices.tolist(), best.values.tolist()

    def probs(self) -> list[torch.Tensor | None]:
        """The distribution of the next token after the text or, if the tree has nodes, after each node that was added
        last.

        Returns
        -------
        list of float64 tensors of shape (vocab,)
            None in place of a distribution if no token is possible.
        """
        return draft_probabilities(self._logits, self.warp, self._histories())

    def _histories(self) -> list[History]:
        return [History(self.text, path) for path in self._paths]

    def _log_probs(self, greedy_temperature: float = 1.0) -> torch.Tensor:
        logits = self._logits.to(torch.promote_types(self._logits.dtype, torch.float32))  # half precision ranks ill
        if self.warp:  # a row that cannot be warped, or keeps nothing of what this network knows, gives no guess
            nothing = in_float64(torch.full_like(logits[0], -math.inf))
            rows = draft_probabilities(logits, self.warp, self._histories())
            logits = torch.stack([nothing if row is None else row.log() for row in rows])
        if self.is_greedy:
            logits = logits / greedy_temperature
        log_probs = logits.log_softmax(-1)
        return log_probs.nan_to_num(nan=-math.inf, neginf=-math.inf) if self.warp else log_probs

    def grow(self, tokens: Sequence[int], parents: Sequence[int]) -> None:
        """Let the network read guesses. Nodes are numbered from 0 in the order in which they are added; -1 is the
        text.
        """
        self._paths = [
            [*(self._tokens[parent] if parent != ROOT else ()), token]
            for token, parent in zip(tokens, parents, strict=True)
        ]
        self._tokens += self._paths
        self._logits = self.session.grow(tokens, parents)


# Returns what it drafted and, if the tokens were drawn at random, the rule by which they must be checked.
Shape = Callable[[Draft], TokenTree | tuple[TokenTree, Rule]]


def drafted_with_rule(shape: Shape, draft: Draft) -> tuple[TokenTree, Rule]:
    """What a shape drafts, and the rule that checks it: `exact`, unless the shape returns another."""
    made = shape(draft)
    return made if isinstance(made, tuple) else (made, exact)


def chain_draft(length: int, confidence: float = 0.0, greedy_temperature: float = 1.0) -> Shape:
    """A single path: the most likely token, then the most likely token after it, and so on.

    Parameters
    ----------
    length : int
        The number of tokens, 1 or more.
    confidence : float
        The chain ends early if the probability of the whole path, according to the network, is below this.
    greedy_temperature : float
        As in `dynamic_tree`.
    """
    check_whole_number(length, 1, "length is how many tokens the chain has")
    return dynamic_tree(length, length, top_k=1, confidence=confidence, greedy_temperature=greedy_temperature)


def static_tree(paths: Choices) -> Shape:
    """A tree of the same shape in every step, as in EAGLE-1: paths of ranks, see `tutorlib.drafting.choices`.

    Source: Li et al. (2024), "EAGLE: Speculative Sampling Requires Rethinking Feature Uncertainty", section 4.1.

    Parameters
    ----------
    paths : sequence of tuples of int
        ``(0, 2)`` is the third best guess after the best guess. Every beginning of a path is a node too.

    Raises
    ------
    ValueError
        If `paths` are not paths of ranks.
    """
    paths = checked_choices(paths)
    levels = [[path for path in paths if len(path) == depth] for depth in range(1, 1 + max(map(len, paths)))]

    def shape(draft: Draft) -> TokenTree:
        token_of: dict[tuple[int, ...], int] = {}
        row: dict[tuple[int, ...], int] = {(): 0}  # where the guesses after a path stand
        grown: dict[tuple[int, ...], int] = {(): ROOT}  # the network's number of a path
        for level in levels[: draft.depth]:
            if level is not levels[0]:
                above = list(dict.fromkeys(path[:-1] for path in level if path[:-1] in token_of))
                if not above:
                    break
                draft.grow([token_of[path] for path in above], [grown[path[:-1]] for path in above])
                grown |= {path: len(grown) - 1 + i for i, path in enumerate(above)}
                row = {path: i for i, path in enumerate(above)}
            tokens, log_probs = draft.guesses(1 + max(path[-1] for path in level))
            for path in level:
                after = row.get(path[:-1])
                if after is not None and path[-1] < len(tokens[after]) and log_probs[after][path[-1]] > -math.inf:
                    token_of[path] = tokens[after][path[-1]]
        node = {(): ROOT} | {path: number for number, path in enumerate(token_of)}
        return TokenTree(list(token_of.values()), [node[path[:-1]] for path in token_of])

    return shape


def drawn_tree(paths: Choices) -> Shape:
    """A tree of fixed shape whose tokens are *drawn* from the network's distribution, as in EAGLE-1 when sampling.

    The children of a node are drawn without replacement: each is drawn from the network's distribution q without the
    earlier children, normalised again. They are checked with min(1, p/q) and the residual, which is lossless; see
    `tutorlib.drafting.checking.drawn`. (The method then makes other random draws than `sample`. Its texts have the same
    distribution, but the same seed gives another text.)

    If tokens are drawn from the target, a drawn guess is accepted more often than the most likely token: with
    probability Σ min(p, q) instead of the p of that token. In greedy decoding nothing is drawn, and the tree is the
    same as `static_tree`; min(1, p/q) is then 0 or 1.

    Source: Li et al. (2024), "EAGLE: Speculative Sampling Requires Rethinking Feature Uncertainty", section 4.1 and
    appendix A. The check without replacement is also in Miao et al. (2024), "SpecInfer", and Jeon et al. (2024),
    "Recursive Speculative Decoding".

    Parameters
    ----------
    paths : sequence of tuples of int
        ``(0, 2)`` is the third token drawn after the first one drawn. Every beginning of a path is a node too, and so
        is every token drawn earlier after the same node. If fewer tokens are possible, a node has fewer children.

    Raises
    ------
    ValueError
        If `paths` are not paths of ranks.
    """
    return _drawn(paths, ratio)


def drawn_chain(length: int, rule: ChainRule = ratio) -> Shape:
    """A single path whose tokens are drawn from the network's distribution: a `drawn_tree` with one child after each
    node.

    Parameters
    ----------
    length : int
        The number of tokens, 1 or more.
    rule : function
        How the chain is checked: `ratio`, `block`, `match` or `match_drawn`, as for `speculative`. With `match`, the
        most likely tokens take the place of drawn ones.
    """
    check_whole_number(length, 1, "length is how many tokens the chain has")
    check_chain_rule(rule)
    return _drawn([(0,) * length], rule)


def _drawn(paths: Choices, rule: ChainRule) -> Shape:
    widths = Counter[tuple[int, ...]]()  # how many tokens are drawn after a path
    for path in checked_choices(paths):
        widths[path[:-1]] = max(widths[path[:-1]], path[-1] + 1)
    greedy = static_tree([(*path, rank) for path, width in widths.items() for rank in range(width)])

    def shape(draft: Draft) -> TokenTree | tuple[TokenTree, Rule]:
        if draft.is_greedy:
            return greedy(draft)
        tokens, parents, draft_probs = [], [], []
        level: dict[tuple[int, ...], int] = {(): ROOT}  # the nodes of the last level, by their paths
        grown = {ROOT: ROOT}  # the network's number of a node
        for deep in range(draft.depth):
            level = {path: node for path, node in level.items() if path in widths}
            if not level:
                break
            if deep:
                draft.grow([tokens[node] for node in level.values()], [grown[parents[node]] for node in level.values()])
                grown |= {node: len(grown) - 1 + i for i, node in enumerate(level.values())}
            above, level = level, {}
            for (path, node), probs in zip(above.items(), draft.probs(), strict=True):
                for rank in range(widths[path]):
                    probs = without(probs, tokens[-1]) if rank and probs is not None else probs
                    if probs is None:
                        break
                    level[(*path, rank)] = len(tokens)
                    tokens.append(draft_token(rule, probs, draft.rng))
                    parents.append(node)
                    draft_probs.append(probs)
        return TokenTree(tokens, parents), rule(draft_probs)

    return shape


def without(probs: torch.Tensor, token: int) -> torch.Tensor | None:
    """The distribution of the next draw if `token` cannot be drawn again; None if no token is left.

    Examples
    --------
    >>> without(torch.tensor([0.5, 0.25, 0.25]), 0)
    tensor([0.0000, 0.5000, 0.5000])
    """
    rest = probs.clone()
    rest[token] = 0
    total = float(rest.sum())
    return rest / total if total > 0 else None


def dynamic_tree(
    nodes: int = 59, depth: int = 8, top_k: int = 10, confidence: float = 0.0, greedy_temperature: float = 1.0
) -> Shape:
    """A tree that grows where the network's guesses are likely, as in EAGLE-2.

    At each level, the `top_k` most likely paths of the level before are extended by `top_k` guesses each. At the end,
    the `nodes` most likely candidates of all levels are kept. The probability of a path is the product of the
    probabilities that the network gives its guesses. It is roughly the probability that the whole path is accepted.

    An extended path is never more probable than the path itself. So if there are already `nodes` other candidates that
    are as probable, a path is not extended, and if no path is left to extend, the network is not called. The tree is
    the same, with less work.

    Source: Li et al. (2024), "EAGLE-2: Faster Inference of Language Models with Dynamic Draft Trees", section 4. The
    published settings are 60 nodes (including the last token of the text), 8 levels and 10 guesses.

    Parameters
    ----------
    nodes : int
        The largest number of candidates in the tree.
    depth : int
        The largest number of levels. The first level comes from the target's features; each further level takes a call
        of the network.
    top_k : int
        The number of paths that are extended at each level, and the number of guesses after each.
    confidence : float
        Paths that are less probable than this are not extended. Each level takes time, even if none of its tokens is
        accepted, so if the network is slow compared with its target, it is better not to extend unlikely paths.
    greedy_temperature : float
        In greedy decoding a guess is accepted if it is the target's most likely token, whatever its probability. So a
        good network's guess is accepted more often than its probability suggests. A temperature below 1 takes this into
        account and makes the tree deeper. The published trees use 1.

    Raises
    ------
    ValueError
        If a number is below 1, `confidence` is not a probability, or the temperature is not above 0.
    """
    check_whole_number(nodes, 1, "nodes is how many candidates the tree has")
    check_whole_number(depth, 1, "depth is how many levels the tree has")
    check_whole_number(top_k, 1, "top_k is how many guesses follow each node, and how many nodes are guessed on from")
    if not is_number(confidence) or not 0 <= confidence <= 1:
        raise ValueError(f"confidence must be a probability from 0 (guess on, however unsure) to 1, got {confidence!r}")
    if not is_number(greedy_temperature) or greedy_temperature <= 0:
        raise ValueError(f"greedy_temperature must be a finite number above 0, got {greedy_temperature!r}")
    least = math.log(confidence) if confidence else -math.inf

    def shape(draft: Draft) -> TokenTree:
        tokens, parents, scores = [], [], []  # of all candidates; a parent is a candidate too
        level = [ROOT]  # the candidates that are guessed on from
        grown = {ROOT: ROOT}  # the network's number of a candidate
        first = 0  # of the candidates of the last level
        for deep in range(min(depth, draft.depth)):
            if deep:
                best = heapq.nlargest(nodes, scores)
                worst = best[-1] if len(best) == nodes else -math.inf
                level = [i for i in range(first, len(scores)) if scores[i] > worst and scores[i] >= least]
                level = sorted(level, key=lambda i: -scores[i])[:top_k]
                if not level:
                    break
                draft.grow([tokens[i] for i in level], [grown[parents[i]] for i in level])
                grown |= {i: len(grown) - 1 + place for place, i in enumerate(level)}
            first = len(scores)
            for parent, ranked, log_probs in zip(level, *draft.guesses(top_k, greedy_temperature), strict=True):
                above = 0.0 if parent == ROOT else scores[parent]
                for token, log_prob in zip(ranked, log_probs, strict=True):
                    if log_prob > -math.inf:
                        tokens.append(token)
                        parents.append(parent)
                        scores.append(above + log_prob)
        # Candidates are numbered as they come, so that of two equal ones the earlier, a parent, is better.
        kept = sorted(heapq.nsmallest(nodes, range(len(scores)), key=lambda i: (-scores[i], i)))
        node = {ROOT: ROOT} | {candidate: number for number, candidate in enumerate(kept)}
        return TokenTree([tokens[i] for i in kept], [node[parents[i]] for i in kept])

    return shape


def check_shape(shape) -> None:
    """Raise ValueError unless `shape` is a function of a draft."""
    if not takes(shape, 1) or shape in (dynamic_tree, static_tree, chain_draft, drawn_chain, drawn_tree):
        raise ValueError(
            "shape must be a function of a draft, such as dynamic_tree(59, 8, 10), static_tree(paths) or "
            f"chain_draft(4), got {shape!r}"
        )
