"""A draft with another tokenizer, which says only what both models have a token for (TLI)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

from ..checking import check_tree, drawn
from ..decoding import Prompt, decoder
from ..lm import LM
from ..randomness import Randomness
from ..step import Step
from ..tree import TokenTree
from ..vocabularies import Translation, check_pair, room_to_draft, shared_tokens
from ..warp import Warp, draft_probabilities, in_float64


def check(target, draft, gamma):
    """Raise ValueError for what is wrong with the arguments of `token_intersection`."""
    check_pair(target, draft, gamma)
    if not shared_tokens(target, draft).ordinary:
        raise ValueError(
            f"the target's {target.vocab_size} tokens and the draft's {draft.vocab_size} have none in common, special "
            "ones aside: string_match needs no common tokens"
        )


@decoder(check=check)
def token_intersection(
    target: LM, draft: LM, prompt: Prompt, *, gamma: int = 4, rng: Randomness | None = None, warp: Sequence[Warp] = ()
) -> Iterator[Step]:
    """Speculative sampling with a draft that has another tokenizer, kept to the tokens which both have.

    The draft's distribution is cut to the shared tokens and renormalised, as a distribution over the *target's* ids, q.
    A guess is drawn from it, and kept with probability min(1, p/q); where it is not, a token is drawn from the
    normalised max(p - q, 0) over all that the target has. So tokens which the draft does not know come up as often as
    they should.

    *Lossless*: q is the distribution that the guess was really drawn from, whatever it is. The draft reads the text in
    its own tokens, written anew from the target's after each step; that decides how often it guesses right, and nothing
    else. The target's tokens are never tokenised again. With ``rng=None`` it is `greedy`, token for token (rounding
    aside).

    Cost: one call of `target` and up to `gamma` of `draft` for 1 to `gamma` + 1 tokens. A word that is one token for
    the target and several for the draft cannot be guessed: where there are many of those, see `string_match`. With one
    tokenizer for both it works, but `speculative` is cheaper.

    Source: Timor et al. (2025), "Accelerating LLM Inference with Lossless Speculative Decoding Algorithms for
    Heterogeneous Vocabularies", section 4 (token-level intersection).

    Parameters
    ----------
    target : LM
        The model whose text is written.
    draft : LM
        A faster one, on the same device. Both need their tokenizers.
    prompt : str or list of int
        Token ids are the target's.
    gamma : int
        How many tokens to draft in a round, at least 1. Fewer are drafted near the end of either context, after an
        end-of-text, and where the draft gives no shared token a probability.
    rng : Randomness or None
    warp : sequence of functions
        Applied to the target's logits, and to the draft's once they stand in the target's order.

    Yields
    ------
    Step
        One a round: the drafted tokens, those accepted, and the one that the target adds. Ends where the target's
        context does. Where only the draft's is full, it goes on without drafts.

    Raises
    ------
    ValueError
        At the call for a bad argument, or two vocabularies without a common token.
    """
    text, session, guesses = list(prompt), target.session(prompt), Guesses(target, draft, warp)
    session.rollback(1)  # the last token is fed with the draft
    while len(text) < target.context:
        drafted, draft_probs = guesses.draw(text, gamma, rng)
        path, tokens, weighed, _ = check_tree(session, text, TokenTree.chain(drafted), rng, warp, drawn(draft_probs))
        text += tokens
        yield Step(tokens, drafted, len(path), candidates=weighed)
    return "context"


class Guesses:
    """A draft's guesses in the target's tokens.

    Parameters
    ----------
    target, draft : LM
    warp : sequence of functions
    """

    def __init__(self, target, draft, warp):
        self.target, self.draft, self.warp = target, draft, warp
        self.translation = Translation(target, draft)
        shared = shared_tokens(target, draft)
        self.to_draft = dict(zip(shared.target, shared.draft, strict=True))
        self.columns = [torch.tensor(ids, device=draft.device) for ids in (shared.target, shared.draft)]
        self.session = None

    def draw(self, text: list[int], count: int, rng) -> tuple[list[int], list[torch.Tensor]]:
        """Draw up to `count` tokens that may follow `text`, all in the target's ids, as many as there is room for.

        Returns
        -------
        drafted : list of int
        draft_probs : list of as many float64 tensors, shape (target's vocab,)
            What each was drawn from.
        """
        context = self.translation(text)
        count = min(count, room_to_draft(self.target, text, self.draft, context))
        drafted, draft_probs = [], []
        if not context or count < 1:
            return drafted, draft_probs
        self.session = self.session or self.draft.session(context)
        logits = self.session.advance_to(context)[-1:]
        while (probs := self.probs(logits, text + drafted)) is not None:
            drafted.append(rng.choose(probs))
            draft_probs.append(probs)
            if len(drafted) == count or drafted[-1] in self.target.stop_tokens:
                break
            logits = self.session.feed([self.to_draft[drafted[-1]]])
        return drafted, draft_probs

    def probs(self, logits: torch.Tensor, text: list[int]) -> torch.Tensor | None:
        """The draft's distribution over the target's ids, shape (vocab,); None where it leaves no shared token."""
        target_columns, draft_columns = self.columns
        guesses = in_float64(logits.index_select(1, draft_columns))
        row = guesses.new_full((1, self.target.vocab_size), -math.inf)
        row.index_copy_(1, target_columns.to(row.device), guesses)
        return draft_probabilities(row, self.warp, [text])[0]
