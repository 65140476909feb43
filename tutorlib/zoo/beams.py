"""Wrong scores of beams."""

from ..decoding import decoder
from .loops import beam_loop


@decoder
def beam_starts_at_one(lm, prompt, *, beams, max_new_tokens, length_penalty=1.0):
    """The beams' scores start at 1.0; divided by the length, that is a bonus for short texts."""

    def score(tokens, total):
        return total / len(tokens) ** length_penalty

    yield beam_loop(lm, prompt, beams, max_new_tokens, score=score, begin=1.0)  # the mistake: log 1 is 0


@decoder
def length_off_by_one(lm, prompt, *, beams, max_new_tokens, length_penalty=1.0):
    """The length in the length penalty is one too many, which flatters short texts."""

    def score(tokens, total):
        return total / (len(tokens) + 1) ** length_penalty  # the mistake: the prompt's last token is not new

    yield beam_loop(lm, prompt, beams, max_new_tokens, score=score)


@decoder
def first_finished_beam(lm, prompt, *, beams, max_new_tokens, length_penalty=1.0):
    """The first beam that ends is returned, not the best one."""

    def score(tokens, total):
        return total / len(tokens) ** length_penalty

    yield beam_loop(lm, prompt, beams, max_new_tokens, score=score, impatient=True)  # the mistake: not finished[0]
