"""EAGLE-3's training on its own steps: what one position of a text reads in each step."""

from ...viz.palette import LIGHT
from ...viz.style import arrow, drawing, outlined, slot


def unrolled_training(ax, position: int = 3, steps: int = 3, length: int = 5):
    """Draw a row for each training step: the states that one position reads, those hidden from it, and its guess.

    Parameters
    ----------
    position : int
        The position from which the network drafts. It reads the target's states up to this one.
    steps : int
        How many steps are drawn, from 1 to `length` - `position` + 1.
    length : int
        The length of the text: how many states the target has computed.

    Returns
    -------
    matplotlib axes

    Raises
    ------
    ValueError
        If the steps do not fit into the text.
    """
    if not 1 <= position <= length or not 1 <= steps <= length - position + 1:
        raise ValueError(f"{steps} steps from position {position} do not fit into a text of {length}")
    wide, gap, row_high = 1.3, 0.35, 2.1
    made_at = length * (wide + gap) + 1.5  # the position of the new state
    right = made_at + wide + 5.0
    style = {"ha": "center", "va": "center", "fontsize": 12, "zorder": 4}
    for step in range(1, steps + 1):
        y = -(step - 1) * row_high
        ax.text(-0.4, y + 0.4, f"step {step}", ha="right", va="center", fontsize=12, weight="bold")
        for at in range(1, length + 1):
            x = (at - 1) * (wide + gap)
            own, seen = position < at < position + step, at < position + step
            kind = "draft" if own else "target"
            hidden = {"facecolor": "white", "edgecolor": LIGHT["line"], "linestyle": "--", "linewidth": 1.4}
            slot(ax, x, y, wide, **(outlined(kind) if seen else hidden))
            letter = rf"$\hat a_{at}$" if own else f"$g_{at}$"
            ax.text(x + wide / 2, y + 0.4, letter, color=LIGHT["text" if seen else "neutral"], **style)
        after = position + step
        arrow(ax, (made_at - 1.4, y + 0.4), (made_at - 0.1, y + 0.4))
        slot(ax, made_at, y, wide, **outlined("draft"))
        ax.text(made_at + wide / 2, y + 0.4, rf"$\hat a_{after}$", **style)
        arrow(ax, (made_at + wide + 0.1, y + 0.4), (made_at + wide + 1.0, y + 0.4))
        ax.text(made_at + wide + 1.15, y + 0.4, f"token {after + 1}?", va="center", fontsize=12)
        if step < steps:
            # The next step reads the state that this step has computed.
            down, below = y - 0.55, position * (wide + gap) + (step - 1) * (wide + gap) + wide / 2
            line = [made_at + wide / 2, made_at + wide / 2, below], [y, down, down]
            ax.plot(*line, color=LIGHT["draft"], linewidth=1.6)
            arrow(ax, (below, down), (below, y - row_high + 0.85), LIGHT["draft"], shrinkA=0, shrinkB=0)
    low = -(steps - 1) * row_high
    looks = outlined("target"), outlined("draft"), hidden
    for look, x, text in zip(looks, (0, 5.4, 11.4), ("from the target", "the network's own", "hidden"), strict=True):
        slot(ax, x, low - 1.5, 0.7, high=0.5, **look)
        ax.text(x + 0.95, low - 1.25, text, va="center", fontsize=11)
    return drawing(ax, (-2.9, right), (low - 1.7, 1.1), None)
