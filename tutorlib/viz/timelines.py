"""A run as its rounds: how much of each draft was accepted, and how long the calls took, one after another."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.patches import Rectangle

from ..arguments import takes_iterators
from .palette import LINES, MARKS, check_kind, color
from .style import ABOVE, bar_style, outlined, swatches, titled, token_label


@takes_iterators
def gamma_rounds(ax, rounds: Sequence[tuple[int, int]], *, title=None):
    """Draw γ and the accepted tokens of each round, at the position in the text where the round begins.

    Parameters
    ----------
    rounds : sequence of (drafted, accepted)
        The numbers of tokens in each round. A round adds one token more than it accepted.
    """
    if any(kept > drafted for drafted, kept in rounds):
        raise ValueError(f"a round cannot accept more than it drafted: {list(rounds)}")
    starts = np.cumsum([0, *(kept + 1 for _, kept in rounds)])
    drafted, kept = (np.array([round_[i] for round_ in rounds]) for i in (0, 1))
    wide = np.diff(starts) - 0.25
    solid = {"color": color("accepted"), "edgecolor": "white", "linewidth": 0.4}
    ax.bar(starts[:-1], kept, wide, align="edge", **solid, label=f"{MARKS['accepted']} accepted")
    rest = {"label": f"{MARKS['rejected']} not kept", **bar_style("rejected", linewidth=0.6)}
    ax.bar(starts[:-1], drafted - kept, wide, kept, align="edge", **rest)
    gammas = [*drafted, *drafted[-1:]]  # the last step needs an end
    ax.plot(starts, gammas, color=color("draft"), linestyle="-", drawstyle="steps-post", label="γ")
    ax.set(xlabel="tokens in the text so far", ylabel="drafted tokens", xlim=(0, starts[-1]))
    ax.set_ylim(0, drafted.max() * 1.12)
    return titled(ax, title)


@takes_iterators
def call_timeline(ax, lanes: Mapping[str, Sequence[tuple[float, str, str]]], *, title=None):
    """Draw calls one after another, with one lane for each way to generate a text. Longer calls have wider boxes.

    Parameters
    ----------
    lanes : mapping from str to sequence of (milliseconds, kind, text)
        The calls of each lane in order: the time of the call, its kind ("target", "draft" or another kind of the
        palette), and the text to write on its box. Texts that do not fit on their boxes are written below, in one row.
    """
    longest = max((sum(duration for duration, _, _ in calls) for calls in lanes.values()), default=1.0)
    style = {"fontsize": 9.5, "parse_math": False}
    for row, calls in enumerate(lanes.values()):
        start, below = 0.0, []  # below: the texts that do not fit on their boxes, and where these boxes begin
        for duration, kind, text in calls:
            check_kind(kind)
            if not duration > 0:
                raise ValueError(f"a call must take some time, got {duration!r} for {text!r}")
            ax.add_patch(Rectangle((start, row - 0.32), duration, 0.64, **outlined(kind)))
            shown = " ".join(token_label(word, 22) for word in text.split(" "))
            if len(shown) * 0.0115 <= duration / longest:
                ax.text(start + duration / 2, row, shown, ha="center", va="center", **style)
            else:
                below.append((start, shown))
            start += duration
        if below:
            ax.text(below[0][0], row + 0.36, " · ".join(shown for _, shown in below), va="top", **style)
        ax.text(start + 0.012 * longest, row, f"{start:.1f} ms", va="center", weight="bold")
    ax.set_yticks(range(len(lanes)), list(lanes))
    ax.set(xlabel="time (ms)", xlim=(0, 1.13 * longest), ylim=(len(lanes) - 0.35, -0.5))
    ax.grid(axis="y", visible=False)
    used = {kind for calls in lanes.values() for _, kind, _ in calls}
    kinds = [kind for kind in LINES if kind in used]
    names = {"target": "one call of the target", "draft": "one call of the draft"}
    labels = [f"{MARKS[kind]} {names.get(kind, kind)}" for kind in kinds]
    ax.legend(swatches(map(outlined, kinds)), labels, ncols=len(kinds), **ABOVE)
    return titled(ax, title)
