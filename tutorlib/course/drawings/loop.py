"""A loop that feeds itself: each repetition in the text makes another one more likely, until a penalty breaks it."""

from ...viz.palette import LIGHT
from ...viz.style import arrow, bar_style, drawing, outlined, slot, word


def self_feeding_loop(ax, phrase="She smiled at her.", *, penalty=True, title=None):
    """Draw how a phrase in the text raises its own probability, and where a penalty cuts the loop.

    Parameters
    ----------
    phrase : str
        The repeated phrase, at most 20 letters. It occurs twice in the text.
    penalty : bool
        Whether to draw the cut, between the model's logits and the choice of the next token.
    """
    for x in (0.0, 4.8):
        slot(ax, x, 0.3, 4.5, high=1.0, **outlined("context"))
        word(ax, x + 2.25, 0.8, phrase, fontsize=11.5)
    word(ax, 9.85, 0.8, "…", fontsize=14)
    ax.text(0.0, 0.0, "the text so far", fontsize=12, color=LIGHT["context"], va="center")

    for x, kind, lines in ((6.6, "target", "the model's\nlogits"), (0.0, "accepted", "the next\ntoken")):
        slot(ax, x, 4.7, 3.4, high=1.5, **outlined(kind))
        ax.text(x + 1.7, 5.45, lines, ha="center", va="center", fontsize=12.5, zorder=4)
    thick = {"linewidth": 2.6, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 20}
    arrow(ax, (8.3, 1.4), (8.3, 4.6), **thick)
    arrow(ax, (6.5, 5.45), (3.5, 5.45), **thick)
    arrow(ax, (1.7, 4.6), (1.7, 1.4), **thick)
    ax.text(8.55, 3.0, "is read", fontsize=12, va="center")
    ax.text(1.45, 3.0, "is added", fontsize=12, va="center", ha="right")

    ax.text(5.0, 2.05, "probability of\nrepeating it", fontsize=12, ha="center", va="center")
    for times, high in enumerate((0.25, 0.75, 1.5), 1):
        x = 3.1 + 0.95 * times
        ax.bar(x, -high, bottom=4.1, width=0.6, **bar_style("rejected"))
        ax.text(x, 4.35, f"{times}×", fontsize=11, ha="center", va="center")
    if penalty:
        ax.plot([5.0, 5.0], [4.75, 6.15], color=LIGHT["rejected"], linewidth=3.5, linestyle=(0, (2, 1)), zorder=5)
        style = {"ha": "center", "va": "top", "fontsize": 12, "weight": "bold", "color": LIGHT["rejected"]}
        ax.text(5.0, 6.3, "a penalty cuts here", **style)
    return drawing(ax, (-0.9, 10.6), (7.0, -0.4), title)
