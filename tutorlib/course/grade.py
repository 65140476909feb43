"""Grade a folder of notebooks by the verdicts that are stored in them, without executing anything.

    python -m tutorlib grade FOLDER [--csv FILE]

A student's notebook is code that nobody has looked at, so it is only read: as JSON, with the outputs that were saved in
it. Each cell that calls a checker holds the checker's verdict. The price is that a student who edits the file can forge
outputs. What this module does not do: execute a notebook, or decide which of a student's two notebooks counts.
"""

import argparse
import csv
import io
import json
import os
import pkgutil
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from .. import disk
from . import exercises

PASSED, NOT_PASSED, NOT_TRIED = "passed", "not passed", "not tried"
MARKS = {"✓": PASSED, "✗": NOT_PASSED, "…": NOT_TRIED}

CAUTION = (
    "Nothing is executed: these are the verdicts stored in the notebooks, and a student can forge them. If much "
    "depends on a grade, execute the notebooks anew on a machine where they can do no harm, and grade the new copies."
)

MOST_BYTES = 50_000_000  # the book's largest notebook has less than a tenth of this
COPIES = {".ipynb_checkpoints", "__MACOSX"}  # folders of copies that Jupyter and macOS make by themselves
SECOND_COPY = re.compile(r"(?: ?\(\d+\)|[-_ ]+copy ?\d*)$", re.IGNORECASE)  # "alice (1)", "alice-Copy1"

IMPORT = re.compile(r"(?m)^[ \t]*from[ \t]+tutorlib\.course\.exercises\.(\w+)[ \t]+import[ \t]+(\([^)]*\)|.*)")
CALL = re.compile(r"(?m)^[ \t]*(check_\w+)\(")
REPLACED = re.compile(r"(?m)^[ \t]*(?:def[ \t]+(check_\w+)|(check_\w+)[ \t]*=[^=])")
NAME = re.compile(r"\bcheck_\w+")
HEADING = re.compile(r"(?m)^#+ *Exercise +(\d{1,3})\b")
VERDICT = re.compile(r"(?m)^([✓✗…]) ")


class GradedNotebook(NamedTuple):
    """What one notebook says: the student, the file, the chapter, a status for each checker, and what is odd about it.

    `chapter` is "" if the file could not be graded; `notes` then says why. `numbers` are the numbers of the exercises.
    """

    student: str
    path: str
    chapter: str = ""
    statuses: dict[str, str] = {}
    numbers: dict[str, int] = {}
    notes: tuple[str, ...] = ()

    def noting(self, *more: str) -> "GradedNotebook":
        return self._replace(notes=(*self.notes, *more))


class NotGraded(Exception):
    """Raised for a file that cannot be graded; the message says why."""


# ----------------------------------------------------------------------------------------------------------------------
# One notebook


@cache
def checkers_of(chapter: str) -> tuple[str, ...]:
    """The names of a chapter's checkers; empty if there is no such chapter."""
    if chapter not in {module.name for module in pkgutil.iter_modules(exercises.__path__)}:
        return ()
    return tuple(name for name in vars(import_module(f"{exercises.__name__}.{chapter}")) if name.startswith("check_"))


def cells_of(path: Path) -> list[dict]:
    """The cells of a notebook's file.

    Raises
    ------
    NotGraded
        If the file is not a notebook in today's format.
    """
    try:
        if not path.is_file():
            raise NotGraded("it is not a plain file")
        if path.stat().st_size > MOST_BYTES:
            raise NotGraded(f"it has more than {MOST_BYTES // 1_000_000} MB: clear its large outputs")
        notebook = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise NotGraded(f"it cannot be read: {error.strerror or type(error).__name__}") from error
    except (ValueError, RecursionError) as error:  # also what is not UTF-8
        raise NotGraded("it is not a notebook, or it is damaged: its JSON cannot be read") from error
    if isinstance(notebook, dict) and "worksheets" in notebook:
        raise NotGraded("it is in an old format (nbformat 3): open it in Jupyter and save it")
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        raise NotGraded("it is not a notebook: it has no list of cells")
    return [cell for cell in cells if isinstance(cell, dict)]


def text_of(value) -> str:
    """A text of a notebook, which is stored as one string or as a list of lines."""
    if isinstance(value, list):
        return "".join(line for line in value if isinstance(line, str))
    return value if isinstance(value, str) else ""


def outputs_of(cell: dict) -> list[dict]:
    outputs = cell.get("outputs")
    return [output for output in outputs if isinstance(output, dict)] if isinstance(outputs, list) else []


def verdicts_of(cell: dict, calls: list[str]) -> tuple[list[str], str]:
    """The status that a cell shows for each of its calls, and a note if it shows something else than a verdict each."""
    outputs = outputs_of(cell)
    printed = "".join(text_of(output.get("text")) for output in outputs if output.get("name") == "stdout")
    found = [MARKS[mark] for mark in VERDICT.findall(printed)]
    errors = [text_of(output.get("ename")) for output in outputs if output.get("output_type") == "error"]
    if len(found) == len(calls):
        return found, ""
    if errors:
        missing = [NOT_PASSED] * (len(calls) - len(found))
        return (found + missing)[: len(calls)], f"the cell ended with {printable(errors[0]) or 'an error'}"
    if not found:
        return [NOT_TRIED] * len(calls), "the cell was saved without a verdict"
    return [NOT_PASSED] * len(calls), f"{len(found)} verdicts for {len(calls)} call(s): look at this cell"


class Seen(NamedTuple):
    """A call of a checker in a notebook."""

    chapter: str
    checker: str
    status: str
    number: int | None
    note: str


def calls_in(cells: Iterable[dict]) -> Iterator[Seen]:
    """Every call of one of the book's checkers, in order. A name is that of the chapter it was last imported from."""
    chapter_of: dict[str, str] = {}
    number = None
    for cell in cells:
        source = text_of(cell.get("source"))
        if cell.get("cell_type") == "markdown":
            headings = HEADING.findall(source)
            number = int(headings[-1]) if headings else number
        if cell.get("cell_type") != "code":
            continue
        for chapter, names in IMPORT.findall(source):
            chapter_of |= {name: chapter for name in NAME.findall(names) if name in checkers_of(chapter)}
        calls = [name for name in CALL.findall(source) if name in chapter_of]
        statuses, note = verdicts_of(cell, calls) if calls else ([], "")
        for name, status in zip(calls, statuses, strict=True):
            yield Seen(chapter_of[name], name, status, number, note)


def best(statuses: Iterable[str]) -> str:
    """The status of an exercise whose checker was called in several cells: one that passes is enough."""
    return min(statuses, key=(PASSED, NOT_PASSED, NOT_TRIED).index)


def grade_notebook(path: Path) -> GradedNotebook:
    """Read the verdicts of a notebook; `student` and `path` are left empty.

    Raises
    ------
    NotGraded
        If the file is not a notebook, or calls no checker of the book.
    """
    cells = cells_of(path)
    seen = list(calls_in(cells))
    if not seen:
        raise NotGraded("it calls no checker of this book: is it another notebook, or were the cells changed?")
    counted = Counter(call.chapter for call in seen)
    chapter = max(counted, key=counted.__getitem__)
    notes = [f"it also calls checkers of {other}, which are left out" for other in counted if other != chapter]
    statuses, numbers = dict.fromkeys(checkers_of(chapter), NOT_TRIED), {}
    for name in statuses:
        here = [call for call in seen if (call.chapter, call.checker) == (chapter, name)]
        if not here:
            notes.append(f"no cell calls {name}")
            continue
        statuses[name] = best(call.status for call in here)
        if here[0].number is not None:
            numbers[name] = here[0].number
        if statuses[name] != PASSED:
            notes += sorted({f"{name}: {call.note}" for call in here if call.note})
    sources = "\n".join(text_of(cell.get("source")) for cell in cells if cell.get("cell_type") == "code")
    replaced = {one or other for one, other in REPLACED.findall(sources)} & set(statuses)
    notes += [f"it makes its own {name}, in place of the book's checker" for name in sorted(replaced)]
    if all(call.note == "the cell was saved without a verdict" for call in seen):
        notes = ["it was saved without outputs: ask for a copy in which all cells were run"]
    return GradedNotebook("", "", chapter, statuses, numbers, tuple(notes))


# ----------------------------------------------------------------------------------------------------------------------
# A folder of notebooks


def printable(text: str) -> str:
    """A text without characters that could do something to a terminal or to a table."""
    return "".join(letter if letter.isprintable() else "�" for letter in text)


def student_of(inside: Path) -> str:
    """Whose notebook this is: the name of the first folder, or, directly in the graded folder, the file's name."""
    return printable(inside.parts[0] if len(inside.parts) > 1 else SECOND_COPY.sub("", inside.stem) or inside.stem)


def notebooks_in(folder: Path, problem: Callable[[str, str], None]) -> Iterator[Path]:
    """Every notebook below a folder, in order. `problem` is called with the path and the reason of what is left out."""

    def unreadable(error: OSError) -> None:
        problem(str(error.filename), f"this folder cannot be read: {error.strerror}")

    for place, folders, files in os.walk(folder, onerror=unreadable):
        for name in sorted(folders):
            if (Path(place) / name).is_symlink():
                problem(str(Path(place) / name), "this link to a folder was not followed")
        folders[:] = sorted(name for name in folders if name not in COPIES)
        for name in sorted(files):
            if name.lower().endswith(".ipynb") and not name.startswith("._"):
                yield Path(place) / name


def grade(folder: str | Path) -> list[GradedNotebook]:
    """Grade every notebook below a folder by its stored verdicts.

    Parameters
    ----------
    folder : str or Path
        One notebook for each student (the file's name is the student), or one folder for each student.

    Returns
    -------
    list of Row
        A row for each file, also for those that cannot be graded.

    Raises
    ------
    ValueError
        If there is no such folder, or no notebook in it.
    """
    folder = Path(folder)
    if not folder.exists():
        raise ValueError(f"there is no folder {printable(str(folder))!r}")
    if not folder.is_dir():
        raise ValueError(f"{printable(str(folder))!r} is a file: name the folder that it is in")
    rows: list[GradedNotebook] = []

    def problem(path: str, why: str) -> None:
        inside = Path(os.path.relpath(path, folder))
        rows.append(GradedNotebook(student_of(inside), printable(str(inside)), notes=(why,)))

    for path in notebooks_in(folder, problem):
        inside = path.relative_to(folder)
        try:
            row = grade_notebook(path)
        except NotGraded as reason:
            row = GradedNotebook("", "", notes=(f"not graded: {reason}",))
        rows.append(row._replace(student=student_of(inside), path=printable(str(inside))))
    if not rows:
        packed = any(name.suffix.lower() in (".zip", ".tar", ".gz", ".7z") for name in folder.rglob("*"))
        hint = ". There is a packed file: unpack it first" if packed else ""
        raise ValueError(f"there are no notebooks (*.ipynb) in {printable(str(folder))!r}{hint}")
    together = Counter((row.student.casefold(), row.chapter) for row in rows if row.chapter)
    return [
        row.noting(f"one of {count} notebooks of this student for this chapter: decide which one counts")
        if row.chapter and (count := together[row.student.casefold(), row.chapter]) > 1
        else row
        for row in rows
    ]


# ----------------------------------------------------------------------------------------------------------------------
# The table, as text and as CSV


def columns_of(rows: Iterable[GradedNotebook]) -> dict[str, str]:
    """The checkers of one chapter's rows and their headings, such as "2 pairs", in the order of the exercises."""
    numbers: dict[str, Counter[int]] = defaultdict(Counter)
    names: dict[str, None] = {}
    for row in rows:
        names |= dict.fromkeys(row.statuses)
        for name, number in row.numbers.items():
            numbers[name][number] += 1
    most = {name: numbers[name].most_common(1)[0][0] for name in names if numbers[name]}
    ordered = sorted(names, key=lambda name: most.get(name, 1000))
    return {name: f"{most.get(name, '')} {name.removeprefix('check_')}".strip() for name in ordered}


def by_chapter(rows: Iterable[GradedNotebook]) -> dict[str, list[GradedNotebook]]:
    found: dict[str, list[GradedNotebook]] = defaultdict(list)
    for row in rows:
        if row.chapter:
            found[row.chapter].append(row)
    return dict(sorted(found.items()))


def score(row: GradedNotebook) -> str:
    return f"{list(row.statuses.values()).count(PASSED)} of {len(row.statuses)}"


def as_tables(rows: list[GradedNotebook]) -> str:
    """A table for each chapter, then what is odd about single notebooks."""
    parts = []
    for chapter, here in by_chapter(rows).items():
        columns = columns_of(here)
        lines = [["student", *columns.values(), "passed"]]
        lines += [[row.student, *(row.statuses[name] for name in columns), score(row)] for row in here]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        parts.append("\n".join([f"{chapter} ({len(here)} notebook{'s' * (len(here) > 1)})", "", *table]))
    if len(parts) > 1:
        parts.append("These are notebooks of several chapters, so there is a table for each.")
    noted = [f"  {row.path}: {note}" for row in rows for note in row.notes]
    if noted:
        parts.append("\n".join(["To look at:", *noted]))
    return "\n\n".join([*parts, CAUTION])


def as_csv(rows: list[GradedNotebook]) -> str:
    """One line a notebook, also for those that cannot be graded, and one column an exercise."""
    chapters = {chapter: columns_of(here) for chapter, here in by_chapter(rows).items()}
    headings = [f"{chapter}: {heading}" for chapter, columns in chapters.items() for heading in columns.values()]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["student", "notebook", "chapter", *headings, "passed", "notes"])
    for row in rows:
        marks = [
            row.statuses.get(name, "") if row.chapter == chapter else ""
            for chapter, columns in chapters.items()
            for name in columns
        ]
        notes = "; ".join(row.notes)
        told = [row.student, row.path, row.chapter, *marks, score(row) if row.chapter else "", notes]
        writer.writerow(map(no_formula, told))
    return text.getvalue()


def no_formula(value: str) -> str:
    """A value that no spreadsheet takes for a formula: the names of files are the students' own."""
    return f"'{value}" if value.startswith(("=", "+", "-", "@")) else value


def main(arguments=None) -> int:
    """The command line; returns 1 if a file could not be graded, and 0 otherwise."""
    parser = argparse.ArgumentParser(
        prog="python -m tutorlib grade",
        description="Show which exercises are passed in a folder of students' notebooks.",
        epilog=CAUTION,
    )
    parser.add_argument("folder", metavar="FOLDER", help="one notebook or one folder for each student")
    parser.add_argument("--csv", metavar="FILE", help="also write the table to this new file")
    chosen = parser.parse_args(arguments)
    if chosen.csv and Path(chosen.csv).exists():
        parser.error(f"{chosen.csv} exists and is not overwritten: name a new file")
    try:
        rows = grade(chosen.folder)
        if chosen.csv:
            disk.write_text(chosen.csv, "\ufeff" + as_csv(rows))  # with the mark that spreadsheets expect
    except (ValueError, OSError) as error:
        parser.error(str(error))
    print(as_tables(rows))
    return 0 if all(row.chapter for row in rows) else 1
