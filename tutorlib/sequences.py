"""Sequences of tokens: where a text's prompt ends, and how far two texts agree."""

from collections.abc import Iterable, Sequence


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
