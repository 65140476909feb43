"""One round of the loop: a text goes in, a probability for each token comes out, and the chosen token is added."""

from collections.abc import Mapping, Sequence

from ...arguments import takes_iterators
from ...viz.palette import LIGHT, color
from ...viz.style import arrow, bar_style, drawing, outlined, pale, slot, token_label, word

ROW, BARS = 1.0, 8.1  # the heights of the text and of the first bar, counted downwards
SCALE = 32.0  # the width of a bar with probability 1, in letters


@takes_iterators
def one_round(ax, tokens: Sequence[str], best: Mapping[str, float], vocabulary: int, *, title=None):
    """Draw the loop that writes a text, with the probabilities from one call.

    Parameters
    ----------
    tokens : sequence of str
        The text that goes in: about six short tokens.
    best : mapping from str to float
        The most likely next tokens with their probabilities, in descending order. The first is the chosen token.
    vocabulary : int
        The size of the vocabulary. All tokens that are not in `best` share one last bar.
    """
    if not tokens or not best:
        raise ValueError(f"a round needs a text and next tokens, got {len(tokens)} and {len(best)} tokens")
    chosen = token_label(next(iter(best)))
    x = 0.0
    for text, kind in [*((token_label(token), "context") for token in tokens), (chosen, "target")]:
        wide = len(text) + 1.4
        slot(ax, x, ROW, wide, high=1.5, rounding=0.3, **outlined(kind))
        word(ax, x + wide / 2, ROW + 0.75, text, fontsize=12.5)
        start, x = x, x + wide + 0.5
    middle, side = start / 2, (start + x) / 2
    slot(ax, middle - 8, 4.2, 16, high=1.7, rounding=0.5, **outlined("target"))
    ax.text(middle, 5.05, "model", ha="center", va="center", fontsize=14, weight="bold", zorder=4)
    thick = {"linewidth": 2.4, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 18}
    arrow(ax, (middle, ROW + 1.6), (middle, 4.1), **thick)
    arrow(ax, (middle, 6.0), (middle, 7.0), **thick)

    bars = [(token_label(token), share, {"facecolor": pale(color("target"))}) for token, share in best.items()]
    bars[0][2]["facecolor"] = color("target")
    others = max(0.0, 1 - sum(best.values()))
    bars.append((f"{vocabulary - len(best):,} others", others, bar_style("neutral", hatch="...")))
    left = max(len(text) for text, *_ in bars) + 0.8
    for row, (text, share, look) in enumerate(bars):
        y = BARS + 1.35 * row
        ax.bar(left, 1.0, width=SCALE * share, bottom=y, align="edge", **{"edgecolor": color("target"), **look})
        ax.text(left - 0.6, y + 0.5, text, ha="right", va="center", fontsize=12.5, parse_math=False)
        ax.text(left + SCALE * share + 0.6, y + 0.5, f"{share:.2f}", va="center", fontsize=12.5)

    # The chosen token goes up the right side, to the end of the text.
    begin, mid = left + SCALE * bars[0][1] + 5.2, BARS + 0.5
    ax.plot([begin, side, side], [mid, mid, ROW + 2.6], color=LIGHT["target"], linewidth=2.4)
    arrow(ax, (side, ROW + 3), (side, ROW + 1.6), LIGHT["target"], **thick)
    note = {"fontsize": 12.5, "va": "center", "weight": "bold"}
    ax.text(0, 0.3, "1  A text goes in.", **note)
    ax.text(0, 7.35, f"2  {vocabulary:,} probabilities come out.", **note)
    ax.text(begin, mid + 1.1, "3  Choose one.", **note)
    ax.text(side + 0.9, 5.1, "4  Append it,\n    and repeat.", **note)
    return drawing(ax, (-0.5, x + 7), (BARS + 1.35 * len(bars) + 0.1, -0.4), title)
