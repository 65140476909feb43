"""Results as a table: a real one in the page, on Colab and on GitHub, and lined up as text anywhere else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from itertools import cycle

NUMBER = re.compile(r"[-−+]?[\d,]*\.?\d+(e[-+]?\d+)?\s*[%×]?|[–-]?")  # or nothing, where there is no number


class Table:
    """Rows of texts and numbers, which notebooks show as a table.

    A cell may hold Markdown, such as a `code span`. Outside code spans, what would be HTML is shown as it is, and a
    bar never ends a cell, so that any token of a model can stand in one. A line break becomes a space.

    Parameters
    ----------
    head : sequence
        The headings of the columns.
    rows : sequences
        One cell for each column; anything that `str` takes.

    Raises
    ------
    ValueError
        For a row that has more or fewer cells than there are headings.
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
    """A cell in which bars are bars, and HTML is text; Markdown takes code spans as they are but for the bars."""
    parts = re.split(r"(`[^`]*`)", cell.replace("|", "\\|"))
    return "".join(part if code else escape(part, quote=False) for code, part in zip(cycle((False, True)), parts))
