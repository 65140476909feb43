"""Time the rows of the benchmark against each other in rounds, and in the same way `speculative` for several γ.

Each measurement has a condition: a kind of prompt, a temperature, and the number of texts generated at once.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ...arguments import check_whole_number, is_number, takes_iterators
from ...measures.cost import synchronize
from ...measures.theory import measured_factor
from ...running.step import Step
from .between import share_between
from .costs import Costs, held_bytes, measured_costs, median_costs
from .rows import GENERATE, PLAIN, ROWS, Row, speculative_row


class Condition(NamedTuple):
    """A condition for comparing rows: a kind of prompt, a temperature (0 is greedy), and texts generated at once."""

    kind: str
    temperature: float
    batch: int


class Spread(NamedTuple):
    """A median and the quartiles on both sides of it."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values) -> Spread:
        low, median, high = np.quantile(np.asarray(values, dtype=float), [0.25, 0.5, 0.75])
        return cls(float(median), float(low), float(high))


@dataclass
class Result:
    """The measurements of one row.

    Attributes
    ----------
    name : str
    tokens_per_second : Spread
    tokens_per_call : float or None
        New tokens per call of the target, including the call that reads the prompt; None if calls cannot be counted.
    acceptance : float or None
        Accepted tokens divided by judged tokens, as in `Trace.acceptance`; None if nothing is drafted.
    accepted_at : list of float, or None
        The same for each position in the draft (for each level of a tree): of the steps in which everything before this
        position was accepted, the share in which it was accepted too. The values for the last positions may come from
        only a few steps.
    over_plain : Spread
        Speed divided by that of plain decoding, in each round.
    over_peer : Spread or None
        Speed divided by that of the row's peer; None if it has no peer.
    predicted : float or None
        The value that `over_plain` should have according to the measured costs of calls; None if there is no
        prediction, as for batches.
    memory : dict of str to int
        Bytes: the weights of the "target", and of the "draft" or heads; the "cache" of both at the end of the longest
        texts; and the "logits" of the target's widest call.
    between : float or None
        The share of its time that is spent between calls, measured in a separate run; None if there is no prediction.
    """

    name: str
    tokens_per_second: Spread
    tokens_per_call: float | None
    acceptance: float | None
    accepted_at: list[float] | None
    over_plain: Spread
    over_peer: Spread | None
    predicted: float | None
    memory: dict[str, int]
    between: float | None = None


@takes_iterators
def measure(
    family,
    prompts: Sequence[Sequence[int]],
    *,
    temperature: float = 0.0,
    batch: int = 1,
    new_tokens: int = 64,
    rounds: int = 7,
    rows: Sequence[Row] = tuple(ROWS),
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
    costs: Callable[..., Costs] = measured_costs,
) -> list[Result]:
    """Time those rows against each other that can run at this temperature and batch size.

    Parameters
    ----------
    family : what `models.load` returns, or any object with the LMs that the rows ask for, a `target` at least
    prompts : sequence of token lists
        If the last batch is not full, the first prompts are used again.
    temperature : float
        0 is greedy.
    batch : int
        How many texts are generated at once.
    new_tokens : int
        For each prompt.
    rounds : int
        In each round, every row runs all prompts. There is first a round with only the first batch, which is not
        counted.
    rows : sequence of Row
        The plain loop and the peer of every row must be among them. A row whose peer cannot run here is compared with
        `generate` as it is.
    seed : int
        For the order of the rows, which is shuffled in each round.
    clock : function
        Seconds.
    costs : function like `measured_costs`
        Called once in each round if the time of a row is predicted, that is, if it drafts and there is one text at a
        time.

    Returns
    -------
    list of Result, in the order of `rows`

    Raises
    ------
    ValueError
        If there is nothing to measure, if a prompt leaves no room for the new tokens, if a row makes too few tokens, if
        the temperature is below 0, or if the batch size is below 1.
    """
    rows = rows_at(rows, temperature, batch)
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
    batches = [
        [list(prompts[(first + row) % len(prompts)]) for row in range(batch)] for first in range(0, len(prompts), batch)
    ]
    drafts = drafts_of(rows) if batch == 1 else []
    is_predicted = batch == 1 and any(row.is_drafting for row in rows)
    seconds, tokens = np.zeros((rounds, len(rows))), np.zeros((rounds, len(rows)))
    calls: list[int | None] = [0] * len(rows)
    widest = [1] * len(rows)
    steps = [[] for _ in rows]
    round_costs = []
    order, shuffle = list(range(len(rows))), random.Random(seed).shuffle
    for number in range(-1, rounds):
        shuffle(order)  # so that no row always runs after the same one, whose work may still be in the caches
        for column in order:
            row = rows[column]
            synchronize(family.target.device)
            began = clock()
            outputs = [
                row.decode(family, some, new_tokens, number, temperature)
                for some in (batches if number >= 0 else batches[:1])
            ]
            synchronize(family.target.device)
            took = clock() - began
            lengths = [len(text) for output in outputs for text in output.texts]
            if set(lengths) != {new_tokens}:
                raise ValueError(f"{row.name} made {lengths} tokens, not {new_tokens} each")
            if number < 0:
                continue
            seconds[number, column], tokens[number, column] = took, sum(lengths)
            for output in outputs:
                calls[column] = None if output.calls is None else calls[column] + output.calls
                widest[column] = max([widest[column], *(max(len(s.drafted) + 1, s.scored) for s in output.steps)])
                steps[column] += output.steps if row.is_drafting else ()
        if number >= 0 and is_predicted:
            round_costs.append(costs(family, list(prompts[0]), drafts, new_tokens))
    rates = tokens / seconds
    plain = rates[:, names.index(PLAIN)]
    typical = median_costs(round_costs)
    held = {
        role: held_bytes(getattr(family, role), longest + new_tokens)
        for role in {"target", *(role for row in rows for role in row.helpers)}
    }
    logits = family.target.vocab_size * family.target.dtype.itemsize
    return [
        Result(
            name=row.name,
            tokens_per_second=Spread.of(rates[:, column]),
            tokens_per_call=float(tokens[:, column].sum()) / calls[column] if calls[column] else None,
            acceptance=acceptance(steps[column]),
            accepted_at=accepted_at(steps[column]),
            over_plain=Spread.of(rates[:, column] / plain),
            over_peer=Spread.of(rates[:, column] / rates[:, names.index(row.peer)]) if row.peer else None,
            predicted=prediction(row, steps[column], typical),
            memory={
                "target": held["target"][0],
                "draft": sum(held[role][0] for role in row.helpers),
                "cache": batch * (row.texts * held["target"][1] + sum(held[role][1] for role in row.helpers)),
                "logits": batch * max(widest[column], row.texts) * logits,
            },
            between=share_between(family, row, batches[0], new_tokens, temperature=temperature, clock=clock)
            if row.is_drafting and batch == 1
            else None,
        )
        for column, row in enumerate(rows)
    ]


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
        if name is not None and name not in wanted:
            wanted.add(name)
            waiting.append(known[name].peer)
    return [row for row in rows if row.name in wanted]


def acceptance(steps) -> float | None:
    """Accepted tokens divided by judged tokens; None if nothing was judged."""
    judged = sum(step.judged for step in steps)
    return sum(step.accepted for step in steps) / judged if judged else None


def accepted_at(steps) -> list[float] | None:
    """Accepted tokens divided by judged tokens, for each position in the draft; None if nothing was judged."""
    deepest = max((step.judged for step in steps), default=0)
    reached = [[step.accepted > at for step in steps if step.judged > at] for at in range(deepest)]
    return [sum(kept) / len(kept) for kept in reached] or None


def prediction(row: Row, steps: Sequence[Step], costs: Costs | None) -> float | None:
    """Predict how much faster than plain decoding a row should be, from the measured times of calls.

    Both read each prompt in one call. After that, plain decoding makes a call of one token for each token. In each
    step, the row calls its draft, and then the target with all drafted tokens and one more. Nothing else is counted.
    """
    if not row.is_drafting or costs is None:
        return None
    draft_seconds = sum(costs.draft_seconds[role] for role in row.helpers)
    texts, tokens, seconds, calls = 0, 0, 0.0, math.inf
    for step in steps:
        tokens += len(step.tokens)
        seconds += draft_calls(step) * draft_seconds
        if step.calls <= calls:  # another text begins: this call reads its prompt
            texts += 1
            seconds += costs.prompt_seconds
        else:
            # `run` takes tokens that it cuts off out of a drafted chain; the call had them all the same.
            drafted = max(len(step.drafted), len(step.tokens) + step.cut - 1)
            seconds += costs.call_seconds[drafted]
        calls = step.calls
    return (texts * costs.prompt_seconds + (tokens - texts) * costs.call_seconds[0]) / seconds


def draft_calls(step: Step) -> int:
    """How often the draft was called in a step: once for each level of a tree, or for each token of a chain."""
    return 1 + max(step.tree.depths) if step.tree else len(step.drafted)


class GammaResult(NamedTuple):
    """The measurements of `speculative` with one γ.

    Attributes
    ----------
    gamma : int
    over_plain : Spread
        Its speed divided by that of plain decoding.
    tokens_per_call, acceptance : float
    predicted : float
        `theory.measured_factor` for this acceptance and γ, from the measured costs of calls.
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
    """Time `speculative` with each γ against plain decoding, and also predict the result.

    Parameters
    ----------
    family, prompts, new_tokens, rounds
        As for `measure`.
    gammas : sequence of int
    sampling : bool
        Whether tokens are sampled, at temperature 1. Otherwise decoding is greedy.

    Returns
    -------
    list of GammaResult
    """
    rows = [next(row for row in ROWS if row.name == PLAIN)]
    rows += [replace(speculative_row(gamma), peer=PLAIN) for gamma in gammas]
    rows[0] = replace(rows[0], peer=PLAIN)
    seen = []

    def remembered(*arguments):
        seen.append(measured_costs(*arguments))
        return seen[-1]

    how = {"temperature": float(sampling), "new_tokens": new_tokens, "rounds": rounds}
    results = measure(family, prompts, **how, rows=rows, costs=remembered)[1:]
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
