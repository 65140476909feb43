"""What decoding takes in memory: predicted from shapes, and measured.

A run needs weights, a key-value cache, logits and hidden states. `predicted` works them out for a model, for Medusa
heads or an EAGLE network, or for a model of which there is nothing but a configuration. `used` measures a run of a
method by its tensors, and `resident` asks the operating system, in a process of its own. A method that uses several
models takes the sum: ``predicted(target, ...) + predicted(draft, ...)``.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import weakref
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .. import quantization
from ..arguments import check_whole_number
from ..cache import grown
from ..cost import attention_widths, weight_bytes

__all__ = ["Memory", "Used", "predicted", "resident", "used", "weight_bytes"]


class Memory(NamedTuple):
    """Bytes, predicted. They add up over models: ``predicted(target) + predicted(draft)``.

    Attributes
    ----------
    weights : int
        Parameters and buffers; of what is quantized, also its scales.
    cache : int
        Keys and values.
    logits : int
        Of the widest call.
    hidden : int
        The hidden states that heads ask for.
    working : int
        What the widest call needs for a moment besides.
    """

    weights: int = 0
    cache: int = 0
    logits: int = 0
    hidden: int = 0
    working: int = 0

    @property
    def total(self) -> int:
        """All of them: the peak."""
        return sum(self)

    def __add__(self, other) -> Memory:
        if not isinstance(other, Memory):
            return NotImplemented
        return Memory(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def __radd__(self, other) -> Memory:
        return self if other == 0 else NotImplemented  # sum() starts from 0


def predicted(
    model,
    tokens: int = 0,
    rows: int = 1,
    *,
    prompt: int | None = None,
    hidden: int = 0,
    dtype: torch.dtype | str | None = None,
    quantize: str | None = None,
    double_quantization: bool | None = None,
) -> Memory:
    """What a model takes while it decodes, worked out from shapes.

    Parameters
    ----------
    model : LM, MedusaHeads, DraftNetwork or transformers configuration
        A configuration is enough: no weights are needed, nor made.
    tokens : int
        In the cache at the end; 0 for the weights alone.
    rows : int
        Tokens in the widest call after the prompt's: 1, a draft's length and one more, or a tree's nodes.
    prompt : int, optional
        How many of the tokens are the prompt's. The cache then has the slots to spare that a session makes, and the
        prompt's call is counted in `working`. Without it: the slots of `tokens`.
    hidden : int
        How many layers' hidden states are asked for: 1 for Medusa and EAGLE, 3 for EAGLE-3.
    dtype, quantize, double_quantization : optional
        As in `models.load`, to ask what another form would take. By default the form that the model is in; for a
        configuration the type that it names, or else float32.

    Returns
    -------
    Memory

    Raises
    ------
    ValueError
        For numbers that are none, or another form of what is quantized already, or of heads, which are never quantized.

    Notes
    -----
    With L layers, k key-value heads of size d, s slots and b bytes a number, the cache is ``2 L k d s b``. `working`
    holds what is large in a call of n tokens: in a layer about ``n (4 inner + width) b``; a second copy of the logits,
    and one row of them three times in float64, to make probabilities; and the largest quantized layer's weights, as
    they are when they are multiplied.

    Examples
    --------
    >>> predicted(AutoConfig.from_pretrained("some-7b"), quantize="nf4").weights / 1e9         # doctest: +SKIP
    """
    for name, number in (("tokens", tokens), ("rows", rows), ("prompt", prompt or 0), ("hidden", hidden)):
        check_whole_number(number, 0, f"{name} must be how many there are")
    if prompt is not None and prompt > tokens:
        raise ValueError(f"prompt={prompt} is more than tokens={tokens}, which counts the prompt too")
    module, config, own = _parts(model, dtype)
    form = quantization.forms(quantize, double_quantization, ["target"]).get("target")
    quantized = any(map(quantization.form_of, module.modules()))
    if (form or dtype) and (quantized or config is None or not hasattr(module, "get_output_embeddings")):
        raise ValueError(
            f"{type(module).__name__} is {'quantized already' if quantized else 'never quantized'}: leave out dtype= "
            "and quantize=, or give the configuration of the original"
        )
    each = own.itemsize
    weights, largest = _weights(module, form, own if dtype else None)
    if not tokens:
        return Memory(weights)
    if config is None:  # Medusa heads keep nothing between calls
        return Memory(weights, logits=2 * len(module) * module.vocab_size * each)
    layers = config.num_hidden_layers
    slots = tokens if prompt is None else grown(prompt)
    while slots < tokens:
        slots = grown(slots + 1)
    layer = 4 * getattr(config, "intermediate_size", 4 * config.hidden_size) + config.hidden_size
    calls = [layer * each * (prompt or 0), rows * (layer + config.vocab_size) * each + 24 * config.vocab_size]
    states = (layers + 1 + hidden) * max(prompt or 0, rows) * config.hidden_size * each
    return Memory(
        weights,
        cache=2 * layers * attention_widths(config)[1] * slots * each,
        logits=rows * config.vocab_size * each,
        hidden=states if hidden else 0,
        working=max(calls) + largest * each,
    )


class Used(NamedTuple):
    """Bytes, measured in a run.

    Attributes
    ----------
    weights : int
        Tensors that were there before and were read: the weights of every model that took part.
    held : int
        Of the tensors that the run made, those that it still had after its last step: the caches, and little else.
    peak : int
        The most that the run's own tensors took at a time, the caches among them.
    """

    weights: int
    held: int
    peak: int

    @property
    def total(self) -> int:
        """Weights and peak."""
        return self.weights + self.peak


def used(steps: Iterable, max_new_tokens: int) -> Used:
    """Measure a run by its tensors: those that the operations of torch take, and those that they make.

    On a GPU the peak is that of torch's allocator. Elsewhere it is the sum of the tensors that are alive, which no
    other process and no earlier run can change; what an operation needs inside of itself is not seen. It takes about
    twice as long as the run by itself. The first run of a model tries its cache, see `LM`: let one go before.

    Parameters
    ----------
    steps : iterable of Step
        What a method returned, ``greedy(lm, "Once upon a time")``. Used up.
    max_new_tokens : int
        The run ends with the step that reaches them.

    Returns
    -------
    Used
    """
    device = steps.lm.device if hasattr(steps, "lm") else torch.device("cpu")
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
    made, held = 0, 0
    with _Tensors() as tensors:
        for step in steps:
            made, held = made + len(step.tokens), tensors.made
            if made >= max_new_tokens:
                break
        getattr(steps, "close", lambda: None)()  # here: what a method has entered it must leave under the same mode
    peak = torch.cuda.max_memory_allocated(device) - before if on_gpu else tensors.peak
    return Used(tensors.found, held, peak)


class _Tensors(TorchDispatchMode):
    """Counts the bytes of tensors while they are alive, by their storages.

    Attributes
    ----------
    found, made : int
        Bytes of those that an operation took and none had made, and of those that an operation made.
    peak : int
        The most that `made` was.
    """

    def __init__(self):
        super().__init__()
        self.found = self.made = self.peak = 0
        self._known = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        self._see((args, kwargs), "found")
        output = function(*args, **kwargs)
        self._see(output, "made")
        self.peak = max(self.peak, self.made)
        return output

    def _see(self, values, kind):
        for tensor in tree_leaves(values):
            if not isinstance(tensor, torch.Tensor) or tensor.is_meta:
                continue
            storage = tensor.untyped_storage()
            key, size = storage._cdata, storage.nbytes()
            if key not in self._known:
                self._known[key] = weakref.ref(storage, partial(self._forget, key, kind, size))
                setattr(self, kind, getattr(self, kind) + size)

    def _forget(self, key, kind, size, _):
        del self._known[key]
        setattr(self, kind, getattr(self, kind) - size)


def resident(name, **how) -> int:
    """By how many bytes loading a family's target makes a process larger, as the operating system counts them.

    In a process of its own, the target is loaded once, so that what torch and transformers need by themselves is there,
    and then, beside it, once more to be measured: there has to be room for two. Every weight is read, because a file's
    parts may only come into memory when they are.

    Parameters
    ----------
    name, **how
        As for `models.load`; a dtype by its name, "bfloat16".

    Returns
    -------
    int
        By the resident set, on Linux; on a GPU, by torch's allocator.

    Raises
    ------
    RuntimeError
        With what the process said, if it fails: where there is no ``/proc``, for instance.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", _MEASURE, json.dumps([str(name), how])]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"loading {name!r} in a process of its own failed: {done.stderr.strip().splitlines()[-1]}")
    return int(done.stdout)


_MEASURE = """
import ctypes, gc, json, re, sys
from tutorlib import models

def load():
    model = models.load(name, **how).target.model
    for tensor in model.state_dict().values():
        tensor.sum()
    return model

def size(device):
    gc.collect()
    if device.type == "cuda":
        return models.torch.cuda.memory_allocated(device)
    if hasattr(ctypes.CDLL(None), "malloc_trim"):
        ctypes.CDLL(None).malloc_trim(0)
    return 1024 * int(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read()).group(1))

name, how = json.loads(sys.argv[1])
first = load()
before = size(first.device)
second = load()
print(size(first.device) - before)
"""


def _parts(model, dtype):
    """(module, configuration or None, dtype) of what memory is predicted for; a configuration gets weights on meta."""
    given = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if dtype is not None and not isinstance(given, torch.dtype):
        raise ValueError(f"dtype={dtype!r}: expected a type of torch's, such as bfloat16")
    if isinstance(model, torch.nn.Module):
        return model, getattr(model, "config", None), next(model.parameters()).dtype
    if isinstance(getattr(model, "model", None), torch.nn.Module):
        return model.model, model.model.config.get_text_config(), given or model.dtype
    if not hasattr(model, "get_text_config"):
        raise ValueError(f"expected an LM, heads, a draft network or a transformers configuration, got {model!r}")
    from transformers import AutoModelForCausalLM

    config = model.get_text_config()
    given = given or (config.dtype if isinstance(config.dtype, torch.dtype) else torch.float32)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(copy.deepcopy(model), dtype=given), config, given  # it notes the dtype


def _weights(module, form, dtype) -> tuple[int, int]:
    """Bytes of all weights, and how many numbers the largest quantized layer has. dtype None: that of each weight."""
    head = getattr(module, "get_output_embeddings", lambda: None)()
    total = largest = 0
    seen = set()
    for part in module.modules():
        plain = type(part) is torch.nn.Linear or type(part).__name__ == "Conv1D"
        kept = quantization.form_of(part) or (form if plain and part is not head else None)
        for name, weight in part.named_parameters(recurse=False):
            if id(weight) in seen:
                continue
            seen.add(id(weight))
            if kept and name == "weight":
                sides = (part.out_features, part.in_features) if hasattr(part, "in_features") else weight.T.shape
                total += quantization.layer_bytes(*sides, kept)
                largest = max(largest, sides[0] * sides[1])
            else:
                total += weight.numel() * (dtype or weight.dtype).itemsize
        total += sum(buffer.nbytes for buffer in part.buffers(recurse=False))
    return total, largest
