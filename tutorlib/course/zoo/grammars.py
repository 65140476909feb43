"""Mistakes with a grammar that has a state: it consumes tokens, and has to give back those that are rejected.

They are for the chapter on constraints. `grammar` of this package has no such state, and so nothing to give back.
"""

import torch

from ...arguments import shared_beginning
from ...drafting.checking import check_sampled
from ...running.decoder import decoder
from ...running.step import Step
from ...sampling.warp import probabilities
from .loops import drafts, draw_token


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

    def advance_to(self, written):
        """Consume what the text has after the beginning that was consumed; give back what is not in the text."""
        self.rollback(len(self.tokens) - shared_beginning(self.tokens, written))
        for token in written[len(self.tokens) :]:
            self.consume(token)


def speculate_in(target, draft, prompt, gamma, rng, grammar, check):
    """`speculative` under a grammar with a state. The draft knows nothing of the grammar, so it may leave it.

    Correct if ``check(matcher, written, drafted, draft_probs, logits) -> (accepted, next token)`` masks each row in the
    state after the new text and the drafted tokens before the row. Rows after a token that is refused are never needed.
    """
    target_session, draft_session = target.session(prompt), draft.session(prompt)
    text, unread, matcher = list(prompt), [], Matcher(grammar)
    while min(target_session.room, draft_session.room) > gamma:
        drafted, _, draft_probs = drafts(draft_session, text, gamma, rng, (), draw_token)
        logits = target_session.feed(unread + drafted)
        accepted, token = check(matcher, text[len(prompt) :], drafted, draft_probs, logits)
        target_session.rollback(gamma - accepted)
        unread = [token]
        text += drafted[:accepted] + unread
        yield Step(drafted[:accepted] + unread, drafted, accepted)
    return "context"


@decoder
def grammar_advanced_by_drafts(target, draft, prompt, *, gamma=4, rng=None, warp=()):
    """The grammar consumes each drafted token to mask the next row, and keeps the tokens that are then rejected."""

    def check(matcher, written, drafted, draft_probs, logits):
        for token in written[len(matcher.tokens) :]:  # the mistake: matcher.tokens may hold rejected ones
            matcher.consume(token)
        rows = [matcher.masked(logits[0])]
        for row, token in zip(logits[1:], drafted, strict=True):
            matcher.consume(token)
            rows.append(matcher.masked(row))
        return check_sampled(drafted, draft_probs, probabilities(torch.stack(rows)), rng)

    return (yield from speculate_in(target, draft, prompt, gamma, rng, warp[0], check))


@decoder
def rollback_of_all_rejected(target, draft, prompt, *, gamma=4, rng=None, warp=()):
    """The grammar gives back as many tokens as were rejected, although it had refused to consume some of them."""

    def check(matcher, written, drafted, draft_probs, logits):
        rows, consumed = [matcher.masked(logits[0])], 0
        for row, token in zip(logits[1:], drafted, strict=True):
            consumed += matcher.consume(token)
            rows.append(matcher.masked(row))
        accepted, token = check_sampled(drafted, draft_probs, probabilities(torch.stack(rows)), rng)
        matcher.rollback(len(drafted) - accepted)  # the mistake: should be consumed - accepted
        matcher.consume(token)
        return accepted, token

    return (yield from speculate_in(target, draft, prompt, gamma, rng, warp[0], check))
