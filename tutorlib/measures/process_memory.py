"""The memory of a process, as the operating system counts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys


def resident(name, **how) -> int:
    """The memory that loading a family's target adds to a process, according to the operating system.

    A new process loads the target twice. After the first time, everything that torch and transformers need is in
    memory, and the second time is measured; so there must be room for two. Every weight is read, because parts of a
    file may not be in memory until they are read.

    Parameters
    ----------
    name, **how
        As for `models.load`, with the dtype given by its name, such as "bfloat16".

    Returns
    -------
    int
        Bytes: the resident set; on a GPU, the memory of torch's allocator.

    Raises
    ------
    RuntimeError
        If the process fails; with the last line of its error output.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", _MEASURE, json.dumps([str(name), how])]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"loading {name!r} in a process of its own failed: {done.stderr.strip().splitlines()[-1]}")
    return int(done.stdout)


_MEASURE = """
import ctypes, gc, json, sys
import psutil, torch
from tutorlib import models

def load():
    model = models.load(name, **how).target.model
    for tensor in model.state_dict().values():
        tensor.sum()
    return model

def size(device):
    gc.collect()
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    if hasattr(ctypes.CDLL(None), "malloc_trim"):
        ctypes.CDLL(None).malloc_trim(0)
    return psutil.Process().memory_info().rss

name, how = json.loads(sys.argv[1])
first = load()
before = size(first.device)
second = load()
print(size(first.device) - before)
"""
