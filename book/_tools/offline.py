"""A Sphinx extension that makes pages which need no network: formulas as MathML, the Colab badge from a local picture.

It also shows the outputs that `build_book` has just made, where it has, in place of the committed ones.

Browsers draw MathML themselves. A formula that cannot be converted is a warning, and so fails the build: write it
with the commands that can (`tests/test_book.py` lists what has been seen to work).
"""

import os
import re
from html import escape
from pathlib import Path

from build_book import EXECUTED
from docutils import nodes
from latex2mathml.converter import convert
from setup_cells import BADGE_IMAGE
from sphinx.locale import _
from sphinx.util import logging

LOCAL_BADGE = "/book/_static/colab.svg"
# What the converter does not know, in words that it does.
REWRITES = {
    r"\\arg(?![a-zA-Z])": r"\\operatorname{arg}",
    r"\\operatorname\*": r"\\operatorname",
    r"\\(begin|end)\{aligned\}": r"\\\1{align*}",
    r"\\!": "",
    # Browsers set "log p" without the space that TeX puts after a function's name.
    r"\\(log|ln|exp)\s+(?=[a-zA-Z]|\\(?!left|big))": r"\\\1\\,",
}
# What the converter leaves in its output when it does not know a command.
LEFT_OVER = re.compile(r"\\[a-zA-Z]+|<m[io]>\s*&(?:amp;)?\s*</m[io]>")
# What it prints as text without a word: the space after a row, ``\\[4pt]``.
ROW_SPACE = re.compile(r"\\\\\[[^]]*\]")


def mathml(tex, display):
    """Convert a formula.

    Parameters
    ----------
    tex : str
        The formula in TeX, without dollar signs.
    display : {"inline", "block"}

    Returns
    -------
    str
        A ``<math>`` element; the TeX is its text for browsers and readers that do not know MathML.

    Raises
    ------
    ValueError
        If a command is unknown to the converter.
    """
    row_space = ROW_SPACE.search(tex)
    if row_space:
        raise ValueError(f"cannot make MathML of {tex!r}: leave the space after a row out, {row_space.group(0)}")
    rewritten = tex.strip()
    for pattern, replacement in REWRITES.items():
        rewritten = re.sub(pattern, replacement, rewritten)
    try:
        result = convert(rewritten, display=display)
    except Exception as error:  # the converter raises whatever its parser stumbles over
        raise ValueError(f"cannot make MathML of {tex!r}: {error!r}") from error
    left_over = LEFT_OVER.search(result)
    if left_over:
        raise ValueError(f"cannot make MathML of {tex!r}: {left_over.group(0)} is unknown to the converter")
    # A relation that begins a subscript, as in x_{<t}, has nothing on its left to keep away from.
    result = re.sub(r"<mrow><mo>(&#x0003[CE];|&#x0226[45];)", r'<mrow><mo lspace="0" rspace="0">\1', result)
    result = result.replace("<mi>&#x0007E;</mi>", "<mo>&#x0223C;</mo>")  # \sim is a relation, not a letter
    return result.replace("<math ", f'<math alttext="{escape(tex.strip())}" ', 1)


def formula(node, display):
    try:
        return mathml(node.astext(), display)
    except ValueError as error:
        logging.getLogger(__name__).warning(str(error), location=node)
        return escape(node.astext())


def visit_inline(translator, node):
    translator.body.append(f'<span class="math">{formula(node, "inline")}</span>')
    raise nodes.SkipNode


def visit_block(translator, node):
    translator.body.append(translator.starttag(node, "div", CLASS="math"))
    if node["number"]:
        translator.body.append(f'<span class="eqno">({node["number"]})')
        translator.add_permalink_ref(node, _("Link to this equation"))
        translator.body.append("</span>")
    translator.body.append(formula(node, "block") + "</div>")
    raise nodes.SkipNode


def use_new_outputs(app, docname, source):
    """Read a notebook's executed copy in its place, where `build_book` has made one."""
    copy = Path(os.environ.get(EXECUTED, ""), f"{docname}.ipynb")
    if EXECUTED in os.environ and copy.is_file():
        source[0] = copy.read_text(encoding="utf-8")


def use_local_badge(app, docname, source):
    source[0] = source[0].replace(BADGE_IMAGE, LOCAL_BADGE)


# What the parsers write that a screen reader stumbles over, and what is put in its place: a label that hides the words
# beside it, headings of columns without a word, and lists of references that hold more than their items.
HEARD = {
    ' role="list" class="citation-list"': ' class="citation-list"',
    ' role="doc-biblioentry"': "",
    ' aria-label="Toggle hidden content"': "",
}
# Sphinx writes the parameters of a long signature as a list of definitions without anything that is defined.
PARAMETERS = re.compile(r'<dl>\n((?:<dd><em class="sig-param">.*?</dd>\n)+)</dl>', re.DOTALL)
HEADLESS = re.compile(r'<th class="head[^"]*"><p></p></th>')


def audible(body):
    """Mend what a screen reader would read wrongly in a page's HTML."""
    for written, mended in HEARD.items():
        body = body.replace(written, mended)

    def spans(found):
        return f'<span class="sig-list">{found[1].replace("<dd>", "<span>").replace("</dd>", "</span>")}</span>'

    return PARAMETERS.sub(spans, HEADLESS.sub("<td></td>", body))


PUNCTUATED = re.compile(r'(<span class="math">(?:(?!</span>).)*</span>)([.,;:!?)]+)', re.DOTALL)


def together(body):
    """Keep a formula and the punctuation after it on one line: browsers may break a line there."""
    return PUNCTUATED.sub(r'<span class="together">\1\2</span>', body)


def mend_body(app, pagename, templatename, context, doctree):
    if "body" in context:
        context["body"] = together(audible(context["body"]))


def setup(app):
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    app.connect("source-read", use_new_outputs)
    app.connect("source-read", use_local_badge)
    app.connect("html-page-context", mend_body)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
