"""Reports of measurements, with the machine on which they were made: as tables, and as files that can be continued.

The files that come with tutorlib are in ``results``, one for each family and machine. Your own files are
in `own_folder`. `reports` reads both.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

import torch
import transformers

from ... import __version__
from ...arguments import number_text
from ...disk import read_json, write_text
from ...viz.tables import Table
from .measuring import Condition, Result, Spread

VERSION = 3  # of the files
KEYS = ("version", "machine", "setting", "reading", "left_out", "results")
COMMITTED = Path(__file__).parent / "results"
ENVIRONMENT = "TUTORLIB_BENCH"  # names the folder for your own files


def machine() -> dict:
    """The properties of the machine on which the numbers depend."""
    names = getattr(os, "sysconf_names", {})
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if "SC_PHYS_PAGES" in names else None
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gib": pages and round(pages / 2**30),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "tutorlib": __version__,
    }


def _processor() -> str:
    try:
        named = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        named = None
    return named[1] if named else platform.processor() or platform.machine()


def where(report: dict) -> str:
    """The name of the device in a report: the GPU, or the processor and its number of threads."""
    there = report["machine"]
    if there["gpu"] and report["setting"]["device"].startswith("cuda"):
        return there["gpu"]
    return f"{there['processor']}, {there['threads']} thread{'s' * (there['threads'] != 1)}"


# ----------------------------------------------------------------------------------------------------------------------
# As tables, and for figures


def as_text(report: dict) -> str:
    """A report as text: the machine, a table for each condition, and what was left out."""
    told = report["machine"] | report["setting"]
    lines = [", ".join(f"{name}: {value}" for name, value in told.items() if value is not None and name != "rows")]
    read = report["reading"]
    lines.append(
        f"a call of one token reads {read['weight_bytes'] / 1e6:,.0f} MB of weights in "
        f"{1e3 * read['call_seconds']:.1f} ms: {read['share']:.0%} of the rate at which a large tensor is summed up"
    )
    lines.append("medians of rounds, with quartiles; the prompt's own call is included")
    for (kind, temperature, batch), results in report["results"].items():
        head = f"{kind}, temperature {number_text(temperature)}, texts at once: {batch}"
        lines += ["", head, repr(Table(*table(results)))]
    return "\n".join([*lines, *([foot(report["left_out"])] if report["left_out"] else [])])


def table(results: Sequence[Result]) -> list[tuple[str, ...]]:
    """The results under one condition, as header and rows for `tutorlib.viz.tables.show_table`."""
    head = ("method", "tokens/s", "tokens/call", "accepted", "speed (plain loop = 1)", "predicted speed")
    return [
        (*head, "time between calls", "speed (peer = 1)", "memory (MB)"),
        *(
            (
                result.name,
                _spread(result.tokens_per_second, _rate),
                _number(result.tokens_per_call),
                _number(result.acceptance),
                _spread(result.over_plain),
                _number(result.predicted),
                _number(result.between),
                _spread(result.over_peer),
                f"{sum(result.memory.values()) / 1e6:,.1f}" if result.memory else "",
            )
            for result in results
        ),
    ]


def _rate(number: float) -> str:
    return f"{number:.0f}" if number >= 100 else f"{number:.1f}"


def _number(number: float | None) -> str:
    return "" if number is None else f"{number:.2f}"


def _spread(spread: Spread | None, written=_number) -> str:
    return "" if spread is None else f"{written(spread.median)} ({written(spread.low)}-{written(spread.high)})"


def foot(left_out: dict[str, str]) -> str:
    """The rows that were left out, as text: a line for each reason, with its rows."""
    reasons = dict.fromkeys(left_out.values())
    names = {reason: [name for name, why in left_out.items() if why == reason] for reason in reasons}
    return "\n".join(f"left out, as {reason}: {'; '.join(names[reason])}" for reason in reasons)


def along(report: dict, **fixed) -> dict[str, dict[float, Result]]:
    """The results of each row for all values of the part of the condition that is not fixed, in ascending order.

    Raises
    ------
    ValueError
        Unless two of `kind`, `temperature` and `batch` are given, and there are measurements for them.

    Examples
    --------
    >>> by_temperature = along(report, kind="story", batch=1)                                       # doctest: +SKIP
    >>> curves(ax, {name: {t: found.over_plain.median for t, found in row.items()}                  # doctest: +SKIP
    ...             for name, row in by_temperature.items()}, xlabel="temperature", ylabel="speed-up")
    """
    free = [part for part in Condition._fields if part not in fixed]
    there = [one for one in report["results"] if all(getattr(one, part, None) == fixed[part] for part in fixed)]
    if len(free) != 1 or len(fixed) != 2 or not there:
        measured = "; ".join(f"{kind}, {number_text(heat)}, {batch}" for kind, heat, batch in report["results"])
        raise ValueError(
            f"fix two of {', '.join(Condition._fields)} at what was measured, got {fixed}; measured were: {measured}"
        )
    rows: dict[str, dict[float, Result]] = {}
    for condition in sorted(there):
        for result in report["results"][condition]:
            rows.setdefault(result.name, {})[getattr(condition, free[0])] = result
    return rows


# ----------------------------------------------------------------------------------------------------------------------
# As files


def own_folder() -> Path:
    """The folder of your own results: the one that `TUTORLIB_BENCH` names, otherwise ``bench_results`` here."""
    return Path(os.environ.get(ENVIRONMENT) or "bench_results")


def file_name(report: dict) -> str:
    """The name for a report's file, from the family, its dtype and the machine."""
    setting = report["setting"]
    parts = (Path(setting["family"]).name, setting["dtype"], re.sub(r"\(\w+\)", "", where(report)))
    return "_".join(re.sub(r"[^a-z0-9.]+", "-", part.lower()).strip("-") for part in parts) + ".json"


def reports() -> dict[Path, dict]:
    """All reports by their paths: those that come with tutorlib, then your own.

    Raises
    ------
    ValueError
        As for `read_report`. Move a file away if it can no longer be read.
    """
    return {path: read_report(path) for folder in (COMMITTED, own_folder()) for path in sorted(folder.glob("*.json"))}


def as_json(report: dict) -> str:
    """A report as JSON; measured numbers have four digits, and those that were asked for (temperatures) all of them."""
    results = [
        condition._asdict() | {"rows": _short([asdict(result) for result in results])}
        for condition, results in report["results"].items()
    ]
    return json.dumps(_short(report | {"results": None}) | {"results": results}, indent=1)


def _short(value):
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_short(item) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def write_report(report: dict, path) -> None:
    """Write a report to a file, completely or not at all; its folder is created if it is missing."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_text(path, as_json(report) + "\n")


def read_report(path) -> dict:
    """Read a report from a file.

    Returns
    -------
    dict
        - ``"machine"``, ``"setting"``: what the figures depend on;
        - ``"reading"``: see `costs.reading`;
        - ``"results"``: for each `Condition` a list of `Result`, a row each;
        - ``"left_out"``: the rows that were not measured, and why.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        That names the file: if it is broken, of another version, or holds something else.
    """
    cure = "delete it, or name another file, and measure anew with `python -m tutorlib bench --results FILE`"
    report = read_json(path, cure)
    found = report.get("version") if isinstance(report, dict) else None
    if found != VERSION:
        raise ValueError(f"{path} holds results of version {found}, and this is version {VERSION}: {cure}")
    try:
        results = {
            Condition(*(one[part] for part in Condition._fields)): [_result(row) for row in one["rows"]]
            for one in report["results"]
        }
        whole = {key: report[key] for key in KEYS} | {"results": results}
        as_text(whole)  # what cannot be shown is damaged
        file_name(whole)
        return whole
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise ValueError(f"{path} is not a whole file of results ({error!r}): {cure}") from error


def _result(row: dict) -> Result:
    spreads = {name: None if row[name] is None else Spread(*row[name]) for name in _SPREADS}
    return Result(**row | spreads)


_SPREADS = [field.name for field in fields(Result) if "Spread" in field.type]
