"""A deck of slides for each chapter: one slide for each figure, complete in one file that asks for nothing."""

import base64
import re
import time
from pathlib import Path

import editions
import nbformat
import pytest
import slides
from bs4 import BeautifulSoup
from chromium import Chromium
from test_browser import BROWSER, NAMES

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
new = nbformat.v4


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_a_chapters_deck_has_its_title_and_a_slide_for_each_figure(path):
    notebook = nbformat.read(path, as_version=4)
    page = BeautifulSoup(slides.deck(notebook), "html.parser")
    title, *shown = page.find_all("section")
    assert title.h1.get_text() == notebook.cells[0].source.splitlines()[0].removeprefix("# ")
    figures = list(editions.figures_of(notebook))
    assert len(shown) == len(figures) >= 1
    for slide, (png, words) in zip(shown, figures):
        assert slide.img["alt"] == words != "" and slide.h2.get_text()
        assert base64.b64decode(slide.img["src"].removeprefix("data:image/png;base64,")) == png
        assert not re.search(r"\$|\]\(|\*\*", slide.figcaption.get_text())
    assert not page.find_all(["link", "a"]) and all(one["src"].startswith("data:") for one in page.select("[src]"))
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/1998/Math)", str(page))
    assert "default-src 'none'" in page.select_one('meta[http-equiv="Content-Security-Policy"]')["content"]


def picture(alt="a <line>"):
    output = new.new_output("display_data", data={"image/png": base64.b64encode(b"png").decode()})
    return new.new_code_cell("draw()", outputs=[output], metadata={"mystnb": {"image": {"alt": alt}}})


def captions(*cells):
    title = new.new_markdown_cell("# Title: more\n\nText")
    notebook = new.new_notebook(cells=[title, *cells])
    return [(section, caption) for _, _, section, caption in slides.figures_of(notebook)]


def test_a_caption_is_the_paragraph_below_the_figure_wherever_it_is_made():
    section = new.new_markdown_cell("## Why?\n\n```python\n# no heading\n```")
    written = new.new_markdown_cell("**Figure 1.** What it shows,\nin [words](x.ipynb).\n\nMore.")
    made = new.new_code_cell("", outputs=[new.new_output("display_data", data={"text/markdown": "**Figure 2.** 7."})])
    between, other = new.new_code_cell("x = 1"), new.new_markdown_cell("Text.\n\n**Figure 9.** not at the beginning")
    assert captions(section, picture(), written) == [("Why?", "**Figure 1.** What it shows,\nin [words](x.ipynb).")]
    assert captions(picture(), between, made) == [("Title: more", "**Figure 2.** 7.")]
    assert captions(picture(), other, picture(), made) == [("Title: more", ""), ("Title: more", "**Figure 2.** 7.")]
    assert captions(picture(), new.new_markdown_cell("## Next"), written) == [("Title: more", "")]


def test_words_of_a_notebook_stay_words():
    caption = new.new_markdown_cell("**Figure 1.** <b>x</b> & $f_t$ in [words](x.ipynb).")
    page = slides.deck(new.new_notebook(cells=[new.new_markdown_cell("# A <T> & $t$"), picture(), caption]))
    assert 'alt="a &lt;line&gt;"' in page and "<b>" not in page and "<T>" not in page
    assert "<math" in page and "in words." in page


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason=f"no browser: none of {', '.join(NAMES)} is installed")
def test_the_arrow_keys_go_from_slide_to_slide(tmp_path):
    deck = tmp_path / "deck.html"
    deck.write_text(slides.deck(nbformat.read(NOTEBOOKS[0], as_version=4)), encoding="utf-8")
    with Chromium(tmp_path / "profile") as browser:
        browser.open(deck.as_uri(), width=1280, height=720)
        last = browser.ask('document.querySelectorAll("section").length') - 1
        for key, at in (
            ("ArrowRight", 1),
            (" ", 2),
            ("ArrowLeft", 1),
            ("End", last),
            ("ArrowRight", last),
            ("Home", 0),
        ):
            browser.press(key)
            browser.wait(f"Math.round(scrollY / innerHeight) === {at}")
            time.sleep(0.1)  # the page comes to rest before the next key
        higher = (
            "[...document.images].filter(one => one.clientHeight < 200 || one.getBoundingClientRect().width > 1280)"
        )
        assert browser.ask(f"{higher}.length") == 0
        assert browser.ask("document.documentElement.scrollWidth") <= 1280
        assert browser.said == [] and all(one.startswith(("data:", "file:")) for one in browser.asked)
