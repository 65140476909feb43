"""Figures about exactness: what a decoder does beside what it should do, and how far apart the two are.

Functions that take an axes, draw on it, and return it, as in `plots.py`. No decoder is run here: distributions and
distances come in.
"""

from collections.abc import Callable, Mapping, Sequence

from ..arguments import takes_iterators
from .palette import HATCHES, LIGHT, color
from .plots import _titled

Outcomes = Mapping[tuple, float]


@takes_iterators
def outcome_bars(
    ax, made: Outcomes, due: Outcomes, *, name: Callable[[tuple], str] = str, kind="rejected", legend=True, title=None
):
    """Draw two distributions over the same outcomes: what a decoder does, and what it should do.

    A bar for each outcome, hatched, is how often the decoder gives it; the short line across it is how often it should.
    Half of what lies between the bars' ends and the lines, summed up, is the total variation.

    Parameters
    ----------
    ax : matplotlib axes
    made, due : mappings from outcomes to probabilities
        An outcome that is missing has none. Outcomes are drawn in ascending order.
    name : function
        From an outcome to its label.
    kind : str
        Whose colour in the palette the bars have.
    legend : bool
    title : str, optional

    Returns
    -------
    ax

    Raises
    ------
    ValueError
        If there is nothing to draw.
    """
    outcomes = sorted(made.keys() | due.keys())
    if not outcomes:
        raise ValueError("there are no outcomes to draw: give two distributions, mappings from outcomes to numbers")
    places = range(len(outcomes))
    bars = ax.bar(
        places,
        [made.get(outcome, 0.0) for outcome in outcomes],
        width=0.7,
        color=color(kind),
        alpha=0.55,
        hatch=HATCHES[kind],
        edgecolor=color(kind),
        label="what it does",
    )
    lines = ax.hlines(
        [due.get(outcome, 0.0) for outcome in outcomes],
        [place - 0.45 for place in places],
        [place + 0.45 for place in places],
        color=color("target"),
        linewidth=2.5,
        label="what it should do",
    )
    ax.set_xticks(places, [name(outcome) for outcome in outcomes], rotation=90, family="monospace")
    ax.grid(axis="x", visible=False)
    ax.set(ylabel="probability", xlim=(-0.8, len(outcomes) - 0.2), ylim=(0, None))
    if legend:
        ax.legend(handles=[bars, lines])
    return _titled(ax, title)


@takes_iterators
def distance_bars(ax, names: Sequence[str], distances: Sequence[float], *, plain: Sequence[str] = (), title=None):
    """Draw one bar a decoder, the largest distance on top, each with its number.

    Parameters
    ----------
    ax : matplotlib axes
    names : sequence of str, length n
    distances : sequence of floats, length n
        Total variations, from 0 to 1.
    plain : sequence of str
        Which of the names are drawn pale and without hatch, because their bar means something else.
    title : str, optional

    Returns
    -------
    ax

    Raises
    ------
    ValueError
        If the lengths differ, or a distance is not between 0 and 1.
    """
    if len(names) != len(distances):
        raise ValueError(f"expected a distance for each name, got {len(names)} names and {len(distances)} distances")
    for name, distance in zip(names, distances):
        if not 0 <= distance <= 1 + 1e-9:
            raise ValueError(f"a total variation is between 0 and 1; that of {name} is {distance}")
    rows = sorted(zip(distances, names), key=lambda row: row[0])
    for place, (distance, name) in enumerate(rows):
        pale = name in plain
        ax.barh(
            place,
            distance,
            height=0.7,
            color=LIGHT["surface"] if pale else color("rejected"),
            alpha=1 if pale else 0.55,
            hatch="" if pale else HATCHES["rejected"],
            edgecolor=color("neutral") if pale else color("rejected"),
        )
        ax.text(distance + 0.012, place, f"{distance:.3f}", va="center", fontsize=9, color=LIGHT["text"])
    ax.set_yticks(range(len(rows)), [name for _, name in rows], family="monospace", fontsize=9)
    ax.grid(axis="y", visible=False)
    ax.set(xlabel="total variation from what it should do", xlim=(0, 1.12), xticks=[0, 0.25, 0.5, 0.75, 1])
    return _titled(ax, title)
