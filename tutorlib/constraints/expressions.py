"""Regular expressions over bytes: read one, and take its derivatives.

An expression is a tuple: ``("byte", {bytes})``, ``("seq", first, rest)``, ``("either", {expressions})`` or ``("star",
inner)``. Its *derivative* by a byte describes what may follow that byte. Every state of an automaton is an expression:
what may still come. What this file does not do: number the states and walk tokens through them (`automaton`).
"""

from collections.abc import Iterable, Iterator

Expression = tuple

NOTHING: Expression = ("byte", frozenset())  # no text at all
EMPTY: Expression = ("star", NOTHING)  # only the empty text
LONGEST_REPEAT = 1000
_CLASSES = {"d": "0-9", "w": "0-9A-Z_a-z", "s": "\t\n\v\f\r "}
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}
_LAST = 0x10FFFF


# ----------------------------------------------------------------------------------------------------------------------
# Derivatives


def seq(first: Expression, rest: Expression) -> Expression:
    """A text of the first, followed by a text of the rest."""
    if NOTHING in (first, rest):
        return NOTHING
    if EMPTY in (first, rest):
        return rest if first == EMPTY else first
    return seq(first[1], seq(first[2], rest)) if first[0] == "seq" else ("seq", first, rest)


def either(expressions: Iterable[Expression]) -> Expression:
    """A text of any of them. Sets of single bytes are joined, so that equal languages are more often equal tuples."""
    parts: set[Expression] = set()
    for one in expressions:
        parts |= one[1] if one[0] == "either" else {one}
    single = frozenset().union(*(one[1] for one in parts if one[0] == "byte"))
    parts = {one for one in parts if one[0] != "byte"} | ({("byte", single)} if single else set())
    return parts.pop() if len(parts) == 1 else ("either", frozenset(parts)) if parts else NOTHING


def star(inner: Expression) -> Expression:
    """Any number of texts of the inner one."""
    return inner if inner[0] == "star" else ("star", inner)


def accepts_empty(expression: Expression) -> bool:
    kind = expression[0]
    if kind == "either":
        return any(map(accepts_empty, expression[1]))
    return kind == "star" or (kind == "seq" and accepts_empty(expression[1]) and accepts_empty(expression[2]))


def derivative(expression: Expression, byte: int) -> Expression:
    """What may follow a byte: the rest of each text of the expression that begins with it.

    Source: Brzozowski (1964), "Derivatives of Regular Expressions".
    """
    kind = expression[0]
    if kind == "byte":
        return EMPTY if byte in expression[1] else NOTHING
    if kind == "either":
        return either(derivative(one, byte) for one in expression[1])
    if kind == "star":
        return seq(derivative(expression[1], byte), expression)
    first = seq(derivative(expression[1], byte), expression[2])
    return either([first, derivative(expression[2], byte)]) if accepts_empty(expression[1]) else first


def first_bytes(expression: Expression) -> Iterator[frozenset[int]]:
    """Sets of bytes that may come first. Bytes that are in the same of these sets have the same derivative."""
    kind = expression[0]
    if kind == "byte":
        yield expression[1]
    elif kind == "either":
        for one in expression[1]:
            yield from first_bytes(one)
    else:
        yield from first_bytes(expression[1])
        if kind == "seq" and accepts_empty(expression[1]):
            yield from first_bytes(expression[2])


# ----------------------------------------------------------------------------------------------------------------------
# Reading


def characters(low: int, high: int) -> Expression:
    """The characters from one number to another, as the bytes that UTF-8 writes for them."""
    if low > high:
        return NOTHING
    # Split until all bytes of a piece vary independently of each other.
    for last in (0x7F, 0x7FF, 0xD7FF, 0xDFFF, 0xFFFF):
        if low <= last < high:
            return either([characters(low, last), characters(last + 1, high)])
    if 0xD800 <= low <= 0xDFFF:
        return NOTHING  # halves of pairs in UTF-16: no characters
    for mask in (0x3F, 0xFFF, 0x3FFFF):
        if low > 0x7F and low & ~mask != high & ~mask:
            if low & mask:
                return either([characters(low, low | mask), characters((low | mask) + 1, high)])
            if high & mask != mask:
                return either([characters(low, (high & ~mask) - 1), characters(high & ~mask, high)])
    whole = EMPTY
    for least, most in reversed(list(zip(chr(low).encode(), chr(high).encode(), strict=True))):
        whole = seq(("byte", frozenset(range(least, most + 1))), whole)
    return whole


def quoted(pattern: str, most: int = 60) -> str:
    """A pattern in quotes, cut if it is long."""
    return repr(pattern if len(pattern) <= most else pattern[: most - 3] + "...")


def read_expression(pattern: str) -> Expression:
    """Read a regular expression, which must match the whole text.

    It may hold letters, ``.`` (anything but a line break), classes such as ``[a-z]`` and ``[^"]``, groups, ``|``,
    ``*``, ``+``, ``?`` and ``{2,5}``. ``\\d``, ``\\w`` and ``\\s`` stand for characters of ASCII.

    Raises
    ------
    ValueError
        For anything else, and for a pattern that is wrong. The message names it and its position.
    """
    if not isinstance(pattern, str):
        raise ValueError(f"a regular expression must be a str, got {pattern!r}")
    return _Reader(pattern.removeprefix("^")).whole()


# The name of the release before.
read = read_expression


class _Reader:
    """A pattern, and how far it has been read."""

    def __init__(self, pattern: str):
        self.pattern, self.place = pattern, 0

    def wrong(self, what: str) -> ValueError:
        return ValueError(f"the regular expression {quoted(self.pattern)} has {what} at position {self.place}")

    def peek(self, text: str) -> bool:
        return self.pattern.startswith(text, self.place)

    def take(self, text: str) -> bool:
        there = self.peek(text)
        self.place += len(text) * there
        return there

    def next(self, within: str) -> str:
        if self.place == len(self.pattern):
            raise self.wrong(f"no end of its {within}")
        self.place += 1
        return self.pattern[self.place - 1]

    def whole(self) -> Expression:
        found = self.alternatives()
        if self.place < len(self.pattern):
            raise self.wrong("a ) without its (")
        return found

    def alternatives(self) -> Expression:
        parts = [self.sequence()]
        while self.take("|"):
            parts.append(self.sequence())
        return either(parts)

    def sequence(self) -> Expression:
        parts = []
        while self.place < len(self.pattern) and not self.peek("|") and not self.peek(")"):
            if self.pattern[self.place :] == "$":
                self.place += 1
                break
            parts.append(self.repeated())
        found = EMPTY
        for one in reversed(parts):
            found = seq(one, found)
        return found

    def repeated(self) -> Expression:
        inner = self.atom()
        if self.take("*"):
            least, most = 0, None
        elif self.take("+"):
            least, most = 1, None
        elif self.take("?"):
            least, most = 0, 1
        elif self.peek("{"):
            least, most = self.counts()
        else:
            return inner
        if self.place < len(self.pattern) and self.pattern[self.place] in "*+?{":
            raise self.wrong("two repeats in a row (lazy and possessive ones match the same whole texts: leave it out)")
        found = star(inner) if most is None else EMPTY
        for _ in range(0 if most is None else most - least):
            found = either([EMPTY, seq(inner, found)])
        for _ in range(least):
            found = seq(inner, found)
        return found

    def counts(self) -> tuple[int, int | None]:
        end = self.pattern.find("}", self.place)
        least, comma, most = self.pattern[self.place + 1 : end].partition(",")
        if end < 0 or not least.isdecimal() or not (most.isdecimal() or (comma and not most)) and comma:
            raise self.wrong("a { that begins no repeat such as {2,5} (for the character write \\{)")
        low, high = int(least), int(most) if most else None if comma else int(least)
        if max(low, high or 0) > LONGEST_REPEAT or (high is not None and high < low):
            raise self.wrong(
                f"a repeat from {low} to {high}: the order must be right, and the most is {LONGEST_REPEAT}"
            )
        self.place = end + 1
        return low, high

    def atom(self) -> Expression:
        if self.take("("):
            if self.peek("?=") or self.peek("?!") or self.peek("?<=") or self.peek("?<!"):
                raise self.wrong("a look-around, which needs more than one automaton: describe the whole text instead")
            if self.peek("?") and not self.peek("?:"):
                raise self.wrong("a group with an option: only (...) and (?:...) are known")
            self.take("?:")
            found = self.alternatives()
            if not self.take(")"):
                raise self.wrong("a ( without its )")
            return found
        if self.peek("^") or self.peek("$"):
            raise self.wrong(f"an anchor {self.pattern[self.place]} inside: the whole text has to match anyway")
        if self.place < len(self.pattern) and self.pattern[self.place] in "*+?{":
            raise self.wrong(f"a {self.pattern[self.place]} with nothing to repeat before it")
        if self.take("."):
            return _outside([(0x0A, 0x0A)])
        if self.take("["):
            return self.class_of_characters()
        ranges = self.character("pattern")
        return either(characters(*pair) for pair in ranges)

    def class_of_characters(self) -> Expression:
        outside, ranges = self.take("^"), []
        while not ranges or not self.take("]"):
            here = self.character("[")
            if self.peek("-") and not self.peek("-]"):
                self.place += 1
                last = self.character("[")
                if len(here) != 1 or len(last) != 1 or here[0][0] != here[0][1] or last[0][1] < here[0][0]:
                    raise self.wrong("a range of characters that is in the wrong order, or none")
                here = [(here[0][0], last[0][1])]
            ranges += here
        return _outside(ranges) if outside else either(characters(*pair) for pair in ranges)

    def character(self, within: str) -> list[tuple[int, int]]:
        """The ranges of a character, or of an escaped class such as ``\\d``."""
        letter = self.next(within)
        if letter != "\\":
            return [(ord(letter), ord(letter))]
        letter = self.next("\\")
        if letter.lower() in _CLASSES:
            inside = _Reader(_CLASSES[letter.lower()] + "]")
            ranges = []
            while not inside.take("]"):
                low = inside.character("[")[0][0]
                ranges.append((low, inside.character("[")[0][0] if inside.take("-") else low))
            return ranges if letter.islower() else _gaps(ranges)
        if letter in "xu":
            digits = "".join(self.next("\\") for _ in range(2 if letter == "x" else 4))
            try:
                return [(int(digits, 16),) * 2]
            except ValueError:
                raise self.wrong(f"no hexadecimal number after \\{letter}") from None
        if letter not in _CONTROLS and letter.isalnum():
            raise self.wrong(f"\\{letter}, which is unknown here (look-around, word boundaries and references are)")
        letter = _CONTROLS.get(letter, letter)
        return [(ord(letter), ord(letter))]


def _gaps(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges of all other characters."""
    gaps, begin = [], 0
    for low, high in sorted(ranges):
        if low > begin:
            gaps.append((begin, low - 1))
        begin = max(begin, high + 1)
    return [*gaps, (begin, _LAST)] if begin <= _LAST else gaps


def _outside(ranges: list[tuple[int, int]]) -> Expression:
    return either(characters(*pair) for pair in _gaps(ranges))
