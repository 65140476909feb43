"""The command line of the benchmark: its rows as a table, or as JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict

import torch
import transformers

from .. import models
from . import story_prompts
from .measuring import Result, Spread, measure, that_can_run, with_peers
from .rows import ROWS


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
            f"{rate.median:.0f} ({rate.low:.0f}-{rate.high:.0f})",
            _or_blank(result.tokens_per_call),
            _or_blank(result.acceptance),
            _spread_or_blank(result.over_plain),
            _or_blank(result.predicted),
            _spread_or_blank(result.over_peer),
        ]
        padded = [f"{cell:>{columns}}" for cell, (_, columns) in zip(cells, heads, strict=True)]
        lines.append("  ".join([f"{result.name:{width}}", *padded]))
    return "\n".join(lines)


def _or_blank(number: float | None) -> str:
    return "" if number is None else f"{number:.2f}"


def _spread_or_blank(spread: Spread | None) -> str:
    return "" if spread is None else f"{spread.median:.2f} ({spread.low:.2f}-{spread.high:.2f})"


def foot(left_out: dict[str, str]) -> str:
    """The rows that were left out, as text: a line for each reason, with all that it kept out."""
    reasons = dict.fromkeys(left_out.values())
    names = {reason: [name for name, why in left_out.items() if why == reason] for reason in reasons}
    return "\n".join(f"left out, as {reason}: {'; '.join(names[reason])}" for reason in reasons)


def machine() -> dict:
    """What the figures depend on."""
    return {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def main(arguments: Sequence[str] | None = None, family=None, prompts: Sequence[Sequence[int]] | None = None) -> None:
    """The command line; `family` and `prompts` replace the bundled ones."""
    parser = argparse.ArgumentParser(prog="python -m tutorlib.bench", description="How fast are the methods here?")
    parser.add_argument(
        "--models", default="storyworld", help="a family of models, or a folder of them (default: %(default)s)"
    )
    parser.add_argument("--quick", action="store_true", help="fewer prompts, tokens and rounds: seconds, not a minute")
    parser.add_argument("--json", action="store_true", help="print JSON in place of the table")
    parser.add_argument(
        "--rows", nargs="+", metavar="ROW", help="only these, and the rows they are compared with (default: all)"
    )
    parser.add_argument("--prompts", type=int, help="how many prompts (default: 4; quick: 2)")
    parser.add_argument("--tokens", type=int, help="new tokens for each prompt (default: 64; quick: 32)")
    parser.add_argument("--rounds", type=int, help="how often every row is timed (default: 7; quick: 3)")
    parser.add_argument("--seed", type=int, default=0, help="for the order of the rows (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        chosen = with_peers(options.rows) if options.rows else ROWS
    except ValueError as error:
        parser.error(str(error))
    count, new_tokens, rounds = (2, 32, 3) if options.quick else (4, 64, 7)
    new_tokens, rounds = options.tokens or new_tokens, options.rounds or rounds
    transformers.utils.logging.set_verbosity_error()  # it warns of what it does itself when it is given an assistant
    if family is None:
        family = models.load(options.models)
    if prompts is None:
        prompts = story_prompts(family.target, options.prompts or count)
    rows, left_out = that_can_run(family, prompts[0], chosen)
    results = measure(family, prompts, new_tokens=new_tokens, rounds=rounds, rows=rows, seed=options.seed)
    setting = {"models": options.models, "prompts": len(prompts), "new_tokens": new_tokens, "rounds": rounds}
    setting["seed"] = options.seed
    if options.json:
        shown = [asdict(result) for result in results]
        print(json.dumps({"machine": machine(), "setting": setting, "rows": shown, "left_out": left_out}, indent=1))
    else:
        print(", ".join(f"{name}: {value}" for name, value in (machine() | setting).items() if value is not None))
        print("medians of rounds, with quartiles; the prompt's own call is included, except in what is predicted")
        print(results_table(results))
        if left_out:
            print(foot(left_out))


if __name__ == "__main__":
    main()
