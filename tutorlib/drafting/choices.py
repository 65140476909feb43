"""Which candidates are worth a node: trees of ranks, grown from how often each head's guesses were right.

A tree for Medusa is the same in every step, up to the tokens in it. So it is given by *choices*: paths of ranks, such
as ``(0, 2)``, the third best guess of head 1 after the best guess of head 0. Every beginning of a path is a node too.
"""

import heapq
import math
from collections.abc import Iterable, Sequence

from ..arguments import check_whole_number, takes_iterators

Choices = Sequence[tuple[int, ...]]
Accuracies = Sequence[Sequence[float]]


def usual_accuracies(heads: int, vocab_size: int) -> list[list[float]]:
    """How often guesses of ranks 0, 1, 2, ... are about right, head by head, where nobody has measured it.

    Round numbers: the best guess of head 0 is right in 6 of 10 places, that of each later head in 3/4 as many, and the
    guess of rank r in 1/(5r) as many as the best.

    Examples
    --------
    >>> [[round(share, 3) for share in row] for row in usual_accuracies(2, 3)]
    [[0.6, 0.12, 0.06], [0.45, 0.09, 0.045]]
    """
    best = [0.6 * 0.75**head for head in range(heads)]
    return [[share / (5 * rank or 1) for rank in range(min(vocab_size, 10))] for share in best]


@takes_iterators
def grow(accuracies: Accuracies, nodes: int) -> list[tuple[int, ...]]:
    """The tree of so many nodes that should give the most tokens: always add the node that is likeliest to be right.

    A node is right when all guesses on its path are. Heads are taken to be right independently of each other, so that
    this is a product; it is never more than for the node above, and the greedy choice is the best one.

    Source: Cai et al. (2024), "Medusa", section 2.3.3.

    Parameters
    ----------
    accuracies : sequence of sequences of floats
        ``accuracies[i][rank]``: how often head i's guess of that rank is the right token.
    nodes : int
        1 or more; a tree of all that there is may have fewer.

    Returns
    -------
    list of tuples of int
        In the order in which they were added: the first n are the best tree of n nodes.

    Raises
    ------
    ValueError
        For accuracies that are none, or fewer than 1 node.

    Examples
    --------
    >>> grow([[0.6, 0.2], [0.5, 0.1]], nodes=4)
    [(0,), (0, 0), (1,), (1, 0)]
    """
    check_whole_number(nodes, 1, "nodes is how many candidates the tree holds")
    accuracies = checked_accuracies(accuracies)
    chosen, frontier = [], [(-accuracies[0][rank], (rank,)) for rank in range(len(accuracies[0]))]
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
    """Tokens that a step should give: 1, which the target adds itself, and each node's probability of being right.

    Source: Cai et al. (2024), section 2.3.3.

    Raises
    ------
    ValueError
        For a node whose head or rank has no accuracy.

    Examples
    --------
    >>> expected_tokens([[0.6, 0.2], [0.5, 0.1]], [(0,), (0, 0), (1,)])
    2.1
    """
    accuracies, choices = checked_accuracies(accuracies), checked_choices(choices)
    for path in choices:
        if len(path) > len(accuracies) or path[-1] >= len(accuracies[len(path) - 1]):
            raise ValueError(f"the tree has the path {path}, but nobody says how often that guess of its head is right")
    return 1 + math.fsum(math.prod(accuracies[depth][rank] for depth, rank in enumerate(path)) for path in choices)


@takes_iterators
def best_size(accuracies: Accuracies, call_seconds: Sequence[float], heads_seconds: float = 0.0) -> int:
    """How many nodes make the most tokens a second, when calls cost what they were measured to cost.

    Parameters
    ----------
    accuracies
        As for `grow`.
    call_seconds : sequence of floats
        Time of a target call with 1, 2, 3, ... tokens; a tree of n nodes is checked with n + 1. The largest tree looked
        at is the largest that this covers.
    heads_seconds : float
        What a step costs beside the call, in the same unit.

    Returns
    -------
    int
        0 where no tree pays.

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
    speeds = [1 / call_seconds[0]]  # the plain loop, which has no heads to ask
    for nodes in range(1, len(choices) + 1):
        speeds.append(expected_tokens(accuracies, choices[:nodes]) / (call_seconds[nodes] + heads_seconds))
    return max(range(len(speeds)), key=speeds.__getitem__)


@takes_iterators
def full(ranks: Sequence[int]) -> list[tuple[int, ...]]:
    """The tree of all paths of the best ``ranks[i]`` guesses of each head i: it grows with their product.

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
    """Return choices with every beginning of a path among them, parents first; raise ValueError for what is none."""
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
    """Return some heads' accuracies by rank as lists of floats; raise ValueError when that is not what they are."""
    try:
        rows = [[float(accuracy) for accuracy in row] for row in accuracies]
    except (TypeError, ValueError):
        rows = []
    if not rows or not all(rows) or not all(0 <= accuracy <= 1 for row in rows for accuracy in row):
        raise ValueError(f"accuracies must hold, for each head, shares from 0 to 1 by rank; got {accuracies!r}")
    return rows
