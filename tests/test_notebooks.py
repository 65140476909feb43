"""The notebooks as files: executed in order, free of what is volatile, readable without seeing the figures.

That their outputs are right is checked by ``make nbval``, which executes them.
"""

import io
import itertools
import re
from base64 import b64decode, b64encode

import nbformat
import numpy as np
import pytest
import setup_cells
from as_on_colab import COMPILE, copy_alone
from build_book import ROOT, toc_pages
from execute_notebooks import WIDGET, execute, fewer_colours, normalise
from PIL import Image

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def path(request):
    return request.param


@pytest.fixture
def notebook(path):
    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook):
    return [output for cell in code_cells(notebook) for output in cell.outputs]


def test_the_table_of_contents_names_every_notebook_once():
    named = [page for page in toc_pages(ROOT) if page.startswith("notebooks/")]
    assert named == [f"notebooks/{path.stem}" for path in NOTEBOOKS]


def test_it_is_a_valid_notebook(notebook):
    nbformat.validate(notebook)


def test_every_cell_was_executed_in_order(notebook):
    # nbval does not compare a cell without an execution count.
    assert [cell.execution_count for cell in code_cells(notebook)] == list(range(1, len(code_cells(notebook)) + 1))


def test_no_cell_is_kept_from_being_executed_or_compared(notebook):
    tags = [tag for cell in notebook.cells for tag in cell.metadata.get("tags", [])]
    assert not {"nbval-skip", "skip-execution", "raises-exception"} & set(tags)
    ignored = tags.count("nbval-ignore-output")
    assert ignored <= len(code_cells(notebook)) / 3, f"{ignored} of {len(code_cells(notebook))} cells are not compared"


# What clears a display or draws on one again: a cell with it never equals its stored outputs.
CHANGES_ITS_DISPLAY = re.compile(r"clear_output|update_display|display_id|\btqdm|FuncAnimation")


def test_no_compared_cell_updates_or_clears_its_display(notebook):
    compared = [cell for cell in code_cells(notebook) if "nbval-ignore-output" not in cell.metadata.get("tags", [])]
    assert [cell.source for cell in compared if CHANGES_ITS_DISPLAY.search(cell.source)] == []


def test_nothing_volatile_is_left_in_it(path, notebook):
    assert path.read_text(encoding="utf-8") == nbformat.writes(normalise(notebook)) + "\n"


def test_no_output_is_an_error_or_a_warning(notebook):
    assert [output for output in outputs(notebook) if output.output_type == "error"] == []
    assert [output.text for output in outputs(notebook) if output.get("name") == "stderr"] == []


def test_no_path_of_one_machine_stands_in_it(path):
    found = re.search(r"(?<![\w./-])/(?:home|root|tmp|Users|work|content)/[\w.-]+", path.read_text(encoding="utf-8"))
    assert found is None, found


def test_every_picture_has_an_alt_text(notebook):
    for cell in code_cells(notebook):
        if any(kind.startswith("image/") for output in cell.outputs for kind in output.get("data", {})):
            alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
            assert len(alt) > 20, f"a cell with a picture has the alt text {alt!r}: {cell.source[:80]}"


def test_badges_and_setup_cells_are_up_to_date():
    assert setup_cells.out_of_date() == {}


def test_the_setup_cell_is_the_same_in_every_notebook_and_comes_first():
    sources = set()
    for path in NOTEBOOKS:
        first = code_cells(nbformat.read(path, as_version=4))[0]
        assert first.metadata["tags"][0] == setup_cells.SETUP_TAG, path.name
        sources.add(first.source)
    assert len(sources) == 1


def test_it_begins_with_its_title_and_its_own_badge(path, notebook):
    first = notebook.cells[0]
    assert first.cell_type == "markdown" and first.source.startswith("# ")
    assert f"/blob/{setup_cells.BRANCH}/notebooks/{path.name})" in first.source
    titles = [line for cell in notebook.cells if cell.cell_type == "markdown" for line in titles_of(cell.source)]
    assert len(titles) == 1, titles


# Roles, directives in colons or backticks, targets, and the line that ends a block.
BOOK_ONLY = re.compile(r"(?m)\{[a-z][\w:+.-]*\}`|^ *(?::{3}|[`~]{3,}\{|\([\w-]+\)=$|\+\+\+)")


def only_the_book_understands(markdown):
    """What GitHub and Colab would show as code; inline code is passed over."""
    return [found.group() for found in BOOK_ONLY.finditer(re.sub(r"`[^`\n]+`", "`", markdown))]


def test_nothing_stands_in_it_that_only_the_book_understands(notebook):
    found = [only_the_book_understands(cell.source) for cell in notebook.cells if cell.cell_type == "markdown"]
    assert sum(found, []) == []


def test_what_only_the_book_understands_is_found_and_a_formula_or_a_plain_block_is_not():
    for text in ("see {doc}`x`", "{cite:p}`x`", ":::{note}", "```{figure} x.svg", "a\n\n(label)=\n# b", "+++"):
        assert only_the_book_understands(text), text
    assert not only_the_book_understands("$f_{n}$, `{a}` and {b}, f(x)=2, ::\n\n```python\nx = {a}\n```")


def test_as_on_colab_it_is_run_as_it_is_and_only_cells_that_install_are_not_compared(path, notebook, tmp_path):
    copied = nbformat.read(copy_alone(path, tmp_path), as_version=4)
    for cell, copy in zip(notebook.cells, copied.cells, strict=True):
        if cell.cell_type == "code" and "%pip" in cell.source:
            assert copy.metadata["tags"] == [*cell.metadata.get("tags", []), "nbval-ignore-output"]
            copy.metadata, copy.source = cell.metadata, copy.source.removesuffix(COMPILE)
        assert copy == cell


PARTS = ("Exercises", "Quiz", "Summary", "References")
GOALS = "<details>\n<summary>What you will be able to do, how long it takes, and what you need</summary>\n\n"


def test_it_has_every_part_of_a_chapter_once_and_in_order(notebook):
    titles = [line for cell in notebook.cells if cell.cell_type == "markdown" for line in titles_of(cell.source, "## ")]
    assert [title[3:] for title in titles if title[3:] in PARTS] == list(PARTS)


def test_it_opens_with_a_picture(notebook):
    """Before the first picture there are neither headings nor open code, and what the reader needs is one line."""
    before = list(itertools.takewhile(lambda cell: not has_a_picture(cell), notebook.cells))
    assert len(before) < len(notebook.cells) and before[1].source.startswith(GOALS)
    for cell in before:
        if cell.cell_type == "code":
            assert "hide-input" in cell.metadata.tags, cell.source
        else:
            assert not titles_of(cell.source, "## "), cell.source


def has_a_picture(cell):
    return cell.cell_type == "code" and any("image/png" in output.get("data", {}) for output in cell.outputs)


def titles_of(markdown, mark="# "):
    """Headings of one level, those in code blocks left out."""
    return re.findall(rf"(?m)^{mark}.*", re.sub(r"(?s)^(`{3,}).*?^\1", "", markdown, flags=re.MULTILINE))


# The scripts themselves, on a notebook made for the purpose.


def small_notebook(source="print('a')\nprint('b')"):
    cells = [nbformat.v4.new_markdown_cell("# Title\n\nText"), nbformat.v4.new_code_cell(source)]
    return nbformat.v4.new_notebook(cells=cells)


# A table row that arrives in pieces, as any row does on a busy machine.
IN_PIECES = """
import time
for piece in ["a", "  b\\n", "c", "  d\\n"]:
    print(piece, end="", flush=True)
    time.sleep(0.3)
"""


# ----------------------------------------------------------------------------------------------------------------------
# A chapter is one sitting


def prose(text):
    """The words that a reader reads one after the other: no folded parts, formulas, code, tables and references."""
    for left_out in (r"<details>.*?</details>", r"```.*?```", r"\$\$.*?\$\$", r"^\|.*?$", r"## References.*"):
        text = re.sub(left_out, "", text, flags=re.DOTALL | re.MULTILINE)
    return text.split()


def code_lines(notebook):
    sources = [cell.source for cell in code_cells(notebook) if "setup" not in cell.metadata.get("tags", [])]
    return [line for source in sources for line in source.splitlines() if line.strip()]


def test_prose_is_counted_without_what_is_folded_and_what_is_not_read_as_a_sentence():
    folded, table = "<details>\nfolded\n</details>", "| a | b |\n|---|---|"
    left_out = [folded, table, "$$\nx = 1\n$$", "```\ncode\n```", "## References\n- One"]
    text = "\n\n".join(["Two words.", *left_out])
    assert prose(text) == ["Two", "words."]


def test_it_is_one_sitting(notebook):
    texts = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    assert sum(len(prose(text)) for text in texts) <= 3500
    # Characters, because where lines break says nothing of how much there is to read: 350 full lines of code.
    assert sum(len("".join(line.split())) for line in code_lines(notebook)) <= 14_000


def test_no_line_of_code_is_wider_than_a_page_shows(notebook):
    """At 1,366 pixels a cell shows about 88 characters; a command that installs cannot be broken."""
    lines = [line for cell in code_cells(notebook) for line in cell.source.splitlines() if "%pip" not in line]
    assert [line for line in lines if len(line) > 76] == []


def test_results_are_tables_and_figures_and_seldom_printed_lines():
    lines = [line for path in NOTEBOOKS for line in code_lines(nbformat.read(path, as_version=4))]
    assert sum("print(" in line for line in lines) < 150


def test_every_exercise_says_how_hard_it_is(notebook):
    exercises = [
        cell.source for cell in notebook.cells if re.match(r"(## Exercises.*)?### Exercise ", cell.source, re.DOTALL)
    ]
    starts = [text.partition("### Exercise ")[2].split("\n\n")[1] for text in exercises]
    assert starts and all(re.match(r"\*(Warm-up|Core|Hard)\.\*", start) for start in starts), starts


def test_normalising_gives_the_same_ids_every_time_and_different_ones_to_equal_cells():
    first, second = small_notebook(), small_notebook()
    second.cells[0].id = "other"
    for notebook in (first, second):
        notebook.cells.append(nbformat.v4.new_code_cell(notebook.cells[1].source))
    ids = [cell.id for cell in normalise(first).cells]
    assert ids == [cell.id for cell in normalise(second).cells]
    assert len(set(ids)) == 3
    nbformat.validate(first)


def test_normalising_strips_times_widgets_and_versions_and_keeps_what_matters():
    notebook = small_notebook()
    cell = notebook.cells[1]
    lasting = {"tags": ["a"], "mystnb": {"image": {"alt": "A line"}}}
    cell.metadata.update({"execution": {"iopub.execute_input": "now"}, **lasting})
    picture = {"image/png": "AAAA", WIDGET: {"model_id": "random"}, "text/plain": "x"}
    cell.outputs = [
        nbformat.v4.new_output("stream", name="stdout", text="a\n"),
        nbformat.v4.new_output("stream", name="stdout", text="b\n"),
        nbformat.v4.new_output(
            "display_data",
            data=picture,
            metadata={"needs_background": "light", "image/png": {"width": 600, "height": 300, "other": 1}},
        ),
    ]
    notebook.metadata.update({"widgets": {"state": {}}, "language_info": {"name": "python", "version": "3.1.4"}})
    normalise(notebook)
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert "version" not in notebook.metadata.language_info
    assert cell.metadata == lasting
    assert [output.get("text") for output in cell.outputs] == ["a\nb\n", None]
    assert set(cell.outputs[1].data) == {"image/png", "text/plain"}
    assert "Run this cell" in cell.outputs[1].data["text/plain"]
    assert cell.outputs[1].metadata == {"image/png": {"width": 600, "height": 300, "alt": "A line"}}


def test_a_cell_that_the_book_folds_is_folded_on_colab_and_in_jupyterlab_too():
    notebook = small_notebook()
    notebook.cells.append(nbformat.v4.new_code_cell("print('c')", metadata={"tags": ["hide-input"]}))
    _, shown, hidden = normalise(notebook).cells
    assert "cellView" not in shown.metadata and "jupyter" not in shown.metadata
    assert (hidden.metadata.cellView, hidden.metadata.jupyter.source_hidden) == ("form", True)
    assert normalise(notebook).cells[2] == hidden


def test_the_setup_script_writes_badge_and_setup_cell_writes_them_once_and_follows_a_new_address():
    notebook, address = small_notebook(), "https://github.com/somebody/something"
    setup_cells.update_notebook(notebook, "notebooks/01_x.ipynb", address)
    again = nbformat.writes(notebook)
    assert "somebody/something/blob/main/notebooks/01_x.ipynb" in notebook.cells[0].source
    assert notebook.cells[0].source.endswith("Text")
    assert f"git+{address}" in notebook.cells[1].source
    setup_cells.update_notebook(notebook, "notebooks/01_x.ipynb", address)
    assert nbformat.writes(notebook) == again
    setup_cells.update_notebook(notebook, "notebooks/01_x.ipynb", "https://github.com/new/home")
    text = nbformat.writes(notebook)
    assert "somebody" not in text and text.count("new/home") == 2


def test_a_notebook_without_a_title_is_refused():
    with pytest.raises(ValueError, match="title"):
        setup_cells.update_notebook(
            nbformat.v4.new_notebook(cells=[]), "notebooks/01_x.ipynb", "https://github.com/a/b"
        )


def as_base64(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels.astype("uint8"), "RGB").save(file, "png")
    return b64encode(file.getvalue()).decode("ascii")


def test_a_figure_with_few_colours_looks_the_same_and_one_with_many_stays_as_it_is():
    from tutorlib.viz.palette import LIGHT, rgb

    lines = np.full((200, 300, 3), 255)
    shade = np.random.default_rng(0).integers(0, 201, (180, 250, 1)) / 200  # as the soft edges of letters
    lines[5:185, :250] = shade * np.array(rgb(LIGHT["target"])) + (1 - shade) * 255
    lines[150, 7] = rgb(LIGHT["rejected"])  # a single point in a colour of its own
    before = as_base64(lines)
    after = fewer_colours(before)
    shown = np.asarray(Image.open(io.BytesIO(b64decode(after))).convert("RGB")).astype(int)
    assert len(after) < len(before) and abs(shown - lines).max() <= 16 and (shown[lines == 255] == 255).all()
    assert fewer_colours(after) == after
    noise = as_base64(np.random.default_rng(0).integers(0, 256, (200, 300, 3)))
    assert fewer_colours(noise) == noise


@pytest.mark.slow
def test_figures_have_twice_the_pixels_that_they_are_shown_with(tmp_path):
    source = (
        "import matplotlib.pyplot as plt\nfrom tutorlib.viz import use_book_style\nuse_book_style()\n"
        "plt.figure(figsize=(4, 2)).add_subplot().plot([1, 2]);"
    )
    path = tmp_path / "drawn.ipynb"
    nbformat.write(small_notebook(source), path)
    assert execute(path)
    (output,) = nbformat.read(path, as_version=4).cells[1].outputs
    width, height = Image.open(io.BytesIO(b64decode(output.data["image/png"]))).size
    shown = output.metadata["image/png"]
    assert (shown["width"], shown["height"]) == (width // 2, height // 2) and 300 < shown["width"] < 450


@pytest.mark.slow
def test_executing_in_place_writes_outputs_and_leaves_a_failing_notebook_alone(tmp_path, capsys):
    good, bad = tmp_path / "good.ipynb", tmp_path / "bad.ipynb"
    nbformat.write(small_notebook(IN_PIECES), good)
    nbformat.write(small_notebook("1 / 0"), bad)
    before = bad.read_bytes()
    assert execute(good)
    (output,) = nbformat.read(good, as_version=4).cells[1].outputs
    assert output.text == "a  b\nc  d\n"
    assert not execute(bad)
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert bad.read_bytes() == before
