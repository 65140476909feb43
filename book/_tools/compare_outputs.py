"""Compare what nbval leaves out: pictures, and the order and kinds of a cell's outputs.

A plugin of pytest, loaded by `notebooks/conftest.py`. nbval compares the texts of outputs, key by key. So a
grey rectangle in place of a stored figure would pass, and so would a table that has moved in front of a printed line.
Cells that nbval does not compare (tag `nbval-ignore-output`) are not compared here either.
"""

import io
from base64 import b64decode

import numpy as np
from nbval.plugin import IPyNbCell
from PIL import Image

# Pictures are compared in blocks of this many pixels, so that the soft edges of letters and lines do not count.
BLOCK = 4
# A block has changed if its mean colour has changed by more than this, of 255 ...
CHANGE = 40
# ... and two pictures differ if more blocks than this have changed. A figure has about 20,000 of them.
MOST_CHANGED = 12
# Other versions of the fonts make a figure a few pixels wider or narrower, which the longest labels decide.
MOST_WIDER = 0.02


def blocks(png: str, size: tuple[int, int] | None = None) -> np.ndarray:
    """The mean colours of a picture's blocks.

    Parameters
    ----------
    png : str
        A PNG file in base64.
    size : (width, height), optional
        Blocks in each direction; by default one for each `BLOCK` pixels.

    Returns
    -------
    (height, width, 3) array of float, 0 to 255
    """
    picture = Image.open(io.BytesIO(b64decode(png))).convert("RGB")
    size = size or tuple(max(1, side // BLOCK) for side in picture.size)
    return np.asarray(picture.resize(size, Image.Resampling.BOX), dtype=float)


def difference(new: str, stored: str) -> str:
    """How a picture differs from the stored one, in words; empty if it shows the same."""
    sizes = [Image.open(io.BytesIO(b64decode(png))).size for png in (new, stored)]
    if any(abs(one - other) > MOST_WIDER * other for one, other in zip(*sizes, strict=True)):
        return f"a picture of {sizes[0][0]} x {sizes[0][1]} pixels, but {sizes[1][0]} x {sizes[1][1]} are stored"
    before = blocks(stored)
    changed = abs(blocks(new, before.shape[1::-1]) - before).max(-1) > CHANGE
    if changed.sum() <= MOST_CHANGED:
        return ""
    (top, left), (bottom, right) = (BLOCK * edge(changed.nonzero(), axis=1) for edge in (np.min, np.max))
    return (
        f"another picture than the stored one: {changed.mean():.1%} of it has changed, from pixel ({left}, {top}) to "
        f"({right + BLOCK}, {bottom + BLOCK})"
    )


def forms(outputs) -> list[tuple[str, ...]]:
    """What outputs are, in their order: the name of a stream, or the kind of a display and its formats."""
    found = [
        (output.output_type, output.get("name", ""), *sorted(output.get("data", ())))
        for output in outputs
    ]
    return [form for i, form in enumerate(found) if form[0] != "stream" or form != found[i - 1] or not i]


def pictures(outputs) -> list[str]:
    return ["".join(output.data["image/png"]) for output in outputs if "image/png" in output.get("data", {})]


def compare_all(cell, new, stored, skip_compare=None) -> bool:
    """In place of `IPyNbCell.compare_outputs`: first what nbval compares, then forms and pictures."""
    if not compare_texts(cell, new, stored, skip_compare):
        return False
    if forms(new) != forms(stored):
        said = f"outputs of other kinds or in another order: {forms(new)}, stored {forms(stored)}"
        cell.comparison_traceback = [said]
        return False
    found = [difference(*pair) for pair in zip(pictures(new), pictures(stored), strict=True)]
    cell.comparison_traceback = [f"picture {number}: {said}" for number, said in enumerate(found, start=1) if said]
    return not cell.comparison_traceback


compare_texts, IPyNbCell.compare_outputs = IPyNbCell.compare_outputs, compare_all
