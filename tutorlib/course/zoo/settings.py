"""Settings that engines understand differently: a penalty that rewards, a prompt that counts, rows that share draws.

Each was found in a program that people use. They are for the chapter on the same settings in other engines.
"""

import torch

from ...arguments import number_text
from ...decoders.sample_batch import sample_batch
from ...running.decoder import decoder
from ...running.step import Step
from ...sampling.checks import named
from ...sampling.penalties import frequency_penalty
from ...sampling.warp import probabilities
from .loops import beam_loop


def penalty_that_rewards(strength):
    """A frequency penalty is added to logits below zero, and so makes their tokens more likely."""
    counted = frequency_penalty(strength)

    def penalty_warp(logits, histories=None):
        change = counted(logits, histories) - logits
        return logits + torch.where(logits < 0, -change, change)  # the mistake: should be subtracted in both cases

    return named(penalty_warp, f"penalty_that_rewards({number_text(strength)})")


@decoder
def prompt_in_the_length(lm, prompt, *, beams, max_new_tokens, length_penalty=1.0):
    """The length penalty counts the prompt, so after a long prompt it hardly depends on the text."""

    def score(tokens, total):
        return total / (len(prompt) + len(tokens)) ** length_penalty  # the mistake: should be len(tokens)

    yield beam_loop(lm, prompt, beams, max_new_tokens, score=score)


@decoder
def one_stream_for_all_rows(lm, prompts, *, rngs=None, warp=()):
    """Each round draws one random number, and all rows of the batch use it.

    Each row has the right distribution. But the rows are not independent: equal prompts get equal texts.
    """
    texts = [list(prompt) for prompt in prompts]
    while max(map(len, texts)) < lm.context:
        rows = torch.cat([lm.session(text).feed()[-1:] for text in texts])
        sums = probabilities(rows, warp, texts).cumsum(-1)  # (rows, vocab)
        borders = torch.cat([sums.new_zeros(1), sums.flatten().clamp(max=1).sort().values])
        piece = rngs[0].choose(borders.diff() / borders[-1])  # the mistake: should be one draw for each row
        middle = (borders[piece] + borders[piece + 1]) / 2
        tokens = [int((row <= middle).sum()) for row in sums]
        for text, token in zip(texts, tokens):
            text.append(token)
        yield [Step([token]) for token in tokens]
    return "context"


@decoder
def penalty_from_the_shortest_prompt(lm, prompts, *, rngs=None, warp=()):
    """A penalty sees each text from the end of the batch's shortest prompt on, so it depends on the neighbours."""
    begin = min(map(len, prompts))

    def cut(one):
        def warp_of_the_rest(logits, histories):
            return one(logits, [text[begin:] for text in histories])  # the mistake: should see all of each text

        return warp_of_the_rest

    for steps in sample_batch(lm, prompts, rngs=rngs, warp=[cut(one) for one in warp]):
        yield list(steps)
