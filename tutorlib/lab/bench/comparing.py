"""Compare any methods on some prompts: time, memory, tokens per call and, if a measure is given, quality.

The main benchmark (`measuring`) times its own rows against each other in rounds. Here the caller chooses the methods.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from ...arguments import takes_iterators
from ...measures.cost import synchronize
from ...measures.memory import Used, used
from ...model.llama import without_loops
from ...running.decoder import Steps
from ...running.decoding import run


@dataclass
class Compared:
    """The measurements of one method.

    Attributes
    ----------
    name : str
    seconds : list of float
        One for each prompt.
    tokens, calls : list of int
        New tokens, and calls of the target, including the one that reads the prompt; one number for each prompt.
    memory : Used
        Bytes, measured on the longest prompt.
    quality : float or None
        The mean over all prompts for which it is not NaN.
    """

    name: str
    seconds: list[float]
    tokens: list[int]
    calls: list[int]
    memory: Used
    quality: float | None = None

    @property
    def latency(self) -> float:
        """Mean time per prompt in seconds."""
        return fmean(self.seconds)

    @property
    def tokens_per_second(self) -> float:
        return sum(self.tokens) / sum(self.seconds)

    @property
    def tokens_per_call(self) -> float:
        return sum(self.tokens) / sum(self.calls)


@takes_iterators
def compare(
    methods: Mapping[str, Callable[..., Steps]],
    prompts: Sequence[str | Sequence[int]],
    *,
    max_new_tokens: int,
    stop: Iterable[int] | None = None,
    quality: Callable[[str], float] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Compared]:
    """Run every method on every prompt.

    The methods take turns on each prompt, and each prompt starts with a different method, so that a slow phase of the
    machine does not affect only one of them. Before that, each method makes an untimed run on the longest prompt, in
    which its memory is measured.

    Parameters
    ----------
    methods : mapping from labels to functions of a prompt
        For example ``{"greedy": lambda prompt: greedy(family.target, prompt)}``. Create a `Seeded` inside the function
        if the random draws should start again for each prompt.
    prompts : sequence of str or lists of int
    max_new_tokens, stop
        As for `run`.
    quality : function from a text to a number, optional
        Its argument is ``trace.text``. It may be any number; higher need not mean better.
    clock : function
        Seconds.

    Returns
    -------
    list of Compared, in the order of `methods`

    Raises
    ------
    ValueError
        If there are no methods or no prompts, if a function does not return the steps of a method, or if a run gives no
        new tokens.

    Examples
    --------
    >>> rows = compare({"greedy": lambda prompt: greedy(lm, prompt)}, prompts, max_new_tokens=40)  # doctest: +SKIP
    >>> show_comparison(rows)                                                                     # doctest: +SKIP
    """
    prompts = [prompts] if isinstance(prompts, str) else list(prompts)
    if not methods or not prompts:
        raise ValueError(f"compare needs methods and prompts, got {len(methods)} and {len(prompts)}")
    rows = []
    for name, method in methods.items():
        steps = [method(prompt) for prompt in prompts]
        if not all(isinstance(one, Steps) for one in steps):
            raise ValueError(
                f"{name!r} must return a method's steps, as lambda prompt: greedy(lm, prompt) does, and not the "
                f"result of run; got {steps[0]!r}"
            )
        longest = prompts[max(range(len(prompts)), key=lambda number: len(steps[number].prompt))]
        with without_loops():  # as `used` does
            run(method(longest), 2, stop=(), progress=False)  # tries the model's cache, see `LM`
        rows.append(Compared(name, [], [], [], used(method(longest), max_new_tokens)))
    texts: list[list[str]] = [[] for _ in rows]
    order = list(range(len(rows)))
    for number, prompt in enumerate(prompts):
        for place in order[number % len(order) :] + order[: number % len(order)]:
            decoding = methods[rows[place].name](prompt)
            synchronize(decoding.lm.device)
            began = clock()
            trace = run(decoding, max_new_tokens, stop, progress=False)
            synchronize(decoding.lm.device)
            rows[place].seconds.append(clock() - began)
            if not trace.tokens:
                raise ValueError(f"{rows[place].name!r} made no tokens of prompt {number}: {trace.stopped}")
            rows[place].tokens.append(len(trace.tokens))
            rows[place].calls.append(trace.target_calls)
            texts[place].append(trace.text if quality else "")
    for row, some in zip(rows, texts):
        judged = [value for value in map(quality, some) if value == value] if quality else []
        row.quality = fmean(judged) if judged else None
    return rows


# The columns of the table, by heading; a megabyte is a million bytes.
MEASURES: dict[str, Callable[[Compared], float]] = {
    "seconds per prompt": lambda row: row.latency,
    "tokens per second": lambda row: row.tokens_per_second,
    "tokens per call": lambda row: row.tokens_per_call,
    "weights (MB)": lambda row: row.memory.weights / 1e6,
    "peak beyond the weights (MB)": lambda row: row.memory.peak / 1e6,
}


def measures(rows: Sequence[Compared]) -> dict[str, list[float]]:
    """The numbers of all methods by heading, with the quality if it was measured, for tables and figures."""
    found = {head: [figure(row) for row in rows] for head, figure in MEASURES.items()}
    if any(row.quality is not None for row in rows):
        found["quality"] = [float("nan") if row.quality is None else row.quality for row in rows]
    return found


def show_comparison(rows: Sequence[Compared]) -> None:
    """Show the result of `compare` as a table, with a row for each method and three digits of each number."""
    from ...viz.tables import show_table

    found = measures(rows)
    lines = [(row.name, *(f"{value:.3g}" if value == value else "–" for value in values))
             for row, *values in zip(rows, *found.values())]  # fmt: skip
    show_table(("method", *found), *lines)
