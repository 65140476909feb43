"""A check: the rows of logits from one call of the target, and the token that each row checks."""

from collections.abc import Sequence

from ...arguments import takes_iterators
from ...viz.palette import LIGHT
from ...viz.style import arrow, drawing, marked, outlined, slot, word

WIDE, STEP = 1.95, 2.3


@takes_iterators
def check_rows(ax, last: str, drafted: Sequence[str], accepted: int, own: str, *, title=None):
    """Draw the check of one round: each row of logits is below the token that was read, and points to the next token.

    Parameters
    ----------
    last : str
        The text's last token, which the target reads together with the draft.
    drafted : sequence of str
        The γ drafted tokens.
    accepted : int
        How many of them are accepted. The next one, if any, is rejected, and the others are never checked.
    own : str
        The token that the target adds: the replacement, or the bonus token if all were accepted.

    Raises
    ------
    ValueError
        If more tokens are accepted than were drafted.
    """
    if not 0 <= accepted <= len(drafted):
        raise ValueError(f"from 0 to {len(drafted)} of {len(drafted)} drafted tokens can be accepted, got {accepted}")
    full = accepted == len(drafted)
    kinds = ["context"] + ["accepted"] * accepted + ["rejected"] + ["neutral"] * len(drafted)
    for column, (text, kind) in enumerate(zip([last, *drafted], kinds, strict=False)):
        slot(ax, STEP * column, 3.0, WIDE, **outlined(kind))
        word(ax, STEP * column + WIDE / 2, 3.4, marked(text, kind, 8), fontsize=11)
    bonus = STEP * (len(drafted) + 1)
    empty = {"facecolor": "white", "edgecolor": LIGHT["line"], "linestyle": "--", "linewidth": 1.4}
    slot(ax, bonus, 3.0, WIDE, **(outlined("bonus") if full else empty))
    look = {"fontsize": 11} if full else {"fontsize": 11, "color": LIGHT["neutral"], "family": "sans-serif"}
    word(ax, bonus + WIDE / 2, 3.4, marked(own, "bonus", 8) if full else "bonus", **look)
    for row in range(len(drafted) + 1):
        used = row <= accepted
        look = outlined("target") if used else {**outlined("target"), "facecolor": "white", "alpha": 0.5}
        slot(ax, STEP * row, 1.0, WIDE, **look)
        hue = LIGHT["text"] if used else LIGHT["neutral"]
        word(ax, STEP * row + WIDE / 2, 1.4, f"row {row + 1}", fontsize=11, color=hue, family="sans-serif")
        arrow(
            ax, (STEP * row + 0.8 * WIDE, 1.83), (STEP * (row + 1) + 0.25 * WIDE, 2.97),
            LIGHT["target"] if used else LIGHT["line"], shrinkA=0, shrinkB=0,
        )  # fmt: skip
    if not full:
        middle = STEP * accepted + WIDE / 2
        arrow(ax, (middle, 0.98), (middle, 0.02), LIGHT["resampled"], shrinkA=0, shrinkB=0)
        slot(ax, STEP * accepted, -0.8, WIDE, **outlined("resampled"))
        word(ax, middle, -0.4, marked(own, "resampled", 8), fontsize=11)
        note = {"fontsize": 11, "va": "center", "color": LIGHT["neutral"]}
        ax.text(STEP * accepted + WIDE + 0.25, -0.4, "drawn in place of ✗", **note)
    head = {"fontsize": 11, "ha": "center", "va": "bottom", "color": LIGHT["neutral"]}
    ax.text(WIDE / 2, 4.05, "text", **head)
    ax.text(STEP * (len(drafted) + 1) / 2 + WIDE / 2, 4.05, f"{len(drafted)} drafted tokens", **head)
    ax.text(-0.3, 1.4, "one call\nreturns", fontsize=11, ha="right", va="center", color=LIGHT["neutral"])
    low = 0.7 if full else -1.0
    return drawing(ax, (-2.0, bonus + WIDE + 0.1), (low, 4.8), title)
