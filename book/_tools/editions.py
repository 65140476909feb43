"""Make the edition of the notebooks for students, or the one for instructors, from the same notebooks.

    python book/_tools/editions.py student       the notebooks without solutions and answers
    python book/_tools/editions.py instructor    solutions open, notes for teaching, and all figures for slides

Each is a folder under `_build`, and a zip file of it beside. The notebooks themselves are not changed.
"""

import base64
import shutil
import sys
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[2]
EDITIONS = ("student", "instructor")
SOLUTION = "solution"  # the tag of cells that hold a solution or an answer
FOLDED, OPEN = "<details>", "<details open>"


def is_solution(cell) -> bool:
    """Whether a cell holds the solution of an exercise or the answer to a question."""
    return SOLUTION in cell.metadata.get("tags", [])


def without_solutions(notebook):
    """Take the solutions out of a notebook; everything else stays as it is."""
    notebook.cells = [cell for cell in notebook.cells if not is_solution(cell)]
    return notebook


def with_open_solutions(notebook):
    """Unfold the solutions of a notebook."""
    for cell in filter(is_solution, notebook.cells):
        cell.source = cell.source.replace(FOLDED, OPEN)
    return notebook


def figures_of(notebook):
    """The figures of a notebook in their order, as (PNG, what it shows in words)."""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            png = output.get("data", {}).get("image/png")
            if png:
                words = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
                yield base64.b64decode("".join(png)), words


def write_figures(notebooks, folder):
    """Write all figures for slides, with a list that says what each of them shows."""
    folder.mkdir()
    lines = ["# Figures", "", "Each file is a figure of a chapter, in the order of the chapter.", ""]
    for path in notebooks:
        for number, (png, words) in enumerate(figures_of(nbformat.read(path, as_version=4)), start=1):
            name = f"{path.stem}_{number}.png"
            (folder / name).write_bytes(png)
            lines.append(f"- `{name}`: {words}")
    (folder / "figures.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def make(edition: str, out: Path, root: Path = ROOT) -> Path:
    """Write an edition into a folder, which is made anew, and a zip file of it.

    Returns
    -------
    Path
        The zip file.

    Raises
    ------
    ValueError
        For an edition that there is not.
    """
    if edition not in EDITIONS:
        raise ValueError(f"there is no edition {edition!r}: choose one of {', '.join(EDITIONS)}")
    shutil.rmtree(out, ignore_errors=True)
    (out / "notebooks").mkdir(parents=True)
    notebooks = sorted((root / "notebooks").glob("*.ipynb"))
    change = without_solutions if edition == "student" else with_open_solutions
    for path in notebooks:
        nbformat.write(change(nbformat.read(path, as_version=4)), out / "notebooks" / path.name)
    for name in ("LICENSE", "LICENSE-prose"):
        shutil.copy(root / name, out / name)
    if edition == "instructor":
        shutil.copytree(root / "book" / "teaching", out / "teaching")
        write_figures(notebooks, out / "figures")
    return Path(shutil.make_archive(str(out), "zip", out))


def main(arguments) -> int:
    if len(arguments) != 1 or arguments[0] not in EDITIONS:
        print(f"say which edition: {' or '.join(EDITIONS)}", file=sys.stderr)
        return 2
    made = make(arguments[0], ROOT / "_build" / arguments[0])
    print(f"Made {made.with_suffix('').relative_to(ROOT)}/ and {made.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
