"""A Sphinx extension for links that are sent to somebody: what a page says of itself to those who show its link.

Each page gets a description, its first long paragraph, and a picture, its first figure. The picture's address is that
of the published page: below `html_baseurl` if this is set, else where GitHub Pages shows the repository.
"""

import re
from html import escape
from pathlib import PurePosixPath

from docutils import nodes

LONG_ENOUGH = 60  # characters of a paragraph that can describe a page
MOST = 200  # characters that are shown of it


def described(paragraphs):
    """The first paragraph that can describe a page, cut at a word.

    Examples
    --------
    >>> described(["Open in Colab", "How does a model choose its next word? It draws it from a distribution."])
    'How does a model choose its next word? It draws it from a distribution.'
    """
    text = next((" ".join(one.split()) for one in paragraphs if len(one) >= LONG_ENOUGH), "")
    return text if len(text) <= MOST else text[:MOST].rsplit(" ", 1)[0] + " …"


def tags(title, description, picture):
    """The HTML elements that say it; a picture that is None is left out."""
    said = {"og:type": "article", "og:title": title, "og:description": description, "og:image": picture}
    lines = [f'<meta property="{name}" content="{escape(text)}">' for name, text in said.items() if text]
    if description:
        lines.insert(0, f'<meta name="description" content="{escape(description)}">')
    return "\n".join(lines)


def published_at(base, repository):
    """The address below which the pages are, or "" if nothing is known of it.

    Examples
    --------
    >>> published_at("", "https://github.com/owner/name")
    'https://owner.github.io/name/'
    """
    found = re.fullmatch(r"https://github\.com/([^/]+)/([^/]+)", repository)
    return base or (f"https://{found[1]}.github.io/{found[2]}/" if found else "")


def describe(app, page, template, context, doctree):
    """Add the elements to the head of a page that was made from a text."""
    if doctree is None:
        return
    base = published_at(app.config.html_baseurl or "", app.config.html_theme_options.get("repository_url", ""))
    title = app.env.titles[page].astext()
    prose = [one.astext() for one in doctree.findall(nodes.paragraph) if not isinstance(one.parent, nodes.entry)]
    figures = [PurePosixPath(one["uri"]) for one in doctree.findall(nodes.image)]  # as the page names them
    name = next((figure.name for figure in figures if figure.suffix == ".png"), None)
    picture = f"{base}{app.builder.imagedir}/{name}" if base and name else None
    context["metatags"] = context.get("metatags", "") + tags(title, described(prose), picture) + "\n"


def setup(app):
    app.connect("html-page-context", describe)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
