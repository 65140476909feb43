"""The command line of the benchmark: its rows as tables, or as JSON."""

from __future__ import annotations

import argparse
import contextlib
import functools
from collections.abc import Sequence
from pathlib import Path

import transformers

from .. import models
from ..disk import differences, locked
from . import chat_prompts, story_prompts
from .costs import measured_costs, reading
from .measuring import drafts_of, measure, that_can_run, with_peers
from .report import VERSION, as_json, as_text, machine, read_report, write_report
from .rows import OF_EACH_KIND, ROWS


def main(arguments: Sequence[str] | None = None, family=None, prompts: Sequence[Sequence[int]] | None = None) -> None:
    """The command line; `family` and `prompts` replace the bundled ones."""
    parser = argparse.ArgumentParser(prog="python -m tutorlib.bench", description="How fast are the methods here?")
    parser.add_argument(
        "--family", default="storyworld", help="a family of models, or a folder of them (default: %(default)s)"
    )
    parser.add_argument("--dtype", help="float32, bfloat16 or float16 (default: the family's own)")
    parser.add_argument("--quick", action="store_true", help="fewer prompts, tokens and rounds")
    parser.add_argument("--json", action="store_true", help="print JSON in place of the tables")
    parser.add_argument("--results", type=Path, metavar="FILE", help="write them to this file, and go on from there")
    parser.add_argument("--show", type=Path, metavar="FILE", help="measure nothing, print the tables of this file")
    parser.add_argument(
        "--rows", nargs="+", metavar="ROW",
        help="only these, and the rows they are compared with (default: all; of a chat model the greedy ones)",
    )  # fmt: skip
    parser.add_argument("--prompts", type=int, help="how many prompts, of each kind (default: 4, or 3; quick: 2)")
    parser.add_argument("--tokens", type=int, help="new tokens for each prompt (default: 64, or 48; quick: 32)")
    parser.add_argument("--rounds", type=int, help="how often every row is timed (default: 7, or 2; quick: 3, or 1)")
    parser.add_argument("--seed", type=int, default=0, help="for the order of the rows (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        if options.show:
            report = read_report(options.show)
        else:
            with locked(options.results) if options.results else contextlib.nullcontext():
                family = family or models.load(options.family, dtype=options.dtype)
                report = measured(options, family, prompts)
    except (ValueError, OSError, ImportError) as error:
        parser.error(str(error))
    print(as_json(report) if options.json else as_text(report))


def measured(options, family, prompts) -> dict:
    """The report that the options ask for."""
    transformers.utils.logging.set_verbosity_error()  # it warns of what it does itself when it is given an assistant
    in_kinds = prompts is None and getattr(family.tokenizer, "chat_template", None) is not None
    defaults = {
        (False, False): (4, 64, 7),
        (False, True): (2, 32, 3),
        (True, False): (3, 48, 2),
        (True, True): (2, 32, 1),
    }
    count, new_tokens, rounds = defaults[in_kinds, options.quick]
    count, new_tokens, rounds = options.prompts or count, options.tokens or new_tokens, options.rounds or rounds
    kinds = chat_prompts(family, count) if in_kinds else {"story": prompts or story_prompts(family.target, count)}
    first = next(iter(kinds.values()))
    wanted = options.rows or (OF_EACH_KIND if in_kinds else [row.name for row in ROWS])
    rows, left_out = that_can_run(family, first[0], with_peers(wanted))
    setting = {
        "family": options.family,
        "dtype": str(family.target.dtype).removeprefix("torch."),
        "prompts": len(first),
        "new_tokens": new_tokens,
        "rounds": rounds,
        "seed": options.seed,
        "rows": [row.name for row in rows],
    }
    report = {"version": VERSION, "machine": machine(), "setting": setting, "left_out": left_out, "kinds": {}}
    if options.results and options.results.exists():
        report = gone_on_with(options.results, report)
    else:
        report["memory"] = reading(family.target)
    # What calls cost is measured in every round; where there are many kinds once, because the widest calls take long.
    costs = functools.cache(lambda: measured_costs(family, first[0], drafts_of(rows), new_tokens))
    how = {"new_tokens": new_tokens, "rounds": rounds, "rows": rows, "seed": options.seed}
    how |= {"costs": lambda *_: costs()} if in_kinds else {}
    for kind, some in kinds.items():
        if kind not in report["kinds"]:
            report["kinds"][kind] = measure(family, some, **how)
            if options.results:
                write_report(report, options.results)
    return read_report(options.results) if options.results else report


def gone_on_with(path: Path, report: dict) -> dict:
    """What a file has of a report already; a ValueError where it was measured otherwise."""
    found = read_report(path)
    for part in ("machine", "setting"):
        told = differences(found[part], report[part])
        if told:
            raise ValueError(f"{path} was measured with {told}: name another file, or delete this one to begin anew")
    return found


if __name__ == "__main__":
    main()
