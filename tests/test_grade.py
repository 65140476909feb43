"""A folder of notebooks is graded by stored verdicts: nothing is executed, and nothing is left out in silence."""

import csv
import json
import os
import re
import sys
from pathlib import Path

import nbformat
import pytest

from tutorlib.__main__ import main as command
from tutorlib.course.exercises import eagle
from tutorlib.course.grade import NOT_PASSED, NOT_TRIED, PASSED, as_csv, as_tables, grade, main

BOOK = Path(__file__).parents[1] / "notebooks"
EAGLE = ("check_kept", "check_pairs", "check_chosen_wins", "check_counts")
new = nbformat.v4


def cell(checker, *printed, chapter="eagle", error=None, number=None):
    """A cell that imports and calls a checker, with what it printed, after its heading."""
    outputs = [new.new_output("stream", text=text) for text in printed]
    if error:
        outputs.append(new.new_output("error", ename=error, evalue="", traceback=[]))
    source = f"from tutorlib.course.exercises.{chapter} import {checker}\n\n{checker}(answer)"
    made = [new.new_code_cell(source, outputs=outputs)]
    return [new.new_markdown_cell(f"### Exercise {number}: a title"), *made] if number else made


def solved(chapter="eagle", names=EAGLE):
    return [one for number, name in enumerate(names, 1)
            for one in cell(name, "✓ Right.\n", chapter=chapter, number=number)]  # fmt: skip


def write(path, cells):
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new.new_notebook(cells=cells), path)
    return path


def only(folder):
    (row,) = grade(folder)
    return row


def test_the_books_own_notebooks_have_every_exercise_and_none_is_tried():
    rows = grade(BOOK)
    assert len(rows) == len(list(BOOK.glob("*.ipynb")))
    for row in rows:
        assert row.path == f"{row.student}.ipynb" and row.chapter == row.student[3:] and row.notes == (), row
        assert set(row.statuses.values()) == {NOT_TRIED} and set(row.numbers) == set(row.statuses)


def test_a_chapter_with_its_solutions_pasted_in_is_passed(tmp_path, capsys):
    """The outputs are those of the real checkers, in the real notebook."""
    notebook = nbformat.read(next(BOOK.glob("*_eagle.ipynb")), as_version=4)
    names: dict = {}
    for task, solution in zip(notebook.cells, notebook.cells[1:]):
        if task.cell_type == "code" and re.search(r"(?m)^check_", task.source):
            exec(task.source, names)
            exec(re.search(r"```python\n(.*?)```", solution.source, re.DOTALL)[1], names)
            capsys.readouterr()
            exec(re.search(r"(?m)^check_.*", task.source)[0], names)
            task.outputs = [new.new_output("stream", text=capsys.readouterr().out)]
    write(tmp_path / "alice.ipynb", notebook.cells)
    row = only(tmp_path)
    assert row.student == "alice" and row.statuses == dict.fromkeys(EAGLE, PASSED) and row.notes == ()


def test_the_table_has_a_row_a_student_and_a_column_an_exercise(tmp_path, capsys):
    write(tmp_path / "alice.ipynb", solved())
    wrong = str(eagle.check_pairs.judge(lambda *_: 3)) + "\n"
    write(tmp_path / "bob.ipynb", [*cell("check_kept", "… not answered yet\n", number=1), *cell("check_pairs", wrong)])
    assert main([str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["eagle (2 notebooks)", ""]
    assert re.split("  +", lines[2]) == ["student", "1 kept", "2 pairs", "3 chosen_wins", "4 counts", "passed"]
    assert re.split("  +", lines[3]) == ["alice", *4 * [PASSED], "4 of 4"]
    assert re.split("  +", lines[4]) == ["bob", NOT_TRIED, NOT_PASSED, NOT_TRIED, NOT_TRIED, "0 of 4"]
    assert "  bob.ipynb: no cell calls check_counts" in lines and "a student can forge them" in lines[-1]


def test_nothing_of_a_notebook_is_executed(tmp_path):
    ran = tmp_path / "ran"
    evil = new.new_code_cell(f"from pathlib import Path\nPath({str(ran)!r}).touch()\n!touch {ran}")
    write(tmp_path / "a" / "eve.ipynb", [evil, *solved()])
    write(
        tmp_path / "a" / "two.ipynb", [new.new_code_cell("from tutorlib.course.exercises.os import check_x\ncheck_x()")]
    )
    grade(tmp_path)
    assert not ran.exists()


@pytest.mark.parametrize(
    ("cells", "status", "note"),
    [
        (cell("check_kept", "✓ Right.\n"), PASSED, ""),
        (cell("check_kept", "my own print\n", "✓ Right.\n"), PASSED, ""),
        (cell("check_kept", "my own print, without an end of line", "\n✓ Right.\n"), PASSED, ""),
        (cell("check_kept", "✗ No.\n") + cell("check_kept", "✓ Right.\n"), PASSED, ""),
        (cell("check_kept", "✓ Right.\n") + cell("check_kept", "✗ No.\n"), PASSED, ""),
        (cell("check_kept", "✗ No.\n"), NOT_PASSED, ""),
        (cell("check_kept", "… not answered yet: 'tokens'\n"), NOT_TRIED, ""),
        (cell("check_kept", error="NameError"), NOT_PASSED, "check_kept: the cell ended with NameError"),
        (cell("check_kept", "✓ Right.\n", "✗ No.\n"), NOT_PASSED, "check_kept: 2 verdicts for 1 call(s)"),
        (cell("check_kept", "hello\n"), NOT_TRIED, "check_kept: the cell was saved without a verdict"),
    ],
)
def test_a_status_is_what_the_cell_shows(tmp_path, cells, status, note):
    write(tmp_path / "a.ipynb", [*cells, *solved(names=EAGLE[1:])])
    row = only(tmp_path)
    assert row.statuses["check_kept"] == status
    assert len(row.notes) == bool(note) and all(one.startswith(note) for one in row.notes)


@pytest.mark.parametrize("own", ["def check_kept(x): print('✓ Right.')", "    check_kept = print"])
def test_a_checker_of_the_students_own_is_named(tmp_path, own):
    write(tmp_path / "a.ipynb", [*solved(), new.new_code_cell(f"if True:\n    pass\n{own}\nfine = check_kept == 3")])
    assert only(tmp_path).notes == ("it makes its own check_kept, in place of the book's checker",)


def test_two_checkers_in_one_cell_have_a_column_each(tmp_path):
    source = "from tutorlib.course.exercises.next_token import (\n    check_intensity,\n    check_break_even,\n)\n"
    source += "check_intensity(1)\ncheck_break_even(2)"
    write(tmp_path / "a.ipynb", [new.new_code_cell(source, outputs=[new.new_output("stream", text="✗ No.\n✓ Yes.\n")])])
    statuses = only(tmp_path).statuses
    assert (statuses["check_intensity"], statuses["check_break_even"]) == (NOT_PASSED, PASSED)


def test_a_name_that_two_chapters_have_belongs_to_the_chapter_it_was_imported_from(tmp_path):
    write(tmp_path / "a.ipynb", [*solved(), *cell("check_kept", "✗ No.\n", chapter="sampling")])
    row = only(tmp_path)
    assert row.chapter == "eagle" and row.statuses["check_kept"] == PASSED
    assert row.notes == ("it also calls checkers of sampling, which are left out",)


def test_a_notebook_of_another_chapter_gets_a_table_of_its_own(tmp_path):
    write(tmp_path / "alice.ipynb", solved())
    write(tmp_path / "bob.ipynb", solved("sampling", ["check_top_p"]))
    text = as_tables(grade(tmp_path))
    assert "eagle (1 notebook)" in text and "sampling (1 notebook)" in text and "of several chapters" in text
    table = list(csv.DictReader(as_csv(grade(tmp_path)).splitlines()))
    assert [row["eagle: 1 kept"] for row in table] == [PASSED, ""]
    assert [row["sampling: 1 top_p"] for row in table] == ["", PASSED]


def test_two_notebooks_of_one_student_are_both_kept_and_said(tmp_path):
    write(tmp_path / "alice.ipynb", solved())
    write(tmp_path / "Alice (1).ipynb", cell("check_kept", "✗ No.\n"))
    write(tmp_path / "bob-Copy1.ipynb", solved())
    write(tmp_path / "carol" / "eagle" / "notebook.ipynb", solved())
    write(tmp_path / "carol" / "sampling.ipynb", solved("sampling", ["check_top_p"]))
    rows = {row.path: row for row in grade(tmp_path)}
    assert len(rows) == 5
    for path, row in rows.items():
        assert ("one of 2 notebooks of this student" in " ".join(row.notes)) == ("lice" in path), path
    assert {row.student for row in rows.values()} == {"alice", "Alice", "bob", "carol"}


def test_what_cannot_be_graded_is_named_and_the_others_are_graded(tmp_path, capsys):
    write(tmp_path / "alice.ipynb", solved())
    write(tmp_path / "empty_outputs.ipynb", cell("check_kept") + cell("check_pairs"))
    write(tmp_path / "essay.ipynb", [new.new_markdown_cell("# My own notebook")])
    write(tmp_path / ".ipynb_checkpoints" / "alice-checkpoint.ipynb", solved())
    bad = {
        "cut": '{"cells": [', "list": "[]", "deep": "[" * 100_000, "none": "", "latin": b"\xff\xfe{",
        "old": '{"worksheets": [], "nbformat": 3}', "cells": '{"cells": 3}',
        "odd": '{"cells": [3, {"cell_type": "code", "source": 3, "outputs": 3}, {"source": [1], "outputs": [1]}]}',
    }  # fmt: skip
    for name, text in bad.items():
        (tmp_path / f"{name}.ipynb").write_bytes(text if isinstance(text, bytes) else text.encode())
    assert main([str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "alice " in said and "checkpoint" not in said
    assert "empty_outputs.ipynb: it was saved without outputs: ask for a copy" in said
    for name in ("essay", "odd"):
        assert f"{name}.ipynb: not graded: it calls no checker" in said
    for name in ("cut", "deep", "none", "latin"):
        assert f"{name}.ipynb: not graded: it is not a notebook, or it is damaged" in said
    for name in ("list", "cells"):
        assert f"{name}.ipynb: not graded: it is not a notebook: it has no list of cells" in said
    assert "old.ipynb: not graded: it is in an old format" in said
    table = list(csv.DictReader(as_csv(grade(tmp_path)).splitlines()))
    assert {row["notebook"] for row in table} == {f"{name}.ipynb" for name in (*bad, "alice", "empty_outputs", "essay")}


@pytest.mark.skipif(sys.platform == "win32", reason="file systems differ")
def test_links_and_odd_files_are_named(tmp_path):
    outside = write(tmp_path / "outside" / "x.ipynb", solved())
    folder = tmp_path / "folder"
    write(folder / "alice.ipynb", solved())
    os.symlink(outside.parent, folder / "linked")
    os.symlink("/dev/zero", folder / "zero.ipynb")
    os.symlink(tmp_path / "missing", folder / "gone.ipynb")
    os.mkfifo(folder / "pipe.ipynb")
    notes = {row.path: row.notes for row in grade(folder)}
    assert notes.pop("alice.ipynb") == () and notes.pop("linked") == ("this link to a folder was not followed",)
    assert notes == dict.fromkeys(["gone.ipynb", "pipe.ipynb", "zero.ipynb"], ("not graded: it is not a plain file",))


@pytest.mark.skipif(sys.platform == "win32", reason="file systems differ")
def test_names_of_files_do_nothing_to_a_terminal_or_a_spreadsheet(tmp_path):
    for name in ("=HYPERLINK(1)", "+1", "@x", "-1", "red\x1b[31m", "two\nlines"):
        write(tmp_path / f"{name}.ipynb", solved())
    rows = grade(tmp_path)
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", as_tables(rows)) and "two�lines" in as_tables(rows)
    assert not re.search(r'(?m)(^|,)"?[=+@-]', as_csv(rows))


def test_the_csv_file_is_what_a_spreadsheet_reads_and_is_not_overwritten(tmp_path, capsys):
    write(tmp_path / "students" / "zoë.ipynb", solved())
    table = tmp_path / "table.csv"
    with pytest.raises(SystemExit) as end:
        command(["grade", str(tmp_path / "students"), "--csv", str(table)])
    assert end.value.code == 0
    (row,) = csv.DictReader(table.read_text(encoding="utf-8-sig").splitlines())
    assert row == {
        "student": "zoë", "notebook": "zoë.ipynb", "chapter": "eagle", "eagle: 1 kept": PASSED,
        "eagle: 2 pairs": PASSED, "eagle: 3 chosen_wins": PASSED, "eagle: 4 counts": PASSED,
        "passed": "4 of 4", "notes": "",
    }  # fmt: skip
    with pytest.raises(SystemExit):
        main([str(tmp_path / "students"), "--csv", str(table)])
    assert "exists and is not overwritten" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: None, "there is no folder"),
        (lambda folder: folder.mkdir(), "there are no notebooks (*.ipynb) in"),
        (lambda folder: (folder.mkdir(), (folder / "all.zip").touch()), "unpack it first"),
        (lambda folder: folder.write_text("x"), "is a file: name the folder that it is in"),
    ],
)
def test_a_folder_without_notebooks_is_named(tmp_path, capsys, make, words):
    make(tmp_path / "given")
    with pytest.raises(SystemExit) as end:
        main([str(tmp_path / "given")])
    assert end.value.code == 2 and words in capsys.readouterr().err


def test_a_notebook_larger_than_any_of_the_books_is_not_read(tmp_path, monkeypatch):
    path = write(tmp_path / "a.ipynb", solved())
    monkeypatch.setattr("tutorlib.course.grade.MOST_BYTES", path.stat().st_size - 1)
    assert "clear its large outputs" in only(tmp_path).notes[0]
    assert json.loads(path.read_text(encoding="utf-8"))["nbformat"] == 4
