"""What happened to each hypothesis of a search: kept, dropped, finished or given up, and which one won.

The hypotheses come from a trace or from plain lists; `trees.search_tree` draws the result.
"""

from dataclasses import dataclass

from ..arguments import takes_iterators


@dataclass
class Node:
    """One hypothesis of a search: the new tokens so far.

    Attributes
    ----------
    score : float or None
        The last score that the search gave it; None if it never gave one.
    fate : {"kept", "finished", "dropped", "given up"}
        "dropped": it was never kept. "given up": it was kept at first, but the search no longer keeps it or any
        continuation of it, and none of them has finished.
    won : bool
        Whether the hypothesis is the winner or a beginning of the winner.
    """

    score: float | None
    fate: str
    won: bool = False


@takes_iterators
def search_nodes(search, *, dropped=(), finished=None, winner=None, until=None) -> dict[tuple, Node]:
    """Find out what happened to each hypothesis of a search.

    Parameters
    ----------
    search : Trace, or sequence of lists of hypotheses
        The hypotheses that the search kept after each of its steps, each as ``[tokens, score]``. In a trace, they are
        those of the steps; if the last step has tokens, it gives the finished hypotheses and the winner.
    dropped : iterable of hypotheses
        Hypotheses that were considered and not kept. A trace does not contain them.
    finished : iterable of hypotheses, optional
        For plain lists: the hypotheses that came to their end.
    winner : tokens, optional
        For plain lists: the hypothesis that won.
    until : int, optional
        Use only the first `until` steps, as if the search were still running.

    Returns
    -------
    dict from tuples of tokens to Node
        It also contains all beginnings of the hypotheses, except the empty one.

    Raises
    ------
    ValueError
        If the winner is not among the hypotheses that were kept or finished.
    """
    if hasattr(search, "steps"):
        levels = [step.hypotheses for step in search.steps if not step.tokens]
        last = search.steps[-1] if search.steps and search.steps[-1].tokens and search.steps[-1].hypotheses else None
        if finished is None and last is not None:
            finished = last.hypotheses
        if winner is None and last is not None:
            winner = last.tokens
    else:
        levels = list(search)
    ended = until is None or until > len(levels)
    levels = levels if until is None else levels[:until]
    held = {tuple(tokens) for tokens, _ in levels[-1]} if levels and not (ended and winner is not None) else set()
    done = {tuple(tokens): score for tokens, score in finished or ()}
    nodes: dict[tuple, Node] = {}
    for level in levels:
        for tokens, score in level:
            _add(nodes, tuple(tokens), score, "given up")
    deepest = max(map(len, nodes), default=0)
    for tokens, score in done.items():
        if ended or len(tokens) <= deepest:
            _add(nodes, tokens, score, "finished")
    for tokens, score in dropped:
        tokens = tuple(tokens)
        if tokens not in nodes and (ended or len(tokens) <= deepest):
            _add(nodes, tokens, score, "dropped")
    for tokens, node in list(nodes.items()):
        if tokens in held or node.fate == "finished":
            for length in range(len(tokens) - (node.fate == "finished"), 0, -1):
                if nodes[tokens[:length]].fate == "kept":
                    break  # its own beginnings are marked already
                nodes[tokens[:length]].fate = "kept"
    if winner is not None and ended:
        winner = tuple(winner)
        if winner not in nodes or nodes[winner].fate == "dropped":
            raise ValueError(f"the winner {winner!r} is not among the hypotheses that were kept or finished")
        for length in range(1, len(winner) + 1):
            nodes[winner[:length]].won = True
        nodes[winner].fate = "finished"
    return nodes


def _add(nodes, tokens, score, fate):
    """Add a hypothesis to the tree, after its beginnings. The empty one is the prompt, which is always there."""
    if not tokens:
        return
    for length in range(len(tokens) - 1, 0, -1):
        if tokens[:length] in nodes:
            break
        nodes[tokens[:length]] = Node(None, "given up")
    nodes[tokens] = Node(score, fate)
