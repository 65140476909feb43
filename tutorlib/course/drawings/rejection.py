"""A rejection: which part of the draft's probability is accepted, and from which part a replacement is drawn."""

from collections.abc import Sequence

import numpy as np

from ...arguments import takes_iterators
from ...viz.palette import MARKS
from ...viz.style import bar_style, checked_distribution, swatches, token_label

NAMES = {"accepted": "accepted", "rejected": "rejected", "resampled": "drawn instead"}


@takes_iterators
def rejection(axes, tokens: Sequence[str], target_probs, draft_probs):
    """Draw the draft's q and the target's p as bars in which their common part looks the same.

    On the left is q, divided into the accepted part, min(p, q), and the rejected part. On the right is p, divided into
    the same accepted part and the rest, max(p - q, 0), from which a replacement is drawn. The parts above the common
    one have the same total on both sides.

    Parameters
    ----------
    axes : two matplotlib axes
        Side by side.
    tokens : sequence of str, length n
        The texts.
    target_probs, draft_probs : arrays of floats, shape (n,)
        p and q; each sums to 1.

    Returns
    -------
    axes
    """
    ours = checked_distribution(target_probs, tokens, "the target")
    theirs = checked_distribution(draft_probs, tokens, "the draft")
    common, places = np.minimum(ours, theirs), np.arange(len(tokens))
    beta = common.sum()
    for ax, probs, kind in zip(axes, (theirs, ours), ("rejected", "resampled"), strict=True):
        ax.bar(places, common, width=0.66, **bar_style("accepted", linewidth=1.4))
        more = probs - common
        some = more > 0
        ax.bar(places[some], more[some], bottom=common[some], width=0.66, **bar_style(kind, linewidth=1.4))
        for place, (low, high) in enumerate(zip(common, probs, strict=True)):
            ax.text(place, high + 0.015, f"{high:.2g}", ha="center", va="bottom", fontsize=11)
            if 0 < low < high:
                ax.text(place + 0.37, low, f"{low:.2g}", ha="left", va="center", fontsize=10)
        ax.set_xticks(places, [token_label(token) for token in tokens], parse_math=False, fontsize=12)
        ax.set(xlim=(-0.6, len(tokens) - 0.35), ylim=(0, 1.2 * max(ours.max(), theirs.max())), yticks=[])
        ax.grid(visible=False)
        ax.spines["left"].set_visible(False)
    axes[0].set_title("draft: draw from q", fontsize=11.5)
    axes[1].set_title("target: p", fontsize=11.5)
    for ax, kinds in zip(axes, (("accepted", "rejected"), ("accepted", "resampled")), strict=True):
        sums = {"accepted": beta, "rejected": 1 - beta, "resampled": 1 - beta}
        labels = [f"{MARKS[kind]} {NAMES[kind]}: {sums[kind]:.2g}" for kind in kinds]
        looks = swatches(bar_style(kind) for kind in kinds)
        ax.legend(looks, labels, loc="upper left", bbox_to_anchor=(-0.02, -0.12), frameon=False, fontsize=11)
    return axes
