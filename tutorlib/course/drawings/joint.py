"""A block's guesses before and after a joint: what the token drawn at one position changes at the next."""

from collections.abc import Mapping, Sequence

from ...viz.palette import LIGHT
from ...viz.style import arrow, drawing, outlined, slot, token_box, word


def jointed_block(ax, text: str, alone: Sequence[Mapping[str, float]], jointed: Sequence[Mapping[str, float]]):
    """Draw a block's guesses twice: as one pass gives them, and corrected by the token before each of them.

    At each position of the lower row, the most likely token is the one that is drawn, and an arrow leads from it to the
    next position.

    Parameters
    ----------
    text : str
        The last token of the text.
    alone, jointed : sequences of mappings from str to float
        For each position, the tokens that are guessed there, with their probabilities.

    Returns
    -------
    matplotlib axes

    Raises
    ------
    ValueError
        If the two rows have different numbers of positions.
    """
    if len(alone) != len(jointed):
        raise ValueError(f"{len(alone)} positions alone and {len(jointed)} with a joint: give as many each")
    wide, step, label = 2.9, 4.3, {"va": "center", "fontsize": 12}
    for y, name, row in ((3.4, "one pass", alone), (0.0, "with a joint", jointed)):
        ax.text(-step - 0.4, y + 0.75, name, ha="right", weight="bold", **label)
        token_box(ax, -step, y + 0.35, wide, "context", text)
        before = (-step + wide, y + 0.75)
        for number, guesses in enumerate(row):
            x, drawn = number * step, max(guesses, key=guesses.__getitem__)
            slot(ax, x, y, wide, high=1.5, **outlined("draft"))
            for place, (guess, prob) in enumerate(guesses.items()):
                weight = "bold" if row is jointed and guess == drawn else "normal"
                word(ax, x + wide / 2, y + 1.1 - 0.7 * place, f"{guess} {prob:.0%}", weight=weight)
            if row is jointed:
                arrow(ax, before, (x, y + 0.75), LIGHT["draft"])
                before = (x + wide, y + 1.1 - 0.7 * list(guesses).index(drawn))
    return drawing(ax, (-step - 4.4, (len(alone) - 1) * step + wide + 0.3), (-0.3, 5.2), None)
