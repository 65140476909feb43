"""Tokens as boxes of text: strips, tokenizations, lookahead's window, how a network drafts, and lists of decisions.

Nothing here runs a model or a method: tokens, guesses and probabilities are passed in.
"""

from collections.abc import Mapping, Sequence

from ..arguments import takes_iterators
from .palette import LIGHT, MARKS, MEANINGS, check_kind
from .style import (
    arrow,
    box_width,
    drawing,
    marked,
    outlined,
    pale,
    slot,
    swatches,
    titled,
    token_box,
    token_label,
    word,
)  # fmt: skip


@takes_iterators
def token_strip(ax, tokens: Sequence[str], kinds: Sequence[str] | None = None, *, title=None):
    """Draw tokens as a row of boxes, each in the colour, line and mark of its kind; long rows are wrapped.

    The boxes fit the size that the axes have when this is called. Each row needs about 0.35 inches of height.

    Parameters
    ----------
    tokens : sequence of str
        The texts, in order.
    kinds : sequence of str, optional
        The kind of each token: ``"target"``, ``"draft"``, ``"accepted"``, ``"rejected"``, ``"resampled"``,
        ``"neutral"`` (drafted but never checked) or ``"context"`` (the default).
    """
    kinds = ["context"] * len(tokens) if kinds is None else list(kinds)
    if len(kinds) != len(tokens):
        raise ValueError(f"there must be one kind for each token, got {len(tokens)} tokens and {len(kinds)} kinds")
    for kind in kinds:
        check_kind(kind)
    looks = [outlined(kind) for kind in kinds]
    texts = [marked(text, kind, 24) for text, kind in zip(tokens, kinds, strict=True)]
    below = _wrapped(ax, texts, looks, 1.3, 0.6, 2.6)
    used = [kind for kind in MARKS if kind in kinds]
    if used not in ([], ["context"]):
        names = [f"{MARKS[kind]} {MEANINGS[kind]}".strip() for kind in used]
        wide = ax.get_window_extent().width / ax.figure.dpi > 7  # inches: enough for two long names side by side
        ax.legend(swatches(map(outlined, used)), names, ncols=1 + wide, **below)
    return titled(ax, title)


def _wrapped(ax, texts, looks, pad, gap, leading):
    """Draw boxes in rows that are as long as the axes are wide; return where the legend goes, below the last row.

    A data unit to the right is a letter of the monospaced font (0.602 times the font size). A data unit downwards is a
    row (`leading` times the font size). `pad` and `gap` are in letters.
    """
    size = 9.5
    inches = ax.get_window_extent().size / ax.figure.dpi
    across, down = 72 * inches[0] / (0.602 * size), 72 * inches[1] / (leading * size)
    x, row = 0.0, 0
    for text, look in zip(texts, looks, strict=True):
        wide = len(text) + pad
        if x and x + wide > across:
            x, row = 0.0, row + 1
        slot(ax, x, row, wide, **look)
        word(ax, x + wide / 2, row + 0.4, text, fontsize=size)
        x += wide + gap
    rows = row + 1
    ax.set_xlim(-0.2, across)
    ax.set_ylim(max(rows, down) - 0.1, -0.1)
    ax.set_axis_off()
    at = (0, 1 - rows / max(rows, down))
    return {"loc": "upper left", "bbox_to_anchor": at, "borderaxespad": 0.2, "frameon": False}


@takes_iterators
def two_tokenizations(ax, rows: Mapping[str, Sequence[str]], shared: Mapping[str, Sequence[bool]], *, title=None):
    """Draw how two (or more) tokenizers divide the same text, letter under letter.

    `rows` has the pieces of each tokenizer; joined, the pieces of every row must give the same text. `shared` tells
    which pieces are in the other vocabulary too: these boxes are solid, the others dashed.
    """
    texts = {"".join(pieces) for pieces in rows.values()}
    if len(texts) != 1:
        raise ValueError(f"the rows must be the same text, got {sorted(texts)}")
    for y, (name, pieces) in enumerate(rows.items()):
        x = 0
        for piece, is_shared in zip(pieces, shared[name], strict=True):
            token_box(ax, x + 0.05, 1.6 * y, len(piece) - 0.1, "accepted" if is_shared else "rejected")
            for offset, letter in enumerate(token_label(piece, 99)):
                word(ax, x + offset + 0.5, 1.6 * y + 0.4, letter, fontsize=11)
            x += len(piece)
        ax.text(-0.6, 1.6 * y + 0.4, name, ha="right", va="center", fontsize=11)
    return drawing(ax, (-0.4, len(texts.pop()) + 0.4), (1.6 * len(rows) - 0.3, -0.4), title)


@takes_iterators
def window_grid(ax, columns: Sequence[Sequence[str]], new: Sequence[str], *, explain: int | None = None, title=None):
    """Draw lookahead's window: each of its columns as a row, with each token below the position that it is a guess for.

    Column i holds guesses for the positions i + 1, i + 2, ... after the text, the oldest first. `new` has the model's
    prediction after each column. The tokens on which the new guess of column `explain` is based get a solid frame.
    """
    if len(columns) != len(new) or len({len(column) for column in columns}) != 1:
        raise ValueError(f"the columns must have the same length, and a new guess each; got {columns} and {new}")
    levels = len(columns[0])
    wide = max(box_width(marked(text, "draft")) for text in [*sum(map(list, columns), []), *new])
    step = wide + 0.3
    for i, (column, guess) in enumerate(zip(columns, new, strict=True)):
        for level, text in enumerate([*column, guess]):
            x, y = (i + level) * step, 1.15 * i
            kind = "target" if level == levels else "draft"
            solid = explain is not None and (i == explain or (level == 0 and i < explain))
            face, dashes = (pale(LIGHT[kind]), "-") if explain is None or solid else ("white", ":")
            look = {"facecolor": face, "edgecolor": LIGHT[kind], "linewidth": 2.2 if solid else 1.0}
            slot(ax, x, y, wide, rounding=0.15, linestyle=dashes, **look)
            word(ax, x + wide / 2, y + 0.4, marked(text, kind), fontsize=11)
    label = {"ha": "center", "va": "bottom", "fontsize": 11, "color": LIGHT["neutral"]}
    for position in range(len(columns) + levels):
        ax.text(position * step + wide / 2, -0.25, f"position {position + 1}", **label)
    return drawing(ax, (-0.3, (len(columns) + levels) * step), (1.15 * len(columns), -1.0), title)


@takes_iterators
def draft_step(
    ax, text: Sequence[str], drafted: Sequence[tuple[str, float]], *, fused: Sequence[int] = (), kept=None, title=None
):
    """Draw how a network drafts, one column per position: a feature and the next token go in, a guess comes out.

    Each column is read from the bottom up. Within the text, the features are the target's; after it, both inputs are
    the network's own guesses.

    Parameters
    ----------
    text : sequence of str
        The last tokens of the text. Each is paired with the feature of the token before it.
    drafted : sequence of (str, float)
        The network's guesses after the text, in order, with the probability that it gives to each. The first comes from
        the last column of the text; the last is not an input of any column.
    fused : sequence of int
        For EAGLE-3, the layers whose features go in; without them, EAGLE-1 is drawn.
    kept : int, optional
        How many of the guesses the target accepts; by default, this is not shown.
    """
    if not text or not drafted:
        raise ValueError(f"a draft step needs tokens of a text and guesses, got {len(text)} and {len(drafted)}")
    if kept is not None and not 0 <= kept <= len(drafted):
        raise ValueError(f"of {len(drafted)} guesses from 0 to {len(drafted)} can be kept, got {kept}")
    fates = ["draft"] * len(drafted)
    if kept is not None:
        fates = ["accepted"] * kept + ["rejected"] + ["neutral"] * len(drafted)
    guesses = [marked(token, fate) for fate, (token, _) in zip(fates, drafted, strict=False)]
    tokens = [token_label(token, 12) for token in [*text, *(token for token, _ in drafted[:-1])]]
    wide = max(*map(box_width, [*tokens, *guesses]), 3.4 if fused else 2.6)
    step, last = wide + 1.8, len(text) - 1
    state, reads = (r"\hat a", "own norm and head") if fused else (r"\hat f", "the target's head")
    feature = 1.6 if fused else 0.0
    token_at, band, out, head, guess = feature + 1.0, feature + 2.5, feature + 3.9, feature + 5.2, feature + 6.4
    right = step * (len(tokens) - 1) + wide
    for y, name, own in ((band, "draft network: one layer", True), (head, reads, bool(fused))):
        look = {"facecolor": LIGHT["surface"], "edgecolor": LIGHT["draft" if own else "target"], "linewidth": 1.4}
        # The arrows from one column to the next pass behind it.
        slot(ax, -0.4, y, right + 0.8, high=0.7, **look)
        ax.text(right / 2, y + 0.35, name, ha="center", va="center", fontsize=9.5, weight="bold", zorder=4)
    for column, token in enumerate(tokens):
        x, middle, ours = column * step, column * step + wide / 2, column > last
        pair = {"facecolor": LIGHT["surface"], "edgecolor": LIGHT["line"], "linewidth": 1.0, "zorder": 1.5}
        slot(ax, x - 0.15, feature - 0.15, wide + 0.3, high=2.1, **pair)
        if fused and not ours:
            each = wide / len(fused)
            for part, letter in zip(range(len(fused)), "lmhijk", strict=False):
                token_box(ax, x + part * each + 0.05, 0, each - 0.1, "target")
                _formula(ax, x + (part + 0.5) * each, 0.4, letter, place=None)
            ax.text(middle + 0.25, 1.13, "fc", ha="left", va="center", fontsize=8.5, color=LIGHT["neutral"])
            _up(ax, middle, 0.82, feature - 0.17)
        token_box(ax, x, feature, wide, "draft" if ours else "target")
        _formula(ax, middle, feature + 0.4, state if ours else "g" if fused else "f", place=column - last)
        token_box(ax, x, token_at, wide, "draft" if ours else "context", token)
        _up(ax, middle, token_at + 0.97, band - 0.03)
        _up(ax, middle, band + 0.72, out - 0.03)
        token_box(ax, x, out, wide, "draft")
        _formula(ax, middle, out + 0.4, state, place=column - last + 1)
        if column < last:
            continue
        number = column - last
        _up(ax, middle, out + 0.82, head - 0.03)
        _up(ax, middle, head + 0.72, guess - 0.03)
        token_box(ax, x, guess, wide, fates[number], guesses[number])
        ax.text(middle, guess + 0.9, f"{drafted[number][1]:.2f}", ha="center", va="bottom", fontsize=9)
        if column + 1 < len(tokens):
            # The output goes into the next column: the feature as its feature, the token as its token.
            for y, into, bend in ((out, feature, 0.5), (guess, token_at, 1.05)):
                corners = [x + wide, x + wide + bend, x + wide + bend], [y + 0.4, y + 0.4, into + 0.4]
                ax.plot(*corners, color=LIGHT["draft"], linewidth=1.4, zorder=1.8)
                start, end = (x + wide + bend, into + 0.4), (x + step, into + 0.4)
                arrow(ax, start, end, LIGHT["draft"], linewidth=1.4, shrinkA=0, shrinkB=0)
    lines = [(feature, "fused" if fused else "feature"), (token_at, "next token")]
    lines += [(out, "state" if fused else "guessed feature"), (guess, "guessed token")]
    lines += [(0, "layers " + ", ".join(map(str, fused)))] if fused else []
    for y, name in lines:
        ax.text(-0.8, y + 0.4, name, ha="right", va="center", fontsize=9, color=LIGHT["neutral"])
    return drawing(ax, (-0.8 - 0.5 * max(len(name) for _, name in lines), right + 0.6), (-0.3, guess + 1.6), title)


def _formula(ax, x, y, letter, *, place):
    """Write a letter with its position, counted from the target's last feature: $f_{t+1}$ for 1."""
    below = "" if place is None else "_{t}" if place == 0 else f"_{{t{place:+d}}}"
    ax.text(x, y, f"${letter}{below}$", ha="center", va="center", fontsize=10.5, zorder=4)


def _up(ax, x, low, high):
    arrow(ax, (x, low), (x, high), linewidth=1.2, shrinkA=0, shrinkB=0)


@takes_iterators
def decision_list(ax, questions: Sequence[tuple[str, str]], otherwise: str, *, title=None):
    """Draw questions one below the other, each with what to do if the answer is yes; "no" leads to the next question.

    Parameters
    ----------
    questions : sequence of (question, what to do)
        Texts of one or two lines.
    otherwise : str
        What to do if every answer is no.
    """
    if not questions:
        raise ValueError("a decision list needs at least one question")
    wide, step, high = (6.4, 5.6), 1.55, 1.1
    right = wide[0] + 1.3
    for row, (question, answer) in enumerate(questions):
        y = step * row
        slot(ax, 0, y, wide[0], high=high, facecolor=LIGHT["surface"], edgecolor=LIGHT["neutral"], linewidth=1.4)
        slot(ax, right, y, wide[1], high=high, **outlined("accepted"))
        for x, text in ((wide[0] / 2, question), (right + wide[1] / 2, answer)):
            ax.text(x, y + high / 2, text, ha="center", va="center", fontsize=10, parse_math=False, zorder=4)
        arrow(ax, (wide[0], y + high / 2), (right, y + high / 2), LIGHT["accepted"], shrinkA=0, shrinkB=0)
        ax.text(wide[0] + 0.6, y + high / 2 - 0.1, "yes", ha="center", va="bottom", fontsize=9, color=LIGHT["accepted"])
        arrow(ax, (wide[0] / 2, y + high), (wide[0] / 2, y + step), shrinkA=0, shrinkB=0)
        ax.text(wide[0] / 2 + 0.15, y + (high + step) / 2, "no", va="center", fontsize=9)
    y = step * len(questions)
    slot(ax, 0, y, wide[0], high=high, **outlined("target"))
    ax.text(wide[0] / 2, y + high / 2, otherwise, ha="center", va="center", fontsize=10, parse_math=False, zorder=4)
    return drawing(ax, (-0.1, right + wide[1] + 0.1), (y + high + 0.1, -0.1), title)
