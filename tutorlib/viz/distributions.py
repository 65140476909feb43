"""Distributions over tokens: one, one before and after a warp, two beside each other, outcomes.

Nothing here runs a model or applies a warp: probabilities come in, bars come out. Where a warp is drawn, what it keeps
is filled, what it drops is pale and crossed out, and an outline shows what a token had before.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ..arguments import takes_iterators
from .palette import HATCHES, LIGHT, MARKS, color
from .style import (
    arrow,
    beside,
    checked_distribution,
    checked_probabilities,
    filled,
    pale,
    rows_down,
    titled,
    token_label,
)  # fmt: skip

Outcomes = Mapping[tuple, float]

# Where logarithmic axes begin: a bar of less than this is not seen.
FAINTEST = 1e-6
CROSSED = {"color": pale(LIGHT["neutral"]), "edgecolor": LIGHT["neutral"], "hatch": "xxx"}


@takes_iterators
def next_token_bars(ax, tokens: Sequence[str], probs, *, chosen=None, top=12, title=None):
    """Draw a next-token distribution as horizontal bars, the likeliest on top, each with its probability.

    Parameters
    ----------
    tokens : sequence of str, length n
        The texts.
    probs : array of floats, shape (n,)
        Their probabilities. They need not sum to 1: show as few as you like.
    chosen : str or int, optional
        The token that was taken, by text or by index: its bar is filled and marked, the others are pale.
    top : int
        How many to draw at most. What is left out is summed up in one last bar if the probabilities sum to 1.
    """
    probs = checked_probabilities(probs, tokens)
    if isinstance(chosen, str):
        if chosen not in tokens:
            raise ValueError(f"chosen={chosen!r} is not among the tokens")
        chosen = list(tokens).index(chosen)
    order = np.argsort(-probs, kind="stable")
    shown = list(order[:top])
    if chosen is not None and chosen not in shown:
        shown[-1] = chosen
    names = [token_label(tokens[i]) for i in shown]
    values = [float(probs[i]) for i in shown]
    faces = [color("target") if chosen is None or i == chosen else pale(color("target")) for i in shown]
    rest = float(probs.sum() - sum(values))
    if len(order) > len(shown) and abs(probs.sum() - 1) < 1e-3:
        names.append(f"{len(order) - len(shown)} others")
        values.append(max(rest, 0.0))
        faces.append(pale(LIGHT["neutral"]))
    bars = ax.barh(range(len(names)), values, color=faces, edgecolor=color("target"), linewidth=0.8, height=0.72)
    if len(names) > len(shown):
        bars[-1].set_edgecolor(LIGHT["neutral"])
        bars[-1].set_hatch("...")
    for place, (value, i) in enumerate(zip(values, [*shown, None], strict=False)):
        picked = chosen is not None and i == chosen
        weight = "bold" if picked else "normal"
        ax.text(value + 0.012, place, _share(value) + ("  ◂ chosen" if picked else ""), va="center", weight=weight)
    rows_down(ax, names)
    ends = 0, min(1.18, max([*values, 0.05]) * 1.3 + 0.05)
    ax.set_xlim(*ends)
    ax.set_xticks([tick for tick in ax.get_xticks() if 0 <= tick <= 1])
    ax.set(xlabel="probability", ylabel="next token", xlim=ends)
    return titled(ax, title)


@takes_iterators
def warp_bars(ax, tokens: Sequence[str], before, after, *, top=12, log=False, legend=False, title=None):
    """Draw one distribution before and after a warp, the likeliest token on top.

    A filled bar is what a kept token has now, the outline what it had before; a dropped token keeps only a pale,
    crossed bar. How many tokens are kept stands under the title, with the probability that they had before.

    Parameters
    ----------
    tokens : sequence of str, length n
        The texts.
    before, after : arrays of floats, shape (n,)
        Probabilities; each sums to 1. A token whose probability becomes 0 was dropped.
    top : int
        How many bars to draw, the likeliest before the warp. The others share one last bar.
    log : bool
        A logarithmic axis, from `FAINTEST` on: for what a filter does to small probabilities.
    legend : bool
        Whether to say in the picture what the three kinds of bars are.
    """
    before = checked_distribution(before, tokens, "`before`")
    after = checked_distribution(after, tokens, "`after`")
    kept = after > 0
    if (kept & (before == 0)).any():
        token = tokens[int(np.argmax(kept & (before == 0)))]
        raise ValueError(f"{token!r} had no probability and got some: that is not a warp of the same distribution")
    order = np.argsort(-before, kind="stable")
    shown, rest = order[:top], order[top:]
    names = [token_label(tokens[i]) for i in shown]
    old, new, stays = list(before[shown]), list(after[shown]), list(kept[shown])
    if len(rest):
        names.append(f"{len(rest)} others")
        old.append(before[rest].sum())
        new.append(after[rest].sum())
        stays.append(bool(kept[rest].any()))
    places, stays = np.arange(len(names)), np.asarray(stays)
    size = {"height": 0.74, "linewidth": 0.9}
    solid = {"color": color("target"), "edgecolor": color("target"), "label": "kept: now"}
    outline = {"facecolor": "none", "edgecolor": LIGHT["text"], "label": "kept: before"}
    ax.barh(places[stays], np.asarray(new)[stays], **size, **solid)
    ax.barh(places[~stays], np.asarray(old)[~stays], **size, **CROSSED, label="dropped")
    ax.barh(places[stays], np.asarray(old)[stays], **size, **outline)
    if legend:
        ax.legend(loc="lower right")
    rows_down(ax, names)
    if log:
        ax.set_xscale("log")
        ax.minorticks_off()
    ax.set(xlabel="probability", ylabel="next token", xlim=(FAINTEST if log else 0, max(*old, *new) * 1.06))
    count, mass = int(kept.sum()), float(before[kept].sum())
    said = f"keeps {count} {'token' if count == 1 else 'tokens'}: {mass:.3f}"
    if count == int((before > 0).sum()):
        said = "keeps all tokens"
    ax.text(0, 1.02, said, transform=ax.transAxes, fontsize=9.5, color=LIGHT["neutral"], va="bottom")
    ax.set_title(title or "", pad=20)
    return ax


@takes_iterators
def warp_grid(axes, tokens: Sequence[str], before, afters: Mapping[str, Sequence[float]], *, top=12, log=False):
    """Draw one distribution under several warps side by side, all on one scale: small multiples of `warp_bars`.

    Parameters
    ----------
    axes : sequence of matplotlib axes
        One for each warp, in reading order, of one row or of several. Those that are left over are switched off.
    afters : mapping from titles to arrays of floats, shape (n,)
        What each warp makes of `before`.

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
    """Draw what an expert and an amateur say of the next token, and the difference that contrastive decoding takes.

    On the left the expert's probabilities (filled) and the amateur's (hatched), with the plausibility cut as a dashed
    line: what the expert gives less is out. On the right log p_expert - log p_amateur; what is out is pale and crossed,
    the winner has a tick.

    Parameters
    ----------
    axes : two matplotlib axes
        Side by side.
    tokens : sequence of str, length n
        The texts.
    expert, amateur : arrays of floats, shape (n,)
        Probabilities; each sums to 1, none is 0.
    alpha : float
        The cut: a share of the expert's largest probability.
    top : int
        How many tokens to draw: those that one of the two thinks likeliest, sorted by the expert. The winner is always
        among them.

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
    dotted = filled("draft", label=f"{MARKS['draft']} amateur")
    left.barh(places + 0.2, amateur[shown], height=0.38, **dotted)
    left.axvline(bar, color=LIGHT["rejected"], linestyle="--", linewidth=1.4, label=f"the cut: {alpha:g} × the best")
    left.set(xlabel="probability", ylabel="next token", xlim=(0, None))
    # A frame beside the bars hides none of them.
    left.legend(loc="lower right", bbox_to_anchor=(1.0, 0.02))

    for place, token in zip(places, shown, strict=True):
        look = {"color": color("accepted" if token == winner else "target"), "edgecolor": "white"}
        if not kept[token]:
            look = CROSSED
        right.barh(place, scores[token], height=0.7, **look)
    right.axvline(0, color=LIGHT["neutral"], linewidth=1.2)
    style = {"va": "center", "color": color("accepted"), "weight": "bold"}
    beside(right, MARKS["accepted"], (max(scores[winner], 0), shown.index(winner)), (5, 0), **style)
    right.set_xlabel("score: log of expert / amateur")
    right.margins(x=0.12)
    rows_down(left, names)
    rows_down(right, [""] * len(names))
    return axes


@takes_iterators
def contrast_arrows(ax, tokens: Sequence[str], before, after, *, title=None):
    """Draw how some tokens' probabilities change, and where they end if each change is made once more.

    An arrow leads from each token's probability before (a bar) to that after. A dotted line as long as the arrow goes
    on from its head to a cross: after · (after / before), the score of context-aware decoding at weight 1.

    Parameters
    ----------
    tokens : sequence of str, length n
        The texts, from the top down.
    before, after : arrays of floats, shape (n,)
        Probabilities above 0.
    """
    before, after = checked_probabilities(before, tokens), checked_probabilities(after, tokens)
    if not (before.min() > 0 and after.min() > 0):
        raise ValueError("every probability must be above 0: the axis is logarithmic")
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
    """Draw two distributions over the same outcomes: what a decoder does, and what it should do.

    A bar for each outcome, hatched, is how often the decoder gives it; the short line across it is how often it should.
    Half of what lies between the bars' ends and the lines, summed up, is the total variation.

    Parameters
    ----------
    made, due : mappings from outcomes to probabilities
        An outcome that is missing has none. Outcomes are drawn in ascending order.
    name : function
        From an outcome to its label.
    kind : str
        Whose colour in the palette the bars have.
    """
    outcomes = sorted(made.keys() | due.keys())
    if not outcomes:
        raise ValueError("there are no outcomes to draw: give two distributions, mappings from outcomes to numbers")
    places = np.arange(len(outcomes))
    look = {"color": color(kind), "alpha": 0.55, "hatch": HATCHES[kind], "edgecolor": color(kind), "width": 0.7}
    bars = ax.bar(places, [made.get(outcome, 0.0) for outcome in outcomes], **look, label="what it does")
    ends, look = (places - 0.45, places + 0.45), {"color": color("target"), "linewidth": 2.5}
    lines = ax.hlines([due.get(outcome, 0.0) for outcome in outcomes], *ends, **look, label="what it should do")
    ax.set_xticks(places, [name(outcome) for outcome in outcomes], rotation=90, family="monospace")
    ax.grid(axis="x", visible=False)
    ax.set(ylabel="probability", xlim=(-0.8, len(outcomes) - 0.2), ylim=(0, None))
    if legend:
        ax.legend(handles=[bars, lines])
    return titled(ax, title)


@takes_iterators
def draw_strip(ax, tokens: Sequence[str], probs, draws: Sequence[float], *, title=None):
    """Draw the interval from 0 to 1 cut into one piece for each token, and the numbers that were thrown on it.

    Parameters
    ----------
    tokens : sequence of str, length n
        The texts, in the order of their ids: the order of the running sum.
    probs : array of floats, shape (n,)
        They sum to 1.
    draws : sequence of floats from 0 up to 1
        Each is marked where it falls.
    """
    probs = checked_distribution(probs, tokens, "`probs`")
    draws = np.asarray(list(draws), dtype=float)
    if draws.size and not (draws.min() >= 0 and draws.max() < 1):
        raise ValueError(f"the numbers drawn must lie in [0, 1), got {draws.min():g} to {draws.max():g}")
    ends = probs.cumsum()
    seen = np.flatnonzero(probs >= 0.001)  # narrower pieces cannot be seen
    for number, token in enumerate(seen):
        start, wide = ends[token] - probs[token], probs[token]
        fill = pale(color("target")) if number % 2 else "#ffffff"
        ax.barh(0, wide, left=start, height=1, color=fill, edgecolor=LIGHT["neutral"], linewidth=0.6)
        if wide >= 0.02:
            style = {"rotation": 90, "ha": "center", "va": "center", "fontsize": 9.5, "parse_math": False}
            ax.text(start + wide / 2, 0, token_label(tokens[token]), **style)
    for draw in draws:
        ax.plot([draw, draw], [0.52, 0.74], color=LIGHT["rejected"], linewidth=1.6)
    marks = {"marker": "v", "linestyle": "none", "color": LIGHT["rejected"], "markersize": 7}
    ax.plot(draws, np.full(len(draws), 0.8), **marks)
    ax.set(xlim=(0, 1), ylim=(-0.55, 1.0), yticks=[])
    ax.set_xlabel("running sum of the probabilities, tokens in the order of their ids")
    ax.spines["left"].set_visible(False)
    ax.grid(visible=False)
    return titled(ax, title)


@takes_iterators
def level_histogram(ax, values: Sequence[float], levels: Sequence[float], *, bins=121, xlabel="value", title=None):
    """Draw how often numbers occur, and above them a line at each level to which they can be rounded.

    Parameters
    ----------
    values : sequence of floats
        Such as weights, divided by the largest of their block.
    levels : sequence of floats
    bins : int
        Of equal width.
    """
    values = np.ravel(np.asarray(values, dtype=float))
    if not values.size:
        raise ValueError("there are no numbers to draw: give at least one value")
    counts, edges = np.histogram(values, bins)
    look = {"color": pale(color("target")), "edgecolor": color("target"), "linewidth": 0.4}
    ax.bar(edges[:-1], counts, np.diff(edges), align="edge", **look)
    ax.vlines(list(levels), 0, 1.06 * counts.max(), color=LIGHT["rejected"], linestyle="--", linewidth=1.3)
    ax.set(xlabel=xlabel, ylabel="how many", ylim=(0, 1.1 * counts.max()))
    ax.grid(visible=False)
    return titled(ax, title)


def _share(value):
    """A probability in two decimals, or that it is smaller."""
    return "<0.01" if 0 < value < 0.005 else f"{value:.2f}"


def _is_below(other, ax):
    """Whether `other` stands in the same column as `ax`, further down."""
    one, two = ax.get_subplotspec(), other.get_subplotspec()
    return one.colspan.start == two.colspan.start and two.rowspan.start > one.rowspan.start


def _positive(probs, tokens, name):
    """Probabilities of which the logarithm can be taken: one for each token, summing to 1, none of them 0."""
    probs = checked_distribution(probs, tokens, f"the {name}")
    if (probs <= 0).any():
        raise ValueError(f"the {name} gives {tokens[int(probs.argmin())]!r} no probability: its logarithm is infinite")
    return probs
