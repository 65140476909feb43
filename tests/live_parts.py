"""A page that holds one part of the live pages which needs no model, with its scripts."""

import live_page

CODE = live_page.ROOT / "book" / "_static" / "live"


def page_with(part, folder):
    """Write the page into a folder, and return its address."""
    for name, text in (("palette.css", live_page.palette()), ("bugs.js", live_page.bugs())):
        (folder / name).write_text(text, encoding="utf-8")
    for path in CODE.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "page.html").write_text(
        '<!DOCTYPE html><html lang="en" data-theme="light"><head><meta charset="utf-8"><title>A part</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1">{live_page.tags([part])}</head><body>'
        f'<main class="bd-article"><h1>A part</h1><div class="live" data-live="{part}"></div></main></body></html>',
        encoding="utf-8",
    )
    return (folder / "page.html").as_uri()
