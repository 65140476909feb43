"""The command line of the benchmark: its rows as tables, or as JSON."""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch
import transformers

from ...arguments import USER_ERRORS, check_whole_number, number_text
from ...disk import differences, locked
from ...loading import models
from ...sampling.warp import top_p as top_p_filter
from . import chat_prompts, story_prompts
from .choosing import drafts_of, that_can_run, with_peers
from .costs import measured_costs, reading
from .measuring import Condition, measure, rows_at
from .report import VERSION, as_json, as_text, file_name, machine, own_folder, read_report, write_report
from .rows import OF_EACH_KIND, ROWS
from .slowness import slowness

# (chat format, quick) -> prompts of each kind, new tokens, rounds, temperatures, batch sizes, top-p
DEFAULTS = {
    (False, False): (4, 64, 5, (0.0, 0.5, 0.7, 1.0), (1, 4, 16), 1.0),
    (False, True): (2, 32, 3, (0.0, 1.0), (1, 4), 1.0),
    (True, False): (4, 96, 5, (0.0, 0.7), (1,), 0.95),
    (True, True): (2, 32, 1, (0.0,), (1,), 0.95),
}


def main(arguments: Sequence[str] | None = None, family=None, prompts: Sequence[Sequence[int]] | None = None) -> None:
    """The command line; `family` and `prompts` replace the bundled ones."""
    parser = argparse.ArgumentParser(prog="python -m tutorlib bench", description="How fast are the methods here?")
    parser.add_argument(
        "--family", default="storyworld", help="a family of models, or a folder with one (default: %(default)s)"
    )
    parser.add_argument("--dtype", help="float32, bfloat16 or float16 (default: the family's own)")
    parser.add_argument("--quick", action="store_true", help="fewer prompts, tokens, rounds and conditions")
    parser.add_argument("--json", action="store_true", help="print JSON in place of the tables")
    parser.add_argument(
        "--results", type=Path, nargs="?", const="", metavar="FILE",
        help="save to this file, and continue from there (without FILE: a file named after the model in bench_results, "
        "or in the folder that $TUTORLIB_BENCH names)",
    )  # fmt: skip
    parser.add_argument("--show", type=Path, metavar="FILE", help="print the tables of this file, without measuring")
    parser.add_argument(
        "--rows", nargs="+", metavar="ROW",
        help="only these rows, and those they are compared with (default: all; for a chat model, some)",
    )  # fmt: skip
    parser.add_argument("--kinds", nargs="+", metavar="KIND", help="kinds of prompt (default: all)")
    parser.add_argument(
        "--temperatures", nargs="+", type=float, metavar="T",
        help="0 is greedy (default: 0 0.5 0.7 1, quick: 0 1; for a chat model: 0 0.7, quick: 0)",
    )  # fmt: skip
    parser.add_argument(
        "--batches", nargs="+", type=int, metavar="N",
        help="how many texts are generated at once (default: 1 4 16, quick: 1 4; for a chat model: 1)",
    )  # fmt: skip
    parser.add_argument(
        "--top-p", type=float, metavar="P",
        help="above temperature 0, draw from the smallest set of this probability (default: 1, for a chat model 0.95)",
    )  # fmt: skip
    parser.add_argument("--prompts", type=int, help="prompts of each kind (default: 4; quick: 2)")
    parser.add_argument(
        "--tokens", type=int, help="new tokens per prompt (default: 64, for a chat model 96; quick: 32)"
    )
    parser.add_argument("--rounds", type=int, help="rounds of timing (default: 5; quick: 3, for a chat model 1)")
    parser.add_argument(
        "--cpu-time", action="store_true",
        help="measure the time that the processor spends on this process, where other programs run beside it (with one "
        "thread: OMP_NUM_THREADS=1)",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="for the order of the rows (default: %(default)s)")
    parser.add_argument(
        "--why", nargs="?", const="quantized", metavar="DRAFT",
        help="measure only what the page 'Why is mine slower?' asks for, with one of the family's draft models "
        "(default: %(const)s, its own copy in eight bits), and print it as a line to paste there",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    try:
        if options.why:
            print(json.dumps(why(options, family or models.load(options.family, dtype=options.dtype), prompts)))
            return
        if options.show:
            report = read_report(options.show)
        else:
            place = own_folder() if options.results == Path() else options.results  # its file is named after the model
            with locked(place) if place else contextlib.nullcontext():
                family = family or models.load(options.family, dtype=options.dtype)
                report = measured(options, family, prompts)
    except USER_ERRORS as error:
        parser.error(str(error))
    print(as_json(report) if options.json else as_text(report))


def measured(options, family, prompts) -> dict:
    """The report that the options ask for."""
    transformers.utils.logging.set_verbosity_error()  # it warns of what it does itself when it is given an assistant
    in_kinds = prompts is None and getattr(family.tokenizer, "chat_template", None) is not None
    defaults = DEFAULTS[in_kinds, options.quick]
    if options.cpu_time and torch.get_num_threads() > 1:
        raise ValueError(
            f"--cpu-time adds up the time of all threads, and there are {torch.get_num_threads()}: set "
            "OMP_NUM_THREADS=1"
        )
    given = (options.prompts, options.tokens, options.rounds, options.temperatures, options.batches, options.top_p)
    chosen: list[Any] = [default if one is None else one for one, default in zip(given, defaults)]
    count, new_tokens, rounds, temperatures, batches, top_p = chosen
    for name, number in (("prompts", count), ("tokens", new_tokens), ("rounds", rounds)):
        check_whole_number(number, 1, f"--{name} needs how many")
    kinds = chat_prompts(family, count) if in_kinds else {"story": prompts or story_prompts(family.target, count)}
    top_p_filter(top_p)  # which raises if it is none
    unknown = set(options.kinds or ()) - kinds.keys()
    if unknown:
        raise ValueError(f"there are no prompts of the kind {sorted(unknown)[0]!r}; the kinds are: {', '.join(kinds)}")
    first = next(iter(kinds.values()))
    wanted = options.rows or (OF_EACH_KIND if in_kinds else [row.name for row in ROWS])
    candidates = with_peers(wanted)
    asked = [row for row in candidates if row.name in wanted]
    pairs = [pair for pair in product(temperatures, batches) if rows_at(asked, *pair)]
    for what, values, part in (("temperature", options.temperatures, 0), ("batch size", options.batches, 1)):
        lost = set(values or ()) - {pair[part] for pair in pairs}
        if lost:
            value = number_text(min(lost))
            raise ValueError(f"at {what} {value} none of these rows can run: {'; '.join(wanted)}. Leave it out")
    conditions = [Condition(kind, *pair) for kind in options.kinds or kinds for pair in pairs]
    rows, left_out = that_can_run(family, first[0], candidates)
    setting = {
        "family": options.family,
        "dtype": str(family.target.dtype).removeprefix("torch."),
        "device": str(family.target.device),
        "prompts": len(first),
        "new_tokens": new_tokens,
        "rounds": rounds,
        "seed": options.seed,
        "top_p": top_p,
        "clock": "processor" if options.cpu_time else "wall",
        "rows": [row.name for row in rows],
    }
    report = {"version": VERSION, "machine": machine(), "setting": setting, "left_out": left_out, "results": {}}
    file = own_folder() / file_name(report) if options.results == Path() else options.results
    if file and file.exists():
        report = gone_on_with(file, report)
    else:
        report["reading"] = reading(family.target)
    # What calls cost is measured in every round; where there are many kinds once, because the widest calls take long.
    clock = time.process_time if options.cpu_time else time.perf_counter
    cost = functools.partial(measured_costs, clock=clock)
    once = functools.cache(lambda: cost(family, first[0], drafts_of(rows), new_tokens))
    how = {"new_tokens": new_tokens, "rounds": rounds, "rows": rows, "seed": options.seed, "top_p": top_p}
    how |= {"clock": clock, "costs": (lambda *_: once()) if in_kinds else cost}
    for condition in conditions:
        if condition not in report["results"]:
            kind, temperature, batch = condition
            found = measure(family, kinds[kind], temperature=temperature, batch=batch, **how)
            report["results"][condition] = found
            if file:
                write_report(report, file)
    return read_report(file) if file else report


def why(options, family, prompts) -> dict:
    """What `slowness` measures, on the first prompts of each kind."""
    in_kinds = prompts is None and getattr(family.tokenizer, "chat_template", None) is not None
    count = 1 if options.prompts is None else options.prompts
    kinds = chat_prompts(family, count) if in_kinds else {"story": prompts or story_prompts(family.target, 4 * count)}
    return slowness(
        family,
        [prompt for some in kinds.values() for prompt in some],
        draft=options.why,
        new_tokens=options.tokens or 64,
        temperature=max(options.temperatures or [0.0]),
        clock=time.process_time if options.cpu_time else time.perf_counter,
    )


def gone_on_with(path: Path, report: dict) -> dict:
    """The part of a report that a file already has; a ValueError if it was measured with other settings."""
    found = read_report(path)
    for part in ("machine", "setting"):
        told = differences(found[part], report[part])
        if told:
            raise ValueError(f"{path} was measured with {told}: name another file, or delete this one to begin anew")
    return found


if __name__ == "__main__":
    main()
