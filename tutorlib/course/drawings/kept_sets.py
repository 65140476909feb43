"""Which tokens filters keep, as brackets below a sorted distribution and as shares of its probability."""

from collections.abc import Mapping, Sequence

import numpy as np

from ...arguments import takes_iterators
from ...viz.palette import LIGHT, color
from ...viz.style import LOOKS, bar_style, checked_distribution, looks_for, pale, rows_down, titled, token_label


@takes_iterators
def kept_sets(ax, tokens: Sequence[str], probs, kept: Mapping[str, Sequence[bool]], *, top=13, title=None):
    """Draw a distribution from the most likely token down, with brackets below it around the tokens each filter keeps.

    Parameters
    ----------
    tokens : sequence of str, length n
        The texts.
    probs : array of floats, shape (n,)
        They sum to 1.
    kept : mapping from names to arrays of bools, shape (n,)
        For each filter, which tokens it keeps. The name is written beside the bracket.
    top : int
        How many tokens get a bar of their own. The others share one last bar.
    """
    probs = checked_distribution(probs, tokens, "`probs`")
    order = np.argsort(-probs, kind="stable")
    shown, rest = order[:top], order[top:]
    names, heights = [token_label(tokens[i]) for i in shown], list(probs[shown])
    if len(rest):
        names.append(f"{len(rest):,} others")
        heights.append(probs[rest].sum())
    places = np.arange(len(names))
    bars = ax.bar(places, heights, width=0.8, color=pale(color("target")), edgecolor=color("target"))
    if len(rest):
        bars[-1].set(facecolor=pale(LIGHT["neutral"]), edgecolor=LIGHT["neutral"], hatch="...")
    for place, height in zip(places, heights, strict=True):
        ax.text(place, height, f"{height:.2f}", ha="center", va="bottom", fontsize=10)
    ax.set_xticks(places, names, rotation=90, parse_math=False, fontsize=11)
    ax.set(ylabel="probability", xlim=(-0.6, len(names) - 0.4), ylim=(0, 1.12 * max(heights)))
    ax.grid(axis="x", visible=False)
    for line, (look, (name, mask)) in enumerate(looks_for(kept, LOOKS, "filters")):
        mask = np.asarray(mask, dtype=bool)
        if mask.shape != probs.shape:
            raise ValueError(f"{name!r} must have one bool for each of the {len(probs)} tokens")
        stays = [*mask[shown], *([mask[rest].any()] if len(rest) else [])]
        _brackets(ax, stays, -0.56 - 0.17 * line, name, look["color"])
    return titled(ax, title)


def _brackets(ax, stays, y, name, hue):
    """Draw a bracket around each run of kept tokens, at height `y` of the axes, and the filter's name to the right."""
    edges = np.flatnonzero(np.diff([0, *map(int, stays), 0]))
    style = {"transform": ax.get_xaxis_transform(), "clip_on": False, "color": hue}
    for start, end in edges.reshape(-1, 2):
        xs = start - 0.38, start - 0.38, end - 0.62, end - 0.62
        ax.plot(xs, (y + 0.07, y, y, y + 0.07), linewidth=3, solid_joinstyle="miter", **style)
    ax.text(edges[-1] - 0.3, y + 0.01, name, va="center", fontsize=12, weight="bold", **style)


@takes_iterators
def kept_shares(ax, probs, kept: Mapping[str, Sequence[bool]], *, title=None):
    """Draw how much of the probability each filter keeps: a strip from 0 to 1, with the most likely tokens on the left.

    The number of tokens that a filter keeps is written beside its strip, rounded to hundreds if it is 100 or more.

    Parameters
    ----------
    probs : array of floats, shape (n,)
        They sum to 1.
    kept : mapping from names to arrays of bools, shape (n,)
        For each filter, which tokens it keeps. They must be neighbours in the sorted distribution.
    """
    probs = checked_distribution(probs, probs, "`probs`")
    order = np.argsort(-probs, kind="stable")
    ends = np.cumsum(probs[order])
    for row, (_, mask) in enumerate(kept.items()):
        ranks = np.flatnonzero(np.asarray(mask, dtype=bool)[order])
        start, end = ends[ranks[0]] - probs[order[ranks[0]]], ends[ranks[-1]]
        ax.barh(row, 1, height=0.62, color="white", edgecolor=LIGHT["neutral"], linewidth=1.0)
        ax.barh(row, end - start, left=start, height=0.62, **bar_style("accepted"))
        count = len(ranks) if len(ranks) < 100 else round(len(ranks), -2)
        ax.text(1.02, row, f"{count:,} token{'s' * (count > 1)}", va="center", fontsize=12)
    rows_down(ax, list(kept))
    ax.tick_params(axis="y", labelsize=12)
    ax.set(xlim=(0, 1), xlabel="cumulative probability, most likely token first")
    ax.grid(visible=False)
    return titled(ax, title)
