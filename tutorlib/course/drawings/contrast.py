"""Contrast: two distributions, the difference of their logarithms, and the cut that excludes implausible tokens."""

from collections.abc import Sequence

import numpy as np

from ...arguments import takes_iterators
from ...viz.palette import LIGHT, MARKS
from ...viz.style import MONOSPACED, bar_style, checked_probabilities, drawing, token_label

WIDE = 2.6  # the width of a column of bars
CROSSED_OUT = {"facecolor": "white", "edgecolor": LIGHT["neutral"], "hatch": "xxx", "linewidth": 1.2}


@takes_iterators
def expert_minus_amateur(ax, tokens: Sequence[str], expert, amateur, *, alpha, title=None):
    """Draw the probabilities of some tokens from an expert and an amateur, one row per token, and their contrast.

    There are three columns of bars: the expert's probability with the cut as a dashed line, the amateur's probability,
    and the score log(p / q). The score of a token below the cut is crossed out, and the winner has a tick.

    Parameters
    ----------
    tokens : sequence of str, length n
        The texts.
    expert, amateur : sequences of floats, length n
        Their probabilities p and q, above 0. They need not sum to 1, so you can draw only some of the tokens.
    alpha : float
        The cut, as a share of the expert's largest probability.
    """
    ours, theirs = checked_probabilities(expert, tokens), checked_probabilities(amateur, tokens)
    if not (ours.min() > 0 and theirs.min() > 0):
        raise ValueError("both must give every token a probability above 0, because the score is a logarithm")
    scores, cut = np.log(ours / theirs), alpha * ours.max()
    kept = ours >= cut
    winner = int(np.where(kept, scores, -np.inf).argmax())
    largest = max(ours.max(), theirs.max())
    columns = {"expert p": 0.0, "amateur q": WIDE + 1.0, "log p − log q": 2 * WIDE + 2.0}
    for (name, x), kind in zip(columns.items(), ("target", "draft", "accepted"), strict=True):
        ax.text(x, -0.7, name, fontsize=12.5, weight="bold", color=LIGHT[kind], va="center")
        ax.plot([x, x], [-0.4, len(tokens) - 0.4], color=LIGHT["neutral"], linewidth=1.2)
    first, second, third = columns.values()
    for row, text in enumerate(tokens):
        hue, weight = LIGHT["text" if kept[row] else "neutral"], "bold" if row == winner else "normal"
        style = {"ha": "right", "va": "center", "fontsize": 12, "color": hue, "weight": weight, **MONOSPACED}
        ax.text(first - 0.25, row, token_label(text), **style)
        ax.barh(row, WIDE * ours[row] / largest, 0.55, left=first, **bar_style("target"))
        ax.barh(row, WIDE * theirs[row] / largest, 0.55, left=second, **bar_style("draft"))
        look = bar_style("accepted") if kept[row] else CROSSED_OUT
        ax.barh(row, WIDE * scores[row] / np.abs(scores).max(), 0.55, left=third, **look)
    style = {"fontsize": 16, "weight": "bold", "color": LIGHT["accepted"], "va": "center"}
    end = max(WIDE * scores[winner] / np.abs(scores).max(), 0.0)
    ax.text(third + end + 0.12, winner, MARKS["accepted"], **style)
    for x, sign in ((second - 0.55, "−"), (third - 0.55, "=")):
        ax.text(x, -0.7, sign, fontsize=16, ha="center", va="center")
    at = first + WIDE * cut / largest
    ax.plot([at, at], [-0.4, len(tokens) - 0.4], color=LIGHT["rejected"], linewidth=2.2, linestyle="--", zorder=5)
    style = {"fontsize": 12, "color": LIGHT["rejected"], "va": "center", "ha": "left"}
    ax.text(at - 0.1, len(tokens) - 0.1, "the cut: α × the expert's largest", **style)
    longest = max(len(token_label(text)) for text in tokens)
    return drawing(ax, (-0.5 - 0.2 * longest, third + WIDE + 0.5), (len(tokens) + 0.3, -1.1), title)
