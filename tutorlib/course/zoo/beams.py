"""Wrong scores for beams."""

from ...running.decoder import decoder
from .loops import beam_loop


@decoder
def beam_starts_at_one(lm, prompt, *, beams, max_new_tokens, length_penalty=1.0):
    """The beams' scores start at 1.0. Divided by the length, this is a bonus for short texts."""

    def score(tokens, total):
        return total / len(tokens) ** length_penalty

    yield beam_loop(lm, prompt, beams, max_new_tokens, score=score, begin=1.0)  # the mistake: should be log 1 = 0


@decoder
def length_off_by_one(lm, prompt, *, beams, max_new_tokens, length_penalty=1.0):
    """The length penalty counts one token too many, which favours short texts."""

    def score(tokens, total):
        return total / (len(tokens) + 1) ** length_penalty  # the mistake: len(tokens) already counts all

    yield beam_loop(lm, prompt, beams, max_new_tokens, score=score)


@decoder
def first_finished_beam(lm, prompt, *, beams, max_new_tokens, length_penalty=1.0):
    """The first beam that ends is returned, although a better one may end later."""

    def score(tokens, total):
        return total / len(tokens) ** length_penalty

    yield beam_loop(lm, prompt, beams, max_new_tokens, score=score, impatient=True)  # the mistake: should wait
