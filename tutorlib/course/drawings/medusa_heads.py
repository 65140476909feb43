"""Medusa's heads: several heads read the same vector of the target, and each guesses a different later token."""

from collections.abc import Mapping, Sequence

from ...arguments import takes_iterators
from ...viz.palette import LIGHT
from ...viz.style import arrow, drawing, marked, outlined, slot, token_label, word

SIZE = 11


@takes_iterators
def medusa_heads(
    ax, text: Sequence[str], columns: Mapping[str, Sequence[tuple[str, float]]], came: Sequence[str], *, title=None
):
    """Draw, from the bottom up: the text, the target, its last vector, the heads, and the guesses of each head.

    Give the axes about 7.4 by 4.4 inches; there is room for four columns with three guesses each.

    Parameters
    ----------
    text : sequence of str
        The last tokens of the text.
    columns : mapping from names of heads to sequences of (token, probability)
        The guesses of each head, most likely first; the model's own head comes first.
    came : sequence of str
        The actual token at the position that each head guesses. A guess that matches it is marked ✓, the others ✗.
    """
    if len(came) != len(columns):
        raise ValueError(f"there are {len(columns)} columns of guesses, but {len(came)} tokens in `came`")
    wide, gap = 17.0, 1.4  # roughly in letters
    whole = len(columns) * (wide + gap) - gap
    middle = whole / 2
    for number, (name, guesses) in enumerate(columns.items()):
        x, kind = number * (wide + gap), "draft" if number else "target"
        arrow(ax, (middle, 3.05), (x + wide / 2, 4.3), LIGHT[kind], linewidth=1.8, shrinkA=0, shrinkB=0)
        _box(ax, x, 4.3, wide, kind, name)
        arrow(ax, (x + wide / 2, 5.1), (x + wide / 2, 5.75), LIGHT[kind], linewidth=1.8, shrinkA=0, shrinkB=0)
        for row, (token, prob) in enumerate(guesses):
            fate = "accepted" if token == came[number] else "rejected"
            _box(ax, x, 5.8 + len(guesses) - 1 - row, wide, fate, f"{marked(token, fate, 10)} {prob:.2f}")
        highest = 5.8 + max(map(len, columns.values()))
        style = {"ha": "center", "va": "bottom", "fontsize": SIZE, "color": LIGHT["neutral"]}
        ax.text(x + wide / 2, highest + 0.05, f"token $t + {number + 1}$", **style)
    _box(ax, middle - wide / 2, 2.25, wide, "target", "$h_t$", math=True)
    arrow(ax, (middle, 1.75), (middle, 2.25), LIGHT["target"], linewidth=1.8, shrinkA=0, shrinkB=0)
    _box(ax, middle - 1.2 * wide, 0.95, 2.4 * wide, "target", "target: all layers, one call")
    shown = "… " + " ".join(token_label(one, 12) for one in text)
    word(ax, middle, 0.4, shown, fontsize=SIZE)
    return drawing(ax, (-0.5, whole + 0.5), (0.0, highest + 0.8), title)


def _box(ax, x, y, wide, kind, text, math=False):
    slot(ax, x, y, wide, rounding=0.3, **outlined(kind))
    word(ax, x + wide / 2, y + 0.4, text, fontsize=SIZE, parse_math=math)
