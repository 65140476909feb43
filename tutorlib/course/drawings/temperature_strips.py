"""What a temperature does: it divides the interval from 0 to 1 differently among the same tokens."""

from collections.abc import Mapping, Sequence

import numpy as np

from ...arguments import takes_iterators
from ...viz.palette import LIGHT, color
from ...viz.style import checked_distribution, pale, rows_down, titled, token_label


@takes_iterators
def temperature_strips(ax, tokens: Sequence[str], rows: Mapping[str, Sequence[float]], *, top=5, title=None):
    """Draw several distributions over the same tokens as strips from 0 to 1, one below the other.

    Each strip has one piece for each of the tokens that are most likely in the first row, and one hatched piece for all
    others. Lines connect the same pieces in neighbouring strips.

    Parameters
    ----------
    tokens : sequence of str, length n
        The texts.
    rows : mapping from names to arrays of floats, shape (n,)
        For example the distribution at each temperature. Each sums to 1.
    top : int
        How many tokens get a piece of their own.
    """
    strips = {name: checked_distribution(probs, tokens, name) for name, probs in rows.items()}
    order = np.argsort(-next(iter(strips.values())), kind="stable")
    shown, rest = order[:top], order[top:]
    names = [token_label(tokens[i]) for i in shown] + [f"{len(rest):,} others"]
    before = None
    for row, probs in enumerate(strips.values()):
        widths = [*probs[shown], max(1 - probs[shown].sum(), 0.0)]
        ends = np.cumsum(widths)
        for number, (name, wide, end) in enumerate(zip(names, widths, ends, strict=True)):
            last = number == len(names) - 1
            hue = LIGHT["neutral"] if last else color("target")
            look = {"color": "white" if number % 2 and not last else pale(hue), "hatch": "..." if last else ""}
            ax.barh(row, wide, left=end - wide, height=0.56, edgecolor=hue, linewidth=1.0, **look)
            lines = f"{name}\n{wide:.2f}"
            if wide > 0.0155 * max(map(len, lines.split("\n"))):
                style = {"ha": "center", "va": "center", "fontsize": 11, "parse_math": False, "linespacing": 1.3}
                patch = {"facecolor": pale(hue), "edgecolor": "none", "pad": 1.5} if last else None
                ax.text(end - wide / 2, row, lines, bbox=patch, **style)
        if before is not None:
            for above, below in zip(before[:-1], ends[:-1], strict=True):
                ax.plot((above, below), (row - 0.72, row - 0.28), color=LIGHT["neutral"], linewidth=0.9, zorder=1)
        before = ends
    rows_down(ax, list(rows))
    ax.tick_params(axis="y", labelsize=12)
    ax.set(xlim=(0, 1), xlabel="probability")
    ax.grid(visible=False)
    return titled(ax, title)
