"""A Sphinx directive that lists a package's public names, each with a line on it and a link to what autodoc says of it.

    ```{front-door} tutorlib
    Models: LM TableLM
    Runs: run Trace
    ```

A line of its content is a group: a title, and the names in it. Each name must be in one group, and some page must have
an ``automodule`` for its module. (Sphinx's autosummary has no links for names that a package takes from its modules.)
"""

import importlib
import inspect
from collections import Counter

from docutils import nodes
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective


def groups(lines, names):
    """Read the groups of a list of names.

    Parameters
    ----------
    lines : list of str
        Such as ``"Runs: run Trace"``.
    names : list of str
        The names that there are.

    Returns
    -------
    list of tuple
        (title, names) of each group.

    Raises
    ------
    ValueError
        If a name is in no group, in two, or is not there.
    """
    found = [(title.strip(), listed.split()) for title, _, listed in (line.partition(":") for line in lines if line)]
    counts = Counter(name for _, listed in found for name in listed)
    wrong = sorted(name for name in {*counts, *names} if counts[name] != 1 or name not in names)
    if wrong:
        raise ValueError(f"each public name must be in exactly one group; not so: {', '.join(wrong)}")
    return found


class FrontDoor(SphinxDirective):
    """``{front-door} package``: lists of the names in its ``__all__``, a list for each group."""

    required_arguments = 1
    has_content = True

    def run(self):
        package = importlib.import_module(self.arguments[0])
        try:
            found = groups(list(self.content), package.__all__)
        except ValueError as error:
            raise self.error(str(error)) from error
        made = []
        for title, names in found:
            items = [self.item(name, getattr(package, name)) for name in names]
            made += [nodes.rubric("", title), nodes.bullet_list("", *items, bullet="-")]
        return made

    def item(self, name, item):
        module = inspect.ismodule(item)
        target = item.__name__ if module else f"{inspect.unwrap(item).__module__}.{name}"
        text, _ = self.parse_inline(f": {inspect.getdoc(item).partition(chr(10))[0]}", lineno=self.lineno)
        link = addnodes.pending_xref(
            "",
            nodes.literal("", name),
            refdomain="py",
            reftype="mod" if module else "obj",
            reftarget=target,
            refwarn=True,
        )
        return nodes.list_item("", nodes.paragraph("", "", link, *text))


def setup(app):
    app.add_directive("front-door", FrontDoor)
    return {"version": "1", "parallel_read_safe": True}
