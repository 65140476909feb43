"""Build the book: execute the notebooks, render the pages with warnings as errors, and see that they exist.

python book/_tools/build_book.py               show the committed outputs where they are up to date, execute the other
                                               notebooks, and render into _build/html
python book/_tools/build_book.py --committed   execute nothing: render the committed outputs into _build/committed
python book/_tools/build_book.py --compared    render nothing: note that the committed outputs were just compared with
                                               an execution and their pages looked at, so that the next build need do
                                               neither
python book/_tools/build_book.py --looked-at   render nothing: fail unless the pages are those that were looked at
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
import yaml
from execute_notebooks import execute, normalise
from outputs import HASHES, note, package_hash, up_to_date

ROOT = Path(__file__).resolve().parents[2]
# Where the pages' notebooks with new outputs are, for `offline`; unset, the pages show the committed outputs.
EXECUTED = "BOOK_EXECUTED"


def toc_pages(root):
    """Return the pages that _toc.yml names, without suffix, in reading order: ``["book/welcome", ...]``."""

    def walk(node):
        if isinstance(node, dict):
            for key in ("root", "file"):
                if key in node:
                    yield node[key]
            for key in ("parts", "chapters", "sections"):
                yield from walk(node.get(key, []))
        elif isinstance(node, list):
            for item in node:
                yield from walk(item)

    return list(walk(yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))))


def forget_stale_executions(root, folder):
    """Remove the executed notebooks from `folder` when the package has changed, or what is installed."""
    stamp, now = folder / ".sources", package_hash(root) + sys.version
    if not stamp.exists() or stamp.read_text() != now:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        stamp.write_text(now)


def cells(path):
    """Return what the outputs of a notebook depend on in the notebook itself, and how they are shown."""
    notebook = normalise(nbformat.read(path, as_version=4))
    return [(cell.cell_type, cell.source, cell.metadata) for cell in notebook.cells]


def stale_copies(root, folder):
    """List (notebook, copy in `folder`) for the notebooks of the table of contents whose copy is not up to date."""
    forget_stale_executions(root, folder)
    pairs = [(root / f"{page}.ipynb", folder / f"{page}.ipynb") for page in toc_pages(root)]
    stale = [
        pair for pair in pairs if pair[0].is_file() and not (pair[1].is_file() and cells(pair[1]) == cells(pair[0]))
    ]
    for _, copy in stale:
        copy.parent.mkdir(parents=True, exist_ok=True)
    return stale


def compared(root, folder):
    """Take the committed notebooks for executed ones: `make test` has just executed them and compared every output."""
    for notebook, copy in stale_copies(root, folder):
        shutil.copyfile(notebook, copy)
    note(root, sorted((root / "notebooks").glob("*.ipynb")))


def rendered_already(root, executed):
    """Whether the pages with the committed outputs were made of what lies here now, and copies show nothing else."""
    stamp, site = root / "_build" / "committed" / "sources", root / "_build" / "committed" / "_build" / "html"
    if not (stamp.is_file() and stamp.read_text() == sources(root) and (site / "index.html").is_file()):
        return False
    pairs = [(root / f"{page}.ipynb", executed / f"{page}.ipynb") for page in toc_pages(root)]
    return all(committed.read_bytes() == copy.read_bytes() for committed, copy in pairs if committed.is_file())


def sources(root):
    """A hash of all that pages are made of, and of what makes them."""
    found = hashlib.sha256(f"{package_hash(root)} {sys.version}".encode())
    folders = [path for name in ("book", "notebooks") for path in (root / name).rglob("*")]
    for path in [root / "_config.yml", root / "_toc.yml", root / "pyproject.toml", *sorted(folders)]:
        if path.is_file() and "__pycache__" not in path.parts and path != root / HASHES:
            found.update(f"{path.relative_to(root).as_posix()}\0".encode() + path.read_bytes())
    return found.hexdigest()


def digest(root, site):
    """Tell whether the pages in `site`, or what looks at them, are the same as before."""
    found = hashlib.sha256()
    looks = [root / "tests" / "test_browser.py", root / "book" / "_tools" / "check_pages.py"]
    for path in [*looks, *sorted(path for path in site.glob("**/*") if path.is_file())]:
        found.update(f"{path.relative_to(root if path in looks else site)}\0".encode() + path.read_bytes())
    return found.hexdigest()


def executed(root, folder):
    """Execute the notebooks whose copy in `folder` is not up to date, unless their committed outputs are.

    Returns
    -------
    bool
        Whether all copies are up to date now. If not, a cell has failed, and what went wrong has been printed.
    """
    stale = stale_copies(root, folder)
    known = up_to_date(root, [notebook for notebook, _ in stale])
    for notebook, copy in stale:
        if notebook in known:
            shutil.copyfile(notebook, copy)
    stale = [pair for pair in stale if pair[0] not in known]
    # Each notebook computes on one thread in a process of its own, so there is a core for each of several.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return all(list(pool.map(lambda pair: execute(*pair), stale)))


def build(root=ROOT, committed=False):
    """Build the book that stands in `root`.

    Returns
    -------
    Path or None
        The folder with the pages; None if something failed, which has then been printed.
    """
    command = [Path(sys.executable).with_name("jupyter-book"), "build", root, "-W", "--keep-going", "--all"]
    output, environment, before = root / "_build", dict(os.environ), sources(root)
    if committed:
        command += ["--path-output", root / "_build" / "committed"]
        output = root / "_build" / "committed" / "_build"
    else:
        environment[EXECUTED] = str(output / "executed")
        if not executed(root, output / "executed"):
            return None
        if rendered_already(root, output / "executed"):
            shutil.rmtree(output / "html", ignore_errors=True)
            return Path(shutil.copytree(output / "committed" / "_build" / "html", output / "html"))
    # Old pages must not pass for new ones: neither here below nor in what Sphinx remembers of warnings already given.
    for old in ("html", ".doctrees"):
        shutil.rmtree(output / old, ignore_errors=True)
    done = subprocess.run([str(word) for word in command], cwd=root, env=environment)
    if done.returncode:
        print(f"The build failed (exit code {done.returncode}): what went wrong stands above.", file=sys.stderr)
        return None
    site = output / "html"
    missing = [page for page in ["index", *toc_pages(root)] if not (site / f"{page}.html").is_file()]
    if missing:
        print(f"The build made no page for {', '.join(missing)}: is jupyter-book older than 2?", file=sys.stderr)
        return None
    if committed:
        (root / "_build" / "committed" / "sources").write_text(before)
    return site


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--committed", action="store_true", help="execute nothing, render the outputs as committed")
    parser.add_argument("--compared", action="store_true", help="render nothing: the committed outputs were compared")
    parser.add_argument("--looked-at", action="store_true", help="render nothing: were these pages looked at?")
    parser.add_argument("--root", type=Path, default=ROOT, help="the folder of the book (default: this one)")
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    looked_at = root / "_build" / "looked_at"
    if arguments.compared:
        compared(root, root / "_build" / "executed")
        looked_at.write_text(digest(root, root / "_build" / "committed" / "_build" / "html"))
        return 0
    if arguments.looked_at:
        same = looked_at.is_file() and looked_at.read_text() == digest(root, root / "_build" / "html")
        print("make test has looked at these very pages" if same else "nobody has looked at these pages yet")
        return 0 if same else 1
    site = build(root, arguments.committed)
    if site is None:
        return 1
    print(f"\nThe book is built: {site / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
