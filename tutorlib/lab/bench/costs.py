"""Measure the time of calls on this machine (of a target for several widths, and of its drafts) and their memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from ...decoders import sample
from ...decoders.medusa import guesses
from ...drafting.dflash_head import DFlashHead
from ...drafting.draft_trees import Draft, drafted_with_rule, dynamic_tree
from ...drafting.eagle_head import DraftNetwork
from ...drafting.joint_head import JointHead
from ...drafting.medusa_heads import MedusaHeads
from ...measures.cost import call_times, synchronize, timed, weight_bytes
from ...measures.memory import predicted
from ...model.eight_bits import EightBits
from ...model.lm import LM
from ...model.ngram import NgramLM
from ...model.uncached import TokenCache
from ...running.decoding import run
from ...sampling.randomness import Seeded

Clock = Callable[[], float]  # seconds

# The widths of calls that are measured; others are interpolated. The widest is for EAGLE-2's published tree.
WIDTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 17, 25, 33, 60)


class Costs(NamedTuple):
    """The measured times of calls.

    Attributes
    ----------
    call_seconds : list of float
        Time of a target call with 1, 2, 3, ... tokens.
    prompt_seconds : float
        Time of the target call that reads the prompt.
    draft_seconds : dict of str to float
        For each draft, by its name in the family: the time per token in its own loop, including the choice of the
        token. For a draft network: the time per level of its tree. For Medusa heads, which guess all levels in one
        call: the time of that call divided by the number of heads.
    """

    call_seconds: list[float]
    prompt_seconds: float
    draft_seconds: dict[str, float]


def measured_costs(
    family, prompt: Sequence[int], drafts: Iterable[str], new_tokens: int, clock: Clock = time.perf_counter
) -> Costs:
    """Measure the time of a target call for several widths, and of a token of each draft, halfway through a text."""
    cached = len(prompt) + new_tokens // 2
    widths = [width for width in WIDTHS if cached + width <= family.target.context]
    times = call_times(family.target, widths, cached=cached, repeats=5, clock=clock)
    # (A wider one than fits takes as long as the widest that does: it is not so wide in the end.)
    call_seconds = np.interp(range(1, max(WIDTHS) + 1), times.widths, times.seconds).tolist()
    draft_seconds = {}
    for name in drafts:
        draft = getattr(family, name)
        if isinstance(draft, DraftNetwork | DFlashHead | JointHead):
            draft_seconds[name] = level_seconds(family.target, draft, prompt, clock=clock)
            continue
        if isinstance(draft, MedusaHeads):
            draft_seconds[name] = heads_seconds(family.target, draft, clock=clock) / len(draft)
            continue
        text = [token % draft.vocab_size for token in prompt]
        began = clock()
        trace = run(sample(draft, text, rng=Seeded(0)), new_tokens, stop=(), progress=False)
        draft_seconds[name] = (clock() - began) / len(trace.tokens)
    return Costs(call_seconds, prompt_seconds(family.target, prompt, clock=clock), draft_seconds)


def prompt_seconds(target: LM, prompt: Sequence[int], repeats: int = 5, clock: Clock = time.perf_counter) -> float:
    """Measure the time of the call that reads a prompt: the median of some, after one that is not counted."""
    times = [timed(lambda: target.session(prompt).feed(), target.device, clock) for _ in range(repeats + 1)]
    return float(np.median(times[1:]))


def level_seconds(
    target: LM,
    head: DraftNetwork | DFlashHead | JointHead,
    prompt: Sequence[int],
    repeats: int = 20,
    clock: Clock = time.perf_counter,
) -> float:
    """Measure the median time of a level in a draft network's own tree, including the choice of the guesses.

    A block network or a parallel draft guesses all levels in one pass, also with a joint: then it is the time of that
    pass and of the joint, divided by the levels.
    """
    session = target.session([*prompt, *prompt[:2]], hidden=head.feature_layers)  # three tokens at least
    session.feed()
    features = head.features(session.prompt_hidden)
    tokens, shape = session.tokens, dynamic_tree(**head.tree)
    depth = int(min(head.tree["depth"], head.block - 1 if isinstance(head, DFlashHead | JointHead) else head.ahead))
    times = []
    for _ in range(repeats):
        drafts = head.session(target)
        drafts.feed(tokens[1:-1], features[:-2])
        synchronize(target.device)
        began = clock()
        logits = drafts.feed(tokens[-1:], features[-2:-1])
        tree, _ = drafted_with_rule(shape, Draft(drafts, logits, tokens, (), depth=depth))
        synchronize(target.device)
        times.append((clock() - began) / (1 + max(tree.depths)))
    return float(np.median(times))


def heads_seconds(target: LM, heads: MedusaHeads, repeats: int = 20, clock: Clock = time.perf_counter) -> float:
    """Measure the median time of a call of all Medusa heads."""
    hidden, guess = torch.zeros(target.width, dtype=heads.dtype, device=target.device), guesses(heads, len(heads))
    return float(np.median([timed(lambda: guess(hidden), target.device, clock) for _ in range(repeats)]))


def held_bytes(part: LM | torch.nn.Module, tokens: int) -> tuple[int, int]:
    """Bytes of the weights of a model or of heads, and of its cache after `tokens` tokens of one text."""
    if isinstance(part, NgramLM):
        return sum(array.nbytes for level in part.levels for array in level if array is not None), 0
    if isinstance(part, EightBits):
        return part.own_bytes, predicted(part, min(tokens, part.context)).cache
    if not isinstance(part, torch.nn.Module):
        if type(part.open_cache(1)) is TokenCache:  # it keeps tokens alone, and other kinds of it more
            return weight_bytes(part), 0
        tokens = min(tokens, part.context)
    found = predicted(part, tokens)
    return found.weights, found.cache


def reading(lm: LM, numbers: int = 2**26) -> dict[str, float]:
    """Measure how close a call of one token comes to the memory bandwidth, since it has to read all weights.

    Parameters
    ----------
    lm : LM
    numbers : int
        How many float32 numbers are summed up to measure the bandwidth; more than fit into any processor cache.

    Returns
    -------
    dict
        "weight_bytes", and "call_seconds", the median of some calls; "sum_bytes_per_second", the fastest of some sums
        over a large tensor; and "share", the rate at which the call gets its weights over that of the sum.
    """
    block, seconds = torch.ones(numbers, device=lm.device), []
    for _ in range(5):
        synchronize(lm.device)
        began = time.perf_counter()
        float(block.sum())
        seconds.append(time.perf_counter() - began)
    rate, read = block.nbytes / min(seconds), weight_bytes(lm)
    call = float(call_times(lm, [1], cached=min(64, lm.context - 1), repeats=9).seconds[0])
    return {
        "weight_bytes": read,
        "call_seconds": call,
        "sum_bytes_per_second": rate,
        "share": read / call / rate,
    }


def median_costs(all_costs: Sequence[Costs]) -> Costs | None:
    """The median of some measurements, for each number."""
    if not all_costs:
        return None
    calls = np.median([costs.call_seconds for costs in all_costs], axis=0)
    prompts = float(np.median([costs.prompt_seconds for costs in all_costs]))
    names = all_costs[0].draft_seconds
    drafts = {name: float(np.median([costs.draft_seconds[name] for costs in all_costs])) for name in names}
    return Costs(calls.tolist(), prompts, drafts)
