"""Distributions over tokens: a single one, one before and after a warp, two side by side, and those of outcomes.

Nothing here runs a model or applies a warp: the functions take probabilities and draw bars. In figures of a warp, the
bars of kept tokens are filled, those of removed tokens are pale and crossed out, and an outline shows the probability
before the warp.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ..arguments import takes_iterators
from .palette import HATCHES, LIGHT, MARKS, color
from .style import (
    arrow,
    bar_style,
    beside,
    checked_distribution,
    checked_probabilities,
    pale,
    rows_down,
    titled,
    token_label,
)  # fmt: skip

Outcomes = Mapping[tuple, float]

# Where logarithmic axes begin: bars below this value are not visible.
FAINTEST = 1e-6
CROSSED = {"color": pale(LIGHT["neutral"]), "edgecolor": LIGHT["neutral"], "hatch": "xxx"}


@takes_iterators
def next_token_bars(ax, tokens: Sequence[str], probs, *, top=12, title=None):
    """Draw a next-token distribution as horizontal bars with their probabilities, the most likely token on top.

    Parameters
    ----------
    tokens : sequence of str, length n
        The texts.
    probs : array of floats, shape (n,)
        Their probabilities. They need not sum to 1, so you can pass only some of the tokens.
    top : int
        How many tokens to draw at most. If the probabilities sum to 1, the others share one last bar.
    """
    probs = checked_probabilities(probs, tokens)
    order = np.argsort(-probs, kind="stable")
    shown = list(order[:top])
    names = [token_label(tokens[i]) for i in shown]
    values = [float(probs[i]) for i in shown]
    faces = [color("target")] * len(shown)
    rest = float(probs.sum() - sum(values))
    if len(order) > len(shown) and abs(probs.sum() - 1) < 1e-3:
        names.append(f"{len(order) - len(shown):,} others")
        values.append(max(rest, 0.0))
        faces.append(pale(LIGHT["neutral"]))
    bars = ax.barh(range(len(names)), values, color=faces, edgecolor=color("target"), linewidth=0.8, height=0.72)
    if len(names) > len(shown):
        bars[-1].set_edgecolor(LIGHT["neutral"])
        bars[-1].set_hatch("...")
    for place, value in enumerate(values):
        ax.text(value + 0.012, place, _share(value), va="center")
    rows_down(ax, names)
    ends = 0, min(1.18, max([*values, 0.05]) * 1.3 + 0.05)
    ax.set_xlim(*ends)
    ax.set_xticks([tick for tick in ax.get_xticks() if 0 <= tick <= 1])
    ax.set(xlabel="probability", ylabel="next token", xlim=ends)
    return titled(ax, title)


@takes_iterators
def warp_bars(ax, tokens: Sequence[str], before, after, *, top=12, log=False, legend=False, title=None):
    """Draw one distribution before and after a warp, the most likely token on top.

    For a kept token, the filled bar shows its probability after the warp, and the outline its probability before. A
    removed token has only a pale, crossed-out bar. A line under the title gives the number of kept tokens and the total
    probability that they had before the warp.

    Parameters
    ----------
    tokens : sequence of str, length n
        The texts.
    before, after : arrays of floats, shape (n,)
        Probabilities; each sums to 1. A token whose probability becomes 0 was removed.
    top : int
        How many tokens to draw: those that are most likely before the warp. The others share one last bar.
    log : bool
        Whether the axis is logarithmic, starting at `FAINTEST`, to show what a filter does to small probabilities.
    legend : bool
        Whether to add a legend that explains the three kinds of bars.
    """
    before = checked_distribution(before, tokens, "`before`")
    after = checked_distribution(after, tokens, "`after`")
    kept = after > 0
    if (kept & (before == 0)).any():
        token = tokens[int(np.argmax(kept & (before == 0)))]
        raise ValueError(f"{token!r} has probability 0 in `before` but not in `after`, which no warp can do")
    order = np.argsort(-before, kind="stable")
    shown, rest = order[:top], order[top:]
    names = [token_label(tokens[i]) for i in shown]
    old, new, keeps = list(before[shown]), list(after[shown]), list(kept[shown])
    if len(rest):
        names.append(f"{len(rest):,} others")
        old.append(before[rest].sum())
        new.append(after[rest].sum())
        keeps.append(bool(kept[rest].any()))
    places, stays = np.arange(len(names)), np.asarray(keeps)
    size = {"height": 0.74, "linewidth": 0.9}
    solid = {"color": color("target"), "edgecolor": color("target"), "label": "kept: after the warp"}
    outline = {"facecolor": "none", "edgecolor": LIGHT["text"], "label": "kept: before the warp"}
    ax.barh(places[stays], np.asarray(new)[stays], **size, **solid)
    if not stays.all():  # otherwise the legend would explain bars that are not there
        ax.barh(places[~stays], np.asarray(old)[~stays], **size, **CROSSED, label="removed: before the warp")
    ax.barh(places[stays], np.asarray(old)[stays], **size, **outline)
    if legend:
        ax.legend(loc="lower right")
    rows_down(ax, names)
    if log:
        ax.set_xscale("log")
        ax.minorticks_off()
    ax.set(xlabel="probability", ylabel="next token", xlim=(FAINTEST if log else 0, max(*old, *new) * 1.06))
    count, mass = int(kept.sum()), float(before[kept].sum())
    said = f"keeps {count:,} {'token' if count == 1 else 'tokens'} (probability before: {mass:.3f})"
    if count == int((before > 0).sum()):
        said = "keeps all tokens"
    ax.text(0, 1.02, said, transform=ax.transAxes, fontsize=9.5, color=LIGHT["neutral"], va="bottom")
    ax.set_title(title or "", pad=20)
    return ax


@takes_iterators
def warp_grid(axes, tokens: Sequence[str], before, afters: Mapping[str, Sequence[float]], *, top=12, log=False):
    """Draw one distribution under several warps side by side, all on the same scale, with `warp_bars` for each warp.

    Parameters
    ----------
    axes : sequence of matplotlib axes
        One for each warp, in reading order, in one or more rows. Axes that are not needed are switched off.
    afters : mapping from titles to arrays of floats, shape (n,)
        The probabilities after each warp.

    Returns
    -------
    axes, as an array of shape (warps,)
    """
    axes = np.ravel(np.asarray(axes, dtype=object))
    if len(axes) < len(afters):
        raise ValueError(f"there are {len(afters)} warps, but only {len(axes)} axes to draw them on")
    for ax, (title, after) in zip(axes, afters.items(), strict=False):
        warp_bars(ax, tokens, before, after, top=top, log=log, title=title)
    used = axes[: len(afters)]
    right = max(ax.get_xlim()[1] for ax in used)
    for ax in used:
        ax.set_xlim(right=right)
        if not ax.get_subplotspec().is_first_col():
            ax.set_ylabel("")
            ax.set_yticklabels([])
        if any(_is_below(other, ax) for other in used):
            ax.set_xlabel("")
    for ax in axes[len(afters) :]:
        ax.set_axis_off()
    return used


@takes_iterators
def contrast_bars(axes, tokens: Sequence[str], expert, amateur, *, alpha, top=8):
    """Draw the next-token probabilities of an expert and an amateur, and the score that contrastive decoding uses.

    On the left are the expert's probabilities (filled) and the amateur's (hatched). A dashed line marks the
    plausibility cut: tokens to which the expert gives less are excluded. On the right is the score log p_expert - log
    p_amateur. Excluded tokens are pale and crossed out there, and the winner has a tick.

    Parameters
    ----------
    axes : two matplotlib axes
        Side by side.
    tokens : sequence of str, length n
        The texts.
    expert, amateur : arrays of floats, shape (n,)
        Probabilities above 0; each array sums to 1.
    alpha : float
        The cut, as a share of the expert's largest probability.
    top : int
        How many tokens to draw: those with the largest probability from either model, sorted by the expert's. The
        winner is always among them.

    Returns
    -------
    axes
    """
    expert, amateur = _positive(expert, tokens, "expert"), _positive(amateur, tokens, "amateur")
    scores = np.log(expert) - np.log(amateur)
    bar = alpha * expert.max()
    kept = expert >= bar
    winner = int(np.where(kept, scores, -np.inf).argmax())
    larger = np.maximum(expert, amateur)
    larger[winner] = 2  # always drawn
    shown = sorted(np.argsort(-larger, kind="stable")[:top], key=lambda token: -expert[token])
    places, names = np.arange(len(shown)), [token_label(tokens[token]) for token in shown]
    left, right = axes

    solid = {"color": color("target"), "edgecolor": "white", "label": f"{MARKS['target']} expert"}
    left.barh(places - 0.2, expert[shown], height=0.38, **solid)
    dotted = bar_style("draft", label=f"{MARKS['draft']} amateur")
    left.barh(places + 0.2, amateur[shown], height=0.38, **dotted)
    left.axvline(bar, color=LIGHT["rejected"], linestyle="--", linewidth=1.4, label=f"the cut: {alpha:g} × the largest")
    left.set(xlabel="probability", ylabel="next token", xlim=(0, None))
    # In this corner, the legend covers no bars.
    left.legend(loc="lower right", bbox_to_anchor=(1.0, 0.02))

    for place, token in zip(places, shown, strict=True):
        look = {"color": color("accepted" if token == winner else "target"), "edgecolor": "white"}
        if not kept[token]:
            look = CROSSED
        right.barh(place, scores[token], height=0.7, **look)
    right.axvline(0, color=LIGHT["neutral"], linewidth=1.2)
    style = {"va": "center", "color": color("accepted"), "weight": "bold"}
    beside(right, MARKS["accepted"], (max(scores[winner], 0), shown.index(winner)), (5, 0), **style)
    right.set_xlabel("score: log(expert / amateur)")
    right.margins(x=0.12)
    rows_down(left, names)
    rows_down(right, [""] * len(names))
    return axes


@takes_iterators
def contrast_arrows(ax, tokens: Sequence[str], before, after, *, title=None):
    """Draw how the probabilities of some tokens change, and where they would be if each change were made once more.

    An arrow leads from each token's probability before (a bar) to its probability after. A dotted line of the same
    length continues from the arrowhead to a cross at after · (after / before), the score of context-aware decoding with
    weight 1.

    Parameters
    ----------
    tokens : sequence of str, length n
        The texts, from the top down.
    before, after : arrays of floats, shape (n,)
        Probabilities above 0.
    """
    before, after = checked_probabilities(before, tokens), checked_probabilities(after, tokens)
    if not (before.min() > 0 and after.min() > 0):
        raise ValueError("every probability must be above 0, because the axis is logarithmic")
    for row, (start, tip) in enumerate(zip(before, after, strict=True)):
        ends = tip, tip * tip / start
        ax.plot(start, row, "|", color=LIGHT["neutral"], markersize=14, markeredgewidth=2)
        arrow(ax, (start, row), (tip, row), LIGHT["target"], arrowstyle="-|>", linewidth=2, shrinkA=0, shrinkB=0)
        ax.plot(ends, [row, row], ":", color=LIGHT["accepted"], linewidth=2)
        ax.plot(ends[1], row, "X", color=LIGHT["accepted"], markersize=10)
    rows_down(ax, [token_label(text) for text in tokens])
    ax.set(xscale="log", xlabel="probability before (bar) and after (arrowhead); score (cross)")
    return titled(ax, title)


@takes_iterators
def outcome_bars(
    ax, made: Outcomes, due: Outcomes, *, name: Callable[[tuple], str] = str, kind="rejected", legend=True, title=None
):
    """Draw two distributions over the same outcomes: how often a decoder produces them, and how often it should.

    Each outcome has a hatched bar for how often the decoder produces it, and a short line across it for how often it
    should. The total variation is half the sum of the distances between the ends of the bars and the lines.

    Parameters
    ----------
    made, due : mappings from outcomes to probabilities
        A missing outcome has probability 0. Outcomes are drawn in ascending order.
    name : function
        Returns the label of an outcome.
    kind : str
        The kind of the palette that gives the bars their colour and hatch.
    """
    outcomes = sorted(made.keys() | due.keys())
    if not outcomes:
        raise ValueError("there are no outcomes to draw: pass two mappings from outcomes to probabilities")
    places = np.arange(len(outcomes))
    look = {"color": color(kind), "alpha": 0.55, "hatch": HATCHES[kind], "edgecolor": color(kind), "width": 0.7}
    bars = ax.bar(places, [made.get(outcome, 0.0) for outcome in outcomes], **look, label="the decoder's probability")
    ends, look = (places - 0.45, places + 0.45), {"color": color("target"), "linewidth": 2.5}
    lines = ax.hlines([due.get(outcome, 0.0) for outcome in outcomes], *ends, **look, label="the correct probability")
    ax.set_xticks(places, [name(outcome) for outcome in outcomes], rotation=90, family="monospace")
    ax.grid(axis="x", visible=False)
    ax.set(ylabel="probability", xlim=(-0.8, len(outcomes) - 0.2), ylim=(0, None))
    if legend:
        ax.legend(handles=[bars, lines], loc="upper right")
        ax.set_ylim(0, 1.4 * ax.dataLim.ymax)  # room for it above the bars
    return titled(ax, title)


@takes_iterators
def draw_strip(ax, tokens: Sequence[str], probs, draws: Sequence[float], *, title=None):
    """Draw the interval from 0 to 1 divided into one piece for each token, and random numbers that fall on it.

    Parameters
    ----------
    tokens : sequence of str, length n
        The texts, in the order of their ids, which is the order of the running sum.
    probs : array of floats, shape (n,)
        They sum to 1.
    draws : sequence of floats
        Random numbers, at least 0 and below 1. Each is marked where it falls.
    """
    probs = checked_distribution(probs, tokens, "`probs`")
    at = np.asarray(list(draws), dtype=float)
    if at.size and not (at.min() >= 0 and at.max() < 1):
        raise ValueError(f"the numbers drawn must lie in [0, 1), got {at.min():g} to {at.max():g}")
    ends = probs.cumsum()
    seen = np.flatnonzero(probs >= 0.001).tolist()  # narrower pieces cannot be seen
    for number, token in enumerate(seen):
        start, wide = ends[token] - probs[token], probs[token]
        fill = pale(color("target")) if number % 2 else "#ffffff"
        ax.barh(0, wide, left=start, height=1, color=fill, edgecolor=LIGHT["neutral"], linewidth=0.6)
        if wide >= 0.02:
            style = {"rotation": 90, "ha": "center", "va": "center", "fontsize": 9.5, "parse_math": False}
            ax.text(start + wide / 2, 0, token_label(tokens[token]), **style)
    for draw in at:
        ax.plot([draw, draw], [0.52, 0.74], color=LIGHT["rejected"], linewidth=1.6)
    marks = {"marker": "v", "linestyle": "none", "color": LIGHT["rejected"], "markersize": 7}
    ax.plot(at, np.full(len(at), 0.8), **marks)
    ax.set(xlim=(0, 1), ylim=(-0.55, 1.0), yticks=[])
    ax.set_xlabel("running sum of the probabilities, tokens in the order of their ids")
    ax.spines["left"].set_visible(False)
    ax.grid(visible=False)
    return titled(ax, title)


@takes_iterators
def level_histogram(ax, values: Sequence[float], levels: Sequence[float], *, bins=121, xlabel="value", title=None):
    """Draw a histogram of numbers, with a line at each level to which they can be rounded.

    Parameters
    ----------
    values : sequence of floats
        For example weights, divided by the largest weight of their block.
    levels : sequence of floats
    bins : int
        The number of bins, which all have the same width.
    """
    numbers = np.ravel(np.asarray(values, dtype=float))
    if not numbers.size:
        raise ValueError("there are no numbers to draw: give at least one value")
    counts, edges = np.histogram(numbers, bins)
    look = {"color": pale(color("target")), "edgecolor": color("target"), "linewidth": 0.4}
    ax.bar(edges[:-1], counts, np.diff(edges), align="edge", **look)
    ax.vlines(list(levels), 0, 1.06 * counts.max(), color=LIGHT["rejected"], linestyle="--", linewidth=1.3)
    ax.set(xlabel=xlabel, ylabel="count", ylim=(0, 1.1 * counts.max()))
    ax.grid(visible=False)
    return titled(ax, title)


def _share(value):
    """A probability with two decimals, or ``<0.01`` if it would be rounded to 0."""
    return "<0.01" if 0 < value < 0.005 else f"{value:.2f}"


def _is_below(other, ax):
    """Whether `other` is below `ax`, in the same column."""
    one, two = ax.get_subplotspec(), other.get_subplotspec()
    return one.colspan.start == two.colspan.start and two.rowspan.start > one.rowspan.start


def _positive(probs, tokens, name):
    """Return the probabilities as an array; raise ValueError unless they are a distribution and all above 0."""
    probs = checked_distribution(probs, tokens, f"the {name}")
    if (probs <= 0).any():
        raise ValueError(f"the {name} gives {tokens[int(probs.argmin())]!r} probability 0: its logarithm is infinite")
    return probs
