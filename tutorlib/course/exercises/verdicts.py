"""What a checker says of an answer: that it is right, wrong, or not there yet."""

import contextlib
from typing import NamedTuple

NOT_YET = "not answered yet"


# A reader's code and objects may fail in any way, and `sys.exit` must not end the interpreter. Ctrl-C still works.
FAILURES = (Exception, SystemExit, GeneratorExit)


NOTHING = "Your function returned None: did it forget to return its result?"


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


def in_words(error: BaseException) -> str:
    """The kind of an error and its message, as far as it has one that can be shown."""
    said = ""
    with contextlib.suppress(*FAILURES):
        said = f": {error}".removesuffix(": ").removesuffix(".")
    return type(error).__name__ + said
