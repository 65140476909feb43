"""The trace player: a run, step by step, as one piece of HTML that needs no kernel and no network.

Python writes the whole page. All steps are in it, and it can be read without style and scripts (as on GitHub, and in
JupyterLab before it trusts a notebook): the first step is visible, and the others are folded. Where scripts run,
`player.js` unfolds the steps, hides all but one, and adds buttons, a slider and keys. So the script never receives
model text as data: there is no JSON to escape, and no element has an id that could clash with another player's. The
same trace always gives the same bytes. They are kept few, because a page or a notebook can have many players: a token's
kind is a class of one letter, and the element tells what it is (<b> in a box, <u> in the running text, <i> a mark).

Not here: the texts of tokens (`labels.py`), what happened to them (`kinds.py`), colours and marks (`palette.py`), and
anything about how a method works.
"""

import math
import re
from functools import cache
from html import escape
from importlib.resources import files
from itertools import zip_longest

from ..disk import write_text
from .kinds import added_kinds, drafted_kinds, tree_kinds
from .labels import flowing, labels_of
from .palette import DARK, KINDS, LIGHT, MARKS, MEANINGS, css_variables

# With more steps, a browser becomes slow. A longer run is cut to its first steps, and the player tells the reader.
MOST_STEPS = 600
# In plain text, only the first 30 and the last 5 steps are shown if a run has more than 40.
_TEXT_WHOLE, _TEXT_FIRST, _TEXT_LAST = 40, 30, 5
_MOST_CANDIDATES = 10
_MOST_HYPOTHESES = 16
# The kinds of token as classes in the page; player.css has one rule for each.
_CLASSES = {
    "target": "tl-t",
    "draft": "tl-d",
    "accepted": "tl-a",
    "rejected": "tl-r",
    "resampled": "tl-s",
    "bonus": "tl-b",
    "neutral": "tl-n",
}


class Player:
    """A trace to step through.

    Jupyter shows it as an interactive page (``text/html``) or as plain text, which is also ``str(player)``.

    Parameters
    ----------
    trace : Trace
        The result of `tutorlib.run`.
    labels : LM, tokenizer, sequence of str, or dict, optional
        The source of the tokens' texts; by default, the trace's own. See `tutorlib.viz.labels.Labels`.
    title : str, optional
        Shown at the top; by default the name of the method.

    Examples
    --------
    >>> run(greedy(lm, "Once upon a time"), max_new_tokens=20).show()        # doctest: +SKIP
    >>> trace.show().save("trace.html")                                     # doctest: +SKIP
    """

    def __init__(self, trace, labels=None, title=None):
        self.trace = trace
        self.labels = labels_of(trace, labels)
        self.title = flowing(str(title if title is not None else trace.method or "trace"))

    def __str__(self):
        return _plain(self)

    __repr__ = __str__

    def _repr_html_(self):
        return _html(self)

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/plain": str(self), "text/html": self._repr_html_()}

    def save(self, path):
        """Write the player as a page of its own, which any browser can open.

        Parameters
        ----------
        path : str or path-like
            The file to write. An existing file is overwritten.
        """
        page = (
            f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{_text(self.title)}</title>'
            '<meta name="viewport" content="width=device-width,initial-scale=1">'
            '<meta name="color-scheme" content="light dark"></head>'
            f"<body>{self._repr_html_()}</body></html>\n"
        )
        write_text(path, page)


def show(trace, labels=None, title=None):
    """Return a `Player` for `trace`. ``trace.show()`` calls this."""
    return Player(trace, labels, title)


def _facts(trace):
    """The run in a few words, without times, so that they are the same on every machine."""
    new = sum(len(step.tokens) for step in trace.steps)
    facts = [_many(new, "new token"), _many(trace.target_calls, "target call")]
    if trace.target_calls and new:
        facts.append(f"{new / trace.target_calls:.2f} tokens per call")
    if trace.scored_hypotheses:
        facts.append(f"hypotheses scored: {trace.scored_hypotheses}")
    if trace.stopped:
        facts.append(f"stopped: {trace.stopped}")
    return facts


def _calls(trace):
    """The number of target calls up to the end of each step, or None if the trace does not tell."""
    calls = [getattr(step, "calls", None) for step in trace.steps]
    if None not in calls:
        return calls
    # If there are as many calls as steps, the method makes one call per step, as most methods do.
    return list(range(1, len(calls) + 1)) if trace.target_calls == len(calls) else [None] * len(calls)


def _many(count, thing):
    return f"{count} {thing}" + ("" if count == 1 else "s")


def _number(value):
    """A probability or a score with two decimals. A third decimal could differ from one processor to another."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if 0 < value < 0.005:
        return "<0.01"
    return f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−")


# --------------------------------------------------------------------------------------------------------- plain text


def _plain(player):
    """The whole trace as text: a line about the run, the prompt, and one line per step."""
    trace, labels = player.trace, player.labels
    lines = [
        " · ".join([player.title, *_facts(trace)]),
        "prompt: " + "".join(labels.flowing(trace.prompt)).replace("\n", ""),
    ]
    calls = _calls(trace)
    count = len(trace.steps)
    left_out = count - _TEXT_FIRST - _TEXT_LAST if count > _TEXT_WHOLE else 0
    width = len(str(count))
    for i, step in enumerate(trace.steps):
        if left_out and i == _TEXT_FIRST:
            lines.append(f"… {left_out} more steps …")
        if left_out and _TEXT_FIRST <= i < _TEXT_FIRST + left_out:
            continue
        parts = ["step " + f"{i + 1}".rjust(width)]
        if calls[i] is not None:
            parts.append(f"call {calls[i]}".rjust(5 + len(str(calls[-1]))))
        parts.append(_plain_tokens(labels, step.tokens, added_kinds(step)) or "no token")
        left = [(token, kind) for token, kind in _drafted(step) if kind != "accepted"]
        if left:
            parts.append("not kept: " + _plain_tokens(labels, *zip(*left, strict=True)))
        if step.hypotheses:
            tokens, score = step.hypotheses[0]
            best = " ".join(labels.visible(token) for token in tokens)
            many = f"{len(step.hypotheses)} hypothes{'i' if len(step.hypotheses) == 1 else 'e'}s"
            parts.append(f"{many}, first {_number(score)}: {best}")
        if step.score is not None:
            parts.append(f"score {_number(step.score)}")
        if step.note:
            parts.append(flowing(" ".join(step.note.split())))
        lines.append(" · ".join(parts))
    return "\n".join(lines)


def _plain_tokens(labels, tokens, kinds):
    return " ".join(f"{MARKS[kind]}{labels.visible(token)}" for token, kind in zip(tokens, kinds, strict=True))


def _drafted(step):
    """The drafted tokens of a step, a tree or a chain, each with its kind."""
    if step.tree is not None:
        return list(zip(step.tree.tokens, tree_kinds(step), strict=True))
    return list(zip(step.drafted, drafted_kinds(step), strict=True))


# --------------------------------------------------------------------------------------------------------------- HTML


def _html(player):
    """The player as HTML: style, text, steps, legend, script. All model text in it is escaped by `_text`."""
    trace, labels = player.trace, player.labels
    steps = trace.steps[:MOST_STEPS]
    calls = _calls(trace)
    facts = " · ".join(_facts(trace))
    # The two class names keep MathJax away from model text. The data attribute keeps Jupyter's own keys from acting
    # inside the player.
    parts = [
        '<div class="tl-player tex2jax_ignore mathjax_ignore notranslate" translate="no" dir="ltr" role="group" '
        f'data-lm-suppress-shortcuts="true" aria-label="{_text(f"Trace of {player.title}: {facts}")}">',
        f"<style>{_style()}</style>",
        f'<div class="tl-head"><b class="tl-title">{_text(player.title)}</b> '
        f'<span class="tl-facts">{_text(facts)}</span></div>',
        f'<div class="tl-text">{_running_text(trace, steps, labels)}</div>',
        '<div class="tl-stage">',
    ]
    before = [[], *(step.hypotheses for step in steps)]  # what a search kept until each step
    parts += [_step(step, i, calls[i], labels, before[i]) for i, step in enumerate(steps)]
    if len(steps) > 2:
        parts.insert(
            -len(steps) + 1,
            f"<details><summary>Steps 2 to {len(steps)} are folded up. Open them here; or run this cell (in "
            "JupyterLab, trusting the notebook is enough), and buttons appear that take you through the run step by "
            "step.</summary>",
        )
        parts.append("</details>")
    if len(steps) < len(trace.steps):
        parts.append(
            f'<p class="tl-note">The {len(trace.steps) - len(steps)} steps after these are left out of this view.</p>'
        )
    parts += ["</div>", _legend(steps), f"<script>{_asset('player.js')}</script>", "</div>"]
    return "\n".join(parts)


def _text(value):
    """Escape text for HTML, inside an element or inside a quoted attribute."""
    return escape(str(value), quote=True)


def _running_text(trace, steps, labels):
    """The prompt and all added tokens as running text, a span for each step; the script hides the later steps."""
    prompt = list(trace.prompt)
    texts = labels.flowing(prompt + [token for step in steps for token in step.tokens])
    parts = [f'<span class="tl-prompt">{_text("".join(texts[: len(prompt)]))}</span>']
    texts = iter(texts[len(prompt) :])
    for step in steps:
        words = ((kind, next(texts)) for kind in added_kinds(step))
        parts.append(
            "<span>"
            + "".join(f"<u class={_CLASSES[kind]}>{_text(text)}</u>" for kind, text in words if text)
            + "</span>"
        )
    return "".join(parts)


def _token(labels, token, kind):
    """One token in a box: its mark and its text."""
    return (
        f'<b class={_CLASSES[kind]} title="{kind}, id {int(token)}"><i>{MARKS[kind]}</i>'
        f"{_text(labels.visible(token))}</b>"
    )


def _row(what, content, kind="tl-line"):
    return f'<div class="tl-row"><span class="tl-what">{what}</span> <div class="{kind}">{content}</div></div>'


def _step(step, i, calls, labels, before):
    """One step: the progress of the run, the drafted tokens, the added tokens, the candidates and hypotheses."""
    added = "+" + _many(len(step.tokens), "token") if step.tokens else "no token yet"
    heads = [f'<b class="tl-number">Step {i + 1}</b>', f'<span class="tl-facts">{added}</span>']
    if calls is not None:
        heads.append(f'<span class="tl-facts tl-calls">{_many(calls, "target call")} so far</span>')
    if step.score is not None:
        heads.append(f'<span class="tl-facts">score {_number(step.score)}</span>')
    parts = ['<div class="tl-step">', f'<div class="tl-stephead">{" ".join(heads)}</div>']
    if step.note:
        parts.append(f'<p class="tl-note">{_text(flowing(step.note))}</p>')
    if step.tree is not None and not step.tree.is_chain:
        parts.append(_row("tree", _tree(step, labels), "tl-tree"))
    elif drafted := _drafted(step):
        parts.append(_row("drafted", _boxes(labels, *zip(*drafted, strict=True))))
    if step.tokens:
        parts.append(_row("added", _boxes(labels, step.tokens, added_kinds(step)), "tl-line tl-added"))
    if any(step.candidates):
        # If the step was cut, no token was taken from the last lists.
        pairs = zip_longest(step.candidates, step.tokens[: len(step.candidates)])
        lists = [_candidates(choices, token, labels) for choices, token in pairs if choices]
        parts.append(_row("candidates", "".join(lists), "tl-weighed"))
    if step.hypotheses:
        parts.append(_row("hypotheses", _hypotheses(step, before, labels), "tl-tree"))
    return "\n".join([*parts, "</div>"])


def _boxes(labels, tokens, kinds):
    return " ".join(_token(labels, token, kind) for token, kind in zip(tokens, kinds, strict=True))


def _candidates(choices, taken, labels):
    """A list of candidates as bars. Their length is the probability; other scores are scaled from worst to best."""
    choices = list(choices)[:_MOST_CANDIDATES]
    finite = [value for _, value in choices if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    if low < 0 or high > 1:
        span = (high - low) or 1.0
        widths = [0.05 + 0.95 * (value - low) / span if math.isfinite(value) else 0.0 for _, value in choices]
    else:
        widths = [value if math.isfinite(value) else 0.0 for _, value in choices]
    items = []
    for (token, value), width in zip(choices, widths, strict=True):
        picked = taken is not None and int(token) == int(taken)
        items.append(
            f"<li{' class=tl-k' if picked else ''} style=--s:{round(100 * width)}%>"
            f"<i>{'▸ ' if picked else ''}{_text(labels.visible(token))}</i> <b>{_text(_number(value))}</b></li>"
        )
    return f"<ul>{''.join(items)}</ul>"


def _tree(step, labels):
    """The token tree as nested lists, in node order. There is no recursion, because trees can be deep."""
    tree, kinds = step.tree, tree_kinds(step)
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(tree.parents):
        children.setdefault(parent, []).append(node)
    parts: list[str] = []
    stack: list[tuple[str, int]] = [("list", -1)]  # what is still to be written, the last of it first
    while stack:
        what, node = stack.pop()
        if what not in ("list", "item"):
            parts.append(what)
        elif what == "list":
            parts.append("<ul>")
            stack.append(("</ul>", -1))
            stack.extend(("item", child) for child in reversed(children[node]))
        else:
            kept = " class=tl-k" if kinds[node] == "accepted" else ""
            parts.append(f"<li{kept}>{_token(labels, tree.tokens[node], kinds[node])}")
            stack.append(("</li>", -1))
            if node in children:
                stack.append(("list", node))
    return "".join(parts) if children else ""


def _hypotheses(step, before, labels):
    """What a search keeps after a step, as a tree with scores; at the end what it kept `before`, and no longer does."""
    held = {tuple(tokens): score for tokens, score in step.hypotheses[:_MOST_HYPOTHESES]}
    beginnings = {tokens[:length] for tokens in held for length in range(len(tokens) + 1)}
    gone = [tuple(tokens) for tokens, _ in before[:_MOST_HYPOTHESES] if tuple(tokens) not in beginnings]
    texts = {tokens: labels.flowing(tokens) for tokens in (*held, *gone)}

    def branches(sequences, start):
        forks: dict[int, list[tuple]] = {}
        for tokens in sequences:
            forks.setdefault(tokens[start], []).append(tokens)
        return f"<ul>{''.join(branch(fork, start) for fork in forks.values())}</ul>"

    def branch(fork, start):
        """The tokens that all these sequences share, as one box, and below it what follows."""
        first, end = fork[0], start + 1
        while all(len(tokens) > end and tokens[end] == first[end] for tokens in fork):
            end += 1
        kept, won = first[:end] in beginnings, tuple(step.tokens[:end]) == first[:end]
        text = _text("".join(texts[first][start:end]) or "∅")
        parts = [f"<li{' class=tl-k' if won else ''}><b class={_CLASSES['target' if kept else 'neutral']}>{text}</b>"]
        if first[:end] in held:
            parts.append(f" <span class=tl-facts>{_text(_number(held[first[:end]]))}</span>")
        longer = [tokens for tokens in fork if len(tokens) > end]
        return "".join([*parts, branches(longer, end) if longer else "", "</li>"])

    sequences = [tokens for tokens in (*held, *gone) if tokens]
    more = len(step.hypotheses) - _MOST_HYPOTHESES
    return (branches(sequences, 0) if sequences else "") + (f"<p>… and {more} more</p>" if more > 0 else "")


def _legend(steps):
    """The meanings of the marks, for the kinds that occur in this trace."""
    seen = {kind for step in steps for kind in (*added_kinds(step), *(kind for _, kind in _drafted(step)))}
    items = [
        f'<span class={_CLASSES[kind]}><i aria-hidden="true">{MARKS[kind]}</i> {MEANINGS[kind]}</span>'
        for kind in (*KINDS, "neutral")
        if kind in seen
    ]
    return f'<div class="tl-legend">{" ".join(items)}</div>'


@cache
def _style():
    """The style sheet: light or dark like the page (the book, JupyterLab, VS Code, Colab), or else like the system."""

    def pages(name, jupyter, *vscode):
        marked = f"html[data-theme={name}],html[theme={name}],body[data-jp-theme-light={jupyter}]"
        return ",".join([marked, *(f"body.vscode-{theme}" for theme in vscode)])

    light, dark = css_variables(LIGHT), css_variables(DARK)
    said_light, said_dark = pages("light", "true", "light"), pages("dark", "false", "dark", "high-contrast")
    return (
        f".tl-player{{{light}}}"
        f"@media (prefers-color-scheme:dark){{.tl-player:not(:is({said_light}) *){{{dark}}}}}"
        f":is({said_dark}) .tl-player{{{dark}}}" + re.sub(r" ?([{};,>]) ?|(:) ", r"\1\2", _asset("player.css"))
    )


@cache
def _asset(name):
    """Read a file from this folder, without comments and indentation, because every player's HTML contains it."""
    text = files(__package__).joinpath(name).read_text(encoding="utf-8")
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())
