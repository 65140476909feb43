"""From logits to the probabilities that a method draws from.

A *warp* is a small pure function ``f(logits, histories) -> logits`` on rows of shape (n, vocab). A list of warps is
applied in order, and then the softmax. ``histories[i]`` is the sequence of tokens before row i. *Filters* drop tokens
by setting their logits to -inf, and ignore the histories. *Penalties* lower the logits of tokens that occur in the
histories, and raise ValueError if there are none. The order matters, because a filter works on what the warps before it
have left. Nothing here draws a token.

Filters compare probabilities and their sums with a threshold. Numbers that are equal on paper may differ in floating
point: 0.1 + 0.2 is not 0.3. So a filter treats numbers as equal if they differ by less than 1e-12, and keeps the tokens
that it would keep with exact fractions.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch

from ..arguments import check_whole_number, concrete, is_number, number_text
from ..sequences import Prompted
from .checks import Filter, Warp, checked_histories, checked_result, checked_warp, named, takes, warp_names
from .known_text import History
from .penalties import frequency_penalty, no_repeat_ngram, presence_penalty, repetition_penalty

# With the names of `checks` and `penalties` that can be imported from here as well.
__all__ = [
    "Filter",
    "ROUNDING",
    "Warp",
    "checked_histories",
    "checked_warp",
    "draft_probabilities",
    "frequency_penalty",
    "in_float64",
    "min_p",
    "named",
    "no_repeat_ngram",
    "one_hot",
    "over_ids",
    "presence_penalty",
    "probabilities",
    "reads_histories",
    "refuse_not_finite",
    "repetition_penalty",
    "takes",
    "temperature",
    "top_k",
    "top_p",
    "typical",
    "warp_names",
]

ROUNDING = 1e-12  # numbers that are equal on paper differ by less
# Kinds of device that have no float64: Apple's GPUs.
_WITHOUT_FLOAT64 = {"mps"}
_CONCRETE = frozenset([list, Prompted, History])


def in_float64(rows: torch.Tensor, copy: bool = False) -> torch.Tensor:
    """`rows` in float64, on their device, or on the CPU if their device does not support float64."""
    rows = rows.cpu() if rows.device.type in _WITHOUT_FLOAT64 else rows
    return rows.to(torch.float64, copy=copy)


def probabilities(logits, warp: Iterable[Warp] = (), histories: Sequence[Sequence[int]] | None = None) -> torch.Tensor:
    """Apply the warps in order, then the softmax.

    Parameters
    ----------
    logits : tensor of floats, shape (n, vocab)
        Rows such as `Session.feed` returns.
    warp : iterable of functions
        Each maps ``(logits (n, vocab), histories)`` to logits of the same shape.
    histories : sequence of n token sequences, optional
        The tokens before each row. Only penalties need them.

    Returns
    -------
    tensor of float64, shape (n, vocab)
        Each row sums to 1. Warps and softmax are computed in float64 for every model, so that the choice of a filter
        does not depend on the last bit of a half-precision logit. They are computed on the device of the logits, or on
        the CPU if that device is an Apple GPU, which does not support float64.

    Raises
    ------
    ValueError
        When a row has NaN or infinite logits, or when the warps leave no token in it. When `warp` is one function and
        not a list. When a warp returns anything but floats of the same shape and on the same device as the logits it
        was given.
    """
    warp = checked_warp(warp) if callable(warp) else tuple(warp)  # a function without its list is refused
    if type(histories) is not list or not _CONCRETE.issuperset(map(type, histories)):
        histories = concrete(histories)  # each penalty reads them
    given, logits = logits, in_float64(logits, copy=bool(warp))  # a copy, which a warp may change in place
    for function in warp:
        if function is one_hot and function is warp[-1] and logits.numel():
            best = logits.max(-1, keepdim=True)
            if all(map(math.isfinite, best.values.flatten().tolist())):
                return torch.zeros_like(logits).scatter_(-1, best.indices, 1.0)  # as the softmax would, but sooner
        elif function is warp[0]:
            refuse_not_finite(given)  # before a warp can drop the ones that are not
        logits = checked_result(function, function(logits, readable(histories, function)), logits).double()
    probs = logits.softmax(-1)
    # One NaN, one +inf or nothing but -inf makes its whole row NaN, and with it the sum of all.
    if math.isnan(float(probs.sum())):
        refuse_not_finite(given)
        row = int(probs[:, 0].isnan().nonzero()[0])
        if bool((logits[row] == -math.inf).all()):
            raise ValueError(f"no token is left in row {row}: the warp {warp_names(warp)} filtered everything away")
        raise ValueError(f"row {row} of the logits holds NaN or +inf after the warp {warp_names(warp)}")
    return probs


def readable(histories, function: Warp):
    """The histories as a warp reads them: those of this room know `History`, and anybody else's gets lists."""
    if histories is None or str(getattr(function, "__module__", None)).startswith(f"{__package__}."):
        return histories
    return [history.as_list() if type(history) is History else history for history in histories]


def draft_probabilities(logits, warp, histories) -> list[torch.Tensor | None]:
    """Like `probabilities`, for the logits of a draft: a list of rows, with None for a row that cannot be warped.

    Nothing is drafted after such a row. This is not an error, because the text may never get there. Logits that are NaN
    or +inf are an error, as always.
    """
    try:
        return list(probabilities(logits, warp, histories).unbind())
    except Exception:  # a warp may be anybody's, and raise anything
        refuse_not_finite(logits)
        if len(logits) == 1:
            return [None]
        rows = zip(logits.split(1), histories, strict=True)
        return [draft_probabilities(row, warp, [history])[0] for row, history in rows]


def over_ids(logits: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """Rows of logits (n, vocab) of one model, extended to the ids of another: -inf for ids that only the other has.

    If two models share a tokenizer, ids that one of them lacks are padding and do not stand for tokens.
    """
    missing = vocab_size - logits.shape[-1]
    return torch.nn.functional.pad(logits, (0, missing), value=-math.inf) if missing else logits


def refuse_not_finite(logits: torch.Tensor) -> None:
    """Raise ValueError for rows (n, vocab) with NaN or +inf."""
    # The largest of some numbers is NaN if one of them is.
    if logits.numel() and not float(logits.max()) < math.inf:
        row = int((logits.amax(-1) < math.inf).int().argmin())
        raise ValueError(f"row {row} of the logits holds NaN or +inf: look at the model they came from")


def temperature(t: float) -> Filter:
    """Divide the logits by `t`: below 1, likely tokens become more likely; above 1, unlikely tokens do.

    Source: Ackley, Hinton and Sejnowski (1985), "A Learning Algorithm for Boltzmann Machines"; for language models
    Holtzman et al. (2020), section 3.3.

    Parameters
    ----------
    t : float
        Above 0 and finite; otherwise ValueError. Values near 0 are nearly greedy; for greedy decoding pass
        ``rng=None``.

    Examples
    --------
    >>> probabilities(torch.tensor([[0.0, 1.0]]), [temperature(0.5)])
    tensor([[0.1192, 0.8808]], dtype=torch.float64)
    """
    if not is_number(t) or t <= 0:
        raise ValueError(f"temperature needs a finite number above 0, got {t!r}: for greedy decoding pass rng=None")

    def temperature_warp(logits, histories=None):
        return logits / t

    return named(temperature_warp, f"temperature({number_text(t)})")


# ----------------------------------------------------------------------------------------------------------------------
# Filters: they decide which tokens may still be drawn


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


def reads_histories(warp: Iterable[Warp]) -> bool:
    """Whether some of the warps may use the histories. This is assumed of every warp except `one_hot`."""
    return any(function is not one_hot for function in warp)
