"""EAGLE's loop: a feature and a token go into one layer, and its output goes in again."""

from ...viz.palette import LIGHT
from ...viz.style import arrow, drawing, outlined, slot, token_label, word

SIZE = 12


def eagle_loop(ax, token: str, guess: str, *, title=None):
    """Draw one round of EAGLE's draft, from the target's feature to a guessed token and back to the start.

    Give the axes about 7.2 by 3.8 inches.

    Parameters
    ----------
    token : str
        The token that was chosen after the target's last feature.
    guess : str
        The token that the network guesses after it.
    """
    texts, features = 3.4, 0.4  # the heights of the two rows
    start, pair, layer, out = 0.0, 3.6, 7.2, 10.7  # where the four columns begin
    _box(ax, start, features, 2.4, texts + 1.0 - features, "target", "target:\nall layers")
    _box(ax, pair, features, 2.6, 1.0, "target", "$f_t$", math=True)
    _box(ax, pair, texts, 2.6, 1.0, "context", token_label(token, 10))
    _box(ax, layer, features, 2.4, texts + 1.0 - features, "draft", "EAGLE:\none layer")
    _box(ax, out, features, 2.6, 1.0, "draft", r"$\hat f_{t+1}$", math=True)
    _box(ax, out - 0.2, 2.0, 3.0, 0.8, "target", "target's head")
    _box(ax, out, texts, 2.6, 1.0, "draft", token_label(guess, 10))
    for y in (features, texts):
        _straight(ax, (start + 2.4, y + 0.5), (pair, y + 0.5))
        _straight(ax, (pair + 2.6, y + 0.5), (layer, y + 0.5))
    _straight(ax, (layer + 2.4, features + 0.5), (out, features + 0.5), LIGHT["draft"])
    _straight(ax, (out + 1.3, features + 1.0), (out + 1.3, 2.0), LIGHT["draft"])
    _straight(ax, (out + 1.3, 2.8), (out + 1.3, texts), LIGHT["draft"])
    for row, beyond in ((texts + 1.0, texts + 1.9), (features, features - 0.9)):
        corners = [out + 1.3, out + 1.3, pair + 1.3], [row, beyond, beyond]
        ax.plot(*corners, color=LIGHT["draft"], linewidth=1.8, zorder=1)
        _straight(ax, (pair + 1.3, beyond), (pair + 1.3, row), LIGHT["draft"])
    middle = (pair + out) / 2 + 1.3
    said = {"ha": "center", "fontsize": SIZE, "color": LIGHT["draft"]}
    ax.text(middle, texts + 2.05, "the guessed token goes in next", va="bottom", **said)
    ax.text(middle, features - 1.05, "the guessed feature goes in next", va="top", **said)
    return drawing(ax, (-0.2, out + 3.0), (features - 1.9, texts + 2.9), title)


def _box(ax, x, y, wide, high, kind, text, math=False):
    slot(ax, x, y, wide, high=high, **outlined(kind))
    style = {"fontsize": SIZE + 2 * math, "linespacing": 1.2, "parse_math": math}
    word(ax, x + wide / 2, y + high / 2, text, **style)


def _straight(ax, start, end, hue=LIGHT["text"]):
    arrow(ax, start, end, hue, linewidth=1.8, shrinkA=0, shrinkB=0)
