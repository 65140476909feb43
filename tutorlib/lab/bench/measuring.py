"""Time the rows of the benchmark against each other in rounds, and in the same way `speculative` for several γ.

Each measurement has a condition: a kind of prompt, a temperature, and the number of texts generated at once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ...arguments import takes_iterators
from ...measures.cost import synchronize
from ...measures.theory import measured_factor
from ...running.step import Step
from .between import share_between
from .choosing import drafts_of, rows_at
from .costs import Costs, held_bytes, measured_costs, median_costs
from .predicting import acceptance, accepted_at, prediction
from .row_makers import Output, Row
from .rows import PLAIN, ROWS, speculative_row


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
        Accepted tokens divided by checked tokens, as in `Trace.acceptance`; None if nothing is drafted.
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
    top_p: float = 1.0,
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
    top_p : float
        Above temperature 0, tokens are drawn from the smallest set with this probability; 1: from all.
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
    rows, drawing = rows_at(rows, temperature, batch), (temperature, *([top_p] if top_p < 1 else []))
    _check_comparable(family, prompts, rows, rounds, new_tokens)
    batches = [
        [list(prompts[(first + row) % len(prompts)]) for row in range(batch)] for first in range(0, len(prompts), batch)
    ]
    drafts = drafts_of(rows) if batch == 1 else []
    is_predicted = batch == 1 and any(row.is_drafting for row in rows)
    tallies = [Tally() for _ in rows]
    round_costs = []
    order, shuffle = list(range(len(rows))), random.Random(seed).shuffle
    for number in range(-1, rounds):  # -1 is the round that is not counted
        shuffle(order)  # so that no row always runs after the same one, whose work may still be in the caches
        for column in order:
            some = batches if number >= 0 else batches[:1]
            outputs, seconds = _timed(rows[column], family, some, new_tokens, number, drawing, clock)
            if number >= 0:
                tallies[column].add(outputs, seconds)
        if number >= 0 and is_predicted:
            round_costs.append(costs(family, list(prompts[0]), drafts, new_tokens))

    rates = {row.name: tally.rates for row, tally in zip(rows, tallies, strict=True)}
    typical = median_costs(round_costs)
    held = _held(family, rows, max(map(len, prompts)) + new_tokens)
    results = []
    for row, tally in zip(rows, tallies, strict=True):
        result = _result(row, tally, rates, typical)
        result.memory = _memory(row, held, batch, max(tally.widest, row.texts), family.target)
        if row.is_drafting and batch == 1:
            result.between = share_between(family, row, batches[0], new_tokens, drawing=drawing, clock=clock)
        results.append(result)
    return results


def _check_comparable(family, prompts, rows: Sequence[Row], rounds: int, new_tokens: int) -> None:
    """Raise ValueError if there is nothing to measure or to compare with, or no room for the new tokens."""
    missing = sorted({PLAIN, *(row.peer for row in rows if row.peer)} - {row.name for row in rows})
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


def _timed(row: Row, family, batches, new_tokens: int, number: int, drawing: tuple[float, ...], clock):
    """What a row makes of each batch in one round, and how many seconds it takes for all of them together."""
    synchronize(family.target.device)
    began = clock()
    outputs = [row.decode(family, some, new_tokens, number, *drawing) for some in batches]
    synchronize(family.target.device)
    seconds = clock() - began
    lengths = [len(text) for output in outputs for text in output.texts]
    if set(lengths) != {new_tokens}:
        raise ValueError(f"{row.name} made {lengths} tokens, not {new_tokens} each")
    return outputs, seconds


@dataclass
class Tally:
    """What one row has done in the rounds so far.

    Attributes
    ----------
    seconds, tokens : list
        For each round.
    calls : int or None
        Of the target, in all rounds; None if they cannot be counted.
    widest : int
        Tokens in the target's widest call.
    steps : list of Step
        Without their candidates.
    """

    seconds: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    calls: int | None = 0
    widest: int = 1
    steps: list[Step] = field(default_factory=list)

    def add(self, outputs: Sequence[Output], seconds: float) -> None:
        """Add a round."""
        self.seconds.append(seconds)
        self.tokens.append(sum(len(text) for output in outputs for text in output.texts))
        for output in outputs:
            self.calls = None if self.calls is None or output.calls is None else self.calls + output.calls
            self.widest = max([self.widest, *(max(len(step.drafted) + 1, step.scored) for step in output.steps)])
            self.steps += [replace(step, candidates=[]) for step in output.steps]  # whose logits fill the memory

    @property
    def rates(self) -> np.ndarray:
        """Tokens per second in each round."""
        return np.array(self.tokens, dtype=float) / np.array(self.seconds)


def _result(row: Row, tally: Tally, rates: dict[str, np.ndarray], typical: Costs | None) -> Result:
    """The result of a row, without what needs its models: `memory` and `between`."""
    own, steps = rates[row.name], tally.steps if row.is_drafting else []
    return Result(
        name=row.name,
        tokens_per_second=Spread.of(own),
        tokens_per_call=float(sum(tally.tokens)) / tally.calls if tally.calls else None,
        acceptance=acceptance(steps),
        accepted_at=accepted_at(steps),
        over_plain=Spread.of(own / rates[PLAIN]),
        over_peer=Spread.of(own / rates[row.peer]) if row.peer else None,
        predicted=prediction(row, steps, typical),
        memory={},
    )


def _held(family, rows: Sequence[Row], length: int) -> dict[str, tuple[int, int]]:
    """Bytes of the weights and of the cache, after `length` tokens, of each model that the rows use."""
    roles = {"target", *(role for row in rows for role in row.helpers)}
    return {role: held_bytes(getattr(family, role), length) for role in roles}


def _memory(row: Row, held: dict[str, tuple[int, int]], batch: int, widest: int, target) -> dict[str, int]:
    """`Result.memory` of a row whose widest call of the target had so many tokens."""
    return {
        "target": held["target"][0],
        "draft": sum(held[role][0] for role in row.helpers),
        "cache": batch * (row.texts * held["target"][1] + sum(held[role][1] for role in row.helpers)),
        "logits": batch * widest * target.vocab_size * target.dtype.itemsize,
    }


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
    assert costs is not None  # `measure` has measured them in each round
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
