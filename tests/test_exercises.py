"""Every checker accepts what is right, names each of its mistakes, and answers anything else without raising.

One test for all chapters: the exercises are found in the modules of `tutorlib.exercises` and in the notebooks.
"""

import contextlib
import heapq
import math
import re
from importlib import import_module
from pathlib import Path

import nbformat
import pytest
import torch

import tutorlib
from tutorlib.exercises.judge import NOT_YET, Exercise

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
CHAPTERS = {path.stem: path.stem[3:] for path in NOTEBOOKS}


# What a chapter's kernel holds when its exercises begin, beside the front door.
IN_THE_KERNEL = {
    "torch": torch, "math": math, "heapq": heapq,
    "expert_says": {"1961 ": 0.16, "1964 ": 0.1, "umber ": 0.0005},
    "amateur_says": {"1961 ": 0.1, "1964 ": 0.05, "umber ": 0.2},
}  # fmt: skip


def exercises_of(chapter):
    module = import_module(f"tutorlib.exercises.{chapter}")
    return {name: check for name, check in vars(module).items() if name.startswith("check_")}


EXERCISES = {
    (chapter, name): check
    for chapter in CHAPTERS.values()
    for name, check in exercises_of(chapter).items()
    if hasattr(check, "mistakes")
}
ALL = pytest.mark.parametrize("check", EXERCISES.values(), ids=["-".join(key) for key in EXERCISES])
MISTAKES = [
    pytest.param(check, message, mistake, id=f"{chapter}-{name}-{number}")
    for (chapter, name), check in EXERCISES.items()
    for number, (message, mistakes) in enumerate(check.mistakes.items())
    for mistake in (mistakes if isinstance(mistakes, tuple) else (mistakes,))
]


class Odd:
    def __repr__(self):
        return "odd"


def stub(*_):
    raise NotImplementedError


def fails(*_):
    raise RuntimeError("as readers' code does")


ODD = (
    "abc", b"ab", math.nan, math.inf, -(10**400), True, [], {}, (), [[]], [[1], [1, 2]], [1, 2], ("a", "b"), {1, 2},
    Odd(), type, torch.zeros(0), torch.zeros(3, 3), torch.zeros(2, dtype=torch.complex64), iter([1]),
)  # fmt: skip


@ALL
def test_what_is_expected_is_right(check):
    assert check.judge(check.expected).ok


@pytest.mark.parametrize(("check", "message", "mistake"), MISTAKES)
def test_each_mistake_is_named(check, message, mistake):
    verdict = check.judge(mistake)
    assert verdict.ok is False and verdict.message.endswith(message), verdict.message


@ALL
def test_a_stub_is_not_answered_yet(check, capsys):
    assert check.judge(None) == check.judge(stub) == check.judge(lambda *_: None) == (None, NOT_YET)
    assert check(stub) is None and capsys.readouterr().out == f"… {NOT_YET}\n"


@ALL
def test_odd_answers_are_wrong_and_raise_nothing(check):
    ok, said = check.judge(fails)
    assert ok is False and "RuntimeError: as readers' code does" in said
    assert "without parentheses" in check.judge([1, 2]).message
    for odd in ODD:
        verdict = check.judge(lambda *_: odd)  # noqa: B023
        assert verdict.ok is False and 0 < len(verdict.message) < 700, odd


@ALL
def test_at_most_five_mistakes_are_named(check):
    assert 1 <= len(check.mistakes) <= 5


@pytest.mark.parametrize(("notebook", "chapter"), CHAPTERS.items(), ids=CHAPTERS)
def test_the_chapters_exercises_begin_unanswered_and_their_solutions_are_right(notebook, chapter, capsys):
    cells = nbformat.read(Path(__file__).parents[1] / "notebooks" / f"{notebook}.ipynb", as_version=4).cells
    tasks = [cell.source for cell in cells if cell.cell_type == "code" and re.search(r"(?m)^check_", cell.source)]
    folded = [cell.source for cell in cells if "solution" in cell.metadata.get("tags", [])]
    solutions = [code for text in folded for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL)]
    calls = [re.findall(r"(?m)^(?:check_.*)", task) for task in tasks]
    assert {call.partition("(")[0] for lines in calls for call in lines} == set(exercises_of(chapter))
    assert len(tasks) == len(solutions) >= 4
    names = IN_THE_KERNEL | {name: getattr(tutorlib, name) for name in tutorlib.__all__}
    for task, solution, check in zip(tasks, solutions, calls, strict=True):
        exec(task, names)
        assert re.findall(r"(?m)^[✓✗…].*", capsys.readouterr().out) == [f"… {NOT_YET}"] * len(check)
        exec(solution, names)
        exec("\n".join(check), names)
        said = capsys.readouterr().out
        assert re.findall(r"(?m)^[✓✗…]", said) == ["✓"] * len(check), said


def test_a_function_must_leave_its_arguments_alone_and_answer_in_every_case():
    check = Exercise("", [([1, 2],), ([3],)], sum, {"You multiplied.": math.prod}, hint="Add.")
    assert "work on copies" in check.judge(lambda values: values.pop()).message
    assert "in every branch" in check.judge(lambda values: 3 if len(values) > 1 else None).message
    assert check.judge(lambda values: 7) == (False, "For ([1, 2]): you gave 7, expected 3. Add.")
    with contextlib.redirect_stdout(None):
        assert check.judge(lambda values: print() or sum(values)).ok
