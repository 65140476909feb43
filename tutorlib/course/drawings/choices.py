"""The tokens that greedy decoding chose: how sure the model was of each, and how it becomes surer in a loop."""

import math
from collections.abc import Sequence

import numpy as np

from ...arguments import takes_iterators
from ...viz.palette import LIGHT
from ...viz.style import bar_style, checked_probabilities, titled, token_label


@takes_iterators
def margin_bars(ax, tokens: Sequence[str], margins: Sequence[float], *, title=None):
    """Draw the margin of each choice: how much larger the chosen token's logit was than the second largest.

    Parameters
    ----------
    tokens : sequence of str
        The chosen tokens.
    margins : sequence of float
        One for each token, at least 0. A bar is hatched if the token was less than twice as likely as the second.
    """
    heights = np.asarray(margins, dtype=float)
    if heights.shape != (len(tokens),):
        raise ValueError(f"there must be one margin for each of the {len(tokens)} tokens, got shape {heights.shape}")
    at = np.arange(len(tokens))
    for few, kind, label in ((False, "target", "clear choice"), (True, "rejected", "close choice")):
        chosen = (heights < math.log(2)) == few
        ax.bar(at[chosen], heights[chosen], **bar_style(kind, hatch="xx" if few else ""), label=label)
    names = [token_label(token) for token in tokens]
    ax.set_xticks(at, names, rotation=90, fontsize=12.5, parse_math=False)
    ax.set(ylabel="margin (difference of logits)", xlim=(-0.7, len(tokens) - 0.3))
    ax.grid(axis="x", visible=False)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False, fontsize=12.5)
    return titled(ax, title)


@takes_iterators
def rising_loop(ax, probs: Sequence[float], begin: int, period: int, *, phrase="the loop", title=None):
    """Draw the probability of each chosen token of a text that ends in a loop.

    Parameters
    ----------
    probs : sequence of float
    begin, period : int
        The token at which the loop begins, and the number of tokens in it. A vertical line marks each repetition.
    phrase : str
        The name of the repeated phrase in the legend.
    """
    probs = checked_probabilities(probs)
    if not (0 <= begin < len(probs) and period > 0):
        raise ValueError(
            f"the loop must begin at a token from 0 to {len(probs) - 1} and have a length above 0; got begin={begin}, "
            f"period={period}"
        )
    at = np.arange(len(probs))
    for start in range(begin, len(probs), period):
        ax.axvline(start - 0.5, color=LIGHT["line"], linewidth=1, zorder=0)
    ax.plot(at, probs, color=LIGHT["line"], linewidth=1, zorder=1)
    ax.plot(at[:begin], probs[:begin], "o", color=LIGHT["target"], label="before the loop")
    ax.plot(at[begin:], probs[begin:], "x", color=LIGHT["rejected"], label=phrase)
    ax.set(xlabel="new token", ylabel="probability of the token", ylim=(0, 1.05))
    ax.grid(axis="x", visible=False)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False, fontsize=12.5)
    return titled(ax, title)
