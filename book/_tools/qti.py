"""Export the quizzes in QTI 1.2, the format that learning platforms import: one zip file for each chapter.

    python book/_tools/qti.py            writes _build/qti/01_next_token.zip, ...

`text2qti` makes the files. Beside each zip file is the quiz in text2qti's own plain text: change that, and
``text2qti 01_next_token.txt`` makes the zip file anew. For formulas, text2qti would write pictures that only Canvas can
draw, so here they become ordinary text with italics, subscripts and superscripts, which every platform shows.
"""

import html
import re
import shutil
import sys
from pathlib import Path

import nbformat
from quizzes import questions

ROOT = Path(__file__).resolve().parents[2]
MATH = re.compile(r"(`[^`]*`)|\$([^$]+)\$|(')")  # code is looked for first: a dollar sign in it is one

RELATIONS = {
    "=": "=", "<": "<", ">": ">", r"\ge": "≥", r"\le": "≤", r"\ne": "≠", r"\approx": "≈", r"\to": "→", r"\in": "∈",
}  # fmt: skip
OPERATORS = {"+": "+", "-": "−", r"\cdot": "·", r"\times": "×"}
LETTERS = {
    r"\alpha": "α", r"\beta": "β", r"\gamma": "γ", r"\delta": "δ", r"\epsilon": "ε", r"\varepsilon": "ε",
    r"\theta": "θ", r"\lambda": "λ", r"\tau": "τ", r"\pi": "π", r"\sigma": "σ", r"\infty": "∞", r"\ell": "ℓ",
    r"\dots": "…", r"\ldots": "…", "'": "′", r"\%": "%", r"\{": "{", r"\}": "}", r"\mid": "|",
}  # fmt: skip
NAMES = ("log", "ln", "exp", "min", "max")
SPACES = (r"\,", r"\;", r"\ ", "~")
TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|\d+(?:\{,\}\d+)*(?:\.\d+)?|\s+|.", re.DOTALL)


def as_html(tex):
    """Write a formula as text with HTML's italics, subscripts and superscripts.

    Raises
    ------
    ValueError
        If it holds something that this cannot show, such as a fraction.
    """
    tokens = [token for token in TOKEN.findall(tex) if not token.isspace()]
    made, rest = _group(tokens, tex)
    if rest:
        raise ValueError(f"a bracket is closed too early in the formula ${tex}$")
    return made


def _group(tokens, tex):
    """The tokens up to the end of their group, as HTML, and the tokens after it."""
    made, unary = "", True  # whether a sign here would be that of a number
    while tokens and tokens[0] != "}":
        token, tokens = tokens[0], tokens[1:]
        after_value = not unary
        unary = False
        if token in ("^", "_"):
            tag = "sup" if token == "^" else "sub"
            inside, tokens = _argument(tokens, tex)
            made += f"<{tag}>{inside}</{tag}>"
        elif token == "{":
            inside, tokens = _group(tokens, tex)
            made, tokens = made + inside, _closed(tokens, tex)
        elif token in RELATIONS:
            made, unary = f"{made.rstrip()} {html.escape(RELATIONS[token])} ", True
        elif token in OPERATORS:
            made, unary = (f"{made.rstrip()} {OPERATORS[token]} " if after_value else made + OPERATORS[token]), True
        elif token in SPACES:
            made, unary = made + " ", not after_value
        elif token in LETTERS:
            made += LETTERS[token]
        elif token[1:] in NAMES and token.startswith("\\"):
            follows = tokens[0] if tokens else ""
            made += (" " if after_value and made[-1:].isalnum() else "") + token[1:] + (" " if follows != "(" else "")
        elif token.isalpha():
            made += f"<i>{token}</i>"
        elif token in "([,/|":
            made, unary = made + token + " " * (token == ","), token != "|"
        elif token in ")]!.:" or token[0].isdigit():
            made += token.replace("{,}", ",")
        else:
            raise ValueError(f"{token} in the formula ${tex}$ cannot be shown as text: say it in words")
    return made.strip(), tokens


def _argument(tokens, tex):
    """What a sub- or superscript holds: a group or a single sign, and the tokens after it."""
    if tokens[:1] == ["{"]:
        inside, tokens = _group(tokens[1:], tex)
        return inside, _closed(tokens, tex)
    return _group(tokens[:1], tex)[0], tokens[1:]


def _closed(tokens, tex):
    if tokens[:1] != ["}"]:
        raise ValueError(f"a bracket is never closed in the formula ${tex}$")
    return tokens[1:]


def without_math(text):
    """A text in Markdown, its formulas as HTML. Apostrophes are curly: after code, text2qti takes them for quotes."""

    def shown(found):
        code, formula, apostrophe = found.groups()
        return "’" if apostrophe else code or as_html(formula)

    return MATH.sub(shown, text)


def indented(text):
    """A text as text2qti reads one that may have several lines."""
    return without_math(text).replace("\n", "\n    ")


def as_text(notebook):
    """The quiz of a notebook in text2qti's plain text."""
    title = next(match[1] for cell in notebook.cells if (match := re.match(r"# (.+)", cell.source)))
    lines = [f"Quiz title: {title}", ""]
    for number, (text, choices) in enumerate(questions(notebook), start=1):
        lines += [f"Title: Question {number}", "Points: 1", f"{number}. {indented(text)}"]
        for letter, choice, said, right in choices:
            lines += [f"{'*' * right}{letter.lower()}) {indented(choice)}", f"... {indented(said)}"]
        lines.append("")
    return "\n".join(lines)


def export(notebook, path):
    """Write the quiz of a notebook to a zip file, and in plain text beside it.

    Raises
    ------
    ValueError
        If the quiz does not have its form, or holds a formula that cannot be shown as text.
    """
    text = as_text(notebook)
    path.with_suffix(".txt").write_text(text, encoding="utf-8")
    # The classes, not the command: that would write a file of settings into the home folder, and follow one.
    from text2qti.config import Config
    from text2qti.qti import QTI
    from text2qti.quiz import Quiz

    QTI(Quiz(text, config=Config(), source_name=path.stem)).save(path)


def main(root=ROOT):
    out = root / "_build" / "qti"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    made = 0
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        try:
            export(nbformat.read(path, as_version=4), out / f"{path.stem}.zip")
        except ValueError as error:
            print(f"{path.name}: {error}", file=sys.stderr)
            return 1
        except ImportError as error:
            print(f"{error}: `make qti` installs what is needed", file=sys.stderr)
            return 1
        made += 1
    print(f"Made the quizzes of {made} chapters: {out.relative_to(root)}/*.zip")
    return 0


if __name__ == "__main__":
    sys.exit(main())
