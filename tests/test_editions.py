"""The two editions of the notebooks: the students' holds no solution, the instructors' holds all of them, open."""

import re
import zipfile
from functools import cache
from pathlib import Path

import editions
import nbformat
import pytest

ROOT = editions.ROOT
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PARTS = ("## What students get wrong", "## Exam questions", "## Project")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("editions")
    return {name: editions.make(name, folder / name) for name in editions.EDITIONS}


@cache
def read(archive):
    with zipfile.ZipFile(archive) as files:
        names = [name for name in files.namelist() if name.endswith(".ipynb")]
        return {Path(name).name: nbformat.reads(files.read(name).decode(), as_version=4) for name in sorted(names)}


def test_the_students_edition_holds_no_solution_and_all_else(made):
    for path in NOTEBOOKS:
        given = nbformat.read(path, as_version=4)
        student = read(made["student"])[path.name]
        assert student.cells == [cell for cell in given.cells if not editions.is_solution(cell)], path.name
        text = "\n".join(cell.source for cell in student.cells)
        assert not re.search(r"<summary>\s*(Solution|Answer)", text), path.name
    with zipfile.ZipFile(made["student"]) as files:
        assert not [name for name in files.namelist() if "teaching" in name]


def test_no_solution_stands_outside_the_cells_that_are_taken_out():
    """The code of each solution is looked for in what students get."""
    for path in NOTEBOOKS:
        cells = nbformat.read(path, as_version=4).cells
        kept = "\n".join(cell.source for cell in cells if not editions.is_solution(cell))
        for cell in filter(editions.is_solution, cells):
            for code in re.findall(r"```python\n(.*?)```", cell.source, re.DOTALL):
                assert code.strip() not in kept, f"{path.name}: {code}"


def test_the_instructors_edition_shows_all_solutions_open_with_figures_and_notes(made):
    for path in NOTEBOOKS:
        given = nbformat.read(path, as_version=4)
        instructor = read(made["instructor"])[path.name]
        assert len(instructor.cells) == len(given.cells)
        solutions = [cell.source for cell in instructor.cells if editions.is_solution(cell)]
        assert solutions and all("<details open>" in text and "<details>" not in text for text in solutions), path.name
    with zipfile.ZipFile(made["instructor"]) as files:
        names = files.namelist()
        figures = [name for name in names if name.startswith("figures/") and name.endswith(".png")]
        assert {Path(name).stem.rpartition("_")[0] for name in figures} == {path.stem for path in NOTEBOOKS}
        listed = files.read("figures/figures.md").decode()
        assert all(re.search(rf"`{re.escape(Path(name).name)}`: \w", listed) for name in figures), "each is described"


def test_each_chapter_has_notes_for_teaching():
    chapters = {path.stem.partition("_")[2] for path in NOTEBOOKS}
    notes = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "book" / "teaching").glob("*.md")}
    assert set(notes) == chapters
    for chapter, text in notes.items():
        assert [line for line in text.splitlines() if line.startswith("## ")] == list(PARTS), chapter
        wrong, questions, project = (text.partition(part)[2].partition("\n## ")[0] for part in PARTS)
        assert wrong.count("\n- **") >= 2, f"{chapter}: at least two misconceptions"
        assert len(re.findall(r"^\*\*\d\.\*\*", questions, re.M)) == 2, f"{chapter}: two questions"
        assert questions.count("*Answer.*") == 2, f"{chapter}: each with its answer"
        assert project.count("\n| ") >= 4, f"{chapter}: a rubric in a table"


def test_an_edition_that_there_is_not_is_refused(tmp_path, capsys):
    with pytest.raises(ValueError, match="no edition 'teacher': choose one of student, instructor"):
        editions.make("teacher", tmp_path / "out")
    assert editions.main(["teacher"]) == 2
    assert "student or instructor" in capsys.readouterr().err
