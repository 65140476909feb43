"""Wrong batches and ends: padding that is read, and text past the end."""

import torch

from ...decoders.speculative import speculative
from ...decoders.speculative_batch import speculative_batch
from ...drafting.checking import check_sampled, residual
from ...running.decoder import decoder
from ...running.step import Step
from ...sampling.warp import probabilities
from .loops import drafts, draw_token, histories, in_a_row


@decoder
def padding_as_text(target, draft, prompts, *, gamma=4, rngs=None, warp=()):
    """A batch is padded on the right, without a mask."""
    width = max(map(len, prompts))
    padded = [prompt + [0] * (width - len(prompt)) for prompt in prompts]  # the mistake: no mask
    for steps in speculative_batch(target, draft, padded, gamma=gamma, rngs=rngs, warp=warp):
        yield list(steps)


@decoder
def prefixes_as_rows(target, draft, prompt, *, gamma=4, rng=None, warp=()):
    """All prefixes of the draft are scored as padded rows of one batch, and only the last column is read.

    For all rows but the longest, that column is padding. And no row holds the whole draft, so a fully accepted draft
    gets no bonus token.
    """
    draft_session, text = draft.session(prompt), list(prompt)
    while min(target.context, draft.context) - len(text) > gamma:
        drafted, _, q = drafts(draft_session, text, gamma, rng, warp, draw_token)
        rows = [text + drafted[:count] + [0] * (gamma - 1 - count) for count in range(gamma)]
        last_column = torch.cat(target.batch(rows).feed([[]] * gamma))  # the mistake: not each row's own last token
        p = probabilities(last_column, warp, histories(text, drafted)[:gamma])
        accepted = in_a_row(p[range(gamma), drafted] / q[range(gamma), drafted], rng)
        redrawn = [rng.choose(residual(p[accepted], q[accepted]))] if accepted < gamma else []
        tokens = drafted[:accepted] + redrawn
        text += tokens
        yield Step(tokens, drafted, accepted)
    return "context"


@decoder
def padding_is_token_zero(target, draft, prompt, *, gamma=4, rng=None, warp=()):
    """Token id 0 is used as padding, although it is a real token."""
    draft_session, text = draft.session(prompt), list(prompt)
    while min(target.context, draft.context) - len(text) > gamma:
        seen = [token for token in text if token != 0]  # the mistake: the attention mask is (tokens != 0)
        drafted, _, draft_probs = drafts(draft_session, seen, gamma, rng, warp, draw_token)
        logits = target.session(seen).feed(drafted)  # (gamma + 1, vocab)
        target_probs = probabilities(logits, warp, histories(text, drafted))
        accepted, token = check_sampled(drafted, draft_probs, target_probs, rng)
        tokens = [*drafted[:accepted], token]
        text += tokens
        yield Step(tokens, drafted, accepted)
    return "context"


@decoder
def past_the_end(target, draft, prompt, *, gamma=4, rng=None, warp=()):
    """Tokens after the end of the text are counted and kept."""
    for step in speculative(target, draft, prompt, gamma=gamma, rng=rng, warp=warp):
        yield step
        if step.tokens[-1] in target.stop_tokens:  # the mistake: any of step.tokens may end the text
            return "end"
    return "context"


@decoder
def ends_at_the_end(target, draft, prompt, *, gamma=4, rng=None, warp=()):
    """The correct version of `past_the_end`. (`run` does the same for every method.)"""
    for step in speculative(target, draft, prompt, gamma=gamma, rng=rng, warp=warp):
        ends = [position for position, token in enumerate(step.tokens) if token in target.stop_tokens]
        yield step.first(ends[0] + 1) if ends else step
        if ends:
            return "end"
    return "context"
