"""Check that every quiz can be answered on the page, and that a wrong answer is told why it is wrong.

    python book/_tools/quizzes.py notebooks/*.ipynb

A question is a cell with its choices, and the cell after it, tagged `solution`, has one folded part for each choice:

    **1.** You add 5 to every logit of a row. What happens to the probabilities?

    - **A.** Nothing.
    - **B.** The large ones grow.

    <details>
    <summary>A</summary>

    **Yes.** All exponentials are multiplied by the same factor, and so is their sum.

    </details>
    <details>
    <summary>B</summary>

    **No.** A temperature below 1 would do that. Adding a number keeps all differences.

    </details>

Colab, GitHub and JupyterLab show this as it is: the reader opens the letter that they believe in. Exactly one part
begins with "Yes". On the pages of the book, each choice is itself what the reader opens, and no second list of letters
follows. The notebooks keep the two lists, because the edition for students has the choices without the reasons.

As a Sphinx extension, this module makes the pages' form when a notebook is read.
"""

import argparse
import re
import sys
from pathlib import Path

import nbformat

QUESTIONS = 3
QUESTION = re.compile(r"(?m)^\*\*(\d)\.\*\* ")
CHOICE = re.compile(r"(?m)^- \*\*([A-E])\.\*\* \S")
LISTED = re.compile(r"(?m)^- (\*\*([A-E])\.\*\* \S.*)\n?")
FEEDBACK = re.compile(r"<details>\n<summary>([A-E])</summary>\n\n(.*?)\n\n</details>", re.DOTALL)


def quiz_cells(notebook):
    """Return the markdown cells of a notebook's quiz: from its heading to the next one."""
    found = []
    for cell in notebook.cells:
        heading = re.search(r"(?m)^## (.*)", cell.source) if cell.cell_type == "markdown" else None
        if heading and heading[1].strip() == "Quiz":
            found.append(cell)
        elif found and heading:
            break
        elif found and cell.cell_type == "markdown":
            found.append(cell)
    return found


def problems(notebook):
    """List what is wrong with the quiz of a notebook, a line for each thing."""
    cells, found = quiz_cells(notebook), []
    numbers = [QUESTION.search(cell.source)[1] for cell in cells if QUESTION.search(cell.source)]
    wanted = [str(number) for number in range(1, QUESTIONS + 1)]
    if numbers != wanted:
        found.append(f"the questions are numbered {', '.join(numbers) or '(none)'}; wanted are {', '.join(wanted)}")
    for cell, after in zip(cells, [*cells[1:], None], strict=True):
        number = QUESTION.search(cell.source)
        if not number:
            continue
        name, choices = f"question {number[1]}", CHOICE.findall(cell.source)
        if not 2 <= len(choices) <= 5 or choices != list("ABCDE"[: len(choices)]):
            found.append(f'{name}: wanted are 2 to 5 choices, lines that begin with "- **A.** " and so on')
            continue
        if after is None or "solution" not in after.metadata.get("tags", []):
            found.append(f"{name}: the cell after it, with what is said to each choice, is not tagged solution")
            continue
        said = FEEDBACK.findall(after.source)
        if [letter for letter, _ in said] != choices:
            found.append(f"{name}: not one folded part for each of {', '.join(choices)}, in this order")
            continue
        if sum(text.startswith("**Yes.**") for _, text in said) != 1:
            found.append(f"{name}: exactly one folded part must begin with **Yes.**")
        for letter, text in said:
            verdict, _, reason = text.partition("** ")
            if verdict not in ("**Yes.", "**No.") or len(reason.split()) < 4:
                found.append(f"{name}, {letter}: it must begin with **Yes.** or **No.** and give the reason")
    return found


def questions(notebook):
    """List the questions of a quiz, each with its choices.

    Returns
    -------
    list of tuple
        (text, choices) of each question. A choice is a tuple (letter, text, what is said to it, whether it is right).

    Raises
    ------
    ValueError
        If the quiz does not have the form that `problems` looks for.
    """
    if wrong := problems(notebook):
        raise ValueError("; ".join(wrong))
    cells, found = quiz_cells(notebook), []
    for cell, after in zip(cells, cells[1:]):
        if number := QUESTION.search(cell.source):
            said = dict(FEEDBACK.findall(after.source))
            choices = [
                (letter, text.partition("** ")[2], said[letter], said[letter].startswith("**Yes.**"))
                for text, letter in LISTED.findall(cell.source)
            ]
            found.append((LISTED.sub("", cell.source[number.end() :]).strip(), choices))
    return found


def answered_on_the_choice(notebook):
    """Move each choice of a quiz into the line that the reader opens; a question without reasons stays as it is."""
    cells = quiz_cells(notebook)
    for cell, after in zip(cells, cells[1:]):
        choices = {letter: text for text, letter in LISTED.findall(cell.source)}
        said = dict(FEEDBACK.findall(after.source))
        if not choices or set(choices) != set(said):
            continue
        cell.source = LISTED.sub("", cell.source).rstrip()
        after.source = "\n".join(
            f'<details class="choice">\n<summary>\n\n{text}\n\n</summary>\n\n{said[letter]}\n\n</details>'
            for letter, text in choices.items()
        )
    return notebook


def on_the_page(app, docname, source):
    """Give Sphinx the notebook of a page with its quiz in the pages' form."""
    if docname.startswith("notebooks/"):
        source[0] = nbformat.writes(answered_on_the_choice(nbformat.reads(source[0], as_version=4)))


def setup(app):
    # After the extension `offline`, which may put the notebook's executed copy in its place.
    app.connect("source-read", on_the_page, priority=900)
    return {"version": "1", "parallel_read_safe": True}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("notebooks", nargs="+", type=Path)
    found = [
        f"{path.name}: {problem}"
        for path in parser.parse_args().notebooks
        for problem in problems(nbformat.read(path, as_version=4))
    ]
    print("\n".join(found) or "every quiz can be answered on the page")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
