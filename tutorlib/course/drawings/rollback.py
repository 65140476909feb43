"""The two caches of a round, before and after the rollback."""

from collections.abc import Sequence

from ...arguments import takes_iterators
from ...viz.palette import LIGHT
from ...viz.style import arrow, drawing, marked, outlined, slot, word

WIDE, STEP, LEFT = 1.55, 1.7, 2.2


@takes_iterators
def rollback(ax, drafted: Sequence[str], accepted: int, own: str, *, title=None):
    """Draw what the target's and the draft's caches hold after a check, and what is left after the rollback.

    The target has read all γ drafted tokens, the draft all but the last. Both keep the text and the accepted tokens.

    Parameters
    ----------
    drafted : sequence of str
    accepted : int
        How many of them are accepted.
    own : str
        The token that the target adds to the text. Neither model has read it.

    Raises
    ------
    ValueError
        If more tokens are accepted than were drafted.
    """
    if not 0 <= accepted <= len(drafted):
        raise ValueError(f"from 0 to {len(drafted)} of {len(drafted)} drafted tokens can be accepted, got {accepted}")
    full = accepted == len(drafted)
    kinds = ["accepted"] * accepted + ["rejected"] + ["neutral"] * len(drafted)
    gone = {"facecolor": "white", "edgecolor": LIGHT["line"], "linestyle": "--", "linewidth": 1.3}
    rows = [("target", 6.0, len(drafted), False), ("draft", 5.0, len(drafted) - 1, False)]
    rows += [("target", 2.6, len(drafted), True), ("draft", 1.6, len(drafted) - 1, True)]
    for name, y, read, after in rows:
        ax.text(-0.2, y + 0.4, name, ha="right", va="center", fontsize=11, color=LIGHT[name])
        slot(ax, 0, y, LEFT, **outlined("context"))
        word(ax, LEFT / 2, y + 0.4, "the text", fontsize=11, family="sans-serif")
        for column, (text, kind) in enumerate(zip(drafted[:read], kinds, strict=False)):
            x = LEFT + 0.15 + STEP * column
            kept = not after or column < accepted
            slot(ax, x, y, WIDE, **(outlined(kind) if kept else gone))
            if kept:
                word(ax, x + WIDE / 2, y + 0.4, marked(text, kind, 8), fontsize=11)
    end = LEFT + 0.15 + STEP * len(drafted)
    head = {"fontsize": 11, "va": "bottom", "weight": "bold"}
    ax.text(0, 7.0, "caches after the check", **head)
    ax.text(0, 3.6, "caches after the rollback", **head)
    arrow(ax, (LEFT / 2, 4.9), (LEFT / 2, 4.3), LIGHT["neutral"], shrinkA=0, shrinkB=0)
    kind = "bonus" if full else "resampled"
    x = LEFT + 0.15 + STEP * accepted
    slot(ax, x, 0.2, WIDE, **outlined(kind))
    word(ax, x + WIDE / 2, 0.6, marked(own, kind, 8), fontsize=11)
    ax.text(x - 0.2, 0.6, "to be read next:", ha="right", va="center", fontsize=11, color=LIGHT["neutral"])
    return drawing(ax, (-1.6, max(end, x + WIDE) + 0.1), (0.0, 7.8), title)
