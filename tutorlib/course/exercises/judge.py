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
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import torch

from .answers import in_form_of, same, short
from .verdicts import FAILURES, NOT_YET, NOTHING, Ended, Verdict, in_words, right, wrong

# A mistake is the function that makes it, or the options with which the expected function makes it.
Mistake = Callable | Mapping


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

    check.judge = judged  # type: ignore[attr-defined]  # a function may have attributes
    return check


def _verdict(look: Callable[..., Verdict], *args, **kwargs) -> Verdict:
    """The verdict of a check, whatever the reader's objects do when they are compared or shown."""
    try:
        return look(*args, **kwargs)
    except Ended as ended:
        return ended.verdict
    except FAILURES as error:
        return wrong(f"Your answer cannot be read: looking at it raised {in_words(error)}.")


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
        self._through, self._read, self._show, self._said = through, read or in_form_of, show or _arguments, said
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
                given.append(self._read(_ask(function, *case), due))
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
        if given is FAILED and failed is not None:
            return failed.message
        if self._said:
            return self._said(given, self._due[off])
        return f"For {self._show(*self.cases[off])}: you gave {short(given)}, expected {short(self._due[off])}."


def _ask(function: Callable, *args):
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


def _arguments(*case) -> str:
    return f"({', '.join(map(short, case))})"
