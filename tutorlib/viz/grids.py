"""Grids: a square for each pair of things, such as a call and a token, a text and a position, or two nodes of a tree.

Nothing here runs a model: lengths, trees and cosines are passed in.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle

from ..arguments import takes_iterators
from .palette import LIGHT, MARKS, color
from .style import bar_style, pale, slot, swatches, titled, token_label

# From low to high in one hue. Dark is high, so the map can be read without colour too.
SHADES = LinearSegmentedColormap.from_list("contrast", ["#ffffff", pale(color("target")), color("target"), "#0d2350"])


@takes_iterators
def kv_cache_picture(ax, prompt: Sequence[str], new: Sequence[str], *, cached=True, title=None):
    """Draw which tokens each call computes, with or without a key-value cache: one row per call, one column per token.

    Call 1 reads the prompt; each later call reads the token that the call before it chose. With the cache, a call
    computes only this token and reads the keys and values of the others. Without it, a call computes all tokens again.

    Parameters
    ----------
    prompt, new : sequences of str
        Texts of the tokens. The last new token is chosen by the last call, and no call reads it.
    cached : bool
        Whether the calls have a cache.
    """
    tokens, first = [*prompt, *new], len(prompt)
    calls = max(len(new), 1)
    computed = 0
    old = {"facecolor": pale(LIGHT["neutral"]), "edgecolor": "white", "hatch": "//"}
    new_one = {"facecolor": color("target"), "edgecolor": "white"}
    next_one = {"facecolor": "white", "edgecolor": color("target"), "linestyle": ":"}
    for call in range(calls):
        length = first + call
        for place in range(length):
            fresh = not cached or call == 0 or place == length - 1
            computed += fresh
            look = new_one if fresh else old
            ax.add_patch(Rectangle((place + 0.06, -call + 0.12), 0.88, 0.76, **look, linewidth=1.2))
            if fresh:
                style = {"ha": "center", "va": "center", "color": "white", "fontsize": 9}
                ax.text(place + 0.5, -call + 0.5, MARKS["target"], **style)
        if length < len(tokens):
            ax.add_patch(Rectangle((length + 0.08, -call + 0.14), 0.84, 0.72, **next_one, linewidth=1.4))
            ax.text(length + 0.5, -call + 0.5, "?", ha="center", va="center", color=color("target"), weight="bold")
    ax.set_xlim(0, len(tokens))
    ax.set_ylim(-calls + 0.95, 1.05)
    names = [token_label(text, 10) for text in tokens]
    upright = {"rotation": 40, "ha": "left", "rotation_mode": "anchor", "parse_math": False, "fontsize": 9.5}
    ax.set_xticks(np.arange(len(tokens)) + 0.5, names, **upright)
    ax.xaxis.tick_top()
    ax.set_yticks([-call + 0.5 for call in range(calls)], [f"call {call + 1}" for call in range(calls)])
    ax.tick_params(length=0)
    ax.grid(visible=False)
    for spine in ax.spines.values():
        spine.set_visible(False)
    way = "with a cache" if cached else "without a cache"
    ax.set_xlabel(f"{way}: {computed} tokens computed")
    read = {"read from the cache": old} if cached else {}
    looks = {"● computed in this call": new_one, **read, "? chosen token": next_one}
    beside = {"loc": "upper left", "bbox_to_anchor": (0, -0.12), "ncols": 3, "frameon": False}
    ax.legend(swatches(looks.values()), list(looks), **beside)
    return titled(ax, title)


@takes_iterators
def batch_round(ax, lengths: Sequence[int], fed: Sequence[int], accepted: Sequence[int], *, title=None):
    """Draw the cache of a batch in one round of speculation: one row per text, one column per position.

    Parameters
    ----------
    lengths : sequence of int
        How many tokens of each row are in the cache before the call.
    fed : sequence of int
        How many tokens of each row are in the call: the last token of its text, and the draft.
    accepted : sequence of int
        How many drafted tokens each row keeps. The others are discarded, and overwritten in the next round.
    """
    if not len(lengths) == len(fed) == len(accepted):
        raise ValueError(
            f"lengths, fed and accepted need one number for each row, got {len(lengths)}, {len(fed)} and "
            f"{len(accepted)} numbers"
        )
    if any(count > max(tokens - 1, 0) for count, tokens in zip(accepted, fed, strict=True)):
        raise ValueError(f"a row cannot keep more than it drafted: fed {list(fed)}, accepted {list(accepted)}")
    width = max(length + max(fed) for length in lengths)
    looks = {
        "in the cache": {"facecolor": pale(LIGHT["context"]), "edgecolor": LIGHT["context"]},
        "the text's last token": {"facecolor": pale(LIGHT["target"]), "edgecolor": LIGHT["target"]},
        "drafted and accepted": bar_style("accepted"),
        "drafted and rejected": bar_style("rejected"),
        "not used": {"facecolor": "white", "edgecolor": LIGHT["line"], "linestyle": ":"},
    }
    for row, (length, tokens, kept) in enumerate(zip(lengths, fed, accepted, strict=True)):
        for at in range(width):
            if at < length:
                look = "in the cache"
            elif at == length and tokens:
                look = "the text's last token"
            elif at <= length + kept:
                look = "drafted and accepted"
            elif at < length + tokens:
                look = "drafted and rejected"
            else:
                look = "not used"
            slot(ax, at + 0.08, row + 0.1, 0.84, rounding=0.15, **looks[look])
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.22), "ncols": 2, "fontsize": 10.5, "frameon": False}
    ax.legend(swatches(looks.values()), list(looks), **place)
    ax.set_xlim(0, width)
    ax.set_ylim(len(lengths), 0)
    ax.set_yticks([row + 0.5 for row in range(len(lengths))], [f"text {row + 1}" for row in range(len(lengths))])
    ax.set_xlabel("position in the row")
    ax.grid(visible=False)
    return titled(ax, title)


@takes_iterators
def similarity_map(ax, cosines, *, bar=True, title=None):
    """Draw how similar each token's hidden state is to those of the tokens before it; white means not at all.

    Parameters
    ----------
    cosines : array of floats, shape (n, n)
        Row i, column j holds the cosine between the states of tokens i and j. Only the part below the diagonal is
        drawn. Negative cosines are white.
    bar : bool
        Whether to draw a scale of the shades beside the picture.
    """
    cosines = np.asarray(cosines, dtype=float)
    if cosines.ndim != 2 or cosines.shape[0] != cosines.shape[1]:
        raise ValueError(f"there must be a cosine for each pair of tokens, shape (n, n); got {cosines.shape}")
    if cosines.size and np.abs(cosines).max() > 1 + 1e-4:
        raise ValueError(
            f"cosines lie between -1 and 1, got {np.abs(cosines).max():g}: divide the products by the lengths of the "
            "states"
        )
    below = np.tril(np.ones(cosines.shape, dtype=bool), -1)
    image = ax.imshow(np.where(below, cosines, np.nan), cmap=SHADES, vmin=0, vmax=1, interpolation="nearest")
    if bar:
        ax.figure.colorbar(image, ax=ax, label="cosine", fraction=0.046)
    ax.set(xlabel="position of the earlier token", ylabel="position of the token")
    ax.grid(visible=False)
    return titled(ax, title)
