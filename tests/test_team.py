"""Several threads compute one call: the same bits as one thread, and nobody waits for ever."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from test_llama import TEXT, tiny

from tutorlib import LM, EightBits, TokenTree
from tutorlib.model import llama, team

TREE = TokenTree([1, 2, 3, 4, 5], [-1, -1, 0, 0, 2])


@pytest.fixture
def threads(monkeypatch):
    """Sets how many threads PyTorch would have; small models are shared too."""
    monkeypatch.setattr("tutorlib.model.loop_weights._SHARED", 0)
    return lambda count: monkeypatch.setattr(torch, "get_num_threads", lambda: count)


def states(lm):
    """Logits and hidden states of a few tokens, of a tree and of a batch, as one tensor."""
    session, batch = lm.session(TEXT[:5], hidden=(0, 1, -1)), lm.batch([TEXT[:3], TEXT, TEXT[:1] * 20])
    found = [session.feed([3]), session.feed([5]), *session.hidden.values(), session.feed_tree(TREE)]
    found += batch.feed([[], [], []]) + batch.feed([[1], [2, 3], [4] * 17])
    return torch.cat([one.flatten() for one in found])


@pytest.mark.parametrize("copy", [lambda lm: lm, EightBits], ids=["float32", "eight bits"])
@pytest.mark.parametrize("count", [2, 3, 7])
def test_the_bits_are_the_same_whatever_the_number_of_threads(threads, copy, count):
    threads(1)
    alone = states(copy(LM(tiny())))
    threads(count)
    shared = LM(tiny())
    assert llama.of(shared.model).is_shared
    assert states(copy(shared)).equal(alone)


def test_each_thread_is_one_of_the_team_and_all_have_met():
    met, seen = [], []

    def work(one):
        for _ in range(50):
            llama.loops().meet(one)
        seen.append(one[:2])
        met.append(one[2])

    team.together(work, 4)
    assert sorted(seen) == [(0, 4), (1, 4), (2, 4), (3, 4)]
    assert all(array is met[0] for array in met) and met[0][0] == 200


@pytest.mark.parametrize("faulty", [0, 1])
def test_an_error_in_one_thread_is_raised_and_nobody_waits_for_it(faulty):
    def work(one):
        llama.loops().meet(one)
        if one[0] == faulty:
            raise ZeroDivisionError
        llama.loops().meet(one)
        llama.loops().meet(one)

    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            team.together(work, 3)
    team.together(llama.loops().meet, 3)


def test_a_call_while_the_others_are_busy_is_computed_alone():
    inner = []
    team.together(lambda one: one[0] == 0 and team.together(lambda other: inner.append(other[:2]), 2), 2)
    assert inner == [(0, 1)]


@pytest.mark.parametrize("alone, quickest", [(1.0, 1), (3.0, 4)])
def test_the_threads_that_were_quickest_in_the_first_calls_compute_the_others(monkeypatch, clock, alone, quickest):
    used, trials = [], team.Trials()
    monkeypatch.setattr(team.time, "perf_counter", clock)

    def work(one):
        if one[0] == 0:
            used.append(one[1])
            clock.now += 2.0 if one[1] > 1 else alone

    for kind in ("layers", "layers", "logits"):
        for _ in range(5):
            trials.together(work, 4, kind)
    assert used == [*[4] * 3, *[1] * 3, *[quickest] * 4, *[4] * 3, *[1] * 2]


def test_where_no_thread_can_be_started_there_is_none(monkeypatch):
    def refused(thread):
        raise RuntimeError("can't start new thread")

    seen = []
    monkeypatch.setattr(threading.Thread, "start", refused)
    team.together(lambda one: seen.append(one[:2]), 100)
    assert seen == [(0, 1)]


def test_several_threads_of_a_program_decode_at_once(threads):
    threads(2)
    lm = LM(tiny())
    expected, found = states(lm), []
    readers = [threading.Thread(target=lambda: found.append(states(lm))) for _ in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(60)
    assert len(found) == 4 and all(one.equal(expected) for one in found)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_has_threads_of_its_own():
    code = """
import os, warnings
from tutorlib.model import llama, team
seen = []
team.together(lambda one: seen.append(one[0]), 3)
warnings.simplefilter("ignore")
child = os.fork()
if not child:
    team.together(lambda one: seen.append(one[0]), 3)
    os._exit(0 if sorted(seen) == [0, 0, 1, 1, 2, 2] else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_shares_cover_everything_once():
    for count in (0, 1, 3, 9, 100):
        for threads in (1, 2, 3, 7):
            parts = [llama.loops().share(count, (one, threads, np.zeros(1, np.int64))) for one in range(threads)]
            assert [place for first, last in parts for place in range(first, last)] == list(range(count))
