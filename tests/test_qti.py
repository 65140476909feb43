"""The quizzes in QTI: every question, every choice with what is said to it, and the right one marked."""

import html
import re
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import nbformat
import pytest
import qti
import quizzes

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
ALL = pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
IN = {"": "http://www.imsglobal.org/xsd/ims_qtiasiv1p2"}


def words(markup):
    """The words of a text in Markdown or HTML, without marks and signs."""
    plain = html.unescape(re.sub(r"<[^>]*>", "", qti.without_math(markup)))
    return re.findall(r"[a-z0-9]+", re.sub(r"[’`*]", "", plain.lower()))


@ALL
def test_the_quiz_of_each_chapter_is_written_for_text2qti(path):
    notebook = nbformat.read(path, as_version=4)
    text = qti.as_text(notebook)
    assert "$" not in text and "\\" not in text and "<summary>" not in text
    assert len(re.findall(r"(?m)^\d\. ", text)) == len(re.findall(r"(?m)^\*[a-e]\) ", text)) == quizzes.QUESTIONS
    assert len(re.findall(r"(?m)^\*?[a-e]\) ", text)) == len(re.findall(r"(?m)^\.\.\. ", text))


@ALL
def test_the_export_holds_every_question_and_marks_the_right_answer(path, tmp_path):
    pytest.importorskip("text2qti")
    notebook = nbformat.read(path, as_version=4)
    qti.export(notebook, tmp_path / "quiz.zip")
    assert (tmp_path / "quiz.txt").read_text(encoding="utf-8") == qti.as_text(notebook)
    with zipfile.ZipFile(tmp_path / "quiz.zip") as files:
        assert files.testzip() is None and not [name for name in files.namelist() if "images" in name]
        manifest = ElementTree.fromstring(files.read("imsmanifest.xml"))
        (listed,) = [one.get("href") for one in manifest.iter() if one.get("href", "").endswith("/assessment_meta.xml")
                     and one.tag.endswith("resource")]  # fmt: skip
        (name,) = [one for one in files.namelist() if one.endswith(".xml") and "/text2qti_assessment" in one]
        assert listed.partition("/")[0] == name.partition("/")[0]
        raw = files.read(name).decode()
    assert "equation_images" not in raw and "<img" not in html.unescape(raw) and "$" not in raw
    items = ElementTree.fromstring(raw).findall(".//item", IN)
    assert len(items) == quizzes.QUESTIONS
    for item, (question, choices) in zip(items, quizzes.questions(notebook), strict=True):
        assert words(item.find("presentation/material/mattext", IN).text) == words(question)
        labels = item.findall(".//response_label", IN)
        shown = {label.get("ident"): label.find("material/mattext", IN).text for label in labels}
        said = {one.get("ident"): one.find(".//mattext", IN).text for one in item.findall("itemfeedback", IN)}
        (right,) = [
            condition.find("conditionvar/varequal", IN).text
            for condition in item.findall("resprocessing/respcondition", IN)
            if condition.find("setvar", IN) is not None
        ]
        for (ident, text), (_, choice, reason, is_right) in zip(shown.items(), choices, strict=True):
            assert words(text) == words(choice) and words(said[f"{ident}_fb"]) == words(reason)
            assert is_right == (ident == right) == ("Yes." in said[f"{ident}_fb"])


@pytest.mark.parametrize(
    ("tex", "shown"),
    [
        ("p_0 = 0.1", "<i>p</i><sub>0</sub> = 0.1"), (r"-\infty", "−∞"),
        (r"x^{1/2} \ge -1", "<i>x</i><sup>1/2</sup> ≥ −1"), (r"2 \log x", "2 log <i>x</i>"),
        (r"1{,}000 \cdot 0.02 = 20", "1,000 · 0.02 = 20"), (r"E < \gamma + 1", "<i>E</i> &lt; γ + 1"),
        (r"\log p(x) - \log q(x)", "log <i>p</i>(<i>x</i>) − log <i>q</i>(<i>x</i>)"),
        (r"\min(1, p/q)", "min(1, <i>p</i>/<i>q</i>)"), (r"c - c'", "<i>c</i> − <i>c</i>′"),
        (r"k\,d", "<i>k</i> <i>d</i>"), ("{a}b", "<i>a</i><i>b</i>"),
        ("h_{t+1}", "<i>h</i><sub><i>t</i> + 1</sub>"), ("h_t^2", "<i>h</i><sub><i>t</i></sub><sup>2</sup>"),
    ],
)  # fmt: skip
def test_a_formula_becomes_text_that_every_platform_shows(tex, shown):
    assert qti.as_html(tex) == shown
    assert qti.without_math(f"If ${tex}$, then `'$x`'s.") == f"If {shown}, then `'$x`’s."


@pytest.mark.parametrize("tex", [r"\frac{1}{2}", r"\sum_i p_i", "{a", "a}", "a & b", r"\mathbf{x}"])
def test_a_formula_that_cannot_be_shown_as_text_is_named(tex):
    with pytest.raises(ValueError, match=re.escape(f"formula ${tex}$")):
        qti.as_html(tex)


def test_a_quiz_without_its_form_is_named(tmp_path, capsys):
    (tmp_path / "notebooks").mkdir()
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# Title\n\n## Quiz\n\n**1.** Why?")])
    nbformat.write(notebook, tmp_path / "notebooks" / "01_x.ipynb")
    assert qti.main(tmp_path) == 1
    assert "01_x.ipynb: the questions are numbered 1; wanted are 1, 2, 3" in capsys.readouterr().err
