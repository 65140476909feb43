"""Make a deck of slides for each chapter: its title, and a slide for each figure with its section's title and caption.

    python book/_tools/slides.py         writes _build/slides/01_next_token.html, ...

A deck is one page that holds its pictures and loads nothing: it opens in any browser, without a network. The arrow keys
go from slide to slide, and printing gives one sheet for each.
"""

import base64
import html
import re
import shutil
import sys
from pathlib import Path
from string import Template

import nbformat
from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin
from offline import mathml

ROOT = Path(__file__).resolve().parents[2]
HEADING = re.compile(r"(?m)^#{1,4} +(.+)$")
CAPTION = re.compile(r"^\*\*Figure \d+\.\*\*.*?(?=\n\s*\n|\Z)", re.DOTALL)
LINK = re.compile(r"(?<!!)\[([^]]*)\]\([^)]*\)")  # a deck stands alone: a link becomes its words
CODE_BLOCK = re.compile(r"(?ms)^```.*?^```")

PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>$title</title>
<style>
html { scroll-snap-type: y mandatory; color: #1b1b1b; background: #fff; font-family: system-ui, sans-serif; }
body { margin: 0; }
section { box-sizing: border-box; height: 100vh; padding: 4vh 5vw; display: flex; flex-direction: column;
  scroll-snap-align: start; break-after: page; }
section.title { justify-content: center; }
h1 { font-size: 8vmin; }
h2 { font-size: 5vmin; margin: 0 0 2vh; }
figure { flex: 1; min-height: 0; margin: 0; display: flex; flex-direction: column; }
img { flex: 1; min-height: 0; object-fit: contain; object-position: left; }
figcaption { font-size: 2.4vmin; line-height: 1.4; margin-top: 2vh; }
figcaption p { margin: 0; max-width: 110ch; }
footer { font-size: 2vmin; color: #595959; margin-top: 1vh; }
@media print { @page { size: landscape; margin: 0; } }
</style>
</head>
<body>
<main>
$slides
</main>
<script>
const slides = [...document.querySelectorAll("section")];
const step = {ArrowRight: 1, ArrowDown: 1, PageDown: 1, " ": 1, ArrowLeft: -1, ArrowUp: -1, PageUp: -1};
addEventListener("keydown", event => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const at = Math.round(scrollY / innerHeight);
  const next = event.key === "Home" ? 0 : event.key === "End" ? slides.length - 1
    : event.key in step ? at + step[event.key] : null;
  if (next === null) return;
  event.preventDefault();
  slides[Math.max(0, Math.min(next, slides.length - 1))].scrollIntoView();
});
</script>
</body>
</html>
""")


def renderer():
    """Markdown to HTML, with formulas as MathML."""
    markdown = MarkdownIt("commonmark", {"html": False})
    return markdown.use(
        dollarmath_plugin, renderer=lambda tex, how: mathml(tex, "block" if how["display_mode"] else "inline")
    )


def caption_of(cells):
    """The caption of a figure, from the cells after it: written there, or made by a cell out of numbers; "" without."""
    for cell in cells:
        if cell.cell_type == "markdown":
            texts = [cell.source]
        else:
            texts = ["".join(output.get("data", {}).get("text/markdown", "")) for output in cell.get("outputs", ())]
        if caption := next(filter(None, map(CAPTION.match, texts)), None):
            return caption[0]
        if HEADING.search(cell.source) or any("image/png" in one.get("data", {}) for one in cell.get("outputs", ())):
            break
    return ""


def figures_of(notebook):
    """The figures of a notebook in their order, as (PNG, what it shows in words, title of its section, caption).

    The caption is what stands under the figure, from "**Figure 1.**" to the end of the paragraph.
    """
    section = ""
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            headings = HEADING.findall(CODE_BLOCK.sub("", cell.source))
            section = headings[-1] if headings else section
        for output in cell.get("outputs", ()):
            if png := output.get("data", {}).get("image/png"):
                words = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
                yield base64.b64decode("".join(png)), words, section, caption_of(notebook.cells[number + 1 :])


def deck(notebook):
    """The deck of a notebook, as one page of HTML."""
    markdown = renderer()
    title = next(match[1] for cell in notebook.cells if (match := re.match(r"# (.+)", cell.source)))
    figures = list(figures_of(notebook))
    made = [f'<section class="title"><h1>{markdown.renderInline(title)}</h1></section>']
    for number, (png, words, section, caption) in enumerate(figures, start=1):
        below = markdown.render(LINK.sub(r"\1", caption)).strip()
        made.append(
            f"<section>\n<h2>{markdown.renderInline(section)}</h2>\n<figure>\n"
            f'<img alt="{html.escape(words)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">\n'
            f"<figcaption>{below}</figcaption>\n</figure>\n"
            f"<footer>{html.escape(title.partition(':')[0])} · {number} of {len(figures)}</footer>\n</section>"
        )
    return PAGE.substitute(title=html.escape(title), slides="\n".join(made))


def main(root=ROOT):
    out = root / "_build" / "slides"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    notebooks = sorted((root / "notebooks").glob("*.ipynb"))
    for path in notebooks:
        (out / f"{path.stem}.html").write_text(deck(nbformat.read(path, as_version=4)), encoding="utf-8")
    print(f"Made {len(notebooks)} decks: {out.relative_to(root)}/*.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
