"""Measure what the page "Why is mine slower?" asks for: times of calls and drafts, and the share of accepted tokens."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

from ...arguments import check_whole_number
from ...decoders import sample, speculative
from ...measures.cost import timed
from ...running.decoding import run
from ...sampling.randomness import Seeded
from ...sampling.warp import temperature as temperature_warp
from .costs import measured_costs, prompt_seconds
from .predicting import accepted_at

DRAFTS = ("draft", "quantized")  # the family's own draft model, and the target's copy in eight bits


def slowness(
    family,
    prompts: Sequence[Sequence[int]],
    *,
    draft: str = "quantized",
    gamma: int = 5,
    new_tokens: int = 64,
    temperature: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Any]:
    """The numbers that explain the speed of speculative decoding with one of a family's draft models.

    Parameters
    ----------
    family : Family
    prompts : sequence of token lists
    draft : str
        Its name in the family, such as "draft" or "quantized".
    gamma, new_tokens : int
        Tokens drafted in each round, and new tokens for each prompt.
    temperature : float
        0 is greedy.
    clock : function
        Seconds.

    Returns
    -------
    dict
        ``calls``: milliseconds of a call of the target with 1, 2, ... tokens, up to γ + 5; ``draft``: of a drafted
        token; ``accepted``: the share of checked tokens that were accepted, for each position; ``gamma``; ``between``:
        milliseconds of a round beyond its calls and the time that plain decoding spends between two of its own;
        ``prompt``: of the draft's first call, which reads what the target has not read for it; ``tokens``: new tokens
        of a text.

    Raises
    ------
    ValueError
        If `gamma` is no whole number above 0, or the family has no draft model of this name.
    """
    check_whole_number(gamma, 1, "gamma is how many tokens are drafted in a round")
    if draft not in DRAFTS:
        raise ValueError(f"{draft!r} is no draft model: the page's formulas are for {' and '.join(DRAFTS)}")
    target, model = family.target, getattr(family, draft)
    warp = [temperature_warp(temperature)] if temperature else []
    costs = measured_costs(family, prompts[0], [draft], new_tokens, clock)
    # The bench's time of a drafted token has a share of the prompt's in it, which this page asks for by itself.
    alone = prompt_seconds(model, prompts[0], clock=clock)
    token = max(0.0, costs.draft_seconds[draft] * new_tokens - alone) / max(1, new_tokens - 1)
    reading = first_call_seconds(target, model, prompts[0], clock)

    def timed(method):
        began, steps = clock(), []
        for prompt in prompts:
            rng = Seeded(0) if temperature else None
            steps += run(method(prompt, rng=rng, warp=warp), new_tokens, stop=(), progress=False).steps
        return clock() - began, steps

    plain, tokens = timed(partial(sample, target))
    whole, rounds = timed(partial(speculative, target, model, gamma=gamma))
    read = len(prompts) * (costs.prompt_seconds - costs.call_seconds[0])
    calls = sum(len(step.drafted) * token + costs.call_seconds[len(step.drafted)] for step in rounds)
    usual = (plain - read) / len(tokens) - costs.call_seconds[0]
    between = (whole - read - len(prompts) * reading - calls) / len(rounds) - usual
    return {
        "calls": [round(1e3 * seconds, 2) for seconds in costs.call_seconds[: gamma + 5]],
        "draft": round(1e3 * token, 2),
        "accepted": [round(share, 3) for share in accepted_at(rounds) or [0.0]],
        "gamma": gamma,
        "between": round(1e3 * max(0.0, between), 2),
        "prompt": round(1e3 * reading, 1),
        "tokens": new_tokens,
    }


def first_call_seconds(target, draft, prompt: Sequence[int], clock: Callable[[], float], repeats: int = 3) -> float:
    """The time of a draft's first call in `speculative`: of the whole prompt, unless the target reads it for both."""
    times = []
    for _ in range(repeats):
        session, drafts = target.session(prompt), draft.session(prompt)
        session.share_prompt(drafts)
        times.append(timed(drafts.feed, target.device, clock))
    return median(times)
