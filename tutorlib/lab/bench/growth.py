"""Measure how time and memory grow with the length of a text and the number of texts: both should at most double.

    python -m tutorlib.lab.bench.growth [--rounds N] [--most RATIO]

Each row of the table is measured at three sizes, each twice the one before. A time is the shortest of several rounds,
in processor time, and is measured again as long as it looks too long. The models are tables and a small random
transformer, so that what is measured is the package's own work and not a model's. The command fails if anything grows
by more than the ratio where its size doubles. It compares a machine only with itself, but a very busy machine can still
spoil a time: run it where nothing else runs.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ... import decoders
from ...decoders.suffix_lookup import SuffixAutomaton
from ...measures.memory import used
from ...model.lm import LM
from ...model.table import TableLM
from ...running.decoding import run, run_batch
from ...running.step import Step
from ...sampling.penalties import frequency_penalty, no_repeat_ngram
from ...sampling.randomness import Seeded
from ...sampling.warp import temperature

# A doubled size may take twice as much, and a tenth more for what is measured with it.
MOST = 2.2
ROUNDS = 9


class Growth(NamedTuple):
    """What is measured at each of some sizes.

    Attributes
    ----------
    name, unit : str
    sizes : tuple of int
        Each is twice the one before it.
    measure : function from a size to a number
    is_time : bool
        Whether it varies, so that the least of several rounds counts.
    """

    name: str
    unit: str
    sizes: tuple[int, ...]
    measure: Callable[[int], float]
    is_time: bool


def seconds(work: Callable[[int], object]) -> Callable[[int], float]:
    """How long `work(size)` takes, in processor time."""

    def measure(size):
        gc.collect()
        began = time.process_time()
        work(size)
        return time.process_time() - began

    return measure


def held(work: Callable[[int], object]) -> Callable[[int], float]:
    """How many bytes of Python objects and tensors' headers the result of `work(size)` holds."""

    def measure(size):
        gc.collect()
        tracemalloc.start()
        result = work(size)
        gc.collect()
        found = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        del result
        return found

    return measure


def peak(work: Callable[[int], object]) -> Callable[[int], float]:
    """How many bytes the tensors of `work(size)` take at most."""

    def once(size):
        work(size)
        yield Step([0])

    return lambda size: used(once(size), 1).peak


def one_text(name: str, *, draft: bool = False, **how) -> Callable[[int], object]:
    """Write a text of `size` tokens with a method, over tables."""
    target, other = (TableLM.random(20, 1, seed, context=10**6) for seed in (3, 5))
    models = (target, other) if draft else (target,)
    method = getattr(decoders, name)
    return lambda size: run(method(*models, [1, 2, 3], rng=Seeded(1), **how), size, stop=(), progress=False)


def texts(size: int, tokens: int = 40):
    """Write `size` texts at once, over a table."""
    lm = TableLM.random(20, 1, 3, context=10**6)
    warp, rngs = [temperature(0.9)], [Seeded(row) for row in range(size)]
    steps = decoders.sample_batch(lm, [[1, 2, 3]] * size, rngs=rngs, warp=warp)
    return run_batch(steps, tokens, stop=(), progress=False)


def small_model() -> LM:
    """A random transformer with a vocabulary that is large for its size."""
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=8000, num_key_value_heads=2, max_position_embeddings=512, **sizes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        lm = LM(LlamaForCausalLM(config).eval())
    lm.batch([[1], [2, 3]]).feed([[], []])  # so that what is tried out once is not measured
    return lm


def uneven_prompts(lm: LM) -> Callable[[int], object]:
    """The first feed of `size` prompts, each one token longer than the one before it, up to 128."""
    return lambda size: lm.batch([[5] * (128 - row) for row in range(size)]).feed([[]] * size)


def repeated(size: int) -> None:
    """Index a text of one token, and draft after each token."""
    text = SuffixAutomaton()
    for _ in range(size):
        text.extend([7])
        text.continuations(4)


def growths() -> list[Growth]:
    """Everything that is measured."""
    lm, lengths = small_model(), (1000, 2000, 4000)
    runs = {
        "sample": one_text("sample", warp=[temperature(0.9)]),
        "sample, frequency penalty": one_text("sample", warp=[frequency_penalty(0.001)]),
        "sample, no repeated 6-gram": one_text("sample", warp=[no_repeat_ngram(6)]),
        "prompt_lookup": one_text("prompt_lookup"),
        "suffix_lookup": one_text("suffix_lookup"),
        "speculative, frequency penalty": one_text("speculative", draft=True, warp=[frequency_penalty(0.001)]),
    }
    by_tokens = [Growth(f"{name}, by tokens", "s", lengths, seconds(work), True) for name, work in runs.items()]
    return [
        *by_tokens,
        Growth("suffix automaton of one token, by tokens", "s", (4000, 8000, 16000), seconds(repeated), True),
        Growth("sample_batch, by tokens", "s", lengths, seconds(lambda size: texts(2, size)), True),
        Growth("sample_batch, by texts", "s", (16, 32, 64), seconds(texts), True),
        Growth("prompts of different lengths, by texts", "s", (16, 32, 64), seconds(uneven_prompts(lm)), True),
        Growth("trace of sample, by tokens", "B", (500, 1000, 2000), held(runs["sample"]), False),
        Growth("traces of sample_batch, by texts", "B", (8, 16, 32), held(texts), False),
        Growth("prompts of different lengths, by texts", "B", (16, 32, 64), peak(uneven_prompts(lm)), False),
    ]


def measured(growth: Growth, rounds: int = ROUNDS, most: float = MOST) -> list[float]:
    """What was found at each size; of a time the least of several rounds, in which the sizes take turns.

    There are up to `rounds` of them, and no more once no ratio is above `most`: other work on the machine can only make
    a time longer, so more rounds can only bring the least one closer to the truth.
    """
    if growth.is_time:
        growth.measure(growth.sizes[0])  # what the first use does once is not measured
    best = [growth.measure(size) for size in growth.sizes]
    for _ in range(rounds - 1 if growth.is_time else 0):
        if max(ratios(best)) <= most:
            break
        best = [min(least, growth.measure(size)) for least, size in zip(best, growth.sizes, strict=True)]
    return best


def ratios(found: Sequence[float]) -> list[float]:
    """By how much each number exceeds the one before it."""
    return [after / before for before, after in zip(found, found[1:], strict=False)]


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line; it exits with 1 if something grows too much."""
    parser = argparse.ArgumentParser(
        prog="python -m tutorlib.lab.bench.growth", description="Do time and memory grow in proportion?"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of timing at most (default: %(default)s)")
    parser.add_argument("--most", type=float, default=MOST, help="the largest ratio allowed (default: %(default)s)")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error(f"--rounds must be at least 1, got {options.rounds}")
    torch.set_num_threads(1)
    too_much = []
    for growth in growths():
        found = measured(growth, options.rounds, options.most)
        grown, sizes = ratios(found), zip(growth.sizes, found, strict=True)
        told = ", ".join(f"{size}: {number:.3g} {growth.unit}" for size, number in sizes)
        print(f"{growth.name:45} {told:50} ratios {', '.join(f'{ratio:.2f}' for ratio in grown)}", flush=True)
        if max(grown) > options.most:
            too_much.append(f"{growth.name} ({growth.unit}: {max(grown):.2f} times as much at twice the size)")
    if too_much:
        sys.exit(f"more than {options.most} times as much at twice the size: {'; '.join(too_much)}")


if __name__ == "__main__":
    main()
