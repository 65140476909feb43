"""Suffix lookup: find the longest end of the text that has occurred before, and draft whatever followed it."""

from __future__ import annotations

import heapq
import math
from collections.abc import Generator, Iterable, Sequence

from ..arguments import check_whole_number, is_number
from ..drafting.checking import check_tree
from ..model.lm import LM
from ..model.tree import ROOT, TokenTree
from ..running.decoder import Prompt, decoder
from ..running.step import Step
from ..sampling.randomness import Randomness
from ..sampling.warp import Warp


class SuffixAutomaton:
    """All pieces (substrings) of a growing text, each with how often it has occurred and what followed it.

    A state stands for all pieces that end at the same positions: if "red kite" only ever ends where "the red kite"
    ends, they share a state. Reading a token leads from a state to the state of the longer piece. The *link* of a state
    leads to its longest ending that also occurred elsewhere; for the state of the whole text, that is the longest
    match. There are at most two states per token.

    Source: Blumer et al. (1985), "The smallest automaton recognizing the subwords of a text": built from left to right,
    in time proportional to the length of the text. The counts are an addition. Each token adds an occurrence to the
    state of the whole text, and to all states along its links. If a few tokens repeat, there are as many links as
    tokens. So an occurrence is passed on along the links, with all others that have come as far, only when somebody
    asks for the counts of pieces that are shorter.

    Examples
    --------
    >>> text = SuffixAutomaton()
    >>> text.extend([1, 2, 3, 1, 2, 4, 1, 2])
    >>> tree = text.continuations(most=3)
    >>> tree.tokens, tree.parents                                       # 1 2 was followed by 4 1 ... and by 3 1 ...
    ([4, 3, 1], [-1, -1, 0])
    """

    def __init__(self):
        self._next: list[dict] = [{}]  # state -> token -> state
        self._link = [-1]  # state -> the state of its longest ending that occurred elsewhere; -1 for the empty piece
        self._length = [0]  # state -> the length of its longest piece
        self._count = [0]  # state -> how often its pieces occurred, once all that wait in longer ones are passed on
        self._passed = [0]  # state -> how many of these occurrences were passed on to its link
        self._latest = [0]  # state -> where they last ended, once all are passed on
        self._new: list[int] = []  # the states of the whole text, one for each token, that have passed on nothing yet
        self._waiting: list[tuple[int, int]] = []  # a heap of other states with something to pass on, the longest first
        self._whole = 0  # the state of the text so far

    def extend(self, tokens: Iterable) -> None:
        """Add tokens at the end. None may be among them: it separates texts, and is never a continuation."""
        for token in tokens:
            whole = self._new_state(self._length[self._whole] + 1, {}, link=0)
            state = self._whole
            while state != -1 and token not in self._next[state]:
                self._next[state][token] = whole
                state = self._link[state]
            if state != -1:
                self._link[whole] = self._ending(state, token)
            self._whole = whole
            self._count[whole] = 1
            self._latest[whole] = self._length[whole]
            self._new.append(whole)

    def _settle(self, length: float) -> None:
        """Pass on occurrences until the counts of all states with pieces of `length` or more are right."""
        while self._new and self._length[self._new[-1]] > length:
            heapq.heappush(self._waiting, (-self._length[self._new[-1]], self._new.pop()))
        while self._waiting and -self._waiting[0][0] > length:
            _, state = heapq.heappop(self._waiting)
            link, fresh = self._link[state], self._count[state] - self._passed[state]
            self._passed[state] += fresh
            if link:  # nobody asks how often the empty piece occurred
                if self._count[link] == self._passed[link]:
                    heapq.heappush(self._waiting, (-self._length[link], link))
                self._count[link] += fresh
                self._latest[link] = max(self._latest[link], self._latest[state])

    def _ending(self, state: int, token) -> int:
        """The state for the longest piece of `state` followed by `token`; split off if longer pieces shared its
        state.
        """
        shared = self._next[state][token]
        if self._length[shared] == self._length[state] + 1:
            return shared
        # `shared` also stands for longer pieces that are not at the end of the text, so the two now differ.
        split = self._new_state(self._length[state] + 1, dict(self._next[shared]), self._link[shared])
        # What `shared` has passed on, its link knows already; what it has not, it will now pass on to `split`.
        self._count[split] = self._passed[split] = self._passed[shared]
        self._latest[split] = self._latest[shared]
        self._link[shared] = split
        while state != -1 and self._next[state].get(token) == shared:
            self._next[state][token] = split
            state = self._link[state]
        return split

    def _new_state(self, length: int, following: dict, link: int) -> int:
        self._next.append(following)
        self._link.append(link)
        self._length.append(length)
        self._count.append(0)
        self._passed.append(0)
        self._latest.append(0)
        return len(self._next) - 1

    def continuations(self, most: int, depth: int | None = None, least: float = 0.0) -> TokenTree:
        """The most likely continuations of the text, as a tree: what followed its longest ending that has occurred
        before.

        After a match of length L, a token that followed in `count` of `total` cases gets the estimated probability
        ``count / (total + 1/L)``. The probability of a node is the product along its path. So the tree is deeper if the
        match is long and if the text nearly always continued in the same way.

        Parameters
        ----------
        most : int
            The number of nodes. The most likely ones are taken; among equals, the one that occurred last.
        depth : int, optional
            The largest number of tokens in a path.
        least : float
            Nodes with a lower probability are left out.

        Returns
        -------
        TokenTree
            Empty if even the last token has not occurred before.
        """
        match = self._link[self._whole]
        tokens, parents, candidates = [], [], []

        def look_beyond(state, prob, node, level):
            self._settle(min((self._length[after] for after in self._next[state].values()), default=math.inf))
            total = sum(self._count[after] for after in self._next[state].values()) + 1 / self._length[match]
            for token, after in self._next[state].items():
                share = prob * self._count[after] / total
                if token is not None and share >= least and (depth is None or level < depth):
                    heapq.heappush(candidates, (-share, -self._latest[after], after, node, level + 1, token))

        if match > 0:  # not the empty piece
            look_beyond(match, 1.0, ROOT, 0)
        while candidates and len(tokens) < most:
            share, _, state, parent, level, token = heapq.heappop(candidates)
            tokens.append(token)
            parents.append(parent)
            look_beyond(state, -share, len(tokens) - 1, level)
        return TokenTree(tokens, parents)


def check(lm, gamma, texts, least):
    """Raise ValueError if an argument of `suffix_lookup` is wrong."""
    check_whole_number(gamma, 1, "gamma is how many tokens are drafted at most")
    if not is_number(least) or not 0 <= least <= 1:
        raise ValueError(f"least must be a probability from 0 to 1, got {least!r}")
    if isinstance(texts, str) or not hasattr(texts, "__len__"):
        raise ValueError(f"texts must be a list of texts, each a list of token ids, got {texts!r}")
    for text in texts:
        if isinstance(text, str) or not hasattr(text, "__len__"):
            raise ValueError(f"texts must hold lists of token ids, got {text!r}: encode it first, lm.encode(...)")
        for token in text:
            if isinstance(token, bool) or not hasattr(token, "__index__") or not 0 <= token < lm.vocab_size:
                raise ValueError(f"texts holds {token!r}, outside the vocabulary of {lm.vocab_size} tokens")


@decoder(check=check)
def suffix_lookup(
    lm: LM,
    prompt: Prompt,
    *,
    gamma: int = 4,
    texts: Sequence[Sequence[int]] = (),
    least: float = 0.1,
    rng: Randomness | None = None,
    warp: Sequence[Warp] = (),
) -> Generator[Step, None, str | None]:
    """Draft what followed the longest ending of the text that has occurred before, with all continuations seen so far.

    If that ending was followed by different tokens, the draft is a tree of them, the most frequent first. The size of
    the tree depends on the length of the match and on how often it was followed by the same tokens: see
    `SuffixAutomaton.continuations`.

    *Lossless* by construction: every token is drawn from the model's warped distribution. With the same seed it gives
    exactly the text of `sample`, because each token takes one random draw.

    Cost: one call of `lm` for one or more tokens, with one token more than the tree has. Finding the match takes
    microseconds. The text is indexed as it grows and `texts` once at the start, at 2 to 3 microseconds per token.

    Source: Hu et al. (2025), "SAM Decoding: Speculative Decoding via Suffix Automaton", which finds the match in this
    way; Oliaro et al. (2024), "SuffixDecoding", which drafts trees that are grown by how often each token followed. In
    the latter, the size of a draft is a multiple of the length of the match. Here, one estimate combines length and
    frequency, and a branch of the draft ends where the estimate falls below `least`.

    Parameters
    ----------
    lm : LM
    prompt : str or list of int
    gamma : int
        The largest number of tokens to draft, 1 or more, in all branches together.
    texts : sequence of token lists
        Further texts to search, such as earlier answers or documents.
    least : float
        Tokens whose estimated probability of being reached is lower than this are not drafted.
    rng : Randomness or None
        For example ``Seeded(7)``. With None, the most likely token is taken instead.
    warp : sequence of functions

    Yields
    ------
    Step
        One step per round: the accepted tokens and one more, the tree, and the path accepted in it.

    Raises
    ------
    ValueError
        When called with a bad argument.
    """
    seen = SuffixAutomaton()
    for earlier in texts:
        seen.extend([*map(int, earlier), None])
    session = lm.session(prompt)
    text = session.tokens
    seen.extend(text)
    session.rollback(1)  # the last token is fed with the draft
    while len(text) < lm.context:
        drafted = seen.continuations(gamma, lm.context - len(text) - 1, least)
        checked = check_tree(session, text, drafted, rng, warp)
        seen.extend(checked.tokens)
        text += checked.tokens
        yield checked.step(tree=True)
    return "context"
