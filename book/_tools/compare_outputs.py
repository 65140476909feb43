"""Compare what nbval leaves out: pictures, and the order and kinds of a cell's outputs.

A plugin of pytest, loaded by `notebooks/conftest.py`. nbval compares the texts of outputs, key by key. So a
grey rectangle in place of a stored figure would pass, and so would a table that has moved in front of a printed line.
Cells that nbval does not compare (tag `nbval-ignore-output`) are not compared here either.
"""

import io
import re
from base64 import b64decode
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np
from nbval.plugin import IPyNbCell
from PIL import Image

# Two figures differ if more than this many blocks have changed. A figure has 1,000 to 20,000 of them.
MOST_CHANGED = 12
# Other versions of matplotlib make a figure a few pixels wider or narrower, which the longest labels decide.
MOST_WIDER = 0.02


class Blocks(NamedTuple):
    """In blocks of `side` pixels, pictures are compared: one has changed if its mean colour has, by more than `change`
    of 255. Soft edges of letters and lines do not count in this way.
    """

    side: int
    change: int


# What draws text in matplotlib 3.10 and 3.11 differs in a twentieth of the small blocks, and in none of the large ones.
SAME_VERSION, OTHER_VERSION = Blocks(4, 40), Blocks(16, 60)


def precision() -> Blocks:
    """Small blocks if this is the version of matplotlib with which the stored figures were drawn."""
    pins = (Path(__file__).resolve().parents[2] / "constraints.txt").read_text(encoding="utf-8")
    drawn_with = re.search(r"(?m)^matplotlib==(\S+)", pins).group(1)
    return SAME_VERSION if version("matplotlib") == drawn_with else OTHER_VERSION


def mean_colours(png: str, side: int, size: tuple[int, int] | None = None) -> np.ndarray:
    """The mean colours of a picture's blocks.

    Parameters
    ----------
    png : str
        A PNG file in base64.
    side : int
        The pixels of a block in each direction.
    size : (width, height), optional
        How many blocks there are in each direction, if this is given by another picture.

    Returns
    -------
    (height, width, 3) array of float, 0 to 255
    """
    picture = Image.open(io.BytesIO(b64decode(png))).convert("RGB")
    size = size or tuple(max(1, pixels // side) for pixels in picture.size)
    return np.asarray(picture.resize(size, Image.Resampling.BOX), dtype=float)


def difference(new: str, stored: str, looked_at: Blocks = SAME_VERSION) -> str:
    """How a picture differs from the stored one, in words; empty if it shows the same."""
    sizes = [Image.open(io.BytesIO(b64decode(png))).size for png in (new, stored)]
    if any(abs(one - other) > MOST_WIDER * other for one, other in zip(*sizes, strict=True)):
        return f"a picture of {sizes[0][0]} x {sizes[0][1]} pixels, but {sizes[1][0]} x {sizes[1][1]} are stored"
    side, change = looked_at
    before = mean_colours(stored, side)
    changed = abs(mean_colours(new, side, before.shape[1::-1]) - before).max(-1) > change
    if changed.sum() <= MOST_CHANGED:
        return ""
    (top, left), (bottom, right) = (side * edge(changed.nonzero(), axis=1) for edge in (np.min, np.max))
    return (
        f"another picture than the stored one: {changed.mean():.1%} of it has changed, from pixel ({left}, {top}) to "
        f"({right + side}, {bottom + side})"
    )


def forms(outputs) -> list[tuple[str, ...]]:
    """What outputs are, in their order: the name of a stream, or the kind of a display and its formats."""
    found = [(output.output_type, output.get("name", ""), *sorted(output.get("data", ()))) for output in outputs]
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
    found = [difference(*pair, precision()) for pair in zip(pictures(new), pictures(stored), strict=True)]
    cell.comparison_traceback = [f"picture {number}: {said}" for number, said in enumerate(found, start=1) if said]
    return not cell.comparison_traceback


compare_texts, IPyNbCell.compare_outputs = IPyNbCell.compare_outputs, compare_all
