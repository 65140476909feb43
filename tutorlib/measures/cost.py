"""Measure what a call of a language model costs: its time, depending on the number of tokens, and its memory.

`theory` calculates what a call should cost; here it is measured. Methods never read a clock: if a method
adapts to cost, it takes these measurements as an argument.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from ..model.cache import call_with_cache
from ..model.eight_bits import EightBits
from ..model.quantization import scales

if TYPE_CHECKING:
    from ..model.lm import LM


class CallTimes(NamedTuple):
    """Measured times of one call for several numbers of tokens. All arrays have shape (widths,).

    Attributes
    ----------
    widths : array of int
        Number of tokens in the call.
    seconds : array of float64
        Median over the repeats.
    low, high : arrays of float64
        Quartiles: half of all repeats lie between them.
    """

    widths: np.ndarray
    seconds: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def relative(self) -> np.ndarray:
        """Each median, divided by that of the call with the fewest tokens."""
        return self.seconds / self.seconds[self.widths.argmin()]


def call_times(
    lm: LM,
    widths: Sequence[int] = (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 17, 24, 32, 33),
    *,
    cached: int = 64,
    repeats: int = 20,
    clock: Callable[[], float] = time.perf_counter,
) -> CallTimes:
    """Measure the time of a call for several numbers of new tokens, after `cached` tokens.

    All widths are timed in turn, and then again, so that a slow phase of the machine affects all of them equally. Each
    timed call comes after one of the same width, as in a method's loop: after a wide call, the weights of a small model
    may be in none of the processor's caches. The time is that of `Session.feed`, including the wait for the result.

    Parameters
    ----------
    lm : LM
    widths : sequence of int
        Numbers of tokens, each at least 1. All rows of logits are computed, as when a draft is checked.
    cached : int
        Tokens in the cache before each call, at least 1.
    repeats : int
        How often each width is timed.
    clock : function
        Returns the time in seconds.

    Returns
    -------
    CallTimes

    Raises
    ------
    ValueError
        If the widest call does not fit into the context, or a number is below 1.

    Examples
    --------
    >>> times = call_times(lm, [1, 5])                                                              # doctest: +SKIP
    >>> times.relative                                                                              # doctest: +SKIP
    array([1.  , 1.35])
    """
    widths = list(widths)
    for name, numbers in (("widths", widths), ("cached", [cached]), ("repeats", [repeats])):
        if not numbers or min(numbers) < 1:
            raise ValueError(f"{name} must be at least 1, got {numbers}")
    if cached + max(widths) > lm.context:
        raise ValueError(f"{cached} cached tokens and {max(widths)} new ones do not fit the context of {lm.context}")
    tokens = [index % lm.vocab_size for index in range(cached + max(widths))]
    session = lm.session(tokens[:cached])
    session.feed()
    seconds = np.empty((repeats, len(widths)))
    for repeat in range(repeats):
        for column, width in enumerate(widths):
            new = tokens[cached : cached + width]
            for _ in range(2):  # the second one counts
                seconds[repeat, column] = timed(partial(session.feed, new), lm.device, clock)
                session.rollback(width)
    low, median, high = np.quantile(seconds, [0.25, 0.5, 0.75], axis=0)
    return CallTimes(np.array(widths), median, low, high)


def calls_in_turn(
    lms: Sequence[LM],
    *,
    cached: int = 64,
    rounds: int = 7,
    repeats: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Measure the time of a call of one token for several models, so that their times can be divided by each other.

    The models take turns, so that a slow phase of the machine affects all of them equally. In its turn, a model makes
    some calls of one token and no others, as in its own loop.

    Returns
    -------
    list of float
        Seconds: for each model, the median over the rounds of the median in a round.
    """
    times = [[call_times(lm, [1], cached=cached, repeats=repeats, clock=clock).seconds[0] for lm in lms]
             for _ in range(rounds)]  # fmt: skip
    return np.median(times, axis=0).tolist()


def machine_rates(lm: LM, *, repeats: int = 5, clock: Callable[[], float] = time.perf_counter) -> dict[str, float]:
    """Measure how fast a model's device computes and moves bytes, in the model's dtype.

    Computing is timed with a product of two large matrices, moving with a large copy, in which each byte is read and
    written. The fastest repeat counts, because other programs can only make one slower.

    Returns
    -------
    dict
        ``peak_operations`` and ``bandwidth``, each per second, as `theory.roofline_seconds` takes them.
    """
    side, length = (8192, 2**28) if lm.device.type == "cuda" else (1024, 2**25)
    matrix = torch.ones(side, side, dtype=lm.dtype, device=lm.device)
    block, copy = matrix.new_ones(length), matrix.new_zeros(length)

    def fastest(task):
        return min(timed(task, lm.device, clock) for _ in range(repeats))

    # side products and side sums for each number of the result
    computing, moving = fastest(lambda: matrix @ matrix), fastest(lambda: copy.copy_(block))
    return {"peak_operations": 2 * side**3 / computing, "bandwidth": 2 * block.nbytes / moving}


class ModelSize(NamedTuple):
    """The numbers by which `tutorlib.measures.theory` describes a model."""

    parameters: int
    layers: int
    query_width: int
    key_width: int
    bytes_each: int


def model_size(lm: LM) -> ModelSize:
    """Find the numbers of a model that the formulas of `tutorlib.measures.theory` need.

    `parameters` counts the parameters of all matrices that a token is multiplied with. Learned positions are only
    looked up and do not count, and neither does an input embedding, unless it is also the output head.
    """
    model: Any = lm.model  # one of transformers'
    config = model.config.get_text_config()
    head = model.get_output_embeddings()
    looked_up = {
        id(module.weight)
        for module in model.modules()
        if isinstance(module, torch.nn.Embedding) and (head is None or module.weight is not head.weight)
    }
    # `parameters()` gives a weight that is used twice only once.
    matrices = [p for p in model.parameters() if p.dim() > 1 and id(p) not in looked_up]
    query_width, key_width = attention_widths(config)
    return ModelSize(
        parameters=sum(p.numel() for p in matrices),
        layers=config.num_hidden_layers,
        query_width=query_width,
        key_width=key_width,
        bytes_each=lm.dtype.itemsize,
    )


# The names of the release before. A shape is what drafts.
Shape, shape_of = ModelSize, model_size


def attention_widths(config) -> tuple[int, int]:
    """The widths of a token's queries and keys in one layer, from a transformers configuration."""
    heads = config.num_attention_heads
    head_size = getattr(config, "head_dim", None) or config.hidden_size // heads
    return heads * head_size, (getattr(config, "num_key_value_heads", None) or heads) * head_size


def weight_bytes(lm: LM | torch.nn.Module) -> int:
    """Bytes in memory of the weights and buffers of a model or of heads. A weight that is used twice counts once.

    For quantized weights, their scales count too.
    """
    if isinstance(lm, EightBits):
        return lm.nbytes
    module: Any = getattr(lm, "model", lm)
    everything = [*module.parameters(), *module.buffers(), *scales(module)]
    tensors = {(t.device, t.data_ptr()): t for t in everything if t.numel()}
    return sum(t.numel() * t.element_size() for t in tensors.values())


def measured_cache_bytes(lm: LM, tokens: int) -> int:
    """Bytes of the key-value cache after `tokens` tokens, measured on the cache that the model itself makes."""
    if not 1 <= tokens <= lm.context:
        raise ValueError(f"tokens must be from 1 to the context, {lm.context}; got {tokens}")
    text = torch.arange(tokens, device=lm.device)[None] % lm.vocab_size
    with torch.inference_mode():
        _, cache = call_with_cache(lm.model, text)
    return sum(t.numel() * t.element_size() for layer in cache.layers for t in (layer.keys, layer.values))


# The name of the release before.
cache_bytes = measured_cache_bytes


def timed(call: Callable[[], object], device: torch.device, clock: Callable[[], float] = time.perf_counter) -> float:
    """The seconds of one call, until a device has finished its work."""
    synchronize(device)
    began = clock()
    call()
    synchronize(device)
    return clock() - began


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished its work. A GPU accepts calls faster than it computes them."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
