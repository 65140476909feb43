"""A Sphinx extension that links a glossary's word to its entry where a chapter uses the word for the first time.

Notebooks stay as they are, so that they read the same on Colab. Headings, code, tables, captions, links and what is
folded away get no link, and words that are mostly used in their everyday meaning get none either.
"""

import re

from docutils import nodes
from sphinx.util.nodes import make_refnode

# These words of the glossary mean what they mean elsewhere most of the time.
EVERYDAY = {
    "accept", "call", "choices", "confidence", "consistent", "context", "draft", "engine", "exact", "expert", "feature",
    "filter", "greedy", "group", "head", "heuristic", "round", "scale", "step", "target",
}  # fmt: skip
NOT_INSIDE = (nodes.title, nodes.literal, nodes.reference, nodes.entry, nodes.caption, nodes.footnote, nodes.raw)


def words(objects):
    """The words that are linked, with (page, anchor), from the objects of Sphinx's standard domain.

    Examples
    --------
    >>> words([("term", "token-level intersection (TLI)", "glossary", "term-TLI"), ("term", "call", "glossary", "x")])
    {'token-level intersection': ('glossary', 'term-TLI')}
    """
    found = {}
    for kind, name, page, anchor in objects:
        word = re.sub(r" \(.*\)$", "", name)
        if kind == "term" and word not in EVERYDAY and "," not in word:
            found[word] = page, anchor
    return found


def first_uses(text, wanted):
    """Cut a text at the first use of each wanted word: a list of (piece, word or None).

    Examples
    --------
    >>> first_uses("The cache keeps tokens, and a cache forgets.", ["cache", "token"])
    [('The ', None), ('cache', 'cache'), (' keeps ', None), ('tokens', 'token'), (', and a cache forgets.', None)]
    """
    if not wanted:
        return [(text, None)]
    longest_first = "|".join(re.escape(word) for word in sorted(wanted, key=len, reverse=True))
    pieces, end, seen = [], 0, set()
    for found in re.finditer(rf"(?<![\w-])({longest_first})(?:s|es)?(?![\w-])", text, re.IGNORECASE):
        word = next(word for word in wanted if word.lower() == found[1].lower())
        if word in seen:
            continue
        seen.add(word)
        pieces += [(text[end : found.start()], None), (found[0], word)]
        end = found.end()
    return [(piece, word) for piece, word in [*pieces, (text[end:], None)] if piece]


def link_first_uses(app, doctree, page):
    """Put the links into the tree of a chapter."""
    if not page.startswith("notebooks/"):
        return
    objects = app.env.get_domain("std").get_objects()
    left = words((kind, name, where, anchor) for name, _, kind, where, anchor, _ in objects)
    folded = 0
    for node in list(doctree.findall(lambda node: isinstance(node, nodes.Text | nodes.raw))):
        if isinstance(node, nodes.raw):
            folded += node.astext().count("<details") - node.astext().count("</details")
        elif not folded and _is_prose(node):
            pieces = first_uses(node.astext(), list(left))
            if any(word for _, word in pieces):
                made = [_linked(app, page, piece, left.pop(word, None)) for piece, word in pieces]
                node.parent.replace(node, made)


def _is_prose(node):
    parents, parent = [], node.parent
    while parent is not None:
        parents.append(parent)
        parent = parent.parent
    return any(isinstance(one, nodes.paragraph) for one in parents) and not any(
        isinstance(one, NOT_INSIDE) or "cell_output" in one.get("classes", []) for one in parents
    )


def _linked(app, page, piece, entry):
    if entry is None:
        return nodes.Text(piece)
    link = make_refnode(app.builder, page, *entry, nodes.Text(piece))
    link["classes"].append("first-use")
    return link


def setup(app):
    app.connect("doctree-resolved", link_first_uses)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
