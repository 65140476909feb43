"""Figures about drafts that need no draft model: what is copied, trees, windows and their masks, batches, and γ.

Functions that take an axes, draw on it, and return it, as in `plots.py`. Nothing here runs a model or a method: tokens,
trees and counts come in. Texts of tokens are sequences of str, by node, place or row.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.colors import ListedColormap

from ..arguments import takes_iterators
from .palette import HATCHES, LIGHT, LINES, MARKS, check_kind, color
from .plots import _box, _pale, _titled, token_label

_LETTER = 0.62  # width of a letter, in the data units of the drawings of boxes


@takes_iterators
def lookup_strip(
    ax, tokens: Sequence[str], *, found: int, length: int, drafted: Sequence[str], accepted: int, title=None
):
    """Draw where a draft was copied from: the n-gram that ends the text, its earlier occurrence, and what followed.

    Parameters
    ----------
    tokens : sequence of str
        The text.
    found : int
        Where the earlier occurrence begins.
    length : int
        Tokens of the n-gram: ``tokens[found : found + length]`` must be the last tokens of the text.
    drafted : sequence of str
        The draft, which must be what followed.
    accepted : int
        How many of them were kept.

    Raises
    ------
    ValueError
        If that is no earlier occurrence, or something else followed it.
    """
    tokens, drafted = list(tokens), list(drafted)
    if not 0 <= found < len(tokens) - length or tokens[found : found + length] != tokens[len(tokens) - length :]:
        raise ValueError(f"the last {length} tokens do not occur at place {found}: {tokens}")
    if tokens[found + length : found + length + len(drafted)] != drafted:
        raise ValueError(f"{drafted} did not follow the {length} tokens at place {found}: {tokens}")
    fates = ["accepted"] * accepted + ["rejected"] + ["neutral"] * len(drafted)
    kinds = ["context"] * len(tokens) + fates[: len(drafted)]
    edges = _row(ax, [*tokens, *drafted], kinds)
    end = len(tokens)
    for start, stop, name in ((found, found + length, "said before"), (end - length, end, "the text ends so")):
        _brace(ax, edges[start][0], edges[stop - 1][1], name, LIGHT["target"])
    follow, draft = (found + length, found + length + len(drafted)), (end, end + len(drafted))
    _brace(ax, edges[follow[0]][0], edges[follow[1] - 1][1], "what followed", LIGHT["draft"])
    _brace(ax, edges[draft[0]][0], edges[draft[1] - 1][1], "the draft", LIGHT["draft"])
    middles = [(edges[a][0] + edges[b - 1][1]) / 2 for a, b in (follow, draft)]
    arrow = {"arrowstyle": "->", "color": LIGHT["draft"], "linewidth": 1.6, "connectionstyle": "arc3,rad=-0.22"}
    ax.annotate("", (middles[1], -0.1), (middles[0], -0.1), arrowprops=arrow)
    ax.set_xlim(-0.3, edges[-1][1] + 0.3)
    ax.set_ylim(2.3, -2.6)
    ax.set_axis_off()
    return _titled(ax, title)


def _row(ax, tokens, kinds, y=0.0):
    """A row of boxes; the left and right edge of each."""
    edges, x = [], 0.0
    for text, kind in zip(tokens, kinds, strict=True):
        check_kind(kind)
        shown = f"{MARKS[kind]} {token_label(text, 14)}".strip()
        wide = _LETTER * len(shown) + 0.9
        _box(ax, x, y, wide, kind)
        _word(ax, x + wide / 2, y + 0.4, shown)
        edges.append((x, x + wide))
        x += wide + 0.25
    return edges


def _word(ax, x, y, text, size=9, **style):
    look = {"family": ["DejaVu Sans Mono", "DejaVu Sans"], "fontsize": size, "parse_math": False, "zorder": 4}
    ax.text(x, y, text, ha="center", va="center", **{**look, **style})


def _brace(ax, left, right, name, hue):
    ax.plot([left, left, right, right], [1.0, 1.2, 1.2, 1.0], color=hue, linewidth=1.4)
    ax.text((left + right) / 2, 1.35, name, ha="center", va="top", color=hue, fontsize=9)


@takes_iterators
def token_tree(
    ax, tree, names: Sequence[str], *, kinds: Sequence[str] = (), notes: Sequence[str] = (), root="", title=None
):
    """Draw a tree of candidates that grows to the right.

    Parameters
    ----------
    tree : TokenTree
    names : sequence of str
        The text of each node, in node order.
    kinds : sequence of str, optional
        What became of each node, a kind of the palette; by default all are drafted.
    notes : sequence of str, optional
        What to write on the edge that leads to each node: an estimate, say.
    root : str
        What the tree hangs on.
    """
    kinds, notes = list(kinds) or ["draft"] * len(tree), list(notes) or [""] * len(tree)
    if not len(tree) == len(names) == len(kinds) == len(notes):
        raise ValueError(f"a tree of {len(tree)} nodes; got {len(names)} names, {len(kinds)} kinds, {len(notes)} notes")
    heights, leaves = {}, 0

    def place(node):
        nonlocal leaves
        children = tree.children(node)
        for child in children:
            place(child)
        if children:
            heights[node] = (heights[children[0]] + heights[children[-1]]) / 2
        else:
            heights[node], leaves = -float(leaves), leaves + 1

    place(-1)
    depths = [-1 if node < 0 else tree.depths[node] for node in range(-1, len(tree))]
    shown = [root, *(f"{MARKS[kind]} {token_label(name, 12)}".strip() for name, kind in zip(names, kinds, strict=True))]
    # Each depth takes the room of its longest text.
    widths = [max(_LETTER * len(text) + 0.9 for text, d in zip(shown, depths, strict=True) if d == depth)
              for depth in range(-1, max(depths) + 1)]  # fmt: skip
    gap = 2.8 if any(notes) else 1.0
    lefts = np.concatenate([[0.0], np.cumsum(np.array(widths) + gap)])
    for node in range(len(tree)):
        parent = tree.parents[node]
        start = lefts[depths[parent + 1] + 1] + _LETTER * len(shown[parent + 1]) + 0.9
        ends = (start, lefts[depths[node + 1] + 1]), (heights[parent] + 0.4, heights[node] + 0.4)
        kept = kinds[node] == "accepted"
        ax.plot(*ends, color=LIGHT[kinds[node]] if kept else LIGHT["line"], linewidth=2.4 if kept else 1.4, zorder=1)
        if notes[node]:
            # Beside the node rather than halfway: edges part from each other there.
            x, y = ends[0][1] - 1.25, ends[1][1]
            box = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none"}
            ax.text(x, y, notes[node], ha="center", va="center", fontsize=8.5, zorder=3, bbox=box)
    for node, text in enumerate(shown, start=-1):
        if text:
            kind = "context" if node < 0 else kinds[node]
            x, wide = lefts[depths[node + 1] + 1], _LETTER * len(text) + 0.9
            _box(ax, x, heights[node], wide, kind)
            _word(ax, x + wide / 2, heights[node] + 0.4, text)
    ax.set_xlim(-0.3, lefts[-1])
    ax.set_ylim(-leaves + 0.7, 1.2)
    ax.set_axis_off()
    return _titled(ax, title)


@takes_iterators
def window_grid(ax, columns: Sequence[Sequence[str]], new: Sequence[str], *, explain: int | None = None, title=None):
    """Draw lookahead's window: a row for each column of the method, each token over the place it is guessed for.

    Parameters
    ----------
    columns : sequence of sequences of str
        Column i holds guesses for the places i + 1, i + 2, ... after the text, the oldest first.
    new : sequence of str
        What the model says after each of them.
    explain : int, optional
        A column: what the model was given for its new guess gets a solid frame.
    """
    if len(columns) != len(new) or len({len(column) for column in columns}) != 1:
        raise ValueError(f"columns of one length and a new guess for each are needed; got {columns} and {new}")
    levels = len(columns[0])
    wide = max(_LETTER * len(token_label(text, 12)) + 1.4 for text in [*sum(map(list, columns), []), *new])
    step = wide + 0.3
    for i, (column, guess) in enumerate(zip(columns, new, strict=True)):
        for level, text in enumerate([*column, guess]):
            x, y = (i + level) * step, 1.15 * i
            is_new = level == levels
            given = explain is not None and not is_new and (i == explain or (level == 0 and i < explain))
            asked = is_new and explain == i
            hue = LIGHT["target"] if is_new else LIGHT["draft"]
            solid = given or asked
            face = _pale(hue) if explain is None or solid else "white"
            look = {"facecolor": face, "edgecolor": hue, "linewidth": 2.2 if solid else 1.0}
            _slot(ax, x, y, wide, linestyle="-" if solid or explain is None else ":", **look)
            mark = MARKS["target"] if is_new else MARKS["draft"]
            _word(ax, x + wide / 2, y + 0.4, f"{mark} {token_label(text, 12)}")
    for place in range(len(columns) + levels):
        label = {"ha": "center", "va": "bottom", "fontsize": 9, "color": LIGHT["neutral"]}
        ax.text(place * step + wide / 2, -0.25, f"place {place + 1}", **label)
    ax.set_xlim(-0.3, (len(columns) + levels) * step)
    ax.set_ylim(1.15 * len(columns), -1.0)
    ax.set_axis_off()
    return _titled(ax, title)


def _slot(ax, x, y, wide, **style):
    from matplotlib.patches import FancyBboxPatch

    ax.add_patch(FancyBboxPatch((x, y), wide, 0.8, boxstyle="round,pad=0,rounding_size=0.15", zorder=2, **style))


@takes_iterators
def tree_mask(ax, tree, names: Sequence[str], groups: Mapping[str, int] | None = None, *, title=None):
    """Draw who attends to whom in a call that scores a tree: a dark square where a row's token sees a column's.

    What comes before the tree is seen by all, and is one column on the left.

    Parameters
    ----------
    tree : TokenTree
    names : sequence of str
        The text of each node.
    groups : mapping from names to numbers of nodes, optional
        What the nodes are, in their order; a line parts one group from the next.
    """
    if len(tree) != len(names):
        raise ValueError(f"there must be a name for each of the {len(tree)} nodes, got {len(names)}")
    if groups and sum(groups.values()) != len(tree):
        raise ValueError(f"the groups {dict(groups)} must sum up to the {len(tree)} nodes")
    seen = np.ones((len(tree), len(tree) + 1))
    seen[:, 1:] = 2 * tree.mask().numpy()
    shades = ListedColormap(["#ffffff", _pale(LIGHT["context"]), color("target")])
    ax.imshow(seen, cmap=shades, vmin=0, vmax=2, interpolation="nearest", aspect="equal")
    shown = [f"{token_label(name, 9)}" for name in names]
    look = {"parse_math": False, "fontsize": 8.5, "family": ["DejaVu Sans Mono", "DejaVu Sans"]}
    ax.set_yticks(range(len(tree)), shown, **look)
    ax.set_xticks(range(len(tree) + 1), ["text", *shown], rotation=90, **look)
    ax.xaxis.tick_top()
    ax.set_xticks(np.arange(-0.5, len(tree) + 1), minor=True)
    ax.set_yticks(np.arange(-0.5, len(tree)), minor=True)
    ax.grid(which="major", visible=False)
    ax.grid(which="minor", color=LIGHT["line"], linewidth=0.6)
    ax.tick_params(which="both", length=0)
    at = -0.5
    for name, count in (groups or {}).items():
        ax.text(len(tree) + 0.8, at + count / 2, name, va="center", ha="left", fontsize=9.5)
        at += count
        if at < len(tree) - 0.5:
            ax.axhline(at, color=LIGHT["text"], linewidth=1.2)
            ax.axvline(at + 1, color=LIGHT["text"], linewidth=1.2)
    ax.set_ylabel("this token sees …")
    return _titled(ax, title)


@takes_iterators
def two_tokenizations(
    ax, rows: Mapping[str, Sequence[str]], shared: Mapping[str, Sequence[bool]] | None = None, *, title=None
):
    """Draw one text as two (or more) tokenizers divide it, letter under letter.

    Parameters
    ----------
    rows : mapping from names to sequences of str
        The pieces of each tokenizer; joined, all rows must be the same text.
    shared : mapping from names to sequences of bool, optional
        Which pieces are in the other vocabulary too. Those are solid and ticked, others crossed.
    """
    texts = {"".join(pieces) for pieces in rows.values()}
    if len(texts) != 1:
        raise ValueError(f"the rows must be one text, got {sorted(texts)}")
    for y, (name, pieces) in enumerate(rows.items()):
        x = 0
        flags = (shared or {}).get(name, [True] * len(pieces))
        for piece, is_shared in zip(pieces, flags, strict=True):
            kind = "accepted" if is_shared else "rejected"
            _box(ax, x + 0.05, 1.6 * y, len(piece) - 0.1, kind)
            for offset, letter in enumerate(token_label(piece, 99)):
                _word(ax, x + offset + 0.5, 1.6 * y + 0.4, letter)
            x += len(piece)
        ax.text(-0.6, 1.6 * y + 0.4, name, ha="right", va="center", fontsize=10)
    ax.set_xlim(-0.4, len(texts.pop()) + 0.4)
    ax.set_ylim(1.6 * len(rows) - 0.3, -0.4)
    ax.set_axis_off()
    return _titled(ax, title)


@takes_iterators
def batch_round(ax, lengths: Sequence[int], fed: Sequence[int], accepted: Sequence[int], *, title=None):
    """Draw the cache of a batch in one round of speculation: a row for each text, a column for each position.

    Parameters
    ----------
    lengths : sequence of int
        Tokens of each row that are in the cache before the call.
    fed : sequence of int
        Tokens of each row in the call: the last token of its text, and the draft.
    accepted : sequence of int
        How many of the drafted ones each row keeps. The rest is forgotten, and overwritten in the next round.
    """
    if not len(lengths) == len(fed) == len(accepted):
        raise ValueError(f"one number for each row, got {len(lengths)}, {len(fed)} and {len(accepted)}")
    if any(count > max(tokens - 1, 0) for count, tokens in zip(accepted, fed, strict=True)):
        raise ValueError(f"a row cannot keep more than it drafted: fed {list(fed)}, accepted {list(accepted)}")
    width = max(length + max(fed) for length in lengths)
    looks = {
        "in the cache": {"facecolor": _pale(LIGHT["context"]), "edgecolor": LIGHT["context"]},
        "the text's last token": {"facecolor": _pale(LIGHT["target"]), "edgecolor": LIGHT["target"]},
        "drafted and accepted": _hatched("accepted"),
        "drafted and rejected": _hatched("rejected"),
        "not used, seen by nobody": {"facecolor": "white", "edgecolor": LIGHT["line"], "linestyle": ":"},
    }
    for row, (length, tokens, kept) in enumerate(zip(lengths, fed, accepted, strict=True)):
        for slot in range(width):
            if slot < length:
                look = "in the cache"
            elif slot == length and tokens:
                look = "the text's last token"
            elif slot <= length + kept:
                look = "drafted and accepted"
            elif slot < length + tokens:
                look = "drafted and rejected"
            else:
                look = "not used, seen by nobody"
            _slot(ax, slot + 0.08, row + 0.1, 0.84, **looks[look])
    from matplotlib.patches import Rectangle

    handles = [Rectangle((0, 0), 1, 1, **look) for look in looks.values()]
    ax.legend(handles, list(looks), loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=3, fontsize=9)
    ax.set_xlim(0, width)
    ax.set_ylim(len(lengths), 0)
    ax.set_yticks([row + 0.5 for row in range(len(lengths))], [f"text {row + 1}" for row in range(len(lengths))])
    ax.set_xlabel("position in the row")
    ax.grid(visible=False)
    return _titled(ax, title)


def _hatched(kind):
    return {"facecolor": _pale(color(kind)), "edgecolor": color(kind), "hatch": HATCHES[kind]}


@takes_iterators
def gamma_rounds(ax, rounds: Sequence[tuple[int, int]], *, passages: Sequence[tuple[int, int, str]] = (), title=None):
    """Draw γ round by round, each round at the place in the text where it begins.

    Parameters
    ----------
    rounds : sequence of (drafted, accepted)
        Each round adds one token more than it accepted.
    passages : sequence of (start, stop, name), optional
        Parts of the text to shade, in tokens.
    """
    if any(kept > drafted for drafted, kept in rounds):
        raise ValueError(f"a round cannot accept more than it drafted: {list(rounds)}")
    starts = np.cumsum([0, *(kept + 1 for _, kept in rounds)])
    drafted, kept = (np.array([round_[i] for round_ in rounds]) for i in (0, 1))
    wide = np.diff(starts) - 0.25
    for start, stop, name in passages:
        ax.axvspan(start, stop, color=_pale(LIGHT["context"]), alpha=0.6, linewidth=0)
        if name:
            ax.text((start + stop) / 2, 1.01, name, ha="center", va="bottom", fontsize=9,
                    transform=ax.get_xaxis_transform())  # fmt: skip
    solid = {"color": color("accepted"), "edgecolor": "white", "linewidth": 0.4}
    ax.bar(starts[:-1], kept, wide, align="edge", **solid, label=f"{MARKS['accepted']} accepted")
    rest = {"facecolor": _pale(color("rejected")), "edgecolor": color("rejected"), "hatch": HATCHES["rejected"]}
    ax.bar(
        starts[:-1],
        drafted - kept,
        wide,
        kept,
        align="edge",
        **rest,
        linewidth=0.6,
        label=f"{MARKS['rejected']} not kept",
    )
    ax.plot(starts[:-1], drafted, color=color("draft"), linestyle="-", drawstyle="steps-post", label="γ")
    ax.set(xlabel="tokens of the text so far", ylabel="drafted tokens", xlim=(0, starts[-1]))
    ax.set_ylim(0, drafted.max() * 1.12)
    return _titled(ax, title)


@takes_iterators
def break_even(ax, widths, relative, points: Mapping[str, Mapping[str, tuple[float, float]]], *, title=None):
    """Draw what a call costs by its width, and what methods get out of their calls: what is above the curve is faster.

    Parameters
    ----------
    widths, relative : sequences of numbers
        Tokens in a call, ascending; its time over that of a call with one token.
    points : mapping from names to mappings from labels to (width, tokens per call)
        A curve of marks for each name. At most four.
    """
    looks = [("target", "o"), ("draft", "s"), ("accepted", "^"), ("resampled", "D")]
    if len(points) > len(looks):
        raise ValueError(f"there are looks for {len(looks)} curves, got {len(points)}")
    ax.plot(widths, relative, color=LIGHT["text"], linewidth=2.2, label="cost of a call, in calls with one token")
    ax.fill_between(widths, relative, 0, color=_pale(LIGHT["rejected"]), alpha=0.35, linewidth=0)
    for (kind, mark), (name, found) in zip(looks, points.items(), strict=False):
        places = sorted(found.values())
        ax.plot(
            *zip(*places, strict=True),
            color=color(kind),
            marker=mark,
            linestyle=LINES[kind],
            label=f"tokens a call: {name}",
        )
        for label, place in found.items():
            # To the left and above: the curve goes on to the right.
            ax.annotate(label, place, (2, 7), textcoords="offset points", ha="right", fontsize=8.5, color=color(kind))
    ax.set(xlabel="tokens in the call (mean)", ylabel="per call")
    ax.set_ylim(0, None)
    ax.legend(loc="upper left")
    return _titled(ax, title)
