"""Arguments that can be read only once, made into lists that can be read again and again."""

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, MappingView

_PLAIN = {int, float, str, bool, type(None)}  # most of what collections hold, known at a glance


def concrete(value):
    """`value` itself, or a list in its place if it is an iterator or a dict's view; the same for what is in it.

    Only lists, tuples and dicts are looked into.

    Examples
    --------
    >>> concrete(zip("ab", [1, 2])), concrete([range(3), (n for n in (1, 2))]), concrete({"a": 1}.keys())
    ([('a', 1), ('b', 2)], [range(0, 3), [1, 2]], ['a'])
    """
    if isinstance(value, Iterator | MappingView):
        value = list(value)
    if isinstance(value, list | tuple):
        inside = [item if type(item) in _PLAIN else concrete(item) for item in value]
        return value if all(map(operator.is_, inside, value)) else inside
    if isinstance(value, Mapping):
        inside = {key: concrete(item) for key, item in value.items()}
        return value if all(inside[key] is item for key, item in value.items()) else inside
    return value


def takes_iterators(function: Callable) -> Callable:
    """Let a function take iterators wherever it takes collections, however often it reads them."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        return function(*map(concrete, args), **{name: concrete(value) for name, value in kwargs.items()})

    return call
