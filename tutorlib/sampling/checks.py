"""What a warp is, and what has to be true of warps, their results and the histories that they read.

Errors name a warp as a reader wrote it, ``temperature(0.7)``. What this file does not do: warp anything.
"""

import inspect
import numbers
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

import torch

# (logits (n, vocab), histories: n token sequences, or None) -> logits (n, vocab)
Warp = Callable[[torch.Tensor, Sequence[Sequence[int]] | None], torch.Tensor]
Named = TypeVar("Named", bound=Callable)


class Filter(Protocol):
    """A warp that ignores the histories, so it can be called without them: ``top_k(5)(logits)``."""

    def __call__(self, logits: torch.Tensor, histories: Sequence[Sequence[int]] | None = None) -> torch.Tensor: ...


def checked_warp(warp) -> tuple[Warp, ...]:
    """Return `warp` as a tuple of functions; raise ValueError if it is not a sequence of functions."""
    if callable(warp):
        raise ValueError(f"warp must be a list of functions; got one function alone: write warp=[{warp_names([warp])}]")
    if isinstance(warp, str) or not isinstance(warp, Iterable):
        raise ValueError(f"warp must be a list of functions such as [temperature(0.7)], got {warp!r}")
    warp = tuple(warp)
    for function in warp:
        if not callable(function):
            raise ValueError(f"warp must hold functions (logits, histories) -> logits, got {function!r}")
        if not takes(function, 2):
            name = warp_names([function])
            raise ValueError(f"warp holds {name}, which does not take (logits, histories): write {name}(...)")
    return warp


def takes(function, count: int) -> bool:
    """Whether `function` can be called with `count` positional arguments."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # some functions that are not written in Python have no signature
        return callable(function)
    return True


def checked_result(function: Warp, result, logits: torch.Tensor) -> torch.Tensor:
    """Return the result of a warp; raise ValueError unless it has floats with the shape and device of `logits`."""
    if isinstance(result, torch.Tensor):
        if result.shape == logits.shape and result.is_floating_point() and result.device == logits.device:
            return result
        what = f"a tensor of {result.dtype}, shape {tuple(result.shape)}, on {result.device}"
    else:
        what = repr(result)
    raise ValueError(
        f"the warp {warp_names([function])} returned {what}: a warp must return logits (floats) of the shape "
        f"{tuple(logits.shape)} that it was given, on {logits.device}"
    )


def one_history_each(histories, logits: torch.Tensor, name: str) -> list[Sequence[int]]:
    """Return the histories, one for each row; raise ValueError if they are no such thing."""
    if histories is None or any(isinstance(history, numbers.Integral) for history in histories):
        raise ValueError(f"{name} needs the tokens before each row: pass histories, one sequence of tokens per row")
    histories = list(histories)
    if len(histories) != len(logits):
        raise ValueError(f"{name} needs one history per row: got {len(histories)} for {len(logits)} rows")
    return histories


def prompt_length(history: Sequence[int], name: str) -> int:
    """How many tokens of a history are the prompt's; raise ValueError if it does not know."""
    length = getattr(history, "prompt_length", None)
    if length is None:
        raise ValueError(
            f"{name} needs to know where the prompt ends: pass histories as "
            "tutorlib.arguments.Prompted(tokens, prompt_length), as the methods do"
        )
    return length


def checked_histories(histories, logits: torch.Tensor, name: str) -> list[list[int]]:
    """Return the histories as lists, one for each row; raise ValueError if they are wrong."""
    histories, vocab = [list(history) for history in one_history_each(histories, logits, name)], logits.shape[-1]
    for history in histories:
        if history and not 0 <= min(history) <= max(history) < vocab:
            wrong = [token for token in history if not 0 <= token < vocab]
            raise ValueError(f"{name} was given a history with {wrong[:5]}, outside the vocabulary of {vocab} tokens")
    return histories


def named(function: Named, name: str) -> Named:
    """Name a warp as error messages and plots show it: ``temperature(0.7)`` and not ``temperature_warp``."""
    function.__name__ = function.__qualname__ = name
    return function


def warp_names(warp: Iterable[Warp]) -> str:
    """The names of the warps, joined by commas; "(none)" when there are none."""
    return ", ".join(getattr(function, "__name__", repr(function)) for function in warp) or "(none)"
