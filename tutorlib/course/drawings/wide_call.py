"""Why a wide call is cheap: the weights are read from memory once, whether one column is multiplied or nine."""

from collections.abc import Sequence

from matplotlib.patches import Rectangle

from ...arguments import takes_iterators
from ...viz.palette import LIGHT
from ...viz.style import arrow, bar_style, drawing, pale, slot

SIDE = 4.0  # the side of the square that stands for all weights
READING = 8.0  # the length of the bar that stands for reading them


@takes_iterators
def wide_call(ax, widths: Sequence[int] = (1, 9), *, share=0.07, title=None):
    """Draw calls of different widths: the weights that are read, the columns multiplied with them, and both times.

    Parameters
    ----------
    widths : sequence of int
        Tokens in each call, at most 12.
    share : float
        The time of computing one token, as a share of the time of reading the weights. Above 1 / width, computing would
        take longer than reading.
    """
    if not widths or not all(1 <= width <= 12 for width in widths):
        raise ValueError(f"calls of 1 to 12 tokens can be drawn, got {list(widths)}")
    last = SIDE + 1.4 + 0.55 * max(widths) + 1.0
    for row, width in enumerate(widths):
        y = 6.4 * row
        name = f"A call with {width} token{'s' if width > 1 else ''}"
        ax.text(0, y, name, fontsize=13, weight="bold", va="center")
        slot(ax, 0, y + 0.8, SIDE, high=SIDE, rounding=0.15, **bar_style("target", hatch="", linewidth=1.8))
        ax.text(SIDE / 2, y + 0.8 + SIDE / 2, "weights", ha="center", va="center", fontsize=13, zorder=4)
        ax.text(SIDE + 0.7, y + 0.8 + SIDE / 2, "×", ha="center", va="center", fontsize=17)
        for column in range(width):
            x = SIDE + 1.4 + 0.55 * column
            look = {"facecolor": pale(LIGHT["draft"]), "edgecolor": LIGHT["draft"], "linewidth": 1.4}
            ax.add_patch(Rectangle((x, y + 0.8), 0.42, SIDE, **look))
        times = (("read the weights", READING, "target"), ("compute", READING * share * width, "draft"))
        for line, (what, long, kind) in enumerate(times):
            top = y + 1.0 + 2.1 * line
            ax.text(last, top, what, fontsize=12.5, va="center", color=LIGHT[kind])
            ax.add_patch(Rectangle((last, top + 0.45), long, 0.8, **bar_style(kind)))
    low = 6.4 * len(widths) - 0.9
    arrow(ax, (last, low), (last + READING + 0.6, low), linewidth=1.8, shrinkA=0, shrinkB=0)
    ax.text(last + READING + 0.6, low + 0.55, "time", fontsize=12.5, ha="right", va="center")
    return drawing(ax, (-0.3, last + READING + 0.9), (low + 1.0, -0.7), title)
