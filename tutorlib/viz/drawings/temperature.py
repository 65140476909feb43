"""What a temperature does to one distribution: a bar of length 1 for each temperature, divided among the tokens."""

from collections.abc import Mapping, Sequence

from ...arguments import takes_iterators
from ..palette import LIGHT
from ..style import checked_probabilities, drawing, filled, token_label

KINDS = ("target", "draft", "accepted", "resampled", "bonus")


@takes_iterators
def temperature_bars(ax, tokens: Sequence[str], probs: Mapping[float, Sequence[float]], *, title=None):
    """Draw how the probability is divided at several temperatures, one bar each; the names stand over the first.

    Parameters
    ----------
    tokens : sequence of str
        At most five of the most likely tokens. The others share the last part of each bar.
    probs : mapping from temperatures to sequences of floats
        The probabilities of `tokens`.
    """
    if not 1 <= len(tokens) <= len(KINDS):
        raise ValueError(f"1 to {len(KINDS)} tokens can be told apart, got {len(tokens)}")
    middle = {"ha": "center", "va": "center", "fontsize": 12.5, "zorder": 4}
    names = [*(token_label(token) for token in tokens), "all other tokens"]
    looks = [*(filled(kind) for kind in KINDS[: len(tokens)]), filled("neutral", hatch="...")]
    for row, (temperature, given) in enumerate(probs.items()):
        shares = checked_probabilities(given, tokens).tolist()
        left, y = 0.0, 1.9 * row
        ax.text(0, y - 0.25, f"temperature {temperature:g}", fontsize=12.5, weight="bold", va="bottom")
        for look, share in zip(looks, [*shares, max(0.0, 1 - sum(shares))], strict=True):
            ax.bar(left, 0.8, width=share, bottom=y, align="edge", **look)
            if share > 0.09:
                box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
                ax.text(left + share / 2, y + 0.4, f"{share:.2f}", **middle, bbox=box)
            left += share
    low = 1.9 * len(probs) - 0.2
    for number, (name, look) in enumerate(zip(names, looks, strict=True)):
        x, y = (number % 3) * 0.31, low + 0.75 * (number // 3)
        ax.bar(x, 0.4, width=0.03, bottom=y - 0.2, align="edge", **look)
        ax.text(x + 0.045, y, name, fontsize=12.5, va="center", parse_math=False, color=LIGHT["text"])
    return drawing(ax, (-0.01, 1.01), (low + 0.75 * ((len(names) + 2) // 3) - 0.3, -0.9), title)
