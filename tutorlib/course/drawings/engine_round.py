"""One round in an engine: which requests take part, who drafts, who checks, and what comes out."""

from ...viz.style import arrow, drawing, outlined, slot

# The boxes by name: column, row (from the top), kind of the palette, and the lines under the name.
BOXES = {
    "requests": (0, 0, "context", ("A: half done", "B: just begun", "C: waiting for room")),
    "scheduler": (1, 0, "context", ("Who takes part", "in this round?")),
    "head": (2, 0, "draft", ("drafts a few tokens", "for each request")),
    "target": (2, 1, "target", ("scores all drafts", "in one call")),
    "check": (1, 1, "accepted", ("Which tokens of each", "request are kept?")),
    "new tokens": (0, 1, "context", ("A:  the red kite", "B:  was")),
}
WIDE, HIGH, ACROSS, DOWN = 4.6, 2.3, 5.6, 3.9


def engine_round(ax):
    """Draw one round of speculative decoding in an engine, as a loop of boxes.

    Returns
    -------
    matplotlib axes
    """
    corners = {name: (ACROSS * column, -DOWN * row) for name, (column, row, *_) in BOXES.items()}
    for name, (_, _, kind, lines) in BOXES.items():
        x, y = corners[name]
        slot(ax, x, y, WIDE, high=HIGH, **outlined(kind))
        style = {"ha": "center", "va": "center", "zorder": 4}
        ax.text(x + WIDE / 2, y + HIGH - 0.45, name, fontsize=12, weight="bold", **style)
        for row, line in enumerate(lines):
            ax.text(x + WIDE / 2, y + HIGH - 1.02 - 0.45 * row, line, fontsize=11, **style)
    for start, end in (("requests", "scheduler"), ("scheduler", "head"), ("target", "check"), ("check", "new tokens")):
        right = corners[end][0] > corners[start][0]
        (x, y), other = corners[start], corners[end][0]
        ends = (x + WIDE, other) if right else (x, other + WIDE)
        arrow(ax, (ends[0], y + HIGH / 2), (ends[1], y + HIGH / 2), shrinkA=0, shrinkB=0)
    low, high = HIGH - DOWN, 0  # between the two rows
    for name, share, text, up in (
        ("head", 0.35, "guesses", False),
        ("head", 0.65, "states", True),
        ("scheduler", 0.5, "next round", True),
    ):
        x = corners[name][0] + share * WIDE
        arrow(ax, (x, low if up else high), (x, high if up else low), shrinkA=0, shrinkB=0)
        left = share < 0.5
        ax.text(x + (-0.15 if left else 0.15), (low + high) / 2, text, ha="right" if left else "left", va="center")
    return drawing(ax, (-0.2, 2 * ACROSS + WIDE + 0.2), (-DOWN - 0.2, HIGH + 0.2), None)
