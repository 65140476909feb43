"""One palette for the whole book: each kind of token has the same colour and mark everywhere.

Six kinds of token have a colour: chosen by the target, drafted, accepted, rejected, resampled in place of a rejected
token, and the bonus after a draft that was accepted completely. Each also has a mark, a hatch and a line style, because
colour alone must never carry the meaning. The colours remain distinct when red-green and blue-yellow colour blindness
are simulated. All of them are legible as text on the page they are for, and as marks in the boxes of the player
(`tests/test_viz_palette.py` checks this).

This file has the colours and the look of figures. It draws nothing: see `style.py` and `player.py`.
"""

import sys

# The six kinds, in the order in which legends list them.
KINDS = ("target", "draft", "accepted", "rejected", "resampled", "bonus")

# For a white page and for every figure (figures are opaque, so they look the same on a dark page).
LIGHT = {
    "target": "#2563d9",  # blue
    "draft": "#a86505",  # amber
    "accepted": "#0b5a3c",  # deep green
    "rejected": "#d92a64",  # pink red
    "resampled": "#57187f",  # deep purple
    "bonus": "#9b5f9b",  # mauve
    "neutral": "#646b75",  # drafted but never checked
    "context": "#646b75",  # the prompt and other text that is already there
    "background": "#ffffff",
    "surface": "#f5f7fa",
    "line": "#d3d9e0",
    "text": "#1b2027",
}

# The same hues on a dark page.
DARK = {
    "target": "#b4cbff",
    "draft": "#e2a90c",
    "accepted": "#92f5c4",
    "rejected": "#ee6678",
    "resampled": "#a974f6",
    "bonus": "#b973b4",
    "neutral": "#9aa4b1",
    "context": "#9aa4b1",
    "background": "#181c22",
    "surface": "#20262e",
    "line": "#3b444f",
    "text": "#e8ebef",
}

# The same meanings as those of the colours, shown without colour.
MARKS = {
    "target": "●",
    "draft": "◇",
    "accepted": "✓",
    "rejected": "✗",
    "resampled": "↻",
    "bonus": "★",
    "neutral": "○",
    "context": "",
}
HATCHES = {
    "target": "",
    "draft": "..",
    "accepted": "//",
    "rejected": "xx",
    "resampled": "\\\\",
    "bonus": "**",
    "neutral": "",
    "context": "",
}
LINES = {
    "target": "-",
    "draft": ":",
    "accepted": "-",
    "rejected": "--",
    "resampled": "-.",
    "bonus": (0, (6, 1.5)),
    "neutral": ":",
    "context": "-",
}
MEANINGS = {
    "target": "chosen by the target",
    "draft": "drafted",
    "accepted": "drafted and accepted",
    "rejected": "drafted and rejected",
    "resampled": "resampled or corrected: the target's own token in place of a rejected one",
    "bonus": "bonus: the target's own token after a draft that was accepted whole",
    "neutral": "drafted, never checked",
    "context": "context",
}

# The look of every figure. The font comes with matplotlib, so every machine has it, and it contains the marks.
STYLE = {
    "figure.facecolor": "white",
    "figure.figsize": (7.0, 3.6),
    "figure.dpi": 110,
    "savefig.facecolor": "white",
    "savefig.transparent": False,
    "savefig.bbox": "tight",
    "axes.facecolor": "white",
    "axes.edgecolor": LIGHT["neutral"],
    "axes.labelcolor": LIGHT["text"],
    "axes.titlecolor": LIGHT["text"],
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 11,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#e3e7ec",
    "grid.linewidth": 0.8,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 11,
    "hatch.linewidth": 0.6,
    "lines.linewidth": 2.0,
    "lines.markersize": 6,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "text.color": LIGHT["text"],
    "legend.fontsize": 10,
    "legend.frameon": True,
    "legend.framealpha": 1.0,
    "legend.edgecolor": LIGHT["line"],
}


def color(kind):
    """Return the colour of a kind of token in figures, as ``#rrggbb``.

    Raises
    ------
    ValueError
        If `kind` is not in the palette.
    """
    check_kind(kind)
    return LIGHT[kind]


def check_kind(kind):
    """Raise ValueError with a list of the kinds, unless `kind` has a colour and a mark."""
    if kind not in MARKS:
        raise ValueError(f"{kind!r} is not a kind of token; use one of {', '.join(MARKS)}")


def use_book_style():
    """Give all later figures the look of the book: seaborn's white grid, the palette, and an opaque background.

    In a notebook, figures are drawn with twice as many pixels as usual and shown at the same size, so that they are
    sharp on the screens of phones and newer laptops.
    """
    import seaborn

    seaborn.set_theme(context="notebook", style="whitegrid", palette=[LIGHT[kind] for kind in KINDS], rc=STYLE)
    ipython = sys.modules.get("IPython")  # not imported here: outside a notebook, there is nothing to set
    if ipython is not None and ipython.get_ipython() is not None:
        from matplotlib_inline.backend_inline import set_matplotlib_formats

        set_matplotlib_formats("retina")


def css_variables(colors):
    """Write one set of colours, `LIGHT` or `DARK`, as CSS custom properties.

    Every colour gets a ``--tl-<name>``. Those that have a mark also get a ``--tl-<name>-soft``, for use behind text.

    Returns
    -------
    str
        Declarations such as ``--tl-target:#2563d9;--tl-target-soft:rgba(37,99,217,.12);``, without a selector.
    """
    solid = "".join(f"--tl-{name}:{value};" for name, value in colors.items())
    opacity = ".11" if colors is LIGHT else ".17"
    soft = "".join(f"--tl-{kind}-soft:rgba({','.join(map(str, rgb(colors[kind])))},{opacity});" for kind in MARKS)
    return solid + soft


def rgb(value):
    """Split ``#rrggbb`` into three integers from 0 to 255."""
    return tuple(int(value[i : i + 2], 16) for i in (1, 3, 5))
