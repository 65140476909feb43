"""The form of a quiz that can be answered on the page: what is missing is named."""

from pathlib import Path

import nbformat
import pytest
import quizzes
from bs4 import BeautifulSoup
from built_site import built_site

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))

QUESTION = "**{}.** You add 5 to every logit. What happens?\n\n- **A.** Nothing.\n- **B.** The large ones grow."
SAID = (
    "<details>\n<summary>A</summary>\n\n**Yes.** Every exponential gets the same factor.\n\n</details>\n"
    "<details>\n<summary>B</summary>\n\n**No.** A low temperature would do that.\n\n</details>"
)


def quiz(question=QUESTION, said=SAID, tags=("solution",), count=3):
    new, cells = nbformat.v4.new_markdown_cell, []
    for number in range(1, count + 1):
        text = question.replace("{}", str(number))
        cells.append(new("## Quiz\n\n" + text if number == 1 else text))
        cells.append(new(said, metadata={"tags": list(tags)}))
    return nbformat.v4.new_notebook(cells=[new("# Title"), *cells, new("## Summary\n\n**1.** not a question")])


def test_a_quiz_with_something_to_say_to_every_choice_is_right():
    assert quizzes.problems(quiz()) == []


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"count": 2}, "numbered 1, 2; wanted are 1, 2, 3"),
        ({"question": "**{}.** What happens?"}, "2 to 5 choices"),
        ({"question": QUESTION.replace("**B.", "**C.")}, "2 to 5 choices"),
        ({"tags": ()}, "not tagged solution"),
        ({"said": SAID.split("\n<details>")[0]}, "one folded part for each of A, B"),
        ({"said": SAID.replace("<summary>B</summary>\n\n", "<summary>B</summary>\n")}, "one folded part for each"),
        ({"said": SAID.replace("Yes", "No")}, "exactly one"),
        ({"said": SAID.replace("**No.** A low", "A low")}, "question 1, B: it must begin"),
        ({"said": SAID.replace(" A low temperature would do that.", " Wrong.")}, "question 1, B"),
    ],
)
def test_what_is_missing_is_named(change, complaint):
    assert complaint in "\n".join(quizzes.problems(quiz(**change)))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_every_quiz_of_the_book_can_be_answered(path):
    assert quizzes.problems(nbformat.read(path, as_version=4)) == []


def test_on_the_page_each_choice_is_what_the_reader_opens():
    made = quizzes.answered_on_the_choice(quiz())
    question, said = made.cells[1:3]
    assert question.source == "## Quiz\n\n**1.** You add 5 to every logit. What happens?"
    assert said.source.split("</details>\n")[0] == (
        '<details class="choice">\n<summary>\n\n**A.** Nothing.\n\n</summary>\n\n'
        "**Yes.** Every exponential gets the same factor.\n\n"
    )
    assert said.source.count("<details") == said.source.count("</details>") == 2 and "**B.** The large" in said.source
    assert made.cells[-1].source == quiz().cells[-1].source


def test_choices_without_reasons_stay_in_their_list():
    handed_out = quiz()
    handed_out.cells = [cell for cell in handed_out.cells if "solution" not in cell.metadata.get("tags", [])]
    assert quizzes.answered_on_the_choice(handed_out) == handed_out
    unequal = quiz(said=SAID.split("\n<details>")[0])
    assert quizzes.answered_on_the_choice(unequal).cells[1].source == quiz().cells[1].source


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_the_page_has_no_second_list_of_letters(path):
    page = BeautifulSoup((built_site() / "notebooks" / f"{path.stem}.html").read_text(encoding="utf-8"), "html.parser")
    quiz = page.find(id="quiz")
    opened = [summary.get_text().split() for summary in quiz.find_all("summary")]
    wanted = [len(choices) for _, choices in quizzes.questions(nbformat.read(path, as_version=4))]
    assert [words[0] for words in opened] == [f"{letter}." for count in wanted for letter in "ABCDE"[:count]]
    assert all(len(words) > 1 for words in opened) and not quiz.find_all("li")
