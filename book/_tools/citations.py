"""Turn citations in the notebooks into ordinary links, which can be read on Colab and GitHub too.

Write ``{cite:p}`key``` or ``{cite:t}`key``` in a notebook's Markdown, as in Sphinx, with a key of references.bib; this
script puts the authors, the year and a link in its place. An item of the list of references that begins with
``{cite:t}`` gets the authors, the year and the title.

    python book/_tools/citations.py           write what is left to be written
    python book/_tools/citations.py --check   write nothing, fail if one is left, or a link is named otherwise
"""

import argparse
import re
import sys
from pathlib import Path

import nbformat
from pybtex.database import parse_file

ROOT = Path(__file__).resolve().parents[2]
ROLE = re.compile(r"\{cite(?::(?P<kind>[tp]))?\}`(?P<keys>[^`]+)`")
ITEM = re.compile(r"(?m)^- \{cite:t\}`(?P<key>[^`,]+)`")


def address(entry) -> str:
    """Where an entry of the list can be read.

    Raises
    ------
    ValueError
        If the entry does not say so.
    """
    fields = entry.fields
    if "url" in fields:
        return fields["url"]
    if "doi" in fields:
        return f"https://doi.org/{fields['doi'].replace('(', '%28').replace(')', '%29')}"
    number = fields.get("eprint") or "".join(re.findall(r"arXiv:([\d.]+)", fields.get("journal", "")))
    if not number:
        raise ValueError(f"references.bib: {entry.key} has no url, doi or eprint to link to: add one")
    return f"https://arxiv.org/abs/{number}"


def authors(entry) -> str:
    """The authors as they are cited: one, two, or the first of many."""
    last = [" ".join([*person.prelast_names, *person.last_names]).strip("{}") for person in entry.persons["author"]]
    if len(last) > 2 or last[-1] == "others":
        return f"{last[0]} et al."
    return " and ".join(last)


def cited(entry, kind: str) -> str:
    """The link for an entry: "p" in parentheses, "t" in running text, "item" in the list of references."""
    name, year, link = authors(entry), entry.fields["year"], address(entry)
    if kind == "item":
        return f"{name} ({year}), [{entry.fields['title'].replace('{', '').replace('}', '')}]({link})"
    return f"[{name}, {year}]({link})" if kind == "p" else f"[{name} ({year})]({link})"


def linked(text: str, entries) -> str:
    """A notebook's Markdown with links in place of citations.

    Raises
    ------
    ValueError
        For a key that is not in the list.
    """

    def found(key):
        if key not in entries:
            raise ValueError(f"references.bib has no {key!r}; add it there, or mend the key")
        return entries[key]

    def link(match):
        kind, keys = match["kind"] or "p", [key.strip() for key in match["keys"].split(",")]
        links = [cited(found(key), kind) for key in keys]
        return f"({'; '.join(links)})" if kind == "p" else " and ".join(links)

    return ROLE.sub(link, ITEM.sub(lambda match: f"- {cited(found(match['key']), 'item')}", text))


def wrong(text: str, entries) -> list[str]:
    """What is left to be turned into a link, and links to works of the list that name them otherwise."""
    said = [f"{match[0]} is left: run python book/_tools/citations.py" for match in ROLE.finditer(text)]
    works = {}
    for entry in entries.values():
        works.setdefault(address(entry), []).append(entry)
    for match in re.finditer(r"\[(?P<label>[^\]]+)\]\((?P<link>https?://[^)\s]+)\)", text):
        allowed = {
            re.search(r"\[(.*)\]", cited(entry, kind))[1]
            for entry in works.get(match["link"], ())
            for kind in ("p", "t", "item")
        }
        if allowed and match["label"] not in allowed:
            said.append(f"[{match['label']}]({match['link']}) should be one of: {', '.join(sorted(allowed))}")
    return said


def main(arguments=None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail if anything is wrong")
    chosen = parser.parse_args(arguments)
    entries, failed = parse_file(ROOT / "book" / "references.bib").entries, False
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        changed = False
        for cell in notebook.cells:
            if cell.cell_type != "markdown":
                continue
            text = cell.source if chosen.check else linked(cell.source, entries)
            changed |= text != cell.source
            cell.source = text
            for said in wrong(text, entries):
                failed = True
                print(f"{path.name}: {said}", file=sys.stderr)
        if changed:
            path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
            print(f"wrote {path.name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
