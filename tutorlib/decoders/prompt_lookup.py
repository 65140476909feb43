"""Prompt lookup: what followed the last few tokens when they were said before is the draft."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..arguments import check_whole_number
from ..checking import check_tree
from ..decoding import Prompt, decoder
from ..lm import LM
from ..randomness import Randomness
from ..step import Step
from ..tree import TokenTree
from ..warp import Warp


class NGrams:
    """A text that grows, and what last followed each of its n-grams.

    Parameters
    ----------
    longest : int
        The largest n.

    Attributes
    ----------
    tokens : list of int
        The text.

    Examples
    --------
    >>> text = NGrams(longest=2)
    >>> text.extend([7, 1, 2, 3, 1, 2])
    >>> text.continuation(3)
    [3, 1, 2]
    """

    def __init__(self, longest: int):
        self.longest = longest
        self.tokens: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}  # n-gram -> the place of the token that last followed it

    def extend(self, tokens) -> None:
        for token in tokens:
            # An n-gram is entered only now that something follows it. So what is looked up never finds itself.
            place = len(self.tokens)
            for n in range(1, min(self.longest, place) + 1):
                self._after[tuple(self.tokens[-n:])] = place
            self.tokens.append(token)

    def continuation(self, count: int) -> list[int]:
        """Up to `count` tokens that followed the last n-gram of the text, the longest that occurred before."""
        for n in range(self.longest, 0, -1):
            place = self._after.get(tuple(self.tokens[-n:]))
            if place is not None:
                return self.tokens[place : place + count]
        return []


def check(gamma, max_ngram):
    """Raise ValueError for what is wrong with the arguments of `prompt_lookup`."""
    check_whole_number(gamma, 1, "gamma is how many tokens are drafted at most")
    check_whole_number(max_ngram, 1, "max_ngram is the length of the longest n-gram looked up")


@decoder(check=check)
def prompt_lookup(
    lm: LM,
    prompt: Prompt,
    *,
    gamma: int = 4,
    max_ngram: int = 3,
    rng: Randomness | None = None,
    warp: Sequence[Warp] = (),
) -> Iterator[Step]:
    """Draft what followed the last n-gram of the text when it was last there; no second model is needed.

    The last `max_ngram` tokens are looked up in the prompt and the text so far, then one fewer, down to one. What
    followed their latest occurrence is the draft, and one call of the model checks it.

    *Lossless* by construction: every token is drawn from the model, warped. With one seed it gives the very text that
    `sample` gives, as each token takes one draw.

    Cost: one call of `lm` for one token or more. The n-grams are kept in a dict that grows with the text, so looking up
    takes the same few microseconds however long the text is.

    Source: Saxena (2023), "Prompt Lookup Decoding". There, and in ``transformers.generate(prompt_lookup_num_tokens=)``,
    the *first* occurrence is taken, found by going through the whole text each time. The latest is right more often
    where a text tells of things that change.

    Parameters
    ----------
    lm : LM
    prompt : str or list of int
    gamma : int
        How many tokens are drafted at most, 1 or more. Fewer where the n-gram was near the end of the text, or the end
        of the context is near; none where even the last token is new.
    max_ngram : int
        The longest n-gram looked up, 1 or more.
    rng : Randomness or None
        For example ``Seeded(7)``. None takes the likeliest token instead.
    warp : sequence of functions

    Yields
    ------
    Step
        The accepted tokens and one more.

    Raises
    ------
    ValueError
        At the call for a bad argument.
    """
    text = NGrams(max_ngram)
    text.extend(prompt)
    session = lm.session(prompt)
    session.rollback(1)  # the last token is fed with the draft
    while len(text.tokens) < lm.context:
        drafted = text.continuation(min(gamma, lm.context - len(text.tokens) - 1))
        path, tokens, weighed, _ = check_tree(session, text.tokens, TokenTree.chain(drafted), rng, warp)
        text.extend(tokens)
        yield Step(tokens, drafted, len(path), candidates=weighed)
    return "context"
