"""Wrong warps."""

import torch

from ...arguments import number_text
from ...decoders.greedy import greedy
from ...decoders.sample import sample
from ...running.decoder import decoder
from ...sampling.checks import named
from ...sampling.warp import top_k


def top_p_without_the_crossing(p):
    """Top-p drops the token that crosses the threshold."""

    def top_p_warp(logits, histories=None):
        order = logits.argsort(dim=-1, descending=True, stable=True)
        up_to_here = logits.gather(-1, order).softmax(-1).cumsum(-1)
        dropped = up_to_here > p  # the mistake: should be the sum *before* each token
        dropped[..., 0] = False
        return logits.masked_fill(dropped.scatter(-1, order, dropped), -torch.inf)

    return named(top_p_warp, f"top_p_without_the_crossing({number_text(p)})")


@decoder
def top_k_one_for_greedy(lm, prompt, *, rng=None):
    """top_k(1) is used as greedy decoding. But if two tokens share the largest logit, it keeps both."""
    yield from sample(lm, prompt, rng=rng, warp=[top_k(1)])  # the mistake: tokens tied with the k-th are kept


@decoder
def greedy_of_any_draw(lm, prompt, *, rng=None):
    """`greedy`, with an argument `rng` that is ignored."""
    yield from greedy(lm, prompt)
