"""One checker for each exercise, one module for each chapter: a checker says *what* is wrong, not only that it is.

A checker is a function ``check_something(answer)`` that a reader calls at the end of an exercise's cell. It prints one
verdict, ✓ or ✗ and why, and raises nothing for a wrong answer, or for one whose code fails. What is here is shared:

    @checker
    def check_sum(answer):
        return compare(answer, 4, {5: "You counted the first one twice."}, why="Two and two are four.")

The modules of the chapters are not imported here: ``from tutorlib.exercises.next_token import check_softmax``.
"""

import contextlib
import functools
import math
import numbers
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch

NOT_YET = "not answered yet"


class Verdict(NamedTuple):
    """What a checker found: whether the answer is right (None: not answered yet), and why."""

    ok: bool | None
    message: str

    def __str__(self) -> str:
        return f"{'…' if self.ok is None else '✓' if self.ok else '✗'} {self.message}"


class _Ended(Exception):
    """Carries a verdict out of the middle of a checker."""

    def __init__(self, verdict: Verdict):
        super().__init__(verdict.message)
        self.verdict = verdict


def right(message: str) -> Verdict:
    """The verdict on a right answer; the message says why it is right, or what follows."""
    return Verdict(True, message)


def wrong(message: str) -> Verdict:
    """The verdict on a wrong answer; the message names the mistake."""
    return Verdict(False, message)


def verdict(ok: bool, message: str) -> None:
    """Print a verdict: ✓ or ✗ and a message. A `checker` does this with what it returns."""
    print(Verdict(bool(ok), message))


def checker(judge: Callable[..., Verdict]) -> Callable[..., None]:
    """Make a checker out of a function ``judge(answer, ...) -> Verdict``.

    The checker prints the verdict and returns None, so that it may be the last line of a cell. An answer that is None
    or ``...`` is "not answered yet", and `judge` does not see it.

    The function that returns the verdict, with all this but unprinted, is the checker's attribute `judge`: for tests.

    Examples
    --------
    >>> @checker
    ... def check_sum(answer):
    ...     return compare(answer, 4)
    >>> check_sum(None)
    … not answered yet
    >>> check_sum(4)
    ✓ Right.
    """

    @functools.wraps(judge)
    def judged(answer, *args, **kwargs) -> Verdict:
        if answer is None or answer is ...:
            return Verdict(None, NOT_YET)
        try:
            return judge(answer, *args, **kwargs)
        except _Ended as ended:
            return ended.verdict

    @functools.wraps(judge)
    def check(answer, *args, **kwargs) -> None:
        print(judged(answer, *args, **kwargs))

    check.judge = judged
    return check


def attempt(function: Callable, *args, **kwargs):
    """Call a reader's function inside a checker, and return what it returns.

    Where there is nothing to judge the checker ends here: a function that raises is a wrong answer, with the error as
    its message; one that returns None (an empty body) or ``...`` or raises NotImplementedError is not answered yet.
    """
    if not callable(function):
        raise _Ended(wrong(f"Expected a function, got {function!r}: pass its name, without parentheses."))
    try:
        result = function(*args, **kwargs)
    except NotImplementedError:
        result = None
    except Exception as error:  # a reader's code may fail in any way
        shown = ", ".join([*map(_short, args), *(f"{name}={_short(value)}" for name, value in kwargs.items())])
        name = getattr(function, "__name__", "your function")
        said = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise _Ended(wrong(f"{name}({shown}) raised {said}")) from error
    if result is None or result is ...:
        raise _Ended(Verdict(None, NOT_YET))
    return result


def number(answer) -> float | int:
    """Return an answer as a plain number inside a checker; the checker ends with a ✗ if it is not one.

    One-element tensors and arrays count as numbers.
    """
    if hasattr(answer, "item") and getattr(answer, "size", None) is not None:
        with contextlib.suppress(ValueError, RuntimeError):
            answer = answer.item()
    if isinstance(answer, bool) or not isinstance(answer, numbers.Real):
        raise _Ended(wrong(f"Expected a number, got {_short(answer)}."))
    return int(answer) if isinstance(answer, numbers.Integral) else float(answer)


def as_array(answer, shape: tuple[int, ...], what: str) -> np.ndarray:
    """An answer as a float64 array of this shape; the checker ends with a ✗ if it is not one."""
    try:
        if isinstance(answer, torch.Tensor):
            answer = answer.detach().cpu()
        array = np.asarray(answer, dtype=float)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # a ragged list, a sparse tensor, 10**400
        array = np.zeros(())
    if array.shape != shape:
        found = tuple(array.shape) if array.ndim else type(answer).__name__
        raise _Ended(wrong(f"Expected {what}, shape {shape}; got {found}."))
    return array


def compare(
    answer,
    expected: float,
    mistakes: Mapping[float, str] | None = None,
    *,
    why: str = "Right.",
    otherwise: str = "",
    tolerance: float = 1e-6,
) -> Verdict:
    """Judge a number: right, a mistake that has a name, or simply wrong.

    Parameters
    ----------
    answer : number
    expected : float
    mistakes : mapping of float to str
        What the usual mistakes come to, and what to say to each. The right answer comes first, where they coincide.
    why : str
        What to say to the right answer.
    otherwise : str
        A hint for a wrong answer that is none of the mistakes.
    tolerance : float
        Relative: how far an answer may be from a value to count as it.

    Returns
    -------
    Verdict
    """
    value = number(answer)
    if _close(value, expected, tolerance):
        return right(why)
    for mistake, message in (mistakes or {}).items():
        if _close(value, mistake, tolerance):
            return wrong(message)
    side = "too large" if value > expected else "too small" if value < expected else "not a number"
    return wrong(f"{_short(value)} is {side}. {otherwise}".strip())


def _close(value: float, other: float, tolerance: float) -> bool:
    return math.isclose(value, other, rel_tol=tolerance, abs_tol=tolerance * 1e-6)


def _short(value) -> str:
    with contextlib.suppress(RuntimeError):  # a tensor that has no numbers to list is shown as it is
        value = value.tolist() if hasattr(value, "tolist") else value
    text = repr(value).replace("\n", " ")
    return text if len(text) <= 60 else text[:57] + "..."
