"""TLI and SLEM side by side: probabilities restricted to shared tokens, and a text rewritten in other tokens."""

from collections.abc import Mapping, Sequence

from ...arguments import takes_iterators
from ...viz.palette import LIGHT
from ...viz.style import arrow, drawing, slot, token_box, token_label, word

SIZE = 12.5
GUESS = {"facecolor": "none", "edgecolor": LIGHT["target"], "linewidth": 2.6}


@takes_iterators
def tli_beside_slem(
    ax,
    probs: Mapping[str, float],
    target_vocab: Sequence[str],
    written: Sequence[str],
    guess: Sequence[str],
    *,
    drawn: str,
    title=None,
):
    """Draw how TLI and SLEM get from a draft with another tokenizer to tokens that the target checks (thick frames).

    Parameters
    ----------
    ax : matplotlib axes
        About 7.4 inches wide and 3.6 high.
    probs : mapping from str to float
        The draft's tokens with their probabilities.
    target_vocab : sequence of str
        Tokens of the target. TLI leaves out the draft's other tokens, and divides by the remaining probability.
    written, guess : sequences of str
        The same text, in the draft's tokens and in the target's tokens.
    drawn : str
        The token that TLI draws.

    Returns
    -------
    matplotlib axes
    """
    if "".join(written) != "".join(guess):
        raise ValueError(f"written and guess must be the same text, got {written} and {guess}")
    shared = [token for token in probs if token in set(target_vocab)]
    if drawn not in shared:
        raise ValueError(f"the drawn token must be a token of both models, {', '.join(shared)}; got {drawn!r}")
    total = sum(probs[token] for token in shared)
    _probabilities(ax, probs, shared, drawn, total)
    left = 16.1
    _retokenized(ax, written, guess, left)
    ax.plot([left - 1.1] * 2, [-1.4, 6.6], color=LIGHT["line"], linewidth=1.2)
    return drawing(ax, (-0.4, 29.6), (6.9, -1.9), title)


def _say(ax, x, y, text, **style):
    ax.text(x, y, text, **{"ha": "left", "va": "center", "fontsize": SIZE, **style})


def _probabilities(ax, probs, shared, drawn, total):
    """The left side: the draft's distribution, and the same restricted to the shared tokens."""
    _say(ax, 0, -1.3, "TLI", weight="bold", fontsize=SIZE + 1)
    _say(ax, 0, 0, "draft", color=LIGHT["draft"])
    _say(ax, 8.6, 0, "draw from", color=LIGHT["target"])
    for row, (token, prob) in enumerate(probs.items()):
        y, known = 0.8 + 1.35 * row, token in shared
        token_box(ax, 0, y, 4.2, "draft" if known else "rejected")
        word(ax, 2.1, y + 0.4, token_label(token), fontsize=SIZE)
        _say(ax, 4.5, y + 0.4, f"{prob:.3g}")
        if not known:
            _say(ax, 6.9, y + 0.4, "not shared", color=LIGHT["rejected"])
            continue
        arrow(ax, (6.8, y + 0.4), (8.4, y + 0.4), LIGHT["neutral"], shrinkA=0, shrinkB=0)
        token_box(ax, 8.6, y, 3.0, "draft")
        word(ax, 10.1, y + 0.4, token_label(token), fontsize=SIZE)
        _say(ax, 11.8, y + 0.4, f"{prob / total:.3g}")
        if token == drawn:
            slot(ax, 8.6, y, 3.0, **GUESS, zorder=5)
    _say(ax, 0, 6.1, r"accept with probability min(1, $p/q$)", color=LIGHT["target"])


def _retokenized(ax, written, guess, left):
    """The right side: a text in the draft's tokens, and below it in the target's."""
    _say(ax, left, -1.3, "SLEM", weight="bold", fontsize=SIZE + 1)
    for y, pieces in ((0.8, written), (3.5, guess)):
        x, own = left, y > 1
        for piece in pieces:
            wide = 1.05 * len(piece)
            token_box(ax, x, y, wide - 0.15, "draft")
            word(ax, x + wide / 2 - 0.08, y + 0.4, token_label(piece), fontsize=SIZE)
            if own:
                slot(ax, x, y, wide - 0.15, **GUESS, zorder=5)
            x += wide
    _say(ax, left, 0, "the draft writes", color=LIGHT["draft"])
    _say(ax, left, 4.75, "the target's tokens", color=LIGHT["target"])
    arrow(ax, (left + 5, 1.7), (left + 5, 3.4), LIGHT["neutral"], shrinkA=0, shrinkB=0)
    _say(ax, left + 5.4, 2.5, "the same text", color=LIGHT["neutral"])
    _say(ax, left, 6.1, r"check: draw from $p$, compare", color=LIGHT["target"])
