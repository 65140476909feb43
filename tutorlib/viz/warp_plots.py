"""Figures about warps: one distribution before and after, how a number becomes a token, what is kept, what it costs.

Functions that take an axes, draw on it, and return it, as in `plots.py`. Nothing here runs a model or applies a warp:
probabilities come in, bars come out. What a warp keeps is filled, what it drops is pale and crossed out, and an outline
shows what a token had before.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from ..arguments import takes_iterators
from .palette import LIGHT, color
from .plots import _pale, _probabilities, _titled, token_label

# Where logarithmic axes begin: a bar of less than this is not seen.
FAINTEST = 1e-6

# One look for each curve of a figure: colour, mark and line differ, so that any one of them is enough.
LOOKS = (
    {"color": LIGHT["target"], "marker": "o", "linestyle": "-"},
    {"color": LIGHT["draft"], "marker": "s", "linestyle": "--"},
    {"color": LIGHT["accepted"], "marker": "^", "linestyle": "-."},
    {"color": LIGHT["rejected"], "marker": "D", "linestyle": ":"},
    {"color": LIGHT["resampled"], "marker": "v", "linestyle": (0, (5, 1, 1, 1, 1, 1))},
)


@takes_iterators
def warp_bars(ax, tokens: Sequence[str], before, after, *, top=12, log=False, legend=False, title=None):
    """Draw one distribution before and after a warp, the likeliest token on top.

    A filled bar is what a kept token has now, the outline what it had before; a dropped token keeps only a pale,
    crossed bar. How many tokens are kept stands under the title, with the probability that they had before.

    Parameters
    ----------
    ax : matplotlib axes
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

    Returns
    -------
    ax

    Raises
    ------
    ValueError
        If the lengths differ, a row does not sum to 1, or the warp gave probability to a token that had none.
    """
    before, after = _distribution(before, tokens, "before"), _distribution(after, tokens, "after")
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
    crossed = {"color": _pale(LIGHT["neutral"]), "edgecolor": LIGHT["neutral"], "hatch": "xxx", "label": "dropped"}
    outline = {"facecolor": "none", "edgecolor": LIGHT["text"], "label": "kept: before"}
    ax.barh(places[stays], np.asarray(new)[stays], **size, **solid)
    ax.barh(places[~stays], np.asarray(old)[~stays], **size, **crossed)
    ax.barh(places[stays], np.asarray(old)[stays], **size, **outline)
    if legend:
        ax.legend(loc="lower right")
    ax.set_yticks(places, names, parse_math=False)
    ax.set_ylim(len(names) - 0.4, -0.6)
    if log:
        ax.set_xscale("log")
        ax.minorticks_off()
    ax.set_xlim(FAINTEST if log else 0, max(*old, *new) * 1.06)
    ax.grid(axis="y", visible=False)
    ax.set(xlabel="probability", ylabel="next token")
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
        One for each warp, in reading order, of one row or of several.
    afters : mapping from titles to arrays of floats, shape (n,)
        What each warp makes of `before`.
    top, log
        As for `warp_bars`.

    Returns
    -------
    axes, as an array of shape (warps,)

    Raises
    ------
    ValueError
        If there are more warps than axes; and what `warp_bars` raises. Axes that are left over are switched off.
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
        if not any(other is not ax and _is_below(other, ax) for other in used):
            continue
        ax.set_xlabel("")
    for ax in axes[len(afters) :]:
        ax.set_axis_off()
    return used


@takes_iterators
def draw_strip(ax, tokens: Sequence[str], probs, draws: Sequence[float] = (), *, named=0.02, title=None):
    """Draw the interval from 0 to 1 cut into one piece for each token, and the numbers that were thrown on it.

    Parameters
    ----------
    tokens : sequence of str, length n
        The texts, in the order of their ids: the order of the running sum.
    probs : array of floats, shape (n,)
        They sum to 1.
    draws : sequence of floats from 0 up to 1
        Each is marked where it falls.
    named : float
        Pieces at least so wide are written into.
    """
    probs = _distribution(probs, tokens, "probs")
    draws = np.asarray(list(draws), dtype=float)
    if draws.size and not (draws.min() >= 0 and draws.max() < 1):
        raise ValueError(f"the numbers drawn must lie in [0, 1), got {draws.min():g} to {draws.max():g}")
    ends = probs.cumsum()
    seen = np.flatnonzero(probs >= 0.001)  # narrower pieces cannot be seen
    for number, token in enumerate(seen):
        start, wide = ends[token] - probs[token], probs[token]
        fill = _pale(color("target")) if number % 2 else "#ffffff"
        ax.barh(0, wide, left=start, height=1, color=fill, edgecolor=LIGHT["neutral"], linewidth=0.6)
        if wide >= named:
            style = {"rotation": 90, "ha": "center", "va": "center", "fontsize": 9.5, "parse_math": False}
            ax.text(start + wide / 2, 0, token_label(tokens[token]), **style)
    for draw in draws:
        ax.plot([draw, draw], [0.52, 0.74], color=LIGHT["rejected"], linewidth=1.6)
    if draws.size:
        marks = {"marker": "v", "linestyle": "none", "color": LIGHT["rejected"], "markersize": 7}
        ax.plot(draws, np.full(len(draws), 0.8), **marks)
    ax.set(xlim=(0, 1), ylim=(-0.55, 1.0 if draws.size else 0.55), yticks=[])
    ax.set_xlabel("running sum of the probabilities, tokens in the order of their ids")
    ax.spines["left"].set_visible(False)
    ax.grid(visible=False)
    return _titled(ax, title)


@takes_iterators
def kept_counts(ax, entropy, counts, *, vocab_size=None, look=0, title=None):
    """Draw how many tokens a filter keeps against how open the choice is: one mark for each position of a text.

    Parameters
    ----------
    entropy : array of floats, shape (n,)
        The entropy of each distribution, in nats.
    counts : array of ints, shape (n,)
        Tokens kept, at least 1.
    vocab_size : int, optional
        Draws a line where everything is kept.
    look : int
        Which entry of `LOOKS` to use.
    """
    entropy, counts = np.asarray(entropy, dtype=float), np.asarray(counts)
    if entropy.shape != counts.shape:
        raise ValueError(f"there must be one count for each entropy, got {entropy.shape} and {counts.shape}")
    if counts.size and counts.min() < 1:
        raise ValueError(f"a filter keeps at least one token, got a count of {counts.min()}")
    most = entropy.max() if entropy.size else 1.0
    grid = np.linspace(0, max(most, 0.1), 100)
    ax.plot(grid, np.exp(grid), color=LIGHT["neutral"], linestyle=":", linewidth=1.4, label="exp(entropy)")
    style = {key: value for key, value in LOOKS[look % len(LOOKS)].items() if key != "linestyle"}
    ax.plot(entropy, counts, linestyle="none", markersize=4, alpha=0.45, label="kept", **style)
    if vocab_size is not None:
        ax.axhline(vocab_size, color=LIGHT["line"], linewidth=1.4)
    ax.set_yscale("log")
    ticks = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
    top = max([*counts.tolist(), np.exp(most), vocab_size or 1]) * 1.25
    ax.set_yticks([tick for tick in ticks if tick <= top], [str(tick) for tick in ticks if tick <= top])
    ax.minorticks_off()
    ax.set(ylim=(0.8, top), xlabel="entropy (nats)", ylabel="tokens kept")
    return _titled(ax, title)


@takes_iterators
def trade_off(ax, curves: Mapping[str, Mapping], points: Mapping[str, Mapping], *, x, y):
    """Draw two figures of a sweep against each other: one curve for each filter, with the intervals of its rows.

    Parameters
    ----------
    curves : mapping from names to mappings from settings to rows
        One curve each, its settings in order; the last one is written beside its mark. A row is a dict as `sweeps`
        makes it: it holds the values named `x` and `y`; where it holds ``[low, high]`` under ``x_interval`` or
        ``y_interval``, those are drawn as thin lines.
    points : mapping from names to rows
        Single marks, such as plain sampling and greedy; at most three.
    x, y : str
        Which values of the rows to draw. The axes are the caller's to label.

    Raises
    ------
    ValueError
        If there are more curves or points than looks for them.
    """
    marks = ("*", "X", "P")
    if len(curves) > len(LOOKS) or len(points) > len(marks):
        raise ValueError(
            f"there are looks for {len(LOOKS)} curves and {len(marks)} points, got {len(curves)} and {len(points)}"
        )
    for look, (name, rows) in zip(LOOKS, curves.items(), strict=False):
        xs, ys = ([row[key] for row in rows.values()] for key in (x, y))
        bars = {"xerr": _errors(rows.values(), x), "yerr": _errors(rows.values(), y)}
        ax.errorbar(xs, ys, **bars, color=look["color"], linestyle="none", elinewidth=0.8, alpha=0.4)
        ax.plot(xs, ys, **look, markersize=5.5, linewidth=1.5, label=name)
        near = {"xytext": (5, 6), "textcoords": "offset points", "fontsize": 9, "color": look["color"]}
        ax.annotate(list(rows)[-1], (xs[-1], ys[-1]), **near)
    for mark, (name, row) in zip(marks, points.items(), strict=False):
        bars = {"xerr": _errors([row], x), "yerr": _errors([row], y)}
        ax.errorbar([row[x]], [row[y]], **bars, color=LIGHT["text"], linestyle="none", elinewidth=0.8, alpha=0.4)
        star = {"marker": mark, "markersize": 13, "color": LIGHT["text"], "linestyle": "none", "zorder": 5}
        ax.plot([row[x]], [row[y]], **star, markeredgecolor="white", label=name)
    ax.legend()
    return ax


# -------------------------------------------------------------------------------------------------------- small parts


def _distribution(probs, tokens, name):
    """The probabilities as an array that was looked at: one for each token, summing to 1."""
    probs = _probabilities(probs, tokens)
    if abs(probs.sum() - 1) > 1e-4:
        raise ValueError(f"the probabilities in `{name}` must sum to 1, got {probs.sum():g}")
    return probs


def _is_below(other, ax):
    """Whether `other` stands in the same column as `ax`, further down."""
    one, two = ax.get_subplotspec(), other.get_subplotspec()
    return one.colspan.start == two.colspan.start and two.rowspan.start > one.rowspan.start


def _errors(rows, key):
    """How far the interval of each row reaches below and above its value, shape (2, rows); None without intervals."""
    if not all(f"{key}_interval" in row for row in rows):
        return None
    ends = [(row[key], *row[f"{key}_interval"]) for row in rows]
    return np.array([[value - low for value, low, _ in ends], [high - value for value, _, high in ends]])
