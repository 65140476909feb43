"""The book around the notebooks: the files at the top agree, the build fails when it should, the pages are sound."""

import json
import os
import re
import shutil
import subprocess
import sys

import build_book
import check_pages
import front_door
import measured
import nbformat
import offline
import outputs
import pytest
import renumber
import setup_cells
import yaml
from build_book import ROOT
from execute_notebooks import normalise
from packaging.requirements import Requirement
from packaging.version import Version
from test_notebooks import IN_PIECES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

import tutorlib

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


def requirement_lines(name):
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def text_files():
    """Every file of the repository that a person wrote or reads."""
    suffixes = {".md", ".py", ".toml", ".txt", ".yml", ".cff", ".ipynb", ".cfg", ".css", ".svg", ".bib", ".js", ""}
    generated = {"_build", "build", "dist", "runs", "__pycache__"}
    for top in sorted(ROOT.iterdir()):
        if top.name.startswith(".") and top.name not in {".github", ".ci"}:
            continue
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            parts = path.relative_to(ROOT).parts
            left_out = generated & set(parts) or any(part.endswith(".egg-info") for part in parts)
            if path.is_file() and path.suffix in suffixes and not left_out:
                yield path


# The chapters' numbers.


def test_the_chapters_are_numbered_as_the_contents_list_them():
    assert renumber.out_of_step(ROOT) == []


@pytest.mark.parametrize(
    "old, new",
    [
        ("Chapter 3's tree", "Chapter 4's tree"),
        ("chapters 1, 3 and 4, or 9", "chapters 1, 4 and 3, or 9"),
        (
            "chapters [3](03_beam.ipynb) and [4](04_sample.ipynb)",
            "chapters [4](04_beam.ipynb) and [3](03_sample.ipynb)",
        ),
        ("| 3 | [Beam](../notebooks/03_beam.ipynb) | 3 beams", "| 4 | [Beam](../notebooks/04_beam.ipynb) | 3 beams"),
        (
            'story("chapter 3, story 4")',
            'story("chapter 3, story 4")',
        ),  # the name of a story, which decides what it tells
        ("take 3 of 4", "take 3 of 4"),
    ],
)
def test_renumbering_rewrites_what_is_said_of_chapters_and_no_other_number(old, new):
    assert renumber.renumbered(old, {"01_first": 1, "04_sample": 3, "03_beam": 4}) == new


# The files at the top.


def test_requirements_repeat_the_dependencies_of_the_package():
    assert requirement_lines("requirements.txt") == PROJECT["dependencies"]


def test_every_dependency_is_pinned_and_the_pin_satisfies_its_bound():
    pins = [Requirement(line) for line in requirement_lines("constraints.txt")]
    for line in [
        *PROJECT["dependencies"],
        *EXTRAS["book"],
        *EXTRAS["test"],
        *EXTRAS["smollm2"],
        *EXTRAS["qti"],
        *EXTRAS["schemas"],
    ]:
        bound = Requirement(line)
        pinned = [pin for pin in pins if pin.name.lower() == bound.name.lower()]
        assert pinned, f"{bound.name} has no pin in constraints.txt"
        for pin in pinned:
            assert bound.specifier.contains(str(pin.specifier).removeprefix("=="), prereleases=True), (line, str(pin))


def test_every_constraint_is_one_exact_version():
    for line in requirement_lines("constraints.txt"):
        assert re.fullmatch(r"==[^=*,]+", str(Requirement(line).specifier)), line


def test_the_torch_pin_admits_the_cpu_build():
    (pin,) = [Requirement(line) for line in requirement_lines("constraints.txt") if line.startswith("torch==")]
    assert pin.specifier.contains(Version("2.13.0+cpu"))


def test_the_bounds_admit_what_colab_has():
    colab = {"torch": "2.11", "transformers": "5.15", "numpy": "2.1.3", "matplotlib": "3.10", "ipywidgets": "7.7.1"}
    for line in PROJECT["dependencies"]:
        bound = Requirement(line)
        if bound.name in colab:
            assert bound.specifier.contains(colab[bound.name]), line


def test_the_version_is_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert PROJECT["version"] == tutorlib.__version__ == str(citation["version"])
    assert f"## {PROJECT['version']}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def readme_tree():
    """The paths that the README's file tree names: two spaces of indentation are one folder down."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.search(r"```text\n(README\.md .*?)```", readme, re.DOTALL).group(1)
    folder, paths = "", []
    for line in block.splitlines():
        name = line.split()[0]
        paths.append((folder if line.startswith("  ") else "") + name)
        if not line.startswith("  "):
            folder = name if name.endswith("/") else ""
    return paths


def test_every_file_that_the_readme_names_exists():
    assert len(readme_tree()) > 20
    assert [path for path in readme_tree() if not (ROOT / path).exists()] == []


def test_the_readme_names_every_room_of_the_package_and_every_chapter():
    modules = {f"tutorlib/{path.name}" for path in (ROOT / "tutorlib").glob("*.py")}
    inside = [path.relative_to(ROOT / "tutorlib").parts for path in (ROOT / "tutorlib").rglob("*.py")]
    rooms = {f"tutorlib/{parts[0]}/" for parts in inside if len(parts) > 1}
    chapters = {f"notebooks/{path.name}" for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert modules | rooms | chapters <= set(readme_tree())


def test_the_repositorys_address_stands_in_one_place():
    owner_and_name = setup_cells.repository_address().partition("github.com/")[2]
    managed = {ROOT / name for name in ("pyproject.toml", *setup_cells.PLACES)}
    others = [path for path in text_files() if path not in managed and path.suffix != ".ipynb"]
    assert [path for path in others if owner_and_name in path.read_text(encoding="utf-8")] == []


def test_every_copy_of_the_address_follows_the_one_place():
    address = setup_cells.repository_address()
    for name, patterns in setup_cells.PLACES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        moved = setup_cells.write_address(text, patterns, "https://github.com/new/home")
        assert address.partition("github.com/")[2] not in moved, name
        assert "new/home" in moved, name
        assert setup_cells.write_address(moved, patterns, address) == text, name


def test_a_malformed_address_is_an_error(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[project.urls]\nRepository = "somewhere"\n')
    with pytest.raises(ValueError, match="somewhere"):
        setup_cells.repository_address(tmp_path)


def test_hosted_checks_call_the_commands_of_the_readme():
    commands = {"ci.yml": "make test", "pages.yml": "make book", "colab.yml": "make test-colab"}
    commands["versions.yml"] = "make check-${{ matrix.versions }}"
    for name, command in commands.items():
        (job,) = yaml.safe_load((ROOT / ".github/workflows" / name).read_text(encoding="utf-8"))["jobs"].values()
        assert [step["run"] for step in job["steps"] if "run" in step] == [command]
    script = (ROOT / ".ci/run").read_text()
    assert "\nmake test\n" in script and "\nmake book\n" in script and os.access(ROOT / ".ci/run", os.X_OK)


def test_the_settings_keep_what_the_tool_chain_needs():
    settings = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    assert settings["execute"]["execute_notebooks"] == "off", "build_book executes, and joins printed pieces"
    assert ".pytest_cache" in settings["exclude_patterns"]


def test_every_cited_paper_is_in_the_bibliography():
    keys = set(re.findall(r"(?m)^@\w+\{([^,]+),", (ROOT / "book/references.bib").read_text(encoding="utf-8")))
    cited = set()
    for path in [*(ROOT / "book").glob("*.md"), *(ROOT / "notebooks").glob("*.ipynb")]:
        for found in re.findall(r"\{cite(?::\w+)?\}`([^`]+)`", path.read_text(encoding="utf-8")):
            cited |= {key.strip() for key in found.split(",")}
    assert cited and cited <= keys, cited - keys


# The lists of public names on the API page.


def test_every_public_name_is_in_one_group_of_the_api_page():
    page = (ROOT / "book" / "api.md").read_text(encoding="utf-8")
    lines = re.search(r"```\{front-door\} tutorlib\n(.*?)```", page, re.DOTALL)[1].splitlines()
    assert sum(len(names) for _, names in front_door.groups(lines, tutorlib.__all__)) == len(tutorlib.__all__)


@pytest.mark.parametrize("lines", [["One: a"], ["One: a b", "Two: a"], ["One: a b c"]])
def test_a_name_in_no_group_or_in_two_or_unknown_is_an_error(lines):
    with pytest.raises(ValueError, match="not so: [abc]$"):
        front_door.groups(lines, ["a", "b"])


# Measured speeds, from the files of results.


def test_a_speed_on_a_page_is_the_median_in_the_file_and_of_several_settings_the_best():
    (path,) = measured.COMMITTED.glob("storyworld_*.json")
    rows = {
        row["name"]: row["over_plain"][0]  # the median
        for under in json.loads(path.read_text(encoding="utf-8"))["results"]
        if (under["kind"], under["temperature"], under["batch"]) == ("story", 1, 1)
        for row in under["rows"]
    }
    best = max(median for name, median in rows.items() if name.startswith("speculative, "))
    assert measured.measured("storyworld, story, 1, speculative") == f"{best:.2f}"


def test_a_speed_over_all_kinds_of_prompt_is_a_range():
    low, high = measured.measured("smollm2, *, 0, prompt_lookup").split("–")
    assert 0.2 < float(low) < float(high) < 5


@pytest.mark.parametrize("text", ["village, machine", "storyworld, story, 1", "storyworld, story, 7, greedy"])
def test_a_speed_that_was_not_measured_is_an_error(text):
    with pytest.raises(ValueError):
        measured.measured(text)


# Formulas without a network.

FORMULAS = [
    r"\arg\max_x p(x \mid x_{<t})",
    r"p(x) = \frac{\exp(z_x / \tau)}{\sum_y \exp(z_y / \tau)}",
    r"\begin{aligned} a &= b \\ c &\le \tfrac12 d \end{aligned}",
    r"\begin{cases} 1 & x > 0 \\ 0 & \text{otherwise} \end{cases}",
    r"\min\!\left(1, \frac{p(x)}{q(x)}\right) \sim \mathcal{V}",
    r"\operatorname{softmax}(z)_i \approx 1.2 \times 10^{-16}\ \text{s}",
    r"\lvert p - q \rvert_1, \quad \lVert h \rVert, \ \lfloor x \rfloor",
    r"\mathbb{E}[\log p], \ \hat{p}, \ \sqrt{\epsilon}, \ \prod_{i=1}^{n} x_i, \ \binom{n}{k}",
]


@pytest.mark.parametrize("tex", FORMULAS)
def test_formulas_become_mathml(tex):
    for display in ("inline", "block"):
        result = offline.mathml(tex, display)
        assert result.startswith("<math") and result.endswith("</math>") and 'alttext="' in result


def test_the_sign_that_begins_a_subscript_keeps_no_distance():
    for tex in (r"x_{<t}", r"x_{\le t}", r"x_{>t}"):
        assert '<mo lspace="0" rspace="0">' in offline.mathml(tex, "inline")
    assert "lspace" not in offline.mathml("a < b", "inline")


def test_what_a_screen_reader_stumbles_over_is_mended():
    assert offline.audible('<summary aria-label="Toggle hidden content">Show</summary>') == "<summary>Show</summary>"
    assert offline.audible('<tr><th class="head text-right"><p></p></th></tr>') == "<tr><td></td></tr>"
    assert offline.audible('<th class="head"><p>calls</p></th>') == '<th class="head"><p>calls</p></th>'
    long = '<dl>\n<dd><em class="sig-param">lm</em>,</dd>\n<dd><em class="sig-param">k</em>,</dd>\n</dl>'
    assert offline.audible(long).count("<span>") == 2 and "<dd>" not in offline.audible(long)
    listed = '<dl class="simple">\n<dt>a</dt><dd><em class="sig-param">x</em></dd>\n</dl>'
    assert offline.audible(listed) == listed


def test_a_formula_and_the_punctuation_after_it_stay_on_one_line():
    first, second = (f'<span class="math">{offline.mathml(tex, "inline")}</span>' for tex in (r"\alpha", "x_t"))
    written = f"{first}, but {second} may be (after {second})."
    kept = '<span class="together">{}{}</span>'.format
    assert offline.together(written) == f"{kept(first, ',')} but {second} may be (after {kept(second, ').')}"


@pytest.mark.parametrize("tex", [r"\nosuchcommand x", r"a & b", r"\begin{aligned} a \\[4pt] b \end{aligned}"])
def test_a_formula_that_cannot_be_shown_is_an_error(tex):
    with pytest.raises(ValueError, match="MathML"):
        offline.mathml(tex, "inline")


# The checks of rendered pages: each is seen to fail once.


@pytest.fixture
def small_site(tmp_path):
    """A book of two pages as rendered, with nothing wrong; `write` replaces what is inside a page."""
    root, site = tmp_path / "root", tmp_path / "site"
    for folder in (root / "notebooks", site / "notebooks", site / "book"):
        folder.mkdir(parents=True)
    (root / "_toc.yml").write_text("format: jb-book\nroot: book/welcome\nchapters:\n- file: notebooks/01_a\n")
    (root / "pyproject.toml").write_text('Repository = "https://github.com/o/r"\n')
    (root / "notebooks/01_a.ipynb").write_text("{}")
    (site / "picture.png").write_bytes(b"")
    (site / "index.html").write_text('<a href="book/welcome.html">in</a>')

    def write(page, content):
        check_pages.read.cache_clear()
        check_pages.anchors.cache_clear()
        (site / f"{page}.html").write_text(f"<html><body><article><h1 id='top'>T</h1>{content}</article></body></html>")
        return check_pages.check_site(site, root)

    link, picture = '<a href="../notebooks/01_a.html#top">a</a>', '<img src="../picture.png" alt="A line that rises">'
    write("book/welcome", link + picture)
    assert write("notebooks/01_a", BADGE) == []
    return write


BADGE = '<a href="https://colab.research.google.com/github/o/r/blob/main/notebooks/01_a.ipynb">Colab</a>'


@pytest.mark.parametrize(
    ("page", "content", "complaint"),
    [
        ("book/welcome", '<a href="nowhere.html">x</a>', "nowhere.html, which is not there"),
        ("book/welcome", '<a href="../notebooks/01_a.html#gone">x</a>', "no such place"),
        ("book/welcome", '<a href="#gone">x</a>', "no such place"),
        ("book/welcome", '<script src="gone.js"></script>', "gone.js"),
        ("book/welcome", '<img src="../picture.png">', "no alt text"),
        ("book/welcome", '<img src="../picture.png" alt="../picture.png">', "no alt text"),
        ("book/welcome", "<svg><path/></svg>", "neither aria-label"),
        ("book/welcome", '<div class="system-message">Unknown</div>', "failure or a warning"),
        ("book/welcome", "<p>| tokens | calls |\n| --- | --- |\n| 3 | 1 |</p>", "a table as text: | tokens"),
        ("book/welcome", "<p>| tokens | calls |\n|—|—|\n| 3 | 1 |</p>", "a table as text: | tokens"),
        ("book/welcome", BADGE.replace("01_a", "99_z"), "opens no notebook"),
        ("book/welcome", '<script src="https://cdn.example/widgets.js"></script>', "asks another host"),
        ("book/welcome", '<link rel="stylesheet" href="//cdn.example/a.css">', "asks another host"),
        ("book/welcome", '<script type="application/vnd.jupyter.widget-state+json">{}</script>', "live widgets"),
        ("notebooks/01_a", "", "no Colab badge"),
        ("notebooks/01_a", BADGE.replace("01_a", "02_b"), "opens another notebook"),
        ("notebooks/01_a", BADGE.replace("/main/", "/master/"), "opens another notebook"),
        ("notebooks/01_a", BADGE + '<div class="output traceback">ZeroDivisionError</div>', "failure or a warning"),
    ],
)
def test_the_page_checks_find(small_site, page, content, complaint):
    problems = small_site(page, content)
    assert len(problems) == 1 and complaint in problems[0], problems


def test_a_missing_page_is_found(small_site, tmp_path):
    (tmp_path / "site/book/welcome.html").unlink()
    check_pages.read.cache_clear()
    assert "book/welcome: the page does not exist" in check_pages.check_site(tmp_path / "site", tmp_path / "root")


# The build, on a book of one page and one notebook.


@pytest.fixture
def small_book(tmp_path):
    """A function that writes a small book, with this one's settings, and returns its root."""

    def write(code="print(1 + 1)", prose="# Welcome\n\nText."):
        for folder in ("notebooks", "tutorlib"):
            (tmp_path / folder).mkdir(exist_ok=True)
        for folder in ("book/_static", "book/_tools"):
            shutil.copytree(ROOT / folder, tmp_path / folder, dirs_exist_ok=True)
        for file in ("_config.yml", "book/references.bib", "constraints.txt"):
            shutil.copy(ROOT / file, tmp_path / file)
        (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: book/welcome\nchapters:\n- file: notebooks/01_a\n")
        (tmp_path / "tutorlib/__init__.py").write_text("")
        (tmp_path / "book/welcome.md").write_text(prose)
        cells = [nbformat.v4.new_markdown_cell("# A"), nbformat.v4.new_code_cell(code)]
        nbformat.write(normalise(nbformat.v4.new_notebook(cells=cells)), tmp_path / "notebooks/01_a.ipynb")
        return tmp_path

    return write


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [{"code": "1 / 0"}, {"prose": "# Welcome\n\n[nowhere](gone.md)"}], ids=str)
def test_a_failing_cell_or_a_warning_fails_the_build_the_second_time_too(small_book, capfd, wrong):
    root = small_book(**wrong)
    assert build_book.build(root) is None
    assert build_book.build(root) is None
    assert "prose" in wrong or "ZeroDivisionError" in capfd.readouterr().err


@pytest.mark.slow
def test_a_page_is_executed_once_until_the_package_changes_with_pieces_as_one_text_and_no_live_widget(small_book):
    counted = "with open('ran.txt', 'a') as file:\n    _ = file.write('x')"
    widget = "import ipywidgets\nfrom IPython.display import display\ndisplay(ipywidgets.IntSlider())"
    root = small_book(code=f"{counted}\n{IN_PIECES}{widget}")
    ran, site = root / "notebooks" / "ran.txt", root / "_build" / "html"
    assert build_book.build(root) == site
    page = site / "notebooks/01_a.html"
    assert check_pages.outside_requests(page) == []
    printed, slider = (output.get_text() for output in check_pages.read(page).select(".cell_output pre"))
    assert printed == "a  b\nc  d\n" and "Run this cell" in slider
    assert build_book.executed(root, root / "_build" / "executed")
    assert ran.read_text() == "x"
    (root / "tutorlib/__init__.py").write_text("changed = True")
    assert build_book.executed(root, root / "_build" / "executed")
    assert ran.read_text() == "xx"


def test_what_was_just_compared_is_not_executed_again_until_the_package_changes(small_book, monkeypatch):
    root, ran = small_book(), []
    folder = root / "_build" / "executed"
    monkeypatch.setattr(build_book, "execute", lambda notebook, copy: ran.append(notebook) or True)
    build_book.compared(root, folder)
    assert build_book.executed(root, folder) and ran == []
    shutil.rmtree(folder)  # as in a fresh clone: the hash beside the notebooks says that their outputs are right
    assert build_book.executed(root, folder) and ran == []
    (root / "tutorlib/__init__.py").write_text("changed = True")
    assert build_book.executed(root, folder) and ran == [root / "notebooks/01_a.ipynb"]


@pytest.mark.parametrize("part", ["source", "outputs"])
def test_committed_outputs_that_are_not_of_this_code_are_never_shown_in_silence(small_book, monkeypatch, part):
    root, ran = small_book(), []
    monkeypatch.setattr(build_book, "execute", lambda notebook, copy: ran.append(notebook) or True)
    path = root / "notebooks/01_a.ipynb"
    outputs.note(root, [path])
    notebook = nbformat.read(path, as_version=4)
    printed = [nbformat.v4.new_output("stream", name="stdout", text="3\n")]
    notebook.cells[1][part] = {"source": "print(1 + 2)", "outputs": printed}[part]
    nbformat.write(notebook, path)
    assert build_book.executed(root, root / "_build" / "executed") and ran == [path]
    notebook.cells[0].source = "# B"  # prose alone needs no execution
    nbformat.write(notebook, path)
    outputs.note(root, [path])
    notebook.cells[0].source = "# C"
    nbformat.write(notebook, path)
    assert outputs.up_to_date(root, [path]) == [path]


def test_pages_are_looked_at_again_unless_they_are_the_very_ones_that_were(small_book, monkeypatch):
    root = small_book()

    def told(option):
        monkeypatch.setattr(sys, "argv", ["build_book.py", option, "--root", str(root)])
        return build_book.main()

    pages = [root / "_build" / site for site in ("committed/_build/html/index.html", "html/index.html")]
    for page in (*pages, root / "tests" / "test_browser.py", root / "book" / "_tools" / "check_pages.py"):
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text("as committed")
    assert told("--looked-at") == 1  # nobody has looked yet
    assert told("--compared") == 0 and told("--looked-at") == 0
    for changed in (pages[1], root / "tests" / "test_browser.py"):
        changed.write_text("otherwise")
        assert told("--looked-at") == 1
        changed.write_text("as committed")
    (pages[1].parent / "added.html").write_text("")
    assert told("--looked-at") == 1


@pytest.mark.slow
def test_the_committed_outputs_are_rendered_without_executing_and_once_until_a_page_changes(small_book, monkeypatch):
    root = small_book(code="raise SystemExit('must not run')")
    path = root / "notebooks/01_a.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[1].execution_count = 1
    notebook.cells[1].outputs = [nbformat.v4.new_output("stream", name="stdout", text="as committed\n")]
    nbformat.write(notebook, path)
    site = build_book.build(root, committed=True)
    assert "as committed" in (site / "notebooks/01_a.html").read_text(encoding="utf-8")
    build_book.compared(root, root / "_build" / "executed")
    monkeypatch.setattr(build_book.subprocess, "run", lambda *_, **__: pytest.fail("rendered again"))
    again = build_book.build(root)
    assert again == root / "_build" / "html"
    assert all((again / page.relative_to(site)).read_bytes() == page.read_bytes() for page in site.rglob("*.html"))
    (root / "book/welcome.md").write_text("# Welcome back")
    with pytest.raises(pytest.fail.Exception, match="rendered again"):
        build_book.build(root)


@pytest.mark.slow
def test_a_build_that_makes_no_pages_is_a_failure(small_book, monkeypatch, capsys):
    # As jupyter-book 2 does with these settings: exit code 0, and nothing built.
    root = small_book()
    monkeypatch.setattr(build_book.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0))
    assert build_book.build(root) is None
    assert "made no page for index, book/welcome, notebooks/01_a" in capsys.readouterr().err
