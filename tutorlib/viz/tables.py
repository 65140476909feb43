"""Results as a table: a real table in the book, on Colab and on GitHub, and aligned text anywhere else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from itertools import cycle

NUMBER = re.compile(r"[-−+]?[\d,]*\.?\d+(e[-+]?\d+)?\s*[%×]?|[–-]?")  # or a dash or nothing, if there is no number


class Table:
    """Rows of texts and numbers, which notebooks show as a table.

    A cell may contain Markdown, such as a `code span`. Outside code spans, HTML is shown as plain text. A bar never
    ends a cell, so a cell can contain any token of a model. A line break becomes a space.

    Parameters
    ----------
    head : sequence
        The headings of the columns.
    rows : sequences
        One cell for each column, of any type that `str` accepts.

    Raises
    ------
    ValueError
        If a row has more or fewer cells than there are headings.
    """

    def __init__(self, head: Sequence, *rows: Sequence):
        self.lines = [[" ".join(str(cell).splitlines()) for cell in line] for line in (head, *rows)]
        for number, line in enumerate(self.lines[1:], 1):
            if len(line) != len(self.lines[0]):
                raise ValueError(
                    f"row {number} of the table has {len(line)} cells, and there are {len(self.lines[0])} headings: "
                    f"{line}"
                )
        columns = zip(*self.lines[1:]) if rows else ([""] for _ in head)
        self.numbers = [all(NUMBER.fullmatch(cell) for cell in cells) and any(cells) for cells in columns]

    def _repr_markdown_(self) -> str:
        lines = [[_escaped(cell) for cell in line] for line in self.lines]
        lines.insert(1, ["---:" if number else "---" for number in self.numbers])
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def __repr__(self) -> str:
        widths = [max(map(len, cells)) for cells in zip(*self.lines)]
        lined = [
            "  ".join(
                cell.rjust(width) if number else cell.ljust(width)
                for cell, width, number in zip(line, widths, self.numbers)
            ).rstrip()
            for line in self.lines
        ]
        return "\n".join(lined)


def show_table(head: Sequence, *rows: Sequence) -> None:
    """Show rows as a `Table` in a notebook."""
    from IPython.display import display

    display(Table(head, *rows))


def _escaped(cell: str) -> str:
    """Escape the bars in a cell, and HTML outside code spans: inside them, Markdown shows HTML as it is."""
    parts = re.split(r"(`[^`]*`)", cell.replace("|", "\\|"))
    return "".join(part if code else escape(part, quote=False) for code, part in zip(cycle((False, True)), parts))
