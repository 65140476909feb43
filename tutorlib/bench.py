"""How fast are the methods, on this machine, beside a plain loop and beside transformers?

    python -m tutorlib.bench [--quick] [--json]

Every row makes the same number of new tokens from the same prompts with the same models. All rows take turns, over and
over, each time in another order, and each row is compared with what the plain loop and its peer took *in the same
round*, so a slow spell of the machine does not become somebody's advantage. The peer is `transformers.generate` where
it does the same work; it has no contrast, so those methods are compared with what they add to. Shown are medians over
the rounds, and quartiles. No stop token ends a run here, so that all rows do the same work.

A new method needs one line in `ROWS`, and a function if there is none for its like.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import torch
import transformers

from .cost import _synchronize as synchronize
from .decoders import beam_search, greedy, sample
from .decoders.contrastive_decoding import contrastive_decoding
from .decoders.contrastive_search import contrastive_search
from .decoders.dola import dola, lower_layers
from .lm import LM
from .randomness import Seeded
from .run import run
from .warp import temperature, top_k, top_p

PLAIN = "bare forward loop"
GENERATE = "generate(do_sample=False)"
GENERATE_SAMPLING = "generate(do_sample=True)"
GENERATE_FILTERED = "generate(do_sample=True), filtered"
GENERATE_BEAMS = "generate(num_beams=4)"
GREEDY = "greedy"
TWO_MODELS = "expert and amateur calls"


class Output(NamedTuple):
    """What one row made of one prompt: the new tokens, and how often it called the target (None: not counted)."""

    tokens: list[int]
    calls: int | None


@dataclass(frozen=True)
class Row:
    """One line of the benchmark.

    Attributes
    ----------
    name : str
    decode : function from (family, prompt as tokens, new tokens, seed) to Output
        `family` is what `models.load` returns: ``family.target`` is the LM whose text is made.
    peer : str
        The name of the row that this one is compared with: that of `generate` which does the same work. Where there is
        none, the row that does what the method cannot do without.
    """

    name: str
    decode: Callable[[SimpleNamespace, list[int], int, int], Output]
    peer: str = GENERATE


def forward_loop(family, prompt, count, seed) -> Output:
    """The plain loop of a tutorial: the model, its own cache, argmax. What everything is compared with."""
    model = family.target.model
    tokens = []
    with torch.inference_mode():
        output = model(torch.tensor([prompt], device=model.device), use_cache=True, logits_to_keep=1)
        while True:
            tokens.append(int(output.logits[0, -1].argmax()))
            if len(tokens) == count:
                return Output(tokens, count)
            step = torch.tensor([tokens[-1:]], device=model.device)
            output = model(step, past_key_values=output.past_key_values, use_cache=True)


def session_loop(family, prompt, count, seed) -> Output:
    """The same loop over a `Session`: what its undo costs a method that never uses it."""
    session = family.target.session(prompt)
    tokens = [int(session.feed()[-1].argmax())]
    while len(tokens) < count:
        tokens.append(int(session.feed(tokens[-1:])[-1].argmax()))
    return Output(tokens, session.calls)


def two_models_loop(family, prompt, count, seed) -> Output:
    """The calls that contrastive decoding cannot do without: target and draft read the text, and the target goes on."""
    expert, amateur = family.target.session(prompt), family.draft.session(prompt)
    tokens = []
    while len(tokens) < count:
        logits, _ = expert.feed(tokens[-1:]), amateur.feed(tokens[-1:])
        tokens.append(int(logits[-1].argmax()))
    return Output(tokens, expert.calls)


def ours(make_steps) -> Callable[..., Output]:
    """A row for one of our methods: `make_steps(family, prompt, seed)` returns its steps."""

    def decode(family, prompt, count, seed):
        trace = run(make_steps(family, prompt, seed), count, stop=(), progress=False)
        return Output(trace.tokens, trace.target_calls)

    return decode


def ours_searching(make_steps) -> Callable[..., Output]:
    """A row for one of our searches, which take the budget themselves: `make_steps(family, prompt, count)`."""

    def decode(family, prompt, count, seed):
        return ours(lambda *_: make_steps(family, prompt, count))(family, prompt, count, seed)

    return decode


def generate(**options) -> Callable[..., Output]:
    """A row for `transformers.generate`, with the options given and no stop token."""

    def decode(family, prompt, count, seed):
        model = family.target.model
        text = torch.tensor([prompt], device=model.device)
        torch.manual_seed(seed)
        output = model.generate(
            text,
            attention_mask=torch.ones_like(text),
            max_new_tokens=count,
            eos_token_id=None,
            pad_token_id=0,
            **options,
        )
        return Output(output[0, len(prompt) :].tolist(), None)

    return decode


# The options that make transformers sample from the model as it is: its defaults filter.
UNWARPED = {"do_sample": True, "top_k": 0, "top_p": 1.0, "temperature": 1.0}
# The usual filters, for both: transformers applies them in this order whatever order they are given in.
FILTERS = [temperature(0.8), top_k(50), top_p(0.9)]
FILTERED = {"do_sample": True, "temperature": 0.8, "top_k": 50, "top_p": 0.9}

ROWS = [
    Row(PLAIN, forward_loop),
    Row("Session loop", session_loop),
    Row(GREEDY, ours(lambda family, prompt, seed: greedy(family.target, prompt))),
    Row(
        "sample",
        ours(lambda family, prompt, seed: sample(family.target, prompt, rng=Seeded(seed))),
        peer=GENERATE_SAMPLING,
    ),
    Row(
        "sample, filtered",
        ours(lambda family, prompt, seed: sample(family.target, prompt, rng=Seeded(seed), warp=FILTERS)),
        peer=GENERATE_FILTERED,
    ),
    Row(
        "beam_search, 4 beams",
        ours_searching(
            lambda family, prompt, count: beam_search(family.target, prompt, beams=4, max_new_tokens=count, stop=())
        ),
        peer=GENERATE_BEAMS,
    ),
    Row(TWO_MODELS, two_models_loop, peer=TWO_MODELS),
    Row(
        "contrastive_decoding",
        ours(lambda family, prompt, seed: contrastive_decoding(family.target, family.draft, prompt)),
        peer=TWO_MODELS,
    ),
    Row(
        "contrastive_search, k=4",
        ours(lambda family, prompt, seed: contrastive_search(family.target, prompt, k=4)),
        peer=GREEDY,
    ),
    Row(
        "dola, lower layers",
        ours(lambda family, prompt, seed: dola(family.target, prompt, layers=lower_layers(family.target))),
        peer=GREEDY,
    ),
    Row(GENERATE, generate(do_sample=False)),
    Row(GENERATE_SAMPLING, generate(**UNWARPED), peer=GENERATE_SAMPLING),
    Row(GENERATE_FILTERED, generate(**FILTERED), peer=GENERATE_FILTERED),
    Row(GENERATE_BEAMS, generate(do_sample=False, num_beams=4), peer=GENERATE_BEAMS),
]


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
    """What was measured of one row.

    Attributes
    ----------
    name : str
    tokens_per_second : Spread
    tokens_per_call : float or None
        New tokens for each call of the target, the prompt's included; None where calls cannot be counted.
    over_plain, over_peer : Spread
        Speed over that of the plain loop, and of the row's peer, round by round.
    """

    name: str
    tokens_per_second: Spread
    tokens_per_call: float | None
    over_plain: Spread
    over_peer: Spread


def measure(
    family,
    prompts: Sequence[Sequence[int]],
    *,
    new_tokens: int = 64,
    rounds: int = 7,
    rows: Sequence[Row] = tuple(ROWS),
    clock: Callable[[], float] = time.perf_counter,
) -> list[Result]:
    """Time the rows against each other.

    Parameters
    ----------
    family : what `models.load` returns, or any object with a `target` and a `draft` that are LMs
    prompts : sequence of token lists
    new_tokens : int
        For each prompt.
    rounds : int
        In each, every row does all prompts; one more round goes before that is not counted.
    rows : sequence of Row
        The plain loop and the peer of every row must be among them.
    clock : function
        Seconds.

    Returns
    -------
    list of Result, in the order of `rows`

    Raises
    ------
    ValueError
        When there is nothing to measure, a prompt leaves no room for the new tokens, or a row makes too few.
    """
    names = [row.name for row in rows]
    missing = sorted({PLAIN, *(row.peer for row in rows)} - set(names))
    if missing:
        raise ValueError(f"the rows to compare with must be among the rows; missing: {', '.join(missing)}")
    if rounds < 1 or new_tokens < 1 or not len(prompts):
        raise ValueError(f"need prompts, rounds and new tokens; got {len(prompts)}, {rounds} and {new_tokens}")
    longest = max(map(len, prompts))
    if longest + new_tokens > family.target.context:
        raise ValueError(
            f"a prompt of {longest} tokens and {new_tokens} new ones do not fit the context of {family.target.context}"
        )
    seconds = np.zeros((rounds, len(rows)))
    calls: list[int | None] = [0] * len(rows)
    for number in range(-1, rounds):
        for shift in range(len(rows)):
            column = (number + shift) % len(rows)  # nobody always follows the same neighbour's warm caches
            row = rows[column]
            synchronize(family.target.device)
            began = clock()
            outputs = [row.decode(family, list(prompt), new_tokens, number) for prompt in prompts]
            synchronize(family.target.device)
            took = clock() - began
            if any(len(output.tokens) != new_tokens for output in outputs):
                raise ValueError(f"{row.name} made {[len(o.tokens) for o in outputs]} tokens, not {new_tokens} each")
            if number >= 0:
                seconds[number, column] = took
                made = [output.calls for output in outputs]
                calls[column] = None if None in made else calls[column] + sum(made)
    plain = seconds[:, names.index(PLAIN)]
    total = new_tokens * len(prompts)
    return [
        Result(
            name=row.name,
            tokens_per_second=Spread.of(total / taken),
            tokens_per_call=total * rounds / count if count else None,
            over_plain=Spread.of(plain / taken),
            over_peer=Spread.of(seconds[:, names.index(row.peer)] / taken),
        )
        for row, taken, count in zip(rows, seconds.T, calls, strict=True)
    ]


def table(results: Sequence[Result]) -> str:
    """The results as text: a line a row."""
    width = max(len(result.name) for result in results)
    lines = [f"{'':{width}}  {'tokens/s':>16}  {'tokens/call':>11}  {'x plain loop':>18}  {'x its peer':>18}"]
    for result in results:
        rate, plain, peer = result.tokens_per_second, result.over_plain, result.over_peer
        per_call = "" if result.tokens_per_call is None else f"{result.tokens_per_call:.2f}"
        lines.append(
            f"{result.name:{width}}  {f'{rate.median:.0f} ({rate.low:.0f}-{rate.high:.0f})':>16}  {per_call:>11}"
            f"  {f'{plain.median:.2f} ({plain.low:.2f}-{plain.high:.2f})':>18}"
            f"  {f'{peer.median:.2f} ({peer.low:.2f}-{peer.high:.2f})':>18}"
        )
    return "\n".join(lines)


def story_prompts(lm: LM, count: int, tokens: int = 24, first_seed: int = 900_000) -> list[list[int]]:
    """The first `tokens` tokens of `count` stories; their seeds are far from those of the training data."""
    from . import storyworld

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
    parser.add_argument("--models", default="storyworld", help="name of a family of models (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="fewer prompts, tokens and rounds: seconds, not a minute")
    parser.add_argument("--json", action="store_true", help="print JSON in place of the table")
    parser.add_argument("--prompts", type=int, help="how many prompts (default: 4; quick: 2)")
    parser.add_argument("--tokens", type=int, help="new tokens for each prompt (default: 64; quick: 32)")
    parser.add_argument("--rounds", type=int, help="how often every row is timed (default: 7; quick: 3)")
    options = parser.parse_args(arguments)
    count, new_tokens, rounds = (2, 32, 3) if options.quick else (4, 64, 7)
    new_tokens, rounds = options.tokens or new_tokens, options.rounds or rounds
    if family is None:
        from . import models

        family = models.load(options.models)
    if prompts is None:
        prompts = story_prompts(family.target, options.prompts or count)
    results = measure(family, prompts, new_tokens=new_tokens, rounds=rounds)
    setting = {"models": options.models, "prompts": len(prompts), "new_tokens": new_tokens, "rounds": rounds}
    if options.json:
        rows = [asdict(result) for result in results]
        print(json.dumps({"machine": machine(), "setting": setting, "rows": rows}, indent=1))
    else:
        print(", ".join(f"{name}: {value}" for name, value in (machine() | setting).items() if value is not None))
        print("medians of rounds, with quartiles; the prompt's own call is included")
        print(table(results))


if __name__ == "__main__":
    main()
