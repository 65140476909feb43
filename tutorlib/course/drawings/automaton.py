"""An automaton of letters, with the tokens that may be the first ones of a text."""

from ...viz.palette import LIGHT

# The words twelve and twenty: where each state stands, and the letters between them.
STATES = {
    "0": (0, 0), "1": (1, 0), "2": (2, 0), "3": (3, 0), "4": (4, 0.8), "5": (5, 0.8), "6": (6, 0.8),
    "7": (4, -0.8), "8": (5, -0.8), "9": (6, -0.8),
}  # fmt: skip
LETTERS = [
    ("0", "1", "t"), ("1", "2", "w"), ("2", "3", "e"), ("3", "4", "l"), ("4", "5", "v"), ("5", "6", "e"),
    ("3", "7", "n"), ("7", "8", "t"), ("8", "9", "y"),
]  # fmt: skip
TOKENS = [("t", 1), ("tw", 2), ("twe", 3)]  # a token, and how many letters it goes


def two_words(ax):
    """Draw the automaton of ``twelve|twenty``, and three of the tokens that may come first."""
    for begin, end, letter in LETTERS:
        (x, y), (to_x, to_y) = STATES[begin], STATES[end]
        how = {"arrowstyle": "-|>", "color": LIGHT["text"], "shrinkA": 13, "shrinkB": 13, "linewidth": 1.2}
        ax.annotate("", (to_x, to_y), (x, y), arrowprops=how)
        ax.text((x + to_x) / 2, (y + to_y) / 2 + 0.14, letter, ha="center", va="bottom", fontsize=14)
    for name, (x, y) in STATES.items():
        ends = name in ("6", "9")
        colour = LIGHT["accepted"] if ends else "white"
        ax.plot(
            x, y, "o", markersize=22, color=colour, markeredgecolor=LIGHT["text"], markeredgewidth=2.5 if ends else 1
        )
    for row, (token, letters) in enumerate(TOKENS):
        height = -0.55 - 0.42 * row
        ax.annotate(
            "",
            (letters, height),
            (0, height),
            arrowprops={"arrowstyle": "-|>", "color": LIGHT["target"], "linewidth": 2},
        )
        ax.text(letters + 0.1, height, f"token “{token}”", va="center", fontsize=12.5, color=LIGHT["target"])
    ax.text(0, 0.36, "start", ha="center", fontsize=12.5)
    ax.text(6.35, 0, "the text\nmay end", va="center", fontsize=12.5)
    ax.set(xlim=(-0.5, 7.4), ylim=(-1.75, 1.35))
    ax.axis("off")
    return ax
