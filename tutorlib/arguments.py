"""What functions are given: numbers are checked and named, iterators that can be read only once become lists, and texts
know where their prompt ends.
"""

import functools
import math
import numbers
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, MappingView, Sequence, Set
from typing import Any, cast

_PLAIN = {int, float, str, bool, type(None)}  # the types of most elements, for a quick check
_INT = frozenset([int])
# What a command says without a traceback: its message tells what was given and what to do.
USER_ERRORS = (ValueError, OSError, ImportError, MemoryError)


def is_number(value) -> bool:
    """Whether `value` is a finite real number (True and False are not)."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)


def number_text(number) -> str:
    """The shortest text that gives back the same number: 0.7, 1 for 1.0, and 0.9999999, which is not 1."""
    short = f"{number:g}"
    return short if float(short) == number else repr(float(number))


def check_whole_number(value, least: int, needs: str) -> None:
    """Raise ValueError, beginning with `needs`, if `value` is not a whole number of at least `least`."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{needs}, a whole number of {least} or more, got {value!r}")


def check_share(value, needs: str) -> None:
    """Raise ValueError, beginning with `needs`, if `value` is not a number from 0 to 1."""
    if not is_number(value) or not 0 <= value <= 1:
        raise ValueError(f"{needs} must be from 0 to 1, got {value!r}")


def ints(values, needs: str) -> list[int]:
    """Return whole numbers of any type as a list of ints; raise ValueError, beginning with `needs`, for anything else.

    Collections without an order (sets, dicts) and texts (including bytes) are refused, because they are probably
    mistakes.
    """
    if type(values) is list and _INT.issuperset(map(type, values)):  # the usual case, several times in each step
        return values.copy()
    try:
        if isinstance(values, str | bytes | bytearray | memoryview | Mapping | Set):
            raise TypeError
        # The elements of a tensor are tensors.
        values = values.tolist() if hasattr(values, "tolist") else list(values)
        if any(isinstance(value, bool) for value in values):
            raise TypeError
        return [operator.index(value) for value in values]
    except TypeError:
        raise ValueError(f"{needs}, got {values!r}") from None


def concrete(value: Any) -> Any:
    """Turn iterators and views of dicts into lists, also inside lists, tuples and dicts; return other values unchanged.

    Examples
    --------
    >>> concrete(zip("ab", [1, 2])), concrete([range(3), (n for n in (1, 2))]), concrete({"a": 1}.keys())
    ([('a', 1), ('b', 2)], [range(0, 3), [1, 2]], ['a'])
    """
    if isinstance(value, Iterator | MappingView):
        value = list(cast(Iterable, value))  # each view is one
    if isinstance(value, list | tuple):
        inside = [item if type(item) in _PLAIN else concrete(item) for item in value]
        return value if all(map(operator.is_, inside, value)) else inside
    if isinstance(value, Mapping):
        fresh = {key: concrete(item) for key, item in value.items()}
        return value if all(fresh[key] is item for key, item in value.items()) else fresh
    return value


def takes_iterators(function: Callable) -> Callable:
    """Let a function accept iterators in place of collections, even if it reads them several times."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        return function(*map(concrete, args), **{name: concrete(value) for name, value in kwargs.items()})

    return call


class Prompted(list[int]):
    """The tokens of a text, which know how many of them are the prompt's: `prompt_length`, at the beginning.

    Copies and slices are plain lists, which do not know it.
    """

    def __init__(self, tokens: Iterable[int], prompt_length: int):
        super().__init__(tokens)
        self.prompt_length = prompt_length


def shared_beginning(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two texts have in common, from the beginning. (Comparing slices is much faster than a loop.)

    Examples
    --------
    >>> shared_beginning([1, 2, 3, 4], [1, 2, 5]), shared_beginning([1, 2], [1, 2, 5])
    (2, 2)
    """
    low, high = 0, min(len(one), len(other))
    middle = high  # the usual case is tried first: one text is the beginning of the other
    while low < high:
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
        middle = (low + high + 1) // 2
    return low
