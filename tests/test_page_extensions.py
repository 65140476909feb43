"""What Sphinx adds to pages: links to the glossary at a word's first use, and what shared links show."""

import re

import first_use
import pytest
import shared_links
from built_site import built_site


def test_words_with_an_everyday_meaning_and_entries_of_two_words_are_not_linked():
    objects = [("term", "string-level exact match (SLEM)", "glossary", "term-SLEM"), ("term", "call", "glossary", "b")]
    objects += [("term", "d2t, t2d", "glossary", "c"), ("label", "cache", "other", "d")]
    assert first_use.words(objects) == {"string-level exact match": ("glossary", "term-SLEM")}


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("The cache forgets, a cache keeps.", [("The ", None), ("cache", "cache"), (" forgets, a cache keeps.", None)]),
        ("Tokens, n-grams", [("Tokens", "token"), (", ", None), ("n-grams", "n-gram")]),
        ("n-gram entropy", [("n-gram entropy", "n-gram entropy")]),
        ("cached, cache-friendly, sub-token", [("cached, cache-friendly, sub-token", None)]),
    ],
)
def test_a_text_is_cut_at_first_uses_of_whole_words_the_longest_first(text, pieces):
    assert first_use.first_uses(text, ["cache", "token", "n-gram", "n-gram entropy"]) == pieces


def test_a_page_is_described_by_its_first_long_paragraph_cut_at_a_word():
    assert shared_links.described(["Open in Colab", "word " * 60]) == "word " * 39 + "word …"
    assert shared_links.described(["short"]) == ""


def test_what_shared_links_show_is_escaped_and_says_nothing_that_is_not_known():
    assert shared_links.tags('p < "q"', "", None).splitlines() == [
        '<meta property="og:type" content="article">',
        '<meta property="og:title" content="p &lt; &quot;q&quot;">',
    ]


@pytest.mark.slow
def test_every_chapter_links_words_once_to_the_glossary_and_says_what_a_shared_link_shows():
    pages = sorted((built_site() / "notebooks").glob("*.html"))
    assert pages
    for page in pages:
        text = page.read_text(encoding="utf-8")
        links = re.findall(r'<a class="first-use[^"]*" href="([^"]*)"', text)
        assert len(links) == len(set(links)) > 2, page.name
        assert all("glossary.html#term-" in link for link in links)
        said = dict(re.findall(r'<meta property="og:(\w+)" content="([^"]*)"', text))
        assert len(said["description"]) >= shared_links.LONG_ENOUGH and said["title"], page.name
        assert said["image"].startswith("https://") and said["image"].endswith(".png"), page.name
