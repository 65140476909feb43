"""The memory that decoding takes: predicted from shapes, and measured.

A run needs weights, a key-value cache, logits and hidden states. `predicted` calculates their sizes for a model, for
Medusa heads or an EAGLE network, or from the configuration of a model alone. `used` measures the tensors of a run, and
`resident` measures a process by the operating system. A method that uses several models takes the sum:
``predicted(target, ...) + predicted(draft, ...)``.
"""

from __future__ import annotations

import contextlib
import copy
import weakref
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import PreTrainedConfig

from ..arguments import check_whole_number
from ..model import quantization
from ..model.cache import grown
from ..model.eight_bits import EightBits
from ..model.llama import without_loops
from .cost import attention_widths, weight_bytes
from .process_memory import resident

__all__ = ["Memory", "Used", "predicted", "resident", "used", "weight_bytes"]


class Memory(NamedTuple):
    """Predicted bytes. They can be added over models: ``predicted(target) + predicted(draft)``.

    Attributes
    ----------
    weights : int
        Parameters and buffers; for quantized weights, also their scales.
    cache : int
        Keys and values.
    logits : int
        Logits of the widest call.
    hidden : int
        The hidden states that drafting heads need.
    working : int
        Temporary memory of the widest call.
    """

    weights: int = 0
    cache: int = 0
    logits: int = 0
    hidden: int = 0
    working: int = 0

    @property
    def total(self) -> int:
        """The sum of all, which is the peak."""
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
    """Predict, from shapes, the memory that a model takes while it decodes.

    Parameters
    ----------
    model : LM, MedusaHeads, DraftNetwork or transformers configuration
        A configuration is enough. No weights are needed, and none are created.
    tokens : int
        Tokens in the cache at the end; 0 for the weights only.
    rows : int
        Tokens in the widest call after the prompt: 1, or the length of a draft plus 1, or the nodes of a tree.
    prompt : int, optional
        How many of the tokens belong to the prompt. The cache then includes the spare slots of a session, and `working`
        includes the call that reads the prompt. Without it, the cache has exactly `tokens` slots.
    hidden : int
        The number of layers whose hidden states are kept: 1 for Medusa and EAGLE, 3 for EAGLE-3.
    dtype, quantize, double_quantization : optional
        As in `models.load`, to predict another form of the model. By default the form that the model has; for a
        configuration the dtype that it names, or else float32.

    Returns
    -------
    Memory

    Raises
    ------
    ValueError
        If a number is wrong, or if another form is given for a model that is already quantized or for heads, which are
        never quantized.

    Notes
    -----
    With L layers, k key-value heads of size d, s slots and b bytes per number, the cache takes ``2 L k d s b``. Many
    families differ from this, so what a token adds to the model's own cache is measured in calls of a few tokens
    (without weights, for a configuration). A session keeps all tokens, also in layers with a sliding window. A model
    that `LM` computes in full keeps no cache in a session.
    `working` includes the large tensors in a call of n tokens: about ``n (4 inner + width) b`` in a layer; a second
    copy of the logits, and three copies of one row in float64, for the probabilities; and the unpacked weights of the
    largest quantized layer.

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
    if isinstance(model, EightBits):
        weights = model.nbytes
    if not tokens:
        return Memory(weights)
    if config is None:  # Medusa heads have no cache
        return Memory(weights, logits=2 * len(module) * module.vocab_size * each)
    slots = tokens if prompt is None else grown(prompt)
    while slots < tokens:
        slots = grown(slots + 1)
    inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    layer = 4 * (max(inner) if isinstance(inner, list | tuple) else inner) + config.hidden_size  # Gemma 3n: by layer
    calls = [layer * each * (prompt or 0), rows * (layer + config.vocab_size) * each + 24 * config.vocab_size]
    states = (config.num_hidden_layers + 1 + hidden) * max(prompt or 0, rows) * config.hidden_size * each
    return Memory(
        weights,
        cache=_cache_numbers(module, config, slots) * each,
        logits=rows * config.vocab_size * each,
        hidden=states if hidden else 0,
        working=max(calls) + largest * each,
    )


class Used(NamedTuple):
    """Bytes measured in a run.

    Attributes
    ----------
    weights : int
        What existed before and was read: the weights of all models used.
    held : int
        Tensors of the run that still existed after its last step: mostly the caches.
    peak : int
        The largest size of the run's own tensors at any time, including the caches.
    """

    weights: int
    held: int
    peak: int

    @property
    def total(self) -> int:
        """Weights and peak."""
        return self.weights + self.peak


def used(steps: Iterable, max_new_tokens: int) -> Used:
    """Measure the tensors of a run: the inputs and outputs of all torch operations.

    On a GPU the peak is that of torch's allocator. On other devices it is the sum of the tensors that exist at the same
    time, which does not depend on other processes or earlier runs, but does not include the memory that an operation
    uses internally. Because torch's operations are counted, the run does without the compiled loops, which take the
    same weights and the same cache. The measurement takes about twice as long as the run itself. The first run of a
    model also tests its cache (see `LM`), so do another run before.

    Parameters
    ----------
    steps : iterable of Step
        The result of calling a method, ``greedy(lm, "Once upon a time")``. It can be run only once.
    max_new_tokens : int
        The run ends with the step that reaches this number.

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
    with without_loops() as copies, _Tensors() as tensors:
        for step in steps:
            made, held = made + len(step.tokens), tensors.made
            if made >= max_new_tokens:
                break
        getattr(steps, "close", lambda: None)()  # here: what a method has entered it must leave under the same mode
    peak = torch.cuda.max_memory_allocated(device) - before if on_gpu else tensors.peak
    # Copies in eight bits are arrays, which no operation of torch takes, except for the embeddings that they share.
    return Used(tensors.found + sum(copy.nbytes - tensors.shared(copy.embeddings) for copy in copies), held, peak)


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

    def shared(self, array) -> int:
        """Bytes of an array that lies where a tensor lies that is counted already."""
        storages = (reference() for reference in self._known.values())
        return array.nbytes if array.ctypes.data in {one.data_ptr() for one in storages if one is not None} else 0

    def _forget(self, key, kind, size, _):
        del self._known[key]
        setattr(self, kind, getattr(self, kind) - size)


def auto_class(config):
    """The class of transformers that makes a model: of language models, or of those that also see pictures.

    Raises
    ------
    ValueError
        If there is none, because such models do not continue a text.
    """
    import transformers

    for kind, mapping in (
        ("CausalLM", transformers.MODEL_FOR_CAUSAL_LM_MAPPING),
        ("ImageTextToText", transformers.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING),
    ):
        if type(config) in mapping:
            return getattr(transformers, f"AutoModelFor{kind}")
    raise ValueError(f"its model_type is {config.model_type!r}, and such models do not continue a text")


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
    config = model.get_text_config()
    given = given or (config.dtype if isinstance(config.dtype, torch.dtype) else torch.float32)
    with torch.device("meta"):
        return auto_class(model).from_config(copy.deepcopy(model), dtype=given), config, given  # it notes the dtype


def _cache_numbers(module, config, slots: int) -> int:
    """How many numbers a cache of some tokens holds, from those after two calls that differ by two tokens."""
    if not hasattr(module, "get_output_embeddings"):  # a draft network, whose layer is a Llama's
        return 2 * config.num_hidden_layers * attention_widths(config)[1] * slots
    no_weights = any(weight.is_meta for weight in module.parameters())
    if no_weights:
        module = copy.deepcopy(module).to("meta", torch.bfloat16)  # grouped products of experts know no other type
    try:
        with _WithoutNumbers() if no_weights else contextlib.nullcontext():
            few, more = (_numbers_in_the_cache(module, tokens) for tokens in (2, 4))
    except ValueError:  # a model without any layer of attention may refuse the cache that it makes itself
        return 0
    except RuntimeError:  # a few families cannot be computed without weights
        if not no_weights:
            raise
        return 2 * config.num_hidden_layers * attention_widths(config)[1] * slots
    return few + (more - few) // 2 * (slots - 2)


class _WithoutNumbers(TorchDispatchMode):
    """Lets a model without weights go on where it asks which numbers are not 0 (none), or for a number (0)."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.nonzero.default:
            return args[0].new_empty(0, args[0].ndim, dtype=torch.long)
        device = (kwargs or {}).get("device") or "meta"
        if func is torch.ops.aten._to_copy.default and torch.device(device).type == "cpu":
            return torch.zeros(args[0].shape, dtype=args[0].dtype, device="cpu")
        if func is torch.ops.aten._local_scalar_dense.default:
            return 0
        return func(*args, **kwargs or {})


def _numbers_in_the_cache(module, tokens: int) -> int:
    """How many numbers a model's own cache holds after a call of some tokens, in tensors of whatever kind."""
    text = torch.arange(tokens, device=module.device)[None] % module.get_input_embeddings().num_embeddings
    with torch.no_grad():
        output = module(input_ids=text, use_cache=True)
    left = [getattr(output, "past_key_values", None) or getattr(output, "cache", None)]
    seen = {}
    while left:
        thing = left.pop()
        if id(thing) in seen or isinstance(thing, torch.nn.Module | PreTrainedConfig):
            continue
        seen[id(thing)] = thing
        left += thing.values() if isinstance(thing, dict) else thing if isinstance(thing, list | tuple) else ()
        left += vars(thing).values() if hasattr(thing, "__dict__") and not isinstance(thing, torch.Tensor) else ()
    # What has one dimension is not for tokens: layers with a window count in such a tensor.
    return sum(thing.numel() for thing in seen.values() if isinstance(thing, torch.Tensor) and thing.ndim > 1)


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
                rows, columns = (
                    (part.out_features, part.in_features) if hasattr(part, "in_features") else weight.T.shape
                )
                total += quantization.layer_bytes(rows, columns, kept)
                largest = max(largest, rows * columns)
            else:
                total += weight.numel() * (dtype or weight.dtype).itemsize
        total += sum(buffer.nbytes for buffer in part.buffers(recurse=False))
    return total, largest
