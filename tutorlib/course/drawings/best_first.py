"""The queue of best-first search as a tree: the hypotheses taken, their order, and those still waiting at the end."""

from collections.abc import Callable, Sequence

from ...arguments import takes_iterators
from ...viz.palette import LIGHT
from ...viz.style import arrow, drawing, outlined, patch, slot, token_label, word
from ...viz.trees import layout

COLUMN, WIDE, ROW = 15.6, 12.6, 2.1  # distance between lengths, width of a box, distance between rows


@takes_iterators
def queue_tree(
    ax, taken: Sequence[tuple], waiting: Sequence[tuple], winner: Sequence[int], *, text: Callable, title=None
):
    """Draw the hypotheses of a best-first search as a tree that grows to the right, each with its score.

    Parameters
    ----------
    taken : sequence of (tokens, score)
        The hypotheses taken from the queue and scored, in this order; each box has its number. The first is the empty
        hypothesis.
    waiting : sequence of (tokens, score)
        The hypotheses in the queue just before the winner was taken, including the winner.
    winner : sequence of int
        The tokens of the result, which was taken last.
    text : function
        ``text(token) -> str``.
    """
    winner = tuple(winner)
    numbers = {tuple(tokens): number for number, (tokens, _) in enumerate(taken, start=1)}
    scores = {tuple(tokens): score for tokens, score in [*waiting, *taken]}
    if winner not in scores or winner[:-1] not in numbers:
        raise ValueError(f"the winner {winner} must be in `waiting`, and its beginning in `taken`")
    numbers[winner] = len(taken) + 1
    children: dict[tuple, list[tuple]] = {}
    for tokens in sorted(scores, key=lambda tokens: (len(tokens), -scores[tokens])):
        if tokens:
            children.setdefault(tokens[:-1], []).append(tokens)
    rows, deepest = layout(children, ()), max(map(len, scores))
    for tokens, row in rows.items():
        x, y = COLUMN * len(tokens), ROW * row
        number = numbers.get(tokens)
        kind = "accepted" if tokens == winner else "target" if number else "neutral"
        if tokens:
            won = tokens == winner[: len(tokens)]
            look = {"color": LIGHT["accepted"], "linewidth": 3.5} if won else {"color": LIGHT["line"], "linewidth": 2}
            ax.plot([x - COLUMN + WIDE, x], [ROW * rows[tokens[:-1]], y], zorder=1, **look)
        slot(ax, x, y - 0.75, WIDE, high=1.5, rounding=0.4, **outlined(kind))
        word(ax, x + WIDE / 2, y - 0.28, token_label(text(tokens[-1]), 10) if tokens else "prompt", fontsize=11.5)
        word(ax, x + WIDE / 2, y + 0.38, f"{scores[tokens]:.2f}".replace("-", "−"), fontsize=11.5)
        if number:
            circle = patch("white", 0.15, LIGHT[kind], boxstyle="circle,pad=0.15")
            style = {"ha": "center", "va": "center", "fontsize": 11, "weight": "bold"}
            ax.text(x + 0.4, y - 0.75, number, zorder=5, bbox=circle, **style)
        if tokens == winner:
            style = {"ha": "center", "va": "center", "fontsize": 12, "weight": "bold"}
            ax.text(x + WIDE / 2, y + 1.2, "the result", color=LIGHT["accepted"], **style)
    low = ROW * max(rows.values()) + 2.1
    arrow(ax, (0, low), (COLUMN * deepest + WIDE, low), LIGHT["neutral"], linewidth=1.4, shrinkA=0, shrinkB=0)
    ax.text(0, low + 0.6, "length of the hypothesis", fontsize=12, color=LIGHT["neutral"], va="center")
    return drawing(ax, (-0.5, COLUMN * deepest + WIDE + 0.8), (low + 1.1, -1.3), title)
