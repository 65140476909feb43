"""Look at rendered pages: do they exist, do links lead somewhere, have pictures words, does a page need the network?

    python book/_tools/check_pages.py _build/html

Only what lies inside the site is followed; nothing is asked of the network.
"""

import argparse
import re
import sys
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup
from build_book import ROOT, toc_pages
from setup_cells import COLAB, colab_link, repository_address

# An alt text must say something. What Sphinx writes where none was given is the picture's file name.
FILE_NAME = re.compile(r"\S*\.(png|svg|jpe?g|gif|webp)", re.IGNORECASE)

# The line below a table's heading, as it is written (typography may have made a dash of three hyphens).
RULE = re.compile(r"\|\s*(?:-{3,}|—|–)\s*\|")

# Which attribute of which element names another file.
LINKING = {
    "a": "href",
    "link": "href",
    "img": "src",
    "script": "src",
    "source": "src",
    "object": "data",
    "iframe": "src",
}


@cache
def read(path):
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


@cache
def anchors(path):
    """Return every id and name in a page that a link can lead to."""
    return {tag.get(key) for tag in read(path).find_all(True) for key in ("id", "name") if tag.get(key)}


def links(soup):
    """Yield (what it is, where it leads) for everything in a page that names another file or place."""
    for element in soup.find_all(list(LINKING)):
        if element.get(LINKING[element.name]):
            yield element.name, element[LINKING[element.name]]


def broken_links(site, page):
    """List the links of one page that lead to no file, or to no place in it, inside `site`."""
    problems = []
    for tag, link in links(read(page)):
        parts = urlsplit(link)
        if parts.scheme or parts.netloc or link == "#":
            continue
        target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        if target.is_dir():
            target = target / "index.html"
        if not target.is_file() or not target.is_relative_to(site):
            problems.append(f"<{tag}> leads to {link}, which is not there")
        elif parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in anchors(target):
            problems.append(f"<{tag}> leads to {link}: the page has no such place")
    return problems


def wordless_pictures(page):
    """List the pictures of one page without an alt text, or with nothing but a file name for one."""
    problems = []
    for image in read(page).find_all("img"):
        alt = (image.get("alt") or "").strip()
        if not alt or FILE_NAME.fullmatch(alt):
            problems.append(f"picture {image.get('src', '')[:80]} has no alt text (found {alt!r})")
    for drawing in read(page).select("article svg, main svg"):
        hidden = any(element.get("aria-hidden") == "true" for element in [drawing, *drawing.parents])
        named = drawing.get("aria-label") or drawing.get("aria-labelledby") or drawing.find("title")
        if not hidden and not named:
            problems.append("a drawing (<svg>) has neither aria-label nor <title>, and is not aria-hidden")
    return problems


def wrong_badges(page, name, root):
    """List the Colab links of one page that open no notebook, or another page's; a notebook must have a right one.

    Parameters
    ----------
    name : str
        The page's name in the table of contents, such as ``notebooks/01_next_token``.
    """
    found = [link for tag, link in links(read(page)) if tag == "a" and link.startswith(f"{COLAB}/github/")]
    own, address = f"{name}.ipynb", repository_address(root)
    if (root / own).is_file():
        wanted = colab_link(own, address)
        problems = [f"Colab link {link} opens another notebook than {own}" for link in found if link != wanted]
        return problems if found else ["no Colab badge"]
    known = {colab_link(path.relative_to(root).as_posix(), address) for path in root.glob("notebooks/*.ipynb")}
    return [f"Colab link {link} opens no notebook of this book" for link in found if link not in known]


def outside_requests(page):
    """List what one page would load from another host, and state of live widgets, for which a script must be loaded."""
    named = [element for element in read(page).find_all(list(LINKING)) if element.name != "a"]
    problems = [
        f"<{element.name}> asks another host for {link}"
        for element in named
        if urlsplit(link := element.get(LINKING[element.name]) or "").netloc
    ]
    widgets = read(page).select('script[type^="application/vnd.jupyter.widget"]')
    return problems + [f"holds live widgets, which do nothing in a page: {state['type']}" for state in widgets]


def traces_of_failure(page):
    """List what a page shows of a build that went wrong: Sphinx's own error boxes, tracebacks, warnings of cells."""
    found = read(page).select(".system-message, .problematic, .output.traceback, .output.stderr")
    return [f"shows a failure or a warning: {box.get_text(' ', strip=True)[:100]}" for box in found]


def raw_tables(page):
    """List tables that a page shows as they are written, with their bars, instead of as tables."""
    found = [text for text in read(page).find_all("p") if RULE.search(text.get_text())]
    return [f"shows a table as text: {text.get_text(' ', strip=True)[:100]}" for text in found]


def check_site(site, root=ROOT):
    """Check every page that the table of contents names, and the front page.

    Returns
    -------
    list of str
        One line for each thing that is wrong.
    """
    site, problems = Path(site).resolve(), []
    for name in ["index", *toc_pages(root)]:
        page = site / f"{name}.html"
        if not page.is_file():
            problems.append(f"{name}: the page does not exist")
            continue
        if name != "index" and read(page).find("h1") is None:
            problems.append(f"{name}: the page has no title")
        found = broken_links(site, page) + wordless_pictures(page) + wrong_badges(page, name, root)
        problems += [
            f"{name}: {problem}"
            for problem in [*found, *outside_requests(page), *traces_of_failure(page), *raw_tables(page)]
        ]
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("site", type=Path, help="the folder that holds index.html")
    parser.add_argument("--root", type=Path, default=ROOT, help="the folder of the book (default: this one)")
    arguments = parser.parse_args()
    problems = check_site(arguments.site, arguments.root.resolve())
    pages = len(toc_pages(arguments.root))
    print("\n".join(problems) or f"{pages} pages looked at: links, pictures and badges are right, no network needed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
