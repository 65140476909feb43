"""Choose the tree of candidates for Medusa from how often the guesses of each head are right.

Medusa's tree has the same shape in every step; only the tokens in it change. So it is given by *choices*, which are
paths of ranks. For example, ``(0, 2)`` is the third best guess of head 1 after the best guess of head 0. Every
beginning of a path is a node too.
"""

import heapq
import math
from collections.abc import Iterable, Sequence

from ..arguments import check_whole_number, takes_iterators

Choices = Sequence[tuple[int, ...]]
Accuracies = Sequence[Sequence[float]]


def usual_accuracies(heads: int, vocab_size: int) -> list[list[float]]:
    """Rough values of how often guesses of ranks 0, 1, 2, ... are right, for each head, if nothing has been measured.

    These are round numbers: the best guess of head 0 is right in 6 of 10 cases, the best guess of each later head 3/4
    as often as that of the head before it, and a guess of rank r 1/(5r) as often as the best one.

    Examples
    --------
    >>> [[round(share, 3) for share in row] for row in usual_accuracies(2, 3)]
    [[0.6, 0.12, 0.06], [0.45, 0.09, 0.045]]
    """
    best = [0.6 * 0.75**head for head in range(heads)]
    return [[share / (5 * rank or 1) for rank in range(min(vocab_size, 10))] for share in best]


@takes_iterators
def grow(accuracies: Accuracies, nodes: int) -> list[tuple[int, ...]]:
    """The tree with this many nodes that should give the most tokens: always add the node that is most likely to be
    right.

    A node is right if all guesses on its path are right. Heads are assumed to be right independently of each other, so
    the probability of a node is a product. It is never higher than that of the node above it, and therefore the greedy
    choice gives the best tree.

    Source: Cai et al. (2024), "Medusa", section 2.3.3.

    Parameters
    ----------
    accuracies : sequence of sequences of floats
        ``accuracies[i][rank]``: how often head i's guess of that rank is the right token.
    nodes : int
        The number of nodes, 1 or more. The tree has fewer if there are not that many guesses.

    Returns
    -------
    list of tuples of int
        The nodes in the order in which they were added. The first n of them are the best tree of n nodes.

    Raises
    ------
    ValueError
        If the accuracies are not shares from 0 to 1, or `nodes` is below 1.

    Examples
    --------
    >>> grow([[0.6, 0.2], [0.5, 0.1]], nodes=4)
    [(0,), (0, 0), (1,), (1, 0)]
    """
    check_whole_number(nodes, 1, "nodes is how many candidates the tree holds")
    accuracies = checked_accuracies(accuracies)
    chosen: list[tuple[int, ...]] = []
    frontier: list[tuple[float, tuple[int, ...]]] = [(-right, (rank,)) for rank, right in enumerate(accuracies[0])]
    heapq.heapify(frontier)
    while frontier and len(chosen) < nodes:
        right, path = heapq.heappop(frontier)
        chosen.append(path)
        if len(path) < len(accuracies):
            for rank, accuracy in enumerate(accuracies[len(path)]):
                heapq.heappush(frontier, (right * accuracy, (*path, rank)))
    return chosen


@takes_iterators
def expected_tokens(accuracies: Accuracies, choices: Choices) -> float:
    """The expected number of tokens per step: 1, for the token that the target adds, plus the probability of each node.

    Source: Cai et al. (2024), section 2.3.3.

    Raises
    ------
    ValueError
        If there is no accuracy for the head or rank of a node.

    Examples
    --------
    >>> expected_tokens([[0.6, 0.2], [0.5, 0.1]], [(0,), (0, 0), (1,)])
    2.1
    """
    accuracies, choices = checked_accuracies(accuracies), checked_choices(choices)
    for path in choices:
        if len(path) > len(accuracies) or path[-1] >= len(accuracies[len(path) - 1]):
            raise ValueError(f"the tree has the path {path}, but there is no accuracy for the guess at its end")
    return 1 + math.fsum(math.prod(accuracies[depth][rank] for depth, rank in enumerate(path)) for path in choices)


@takes_iterators
def best_size(accuracies: Accuracies, call_seconds: Sequence[float], heads_seconds: float = 0.0) -> int:
    """The number of nodes that gives the most tokens per second, from measured times of calls.

    Parameters
    ----------
    accuracies
        As for `grow`.
    call_seconds : sequence of floats
        Time of a target call with 1, 2, 3, ... tokens; a tree of n nodes is checked by a call of n + 1 tokens. Only
        trees for which there is a time are considered.
    heads_seconds : float
        Time of a step besides the target call, in the same unit.

    Returns
    -------
    int
        0 if no tree is faster than plain decoding.

    Examples
    --------
    >>> best_size([[0.6, 0.2], [0.5, 0.1]], [2.0, 2.1, 2.2, 4.0])
    2
    """
    if not len(call_seconds) or not all(0 < seconds < math.inf for seconds in call_seconds):
        raise ValueError(f"call_seconds must be times of calls with 1, 2, 3, ... tokens, got {list(call_seconds)}")
    if len(call_seconds) == 1:
        return 0
    choices = grow(accuracies, len(call_seconds) - 1)
    speeds = [1 / call_seconds[0]]  # plain decoding, without heads
    for nodes in range(1, len(choices) + 1):
        speeds.append(expected_tokens(accuracies, choices[:nodes]) / (call_seconds[nodes] + heads_seconds))
    return max(range(len(speeds)), key=speeds.__getitem__)


@takes_iterators
def full(ranks: Sequence[int]) -> list[tuple[int, ...]]:
    """The tree of all paths of the best ``ranks[i]`` guesses of each head i. Its size grows with their product.

    Examples
    --------
    >>> full([2, 1])
    [(0,), (0, 0), (1,), (1, 0)]
    """
    for count in ranks:
        check_whole_number(count, 1, "ranks are how many guesses of each head are candidates")
    choices = []

    def add(path):
        for rank in range(ranks[len(path)]):
            choices.append((*path, rank))
            if len(path) + 1 < len(ranks):
                add((*path, rank))

    if len(ranks):
        add(())
    return choices


@takes_iterators
def checked_choices(choices: Choices) -> list[tuple[int, ...]]:
    """Return choices with every beginning of a path added, parents first; raise ValueError if they are not choices."""
    nodes = {}
    if not isinstance(choices, Iterable):
        raise ValueError(f"a tree is given by paths of ranks, such as [(0,), (0, 2)]; got {choices!r}")
    for path in choices:
        ranks = tuple(path) if isinstance(path, Iterable) else ()
        if not ranks or not all(hasattr(rank, "__index__") and rank is not True and rank >= 0 for rank in ranks):
            raise ValueError(f"a tree's choices are paths of ranks, such as (0,) or (0, 2); got {path!r}")
        for depth in range(1, len(ranks) + 1):
            nodes[tuple(map(int, ranks[:depth]))] = None
    if not nodes:
        raise ValueError("the tree is empty: give at least one path of ranks, such as (0,)")
    return list(nodes)


def checked_accuracies(accuracies: Accuracies) -> list[list[float]]:
    """Return the accuracies of heads by rank as lists of floats; raise ValueError if they are not shares."""
    try:
        rows = [[float(accuracy) for accuracy in row] for row in accuracies]
    except (TypeError, ValueError):
        rows = []
    if not rows or not all(rows) or not all(0 <= accuracy <= 1 for row in rows for accuracy in row):
        raise ValueError(f"accuracies must hold, for each head, shares from 0 to 1 by rank; got {accuracies!r}")
    return rows
