"""Mistakes with a grammar that has a state: it consumes tokens, and has to give back those that are rejected.

They are for the chapter on constraints. `grammar` of this package has no such state, and so nothing to give back.
"""

import torch

from ...drafting.checking import check_sampled
from ...running.decoder import decoder
from ...running.step import Step
from ...sampling.warp import probabilities


class Matcher:
    """A grammar with a state, as engines have it: the tokens that it has consumed."""

    def __init__(self, grammar):
        self.grammar, self.tokens = grammar, []

    def masked(self, logits):
        """A row of logits (vocab,) without the tokens that may not follow."""
        allowed = torch.from_numpy(self.grammar.allowed(tuple(self.tokens)))
        return logits.masked_fill(~allowed, -torch.inf)

    def consume(self, token):
        """Add a token and return True; a token that may not follow returns False, and changes nothing."""
        allowed = bool(self.grammar.allowed(tuple(self.tokens))[token])
        self.tokens += [token] * allowed
        return allowed

    def rollback(self, count):
        del self.tokens[max(0, len(self.tokens) - count) :]


def speculate_in(target, draft, prompt, gamma, rng, grammar, undo):
    """`speculative` under a grammar with a state. The draft knows nothing of the grammar, so it may leave it.

    Correct if ``undo(matcher, drafted, consumed, accepted)`` gives back what was consumed and then rejected.
    """
    target_session, draft_session = target.session(prompt), draft.session(prompt)
    text, unread, matcher = list(prompt), [], Matcher(grammar)
    while min(target_session.room, draft_session.room) > gamma:
        drafted, draft_probs = [], []
        logits = draft_session.advance_to(text)[-1:]
        while True:
            draft_probs.append(probabilities(logits)[0])
            drafted.append(rng.choose(draft_probs[-1]))
            if len(drafted) == gamma:
                break
            logits = draft_session.feed(drafted[-1:])
        rows, consumed = [], 0
        for place, row in enumerate(target_session.feed(unread + drafted)):
            rows.append(matcher.masked(row))
            # After a token that is refused, the rows are never needed.
            if consumed == place < gamma:
                consumed += matcher.consume(drafted[place])
        accepted, token = check_sampled(drafted, draft_probs, probabilities(torch.stack(rows)), rng)
        undo(matcher, drafted, consumed, accepted)
        matcher.consume(token)
        target_session.rollback(gamma - accepted)
        unread = [token]
        text += drafted[:accepted] + unread
        yield Step(drafted[:accepted] + unread, drafted, accepted)
    return "context"


@decoder
def grammar_advanced_by_drafts(target, draft, prompt, *, gamma=4, rng=None, warp=()):
    """The grammar consumes each drafted token to mask the next row, and keeps the tokens that are then rejected."""

    def undo(matcher, drafted, consumed, accepted):
        matcher.rollback(0)  # the mistake: the rejected tokens stay in the state

    return (yield from speculate_in(target, draft, prompt, gamma, rng, warp[0], undo))


@decoder
def rollback_of_all_rejected(target, draft, prompt, *, gamma=4, rng=None, warp=()):
    """The grammar gives back as many tokens as were rejected, although it had refused to consume some of them."""

    def undo(matcher, drafted, consumed, accepted):
        matcher.rollback(len(drafted) - accepted)  # the mistake: only `consumed` of the drafted tokens are in the state

    return (yield from speculate_in(target, draft, prompt, gamma, rng, warp[0], undo))
