"""From logits to the probabilities that a method draws from.

A *warp* is a small pure function ``f(logits, histories) -> logits`` on rows of shape (n, vocab). A list of warps is
applied in order, and then the softmax. ``histories[i]`` is the sequence of tokens before row i. *Filters* drop tokens
by setting their logits to -inf, and ignore the histories. *Penalties* lower the logits of tokens that occur in the
histories, and raise ValueError if there are none. The order matters, because a filter works on what the warps before it
have left. Nothing here draws a token.

The warps themselves are in `temperatures`, `filters`, `penalties`, `mirostat` and `watermarks`; most can be imported
from here as well. What this file does: apply them.
"""

import math
from collections.abc import Iterable, Sequence

import torch

from ..arguments import Prompted, concrete
from .checks import Filter, Warp, checked_histories, checked_result, checked_warp, named, takes, warp_names
from .engines import as_in
from .filters import (
    ROUNDING,
    epsilon_cutoff,
    eta_cutoff,
    exactly_k,
    min_p,
    one_hot,
    top_h,
    top_k,
    top_n_sigma,
    top_p,
    typical,
    xtc,
)
from .known_text import History
from .mirostat import mirostat
from .penalties import dry, frequency_penalty, no_repeat_ngram, presence_penalty, repetition_penalty
from .temperatures import dynamic_temperature, logit_bias, temperature
from .watermarks import green_list, green_score, synthid, synthid_score

# With the names of the other modules of this room that can be imported from here as well.
__all__ = [
    "Filter",
    "ROUNDING",
    "Warp",
    "as_in",
    "checked_histories",
    "checked_warp",
    "draft_probabilities",
    "dry",
    "dynamic_temperature",
    "epsilon_cutoff",
    "eta_cutoff",
    "exactly_k",
    "frequency_penalty",
    "green_list",
    "green_score",
    "in_float64",
    "logit_bias",
    "min_p",
    "mirostat",
    "named",
    "no_repeat_ngram",
    "one_hot",
    "over_ids",
    "presence_penalty",
    "probabilities",
    "reads_histories",
    "refuse_not_finite",
    "repetition_penalty",
    "synthid",
    "synthid_score",
    "takes",
    "temperature",
    "top_h",
    "top_k",
    "top_n_sigma",
    "top_p",
    "typical",
    "warp_names",
    "xtc",
]

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
        logits = checked_result(function, function(logits, _readable(histories, function)), logits).double()
    probs = logits.softmax(-1)
    # One NaN, one +inf or nothing but -inf makes its whole row NaN, and with it the sum of all.
    if math.isnan(float(probs.sum())):
        refuse_not_finite(given)
        row = int(probs[:, 0].isnan().nonzero()[0])
        if bool((logits[row] == -math.inf).all()):
            raise ValueError(f"no token is left in row {row}: the warp {warp_names(warp)} filtered everything away")
        raise ValueError(f"row {row} of the logits holds NaN or +inf after the warp {warp_names(warp)}")
    return probs


def _readable(histories, function: Warp):
    """The histories as a warp reads them: those of this room know `History`, and anybody else's gets lists."""
    if histories is None or str(getattr(function, "__module__", None)).startswith(f"{__package__}."):
        return histories
    return [history.as_list() if type(history) is History else history for history in histories]


def draft_probabilities(logits, warp, histories) -> list[torch.Tensor | None]:
    """Like `probabilities`, for the logits of a draft: a list of rows, with None for a row that cannot be warped.

    Nothing is drafted after such a row. This is not an error, because the text may never get there. Logits that are NaN
    or +inf are an error, as always. A warp that remembers the target's rows has a version for drafts, `of_drafts`,
    which remembers nothing.
    """
    warp = [getattr(function, "of_drafts", function) for function in warp]
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


def reads_histories(warp: Iterable[Warp]) -> bool:
    """Whether some of the warps may use the histories. This is assumed of every warp except `one_hot`."""
    return any(function is not one_hot for function in warp)
