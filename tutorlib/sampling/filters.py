"""Filters: they decide which tokens may still be drawn, and set the logits of the others to -inf.

Filters compare probabilities and their sums with a threshold. Numbers that are equal on paper may differ in floating
point: 0.1 + 0.2 is not 0.3. So a filter treats numbers as equal if they differ by less than 1e-12, and keeps the tokens
that it would keep with exact fractions.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch

from ..arguments import check_whole_number, is_number, number_text
from .checks import Filter, Warp, checked_warp, named, warp_names

ROUNDING = 1e-12  # numbers that are equal on paper differ by less


def top_k(k: int) -> Filter:
    """Keep the `k` largest logits of each row, and any that equal the smallest of them.

    Source: Fan, Lewis and Dauphin (2018), "Hierarchical Neural Story Generation", section 5.4.

    Parameters
    ----------
    k : int
        At least 1; otherwise ValueError. If `k` is at least the size of the vocabulary, all tokens stay. If several
        logits equal the k-th largest, more than `k` tokens stay, so ``top_k(1)`` is greedy only if the best token has
        no equal.
    """
    check_whole_number(k, 1, "top_k needs how many tokens to keep")

    def top_k_warp(logits, histories=None):
        kth = logits.topk(min(k, logits.shape[-1])).values[..., -1:]
        return logits.masked_fill(logits < kth, -math.inf)

    return named(top_k_warp, f"top_k({k})")


def exactly_k(k: int) -> Filter:
    """Keep `k` tokens of each row: the largest logits, and of equal ones those with the lowest ids.

    `top_k` keeps all tokens that equal the k-th one. Most engines cut there, and this filter cuts as they do.

    Parameters
    ----------
    k : int
        At least 1; otherwise ValueError. If `k` is at least the size of the vocabulary, all tokens stay.
    """
    check_whole_number(k, 1, "exactly_k needs how many tokens to keep")

    def exactly_k_warp(logits, histories=None):
        order = logits.argsort(dim=-1, descending=True, stable=True)[..., :k]
        return torch.full_like(logits, -math.inf).scatter_(-1, order, logits.gather(-1, order))

    return named(exactly_k_warp, f"exactly_k({k})")


def top_p(p: float) -> Filter:
    """Keep the nucleus: the smallest number of most likely tokens in each row whose probabilities sum to `p` or more.

    A token is dropped if the tokens that are more likely already sum to `p`, so the token that crosses the threshold is
    kept. If logits are equal, the lower id comes first.

    Source: Holtzman et al. (2020), "The Curious Case of Neural Text Degeneration", section 3.1, equation 2.

    Parameters
    ----------
    p : float
        Above 0 and at most 1; otherwise ValueError. 1 keeps all tokens. However small `p` is, one token is kept.
    """
    if not is_number(p) or not 0 < p <= 1:
        raise ValueError(f"top_p needs a probability above 0 and at most 1 (which keeps all tokens), got {p!r}")

    def top_p_warp(logits, histories=None):
        if p == 1:
            return logits
        # Least likely first: summed from that end, small probabilities are not lost to rounding.
        ranked = ascending(logits)
        up_to_here = ranked.softmax(-1).cumsum(-1)
        # Tokens are in the tail if the more likely ones sum to p or more.
        tail = torch.searchsorted(up_to_here, torch.full_like(up_to_here[..., :1], 1 - p + ROUNDING), right=True)
        tail = tail.clamp(max=logits.shape[-1] - 1)
        least = ranked.gather(-1, tail)  # the smallest logit that is kept
        dropped = logits < least
        fewer = torch.searchsorted(ranked, least)
        if not fewer.equal(tail):  # of several logits that equal it, those of the highest ids are dropped
            equal = logits == least
            dropped |= equal & (equal.flip(-1).cumsum(-1).flip(-1) <= tail - fewer)
        return logits.masked_fill(dropped, -math.inf)

    return named(top_p_warp, f"top_p({number_text(p)})")


def ascending(logits: torch.Tensor) -> torch.Tensor:
    """The logits of each row (n, vocab), the smallest first."""
    if logits.device.type == "cpu" and logits.dtype in (torch.float32, torch.float64):
        return torch.from_numpy(np.sort(logits.detach().numpy(), axis=-1))  # ten times faster than PyTorch's sort
    return logits.sort(dim=-1).values


def min_p(p: float) -> Filter:
    """Keep the tokens whose probability is at least `p` times that of the most likely token in the row.

    Source: Nguyen et al. (2024), "Turning Up the Heat: Min-p Sampling for Creative and Coherent LLM Outputs",
    section 3.

    Parameters
    ----------
    p : float
        From 0, which keeps all tokens, to 1, which keeps only the most likely token and any equally likely ones;
        otherwise ValueError.
    """
    if not is_number(p) or not 0 <= p <= 1:
        raise ValueError(f"min_p needs a share of the highest probability, from 0 (keeps all tokens) to 1, got {p!r}")

    def min_p_warp(logits, histories=None):
        probs = logits.softmax(-1)
        return logits.masked_fill(probs < p * (1 - ROUNDING) * probs.amax(-1, keepdim=True), -math.inf)

    return named(min_p_warp, f"min_p({number_text(p)})")


def typical(mass: float) -> Filter:
    """Keep the tokens whose surprise is closest to its expected value, until their probabilities sum to `mass`.

    The surprise of a token is -log p, and its expected value is the entropy H = -Σ p log p. Tokens are taken in the
    order of ``|-log p - H|``, up to and including the token that crosses the threshold, and any that are exactly as far
    from H. The most likely token may be dropped, because its surprise may be far below H.

    Source: Meister, Pimentel, Wiher and Cotterell (2023), "Locally Typical Sampling".

    Parameters
    ----------
    mass : float
        Above 0 and below 1; otherwise ValueError. However small `mass` is, one token is kept.
    """
    if not is_number(mass) or not 0 < mass < 1:
        raise ValueError(f"typical needs a probability between 0 and 1, both excluded, got {mass!r}")

    def typical_warp(logits, histories=None):
        log_probs = logits.log_softmax(-1)
        probs = log_probs.exp()
        entropy = -(probs * log_probs).nansum(-1, keepdim=True)  # 0 · log 0, a NaN, counts as 0
        distance = (-log_probs - entropy).abs()
        nearest_first = distance.argsort(dim=-1, stable=True)
        up_to_here = probs.gather(-1, nearest_first).cumsum(-1)
        # Rounding may leave the total below a mass close to 1: then the last token counts as the one that crosses.
        crossing = (up_to_here < mass - ROUNDING).sum(-1, keepdim=True).clamp(max=logits.shape[-1] - 1)
        furthest = distance.gather(-1, nearest_first.gather(-1, crossing)) + ROUNDING
        return logits.masked_fill(distance > furthest, -math.inf)

    return named(typical_warp, f"typical({number_text(mass)})")


def one_hot(logits: torch.Tensor, histories=None) -> torch.Tensor:
    """The filter that keeps one token: the largest logit of each row; if several are equal, the one with the lowest id.

    After the softmax the rows are one-hot. With ``rng=None`` this warp makes every method greedy, so methods need no
    code of their own for it (see `running.decoder.decoder`). A row in which all logits are -inf is not changed.

    Parameters
    ----------
    logits : tensor of floats, shape (n, vocab)

    Returns
    -------
    tensor of the same type and shape
    """
    best = logits.argmax(-1, keepdim=True)
    return torch.full_like(logits, -math.inf).scatter_(-1, best, logits.gather(-1, best))


# ----------------------------------------------------------------------------------------------------------------------
# Newer filters


def top_n_sigma(n: float) -> Filter:
    """Keep the tokens whose logit is at most `n` standard deviations below the largest one.

    Dividing all logits by a temperature divides their standard deviation too, so a temperature does not change which
    tokens stay, wherever it stands in the list.

    Source: Tang et al. (2024), "Top-nσ: Not All Logits Are You Need" (arXiv 2411.07641), equation 5. The deviation is
    over the tokens that are left, as in llama.cpp.

    Parameters
    ----------
    n : float
        0 or more and finite; otherwise ValueError. The paper used 1.
    """
    if not is_number(n) or n < 0:
        raise ValueError(f"top_n_sigma needs how many standard deviations to keep, 0 or more, got {n!r}")

    def top_n_sigma_warp(logits, histories=None):
        rows = logits.double()
        left = rows > -math.inf
        count = left.sum(-1, keepdim=True).clamp(min=1)
        mean = rows.masked_fill(~left, 0).sum(-1, keepdim=True) / count
        sigma = ((rows - mean).masked_fill(~left, 0).square().sum(-1, keepdim=True) / count).sqrt()
        least = rows.amax(-1, keepdim=True) - n * sigma
        return logits.masked_fill(rows < least - ROUNDING, -math.inf)

    return named(top_n_sigma_warp, f"top_n_sigma({number_text(n)})")


def top_h(h: float) -> Filter:
    """Keep the most likely tokens whose terms ``-p log p`` sum to at most `h` times the entropy of the row.

    The most likely token always stays. Equal tokens are taken in the order of their ids.

    Source: Potraghloo et al. (2025), "Top-H Decoding" (arXiv 2509.02510), in the form of transformers 5.23, which adds
    up the terms of the unfiltered probabilities. (transformers also looks at the 100 most likely tokens only.)

    Parameters
    ----------
    h : float
        Above 0 and at most 1; otherwise ValueError. The paper used 0.4.
    """
    if not is_number(h) or not 0 < h <= 1:
        raise ValueError(f"top_h needs a share of the entropy, above 0 and at most 1, got {h!r}")

    def top_h_warp(logits, histories=None):
        log_probs, order = logits.double().log_softmax(-1).sort(dim=-1, descending=True, stable=True)
        terms = (-log_probs.exp() * log_probs).nan_to_num(0)
        kept = terms.cumsum(-1) <= h * terms.sum(-1, keepdim=True) + ROUNDING
        kept[..., 0] = True
        return logits.masked_fill(~torch.zeros_like(kept).scatter(-1, order, kept), -math.inf)

    return named(top_h_warp, f"top_h({number_text(h)})")


def epsilon_cutoff(cutoff: float) -> Filter:
    """Keep the tokens whose probability is at least `cutoff`, and the most likely one.

    Source: Hewitt, Manning and Liang (2022), "Truncation Sampling as Language Model Desmoothing" (arXiv 2210.15191),
    section 4.

    Parameters
    ----------
    cutoff : float
        Between 0 and 1, both excluded; otherwise ValueError. The paper used 0.0003 to 0.0009.
    """
    _check_cutoff("epsilon_cutoff", cutoff)

    def epsilon_warp(logits, histories=None):
        return _at_least(logits, cutoff)

    return named(epsilon_warp, f"epsilon_cutoff({number_text(cutoff)})")


def eta_cutoff(cutoff: float) -> Filter:
    """Keep the tokens whose probability is at least ``min(cutoff, sqrt(cutoff) · exp(-H))``, and the most likely one.

    H is the entropy of the row in nats: the less certain the model is, the less likely tokens may stay.

    Source: Hewitt, Manning and Liang (2022), "Truncation Sampling as Language Model Desmoothing" (arXiv 2210.15191),
    equation 6.

    Parameters
    ----------
    cutoff : float
        Between 0 and 1, both excluded; otherwise ValueError. The paper used 0.0003 to 0.004.
    """
    _check_cutoff("eta_cutoff", cutoff)

    def eta_warp(logits, histories=None):
        log_probs = logits.log_softmax(-1)
        entropy = -(log_probs.exp() * log_probs).nansum(-1, keepdim=True)
        return _at_least(logits, (math.sqrt(cutoff) * (-entropy).exp()).clamp(max=cutoff))

    return named(eta_warp, f"eta_cutoff({number_text(cutoff)})")


def _check_cutoff(name: str, cutoff) -> None:
    if not is_number(cutoff) or not 0 < cutoff < 1:
        raise ValueError(f"{name} needs a probability between 0 and 1, both excluded, got {cutoff!r}")


def _at_least(logits: torch.Tensor, least) -> torch.Tensor:
    """The logits of the tokens with probability `least` or more, and of the most likely ones."""
    probs = logits.softmax(-1)
    unlikely = probs < least * (1 - ROUNDING)
    return logits.masked_fill(unlikely & (logits < logits.amax(-1, keepdim=True)), -math.inf)


def xtc(probability: float, threshold: float, then: Sequence[Warp] = ()) -> Warp:
    """With this probability, drop every token that is at least as likely as the threshold, except the least likely one.

    "Exclude top choices": where several tokens would do, the obvious ones are left out now and then. An engine throws a
    coin for each token. Here, the coin's two outcomes are mixed: the warp returns the logarithms of
    ``(1 - probability) · p + probability · p'``, where p' has no top choices. A token drawn from the mixture has the
    same distribution as one drawn after a coin. The mixture depends on the logits alone, so a draft can be checked with
    it, and no coin has to be remembered.

    A temperature after the coin acts on p and on p', but not on their mixture. So warps that come after XTC in an
    engine's chain are passed as `then`.

    Source: P. E. Weidmann (2024), text-generation-webui, pull request 6335.

    Parameters
    ----------
    probability : float
        From 0 to 1; otherwise ValueError.
    threshold : float
        Above 0 and at most 1; otherwise ValueError. Above 0.5, at most one token is as likely, and nothing is dropped.
    then : sequence of functions
        Warps that are applied to p and to p' before they are mixed.
    """
    if not is_number(probability) or not 0 <= probability <= 1:
        raise ValueError(f"xtc needs the probability of leaving top choices out, from 0 to 1, got {probability!r}")
    if not is_number(threshold) or not 0 < threshold <= 1:
        raise ValueError(f"xtc needs a threshold above 0 and at most 1, got {threshold!r}")
    then = checked_warp(then)

    def without_top_choices(logits):
        probs = logits.softmax(-1)
        top = probs >= threshold * (1 - ROUNDING)
        least = probs.masked_fill(~top, math.inf).amin(-1, keepdim=True)
        return logits.masked_fill(top & (probs > least * (1 + ROUNDING)), -math.inf)

    def xtc_warp(logits, histories=None):
        mixed = torch.zeros_like(logits, dtype=torch.float64)
        for share, rows in ((1 - probability, logits), (probability, without_top_choices(logits))):
            for function in then:
                rows = function(rows, histories)
            mixed += share * rows.double().softmax(-1).nan_to_num(0)
        return mixed.log().to(logits.dtype)

    after = f", then=[{warp_names(then)}]" if then else ""
    return named(xtc_warp, f"xtc({number_text(probability)}, {number_text(threshold)}{after})")
