"""Write the repository's address wherever it is needed: badges, setup cells, README, settings.

The address stands in one place, ``[project.urls] Repository`` in pyproject.toml. This script writes it into every
notebook (the Colab badge under the title, and the one setup cell) and into the few other files that show it.

    python book/_tools/setup_cells.py           write what is out of date
    python book/_tools/setup_cells.py --check   write nothing, fail if anything is out of date
"""

import argparse
import re
import sys
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[2]
BRANCH = "main"
COLAB = "https://colab.research.google.com"
BADGE_IMAGE = f"{COLAB}/assets/colab-badge.svg"
SETUP_TAG = "setup"

SETUP_SOURCE = """\
# The same cell in every chapter: it installs tutorlib where it is missing
# (on Colab), and sets the look of the figures.
import importlib.util

if importlib.util.find_spec("tutorlib") is None:
    %pip install -q --no-deps "git+{address}"

from tutorlib.viz.palette import use_book_style

use_book_style()"""

# In which files, after which words, an address stands. The first group is kept, the rest is replaced.
ADDRESS = r"https://github\.com/[\w.-]+/[\w-]+"
PLACES = {
    "README.md": [rf"(git clone ){ADDRESS}", rf"(url = \{{){ADDRESS}"],
    "CITATION.cff": [rf"(repository-code: \"){ADDRESS}"],
    "_config.yml": [rf"(?m)(^  url: ){ADDRESS}"],
    "book/how_to_use.md": [rf"(git clone ){ADDRESS}", rf"(\"git\+){ADDRESS}"],
}
COLAB_LINK = rf"{re.escape(COLAB)}/github/[\w.-]+/[\w-]+/blob/[\w-]+/"
PAGES_LINK = r"https://[\w-]+\.github\.io/[\w-]+/"


def repository_address(root=ROOT):
    """Return the repository's address, read from pyproject.toml.

    Raises
    ------
    ValueError
        If there is none, or it is not of the form ``https://github.com/owner/name``.
    """
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r'(?m)^Repository = "([^"]*)"', text)
    address = found.group(1) if found else ""
    if not re.fullmatch(ADDRESS, address):
        raise ValueError(f"pyproject.toml: Repository is {address!r}; expected https://github.com/owner/name")
    return address


def colab_link(path, address):
    """Return the address at which Colab opens the notebook at `path` (relative to the repository, with slashes)."""
    owner, name = address.rsplit("/", 2)[1:]
    return f"{COLAB}/github/{owner}/{name}/blob/{BRANCH}/{path}"


def badge(path, address):
    """Return the Markdown of the badge that opens the notebook at `path` in Colab."""
    return f"[![Open in Colab]({BADGE_IMAGE})]({colab_link(path, address)})"


def write_address(text, patterns, address):
    """Return `text` with the address written where one of `patterns` finds a place, and in links to Colab and pages."""
    owner, name = address.rsplit("/", 2)[1:]
    for pattern in patterns:
        text = re.sub(pattern, lambda found: found.group(1) + address, text)
    text = re.sub(COLAB_LINK, colab_link("", address), text)
    return re.sub(PAGES_LINK, f"https://{owner}.github.io/{name}/", text)


def update_notebook(notebook, path, address):
    """Put the badge under the title, and the setup cell where it belongs, in place.

    Parameters
    ----------
    notebook : nbformat.NotebookNode
    path : str
        Where the notebook stands in the repository.

    Raises
    ------
    ValueError
        If the notebook does not begin with a Markdown cell that holds a title.
    """
    if not notebook.cells or notebook.cells[0].cell_type != "markdown" or not notebook.cells[0].source.startswith("# "):
        raise ValueError(f"{path}: the first cell must be Markdown and begin with '# ' and the chapter's title")
    title, _, rest = notebook.cells[0].source.partition("\n")
    rest = "\n".join(line for line in rest.split("\n") if BADGE_IMAGE not in line).strip("\n")
    notebook.cells[0].source = f"{title}\n\n{badge(path, address)}" + (f"\n\n{rest}" if rest else "")

    tagged = [cell for cell in notebook.cells if SETUP_TAG in cell.metadata.get("tags", [])]
    if len(tagged) > 1:
        raise ValueError(f"{path}: {len(tagged)} cells carry the tag {SETUP_TAG!r}; keep one")
    source = SETUP_SOURCE.format(address=address)
    if tagged:
        tagged[0].source = source
        tagged[0].metadata["tags"] = [SETUP_TAG, "hide-input"]
        return
    cell = nbformat.v4.new_code_cell(source, id="setup", metadata={"tags": [SETUP_TAG, "hide-input"]})
    kinds = [cell.cell_type for cell in notebook.cells]
    notebook.cells.insert(kinds.index("code") if "code" in kinds else len(kinds), cell)


def out_of_date(root=ROOT):
    """Compute what every managed file should hold.

    Returns
    -------
    dict of Path to str
        The wanted text of each file that holds something else.
    """
    address, wanted = repository_address(root), {}
    for name, patterns in PLACES.items():
        path = root / name
        wanted[path] = write_address(path.read_text(encoding="utf-8"), patterns, address)
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        update_notebook(notebook, path.relative_to(root).as_posix(), address)
        wanted[path] = nbformat.writes(notebook) + "\n"
    return {path: text for path, text in wanted.items() if path.read_text(encoding="utf-8") != text}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail if anything is out of date")
    check = parser.parse_args().check
    stale = out_of_date()
    for path, text in stale.items():
        print(f"{path.relative_to(ROOT)}: " + ("out of date, run `make notebooks`" if check else "written"))
        if not check:
            path.write_text(text, encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
