"""Run a notebook as Colab does: from an empty folder, where its setup cell has to install tutorlib.

    .venv-colab/bin/python book/_tools/as_on_colab.py notebooks/01_next_token.ipynb

The environment that this is started in has Colab's packages (`make test-colab` makes it) and no tutorlib. The notebook
is copied alone into an empty folder, with an environment of its own on top, so that what its cells install is gone
afterwards. The address in the setup cell is answered by git from this checkout: from its last commit. nbval compares
every output with the committed one, but for cells that install, since pip says there what it likes. These cells also
compile the loops: a reader of Colab is told about that once, in whatever cell a model is first used.
"""

import os
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[2]


COMPILE = "\n\nimport tutorlib.model.llama\n\ntutorlib.model.llama.compile_loops()"


def copy_alone(path, folder):
    """Copy a notebook to a folder; cells that install are run there, and what they print is not compared."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code" and "%pip" in cell.source:
            cell.metadata.setdefault("tags", []).append("nbval-ignore-output")
            cell.source += COMPILE
    copy = folder / path.name
    nbformat.write(notebook, copy)
    return copy


def environment_on_top(folder):
    """Make an environment that has all packages of this one, and takes what is installed into it; its Python."""
    venv.create(folder, symlinks=True)
    inherited = folder / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix) / "inherited.pth"
    inherited.write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "python"


def surroundings(address):
    """The environment variables: no other way to tutorlib than the address, which is answered from the checkout."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return kept | {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.file://{ROOT}.insteadOf",
        "GIT_CONFIG_VALUE_0": address,
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",  # else every kernel says that Python's modules are frozen
    }


def main():
    from setup_cells import repository_address

    with tempfile.TemporaryDirectory(prefix="colab-") as made:
        empty = Path(made, "content")
        empty.mkdir()
        python = environment_on_top(Path(made, "environment"))
        copy = copy_alone(Path(sys.argv[1]), empty)
        pytest = [python, "-m", "pytest", "--color=no", "--durations=3", "-p", "no:cacheprovider"]
        compare = ["--nbval", "--nbval-current-env", "--nbval-cell-timeout=600"]
        compare += ["--nbval-sanitize-with", ROOT / "tests" / "nbval_sanitize.cfg", copy.name]
        return subprocess.run([*pytest, *compare], cwd=empty, env=surroundings(repository_address())).returncode


if __name__ == "__main__":
    sys.exit(main())
