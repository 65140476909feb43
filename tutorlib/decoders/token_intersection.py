"""A draft with another tokenizer that proposes only tokens which both models have (TLI)."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence

import torch

from ..drafting.checking import check_tree
from ..drafting.rules import ChainRule, check_chain_rule, draft_token, ratio
from ..model.lm import LM
from ..model.tree import TokenTree
from ..model.vocabularies import Translation, check_pair, room_to_draft, shared_tokens
from ..running.decoder import Prompt, decoder
from ..running.step import Step
from ..sampling.known_text import History
from ..sampling.randomness import Randomness
from ..sampling.warp import Warp, draft_probabilities, in_float64


def check(target, draft, gamma, rule):
    """Raise ValueError if an argument of `token_intersection` is wrong."""
    check_pair(target, draft, gamma)
    check_chain_rule(rule)
    if not shared_tokens(target, draft).ordinary:
        raise ValueError(
            f"the target's {target.vocab_size} tokens and the draft's {draft.vocab_size} have none in common, special "
            "ones aside: string_match needs no common tokens"
        )


@decoder(check=check)
def token_intersection(
    target: LM,
    draft: LM,
    prompt: Prompt,
    *,
    gamma: int = 4,
    rule: ChainRule = ratio,
    rng: Randomness | None = None,
    warp: Sequence[Warp] = (),
) -> Generator[Step, None, str | None]:
    """Speculative sampling with a draft that has another tokenizer, limited to the tokens which both models have.

    The draft's distribution is restricted to the shared tokens and renormalised. The result is a distribution q over
    the *target's* ids. A guess is drawn from q and kept with probability min(1, p/q). If it is rejected, a token is
    drawn from the normalised max(p - q, 0) over all tokens of the target. So tokens that the draft does not know still
    occur as often as they should.

    *Lossless*: this holds for any q, as long as the guess was really drawn from it. The draft reads the text in its own
    tokens, into which it is converted again after each step. This conversion affects only how often the draft guesses
    right. The target's own tokens are never tokenised again. With ``rng=None`` the text is the same as that of `greedy`
    (apart from rounding).

    Cost: one call of `target` and up to `gamma` calls of `draft` for 1 to `gamma` + 1 tokens. A word that is one token
    for the target and several tokens for the draft cannot be guessed; if there are many such words, try `string_match`.
    If both models have the same tokenizer this works too, but `speculative` is cheaper.

    Source: Timor et al. (2025), "Accelerating LLM Inference with Lossless Speculative Decoding Algorithms for
    Heterogeneous Vocabularies", section 4 (token-level intersection).

    Parameters
    ----------
    target : LM
        The model whose text is written.
    draft : LM
        A faster model on the same device. Both models need their tokenizers.
    prompt : str or list of int
        Token ids are the target's.
    gamma : int
        How many tokens to draft in a round, at least 1. Fewer are drafted if one of the contexts is nearly full, after
        an end-of-text token, and if the draft gives all shared tokens probability zero.
    rule : function
        As for `speculative`.
    rng : Randomness or None
    warp : sequence of functions
        Applied to the target's logits, and to the draft's after these have been arranged by the target's ids.

    Yields
    ------
    Step
        One step per round: the drafted tokens, how many were accepted, and the token that the target adds. The method
        ends when the target's context is full. If only the draft's context is full, it continues without drafts.

    Raises
    ------
    ValueError
        When called with a bad argument, or with two vocabularies that have no token in common.
    """
    session, guesses = target.session(prompt), Guesses(target, draft, warp)
    text = session.tokens
    session.rollback(1)  # the last token is fed with the draft
    while len(text) < target.context:
        drafted, draft_probs = guesses.draw(text, gamma, rng, rule)
        checked = check_tree(session, text, TokenTree.chain(drafted), rng, warp, rule(draft_probs))
        text += checked.tokens
        yield checked.step()
    return "context"


class Guesses:
    """The guesses of a draft, as tokens of the target.

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

    def draw(self, text: list[int], count: int, rng, rule: ChainRule = ratio) -> tuple[list[int], list[torch.Tensor]]:
        """Draw up to `count` tokens to follow `text`, as ids of the target; fewer if there is less room.

        Returns
        -------
        drafted : list of int
        draft_probs : list of as many float64 tensors, shape (target's vocab,)
            The distribution that each token was drawn from.
        """
        context = self.translation(text)
        count = min(count, room_to_draft(self.target, text, self.draft, context))
        drafted, draft_probs = [], []
        if not context or count < 1:
            return drafted, draft_probs
        self.session = self.session or self.draft.session(context)
        logits = self.session.advance_to(context)[-1:]
        while (probs := self.probs(logits, History(text, drafted))) is not None:
            drafted.append(draft_token(rule, probs, rng))
            draft_probs.append(probs)
            if len(drafted) == count or drafted[-1] in self.target.stop_tokens:
                break
            logits = self.session.feed([self.to_draft[drafted[-1]]])
        return drafted, draft_probs

    def probs(self, logits: torch.Tensor, text: Sequence[int]) -> torch.Tensor | None:
        """The draft's distribution over the target's ids, shape (vocab,); None if no shared token is left."""
        target_columns, draft_columns = self.columns
        guesses = in_float64(logits.index_select(1, draft_columns))
        row = guesses.new_full((1, self.target.vocab_size), -math.inf)
        row.index_copy_(1, target_columns.to(row.device), guesses)
        return draft_probabilities(row, self.warp, [text])[0]
