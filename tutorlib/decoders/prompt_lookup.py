"""Prompt lookup: if the last few tokens have occurred before, the tokens that followed them then are the draft."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from ..arguments import Prompted, check_whole_number
from ..drafting.checking import check_tree
from ..model.lm import LM
from ..model.tree import TokenTree
from ..running.decoder import Prompt, decoder
from ..running.step import Step
from ..sampling.randomness import Randomness
from ..sampling.warp import Warp


class NGrams:
    """A growing text, and for each of its n-grams the position of the token that followed it last.

    Parameters
    ----------
    longest : int
        The largest n.
    prompt_length : int
        How many of the tokens are the prompt's.

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

    def __init__(self, longest: int, prompt_length: int = 0):
        self.longest = longest
        self.tokens = Prompted([], prompt_length)
        self._after: dict[tuple[int, ...], int] = {}  # n-gram -> the position of the token that last followed it

    def extend(self, tokens) -> None:
        for token in tokens:
            # An n-gram is entered only when a token follows it, so a lookup never finds the end of the text itself.
            place = len(self.tokens)
            for n in range(1, min(self.longest, place) + 1):
                self._after[tuple(self.tokens[-n:])] = place
            self.tokens.append(token)

    def continuation(self, count: int) -> list[int]:
        """Up to `count` tokens that followed the longest n-gram at the end of the text that has occurred before."""
        for n in range(self.longest, 0, -1):
            place = self._after.get(tuple(self.tokens[-n:]))
            if place is not None:
                return self.tokens[place : place + count]
        return []


def check(gamma, max_ngram):
    """Raise ValueError if an argument of `prompt_lookup` is wrong."""
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
) -> Generator[Step, None, str | None]:
    """Draft the tokens that followed the last n-gram of the text when it occurred before; no second model is needed.

    The last `max_ngram` tokens are looked up in the prompt and the text so far. If they have not occurred before, one
    token fewer is looked up, and so on down to one. The tokens that followed the latest occurrence are the draft, and
    one call of the model checks them.

    *Lossless* by construction: every token is drawn from the model's warped distribution. With the same seed it gives
    exactly the text of `sample`, because each token takes one random draw.

    Cost: one call of `lm` for one or more tokens. The n-grams are kept in a dict that grows with the text, so a lookup
    takes a few microseconds, however long the text is.

    Source: Saxena (2023), "Prompt Lookup Decoding". The original, like
    ``transformers.generate(prompt_lookup_num_tokens=)``, takes the *first* occurrence, and searches the whole text for
    it each time. The latest occurrence is the better guess in texts about things that change.

    Parameters
    ----------
    lm : LM
    prompt : str or list of int
    gamma : int
        The largest number of tokens to draft, 1 or more. Fewer are drafted if the n-gram occurred near the end of the
        text or if the context is nearly full, and none if even the last token has not occurred before.
    max_ngram : int
        The length of the longest n-gram looked up, 1 or more.
    rng : Randomness or None
        For example ``Seeded(7)``. With None, the most likely token is taken instead.
    warp : sequence of functions

    Yields
    ------
    Step
        One step per round: the accepted tokens and one more.

    Raises
    ------
    ValueError
        When called with a bad argument.
    """
    text = NGrams(max_ngram, len(prompt))
    text.extend(prompt)
    session = lm.session(prompt)
    session.rollback(1)  # the last token is fed with the draft
    while len(text.tokens) < lm.context:
        drafted = TokenTree.chain(text.continuation(min(gamma, lm.context - len(text.tokens) - 1)))
        checked = check_tree(session, text.tokens, drafted, rng, warp)
        text.extend(checked.tokens)
        yield checked.step()
    return "context"
