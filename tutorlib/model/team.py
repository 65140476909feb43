"""Threads that compute one call of the compiled loops together; `loops.meet` is where they wait for each other.

The threads are started once and sleep between calls. They belong to one call at a time: a call that comes in another
thread meanwhile is computed by that thread alone, with the same result. `Trials` finds out how many threads pay. What
this file does not do: share out the work (`loops.share` does).
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Hashable
from queue import SimpleQueue

import numpy as np

Team = tuple[int, int, np.ndarray]  # the number of a thread, how many there are, and how often they have met
CAN_GIVE_WAY = sys.platform != "win32"  # whether a thread that waits can let others have its core

TRIES = 3  # calls of a kind that are timed with all threads, and as many with one

_CALLED_OFF = -(2**62)  # less than any number of meetings: nobody waits any longer
_members: list[SimpleQueue] = []  # where each of the other threads waits for work
_is_free = threading.Lock()


def together(work: Callable[[Team], None], threads: int) -> None:
    """Call ``work(team)`` in so many threads at once, this one among them, and return when all of them have ended.

    Where that cannot be, because the others are busy or no thread can be started, it is called in this thread alone.
    If it raises in one thread, the others no longer wait, and the error is raised here.
    """
    met = np.zeros(1, np.int64)
    if threads == 1 or not _is_free.acquire(blocking=False):
        return work((0, 1, met))
    try:
        if not _are_there(threads - 1):
            return work((0, 1, met))
        ended: SimpleQueue = SimpleQueue()
        for number, waiting in enumerate(_members[: threads - 1], start=1):
            waiting.put((work, (number, threads, met), ended))
        _do(work, (0, threads, met), ended)
        errors = [error for error in (ended.get() for _ in range(threads)) if error is not None]
    finally:
        _is_free.release()
    if errors:
        raise errors[0]


class Trials:
    """How many threads pay for each kind of call: the first few are timed with all threads, the next few with one.

    Others help where computing takes longer than reading the weights, and where one core reads slower than the memory
    can deliver. Elsewhere, meeting takes longer than what they save.
    """

    def __init__(self):
        self._seconds: dict[Hashable, dict[int, list[float]]] = {}  # by kind, for each number of threads

    def together(self, work: Callable[[Team], None], most: int, kind: Hashable) -> None:
        """Call `together` with `most` threads or with one. Calls of a `kind` do equally much work."""
        if most == 1:
            return together(work, 1)
        seconds = self._seconds.setdefault((kind, most), {most: [], 1: []})
        untried = [threads for threads, some in seconds.items() if len(some) < TRIES]
        threads = untried[0] if untried else min(seconds, key=lambda count: min(seconds[count]))
        began = time.perf_counter()
        together(work, threads)
        if untried:
            seconds[threads].append(time.perf_counter() - began)


def _do(work: Callable[[Team], None], team: Team, ended: SimpleQueue) -> None:
    error = None
    try:
        work(team)
    except BaseException as raised:
        error, team[2][0] = raised, _CALLED_OFF
    ended.put(error)


def _are_there(count: int) -> bool:
    """Whether there are so many other threads, after those that were missing have been started."""
    while len(_members) < count:
        waiting: SimpleQueue = SimpleQueue()
        try:
            threading.Thread(target=_serve, args=(waiting,), daemon=True, name="tutorlib loops").start()
        except RuntimeError:  # the system allows no more threads
            return False
        _members.append(waiting)
    return True


def _serve(waiting: SimpleQueue) -> None:
    while True:
        _do(*waiting.get())


def _forget() -> None:
    """A process that was forked has none of the threads of the one before it."""
    global _is_free
    _members.clear()
    _is_free = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
