"""Curves: one chart for values over steps, positions or sizes, and the figures that need more than this chart.

Nothing here runs a model or measures a time: times, shares and results are passed in.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from ..arguments import takes_iterators
from .palette import LIGHT, LINES, color
from .style import BESIDE, ROW_LOOKS, beside, error_sizes, looks_for, number_patch, pale, size_axis, titled


@takes_iterators
def curves(
    ax,
    rows: Mapping[str, Sequence[float] | Mapping[float, float]],
    x: Sequence[float] | None = None,
    *,
    marks: Mapping[str, Mapping[float, float]] | None = None,
    sizes=False,
    level: float | None = None,
    best: int | None = None,
    beside=False,
    title=None,
    **labels,
):
    """Draw values as curves, at most six, which differ in colour, mark and line.

    Parameters
    ----------
    rows : mapping from names to sequences of floats, or to mappings from x to y
        One curve each. A sequence gives the values at `x`, or at 1, 2, 3, ... without `x`. NaN interrupts a curve.
    x : sequence of floats, optional
        For example training steps. If there are many, only some of them get a mark.
    marks : mapping from names to mappings from x to y, optional
        Values to draw as marks without a line, such as measurements beside predictions. If it is given, even if it is
        empty, the curves are lines without marks.
    sizes : bool
        Whether the horizontal axis shows sizes. It is then logarithmic, and has a tick at each size if they are few,
        otherwise at powers of 2.
    level : float, optional
        The value of the plain loop, drawn as a horizontal line.
    best : int, optional
        A size to mark with a vertical line.
    beside : bool
        Whether the legend is placed beside the axes instead of inside. A single curve has no legend.
    **labels
        `xlabel`, `ylabel`, `xlim`, `ylim`, passed to `Axes.set`.
    """
    ends = []
    for look, (name, values) in looks_for(rows, ROW_LOOKS):
        if not isinstance(values, Mapping):
            at = list(x) if x is not None else range(1, len(values) + 1)
            if len(at) != len(values):
                raise ValueError(f"{name!r} has {len(values)} values for {len(at)} positions on the axis")
            values = dict(zip(at, values, strict=True))
        every = max(1, len(values) // 10)  # too many marks would hide the line
        point = {"markevery": every, "markersize": 7, "markeredgecolor": "white"}
        point = {"marker": ""} if marks is not None else point
        ax.plot(list(values), list(values.values()), label=name, **{**look, **point})
        ends += values
    for look, (name, values) in looks_for(marks, ROW_LOOKS) if marks else ():
        point = {**look, "linestyle": "none", "markersize": 8, "markeredgecolor": "white", "zorder": 4}
        ax.plot(list(values), list(values.values()), label=name, **point)
        ends += values
    if level is not None:
        ax.axhline(level, color=LIGHT["text"], linewidth=1.2, linestyle=":", label="plain loop")
    if best is not None:
        ax.axvline(best, color=LIGHT["accepted"], linewidth=1.6, linestyle="--", label=f"best size: {best} nodes")
    if sizes:
        size_axis(ax, ends)
    elif x is None:
        ax.set_xticks(sorted(set(ends)))
    ax.set(**labels)
    if len(ax.get_legend_handles_labels()[1]) > 1:
        ax.legend(**(BESIDE if beside else {}))
    return titled(ax, title)


@takes_iterators
def trade_off(ax, curves: Mapping[str, Mapping], points: Mapping[str, Mapping], *, x, y, shown: str):
    """Draw two results of a sweep against each other for one filter; the other filters are pale curves.

    Parameters
    ----------
    curves : mapping from names to mappings from settings to rows
        One curve each, with its settings in order. A row is a dict as in an experiment's results, with the values named
        `x` and `y`. If it also has ``[low, high]`` under the name `y` with ``_interval`` added, this is drawn as a thin
        line.
    points : mapping from names to rows
        Single marks with their names beside them, such as plain sampling and greedy; at most three. No setting is
        written close to them.
    x, y : str
        Which values of the rows to draw. The caller labels the axes.
    shown : str
        The curve to draw in colour. Its first and last setting are written beside their marks, and the others if there
        is room.
    """
    if shown not in curves:
        raise ValueError(f"there is no curve {shown!r}; the curves are {', '.join(curves)}")
    values = [row[x] for rows in curves.values() for row in rows.values()]
    room = 0.045 * (max(values) - min(values))
    for look, (name, rows) in looks_for(curves):
        xs, ys = ([row[key] for row in rows.values()] for key in (x, y))
        if name != shown:
            ax.plot(xs, ys, color=LIGHT["line"], linewidth=1.6, zorder=1)
            continue
        ax.errorbar(xs, ys, yerr=_errors(rows.values(), y), color=look["color"], linestyle="none", elinewidth=1.0)
        ax.plot(xs, ys, **look, markersize=6, linewidth=1.8, zorder=3)
        for number, setting in enumerate(rows):
            ends = number in (0, len(xs) - 1)
            roomy = all(abs(xs[number] - other) > room for other in xs[max(number - 1, 0) : number + 2 : 2])
            free = all(abs(xs[number] - row[x]) > room / 5 for row in points.values())
            if free and (ends or roomy):
                beside(ax, setting, (xs[number], ys[number]), (4, 7), fontsize=10, color=look["color"])
    marks = [{"marker": mark, "markersize": 11, "color": LIGHT["text"]} for mark in ("*", "X", "P")]
    for mark, (name, row) in looks_for(points, marks, "points") if points else ():
        ax.plot(row[x], row[y], linestyle="none", zorder=5, **mark, markeredgecolor="white")
        beside(ax, name, (row[x], row[y]), (8, -4) if mark["marker"] == "*" else (-4, 7), fontsize=10)
    return titled(ax, shown)


@takes_iterators
def setting_curves(ax, curves: Mapping[str, Mapping], *, y, levels: Mapping[str, Mapping] | None = None, title=None):
    """Draw a result of a sweep against the setting that was varied, with shaded intervals.

    Parameters
    ----------
    curves : mapping from names to mappings from settings to rows
        One curve each. The settings are spaced evenly, in the order of the curve that has the most.
    y : str
        Which value of the rows to draw. If all rows of a curve have an interval under this name with ``_interval``
        added, the intervals are shaded.
    levels : mapping from names to rows, optional
        Rows without a setting, such as plain sampling, drawn as horizontal lines.
    """
    settings = max(map(list, curves.values()), key=len)
    for look, (name, rows) in looks_for(curves):
        strange = [setting for setting in rows if setting not in settings]
        if strange:
            raise ValueError(f"the curve {name!r} has the settings {strange}, which are not among {settings}")
        # A value is None if there was nothing to count.
        found = {settings.index(key): row for key, row in rows.items() if row[y] is not None}
        places = list(found)
        ax.plot(places, [row[y] for row in found.values()], **look, label=name)
        if all(f"{y}_interval" in row for row in found.values()):
            low, high = zip(*(row[f"{y}_interval"] for row in found.values()), strict=True)
            ax.fill_between(places, low, high, color=look["color"], alpha=0.13, linewidth=0)
    for dashes, (name, row) in zip(("--", ":", "-."), (levels or {}).items(), strict=False):
        ax.axhline(row[y], color=LIGHT["text"], linestyle=dashes, linewidth=1.3, label=name)
    ax.set_xticks(range(len(settings)), [str(setting) for setting in settings])
    ax.legend()
    return titled(ax, title)


@takes_iterators
def expected_curves(
    ax, curves: Mapping[str, Sequence[float]], measured: Mapping[str, Mapping[int, float]], *, title=None
):
    """Draw the expected number of tokens per round against γ, and the measured numbers.

    Parameters
    ----------
    curves : mapping from names to sequences of floats
        Tokens per round for γ = 1, 2, 3, ...
    measured : mapping from names to mappings from γ to float
        At most two measurements, drawn as marks without a line.
    """
    looks = [{"marker": "o", "color": color("accepted")}, {"marker": "s", "color": color("resampled")}]
    for look, (name, tokens) in looks_for(curves):
        line = {"linestyle": look["linestyle"], "color": LIGHT["neutral"], "linewidth": 1.8}
        ax.plot(range(1, len(tokens) + 1), tokens, **line)
        beside(ax, name, (len(tokens), tokens[-1]), (5, 0), va="center", fontsize=9.5)
    for look, (name, tokens) in looks_for(measured, looks, "measurements"):
        point = {"linestyle": "none", "markersize": 8, "markeredgecolor": "white", "zorder": 4}
        ax.plot(list(tokens), list(tokens.values()), **look, **point, label=name)
    most = max(map(len, curves.values()))
    ax.set(xlabel="γ: tokens drafted per round", ylabel="tokens per call of the target")
    ax.set(xlim=(0.5, most * 1.13), ylim=(0, None))
    ax.set_xticks(range(1, most + 1))
    ax.legend(loc="upper left")
    return titled(ax, title)


@takes_iterators
def cost_curve(ax, widths, seconds, *, low, high, mark: int, title=None):
    """Draw the time of one call against the number of tokens in it, and the time with one call for each token.

    Parameters
    ----------
    widths : array of ints, shape (n,)
        Tokens in a call, ascending.
    seconds : array of floats, shape (n,)
        Time of a call, in seconds (drawn in milliseconds).
    low, high : arrays of floats, shape (n,)
        The spread of the measurement in seconds, such as the quartiles, drawn as a band.
    mark : int
        A width to point out, with its time relative to that of the first width.
    """
    widths, times = np.asarray(widths, dtype=float), 1000 * np.asarray(seconds, dtype=float)
    if widths.shape != times.shape or widths.ndim != 1 or not len(widths):
        raise ValueError(f"widths and seconds must have the same shape (n,), got {widths.shape} and {times.shape}")
    band = {"color": pale(color("target")), "label": "slower repeats", "linewidth": 0}
    ax.fill_between(widths, 1000 * np.asarray(low), 1000 * np.asarray(high), **band)
    one_each = times[0] / widths[0] * widths
    ax.plot(widths, times, marker="o", color=color("target"), label="all tokens in one call")
    ax.plot(widths, one_each, linestyle=LINES["neutral"], color=LIGHT["neutral"], label="one call per token")
    ax.set(xlabel="tokens in the call", ylabel="time of the call (ms)")
    ax.set_xlim(0, widths[-1] * 1.04)
    ax.set_ylim(0, max(times.max() * 1.7, one_each[min(len(one_each) - 1, 1)] * 1.1))
    at = int(np.flatnonzero(widths == mark)[0])
    note = f"{mark:g} tokens take {times[at] / times[0]:.1f} times as long as {widths[0]:g}"
    arrow = {"arrowstyle": "->", "color": LIGHT["text"]}
    ax.annotate(note, (mark, times[at]), (0.30, 0.12), textcoords="axes fraction", arrowprops=arrow)
    ax.legend(loc="upper right")
    return titled(ax, title)


@takes_iterators
def roofline(ax, widths, *, bytes_moved, operations_per_token, bandwidth, operations_per_second, measured, title=None):
    """Draw the time of a call and its two lower bounds: reading the weights, and computing with them.

    Reading takes `bytes_moved` / `bandwidth`, however many tokens are in the call; computing takes time for each token.
    A call cannot be faster than the slower of the two, so it cannot lie in the grey area. From the point where the
    lines cross, more tokens in a call cost more time.

    Parameters
    ----------
    widths : array of ints
        Tokens in a call.
    bytes_moved : float
        Bytes read from memory in one call: the weights (and the cache, if it is large).
    operations_per_token : float
        Floating-point operations for one token, about twice the number of weights.
    bandwidth : float
        Bytes per second.
    operations_per_second : float
        The rate that the processor reaches on large matrices.
    measured : array of floats
        Seconds measured for each of `widths`.
    """
    given = {
        "bytes_moved": bytes_moved,
        "operations_per_token": operations_per_token,
        "bandwidth": bandwidth,
        "operations_per_second": operations_per_second,
    }
    for name, value in given.items():
        if not value > 0:
            raise ValueError(f"{name} must be positive, got {value!r}")
    widths = np.asarray(widths, dtype=float)
    fine = np.geomspace(widths.min(), widths.max(), 200)
    reading = np.full_like(fine, 1000 * bytes_moved / bandwidth)
    computing = 1000 * operations_per_token * fine / operations_per_second
    low = min(reading[0], computing[0]) / 2
    forbidden = {"color": pale(LIGHT["neutral"]), "alpha": 0.6, "linewidth": 0, "zorder": 0}
    ax.fill_between(fine, np.maximum(reading, computing), low, **forbidden)
    ax.plot(fine, reading, color=color("target"), linestyle="-")
    ax.plot(fine, computing, color=color("draft"), linestyle="--")
    ax.plot(widths, 1000 * np.asarray(measured, dtype=float), "o", color=LIGHT["text"], markersize=7)
    beside(ax, "reading the weights", (fine[0], reading[0]), (2, -6), va="top", color=color("target"))
    third = len(fine) // 3
    look = {"va": "top", "color": color("draft")}
    beside(ax, "computing", (fine[third], computing[third]), (6, -6), **look)
    beside(ax, "measured", (widths[0], 1000 * measured[0]), (2, 10), va="bottom")
    cross = bytes_moved / bandwidth * operations_per_second / operations_per_token
    if widths.min() < cross < widths.max():
        # In the grey area, where no dot can be, if there is room between the crossing and the edge.
        fits = np.log(cross / widths.min()) < 0.75 * np.log(widths.max() / widths.min())
        look = {"ha": "left", "va": "top"} if fits else {"ha": "right", "va": "bottom"}
        shift = (4, -4) if fits else (-4, 4)
        beside(ax, f"equal at {cross:.0f} tokens", (cross, reading[0]), shift, color=LIGHT["neutral"], **look)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_ylim(low, None)
    plain_numbers = FuncFormatter(lambda value, _: f"{value:g}")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(plain_numbers)
    ax.yaxis.set_major_locator(LogLocator(subs=(1,)))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.set(xlabel="tokens in the call", ylabel="time of the call (ms)")
    return titled(ax, title)


@takes_iterators
def break_even(ax, widths, relative, points: Mapping[str, Mapping[str, tuple[float, float]]], *, title=None):
    """Draw the cost of a call against its width, and the tokens per call of methods.

    A method above the curve is faster than the plain loop.

    Parameters
    ----------
    widths, relative : sequences of numbers
        The number of tokens in a call, ascending, and the time of the call divided by that of a call with one token.
    points : mapping from names to mappings from labels to (width, tokens per call)
        One curve with marks for each name.
    """
    ax.plot(widths, relative, color=LIGHT["text"], linewidth=2.2, label="cost, in one-token calls")
    ax.fill_between(widths, relative, 0, color=pale(LIGHT["rejected"]), alpha=0.35, linewidth=0)
    for look, (name, found) in looks_for(points):
        ax.plot(*zip(*sorted(found.values()), strict=True), **look, label=name)
        for label, place in found.items():
            # Below, and to the right because the curve rises; to the left near the end, where the cost comes close.
            side = "right" if place[0] > 0.85 * widths[-1] else "left"
            style = {"fontsize": 10, "color": look["color"], "bbox": number_patch()}
            beside(ax, label, place, (1, -7), ha=side, va="top", **style)
    ax.set(xlabel="tokens in the call (mean)", ylabel="tokens per call, or cost of a call")
    ax.set_ylim(0, None)
    ax.legend(loc="upper left")
    return titled(ax, title)


@takes_iterators
def calibration(ax, curves: Mapping[str, Sequence[tuple[float, float, int, float, float]]], *, title=None):
    """Draw the share of candidates that are accepted against the probability that the network gave to their paths.

    On the diagonal, the network is calibrated. Above it, the network is not confident enough; below it, too confident.

    Parameters
    ----------
    curves : mapping from names to sequences of (confidence, accepted, candidates, low, high)
        For each group of candidates: their mean confidence, the share that was accepted, the number of candidates
        (larger numbers get larger marks), and the bounds of the share, drawn as a vertical line.
    """
    ax.plot([0, 1], [0, 1], color=LIGHT["text"], linewidth=1.2, linestyle=":", label="perfectly calibrated")
    for look, (name, points) in looks_for(curves, ROW_LOOKS):
        confidences, shares, counts, lows, highs = zip(*points, strict=True)
        most = max(sum(counts), 1)
        sizes = [25 + 175 * math.sqrt(count / most) for count in counts]
        ax.plot(confidences, shares, color=look["color"], linestyle=look["linestyle"], linewidth=1.6, zorder=2)
        ax.vlines(confidences, lows, highs, color=look["color"], linewidth=1.4, alpha=0.7, zorder=2)
        point = {"marker": look["marker"], "edgecolors": "white", "linewidths": 0.8, "zorder": 3}
        ax.scatter(confidences, shares, s=sizes, color=look["color"], label=name, **point)
    ax.set(xlabel="the network's confidence", ylabel="proportion of candidates accepted")
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), aspect="equal")
    ax.legend(**BESIDE)
    return titled(ax, title)


@takes_iterators
def diagonal(ax, rows: Mapping[str, Mapping[str, tuple[float, float]]], *, named: int = 4, title=None, **labels):
    """Draw pairs of numbers that should be equal, and the diagonal on which equal pairs lie.

    Parameters
    ----------
    rows : mapping from groups to mappings from names to (x, y)
        For example the predicted and the measured value of each method. Each group has its own look.
    named : int
        How many pairs get their names written beside them: those whose ratio is furthest from 1.
    **labels
        `xlabel`, `ylabel`, passed to `Axes.set`.
    """
    pairs = [pair for found in rows.values() for pair in found.values()]
    if not pairs or not all(min(pair) > 0 for pair in pairs):
        raise ValueError(f"expected pairs of numbers above 0, got {rows}")
    most = 1.1 * max(map(max, pairs))
    ax.plot([0, most], [0, most], color=LIGHT["text"], linewidth=1.2, linestyle=":", label="equal")
    points = []
    for look, (group, found) in looks_for(rows, ROW_LOOKS):
        point = {**look, "linestyle": "none", "markersize": 8, "markeredgecolor": "white"}
        ax.plot(*zip(*found.values(), strict=True), **point, label=group)
        points += [(name, x, y, look["color"]) for name, (x, y) in found.items()]
    for name, x, y, hue in sorted(points, key=lambda point: -abs(math.log(point[2] / point[1])))[:named]:
        side, shift = ("left", 7) if x < 0.6 * most else ("right", -7)  # so that names stay within the axes
        beside(ax, name, (x, y), (shift, 0), ha=side, va="center", fontsize=8.5, color=hue, parse_math=False)
    ax.set(xlim=(0, most), ylim=(0, most), aspect="equal", **labels)
    ax.legend(**BESIDE)
    return titled(ax, title)


def _errors(rows, key):
    """The intervals of some rows in the form that `errorbar` takes; None if some rows have no interval."""
    if not all(f"{key}_interval" in row for row in rows):
        return None
    return error_sizes([row[key] for row in rows], [row[f"{key}_interval"] for row in rows])
