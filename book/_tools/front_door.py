"""A Sphinx directive that lists a package's public names, each with a line on it and a link to what autodoc says of it.

``{front-door} tutorlib``, on a page with an ``automodule`` for each module that the names are from.
"""

import importlib
import inspect

from docutils import nodes
from sphinx.util.docutils import SphinxDirective


class FrontDoor(SphinxDirective):
    """``{front-door} package``: a list of the names in its ``__all__``."""

    required_arguments = 1

    def run(self):
        package = importlib.import_module(self.arguments[0])
        items = []
        for name in package.__all__:
            item = getattr(package, name)
            where = f"module-{item.__name__}" if inspect.ismodule(item) else f"{inspect.unwrap(item).__module__}.{name}"
            text, _ = self.parse_inline(f": {inspect.getdoc(item).partition(chr(10))[0]}", lineno=self.lineno)
            link = nodes.reference("", "", nodes.literal("", name), refid=where, internal=True)
            items.append(nodes.list_item("", nodes.paragraph("", "", link, *text)))
        return [nodes.bullet_list("", *items, bullet="-")]


def setup(app):
    app.add_directive("front-door", FrontDoor)
    return {"version": "1", "parallel_read_safe": True}
