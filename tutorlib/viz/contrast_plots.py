"""Figures about contrast: two distributions and their difference, tokens against their past, layers against the last.

Functions that take an axes, draw on it, and return it, as in `plots.py`. Nothing here runs a model: probabilities,
cosines and distances come in.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.colors import LinearSegmentedColormap

from ..arguments import takes_iterators
from .palette import HATCHES, LIGHT, MARKS, color
from .plots import _pale, _probabilities, _titled, token_label
from .warp_plots import LOOKS

# From nothing to much, in one hue: dark is much, also without colour.
SHADES = LinearSegmentedColormap.from_list("contrast", ["#ffffff", _pale(color("target")), color("target"), "#0d2350"])


@takes_iterators
def contrast_bars(axes, tokens: Sequence[str], expert, amateur, *, alpha, amateur_temperature=1.0, top=8, title=None):
    """Draw what an expert and an amateur say of the next token, and the difference that contrastive decoding takes.

    On the left the expert's probabilities (filled) and the amateur's (hatched), with the plausibility cut as a dashed
    line: what the expert gives less is out. On the right log p_expert - log p_amateur; what is out is pale and crossed,
    the winner has a tick.

    Parameters
    ----------
    axes : two matplotlib axes
        Side by side.
    tokens : sequence of str, length n
        The texts.
    expert, amateur : arrays of floats, shape (n,)
        Probabilities; each sums to 1, none is 0.
    alpha : float
        The cut: a share of the expert's largest probability.
    amateur_temperature : float
        The amateur's probabilities are drawn, and subtracted, as this temperature makes them.
    top : int
        How many tokens to draw: those that one of the two thinks likeliest, sorted by the expert. The winner is always
        among them.

    Returns
    -------
    axes

    Raises
    ------
    ValueError
        If the lengths differ, a row does not sum to 1, or a probability is 0.
    """
    expert, amateur = _positive(expert, tokens, "expert"), _positive(amateur, tokens, "amateur")
    amateur = amateur ** (1 / amateur_temperature)
    amateur = amateur / amateur.sum()
    scores = np.log(expert) - np.log(amateur)
    bar = alpha * expert.max()
    kept = expert >= bar
    winner = int(np.where(kept, scores, -np.inf).argmax())
    larger = np.maximum(expert, amateur)
    larger[winner] = 2  # always drawn
    shown = sorted(np.argsort(-larger, kind="stable")[:top], key=lambda token: -expert[token])
    places, names = np.arange(len(shown)), [token_label(tokens[token]) for token in shown]
    left, right = axes

    solid = {"color": color("target"), "edgecolor": "white", "label": f"{MARKS['target']} expert"}
    dotted = {"color": _pale(color("draft")), "edgecolor": color("draft"), "hatch": HATCHES["draft"]}
    left.barh(places - 0.2, expert[shown], height=0.38, **solid)
    left.barh(places + 0.2, amateur[shown], height=0.38, **dotted, label=f"{MARKS['draft']} amateur")
    left.axvline(bar, color=LIGHT["rejected"], linestyle="--", linewidth=1.4, label=f"the cut: {alpha:g} × the best")
    left.set_yticks(places, names, parse_math=False)
    left.set(xlabel="probability", ylabel="next token", xlim=(0, None))
    # A frame beside the bars hides none of them.
    left.legend(loc="lower right", bbox_to_anchor=(1.0, 0.02))

    for place, token in zip(places, shown, strict=True):
        look = {"color": color("accepted" if token == winner else "target"), "edgecolor": "white"}
        if not kept[token]:
            look = {"color": _pale(LIGHT["neutral"]), "edgecolor": LIGHT["neutral"], "hatch": "xxx"}
        right.barh(place, scores[token], height=0.7, **look)
    right.axvline(0, color=LIGHT["neutral"], linewidth=1.2)
    style = {"va": "center", "color": color("accepted"), "weight": "bold"}
    tick = {"xytext": (5, 0), "textcoords": "offset points", **style}
    right.annotate(MARKS["accepted"], (max(scores[winner], 0), shown.index(winner)), **tick)
    right.set_yticks(places, [""] * len(places))
    right.set_xlabel("score: log of expert / amateur")
    right.margins(x=0.12)
    for ax in axes:
        ax.set_ylim(len(names) - 0.4, -0.6)
        ax.grid(axis="y", visible=False)
    _titled(left, title)
    return axes


@takes_iterators
def similarity_map(ax, cosines, tokens: Sequence[str] = (), *, bar=True, title=None):
    """Draw how much each token's hidden state resembles those of the tokens before it: white is not at all.

    Parameters
    ----------
    cosines : array of floats, shape (n, n)
        Row i, column j: the cosine between the states of tokens i and j. Only what lies below the diagonal is drawn.
        Negative cosines are white.
    tokens : sequence of str, optional
        Texts for the axes; without them, the tokens' numbers.
    bar : bool
        Whether to say beside the picture which shade is how much.
    """
    cosines = np.asarray(cosines, dtype=float)
    if cosines.ndim != 2 or cosines.shape[0] != cosines.shape[1]:
        raise ValueError(f"a cosine for each pair of tokens is needed, shape (n, n); got {cosines.shape}")
    if cosines.size and np.abs(cosines).max() > 1 + 1e-4:
        raise ValueError(f"cosines lie between -1 and 1, got {np.abs(cosines).max():g}: divide by the lengths")
    below = np.tril(np.ones(cosines.shape, dtype=bool), -1)
    image = ax.imshow(np.where(below, cosines, np.nan), cmap=SHADES, vmin=0, vmax=1, interpolation="nearest")
    if bar:
        ax.figure.colorbar(image, ax=ax, label="cosine", fraction=0.046)
    if len(tokens):
        names = [token_label(text, 10) for text in tokens]
        ax.set_yticks(range(len(names)), names, parse_math=False, fontsize=7.5)
        ax.set_xticks(range(len(names)), names, parse_math=False, fontsize=7.5, rotation=90)
    else:
        ax.set(xlabel="token before it", ylabel="token")
    ax.grid(visible=False)
    return _titled(ax, title)


@takes_iterators
def layer_map(ax, distances, tokens: Sequence[str], layers: Sequence[int], *, chosen=None, title=None):
    """Draw how far early layers' distributions are from the last one's, for each token of a text.

    Parameters
    ----------
    distances : array of floats, shape (layers, tokens)
        Jensen-Shannon divergences, in nats; the colours end at log 2, the largest there is.
    tokens : sequence of str
        The tokens that are predicted.
    layers : sequence of int
        Their numbers, the lowest drawn at the bottom.
    chosen : sequence of int, optional
        For each token the layer that was chosen; it gets a mark.
    """
    distances = np.asarray(distances, dtype=float)
    if distances.shape != (len(layers), len(tokens)):
        raise ValueError(
            f"there must be a distance for each layer and token, {(len(layers), len(tokens))}; got {distances.shape}"
        )
    image = ax.imshow(distances, cmap=SHADES, vmin=0, vmax=np.log(2), aspect="auto", interpolation="nearest")
    if chosen is not None:
        rows = [list(layers).index(layer) for layer in chosen]
        mark = {"marker": "o", "linestyle": "none", "markersize": 6, "markeredgecolor": "white"}
        ax.plot(range(len(rows)), rows, color=LIGHT["rejected"], **mark, label="the layer chosen")
        ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.01))
    ax.figure.colorbar(image, ax=ax, label="JSD from the last layer (nats)", fraction=0.025, pad=0.02)
    names = [token_label(text, 12) for text in tokens]
    ax.set_xticks(range(len(names)), names, rotation=90, parse_math=False, fontsize=9)
    ax.set_yticks(range(len(layers)), [str(layer) for layer in layers])
    ax.invert_yaxis()
    ax.set(xlabel="token that is predicted", ylabel="early layer")
    ax.grid(visible=False)
    return _titled(ax, title)


@takes_iterators
def setting_curves(ax, curves: Mapping[str, Mapping], *, y, levels: Mapping[str, Mapping] | None = None, title=None):
    """Draw a figure of a sweep against the setting that was swept, with shaded intervals.

    Parameters
    ----------
    curves : mapping from names to mappings from settings to rows
        One curve each. Settings are drawn at even distances, in the order of the curve that has most of them.
    y : str
        Which value of the rows to draw; ``y_interval`` of the row, if it is there, is shaded.
    levels : mapping from names to rows, optional
        Rows without a setting, such as plain sampling: level lines.

    Raises
    ------
    ValueError
        If there are more curves than looks for them, or a curve has a setting that the longest one has not.
    """
    if len(curves) > len(LOOKS):
        raise ValueError(f"there are looks for {len(LOOKS)} curves, got {len(curves)}")
    settings = list(max(curves.values(), key=len))
    for look, (name, rows) in zip(LOOKS, curves.items(), strict=False):
        strange = [setting for setting in rows if setting not in settings]
        if strange:
            raise ValueError(f"the curve {name!r} has the settings {strange}, which are not among {settings}")
        # A value may be None, where there was nothing to count.
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
    return _titled(ax, title)


def _positive(probs, tokens, name):
    """Probabilities of which the logarithm can be taken: one for each token, summing to 1, none of them 0."""
    probs = _probabilities(probs, tokens)
    if abs(probs.sum() - 1) > 1e-4:
        raise ValueError(f"the probabilities of the {name} must sum to 1, got {probs.sum():g}")
    if (probs <= 0).any():
        raise ValueError(f"the {name} gives {tokens[int(probs.argmin())]!r} no probability: its logarithm is infinite")
    return probs
