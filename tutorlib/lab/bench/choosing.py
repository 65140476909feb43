"""Which rows can run: at a temperature and a batch size, with these models, with those that they are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...arguments import check_whole_number, is_number, takes_iterators
from .row_makers import GENERATE, Row
from .rows import PLAIN, ROWS


def rows_at(rows: Sequence[Row], temperature: float, batch: int) -> list[Row]:
    """The rows that can run at a temperature and batch size; see `measure`."""
    if not is_number(temperature) or temperature < 0:
        raise ValueError(f"a temperature must be a finite number of 0 or more, where 0 is greedy; got {temperature!r}")
    check_whole_number(batch, 1, "a batch size is how many texts are made at once")
    able = [row for row in rows if row.can_run(temperature, batch)]
    lost = {row.name for row in rows} - {row.name for row in able}
    instead = GENERATE if GENERATE in {row.name for row in able} else None
    return [replace(row, peer=instead) if row.peer in lost else row for row in able]


def drafts_of(rows: Sequence[Row]) -> list[str]:
    """The drafts of those rows whose time is predicted, by their names in the family."""
    return sorted({role for row in rows if row.is_drafting for role in row.helpers})


class Lacking(Exception):
    """The family lacks something that a row needs."""


class Asked:
    """A family that raises `Lacking` for a missing attribute, to distinguish it from other errors of a row."""

    def __init__(self, family):
        self._family = family

    def __getattr__(self, role):
        try:
            return getattr(self._family, role)
        except (AttributeError, ConnectionError, PermissionError) as error:
            raise Lacking(str(error)) from error


@takes_iterators
def that_can_run(family, prompt: Sequence[int], rows: Sequence[Row] = tuple(ROWS)) -> tuple[list[Row], dict[str, str]]:
    """Try each row on two new tokens, and leave out rows that do not work with these models.

    Parameters
    ----------
    family, rows
        As for `measure`. The family needs a `target` only.
    prompt : list of int

    Returns
    -------
    rows : list of Row
        The rows that can run. If the peer of a row cannot run, the row has no peer.
    left_out : dict of str to str
        The names of the other rows, each with the reason: what the family lacks, or the error message of the method.
    """
    left_out = {}
    for row in rows:
        try:
            row.decode(Asked(family), [list(prompt)], 2, 0, 0.0 if row.greedily else 1.0)
        except (Lacking, ValueError) as error:
            if row.name == PLAIN:
                raise
            left_out[row.name] = str(error)
    left = [row for row in rows if row.name not in left_out]
    return [replace(row, peer=None) if row.peer in left_out else row for row in left], left_out


def with_peers(names: Sequence[str], rows: Sequence[Row] = tuple(ROWS)) -> list[Row]:
    """The rows with these names, and those that `measure` compares them with; ValueError for an unknown name."""
    known = {row.name: row for row in rows}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"there is no row {unknown[0]!r}; the rows are: {'; '.join(known)}")
    wanted, waiting = set(), [PLAIN, GENERATE, *names]
    while waiting:
        name = waiting.pop()
        if name not in wanted:
            wanted.add(name)
            waiting += [known[name].peer or PLAIN]
    return [row for row in rows if row.name in wanted]
