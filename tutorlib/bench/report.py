"""What was measured, with the machine that it was measured on: as text, and as a file that can be gone on with."""

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

from ..disk import read_json, write_text
from .measuring import Result, Spread

VERSION = 1  # of the files
KEYS = ("version", "machine", "setting", "memory", "left_out", "kinds")


def machine() -> dict:
    """What the figures depend on."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def _processor() -> str:
    try:
        named = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        named = None
    return named[1] if named else platform.processor() or platform.machine()


# ----------------------------------------------------------------------------------------------------------------------
# As text


def as_text(report: dict) -> str:
    """A report as text: the machine, a table for each kind of prompt, and what was left out."""
    told = report["machine"] | report["setting"]
    lines = [", ".join(f"{name}: {value}" for name, value in told.items() if value is not None and name != "rows")]
    memory = report["memory"]
    lines.append(
        f"a call of one token reads {memory['weight_bytes'] / 1e6:,.0f} MB of weights in "
        f"{1e3 * memory['call_seconds']:.1f} ms: {memory['share']:.0%} of the rate at which a large tensor is summed up"
    )
    lines.append("medians of rounds, with quartiles; the prompt's own call is included, except in what is predicted")
    for kind, results in report["kinds"].items():
        lines += ["", kind] if len(report["kinds"]) > 1 else []
        lines.append(results_table(results))
    return "\n".join([*lines, *([foot(report["left_out"])] if report["left_out"] else [])])


def results_table(results: Sequence[Result]) -> str:
    """The results as text: a line a row."""
    width = max(len(result.name) for result in results)
    heads = (
        ("tokens/s", 16),
        ("tokens/call", 11),
        ("accepted", 8),
        ("x plain loop", 18),
        ("predicted", 9),
        ("x its peer", 18),
    )
    lines = ["  ".join([" " * width, *(f"{head:>{columns}}" for head, columns in heads)])]
    for result in results:
        rate = result.tokens_per_second
        cells = [
            f"{_rate(rate.median)} ({_rate(rate.low)}-{_rate(rate.high)})",
            _or_blank(result.tokens_per_call),
            _or_blank(result.acceptance),
            _spread_or_blank(result.over_plain),
            _or_blank(result.predicted),
            _spread_or_blank(result.over_peer),
        ]
        padded = [f"{cell:>{columns}}" for cell, (_, columns) in zip(cells, heads, strict=True)]
        lines.append("  ".join([f"{result.name:{width}}", *padded]))
    return "\n".join(lines)


def _rate(number: float) -> str:
    return f"{number:.0f}" if number >= 100 else f"{number:.1f}"


def _or_blank(number: float | None) -> str:
    return "" if number is None else f"{number:.2f}"


def _spread_or_blank(spread: Spread | None) -> str:
    return "" if spread is None else f"{spread.median:.2f} ({spread.low:.2f}-{spread.high:.2f})"


def foot(left_out: dict[str, str]) -> str:
    """The rows that were left out, as text: a line for each reason, with all that it kept out."""
    reasons = dict.fromkeys(left_out.values())
    names = {reason: [name for name, why in left_out.items() if why == reason] for reason in reasons}
    return "\n".join(f"left out, as {reason}: {'; '.join(names[reason])}" for reason in reasons)


# ----------------------------------------------------------------------------------------------------------------------
# As a file


def as_json(report: dict) -> str:
    """A report as JSON, its figures to four digits."""
    kinds = {kind: [asdict(result) for result in results] for kind, results in report["kinds"].items()}
    return json.dumps(_short(report | {"kinds": kinds}), indent=1)


def _short(value):
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_short(item) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def write_report(report: dict, path) -> None:
    """Write a report to a file, whole or not at all."""
    write_text(path, as_json(report) + "\n")


def read_report(path) -> dict:
    """Read a report from a file.

    Returns
    -------
    dict
        - ``"machine"``, ``"setting"``: what the figures depend on;
        - ``"memory"``: see `costs.reading`;
        - ``"kinds"``: for each kind of prompt a list of `Result`, a row each;
        - ``"left_out"``: the rows that were not measured, and why.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        That names the file: if it is broken, of another version, or holds something else.
    """
    cure = "measure anew with `python -m tutorlib.bench --results FILE`"
    report = read_json(path, cure)
    found = report.get("version") if isinstance(report, dict) else None
    if found != VERSION:
        raise ValueError(f"{path} holds results of version {found}, and this is version {VERSION}: {cure}")
    try:
        kinds = {kind: [_result(row) for row in rows] for kind, rows in report["kinds"].items()}
        return {key: report[key] for key in KEYS} | {"kinds": kinds}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not a whole file of results ({error!r}): {cure}") from error


def _result(row: dict) -> Result:
    spreads = {name: None if row[name] is None else Spread(*row[name]) for name in _SPREADS}
    return Result(**row | spreads)


_SPREADS = [field.name for field in fields(Result) if "Spread" in field.type]
