"""All outcomes of the random draws in a round, as a tree whose leaves are summed."""

from collections.abc import Callable, Sequence

import numpy as np

from ...arguments import takes_iterators
from ...viz.palette import LIGHT
from ...viz.style import checked_distribution, drawing, marked, outlined, patch, slot, word

X = {"draft": 0.0, "check": 3.2, "own": 6.4, "leaf": 9.3}
WIDE = 1.9


@takes_iterators
def branches(ax, tokens: Sequence[str], target_probs, draft_probs, redraw: Callable, *, title=None):
    """Draw the ways to get one token: it is drafted and accepted, or it is drawn after a rejection.

    Each leaf shows the product of the probabilities on its path. Below the tree, the sum of these products for each
    token is compared with the target's probability.

    Parameters
    ----------
    tokens : sequence of str, length n
        The texts.
    target_probs, draft_probs : arrays of floats, shape (n,)
        p and q; each sums to 1.
    redraw : function
        ``redraw(p, q)`` returns the distribution from which the token after a rejection is drawn, shape (n,).
    """
    ours = checked_distribution(target_probs, tokens, "the target")
    theirs = checked_distribution(draft_probs, tokens, "the draft")
    leaves: list[tuple[int, int | None, float, float]] = []  # drafted, replacement, share of its way, probability
    possible = np.flatnonzero(theirs).tolist()
    for x in possible:
        accept = min(1.0, ours[x] / theirs[x])
        leaves.append((x, None, accept, theirs[x] * accept))
        if accept < 1:
            again = checked_distribution(redraw(ours, theirs), tokens, "the redraw")
            leaves += [(x, y, again[y], theirs[x] * (1 - accept) * again[y]) for y in np.flatnonzero(again).tolist()]
    heights = {number: -1.15 * number for number in range(len(leaves))}
    middle = np.mean(list(heights.values())) + 0.4

    def line(start, end, label):
        ax.plot(*zip(start, end, strict=True), color=LIGHT["neutral"], linewidth=1.4, zorder=1)
        style = {"ha": "center", "va": "center", "fontsize": 10.5, "bbox": patch("white", 0.12)}
        ax.text(*np.mean([start, end], axis=0), label, **style)

    def box(x, y, text, kind):
        slot(ax, x, y, WIDE, **outlined(kind))
        word(ax, x + WIDE / 2, y + 0.4, text, fontsize=11)

    totals = np.zeros(len(tokens))
    for x in possible:
        own = [number for number, leaf in enumerate(leaves) if leaf[0] == x]
        high = np.mean([heights[number] for number in own])
        box(X["draft"], high, marked(tokens[x], "draft"), "draft")
        line((-1.3, middle), (X["draft"], high + 0.4), f"{theirs[x]:.2g}")
        redrawn = [number for number in own if leaves[number][1] is not None]
        for number in own:
            _, y, share, probability = leaves[number]
            at, token = heights[number], x if y is None else y
            totals[token] += probability
            if y is None:
                box(X["check"], at, marked("yes", "accepted"), "accepted")
                line((X["draft"] + WIDE, high + 0.4), (X["check"], at + 0.4), f"{share:.2g}")
                ax.plot([X["check"] + WIDE, X["leaf"]], [at + 0.4] * 2, color=LIGHT["line"], linewidth=1.2, zorder=0)
            else:
                box(X["own"], at, marked(tokens[y], "resampled"), "resampled")
                reject = np.mean([heights[other] for other in redrawn])
                line((X["check"] + WIDE, reject + 0.4), (X["own"], at + 0.4), f"{share:.2g}")
                ax.plot([X["own"] + WIDE, X["leaf"]], [at + 0.4] * 2, color=LIGHT["line"], linewidth=1.2, zorder=0)
            word(ax, X["leaf"] + 0.9, at + 0.4, f"{tokens[token]} {probability:.2f}", fontsize=11.5)
        if redrawn:
            reject = np.mean([heights[other] for other in redrawn])
            box(X["check"], reject, marked("no", "rejected"), "rejected")
            share = 1 - min(1.0, ours[x] / theirs[x])
            line((X["draft"] + WIDE, high + 0.4), (X["check"], reject + 0.4), f"{share:.2g}")
    low = min(heights.values())
    for row, (text, total, due) in enumerate(zip(tokens, totals, ours, strict=True)):
        right = abs(total - due) < 1e-9
        said = f"{text}: {total:.2f}" + (f" = p({text})" if right else f", but p({text}) = {due:.2g}")
        hue = LIGHT["accepted" if right else "rejected"]
        ax.text(-1.3 + 6.2 * row, low - 0.9, said, fontsize=11.5, weight="bold", va="center", color=hue)
    head = {"fontsize": 11, "ha": "center", "va": "bottom", "color": LIGHT["neutral"]}
    for name, label in (("draft", "drafted"), ("check", "accepted?"), ("own", "drawn instead")):
        ax.text(X[name] + WIDE / 2, 1.0, label, **head)
    ax.text(X["leaf"] + 0.9, 1.0, "written", **head)
    return drawing(ax, (-1.4, X["leaf"] + 2.1), (low - 1.3, 1.7), title)
