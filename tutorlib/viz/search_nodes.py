"""What became of each hypothesis of a search: kept, dropped, finished, given up, and which one won.

It is read off a trace's hypotheses or off plain lists; `trees.search_tree` draws it.
"""

from dataclasses import dataclass

from ..arguments import takes_iterators


@dataclass
class Node:
    """One hypothesis of a search: a beginning of new tokens.

    Attributes
    ----------
    score : float or None
        The last one that the search gave to it; None if it never said.
    fate : {"kept", "finished", "dropped", "given up"}
        "given up" was kept once, and nothing that goes on from it is held or finished any more; "dropped" never was.
    won : bool
        Whether the winner is this hypothesis or goes on from it.
    """

    score: float | None
    fate: str
    won: bool = False


@takes_iterators
def search_nodes(search, *, dropped=(), finished=None, winner=None, until=None) -> dict[tuple, Node]:
    """Sort the hypotheses of a search by what became of them.

    Parameters
    ----------
    search : Trace, or sequence of lists of hypotheses
        What the search held after each of its steps, each hypothesis as ``[tokens, score]``. A trace's steps are read
        so; its last step, if it has tokens, holds the finished ones and the winner.
    dropped : iterable of hypotheses
        What was looked at and not kept; a trace does not say that.
    finished : iterable of hypotheses, optional
    winner : tokens, optional
        For plain lists: what came to its end, and what won.
    until : int, optional
        Look at the first so many steps only, as if the search were still going on.

    Returns
    -------
    dict from tuples of tokens to Node
        Beginnings of hypotheses are in it, too, except the empty one.

    Raises
    ------
    ValueError
        If the winner is not among what the search kept or finished.
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
                    break  # and so are its own beginnings
                nodes[tokens[:length]].fate = "kept"
    if winner is not None and ended:
        winner = tuple(winner)
        if winner not in nodes or nodes[winner].fate == "dropped":
            raise ValueError(f"the winner {winner!r} is not among what the search kept or finished")
        for length in range(1, len(winner) + 1):
            nodes[winner[:length]].won = True
        nodes[winner].fate = "finished"
    return nodes


def _add(nodes, tokens, score, fate):
    """Put a hypothesis into the tree, after its beginnings. The empty one is the prompt, which is always there."""
    if not tokens:
        return
    for length in range(len(tokens) - 1, 0, -1):
        if tokens[:length] in nodes:
            break
        nodes[tokens[:length]] = Node(None, "given up")
    nodes[tokens] = Node(score, fate)
