"""The book as one zip file and as one PDF: what is in them, and that links lead somewhere."""

import shutil
import zipfile

import pack
import pytest
from bs4 import BeautifulSoup

PAGES = {
    "book/welcome": '<h1>Welcome</h1><p id="top"><a href="../notebooks/01_a.html#idea">a</a> <a href="#top">up</a></p>'
    '<img src="../_images/x.png" alt="x"><a href="api.html">API</a><a href="https://example.org/">away</a>',
    "notebooks/01_a": '<h1>Chapter <a class="headerlink" href="#">#</a></h1><h2 id="idea">Idea</h2>'
    '<details><summary>Solution</summary>forty-two</details><details class="hide">code</details>'
    '<div class="tl-player"><div class="tl-step">one</div><details><div class="tl-step">two</div></details></div>'
    "<script>alert(1)</script>",
}


@pytest.fixture
def site(tmp_path):
    """A rendered book of two pages."""
    site = tmp_path / "html"
    for folder in ("book", "notebooks", "_static/styles", "_sources", "_images"):
        (site / folder).mkdir(parents=True)
    for name, text in PAGES.items():
        page = f"<html><head><title>t</title></head><body><nav>menu</nav><article>{text}</article></body></html>"
        (site / f"{name}.html").write_text(page)
    named = ("index.html", "_sources/a.md", "_static/styles/theme.css", "_static/pygments.css", "_static/book.css")
    for name in (*named, "_static/target.js", "_static/target.safetensors"):
        (site / name).write_text("")
    (site / "_images/x.png").write_bytes(b"")
    return site


def test_the_zip_file_holds_the_pages_in_one_folder_and_no_sources(site, tmp_path):
    for target in ("one.zip", "two.zip"):
        pack.offline(site, tmp_path / target)
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    names = zipfile.ZipFile(tmp_path / "one.zip").namelist()
    assert {"how-models-decode/index.html", "how-models-decode/notebooks/01_a.html"} < set(names)
    assert not [name for name in names if "_sources" in name or not name.startswith("how-models-decode/")]
    assert [name for name in names if "target" in name] == ["how-models-decode/_static/target.js"]


def test_the_printed_page_holds_all_pages_and_its_links_lead_inside(site):
    page = BeautifulSoup(pack.one_page(site, list(PAGES)), "html.parser")
    links = [link["href"] for link in page.select("article p a, article > a")]
    assert links == ["#notebooks-01_a--idea", "#book-welcome--top", "https://example.org/"]
    ids = {element["id"] for element in page.find_all(id=True)}
    assert {link["href"][1:] for link in page.find_all("a") if link["href"].startswith("#")} <= ids
    assert page.find("img")["src"] == "_images/x.png" and not page.select("script, nav, .headerlink")
    text = page.get_text(" ", strip=True)
    assert "forty-two" in text and "one" in text and "two" not in text.split("Idea")[1].split("forty-two")[1]
    assert "This is step 1 of 2" in text and "code" not in text
    assert page.select_one("details").has_attr("open")
    assert [item.get_text() for item in page.select(".contents li")] == ["Welcome", "Chapter"]


def test_without_a_browser_the_pdf_says_so(site, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("BROWSER_BINARY", raising=False)
    with pytest.raises(RuntimeError, match="none of chromium"):
        pack.pdf(site, tmp_path / "book.pdf", list(PAGES))


@pytest.mark.slow
@pytest.mark.skipif(not any(map(shutil.which, pack.BROWSERS)), reason="no browser is installed")
def test_the_pdf_is_printed(site, tmp_path):
    target = tmp_path / "book.pdf"
    pack.pdf(site, target, list(PAGES))
    assert target.read_bytes().startswith(b"%PDF-") and not (site / "print.html").exists()
