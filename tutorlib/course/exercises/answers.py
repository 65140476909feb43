"""Read an answer in whatever form a reader gives it, compare it, and show it in a message.

What this file does not do: call a reader's function (`judge`).
"""

import contextlib
import itertools
import math
import numbers
from collections.abc import Iterable, Mapping

import numpy as np
import torch

from .verdicts import FAILURES, NOT_YET, Ended, Verdict, in_words, right, wrong


def in_form_of(answer, due):
    """An answer in the form of the expected result `due`; the checker ends with a ✗ if it has another form."""
    if isinstance(due, torch.Tensor | np.ndarray):
        return array(answer, tuple(due.shape))
    if isinstance(due, tuple):
        answer = parts(answer, len(due))
        return tuple(in_form_of(part, other) for part, other in zip(answer, due, strict=True))
    if isinstance(due, list):
        return listed(answer)
    if isinstance(due, set | frozenset):
        return set(listed(answer))
    if isinstance(due, str | bool | Mapping):
        if not isinstance(answer, type(due)):
            raise Ended(wrong(f"Expected a {type(due).__name__}, got {short(answer)}."))
        return answer
    return number(answer)


def number(answer, due=None) -> float | int:
    """An answer as a plain number; the checker ends with a ✗ if it is not one. One-element tensors count as numbers."""
    if hasattr(answer, "item") and getattr(answer, "size", None) is not None:
        with contextlib.suppress(ValueError, RuntimeError):
            answer = answer.item()
    if isinstance(answer, bool) or not isinstance(answer, numbers.Real):
        raise Ended(wrong(f"Expected a number, got {short(answer)}."))
    try:
        as_float = float(answer)
    except OverflowError:
        raise Ended(wrong(f"{short(answer)} is too large to be right.")) from None
    return int(answer) if isinstance(answer, numbers.Integral) else as_float


def array(answer, shape: tuple[int, ...], what: str = "numbers") -> np.ndarray:
    """An answer as a float64 array of this shape; the checker ends with a ✗ if it is not one."""
    try:
        made = np.asarray(_plain(answer), dtype=float)
    except FAILURES:  # a ragged list, a sparse tensor, 10**400, a list that contains itself
        raise Ended(wrong(f"Expected {what} of shape {shape}, got {short(answer)}.")) from None
    if made.shape != shape:
        found = f"shape {made.shape}" if made.ndim else short(answer)
        raise Ended(wrong(f"Expected {what} of shape {shape}, got {found}."))
    return made


def listed(answer) -> list:
    """An answer as a list; tensors and arrays are converted. Their whole numbers become ints and compare as tokens."""
    answer = _plain(answer)
    if isinstance(answer, str | bytes | Mapping) or not isinstance(answer, Iterable):
        raise Ended(wrong(f"Expected a list, got {short(answer)}."))
    try:
        return [_plain(value) for value in itertools.islice(answer, 100_000)]
    except FAILURES as error:
        raise Ended(wrong(f"Expected a list, got {in_words(error)}")) from error


def parts(answer, count: int, what: str = "") -> tuple:
    """An answer of several parts, in a tuple or a list; the checker ends with a ✗ for anything else."""
    if isinstance(answer, torch.Tensor | np.ndarray) and answer.ndim and len(answer) == count:
        answer = tuple(answer)
    if not isinstance(answer, tuple | list) or len(answer) != count:
        raise Ended(wrong(f"Expected {what or f'{count} values'}, got {short(answer)}."))
    return tuple(answer)


def filled(answer, keys: Iterable[str], partly: bool = False) -> Mapping:
    """A prediction as a dict with these keys. The checker ends if it is not one, or if a value is still missing.

    With `partly`, the result holds only the values that are given, at least one. A checker that has found these right
    must call `filled` again without `partly`, so that it ends if others are missing.
    """
    keys = tuple(keys)
    if not isinstance(answer, Mapping) or set(answer) != set(keys):
        raise Ended(wrong(f"Expected a dict with the keys {', '.join(map(repr, keys))}; got {short(answer)}."))
    missing = [key for key in keys if answer[key] is None or answer[key] is ...]
    if len(missing) == len(keys):
        raise Ended(Verdict(None, NOT_YET))
    if partly:
        return {key: answer[key] for key in keys if key not in missing}
    if missing:
        raise Ended(Verdict(None, f"{NOT_YET}: {', '.join(map(repr, missing))}"))
    return answer


def same(one, other, tolerance: float = 1e-6) -> bool:
    """Whether two answers are equal: numbers within a relative tolerance, everything else part by part."""
    one, other = _plain(one), _plain(other)
    try:
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            return one.keys() == other.keys() and all(same(one[key], other[key], tolerance) for key in one)
        if isinstance(one, list | tuple) and isinstance(other, list | tuple):
            return len(one) == len(other) and all(same(*pair, tolerance) for pair in zip(one, other, strict=True))
        if isinstance(one, numbers.Real) and isinstance(other, numbers.Real):
            return close(float(one), float(other), tolerance)
        return bool(one == other)
    except FAILURES:  # also a list that contains itself
        return False


def close(one: float, other: float, tolerance: float = 1e-6) -> bool:
    """Whether two numbers are equal within a relative tolerance. NaN equals NaN."""
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance * 1e-3)


def _plain(value):
    """Tensors, arrays and their numbers as plain Python lists and numbers; anything else as it is."""
    if isinstance(value, torch.Tensor):
        with contextlib.suppress(RuntimeError, NotImplementedError):
            return value.detach().cpu().tolist()
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def judge_number(
    answer,
    expected: float,
    mistakes: Mapping[float, str] | None = None,
    *,
    why: str = "Right.",
    otherwise: str = "",
    tolerance: float = 1e-6,
) -> Verdict:
    """Judge one number: it is right, a known mistake, or simply wrong.

    Parameters
    ----------
    answer : number
    expected : float
    mistakes : mapping of float to str
        The results of the usual mistakes, and the message for each. The expected number is right even if it is also
        here.
    why : str
        The message for a right answer.
    otherwise : str
        A hint for a wrong answer that is none of the mistakes.
    tolerance : float
        The relative tolerance for comparing the answer with a number.
    """
    value = number(answer)
    if close(value, expected, tolerance):
        return right(why)
    for mistake, message in (mistakes or {}).items():
        if close(value, mistake, tolerance):
            return wrong(message)
    side = "too large" if value > expected else "too small" if value < expected else "not a number"
    return wrong(f"{short(value)} is {side}. {otherwise}".strip())


def expect(
    answer, due: float, mistakes: Mapping[float, str] | None = None, *, part: str = "", otherwise: str = "",
    tolerance: float = 1e-6,
) -> None:  # fmt: skip
    """End the checker with a ✗ unless a number is right. As `judge_number`, for a named `part` of several."""
    found = judge_number(answer, due, mistakes, otherwise=otherwise, tolerance=tolerance)
    if not found.ok:
        raise Ended(wrong(f"({part}) {found.message}") if part else found)


def tensor(values) -> torch.Tensor:
    """Numbers as a float64 tensor for a case: one row, or several."""
    return torch.tensor(values, dtype=torch.float64)


def normalised(weights: torch.Tensor) -> torch.Tensor:
    """Weights of shape (vocab,), divided by their sum."""
    return weights / weights.sum()


def short(value) -> str:
    """A value as it is shown in a message: rounded, on one line, cut if it is long.

    A value that contains itself, or cannot be shown, is described by its type.
    """
    try:
        text = repr(_rounded(value)).replace("\n", " ")
    except FAILURES:
        text = f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= 80 else text[:77] + "..."


def _rounded(value):
    value = _plain(value)
    if isinstance(value, float) and math.isfinite(value):
        value = float(f"{value:.6g}")
        return int(value) if value.is_integer() and abs(value) < 1e6 else value
    if type(value) in (list, tuple):
        return type(value)(_rounded(one) for one in value)
    return value
