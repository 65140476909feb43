"""Where prompt lookup finds its draft: the end of the text, and above it the earlier occurrence with what followed."""

from collections.abc import Sequence

from ...arguments import takes_iterators
from ...viz.palette import LIGHT
from ...viz.style import arrow, drawing, marked, token_box, token_label, word

SIZE = 13  # of the letters in the boxes, in points


@takes_iterators
def lookup_rows(ax, match: Sequence[str], followed: Sequence[str], *, title=None):
    """Draw prompt lookup as two rows: the earlier text, and below it the end of the text with the draft after it.

    Parameters
    ----------
    ax : matplotlib axes
        About 7 inches wide and 2.4 high.
    match : sequence of str
        The last tokens of the text, which also occur earlier.
    followed : sequence of str
        The tokens after the earlier occurrence. A copy of them is the draft, which the target accepts in this drawing.

    Returns
    -------
    matplotlib axes
    """
    match, followed = list(match), list(followed)
    if not match or not followed:
        raise ValueError(f"a lookup needs a match and the tokens that followed it, got {match} and {followed}")
    texts = [*map(token_label, match), *(marked(text, "accepted") for text in followed)]
    x, first_copied = 0.0, 0.0
    for number, (text, plain) in enumerate(zip(texts, [*match, *followed])):
        copied = number >= len(match)
        if number == len(match):
            first_copied = x = x + 0.6
        wide = 0.62 * len(text) + 0.8
        token_box(ax, x, 0, wide, "context")
        token_box(ax, x, 2.2, wide, "accepted" if copied else "context")
        word(ax, x + wide / 2, 0.4, token_label(plain), fontsize=SIZE)
        word(ax, x + wide / 2, 2.6, text, fontsize=SIZE)
        if copied:
            arrow(ax, (x + wide / 2, 0.85), (x + wide / 2, 2.15), LIGHT["draft"], shrinkA=0, shrinkB=0)
        x += wide + 0.2
    ends = first_copied - 0.8, x - 0.2
    for left, right, y, text, kind in (
        (0, ends[0], -0.5, "seen earlier", "target"),
        (first_copied, ends[1], -0.5, "what followed", "draft"),
        (0, ends[0], 3.5, "the end of the text", "target"),
        (first_copied, ends[1], 3.5, "the draft", "draft"),
    ):
        ax.text((left + right) / 2, y, text, ha="center", va="center", color=LIGHT[kind], fontsize=SIZE)
    ax.text(ends[0] / 2, 1.5, "the same tokens", ha="center", va="center", fontsize=SIZE - 1, color=LIGHT["neutral"])
    return drawing(ax, (-0.2, ends[1] + 0.2), (3.9, -0.9), title)
