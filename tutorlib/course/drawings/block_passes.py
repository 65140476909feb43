"""Drafting one token after the other, and drafting a block: what each pass of a network reads and guesses."""

from collections.abc import Mapping, Sequence

from ...viz.palette import LIGHT
from ...viz.style import arrow, drawing, outlined, slot, token_box, word


def block_passes(ax, text: str, chain: Sequence[str], block: Sequence[Mapping[str, float]], drawn: Sequence[str]):
    """Draw two ways to draft: in several passes, each of which reads the guess before it, and in a single one.

    Parameters
    ----------
    text : str
        The last token of the text.
    chain : sequence of str
        The guesses of the passes, one after the other.
    block : sequence of mappings from str to float
        For each position of the block, the tokens that are guessed there, with their probabilities.
    drawn : sequence of str
        The draft that is made of them.

    Returns
    -------
    matplotlib axes

    Raises
    ------
    ValueError
        If the two drafts, or the positions of the block, differ in number.
    """
    if not len(chain) == len(block) == len(drawn):
        raise ValueError(
            f"{len(chain)} passes, {len(block)} positions and {len(drawn)} drawn tokens: give as many each"
        )
    wide, step, frame = 2.6, 3.6, {"facecolor": "white", "edgecolor": LIGHT["draft"], "linewidth": 1.6}
    label = {"va": "center", "fontsize": 12}
    ax.text(-step - 0.4, 2.3, f"{len(chain)} passes", ha="right", weight="bold", **label)
    for number, (read, guess) in enumerate(zip([text, *chain], chain, strict=False)):
        x = number * step
        token_box(ax, x, 0.5, wide, "context" if number == 0 else "draft", read)
        slot(ax, x, 1.9, wide, **frame)
        ax.text(x + wide / 2, 2.3, f"pass {number + 1}", ha="center", zorder=4, **label)
        token_box(ax, x, 3.3, wide, "draft", guess)
        arrow(ax, (x + wide / 2, 1.3), (x + wide / 2, 1.9))
        arrow(ax, (x + wide / 2, 2.7), (x + wide / 2, 3.3))
        if number + 1 < len(chain):  # the guess is read by the next pass
            arrow(ax, (x + wide, 3.6), (x + step, 1.15), LIGHT["draft"])
    low, right = -5.4, (len(block) - 1) * step + wide
    ax.text(-step - 0.4, low + 2.3, "1 pass", ha="right", weight="bold", **label)
    slot(ax, -step, low + 1.9, right + step, **frame)
    ax.text((right - step) / 2, low + 2.3, "one pass: all positions see each other", ha="center", zorder=4, **label)
    token_box(ax, -step, low + 0.5, wide, "context", text)
    arrow(ax, (-step + wide / 2, low + 1.3), (-step + wide / 2, low + 1.9))
    for number, (guesses, token) in enumerate(zip(block, drawn, strict=True)):
        x = number * step
        slot(ax, x, low + 0.5, wide, facecolor="white", edgecolor=LIGHT["neutral"], linestyle="--", linewidth=1.4)
        word(ax, x + wide / 2, low + 0.9, "mask", color=LIGHT["neutral"])
        arrow(ax, (x + wide / 2, low + 1.3), (x + wide / 2, low + 1.9))
        arrow(ax, (x + wide / 2, low + 2.7), (x + wide / 2, low + 3.3))
        slot(ax, x, low + 3.3, wide, high=1.5, **outlined("draft"))
        for place, (guess, prob) in enumerate(guesses.items()):
            word(
                ax,
                x + wide / 2,
                low + 4.4 - 0.65 * place,
                f"{guess} {prob:.0%}",
                weight="bold" if guess == token else "normal",
            )
    for y, draft in ((3.7, chain), (low + 4.05, drawn)):
        ax.text(right + 0.4, y, "draft: " + " ".join(draft), parse_math=False, **label)
    return drawing(ax, (-step - 3.4, right + 6.6), (low + 0.2, 4.4), None)
