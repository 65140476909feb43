"""The loops that specimens share. They are correct, and each specimen replaces one part."""

from typing import NamedTuple

import torch

from ...decoders.token_intersection import Guesses
from ...drafting.checking import check_sampled
from ...running.step import Step
from ...sampling.warp import probabilities


class Round(NamedTuple):
    """Everything that is known when the n drafted tokens of a round are checked.

    Attributes
    ----------
    text : list of int
        The prompt and the new text, without the drafted tokens.
    drafted : list of int
    draft_logits, draft_probs : tensors, shape (n, vocab)
        The draft's logits at the positions of these tokens, and the warped probabilities from which they were drawn.
    target_logits, target_probs : tensors, shape (n + 1, vocab)
        Row i belongs to the token after the text and the first i drafted tokens.
    features : tensor, shape (n + 1, width)
        The input of the target's output head for these rows.
    """

    text: list[int]
    drafted: list[int]
    draft_logits: torch.Tensor
    draft_probs: torch.Tensor
    target_logits: torch.Tensor
    target_probs: torch.Tensor
    features: torch.Tensor


def histories(tokens: list[int], drafted: list[int]) -> list[list[int]]:
    """The tokens before each row of a check, as warps need them: the text, then the text and ``drafted[:1]``, ...

    Examples
    --------
    >>> histories([5], [7, 8])
    [[5], [5, 7], [5, 7, 8]]
    """
    return [tokens + drafted[:count] for count in range(len(drafted) + 1)]


def drafts(session, text, gamma, rng, warp, draw):
    """Draft `gamma` tokens after `text`: the tokens, their logits (gamma, vocab), and the warped probabilities."""
    drafted, logits = [], [session.advance_to(text)[-1:]]
    while True:
        probs = probabilities(torch.cat(logits), warp, histories(text, drafted))
        drafted.append(draw(probs[-1], rng))
        if len(drafted) == gamma:
            return drafted, torch.cat(logits), probs
        logits.append(session.feed(drafted[-1:]))


def draw_token(probs, rng):
    return rng.choose(probs)


def right_rule(round, rng):
    return check_sampled(round.drafted, round.draft_probs, round.target_probs, rng)


def forget_rejected(session, drafted, accepted):
    session.rollback(len(drafted) - accepted)


def speculate(target, draft, prompt, gamma, rng, warp, *, rule=right_rule, draw=draw_token, forget=forget_rejected):
    """`speculative`, of which a specimen replaces a part. It ends a few tokens before the context is full.

    The parts: ``rule(round, rng) -> (accepted, next token)``, ``draw(probs, rng) -> token``, and
    ``forget(target_session, drafted, accepted)``.
    """
    target_session, draft_session = target.session(prompt, hidden=-1), draft.session(prompt)
    text, unread = list(prompt), []
    while min(target_session.room, draft_session.room) > gamma:
        drafted, draft_logits, draft_probs = drafts(draft_session, text, gamma, rng, warp, draw)
        logits = target_session.feed(unread + drafted)
        target_probs = probabilities(logits, warp, histories(text, drafted))
        features = target_session.hidden[-len(logits) :]
        round = Round(text, drafted, draft_logits, draft_probs, logits, target_probs, features)
        accepted, token = rule(round, rng)
        forget(target_session, drafted, accepted)
        unread = [token]
        tokens = drafted[:accepted] + unread
        text += tokens
        yield Step(tokens, drafted, accepted)
    return "context"


def in_a_row(chances, rng):
    """How many drafted tokens are kept until the first rejection, each being accepted with its own probability."""
    return next((count for count, chance in enumerate(chances) if not rng.accept(chance)), len(chances))


def speculate_across(target, draft, prompt, gamma, rng, warp, *, rule):
    """`token_intersection`, with ``rule(guesses, drafted, draft_probs, target_probs) -> (accepted, token)`` passed in.

    All ids are the target's; ``guesses.to_draft`` maps them to the draft's ids.
    """
    session, guesses = target.session(prompt), Guesses(target, draft, warp)
    text, unread = list(prompt), []
    while session.room > gamma:
        drafted, draft_probs = guesses.draw(text, gamma, rng)
        target_probs = probabilities(session.feed(unread + drafted), warp, histories(text, drafted))
        accepted, token = rule(guesses, drafted, draft_probs, target_probs)
        session.rollback(len(drafted) - accepted)
        unread = [token]
        tokens = drafted[:accepted] + unread
        text += tokens
        yield Step(tokens, drafted, accepted)
    return "context"


def beam_loop(lm, prompt, beams, max_new_tokens, *, score, begin=0.0, impatient=False):
    """A beam search in a few lines, correct if ``score(tokens, total)`` is; returns the winner as one step."""
    running: list[tuple[tuple[int, ...], float]] = [((), begin)]
    finished = []
    for _ in range(max_new_tokens):
        longer = []
        for tokens, total in running:
            log_probs = probabilities(lm.session([*prompt, *tokens]).feed())[-1].log().tolist()
            longer += [((*tokens, token), total + log_prob) for token, log_prob in enumerate(log_probs)]
        longer.sort(key=lambda hypothesis: -hypothesis[1])
        finished += [hypothesis for hypothesis in longer[: 2 * beams] if hypothesis[0][-1] in lm.stop_tokens]
        running = [hypothesis for hypothesis in longer if hypothesis[0][-1] not in lm.stop_tokens][:beams]
        if finished and impatient:
            return Step(list(finished[0][0]))
    winner, _ = max(finished + running, key=lambda hypothesis: score(*hypothesis))
    return Step(list(winner))
