"""Execute notebooks in place, and leave in them only what is the same every time.

    python book/_tools/execute_notebooks.py notebooks/01_next_token.ipynb ...

After execution the file holds sources, outputs, and nothing that depends on the hour or the machine: no execution
times, no state of live widgets, no Python version, cell ids made from the cells' content. Figures are stored with a
palette of 256 colours, which makes their files about a third as large and looks the same.
"""

import argparse
import hashlib
import io
import sys
import time
from base64 import b64decode, b64encode
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from outputs import note
from PIL import Image, ImageChops

ROOT = Path(__file__).resolve().parents[2]

WIDGET = "application/vnd.jupyter.widget-view+json"
# What stands in a live widget's place where it is not alive.
LIVE = "(Run this cell to get sliders that you can move.)"
KEPT_CELL_METADATA = {"tags", "mystnb", "editable", "slideshow"}
NOTEBOOK_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python", "file_extension": ".py", "mimetype": "text/x-python"},
}


def normalise(notebook):
    """Strip what is volatile, in place, and give every cell an id made from its content.

    Returns
    -------
    nbformat.NotebookNode
        The same notebook.
    """
    notebook.metadata = nbformat.from_dict(NOTEBOOK_METADATA)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    seen = {}
    for cell in notebook.cells:
        kept = sorted(KEPT_CELL_METADATA & set(cell.metadata))
        cell.metadata = nbformat.from_dict({key: cell.metadata[key] for key in kept})
        if "hide-input" in cell.metadata.get("tags", []):  # folded in the book; so also on Colab and in JupyterLab
            cell.metadata |= nbformat.from_dict({"cellView": "form", "jupyter": {"source_hidden": True}})
        digest = hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()[:12]
        seen[digest] = seen.get(digest, 0) + 1
        cell.id = digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"
        if cell.cell_type == "code":
            cell.outputs = merged_streams(cell.outputs)
            for output in cell.outputs:
                normalise_output(output, cell)
    return notebook


def normalise_output(output, cell):
    """Strip a live widget's view from one output, and give its pictures the alt text that the cell's metadata holds.

    A picture keeps the size at which it is to be shown, which is half of its size in pixels.
    """
    if "data" not in output:
        return
    if output.data.pop(WIDGET, None):
        output.data["text/plain"] = LIVE
    # Two readers, two places: the book takes the text from the cell, GitHub's and nbconvert's view from the output.
    alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt")
    told = {}
    for kind in output.data:
        if kind.startswith("image/"):
            size = output.get("metadata", {}).get(kind, {})
            told[kind] = {key: size[key] for key in ("width", "height") if key in size} | ({"alt": alt} if alt else {})
    output.metadata = nbformat.from_dict({kind: facts for kind, facts in told.items() if facts})


def fewer_colours(png):
    """Store a picture with a palette of 256 colours, unless that could be seen.

    Parameters
    ----------
    png : str
        A PNG file in base64.

    Returns
    -------
    str
        The same picture, usually a third as large; as it was given if that is smaller, or if a pixel would change by
        more than 16 of 255.
    """
    picture = Image.open(io.BytesIO(b64decode(png)))
    if picture.mode == "P" or picture.convert("RGBA").getextrema()[3][0] < 255:
        return png
    picture = picture.convert("RGB")
    # Maximum coverage keeps rare colours, such as those of one thin line; the usual median cut does not.
    reduced = picture.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    changes = ImageChops.difference(picture, reduced.convert("RGB")).getextrema()
    if max(most for _, most in changes) > 16:
        return png
    file = io.BytesIO()
    reduced.save(file, "png", optimize=True)
    return min(b64encode(file.getvalue()).decode("ascii"), png, key=len)


def merged_streams(outputs):
    """Join printed outputs that only time has split, as a list of outputs."""
    merged = []
    for output in outputs:
        last = merged[-1] if merged else None
        if last is not None and output.output_type == last.output_type == "stream" and output.name == last.name:
            last.text += output.text
        else:
            merged.append(output)
    return merged


def execute(path, target=None, timeout=600):
    """Run one notebook from top to bottom in its own folder, and write it to `target`, or back.

    Returns
    -------
    bool
        Whether all cells ran. If one failed, nothing is written, and what went wrong has been printed.
    """
    notebook = nbformat.read(path, as_version=4)
    folder, start = {"metadata": {"path": str(path.parent)}}, time.perf_counter()
    try:
        NotebookClient(notebook, timeout=timeout, kernel_name="python3", resources=folder).execute()
    except CellExecutionError as error:
        print(f"{path}: a cell failed, nothing was written\n{error}", file=sys.stderr)
        return False
    for output in (output for cell in notebook.cells for output in cell.get("outputs", [])):
        if "image/png" in output.get("data", {}):
            output.data["image/png"] = fewer_colours(output.data["image/png"])
    (target or path).write_text(nbformat.writes(normalise(notebook)) + "\n", encoding="utf-8")
    print(f"{path}: executed in {time.perf_counter() - start:.0f} s", flush=True)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("notebooks", nargs="+", type=Path)
    parser.add_argument("--only-normalise", action="store_true", help="execute nothing, strip what is volatile")
    arguments = parser.parse_args()
    for path in arguments.notebooks:
        if arguments.only_normalise:
            notebook = normalise(nbformat.read(path, as_version=4))
            path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
        elif not execute(path):
            return 1
        elif path.resolve().parent == ROOT / "notebooks":
            note(ROOT, [path])
    return 0


if __name__ == "__main__":
    sys.exit(main())
