"""What has to fit into a machine's memory: the parts as boxes, in a frame that shows the available memory."""

from collections.abc import Mapping
from typing import Any

from matplotlib.patches import Rectangle

from ...viz.palette import LIGHT
from ...viz.style import drawing, outlined, slot

KINDS = ("target", "draft", "accepted", "context")


def what_fits(ax, rows: Mapping[str, Mapping[str, float]], room: float, machine: str):
    """Draw a row of boxes for each way to store the models, and a frame for the memory; widths are in GB.

    Parameters
    ----------
    rows : mapping from names to mappings from parts to GB
        The same parts in each row, at most four, from left to right.
    room : float
        The available memory in GB.
    machine : str
        The name of the machine that has this memory.

    Returns
    -------
    matplotlib axes

    Raises
    ------
    ValueError
        If the rows have no parts, more than four parts, or different parts.
    """
    parts = list(next(iter(rows.values()), ()))
    if not 1 <= len(parts) <= len(KINDS) or any(list(row) != parts for row in rows.values()):
        given = [list(row) for row in rows.values()]
        raise ValueError(f"every row must have the same parts, 1 to {len(KINDS)}; got {given}")
    looks = dict(zip(parts, KINDS))
    for place, (name, row) in enumerate(rows.items()):
        y, x = -1.4 * place, 0.0
        ax.text(-0.4, y + 0.4, name, ha="right", va="center", fontsize=12, weight="bold")
        for part, size in row.items():
            slot(ax, x, y, size, rounding=0, **outlined(looks[part]))
            x += size
        said = f"{x:.1f} GB {'fit' if x <= room else 'do not fit'}"
        ax.text(max(x, room) + 0.5, y + 0.4, said, va="center", fontsize=11)
    low = -1.4 * (len(rows) - 1)
    frame: dict[str, Any] = {"facecolor": "none", "edgecolor": LIGHT["text"], "linewidth": 2.2, "zorder": 3}
    ax.add_patch(Rectangle((0, low - 0.3), room, 1.4 - low, **frame))
    ax.text(room / 2, 1.5, f"{machine}: {room:g} GB", ha="center", va="center", fontsize=11)
    most = max(sum(row.values()) for row in rows.values())
    right = max(most, room) + 6.5
    x = -2.0
    for part in parts:
        slot(ax, x, low - 1.4, 0.9, high=0.5, rounding=0, **outlined(looks[part]))
        ax.text(x + 1.2, low - 1.15, part, va="center", fontsize=11)
        x += 0.45 * len(part) + 2.4  # about as wide as its letters
    return drawing(ax, (-3.8, right), (low - 1.6, 1.9), None)
