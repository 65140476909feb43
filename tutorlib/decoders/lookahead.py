"""Lookahead decoding: the model guesses ahead in places of which it does not know the beginning, and checks later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..arguments import check_whole_number
from ..checking import check_tree
from ..decoding import Prompt, decoder
from ..lm import LM
from ..randomness import Randomness
from ..step import Step
from ..tree import ROOT, TokenTree
from ..warp import Warp


class Pool:
    """The n-grams that were seen last, by their first token.

    Parameters
    ----------
    size : int
        How many to keep for each first token.

    Examples
    --------
    >>> pool = Pool(2)
    >>> for ngram in ([5, 1, 2], [5, 3, 4], [6, 1, 2], [5, 7, 8]):
    ...     pool.add(ngram)
    >>> pool[5]
    [[7, 8], [3, 4]]
    """

    def __init__(self, size: int):
        self.size = size
        self._rests: dict[int, list[list[int]]] = {}

    def add(self, ngram: list[int]) -> None:
        first, rest = ngram[0], ngram[1:]
        others = [known for known in self._rests.get(first, []) if known != rest]
        self._rests[first] = [rest, *others][: self.size]

    def __getitem__(self, token: int) -> list[list[int]]:
        """What may follow `token`: the rest of each n-gram that begins with it, the most recent first."""
        return self._rests.get(token, [])


def ends(tree: TokenTree, paths: list[list[int]]) -> list[int]:
    """The node that each path of tokens leads to."""
    child = {(parent, token): node for node, (token, parent) in enumerate(zip(tree.tokens, tree.parents, strict=True))}
    nodes = []
    for path in paths:
        node = ROOT
        for token in path:
            node = child[node, token]
        nodes.append(node)
    return nodes


def check(window, ngram, guesses):
    """Raise ValueError for what is wrong with the arguments of `lookahead`."""
    check_whole_number(window, 1, "window is the number of places ahead that are guessed")
    check_whole_number(ngram, 2, "ngram is the length of the n-grams collected")
    check_whole_number(guesses, 0, "guesses is how many n-grams are tried at most")


@decoder(check=check)
def lookahead(
    lm: LM,
    prompt: Prompt,
    *,
    window: int = 6,
    ngram: int = 3,
    guesses: int = 6,
    rng: Randomness | None = None,
    warp: Sequence[Warp] = (),
) -> Iterator[Step]:
    """Guess several places ahead at once, collect the n-grams that come of it, and try those that fit: no draft needed.

    The window has `window` columns. Column i holds n - 1 tokens for the places i, i + 1, ... after the text: what was
    guessed for them in the last n - 1 rounds, the oldest first. In each round the model says, in one call, what comes
    after each column, given the text, the first tokens of the columns before, and the column itself. That makes the
    column an n-gram, which goes into the pool. Then its oldest token is dropped, and the window has moved by one place,
    as the text has by one token or more. (Guessing all places from older guesses at once is Jacobi's method for solving
    equations; here they are x_i = argmax p(· | x_1 ... x_{i-1}).)

    In the same call the n-grams of the pool that begin with the last token are checked. All of it is one token tree: a
    path for each n-gram, and one for each column. So the columns are candidates too, which the paper does not make use
    of; this adds a little to the tokens per call, at no cost. With ``guesses=0`` only they are.

    *Lossless* by construction: every token is drawn from the model, warped, and drawn after its true beginning. With
    one seed it gives the very text that `sample` gives, as each token takes one draw. The window's guesses take none:
    they are the model's likeliest tokens, without warp.

    Cost: one call of `lm` with up to ``1 + window * (ngram - 1) + guesses * (ngram - 1)`` tokens, for one token or
    more. It pays where such a call takes little longer than one with a single token.

    Source: Fu, Bailis, Stoica and Zhang (2024), "Break the Sequential Dependency of LLM Inference Using Lookahead
    Decoding", sections 3.1 to 3.3; there window = W, ngram = N, guesses = G. The window begins with n-grams of the
    prompt (there: random tokens).

    Parameters
    ----------
    lm : LM
    prompt : str or list of int
    window : int
        How many columns, 1 or more. Near the end of the context only those take part that fit.
    ngram : int
        The length of the n-grams, 2 or more.
    guesses : int
        How many n-grams are kept for each first token, and tried, at most.
    rng : Randomness or None
        For example ``Seeded(7)``. None takes the likeliest token instead.
    warp : sequence of functions

    Yields
    ------
    Step
        The accepted tokens and one more; the tree of all candidates, and the path taken in it.

    Raises
    ------
    ValueError
        At the call for a bad argument.
    """
    pool = Pool(guesses)
    columns = [[prompt[(i + level) % len(prompt)] for level in range(ngram - 1)] for i in range(window)]
    text, session = list(prompt), lm.session(prompt)
    session.rollback(1)  # the last token is fed with the tree
    while len(text) < lm.context:
        room = lm.context - len(text) - 1  # for candidates: one more token comes after them
        tries = [rest[:room] for rest in pool[text[-1]]]
        ahead = [[column[0] for column in columns[:i]] + column for i, column in enumerate(columns)]
        ahead = [path for path in ahead if len(path) <= room]
        tree = TokenTree.from_paths(tries + ahead)
        path, tokens, weighed, logits = check_tree(session, text, tree, rng, warp)
        text += tokens
        for i, node in enumerate(ends(tree, ahead)):
            longer = [*columns[i], int(logits[node + 1].argmax())]
            pool.add(longer)
            columns[i] = longer[1:]
        yield Step(tokens, tree.tokens, len(path), tree=tree or None, path=tuple(path), candidates=weighed)
    return "context"
