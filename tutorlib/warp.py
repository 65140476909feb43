"""From logits to the probabilities that a method draws from.

A *warp* is a small pure function ``f(logits, histories) -> logits`` on rows of shape (n, vocab); a list of them is
applied in order, then comes the softmax. ``histories[i]`` is the sequence of tokens before row i: filters ignore it,
penalties read it. Nothing here draws a token.
"""

import math
from collections.abc import Callable, Iterable, Sequence

import torch

# (logits (n, vocab), histories: n token sequences, or None) -> logits (n, vocab)
Warp = Callable[[torch.Tensor, Sequence[Sequence[int]] | None], torch.Tensor]


def probabilities(logits, warp: Iterable[Warp] = (), histories: Sequence[Sequence[int]] | None = None) -> torch.Tensor:
    """Apply the warps in order, then the softmax.

    Parameters
    ----------
    logits : tensor of floats, shape (n, vocab)
        Rows as `Session.feed` returns them.
    warp : iterable of functions
        Each maps ``(logits (n, vocab), histories)`` to logits of the same shape.
    histories : sequence of n token sequences, optional
        The tokens before each row; only penalties need them.

    Returns
    -------
    tensor of float64, shape (n, vocab)
        Each row sums to 1. Warps and softmax are computed in float64 whatever the model's type, so that what a filter
        keeps does not hang on the last bit of a half-precision logit.

    Raises
    ------
    ValueError
        When a row has no probability left to give: NaN or infinite logits, or a warp that filtered everything away.
    """
    logits = logits.double()
    for function in warp:
        logits = function(logits, histories)
    probs = logits.softmax(-1)
    # One NaN, one +inf or nothing but -inf makes the whole row NaN, so a look at its first entry is enough.
    if bool(probs[:, 0].isnan().any()):
        row = int(probs[:, 0].isnan().nonzero()[0])
        if bool((logits[row] == -math.inf).all()):
            raise ValueError(f"no token is left in row {row}: the warp {warp_names(warp)} filtered everything away")
        raise ValueError(f"row {row} of the logits holds NaN or +inf after the warp {warp_names(warp)}")
    return probs


def temperature(t: float) -> Warp:
    """Divide the logits by `t`: below 1 the likely tokens gain, above 1 the unlikely ones do.

    Parameters
    ----------
    t : float
        Above 0. Towards 0 it becomes greedy; for greedy itself pass ``rng=None`` to the method.

    Raises
    ------
    ValueError
        When `t` is not a finite number above 0.

    Examples
    --------
    >>> probabilities(torch.tensor([[0.0, 1.0]]), [temperature(0.5)])
    tensor([[0.1192, 0.8808]], dtype=torch.float64)
    """
    if isinstance(t, bool) or not isinstance(t, (int, float)) or not math.isfinite(t) or t <= 0:
        raise ValueError(f"temperature needs a finite number above 0, got {t!r}: for greedy decoding pass rng=None")

    def temperature_warp(logits, histories=None):
        return logits / t

    return named(temperature_warp, f"temperature({t:g})")


def one_hot(logits: torch.Tensor, histories=None) -> torch.Tensor:
    """The warp that leaves one token: the largest logit of each row becomes 0, every other -inf.

    After the softmax the rows are one-hot. This is how ``rng=None`` makes every method greedy without a branch of its
    own (see `tutorlib.run.decoder`). Of equal logits the lowest id stays.

    Parameters
    ----------
    logits : tensor of floats, shape (n, vocab)

    Returns
    -------
    tensor of the same type and shape
    """
    only = torch.full_like(logits, -math.inf)
    return only.scatter_(-1, logits.argmax(-1, keepdim=True), 0.0)


def checked_warp(warp) -> tuple[Warp, ...]:
    """Return `warp` as a tuple of functions; raise ValueError when it is anything but a sequence of functions."""
    if callable(warp):
        raise ValueError(f"warp must be a list of functions; got one function alone: write warp=[{warp_names([warp])}]")
    if isinstance(warp, str) or not isinstance(warp, Iterable):
        raise ValueError(f"warp must be a list of functions such as [temperature(0.7)], got {warp!r}")
    warp = tuple(warp)
    for function in warp:
        if not callable(function):
            raise ValueError(f"warp must hold functions (logits, histories) -> logits, got {function!r}")
    return warp


def named(function: Warp, name: str) -> Warp:
    """Give a warp the name that error messages and plots show, ``temperature(0.7)`` and not ``temperature_warp``."""
    function.__name__ = function.__qualname__ = name
    return function


def warp_names(warp: Iterable[Warp]) -> str:
    """The names of the warps, joined by commas; "(none)" when there are none."""
    return ", ".join(getattr(function, "__name__", repr(function)) for function in warp) or "(none)"
