"""Bars: one chart for groups and stacks, and the figures built on it."""

import math
from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import numpy as np

from ..arguments import takes_iterators
from .palette import HATCHES, LIGHT, color
from .style import (
    ABOVE,
    BELOW,
    BESIDE,
    LAST_REJECTED,
    bar_style,
    beside,
    error_sizes,
    looks_for,
    number_patch,
    pale,
    titled,
)  # fmt: skip


@takes_iterators
def bar_chart(
    ax,
    rows: Mapping[str, Sequence[float]],
    names: Sequence[str] = (),
    *,
    intervals: Mapping[str, Sequence[tuple[float, float]]] | None = None,
    looks: Sequence[Mapping] | None = None,
    stacked=False,
    sideways=False,
    thick=0.84,
    legend: Mapping | None = BESIDE,
    title=None,
    **labels,
):
    """Draw values as bars, in groups with one bar for each row, or stacked.

    Parameters
    ----------
    rows : mapping from names to sequences of floats
        One value for each group. Nothing is drawn for NaN.
    names : sequence of str, optional
        The names of the groups; without them, the groups are numbered from 1.
    intervals : mapping from names to sequences of (low, high), optional
        The interval of each value, drawn as a thin line at the end of its bar.
    looks : sequence of mappings, optional
        The look of each row's bars; by default the colours and hatches of the kinds of tokens, as in `LAST_REJECTED`.
    stacked : bool
        Whether to stack the bars of a group instead of drawing them side by side.
    sideways : bool
        Whether the bars grow to the right, with the first group on top.
    thick : float
        The width of a group; 1 leaves no gap between groups.
    legend : mapping or None
        Where the legend is placed, as arguments of `Axes.legend`; None for no legend.
    **labels
        `xlabel`, `ylabel`, `xlim`, `ylim`, passed to `Axes.set`.
    """
    looks = [bar_style(kind) for kind in LAST_REJECTED] if looks is None else looks
    most = max(map(len, rows.values()), default=0)
    draw, base, size = (ax.barh, "left", "height") if sideways else (ax.bar, "bottom", "width")
    each = thick if stacked else thick / max(len(rows), 1)
    ends = np.zeros(most)
    for number, (look, (name, values)) in enumerate(looks_for(rows, looks, "rows of bars")):
        values = np.asarray(values, dtype=float)
        shift = 0 if stacked else (number - (len(rows) - 1) / 2) * each
        places = np.arange(len(values)) + (0 if names else 1) + shift
        room = {size: each if stacked else 0.9 * each, base: ends[: len(values)] if stacked else 0}
        draw(places, values, label=name, **room, **look)
        ends[: len(values)] += values
        if intervals and intervals.get(name):
            end = {("xerr" if sideways else "yerr"): error_sizes(values, intervals[name])}
            where = (values, places) if sideways else (places, values)
            ax.errorbar(*where, **end, fmt="none", ecolor=LIGHT["text"], elinewidth=1.4, capsize=2)
    set_ticks = ax.set_yticks if sideways else ax.set_xticks
    at = range(len(names)) if names else range(1, most + 1)
    set_ticks(at, list(names) or list(map(str, at)), parse_math=False)
    if sideways:
        ax.set_ylim(most - 0.5, -0.5)
    ax.grid(axis="y" if sideways else "x", visible=False)
    ax.set(**labels)
    if legend is not None:
        ax.legend(**legend)
    return titled(ax, title)


@takes_iterators
def kind_bars(ax, rows: Mapping[str, Mapping[str, Mapping]], *, title=None):
    """Draw the acceptance rate of each kind of token, with one bar for each way to decode.

    Parameters
    ----------
    rows : mapping from ways to decode to mappings from kinds of tokens to results
        At most two ways; the kinds of the first are drawn, from the top down. A result is a mapping with the value
        ``acceptance``. If it has ``places``, the number of positions is written after the kind; if it has an
        ``acceptance_interval``, this is drawn as a thin line.
    """
    looks = [{"color": color("accepted"), "edgecolor": "white", "linewidth": 0.9}, bar_style("accepted", linewidth=0.9)]
    first = next(iter(rows.values()), {})
    names = [f"{kind} ({figures['places']})" if "places" in figures else kind for kind, figures in first.items()]
    values, intervals = (
        {way: [figures[kind][key] for kind in first if key in figures.get(kind, ())] for way, figures in rows.items()}
        for key in ("acceptance", "acceptance_interval")
    )
    look = {"looks": looks, "sideways": True, "thick": 0.8, "legend": {**ABOVE, "ncols": 2}, "xlim": (0, 1.02)}
    return bar_chart(ax, values, names, intervals=intervals, **look, title=title)


@takes_iterators
def speed_bars(ax, rows: Mapping[str, Sequence], *, title=None):
    """Draw how many times as fast as the plain loop each method is, the fastest on top, and the predicted speeds.

    Parameters
    ----------
    rows : mapping from names to sequences of `tutorlib.lab.bench.Result`
        The results of one or more machines. Each machine has one bar for each method. Three attributes of a result are
        used: `name`; `over_plain`, the speed (median, low, high), drawn as a bar with a thin line from low to high; and
        `predicted`, drawn as a diamond if it is not None. The methods are in the order of the first machine. Methods
        that only the other machines have come below.
    """
    found = {group: {result.name: result for result in results} for group, results in rows.items()}
    names = list(
        dict.fromkeys(
            name
            for results in found.values()
            for name in sorted(results, key=lambda name: -results[name].over_plain.median)
        )
    )
    none = SimpleNamespace(over_plain=(math.nan,) * 3, predicted=None)
    rows = {group: [results.get(name, none) for name in names] for group, results in found.items()}
    values = {group: [result.over_plain[0] for result in results] for group, results in rows.items()}
    ends = {group: [result.over_plain[1:] for result in results] for group, results in rows.items()}
    look = {"looks": [bar_style(kind) for kind in ("accepted", "target", "resampled", "bonus")], "sideways": True}
    bar_chart(ax, values, names, intervals=ends, **look, legend=None, xlabel="speed (plain loop = 1)")
    each = 0.84 / len(rows)
    marks = [
        (result.predicted, place + (number - (len(rows) - 1) / 2) * each)
        for number, results in enumerate(rows.values())
        for place, result in enumerate(results)
        if result.predicted is not None
    ]
    if marks:
        point = {"linestyle": "none", "marker": "D", "color": color("draft"), "markeredgecolor": "white"}
        ax.plot(*zip(*marks, strict=True), **point, zorder=4, label="predicted from the measured cost of calls")
    ax.axvline(1, color=LIGHT["text"], linewidth=1.4, linestyle=":", label="plain loop")
    ax.legend(loc="lower right")  # where the shortest bars are
    return titled(ax, title)


@takes_iterators
def distance_bars(ax, names: Sequence[str], distances: Sequence[float], *, plain: Sequence[str] = (), title=None):
    """Draw one bar per decoder with its number, the largest distance on top.

    Parameters
    ----------
    names : sequence of str, length n
    distances : sequence of floats, length n
        Total variations, from 0 to 1.
    plain : sequence of str
        The names whose bars are drawn pale and without a hatch, because these bars mean something else.
    """
    if len(names) != len(distances):
        raise ValueError(f"expected a distance for each name, got {len(names)} names and {len(distances)} distances")
    for name, distance in zip(names, distances):
        if not 0 <= distance <= 1 + 1e-9:
            raise ValueError(f"a total variation is between 0 and 1; that of {name} is {distance}")
    rows = sorted(zip(distances, names), key=lambda row: row[0])
    for place, (distance, name) in enumerate(rows):
        look = bar_style("rejected", facecolor=color("rejected"), alpha=0.55)
        if name in plain:
            look = {"color": LIGHT["surface"], "edgecolor": color("neutral")}
        ax.barh(place, distance, height=0.7, **look)
        ax.text(distance + 0.015, place, f"{distance:.2f}", va="center", fontsize=10.5, color=LIGHT["text"])
    ax.set_yticks(range(len(rows)), [name for _, name in rows], family="monospace", fontsize=10.5)
    ax.grid(axis="y", visible=False)
    ax.set(xlabel="total variation from the correct distribution", xlim=(0, 1.16), xticks=[0, 0.25, 0.5, 0.75, 1])
    ax.set_ylim(-0.7, len(rows) - 0.3)
    return titled(ax, title)


@takes_iterators
def time_by_gamma(ax, results: Sequence, *, formula: Mapping[int, float] | None = None, title=None):
    """Draw the time per token for each γ as bars, with the plain loop and the predictions; lower is faster.

    Parameters
    ----------
    results : sequence of `tutorlib.lab.bench.GammaResult`
        Each has `gamma`; `over_plain`, how many times as fast as the plain loop it is (median, low, high); and
        `predicted`, the speed-up predicted from the measured cost of calls.
    formula : mapping from γ to float, optional
        A second prediction, also a speed-up.
    """
    gammas = np.array([result.gamma for result in results])
    heights = np.array([1 / result.over_plain.median for result in results])
    # The high end of the speed is the low end of the time.
    ends = [(1 / result.over_plain.high, 1 / result.over_plain.low) for result in results]
    best = int(heights.argmin())
    faces = [color("accepted") if place == best else pale(color("accepted")) for place in range(len(gammas))]
    hatches = ["" if place == best else HATCHES["accepted"] for place in range(len(gammas))]
    ax.bar(gammas, heights, width=0.74, color=faces, hatch=hatches, edgecolor=color("accepted"), linewidth=1.2)
    whiskers = error_sizes(heights, ends)
    ax.errorbar(gammas, heights, yerr=whiskers, fmt="none", ecolor=LIGHT["text"], elinewidth=1.4, capsize=3)
    style = {"ha": "center", "va": "bottom", "fontsize": 8.5, "weight": "bold", "bbox": number_patch()}
    for gamma, result in zip(gammas, results, strict=True):
        ax.text(gamma, 0.02, f"{result.over_plain.median:.2f}×", **style)
    ax.axhline(1, color=color("target"), linewidth=2.2, label="plain loop")
    predicted = [1 / result.predicted for result in results]
    look = {"linestyle": "--", "marker": "D", "color": color("draft"), "markeredgecolor": "white"}
    ax.plot(gammas, predicted, **look, label="predicted from the measured cost of calls")
    if formula is not None:
        look = {
            "linestyle": ":",
            "color": color("resampled"),
            "label": "predicted if every call of the target costs the same",
        }
        ax.plot(list(formula), [1 / factor for factor in formula.values()], linewidth=2.2, **look)
    ax.set(xlabel="γ: tokens drafted per round", ylabel="time per token (plain loop = 1)")
    ax.set_ylim(0, 1.12 * max(1.0, heights.max(), *predicted))
    ax.set_xticks(gammas)
    ax.grid(axis="x", visible=False)
    ax.legend(**BELOW)
    return titled(ax, title)


@takes_iterators
def method_dots(ax, rows: Mapping[str, Mapping[str, float]], *, xlabel: str, level: float | None = None, title=None):
    """Draw methods one below the other, with a mark and a number for each of their values.

    Parameters
    ----------
    rows : mapping from methods to mappings from names to values
        There are at most six names, such as "greedy" and "sampling". A method need not have all of them.
    level : float, optional
        The value of the plain loop, drawn as a vertical line.
    """
    names = dict.fromkeys(name for values in rows.values() for name in values)
    looks = {name: look for look, (name, _) in looks_for(names, what="values of each method")}
    for place, values in enumerate(rows.values()):
        ax.plot([min(values.values()), max(values.values())], [place] * 2, color=LIGHT["line"], linewidth=2, zorder=1)
    for name, look in looks.items():
        places = [(values[name], place) for place, values in enumerate(rows.values()) if name in values]
        point = {**look, "linestyle": "none", "markersize": 9, "markeredgecolor": "white"}
        ax.plot(*zip(*places, strict=True), label=name, zorder=3, **point)
    span = max(max(values.values()) for values in rows.values())
    for place, values in enumerate(rows.values()):
        above, before = True, -math.inf
        for value, name in sorted((value, name) for name, value in values.items()):
            # If two values are close, one number is written above and the other below.
            above, before = value - before > 0.07 * span or not above, value
            style = {"ha": "center", "va": "bottom" if above else "top", "fontsize": 8.5}
            beside(ax, f"{value:.2f}", (value, place), (0, 6 if above else -6), color=looks[name]["color"], **style)
    if level is not None:
        ax.axvline(level, color=LIGHT["text"], linewidth=1.2, linestyle=":", label="plain loop")
    ax.set_yticks(range(len(rows)), list(rows))
    ax.set(xlabel=xlabel, ylim=(len(rows) - 0.5, -0.75))
    ax.grid(axis="y", visible=False)
    ax.legend(**BESIDE)
    return titled(ax, title)


@takes_iterators
def measure_bars(axes, names: Sequence[str], measures: Mapping[str, Sequence[float]], *, title=None):
    """Draw several measures of the same things side by side, each on its own axes, with the values beside the bars.

    Parameters
    ----------
    axes : sequence of matplotlib axes
        One for each measure.
    names : sequence of str
        The things that are measured, from the top down.
    measures : mapping from names with their units to sequences of floats
        One value for each name. Nothing is drawn for NaN.
    """
    axes = list(np.ravel(axes))
    lengths = {label: len(values) for label, values in measures.items()}
    if len(axes) != len(measures) or set(lengths.values()) != {len(names)}:
        raise ValueError(
            f"there must be an axes for each measure, and a value for each name; got {len(axes)} axes, {len(names)} "
            f"names and {lengths}"
        )
    for place, (ax, (label, values)) in enumerate(zip(axes, measures.items(), strict=True)):
        look = bar_style(LAST_REJECTED[place % len(LAST_REJECTED)])
        bar_chart(ax, {label: values}, names, looks=[look], sideways=True, thick=0.7, legend=None, xlabel=label)
        ax.set_xlim(0, 1.3 * max((value for value in values if value == value), default=1) or 1)
        for row, value in enumerate(values):
            if value == value:
                beside(ax, f"{value:.3g}", (value, row), (4, 0), va="center", fontsize=9)
        if place:
            ax.tick_params(labelleft=False)
    titled(axes[0], title)
    return axes
