"""Measure how much of a row's time is spent between the calls of its models: drawing, checking, trees, masks, traces.

The prediction in the report includes only calls, so this is the part by which a row can be slower than predicted. What
this file does not do: time rows against each other (`measuring`), or calls by their width (`costs`).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import torch

from ...drafting.eagle_head import DraftNetwork
from ...drafting.head_loops import LoopedHeads, LoopedNetwork, looped_heads, looped_network
from ...drafting.medusa_heads import MedusaHeads
from ...measures.cost import synchronize
from ...model.eight_bits import EightBits
from ...model.llama import LoopCache, are_wanted, of
from ...model.lm import LM
from ...model.table import TableLM
from .row_makers import Row


def share_between(
    family,
    row: Row,
    prompts: Sequence[list[int]],
    new_tokens: int,
    *,
    drawing: tuple[float, ...] = (0.0,),
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Run a row once, time the calls of its models, and return the share of the time that was spent outside these
    calls.

    A call is a forward pass of a target, a draft or heads, or of an output head over hidden states. On a GPU, this
    function waits for each of them, which would slow down a run whose speed is measured. So it makes a run of its own.

    Parameters
    ----------
    family, new_tokens
        As for `tutorlib.lab.bench.measure`.
    drawing : tuple of float
        The temperature, and the probability from which tokens are drawn if that is below 1.
    prompts : sequence of token lists
        One batch of prompts, whose texts are generated together.
    row : Row
    seed : int
    clock : function
        Seconds.

    Returns
    -------
    float
        From 0 to 1.
    """
    device, inside, is_inside = family.target.device, 0.0, False

    def timed(call):
        @functools.wraps(call)  # `generate` looks at what a model's forward takes
        def timed_call(*args, **kwargs):
            nonlocal inside, is_inside
            if is_inside:  # EAGLE's network reads out through the target's head
                return call(*args, **kwargs)
            synchronize(device)
            is_inside, began = True, clock()
            try:
                result = call(*args, **kwargs)
                synchronize(device)
                return result
            finally:
                inside += clock() - began
                is_inside = False

        return timed_call

    with ExitStack() as undo:
        watched = Watched(family, timed, undo)
        synchronize(device)
        began = clock()
        row.decode(watched, prompts, new_tokens, seed, *drawing)
        synchronize(device)
        return 1 - inside / (clock() - began)


class Watched:
    """A family that times the calls of a model from its first use by a row.

    Parameters
    ----------
    family
    timed : function
        From a call to the same call, timed.
    undo : ExitStack
        Restores the original methods when it ends.
    """

    def __init__(self, family, timed: Callable[[Callable], Callable], undo: ExitStack):
        self._family, self._timed, self._undo = family, timed, undo

    def __getattr__(self, role):
        part = getattr(self._family, role)
        for owner, name in calls_of(part, self._family.target):
            self._replace(owner, name, self._timed(getattr(owner, name)))
        if is_looped(part):
            self._replace(part, "open_cache", self._timing_calls(part.open_cache))
        self.__dict__[role] = part  # asked for again, it is found here
        return part

    def _replace(self, owner, name: str, call: Callable) -> None:
        own = vars(owner).get(name)  # else it is the class's
        self._undo.callback(*((setattr, owner, name, own) if own else (delattr, owner, name)))
        setattr(owner, name, call)

    def _timing_calls(self, open_cache: Callable) -> Callable:
        """The compiled loops call no module, and would leave a model alone that one has changed: the cache calls."""

        def opened(*args, **kwargs):
            cache = open_cache(*args, **kwargs)
            cache.call = self._timed(cache.call)
            if isinstance(cache, LoopCache):  # with a copy, it reads the prompt before its first call
                cache.share = self._timed(cache.share)  # type: ignore[method-assign]
            return cache

        return opened


def is_looped(part) -> bool:
    """Whether a part of a family is a model that is computed by the compiled loops."""
    if isinstance(part, EightBits):
        return True
    return isinstance(part, LM) and not isinstance(part, TableLM) and are_wanted() and of(part.model) is not None


def calls_of(part, target: LM) -> list[tuple[object, str]]:
    """The methods in which a part of a family computes: objects, and the names of their methods."""
    if isinstance(part, TableLM):
        return [(part, "log_probs")]
    if isinstance(part, LM):
        return [(part, "read_out")] if is_looped(part) else [(part.model, "forward"), (part, "read_out")]
    if isinstance(part, DraftNetwork) and looped_network(part, target):
        return [(LoopedNetwork, name) for name in ("start", "step", "read_out")]
    if isinstance(part, MedusaHeads) and looped_heads(part, 1):
        return [(LoopedHeads, "guess")]
    if isinstance(part, DraftNetwork):
        return [(part, name) for name in ("start", "forward", "read_out")]
    return [(part, "forward")] if isinstance(part, torch.nn.Module) else []
