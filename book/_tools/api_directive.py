"""A Sphinx directive that shows a module's public names with their docstrings: ``{api} tutorlib.decoding``.

It builds the page's nodes itself instead of handing docstrings to a parser, so a stray asterisk in a docstring is
shown, and does not fail the build. What it understands: paragraphs, ``literals``, the sections of a numpydoc docstring,
lists, and indented or ``>>>`` blocks as code.
"""

import importlib
import inspect
import re

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

SECTION = re.compile(r"(?m)^(\w[\w ]*)\n-{3,}$")
# Sections whose entries are "name : type" followed by an indented text.
ENTRIES = {"Parameters", "Attributes", "Returns", "Yields", "Raises", "Warns", "Methods", "See Also"}
LITERAL = re.compile(r"``(.+?)``|(?<!`)`([^`]+?)`(?!`)")
ROLE = re.compile(r":(?:\w+:)?(?:math|func|class|meth|mod|data|attr|obj|ref):(?=`)")


def inline(text):
    """Turn one paragraph into text and literal nodes; backticks, single or double, make a literal."""
    text, result, end = ROLE.sub("", " ".join(text.split())), [], 0
    for found in LITERAL.finditer(text):
        if found.start() > end:
            result.append(nodes.Text(text[end : found.start()]))
        literal = found.group(1) or found.group(2).lstrip("~")
        result.append(nodes.literal("", literal))
        end = found.end()
    if end < len(text):
        result.append(nodes.Text(text[end:]))
    return result


def code_block(text):
    block = nodes.literal_block(text, text)
    block["language"] = "pycon" if text.lstrip().startswith(">>>") else "text"
    return block


def body(text):
    """Turn docstring text into block nodes: paragraphs, bullet lists, code."""
    result = []
    for part in re.split(r"\n\s*\n", text.strip("\n")):
        plain = inspect.cleandoc(part)
        if not plain:
            continue
        if plain.startswith(".. math::"):
            formula = plain.removeprefix(".. math::").strip()
            result.append(nodes.math_block(formula, formula, nowrap=False, number=None))
        elif plain.startswith(">>>") or part.startswith(("    ", "\t")):
            result.append(code_block(plain))
        elif re.match(r"[-*] ", plain):
            texts = [text for text in re.split(r"(?m)^[-*] ", plain) if text.strip()]
            items = [nodes.list_item("", nodes.paragraph("", "", *inline(text))) for text in texts]
            result.append(nodes.bullet_list("", *items, bullet="-"))
        else:
            # A paragraph that ends in two colons announces the code after it.
            result.append(nodes.paragraph("", "", *inline(re.sub(r"::$", ":", plain))))
    return result


def entries(text):
    """Turn ``name : type`` entries, each followed by an indented description, into a definition list."""
    items = []
    for block in re.split(r"(?m)^(?=\S)", text):
        head, _, description = block.partition("\n")
        if not head.strip():
            continue
        name, colon, kind = head.partition(" : ")
        term = nodes.term("", "", nodes.literal("", name.strip()))
        if colon:
            term += [nodes.Text(" "), nodes.emphasis("", "", *inline(kind))]
        items.append(nodes.definition_list_item("", term, nodes.definition("", *body(inspect.cleandoc(description)))))
    return nodes.definition_list("", *items)


def docstring(item):
    """Turn an object's own docstring into nodes; an object without one gives none."""
    text = inspect.cleandoc(item.__doc__ or "")
    parts = SECTION.split(text)
    result = body(parts[0])
    for title, content in zip(parts[1::2], parts[2::2], strict=True):
        result.append(nodes.rubric("", title))
        content = content.strip("\n")
        result.extend([entries(content)] if title in ENTRIES else body(content))
    return result


def signature(name, item):
    """Return ``name(arguments)`` as a reader writes it."""
    try:
        text = str(inspect.signature(item))
    except (TypeError, ValueError):
        return name
    # Annotations may be strings, methods begin with self, and a default that prints as an address changes every time.
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)
    text = re.sub(r"\b(?:collections\.abc|typing)\.", "", text)
    text = re.sub(r"^\((?:self|cls)(?:, )?", "(", text)
    return name + re.sub(r"<(?:function|class|built-in function) '?([\w.]+)'?[^>]*>", r"\1", text)


def public_names(module):
    """List a module's public functions and classes: its ``__all__``, or what it defines without an underscore."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        name
        for name, item in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(item) or inspect.isroutine(item))
        and inspect.unwrap(item).__module__ == module.__name__
    ]


class Api(SphinxDirective):
    """``{api} module``: one section for the module, one entry for each of its public names.

    The option ``:only:`` lists names, and leaves the others out.
    """

    required_arguments = 1
    option_spec = {"only": str.split}

    def run(self):
        name = self.arguments[0]
        try:
            module = importlib.import_module(name)
        except ImportError as error:
            raise self.error(f"cannot import {name}: {error}") from error
        self.env.note_dependency(module.__file__)
        section = nodes.section("", nodes.title("", "", nodes.literal("", name)), ids=[f"api-{nodes.make_id(name)}"])
        section += docstring(module)
        for public in self.options.get("only") or public_names(module):
            if not hasattr(module, public):
                raise self.error(f"{name} has no {public}")
            section += self.entry(public, getattr(module, public), f"api-{nodes.make_id(f'{name}.{public}')}")
        return [section]

    def entry(self, name, item, identifier):
        """Make the nodes for one function, class or value: its signature as a heading, its docstring, its methods."""
        if inspect.ismodule(item):
            text = (inspect.getdoc(item) or "").partition("\n")[0]
            return nodes.paragraph("", "", nodes.literal("", name), nodes.Text(": "), *inline(text), ids=[identifier])
        entry = nodes.container("", classes=["api-entry"], ids=[identifier])
        kind = "class " if inspect.isclass(item) else ""
        heading = nodes.paragraph("", "", classes=["api-signature"])
        heading += nodes.literal("", kind + (signature(name, item) if callable(item) else name))
        entry += heading
        text = nodes.container("", classes=["api-text"])
        if inspect.isclass(item) or inspect.isroutine(item) or hasattr(item, "__wrapped__"):
            text += docstring(item)
        if inspect.isclass(item):
            for method, function in vars(item).items():
                function = getattr(function, "fget", None) or getattr(function, "__func__", function)
                if not method.startswith("_") and inspect.isfunction(function) and function.__doc__:
                    text += self.entry(f"{name}.{method}", function, f"{identifier}-{nodes.make_id(method)}")
        entry += text
        return entry


class FrontDoor(SphinxDirective):
    """``{front-door} package``: the package's public names, each with a line on it and a link to its entry."""

    required_arguments = 1

    def run(self):
        package = importlib.import_module(self.arguments[0])
        items = []
        for name in package.__all__:
            item = getattr(package, name)
            where = item.__name__ if inspect.ismodule(item) else f"{inspect.unwrap(item).__module__}.{name}"
            text = (inspect.getdoc(item) or "").partition("\n")[0]
            link = nodes.reference("", "", nodes.literal("", name), refid=f"api-{nodes.make_id(where)}", internal=True)
            items.append(nodes.list_item("", nodes.paragraph("", "", link, nodes.Text(": "), *inline(text))))
        return [nodes.bullet_list("", *items, bullet="-")]


def setup(app):
    app.add_directive("api", Api)
    app.add_directive("front-door", FrontDoor)
    return {"version": "1", "parallel_read_safe": True}
