"""Pack the pages that `make book` has made: as one zip file to read offline, or as one PDF.

    python book/_tools/pack.py offline     _build/how-models-decode.zip: unpack it, open index.html
    python book/_tools/pack.py pdf         _build/how-models-decode.pdf: printed by Chromium or Chrome

The PDF is printed from one page that holds the pages of the table of contents, in order, with their links turned into
links inside it. What only works on a screen is left out: buttons, scripts, code that is folded away, and all steps of a
trace but the first; so is the API page, which is as long as the rest. Solutions and answers are unfolded, because
nobody can unfold them on paper.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup
from build_book import ROOT, toc_pages

NAME = "how-models-decode"
NOT_PRINTED = "book/api"
# What a reader of the pages does not need: their sources, files of the tools that made them, and weights that can only
# be fetched from a server (a page that is opened from a file reads the same weights from scripts).
LEFT_OUT = {
    "_sources",
    ".doctrees",
    ".buildinfo",
    "objects.inv",
    "print.html",
    "target.safetensors",
    "draft.safetensors",
}
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
FLAGS = """
    --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --disable-dev-shm-usage --allow-file-access-from-files
    --no-pdf-header-footer --generate-pdf-document-outline --virtual-time-budget=60000
"""
STYLE = """
@page { size: A4; margin: 18mm 17mm; @bottom-center { content: counter(page); font: 9pt sans-serif; } }
html, body { background: #fff; font-size: 10.5pt; }
article + article { break-before: page; }
.contents a { text-decoration: none; }
"""


def offline(site, target):
    """Write the pages of `site` into a zip file, in one folder; always the same bytes for the same pages."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(site.rglob("*")):
            inside = path.relative_to(site)
            if path.is_file() and not LEFT_OUT & set(inside.parts):
                entry = zipfile.ZipInfo(f"{NAME}/{inside.as_posix()}", (2026, 1, 1, 0, 0, 0))
                entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
                packed.writestr(entry, path.read_bytes())


def slug(name):
    """What the ids of a page begin with in the page that holds all pages."""
    return name.replace("/", "-")


def article(site, name, names):
    """The article of one page, with its ids, links and pictures as they must be in a page at the site's top."""
    page = site / f"{name}.html"
    found = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser").find("article")
    for element in found.select("script, button, .headerlink, details.hide, .prev-next-area"):
        element.decompose()
    for player in found.select(".tl-player"):
        steps = player.select(".tl-step")
        for element in [*steps[1:], *player.find_all("details")]:
            element.decompose()
        if len(steps) > 1:
            steps[0].append(f"(This is step 1 of {len(steps)}. You can go through the others on the page.)")
    for details in found.find_all("details"):
        details["open"] = ""
    for element in found.find_all(id=True):
        element["id"] = f"{slug(name)}--{element['id']}"
    for element in found.find_all(["a", "img"]):
        key = "href" if element.name == "a" else "src"
        parts = urlsplit(element.get(key) or "")
        if parts.scheme or parts.netloc or not (parts.path or parts.fragment):
            continue
        inside = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        inside = inside.relative_to(site).as_posix()
        other = inside.removesuffix(".html")
        if other in names:
            element[key] = f"#{slug(other)}--{parts.fragment}" if parts.fragment else f"#{slug(other)}"
        elif element.name == "a":
            element.unwrap()  # a page that is not printed, or a file beside the pages
        else:
            element[key] = inside
    found["id"] = slug(name)
    return found


def one_page(site, names):
    """All pages as one HTML text, which belongs at the top of `site`."""
    style = "".join(
        f'<link rel="stylesheet" href="{path.relative_to(site).as_posix()}">'
        for path in [
            *sorted(site.glob("_static/styles/*.css")),
            site / "_static/pygments.css",
            site / "_static/book.css",
        ]
    )
    articles = [article(site, name, names) for name in names]
    titles = [found.find("h1").get_text(" ", strip=True) for found in articles]
    contents = "".join(
        f'<li><a href="#{slug(name)}">{title}</a></li>' for name, title in zip(names, titles, strict=True)
    )
    articles[0].append(BeautifulSoup(f'<h2>Contents</h2><ul class="contents">{contents}</ul>', "html.parser"))
    body = "\n".join(f'<div class="bd-content"><div class="bd-article">{found}</div></div>' for found in articles)
    return (
        f'<!DOCTYPE html><html lang="en" data-theme="light" data-mode="light"><head><meta charset="utf-8">'
        f"<title>{titles[0]}</title>{style}<style>{STYLE}</style></head><body>{body}</body></html>"
    )


def pdf(site, target, names):
    """Print the pages of `site` into one PDF; RuntimeError where there is no browser, or it prints nothing."""
    browser = os.environ.get("BROWSER_BINARY") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise RuntimeError(f"a PDF is printed by a browser, and none of {', '.join(BROWSERS)} is installed")
    page = site / "print.html"
    page.write_text(one_page(site, names), encoding="utf-8")
    target.unlink(missing_ok=True)
    try:
        with tempfile.TemporaryDirectory() as profile:
            command = [browser, *FLAGS.split(), f"--user-data-dir={profile}", f"--print-to-pdf={target}", page.as_uri()]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    finally:
        page.unlink()
    if not target.is_file():
        raise RuntimeError(f"the browser printed nothing; it said: {done.stderr[-500:]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("form", choices=("offline", "pdf"))
    parser.add_argument("--site", type=Path, default=ROOT / "_build" / "html", help="the pages (default: _build/html)")
    arguments = parser.parse_args()
    site = arguments.site.resolve()
    if not (site / "index.html").is_file():
        print(f"There are no pages in {site}: run make book first", file=sys.stderr)
        return 1
    printed = [name for name in toc_pages(ROOT) if not name.startswith(NOT_PRINTED)]
    target = ROOT / "_build" / f"{NAME}.{'zip' if arguments.form == 'offline' else 'pdf'}"
    try:
        offline(site, target) if arguments.form == "offline" else pdf(site, target, printed)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{target} ({target.stat().st_size / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
