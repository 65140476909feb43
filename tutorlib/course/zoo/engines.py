"""Mistakes of engines that draft: wrong random numbers, a wrong q, forgotten settings, and states that are not undone.

Each was found in a program that people use. They are for the chapter on how to check a draft.
"""

import torch

from ...drafting.checking import check_sampled, residual
from ...running.decoder import decoder
from ...sampling.warp import probabilities
from .loops import histories, speculate


@decoder
def shared_noise(target, draft, prompt, *, gamma=4, rng=None, warp=()):
    """The token after a rejection is drawn with the random numbers that drew the rejected token.

    The engine draws a token by a race: each token v gets a random number E(v), and the token with the smallest
    E(v) / q(v) is the winner. That the rejected token won says something about all the other numbers: see `race_again`.
    """

    def rule(round, rng):
        for position, token in enumerate(round.drafted):
            p, q = round.target_probs[position], round.draft_probs[position]
            if not rng.accept(p[token] / q[token]):
                row = race_again(q, residual(p, q))  # the mistake: the old random numbers, where residual(p, q) is due
                return position, rng.choose(row)
        return len(round.drafted), rng.choose(round.target_probs[-1])

    return (yield from speculate(target, draft, prompt, gamma, rng, warp, rule=rule))


def race_again(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Which token wins a second race with the random numbers of the first one, given a first winner that is not in it.

    A race draws from a distribution r: every token v gets a number E(v) with an exponential distribution of mean 1, and
    the token with the smallest E(v) / r(v) wins. (The largest log r(v) + G(v), with Gumbel noise G, is the same race.)
    If the first race ended at time t, the number of each loser v is known to be above t · first(v). What is above it is
    exponential again. So in the second race, v starts at the time t · first(v) / second(v), and t is exponential. The
    result is the integral over t, piece by piece between two starts.

    Parameters
    ----------
    first, second : float64 tensors of shape (vocab,)
        The two distributions. The winner of the first race has probability 0 in the second.

    Returns
    -------
    float64 tensor of shape (vocab,)

    Examples
    --------
    >>> race_again(torch.tensor([0.5, 0.4, 0.1]), torch.tensor([0.0, 0.5, 0.5]))
    tensor([0.0000, 0.3846, 0.6154])
    """
    running = second.nonzero()[:, 0]
    starts = first[running] / second[running]
    order = starts.argsort()
    running, starts = running[order], starts[order]
    rates = second[running].cumsum(0)
    passed = first[running].cumsum(0)
    begin = 1 / (1 + rates * starts - passed)
    end = 1 / (1 + rates[:-1] * starts[1:] - passed[:-1])
    pieces = (begin - torch.cat([end, end.new_zeros(1)])) / rates  # how likely the race ends in each piece, per rate
    won = torch.zeros_like(second)
    won[running] = second[running] * pieces.flip(0).cumsum(0).flip(0)
    return won


@decoder
def dropped_after_the_draw(target, draft, prompt, *, gamma=4, rng=None, warp=(), threshold=0.3):
    """The draft ends at a token that it finds unlikely, and this token is dropped after it was drawn.

    It is right to ask before the draw, as the argument `confidence` of `speculative` does. Whether the draft ends must
    not depend on the token that was drawn.
    """

    def rule(round, rng):
        own = round.draft_probs[range(gamma), round.drafted]
        likely = [*(own >= threshold).tolist(), False]
        count = likely.index(False)  # the mistake: asks q for the drawn token, and so drops only unlikely ones
        return check_sampled(round.drafted[:count], round.draft_probs[:count], round.target_probs[: count + 1], rng)

    return (yield from speculate(target, draft, prompt, gamma, rng, warp, rule=rule))


@decoder
def raw_logits_as_q(target, draft, prompt, *, gamma=4, rng=None, warp=()):
    """The draft takes its most likely token, and hands over its raw logits as if they were q.

    This is `greedy_drafts` with the warp left out of q as well.
    """

    def draw(probs, rng):
        return int(probs.argmax())

    def rule(round, rng):
        draft_probs = probabilities(round.draft_logits)  # the mistake: for an argmax, q is 1 at the token
        return check_sampled(round.drafted, draft_probs, round.target_probs, rng)

    return (yield from speculate(target, draft, prompt, gamma, rng, warp, rule=rule, draw=draw))


@decoder
def unwarped_check(target, draft, prompt, *, gamma=4, rng=None, warp=()):
    """The draft applies the warp, but the target's rows that check it have none."""

    def rule(round, rng):
        target_probs = probabilities(round.target_logits)  # the mistake: should be round.target_probs
        return check_sampled(round.drafted, round.draft_probs, target_probs, rng)

    return (yield from speculate(target, draft, prompt, gamma, rng, warp, rule=rule))


@decoder
def rejected_in_the_state(target, draft, prompt, *, gamma=4, rng=None, warp=()):
    """The target has a recurrent state, and rejected tokens stay in it.

    A table that looks two tokens back is such a state: it holds the last two tokens that it has read.
    """

    def forget(target_session, drafted, accepted):
        target_session.rollback(0)  # the mistake: the state of before the rejected tokens has to be brought back

    return (yield from speculate(target, draft, prompt, gamma, rng, warp, forget=forget))


@decoder
def drawn_in_half_precision(target, draft, prompt, *, gamma=4, rng=None, warp=()):
    """The draft's tokens are drawn in half precision, but q is computed in full precision."""

    def draw(probs, rng):
        rounded = probs.bfloat16().double()  # the mistake: q must be what was drawn from, rounded or not
        return rng.choose(rounded / rounded.sum())

    return (yield from speculate(target, draft, prompt, gamma, rng, warp, draw=draw))


@decoder
def penalty_without_the_prompt(target, draft, prompt, *, gamma=4, rng=None, warp=()):
    """With a draft, a penalty for repetition looks back over the new text, but not over the prompt."""

    def rule(round, rng):
        new = round.text[len(prompt) :]  # the mistake: plain sampling looks at the prompt too
        target_probs = probabilities(round.target_logits, warp, histories(new, round.drafted))
        return check_sampled(round.drafted, round.draft_probs, target_probs, rng)

    return (yield from speculate(target, draft, prompt, gamma, rng, warp, rule=rule))


@decoder
def penalty_of_before_the_draft(target, draft, prompt, *, gamma=4, rng=None, warp=()):
    """A penalty for repetition is computed once a round, before the draft, and used for all tokens of the round."""

    def rule(round, rng):
        seen = [round.text] * (gamma + 1)  # the mistake: row i should also see the first i drafted tokens
        target_probs = probabilities(round.target_logits, warp, seen)
        return check_sampled(round.drafted, round.draft_probs, target_probs, rng)

    return (yield from speculate(target, draft, prompt, gamma, rng, warp, rule=rule))
