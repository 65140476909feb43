"""Lookahead decoding: the model guesses tokens at later positions in parallel, and checks the guesses later."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from ..arguments import check_whole_number
from ..drafting.checking import check_tree
from ..model.lm import LM
from ..model.tree import ROOT, TokenTree
from ..running.decoder import Prompt, decoder
from ..running.step import Step
from ..sampling.randomness import Randomness
from ..sampling.warp import Warp


class Pool:
    """The n-grams that were seen most recently, by their first token.

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
    """Raise ValueError if an argument of `lookahead` is wrong."""
    check_whole_number(window, 1, "window is the number of positions ahead that are guessed")
    check_whole_number(ngram, 2, "ngram is the length of the n-grams collected")
    check_whole_number(guesses, 0, "guesses is the largest number of n-grams that are tried")


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
) -> Generator[Step, None, str | None]:
    """Guess tokens at several later positions at once, collect the n-grams that result, and try those that fit.

    No draft model is needed. The window has `window` columns. Column i holds n - 1 guesses, for the positions i, i + 1,
    ... after the text. They were made in the last n - 1 rounds, the oldest first. In each round, one call of the model
    predicts the next token of every column, given the text, the first tokens of the columns before it, and the column
    itself. Together with this token the column is an n-gram, which goes into the pool. Then the oldest token of each
    column is dropped, and the window has moved by one position. The text has also grown by one or more tokens. (To
    guess all positions at once from earlier guesses is Jacobi's method for solving a system of equations; here the
    equations are x_i = argmax p(· | x_1 ... x_{i-1}).)

    The same call checks the n-grams of the pool that begin with the last token. Everything is in one token tree, with a
    path for each n-gram and for each column. So the columns are candidates too. The paper does not use them as such;
    they add a little to the tokens per call at no cost. With ``guesses=0`` the columns are the only candidates.

    *Lossless* by construction: every token is drawn from the model's warped distribution after the actual text. With
    the same seed it gives exactly the text of `sample`, because each token takes one random draw. The guesses in the
    window need no random draws: they are the model's most likely tokens, without warps.

    Cost: one call of `lm` with up to ``1 + window * (ngram - 1) + guesses * (ngram - 1)`` tokens for one or more new
    tokens. The method is faster than plain decoding if such a call takes little longer than a call with a single token.

    Source: Fu, Bailis, Stoica and Zhang (2024), "Break the Sequential Dependency of LLM Inference Using Lookahead
    Decoding", sections 3.1 to 3.3, where window is W, ngram is N and guesses is G. The window starts with n-grams of
    the prompt (in the paper: with random tokens).

    Parameters
    ----------
    lm : LM
    prompt : str or list of int
    window : int
        The number of columns, 1 or more. Near the end of the context only those columns are used that still fit.
    ngram : int
        The length of the n-grams, 2 or more.
    guesses : int
        The largest number of n-grams that are kept, and tried, for each first token.
    rng : Randomness or None
        For example ``Seeded(7)``. With None, the most likely token is taken instead.
    warp : sequence of functions

    Yields
    ------
    Step
        One step per round: the accepted tokens and one more, the tree of all candidates, and the path accepted in it.

    Raises
    ------
    ValueError
        When called with a bad argument.
    """
    pool = Pool(guesses)
    session = lm.session(prompt)
    text = session.tokens
    columns = [[text[(i + level) % len(text)] for level in range(ngram - 1)] for i in range(window)]
    session.rollback(1)  # the last token is fed with the tree
    while len(text) < lm.context:
        room = lm.context - len(text) - 1  # for candidates: one more token comes after them
        tries = [rest[:room] for rest in pool[text[-1]]]
        ahead = [[column[0] for column in columns[:i]] + column for i, column in enumerate(columns)]
        ahead = [path for path in ahead if len(path) <= room]
        drafted = TokenTree.from_paths(tries + ahead)
        checked = check_tree(session, text, drafted, rng, warp, every_row=True)
        text += checked.tokens
        for i, node in enumerate(ends(drafted, ahead)):
            longer = [*columns[i], int(checked.logits[node + 1].argmax())]
            pool.add(longer)
            columns[i] = longer[1:]
        yield checked.step(tree=True)
    return "context"
