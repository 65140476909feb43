"""Build the book: execute the notebooks (cached), render the pages with warnings as errors, and see that they exist.

python book/_tools/build_book.py               execute what has changed, then render into _build/html
python book/_tools/build_book.py --committed   execute nothing: render the committed outputs into _build/committed
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]


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


def fingerprint(root):
    """Hash what a notebook's outputs depend on besides the notebook: package, weights, pinned versions."""
    digest = hashlib.sha256(sys.version.encode())
    files = [root / "constraints.txt", *sorted((root / "tutorlib").rglob("*"))]
    for path in files:
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def forget_stale_executions(root, output):
    """Empty the cache of executed notebooks when the package has changed: its own key is their source alone."""
    cache, stamp, now = output / ".jupyter_cache", output / ".sources", fingerprint(root)
    if not stamp.exists() or stamp.read_text() != now:
        shutil.rmtree(cache, ignore_errors=True)
        output.mkdir(parents=True, exist_ok=True)
        stamp.write_text(now)


def committed_settings(root, folder):
    """Write the settings with execution off into `folder`, and return the file's path."""
    settings = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
    settings["execute"]["execute_notebooks"] = "off"
    # These paths alone are taken as relative to the settings' own folder.
    extensions = settings.get("sphinx", {}).get("local_extensions", {})
    extensions.update({name: str(root / path) for name, path in extensions.items()})
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "_config.yml"
    path.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    return path


def build(root=ROOT, committed=False):
    """Build the book that stands in `root`.

    Returns
    -------
    Path or None
        The folder with the pages; None if something failed, which has then been printed.
    """
    command = [Path(sys.executable).with_name("jupyter-book"), "build", root, "-W", "--keep-going", "--all"]
    if committed:
        folder = root / "_build" / "committed"
        command += ["--config", committed_settings(root, folder), "--path-output", folder]
        output = folder / "_build"
    else:
        output = root / "_build"
        forget_stale_executions(root, output)
    # Old pages must not pass for new ones: neither here below nor in what Sphinx remembers of warnings already given.
    for old in ("html", ".doctrees"):
        shutil.rmtree(output / old, ignore_errors=True)
    done = subprocess.run([str(word) for word in command], cwd=root)
    if done.returncode:
        print(f"The build failed (exit code {done.returncode}): what went wrong stands above.", file=sys.stderr)
        return None
    site = output / "html"
    missing = [page for page in ["index", *toc_pages(root)] if not (site / f"{page}.html").is_file()]
    if missing:
        print(f"The build made no page for {', '.join(missing)}: is jupyter-book older than 2?", file=sys.stderr)
        return None
    return site


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--committed", action="store_true", help="execute nothing, render the outputs as committed")
    parser.add_argument("--root", type=Path, default=ROOT, help="the folder of the book (default: this one)")
    arguments = parser.parse_args()
    site = build(arguments.root.resolve(), arguments.committed)
    if site is None:
        return 1
    print(f"\nThe book is built. Open {site / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
