"""Give the chapters the numbers of their order in ``_toc.yml``, in their file names and wherever they are spoken of.

    python book/_tools/renumber.py           rename and rewrite
    python book/_tools/renumber.py --check   change nothing; fail if something is out of step

To insert a chapter, save it as ``notebooks/90_name.ipynb`` (or any number that is free), call it "chapter 90" where you
refer to it, put it into ``_toc.yml`` where it belongs, and run this. What a text calls a chapter is rewritten in every
file of the repository: "chapter 3", "chapters 2, 3 and [8](08_is_it_exact.ipynb)", ``08_is_it_exact``.

A string that *begins* with "chapter 4" is the name of a story of the village, such as ``story("chapter 4, story 0")``.
It decides what is told there, so it stays as it is whatever the chapter's number becomes. Outputs of notebooks are not
touched either: execute the notebooks afterwards.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

import nbformat
from build_book import ROOT, toc_pages
from execute_notebooks import normalise

WRITTEN = {".md", ".py", ".yml", ".toml", ".cff", ".svg", ".js", ".css", ".cfg"}
EXAMPLES = {"renumber.py", "test_book.py", "developer.md"}  # they speak of chapters that do not exist
NUMBER = r"(?:\d+|\[\d+\]\([^)\s]*\))"
CHAPTERS = re.compile(rf"""(?<!["'])\b(?P<word>[Cc]hapters? ){NUMBER}(?:(?:, and |, | and | or | to ){NUMBER}\b)*""")
LINK = re.compile(r"\[(?P<before>(?:[Cc]hapter )?)(?P<number>\d+)\]\((?:\.\./notebooks/)?(?P<file>\d\d)_\w+\.ipynb")
ROW = re.compile(r"(?m)^\| (?P<number>\d+) \| \[[^\]]*\]\(\.\./notebooks/(?P<file>\d\d)_\w+\.ipynb\)")


def wanted(root):
    """Which number each chapter is to have: a dict from the name of its file now, ``"03_beam_search"``, to an int."""
    names = [page.removeprefix("notebooks/") for page in toc_pages(root) if page.startswith("notebooks/")]
    return {name: number for number, name in enumerate(names, start=1)}


def renumbered(text, numbers):
    """Return a text with the chapters called by their new names and numbers; `numbers` is what `wanted` returns."""
    new = {int(name[:2]): number for name, number in numbers.items()}

    def spoken_of(found):  # a link's number is told by its file, below
        return re.sub(r"(?<![\d_(/\[])\d+(?![\d_])", lambda old: str(new.get(int(old[0]), old[0])), found[0])

    def linked(found):
        return found[0].replace(found["number"], str(new.get(int(found["file"]), found["number"])), 1)

    text = ROW.sub(linked, LINK.sub(linked, CHAPTERS.sub(spoken_of, text)))
    for name, number in numbers.items():
        text = re.sub(rf"\b{name}\b", f"<{number:02}>{name[3:]}", text)
    return re.sub(r"<(\d\d)>", r"\1_", text)


def texts(root):
    """Every file that may speak of a chapter: what git knows of, apart from notebooks."""
    listed = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True).stdout
    paths = [root / line for line in listed.splitlines() if Path(line).suffix in WRITTEN]
    return [path for path in paths if path.is_file() and path.name not in EXAMPLES]


def renumber(root):
    """Rename the notebooks of a checkout, and rewrite what speaks of them; returns the paths that have changed."""
    numbers, changed = wanted(root), []
    for path in texts(root):
        old = path.read_text(encoding="utf-8")
        new = renumbered(old, numbers)
        if new != old:
            path.write_text(new, encoding="utf-8")
            changed.append(path)
    books = {name: nbformat.read(root / "notebooks" / f"{name}.ipynb", 4) for name in numbers}
    for name in books:
        (root / "notebooks" / f"{name}.ipynb").unlink()
    for name, book in books.items():
        for cell in book.cells:
            cell.source = renumbered(cell.source, numbers)
        path = root / "notebooks" / f"{numbers[name]:02}_{name[3:]}.ipynb"
        nbformat.write(normalise(book), path)
        changed.append(path)
    return changed


def out_of_step(root):
    """List what is wrong: files whose number is not their place in the contents, links whose text says another one."""
    wrong = [f"{name} is chapter {number}" for name, number in wanted(root).items() if int(name[:2]) != number]
    for path in [*texts(root), *sorted((root / "notebooks").glob("*.ipynb"))]:
        text = path.read_text(encoding="utf-8")
        for found in [*LINK.finditer(text), *ROW.finditer(text)]:
            if int(found["number"]) != int(found["file"]):
                wrong.append(f"{path.name}: {found[0]}")
    return wrong


def main(arguments=None):
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing, and say what is out of step")
    if not parser.parse_args(arguments).check:
        for path in renumber(ROOT):
            print(path.relative_to(ROOT))
    wrong = out_of_step(ROOT)
    print("\n".join(wrong), file=sys.stderr if wrong else sys.stdout, end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
