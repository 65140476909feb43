"""What the tests of the exercises share: verdicts on answers, exercises and solutions of a chapter, what they owe."""

import re
from pathlib import Path

import nbformat

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def found(check, *answer):
    """A checker's verdict, which must be a ✗, as text."""
    ok, message = check.judge(*answer)
    assert ok is False, message
    return message


def is_right(check, *answer):
    """A checker's verdict, which must be a ✓, as text."""
    verdict = check.judge(*answer)
    assert verdict.ok, verdict.message
    return verdict.message


def exercises_of(chapter):
    """The code cells of a chapter's exercises, and the code in its folded solutions: two lists of texts."""
    cells = nbformat.read(NOTEBOOKS / f"{chapter}.ipynb", as_version=4).cells
    tasks = [cell.source for cell in cells if cell.cell_type == "code" and re.search(r"(?m)^check_", cell.source)]
    solutions = [cell.source for cell in cells if "solution" in cell.metadata.get("tags", [])]
    return tasks, [code for text in solutions for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL)]


def begins_unanswered(check, capsys):
    """A checker says of a stub, and of one that returns nothing, that it is not answered yet."""

    def stub(*_):
        raise NotImplementedError

    assert check(stub) is None
    assert capsys.readouterr().out == "… not answered yet\n"
    assert check.judge(lambda *_: None).ok is None


def uses_every_checker(chapter, module, least=4):
    """A chapter's exercises, this many or more, call each checker of their module, and each has a solution."""
    tasks, codes = exercises_of(chapter)
    used = set(re.findall(r"(?m)^(check_\w+)\(", "\n".join(tasks)))
    assert used == {name for name in vars(module) if name.startswith("check_")}
    assert len(codes) == len(tasks) >= least


def has_right_solutions(chapter, names, capsys):
    """A chapter's exercises begin unanswered, and are right with its folded solutions; `names` are in its kernel."""
    for task, code in zip(*exercises_of(chapter), strict=True):
        exec(task, names)
        assert capsys.readouterr().out == "… not answered yet\n"
        exec(code, names)
        exec("\n".join(re.findall(r"(?m)^check_.*", task)), names)
        said = capsys.readouterr().out
        assert said.startswith("✓"), said
