"""The form of a quiz that can be answered on the page: what is missing is named."""

import nbformat
import pytest
import quizzes

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
