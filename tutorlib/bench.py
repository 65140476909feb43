"""How fast are the methods, on this machine, beside a plain loop and beside transformers?

    python -m tutorlib.bench [--models NAME] [--quick] [--json]

Every row makes the same number of new tokens from the same prompts with the same models. All rows take turns, over and
over, shuffled anew in each round, and each row is compared with what the plain loop and its peer took *in the same
round*, so a slow spell of the machine does not become somebody's advantage. The peer is `transformers.generate` where
it does the same work; it has no contrast, so those methods are compared with what they add to. Shown are medians over
the rounds, and quartiles.

A family of models need not have everything. A row that needs a draft, heads or a tokenizer which the family lacks is
left out, and named below the table with the reason. A row whose peer was left out has no figure for it.

Where a row drafts, its speed over the plain loop is also predicted, from what it drafted in each call and from what
calls of that width were measured to cost, in the same rounds: see `tutorlib.theory.rounds_factor`.

The rows themselves are in `tutorlib.bench_rows`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
import transformers

from .arguments import takes_iterators
from .bench_rows import PLAIN, ROWS, Row, speculative_row
from .cost import _synchronize as synchronize
from .cost import call_times
from .decoders import sample
from .decoding import run
from .drafting.draft_trees import Draft, dynamic
from .heads.eagle_head import DraftNetwork
from .lm import LM
from .randomness import Seeded
from .theory import measured_factor, rounds_factor

# Of calls this wide the time is measured; that of others lies between. The widest is that of EAGLE-2's published tree.
WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 17, 25, 33, 60)


class Spread(NamedTuple):
    """A median and the quartiles on both sides of it."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values) -> Spread:
        low, median, high = np.quantile(np.asarray(values, dtype=float), [0.25, 0.5, 0.75])
        return cls(float(median), float(low), float(high))


class Costs(NamedTuple):
    """What calls were measured to cost.

    Attributes
    ----------
    call_seconds : list of float
        Time of a target call with 1, 2, 3, ... tokens.
    draft_seconds : dict of str to float
        For each draft, by its name in the family: what a token takes in its own loop, so with choosing it. For a draft
        network: what a level of its tree takes.
    """

    call_seconds: list[float]
    draft_seconds: dict[str, float]


def measured_costs(family, prompt: Sequence[int], drafts: Iterable[str], new_tokens: int) -> Costs:
    """Measure what a call of the target costs by its width, and a token of each draft, halfway through a text."""
    cached = len(prompt) + new_tokens // 2
    widths = [width for width in WIDTHS if cached + width <= family.target.context]
    times = call_times(family.target, widths, cached=cached, repeats=5)
    # (A wider one than fits takes as long as the widest that does: it is not so wide in the end.)
    call_seconds = np.interp(range(1, max(WIDTHS) + 1), times.widths, times.seconds).tolist()
    draft_seconds = {}
    for name in drafts:
        draft = getattr(family, name)
        if isinstance(draft, DraftNetwork):
            draft_seconds[name] = level_seconds(family.target, draft, prompt)
            continue
        text = [token % draft.vocab_size for token in prompt]
        trace = run(sample(draft, text, rng=Seeded(0)), new_tokens, stop=(), progress=False)
        draft_seconds[name] = trace.seconds / len(trace.tokens)
    return Costs(call_seconds, draft_seconds)


def level_seconds(target: LM, head: DraftNetwork, prompt: Sequence[int], repeats: int = 20) -> float:
    """Measure what a level of a draft network's own tree takes, with choosing the guesses; the median of some."""
    session = target.session([*prompt, *prompt[:2]], hidden=head.feature_layers)  # three tokens at least
    session.feed()
    features = head.features(session.prompt_hidden)
    tokens, shape = session.tokens, dynamic(**head.tree)
    times = []
    for _ in range(repeats):
        drafts = head.session(target)
        drafts.feed(tokens[1:-1], features[:-2])
        synchronize(target.device)
        began = time.perf_counter()
        logits = drafts.feed(tokens[-1:], features[-2:-1])
        tree = shape(Draft(drafts, logits, tokens, (), depth=head.tree["depth"]))
        synchronize(target.device)
        times.append((time.perf_counter() - began) / (1 + max(tree.depths)))
    return float(np.median(times))


@dataclass
class Result:
    """What was measured of one row.

    Attributes
    ----------
    name : str
    tokens_per_second : Spread
    tokens_per_call : float or None
        New tokens for each call of the target, the prompt's included; None where calls cannot be counted.
    acceptance : float or None
        Accepted tokens over judged ones, as in `Trace.acceptance`; None where nothing is drafted.
    over_plain : Spread
        Speed over that of the plain loop, round by round.
    over_peer : Spread or None
        Speed over that of the row's peer; None where it has none.
    predicted : float or None
        What `over_plain` should be by the measured costs of its calls; None where nothing is predicted.
    """

    name: str
    tokens_per_second: Spread
    tokens_per_call: float | None
    acceptance: float | None
    over_plain: Spread
    over_peer: Spread | None
    predicted: float | None


@takes_iterators
def measure(
    family,
    prompts: Sequence[Sequence[int]],
    *,
    new_tokens: int = 64,
    rounds: int = 7,
    rows: Sequence[Row] = tuple(ROWS),
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
    costs: Callable[..., Costs] = measured_costs,
) -> list[Result]:
    """Time the rows against each other.

    Parameters
    ----------
    family : what `models.load` returns, or any object with the LMs that the rows ask for, a `target` at least
    prompts : sequence of token lists
    new_tokens : int
        For each prompt.
    rounds : int
        In each, every row does all prompts; one more round goes before that is not counted.
    rows : sequence of Row
        The plain loop and the peer of every row must be among them.
    seed : int
        For the order of the rows, which is shuffled in each round.
    clock : function
        Seconds.
    costs : function like `measured_costs`
        Called once in each round, if a row's time is to be predicted.

    Returns
    -------
    list of Result, in the order of `rows`

    Raises
    ------
    ValueError
        When there is nothing to measure, a prompt leaves no room for the new tokens, or a row makes too few.
    """
    names = [row.name for row in rows]
    missing = sorted({PLAIN, *(row.peer for row in rows if row.peer)} - set(names))
    if missing:
        raise ValueError(f"the rows to compare with must be among the rows; missing: {', '.join(missing)}")
    if rounds < 1 or new_tokens < 1 or not len(prompts):
        raise ValueError(f"need prompts, rounds and new tokens; got {len(prompts)}, {rounds} and {new_tokens}")
    longest = max(map(len, prompts))
    if longest + new_tokens > family.target.context:
        raise ValueError(
            f"a prompt of {longest} tokens and {new_tokens} new ones do not fit the context of "
            f"{family.target.context}: ask for fewer new tokens"
        )
    prompts = [list(prompt) for prompt in prompts]
    drafts = sorted({row.draft for row in rows if row.draft})
    seconds, tokens = np.zeros((rounds, len(rows))), np.zeros((rounds, len(rows)))
    calls: list[int | None] = [0] * len(rows)
    steps = [[] for _ in rows]
    round_costs = []
    order, shuffle = list(range(len(rows))), random.Random(seed).shuffle
    for number in range(-1, rounds):
        shuffle(order)  # so that no row always runs after the same one, whose work may still be in the caches
        for column in order:
            row = rows[column]
            synchronize(family.target.device)
            began = clock()
            output = row.decode(family, prompts, new_tokens, number)
            synchronize(family.target.device)
            took = clock() - began
            lengths = [len(text) for text in output.texts]
            if set(lengths) != {new_tokens}:
                raise ValueError(f"{row.name} made {lengths} tokens, not {new_tokens} each")
            if number >= 0:
                seconds[number, column], tokens[number, column] = took, sum(lengths)
                calls[column] = None if output.calls is None else calls[column] + output.calls
                if row.is_drafting:
                    steps[column] += output.steps
        if number >= 0 and any(row.is_drafting for row in rows):
            round_costs.append(costs(family, prompts[0], drafts, new_tokens))
    rates = tokens / seconds
    plain = rates[:, names.index(PLAIN)]
    typical = median_costs(round_costs)
    return [
        Result(
            name=row.name,
            tokens_per_second=Spread.of(rates[:, column]),
            tokens_per_call=float(tokens[:, column].sum()) / calls[column] if calls[column] else None,
            acceptance=acceptance(steps[column]),
            over_plain=Spread.of(rates[:, column] / plain),
            over_peer=Spread.of(rates[:, column] / rates[:, names.index(row.peer)]) if row.peer else None,
            predicted=prediction(row, steps[column], typical),
        )
        for column, row in enumerate(rows)
    ]


class Lacking(Exception):
    """The family does not have what a row asks for."""


class Asked:
    """A family for which an attribute that it lacks is a `Lacking`, and no other error of a row is."""

    def __init__(self, family):
        self._family = family

    def __getattr__(self, role):
        try:
            return getattr(self._family, role)
        except (AttributeError, ConnectionError, PermissionError) as error:
            raise Lacking(str(error)) from error


@takes_iterators
def that_can_run(family, prompt: Sequence[int], rows: Sequence[Row] = tuple(ROWS)) -> tuple[list[Row], dict[str, str]]:
    """Try each row on two new tokens, and leave out those for which these models do not do.

    Parameters
    ----------
    family, rows
        As for `measure`. The family needs a `target` only.
    prompt : list of int

    Returns
    -------
    rows : list of Row
        Those that can run. One whose peer cannot has none.
    left_out : dict of str to str
        The names of the others, and why: what the family lacks, or what the method said of the models.
    """
    left_out = {}
    for row in rows:
        try:
            row.decode(Asked(family), [list(prompt)], 2, 0)
        except (Lacking, ValueError) as error:
            if row.name == PLAIN:
                raise
            left_out[row.name] = str(error)
    left = [row for row in rows if row.name not in left_out]
    return [replace(row, peer=None) if row.peer in left_out else row for row in left], left_out


def median_costs(all_costs: Sequence[Costs]) -> Costs | None:
    """The typical one of some measurements, number by number."""
    if not all_costs:
        return None
    calls = np.median([costs.call_seconds for costs in all_costs], axis=0)
    drafts = {name: float(np.median([costs.draft_seconds[name] for costs in all_costs])) for name in all_costs[0][1]}
    return Costs(calls.tolist(), drafts)


def acceptance(steps) -> float | None:
    """Accepted over judged tokens; None where nothing was judged."""
    judged = sum(step.judged for step in steps)
    return sum(step.accepted for step in steps) / judged if judged else None


def prediction(row: Row, steps, costs: Costs | None) -> float | None:
    """How much faster than the plain loop a row should be, by what was measured of its calls."""
    if not row.is_drafting or costs is None:
        return None
    draft_seconds = costs.draft_seconds[row.draft] if row.draft else 0.0
    # A tree is drafted level by level, a chain token by token.
    levels = [1 + max(step.tree.depths) if step.tree else len(step.drafted) for step in steps]
    rounds = [(len(step.drafted), level, len(step.tokens)) for step, level in zip(steps, levels, strict=True)]
    return rounds_factor(rounds, costs.call_seconds, draft_seconds)


class GammaResult(NamedTuple):
    """What was measured of `speculative` with one γ.

    Attributes
    ----------
    gamma : int
    over_plain : Spread
        Its speed over that of the plain loop.
    tokens_per_call, acceptance : float
    predicted : float
        `theory.measured_factor` for that acceptance and γ, from the measured costs of calls.
    """

    gamma: int
    over_plain: Spread
    tokens_per_call: float
    acceptance: float
    predicted: float


@takes_iterators
def by_gamma(
    family,
    prompts: Sequence[Sequence[int]],
    *,
    gammas: Sequence[int] = range(1, 11),
    sampling: bool = True,
    new_tokens: int = 64,
    rounds: int = 5,
) -> list[GammaResult]:
    """Time `speculative` with each γ against the plain loop, and predict it.

    Parameters
    ----------
    family, prompts, new_tokens, rounds
        As for `measure`.
    gammas : sequence of int
    sampling : bool
        Whether tokens are drawn; otherwise the likeliest are taken.

    Returns
    -------
    list of GammaResult
    """
    rows = [next(row for row in ROWS if row.name == PLAIN)]
    rows += [replace(speculative_row(gamma, sampling=sampling), peer=PLAIN) for gamma in gammas]
    rows[0] = replace(rows[0], peer=PLAIN)
    seen = []

    def remembered(*arguments):
        seen.append(measured_costs(*arguments))
        return seen[-1]

    results = measure(family, prompts, new_tokens=new_tokens, rounds=rounds, rows=rows, costs=remembered)[1:]
    costs = median_costs(seen)
    return [
        GammaResult(
            gamma,
            result.over_plain,
            result.tokens_per_call,
            result.acceptance,
            measured_factor(result.acceptance, gamma, costs.call_seconds, costs.draft_seconds["draft"]),
        )
        for gamma, result in zip(gammas, results, strict=True)
    ]


def table(results: Sequence[Result]) -> str:
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


def story_prompts(lm: LM, count: int, tokens: int = 24, first_seed: int = 900_000) -> list[list[int]]:
    """The first `tokens` tokens of `count` stories; their seeds are far from those of the training data.

    For a model without a tokenizer: as many random tokens, the same every time.
    """
    from . import storyworld

    if lm.tokenizer is None:
        draw = random.Random(first_seed).randrange
        return [[draw(lm.vocab_size) for _ in range(tokens)] for _ in range(count)]
    return [lm.encode(storyworld.story(first_seed + number))[:tokens] for number in range(count)]


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
    parser.add_argument("--prompts", type=int, help="how many prompts (default: 4; quick: 2)")
    parser.add_argument("--tokens", type=int, help="new tokens for each prompt (default: 64; quick: 32)")
    parser.add_argument("--rounds", type=int, help="how often every row is timed (default: 7; quick: 3)")
    parser.add_argument("--seed", type=int, default=0, help="for the order of the rows (default: %(default)s)")
    options = parser.parse_args(arguments)
    count, new_tokens, rounds = (2, 32, 3) if options.quick else (4, 64, 7)
    new_tokens, rounds = options.tokens or new_tokens, options.rounds or rounds
    transformers.utils.logging.set_verbosity_error()  # it warns of what it does itself when it is given an assistant
    if family is None:
        from . import models

        family = models.load(options.models)
    if prompts is None:
        prompts = story_prompts(family.target, options.prompts or count)
    rows, left_out = that_can_run(family, prompts[0])
    results = measure(family, prompts, new_tokens=new_tokens, rounds=rounds, rows=rows, seed=options.seed)
    setting = {"models": options.models, "prompts": len(prompts), "new_tokens": new_tokens, "rounds": rounds}
    setting["seed"] = options.seed
    if options.json:
        shown = [asdict(result) for result in results]
        print(json.dumps({"machine": machine(), "setting": setting, "rows": shown, "left_out": left_out}, indent=1))
    else:
        print(", ".join(f"{name}: {value}" for name, value in (machine() | setting).items() if value is not None))
        print("medians of rounds, with quartiles; the prompt's own call is included, except in what is predicted")
        print(table(results))
        if left_out:
            print(foot(left_out))


if __name__ == "__main__":
    main()
