"""A suffix automaton of a few words: its states, the link to the longest earlier match, and what followed the match."""

from collections.abc import Sequence

import numpy as np
from matplotlib.patches import Circle

from ...arguments import takes_iterators
from ...viz.palette import LIGHT
from ...viz.style import arrow, drawing, pale, patch, token_label, word


def states_of(words: Sequence[str]) -> tuple[dict[tuple[int, str], int], int]:
    """Return the arrows between the states, and the state of the longest end of the text that also occurs earlier.

    State n is the state of the text's first n words. Pieces of the text that end at the same positions share a state.

    Returns
    -------
    arrows : dict from (state, word) to state
    match : int

    Raises
    ------
    ValueError
        If some state is not the state of a beginning of the text. Such an automaton cannot be drawn in one row.

    Examples
    --------
    >>> states_of("a b a".split())
    ({(0, 'a'): 1, (0, 'b'): 2, (1, 'b'): 2, (2, 'a'): 3}, 1)
    """
    words = list(words)
    ends: dict[tuple, tuple] = {(): tuple(range(len(words) + 1))}
    for start in range(len(words)):
        for stop in range(start + 1, len(words) + 1):
            piece = tuple(words[start:stop])
            ends[piece] = (*ends.get(piece, ()), stop)
    state_of = {ends[tuple(words[:n])]: n for n in reversed(range(len(words) + 1))}
    if set(ends.values()) - set(state_of):
        raise ValueError(f"some pieces of {' '.join(words)!r} need a state of their own: choose another text")
    arrows = {
        (state_of[found], token): state_of[ends[(*piece, token)]]
        for piece, found in ends.items()
        for token in dict.fromkeys(words)
        if (*piece, token) in ends
    }
    suffixes = [tuple(words[start:]) for start in range(len(words) + 1)]
    match = next(suffix for suffix in suffixes if len(ends[suffix]) > 1)
    return dict(sorted(arrows.items())), state_of[ends[match]]


@takes_iterators
def suffix_automaton(ax, words: Sequence[str], *, title=None):
    """Draw a suffix automaton as a row of circles, with arrows labelled by the words that are read.

    Parameters
    ----------
    ax : matplotlib axes
        About 7.4 inches wide and 3.3 high.
    words : sequence of str
        A short text whose end also occurs earlier.

    Returns
    -------
    matplotlib axes
    """
    words = list(words)
    arrows, match = states_of(words)
    step, radius = 2.0, 0.5
    whole = len(words)
    for state in range(whole + 1):
        kind = "target" if state == match else "accepted" if state == whole else "context"
        look = {
            "facecolor": pale(LIGHT[kind]),
            "edgecolor": LIGHT[kind],
            "linewidth": 2.6 if kind != "context" else 1.4,
        }
        ax.add_patch(Circle((state * step, 0), radius, zorder=3, **look))
        word(ax, state * step, 0, str(state), fontsize=12)
    for (start, token), end in arrows.items():
        reads = start == match
        hue = LIGHT["draft"] if reads else LIGHT["neutral"]
        line = {"linewidth": 2.8 if reads else 1.3, "zorder": 2, "shrinkA": 0, "shrinkB": 0}
        if end == start + 1:
            arrow(ax, (start * step + radius, 0), (end * step - radius, 0), hue, **line)
            at = (start + 0.5) * step, 0.78
        else:
            high = 0.95 * (end - start) ** 0.75 + 0.25
            at = _arc(ax, start * step, end * step, radius, high, hue, line)
        weight = "bold" if reads else "normal"
        name = {"color": hue, "weight": weight, "parse_math": False}
        ax.text(
            *at, token_label(token), ha="center", va="center", fontsize=12, bbox=patch("white", 0.1), zorder=5, **name
        )
    dashed = {"linewidth": 2.4, "linestyle": (0, (4, 2)), "zorder": 2, "shrinkA": 0, "shrinkB": 0}
    low = _arc(ax, whole * step, match * step, radius, -2.3, LIGHT["accepted"], dashed)
    note = {"ha": "center", "va": "center", "fontsize": 12, "bbox": patch("white", 0.15), "zorder": 5}
    ax.text(low[0], low[1] - 0.1, "link: the longest suffix seen before", color=LIGHT["accepted"], **note)
    ax.text(match * step, -1.15, "match", color=LIGHT["target"], **note)
    ax.text(whole * step + radius, 1.7, "whole text", color=LIGHT["accepted"], **{**note, "ha": "right"})
    ax.set_aspect("equal")
    top = 0.95 * max(end - start for (start, _), end in arrows.items()) ** 0.75 + 0.8
    return drawing(ax, (-0.7, whole * step + 0.7), (-2.9, top), title)


def _arc(ax, start, end, radius, high, hue, line):
    """Draw half an ellipse from one circle to another, with an arrowhead; return its middle."""
    angle = np.linspace(np.pi, 0, 60)
    side = 1 if high > 0 else -1
    xs = (start + end) / 2 + (end - start) / 2 * np.cos(angle)
    ys = side * radius * 0.85 + (high - side * radius * 0.85) * np.sin(angle)
    plain = {key: value for key, value in line.items() if key in ("linewidth", "linestyle", "zorder")}
    ax.plot(xs[:-2], ys[:-2], color=hue, **plain)
    arrow(ax, (xs[-6], ys[-6]), (xs[-1], ys[-1]), hue, **{**line, "linestyle": "-"})
    return (start + end) / 2, high
