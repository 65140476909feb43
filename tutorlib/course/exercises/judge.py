"""The code that all checkers share: it tries an answer on cases, compares the results, and names known mistakes.

Most answers are functions. For these, an `Exercise` is a checker defined by data: the cases on which a function is
tried, the expected function, and the most likely mistakes. A mistake is the function that a reader with this mistake
would write, or options with which the expected function makes the mistake. An answer that agrees with a mistake in
every case gets the message for this mistake. If an answer is something else (a prediction, a table, a whole decoder), a
function decorated with `checker` examines it and uses `compare`, `right` and `wrong`.
"""

import contextlib
import dis
import functools
import itertools
import math
import numbers
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np
import torch

NOT_YET = "not answered yet"
# A reader's code and objects may fail in any way, and `sys.exit` must not end the interpreter. Ctrl-C still works.
FAILURES = (Exception, SystemExit, GeneratorExit)
NOTHING = "Your function returned None: did it forget to return its result?"

# A mistake is the function that makes it, or the options with which the expected function makes it.
Mistake = Callable | Mapping


class Verdict(NamedTuple):
    """The result of a check: whether the answer is right (None: not answered yet), and why.

    A verdict is true only if the answer is right, so ``assert check.judge(answer)`` can grade it.
    """

    ok: bool | None
    message: str

    def __bool__(self) -> bool:
        return self.ok is True

    def __str__(self) -> str:
        return f"{'…' if self.ok is None else '✓' if self.ok else '✗'} {self.message}"


class Ended(Exception):
    """Raised inside a checker to end it with a verdict."""

    def __init__(self, verdict: Verdict):
        super().__init__(verdict.message)
        self.verdict = verdict


def right(message: str) -> Verdict:
    """The verdict on a right answer; the message says why it is right, or what follows from it."""
    return Verdict(True, message)


def wrong(message: str) -> Verdict:
    """The verdict on a wrong answer; the message names the mistake."""
    return Verdict(False, message)


def checker(look: Callable[..., Verdict]) -> Callable[..., None]:
    """Turn a function ``look(answer, ...) -> Verdict`` into a checker.

    The checker prints the verdict and returns None, so it can be the last line of a cell. An answer that is None or
    ``...`` is "not answered yet", and `look` is not called. The checker's attribute `judge` returns the verdict without
    printing it.

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

    @functools.wraps(look)
    def judged(answer, *args, **kwargs) -> Verdict:
        if answer is None or answer is ...:
            return Verdict(None, NOT_YET)
        return _verdict(look, answer, *args, **kwargs)

    @functools.wraps(look)
    def check(answer, *args, **kwargs) -> None:
        print(judged(answer, *args, **kwargs))

    check.judge = judged
    return check


def _verdict(look: Callable[..., Verdict], *args, **kwargs) -> Verdict:
    """The verdict of a check, whatever the reader's objects do when they are compared or shown."""
    try:
        return look(*args, **kwargs)
    except Ended as ended:
        return ended.verdict
    except FAILURES as error:
        return wrong(f"Your answer cannot be read: looking at it raised {in_words(error)}.")


def in_words(error: BaseException) -> str:
    """The kind of an error and its message, as far as it has one that can be shown."""
    said = ""
    with contextlib.suppress(*FAILURES):
        said = f": {error}".removesuffix(": ").removesuffix(".")
    return type(error).__name__ + said


# ----------------------------------------------------------------------------------------------------------------------
# Answers that are functions

FAILED = object()  # stands for the result of a function that raised an error, or returned something of the wrong form


class Exercise:
    """An exercise whose answer is a function; called with one, it prints the verdict.

    Parameters
    ----------
    task : str
        What the function should do.
    cases : iterable of tuples, or function that returns it
        The arguments of each call. The reader's function gets copies and must not change them. Pass a function if the
        cases take time to make; it is called when the first answer is judged.
    expected : function
        Called with the same arguments, it returns the right result: numbers, arrays, or lists and tuples of them.
    mistakes : mapping from str to a mistake or a tuple of mistakes
        From a message to the function that a reader with this mistake would write, or to options with which `expected`
        makes the mistake. The first mistake that agrees with the answer in all cases is named.
    through : function, optional
        Converts a function into the one that is tried on the cases, for example if a case consists of several calls. It
        is applied to the answer, to `expected` and to the mistakes.
    read : function, optional
        ``read(answer, due)`` converts a result so that it can be compared with the expected one, `due`, or ends with a
        ✗ if its form is wrong. The default, `like`, accepts anything in the form of `due`.
    show : function, optional
        ``show(*case)`` describes a case in words; by default the arguments are shown.
    said : function, optional
        ``said(given, due)`` describes in words how a result differs from the expected one; by default both are shown.
    why : str
        The message for a right answer.
    hint : str, or function that returns it
        The message for a wrong result that is none of the mistakes. A function ``hint(given, due)`` is called with the
        first wrong result and the expected one. If there is no result, for example after an error, there is no hint.
    tolerance : float
        The relative tolerance for numbers.

    Examples
    --------
    >>> check_double = Exercise("A function my_double(x).", [(3,), (5,)], lambda x: 2 * x,
    ...                         {"You squared.": lambda x: x * x}, why="Twice as much.")
    >>> check_double(lambda x: x * x)
    ✗ For (3): you gave 9, expected 6. You squared.
    >>> check_double(lambda x: x + x)
    ✓ Twice as much.
    """

    def __init__(self, task: str, cases: Iterable[tuple] | Callable, expected: Callable,
                 mistakes: Mapping[str, Mistake | tuple[Mistake, ...]], *,
                 through: Callable = lambda function: function, read: Callable | None = None,
                 show: Callable | None = None, said: Callable | None = None, why: str = "Right.",
                 hint: str | Callable = "", tolerance: float = 1e-6):  # fmt: skip
        self.__doc__, self.expected = task, expected
        self._cases = cases if callable(cases) else lambda: cases
        self.mistakes = {message: tuple(map(self._rule, rules if isinstance(rules, tuple) else (rules,)))
                         for message, rules in mistakes.items()}  # fmt: skip
        self._through, self._read, self._show, self._said = through, read or like, show or _arguments, said
        self._why, self._hint, self._tolerance = why, hint, tolerance

    def __call__(self, answer) -> None:
        print(self.judge(answer))

    def judge(self, answer) -> Verdict:
        """Return the verdict: right, or wrong with the first wrong case and the mistake, if it is a known one."""
        if answer is None or answer is ...:
            return Verdict(None, NOT_YET)
        return _verdict(self._judged, answer)

    def _judged(self, answer) -> Verdict:
        given, failed = [], None
        for case, due in zip(self.cases, self._due, strict=True):
            try:
                function = self._through(answer) if callable(answer) else answer
                given.append(self._read(ask(function, *case), due))
            except Ended as ended:  # the results before the failure may say more than the failure
                given.append(FAILED)
                failed = ended.verdict
                break
        off = next((i for i, own in enumerate(given) if not self._same(own, self._due[i])), None)
        if off is None:
            return right(self._why)
        if failed is not None and (failed.ok is None or failed.message == NOTHING):
            said = "In some cases your function returns nothing: is there a return in every branch?"
            return wrong(said) if len(given) > 1 else failed
        said = self._mistake(given) or self._fallback(given[off], self._due[off])
        return wrong(f"{self._difference(off, given[off], failed)} {said}".strip())

    def _fallback(self, given, due) -> str:
        """The hint for a result that is none of the mistakes; empty if there is no result."""
        if given is FAILED:
            return ""
        return self._hint(given, due) if callable(self._hint) else self._hint

    def _rule(self, mistake: Mistake) -> Callable:
        return mistake if callable(mistake) else functools.partial(self.expected, **mistake)

    @functools.cached_property
    def cases(self) -> list[tuple]:
        """The arguments of each call."""
        return list(self._cases())

    @functools.cached_property
    def _due(self) -> list:
        return [self._through(self.expected)(*map(copy_of, case)) for case in self.cases]

    @functools.cached_property
    def _made(self) -> list[tuple[str, list]]:
        """For each mistake its message and its results in all cases."""
        return [
            (message, [self._outcome(rule, *pair) for pair in zip(self.cases, self._due, strict=True)])
            for message, rules in self.mistakes.items()
            for rule in rules
        ]

    def _outcome(self, mistake: Callable, case: tuple, due):
        with contextlib.suppress(ArithmeticError, LookupError, ValueError, TypeError, RuntimeError, Ended):
            return self._read(self._through(mistake)(*map(copy_of, case)), due)
        return FAILED

    def _mistake(self, given: list) -> str:
        """The message for the first mistake with the same results, as far as these go; empty if there is none."""
        for message, made in self._made:
            if all(self._same(*pair) for pair in zip(given, made, strict=False)):
                return message
        return ""

    def _same(self, one, other) -> bool:
        return one is other if one is FAILED or other is FAILED else same(one, other, self._tolerance)

    def _difference(self, off: int, given, failed: Verdict | None) -> str:
        if given is FAILED:
            return failed.message
        if self._said:
            return self._said(given, self._due[off])
        return f"For {self._show(*self.cases[off])}: you gave {short(given)}, expected {short(self._due[off])}."


def ask(function: Callable, *args):
    """Call a reader's function with copies of the arguments, which it must not change. See `attempt`."""
    lent = [copy_of(value) for value in args]
    answer = attempt(function, *lent)
    if not all(same(own, original, 0) for own, original in zip(lent, args, strict=True)):
        raise Ended(wrong("Your function changed its arguments: work on copies."))
    return answer


def copy_of(value):
    """A copy of lists, tensors, arrays and the like; anything else, such as a model, is returned as it is."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, Mapping):
        return {key: copy_of(item) for key, item in value.items()}
    return type(value)(map(copy_of, value)) if type(value) in (list, tuple, set) else value


def attempt(function: Callable, *args, **kwargs):
    """Call a reader's function inside a checker, and return its result.

    If there is no result to judge, the checker ends here. A function that raises an error is a wrong answer, and the
    message shows the error. So is one that returns None, unless its body is empty. A function that has an empty body,
    returns ``...`` or raises NotImplementedError is not answered yet.
    """
    if not callable(function):
        raise Ended(
            wrong(f"Expected a function, got {short(function)}: pass the function's name, without parentheses.")
        )
    try:
        result = function(*args, **kwargs)
    except Ended:
        raise
    except NotImplementedError:
        result = ...
    except FAILURES as error:
        shown = ", ".join([*map(short, args), *(f"{name}={short(value)}" for name, value in kwargs.items())])
        name = getattr(function, "__name__", "your function")
        raise Ended(wrong(f"{name}({shown}) raised {in_words(error)}.")) from error
    if result is ... or (result is None and _is_empty(function)):
        raise Ended(Verdict(None, NOT_YET))
    if result is None:
        raise Ended(wrong(NOTHING))
    return result


def _is_empty(function: Callable) -> bool:
    """Whether the body of a function consists of a docstring, comments, ``pass`` or ``...`` alone."""
    code = getattr(function, "__code__", None)
    nothing_done = {"RESUME", "NOP", "LOAD_CONST", "RETURN_CONST", "RETURN_VALUE"}
    return code is not None and {step.opname for step in dis.get_instructions(code)} <= nothing_done


# ----------------------------------------------------------------------------------------------------------------------
# Reading answers, and comparing them


def like(answer, due):
    """An answer in the form of the expected result `due`; the checker ends with a ✗ if it has another form."""
    if isinstance(due, torch.Tensor | np.ndarray):
        return array(answer, tuple(due.shape))
    if isinstance(due, tuple):
        answer = parts(answer, len(due))
        return tuple(like(part, other) for part, other in zip(answer, due, strict=True))
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
            return close(one, other, tolerance)
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


def compare(
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


# ----------------------------------------------------------------------------------------------------------------------
# Making cases


def tensor(values) -> torch.Tensor:
    """Numbers as a float64 tensor for a case: one row, or several."""
    return torch.tensor(values, dtype=torch.float64)


def normalised(weights: torch.Tensor) -> torch.Tensor:
    """Weights of shape (vocab,), divided by their sum."""
    return weights / weights.sum()


# ----------------------------------------------------------------------------------------------------------------------
# Showing values


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


def _arguments(*case) -> str:
    return f"({', '.join(map(short, case))})"
