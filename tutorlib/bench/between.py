"""How much of a row's time lies between the calls of its models: drawing, checking, trees, masks, sessions, traces.

The prediction in the report is made of calls alone, so this is what a row can fall short of it by. What this file does
not do: time rows against each other (`measuring`), or calls by their width (`costs`).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import torch

from ..cost import synchronize
from ..heads.eagle_head import DraftNetwork
from ..lm import LM
from ..table import TableLM
from .rows import Row


def share_between(
    family,
    row: Row,
    prompts: Sequence[list[int]],
    new_tokens: int,
    *,
    temperature: float = 0.0,
    seed: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Run a row once with a stopwatch on each of its models, and tell what share of its time was outside their calls.

    A call is one forward pass of a target, a draft or heads, or a reading of hidden states by an output head. On a GPU
    each is waited for, which a run that is timed for its speed does not do: so this takes a run of its own.

    Parameters
    ----------
    family, new_tokens, temperature
        As for `tutorlib.bench.measure`.
    prompts : sequence of token lists
        One batch: texts for them are made at once.
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
        row.decode(watched, prompts, new_tokens, seed, temperature)
        synchronize(device)
        return 1 - inside / (clock() - began)


class Watched:
    """A family in which the calls of a model are timed as soon as a row has asked for it.

    Parameters
    ----------
    family
    timed : function
        From a call to the same call, timed.
    undo : ExitStack
        On its end all is as it was.
    """

    def __init__(self, family, timed: Callable[[Callable], Callable], undo: ExitStack):
        self._family, self._timed, self._undo = family, timed, undo

    def __getattr__(self, role):
        part = getattr(self._family, role)
        for owner, name in calls_of(part):
            own = vars(owner).get(name)  # else it is the class's
            self._undo.callback(*((setattr, owner, name, own) if own else (delattr, owner, name)))
            setattr(owner, name, self._timed(getattr(owner, name)))
        self.__dict__[role] = part  # asked for again, it is found here
        return part


def calls_of(part) -> list[tuple[object, str]]:
    """Where a part of a family computes: objects, and the names of their methods."""
    if isinstance(part, TableLM):
        return [(part, "log_probs")]
    if isinstance(part, LM):
        return [(part.model, "forward"), (part, "read_out")]
    if isinstance(part, DraftNetwork):
        return [(part, name) for name in ("start", "forward", "read_out")]
    return [(part, "forward")] if isinstance(part, torch.nn.Module) else []
