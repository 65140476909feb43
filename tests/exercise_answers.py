"""What the tests of the exercises share: a checker's verdict on an answer, and a chapter's exercises and solutions."""

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
