"""Wrong bookkeeping: the rule is right, but the models have read the wrong tokens."""

from ...drafting.checking import check_sampled
from ...running.decoder import decoder
from ...running.step import Step
from ...sampling.warp import probabilities
from .loops import histories, speculate


@decoder
def rollback_too_short(target, draft, prompt, *, gamma=4, rng=None, warp=()):
    """The cache is rolled back by one token too few."""

    def forget(target_session, drafted, accepted):
        target_session.rollback(max(len(drafted) - accepted - 1, 0))  # the mistake: should be len(drafted) - accepted

    return (yield from speculate(target, draft, prompt, gamma, rng, warp, forget=forget))


@decoder
def forgets_at_least_one(target, draft, prompt, *, gamma=4, rng=None, warp=()):
    """After a fully accepted draft, the cache forgets one accepted token."""

    def forget(target_session, drafted, accepted):
        target_session.rollback(max(len(drafted) - accepted, 1))  # the mistake: after a full draft, should be 0

    return (yield from speculate(target, draft, prompt, gamma, rng, warp, forget=forget))


@decoder
def lagging_draft(target, draft, prompt, *, gamma=4, rng=None, warp=()):
    """After a fully accepted draft, the draft model never reads its own last token."""
    target_session, draft_session = target.session(prompt), draft.session(prompt)
    text, unread, draft_unread = list(prompt), [], []
    while min(target_session.room, draft_session.room) > gamma:
        drafted, draft_probs, fresh = [], [], draft_unread
        for _ in range(gamma):
            draft_probs.append(probabilities(draft_session.feed(fresh)[-1:], warp, [text + drafted])[0])
            fresh = [rng.choose(draft_probs[-1])]
            drafted += fresh
        target_probs = probabilities(target_session.feed(unread + drafted), warp, histories(text, drafted))
        accepted, token = check_sampled(drafted, draft_probs, target_probs, rng)
        target_session.rollback(len(drafted) - accepted)
        draft_session.rollback(max(len(drafted) - 1 - accepted, 0))
        unread = draft_unread = [token]  # the mistake: after a full draft, should be drafted[-1:] + [token]
        tokens = drafted[:accepted] + unread
        text += tokens
        yield Step(tokens, drafted, accepted)
    return "context"
