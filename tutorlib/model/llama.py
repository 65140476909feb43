"""Llama-shaped models on a processor, computed by the loops of `loops.py` in place of PyTorch's operators.

`LM` uses them in silence where they fit (`of`) and pay (`are_wanted`), after `probe.py` has found the same logits, and
computes everything else through `cache.py` and the others. The loops read a model's own weights where they lie: nothing
is copied, and weights that an optimizer changes in place are those of the next call.

What this file does not do: compute (`loops.py` does).
"""

from __future__ import annotations

import contextlib
import copy
import math
import sys
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch

from .cache import TREE_SLOTS, WORTH_SHARING, check_static, grown, returned_cache
from .fingerprint import fingerprint, has_hooks, original
from .loop_weights import PROJECTIONS, Llama, in_eight_bits, loops, room
from .team import CAN_GIVE_WAY, Team
from .tree import TokenTree

# The classes of transformers whose layers are what `loops.layer` computes.
CLASSES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
# Rotations that do not depend on the length of a text.
_ROTATIONS = ("default", "linear", "llama3", "yarn")
# Where threads cannot give way to each other, the loops have one; with more than these, PyTorch is faster.
_THREADS = 2
# From so many tokens on, a matrix product is quicker than the loops.
MANY = 256


def compile_loops() -> None:
    """Compile the loops for a Llama in float32 and in eight bits, if they are not kept from an earlier process."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=16, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=1
    )
    model = LlamaForCausalLM(config)
    for llama in (of(model), Llama(model, in_eight_bits)) if loops() else ():
        LoopCache(Uncounted, llama, 1).call([[0]], [0], [1])  # type: ignore[arg-type]
    if loops():
        states, bias = np.zeros((1, 16), np.float32), np.zeros(1, np.float32)
        loops().product(states, states, None, bias, bias[None], loops().alone())  # heads have biases


class Uncounted:
    """In place of an LM, for calls that nobody counts."""

    count_call = staticmethod(lambda: None)


class LoopCache:
    """Keys and values of some rows, and the calls that fill them. Used in place of `cache.KeyValues`.

    A token sees only what it is told to see. So nothing is padded, and what stands in a slot that nobody sees does not
    matter.
    """

    takes_positions = True  # see `uncached.TokenCache`
    reach = math.inf  # no length changes the computation

    def __init__(self, lm, llama: Llama, rows: int, static: bool = False):
        if static:
            check_static(lm)
        self.lm, self.llama = lm, llama
        shape = (len(llama.layers), rows, llama.heads[1], lm.context + TREE_SLOTS if static else 0, llama.size)
        self.keys, self.values = room(*shape), room(*shape)
        self.static = static
        if (copies := _off.get()) is not None:
            copies.add(llama)

    def call(
        self,
        rows: list[list[int]],
        starts: list[int],
        keep: list[int],
        tree: TokenTree | None = None,
        hidden: Sequence[int] = (),
    ) -> tuple[list[torch.Tensor], dict[int, torch.Tensor]]:
        """One call; see `cache.KeyValues.call`."""
        self.lm.count_call()
        return self._compute(rows, starts, keep, tree, hidden)

    def _compute(self, rows, starts, keep, tree=None, hidden=()):
        read = [self._read(number, *row, hidden) for number, row in enumerate(zip(rows, starts, keep, strict=True))]
        rows = [tokens[count:] for tokens, (count, _) in zip(rows, read, strict=True)]
        starts = [start + count for start, (count, _) in zip(starts, read, strict=True)]
        if not any(rows):
            return [], {}
        compute, llama = loops().layer, self.llama
        row, slot, before, parent, wanted = [], [], [], [], []
        for number, (tokens, start, count) in enumerate(zip(rows, starts, keep, strict=True)):
            first, end = len(row), len(row) + len(tokens)
            row += [number] * len(tokens)
            slot += range(start, start + len(tokens))
            before += [start] * len(tokens)
            parent += [-1, *range(first, end - 1)][: len(tokens)]
            wanted += range(end - count, end)
        position = slot
        if tree is not None:
            top = len(row) - len(tree)
            parent[top:] = [top + node if node >= 0 else top - 1 for node in tree.parents]
            position = slot[:top] + [starts[0] + top + depth for depth in tree.depths]
        self._make_room(max(slot) + 1)
        x = llama.embeddings[[token for tokens in rows for token in tokens]]
        where = *llama.turns(position), *map(np.array, (row, slot, before, parent))
        made = tuple(room(len(row), len(weight)) for weight in llama.layers[0][2])
        states = []

        def work(team: Team) -> None:
            for layer, keys, values in zip(llama.layers, self.keys, self.values, strict=True):
                if hidden and team[0] == 0:  # the others wait for this thread before they write into x
                    states.append(x.copy())
                compute(x, *layer, keys, values, *where, made, team)

        llama.together(work, len(row), len(llama.layers))
        states.append(llama.normed(x))
        parts = llama.logits(states[-1][wanted]).split(list(keep))
        if not hidden:
            return list(parts), {}
        of_layers = {layer: torch.from_numpy(states[layer])[None] for layer in hidden}
        (_, earlier) = read[0]
        if earlier:
            of_layers = {layer: torch.cat([earlier[layer], state], dim=1) for layer, state in of_layers.items()}
        return list(parts), of_layers

    def _read(self, row: int, tokens: list[int], start: int, keep: int, hidden: Sequence[int]):
        """Read the beginning of a long prompt by matrix products, which are quicker for many tokens at once.

        Returns how many tokens were read, and their hidden states by layer. All but those whose logits are needed: so
        the same tokens are read in the same way, whatever follows the prompt in this call.
        """
        count = len(tokens) - keep
        if start or count < MANY or self.llama.is_rounded:
            return 0, {}
        _, states, output = self.lm.forward(torch.tensor([tokens[:count]]), 1, hidden, use_cache=True)
        self._make_room(len(tokens))
        for number, layer in enumerate(returned_cache(output).layers):
            self.keys[number, row, :, :count] = layer.keys[0].numpy()
            self.values[number, row, :, :count] = layer.values[0].numpy()
        return count, states

    def share(self, tokens: list[int], other: object) -> bool:
        """Read the beginning of a prompt for another cache too, in no call of its own; see `Session.share_prompt`.

        Returns whether both hold it now. They do not if the other is no cache of the same model, if there are too few
        tokens, or if the model returns NaN.
        """
        count = len(tokens)
        if type(other) is not LoopCache or other.lm.model is not self.lm.model or not self._reads(tokens):
            return False
        other._make_room(count)
        for mine, theirs in ((self.keys, other.keys), (self.values, other.values)):
            theirs[:, 0, :, :count] = mine[:, 0, :, :count]
        return True

    def read_for_all(self, tokens: list[int], rows: int) -> bool:
        """Read the beginning of a prompt that all rows have in common once; see `cache.KeyValues.read_for_all`."""
        if not self._reads(tokens):
            return False
        for states in (self.keys, self.values):
            states[:, 1:, :, : len(tokens)] = states[:, :1, :, : len(tokens)]
        return True

    def _reads(self, tokens: list[int]) -> bool:
        """Read tokens into the first row, in no call of its own, if they are enough; returns whether it holds them."""
        if len(tokens) < WORTH_SHARING:
            return False
        self._compute([tokens], [0], [0])
        return not np.isnan(self.keys[-1, 0, :, : len(tokens)]).any()

    def first_layers(self, lm) -> LoopCache:
        """The same keys and values, for the model `lm` that ends after some first layers of this one."""
        other, other_llama, count = copy.copy(self), copy.copy(self.llama), lm.layers
        other_llama.layers = self.llama.layers[:count]
        other.lm, other.llama = lm, other_llama
        other.keys, other.values = self.keys[:count], self.values[:count]  # views, until one of the two has to grow
        return other

    def forget(self, starts: list[int]) -> None:
        """Nothing is to be cleared: slots from `starts` on are seen by nobody until they are written again."""

    def move(self, start: int, path: list[int]) -> None:
        """Move the slots of a tree's nodes, which begin at `start`, to the front in the order of `path`."""
        if path != list(range(len(path))):
            for states in (self.keys, self.values):
                states[..., start : start + len(path), :] = states[..., np.array(path) + start, :]

    def reorder(self, rows: list[int], length: int) -> None:
        # Not keys[:, rows], whose numbers NumPy would lay out in another order: loops are compiled for one order.
        self.keys, self.values = (np.take(states, rows, axis=1) for states in (self.keys, self.values))

    def _make_room(self, slots: int) -> None:
        held = self.keys.shape[3]
        if slots <= held:
            return
        if self.static:
            raise ValueError(f"a tree of this size needs {slots} slots, but the static cache has {held}")
        for name in ("keys", "values"):
            old = getattr(self, name)
            new = room(*old.shape[:3], grown(slots), old.shape[4])
            new[:, :, :, :held] = old
            setattr(self, name, new)


# For each model, its state, and its weights in that state: None if the loops do not fit it.
_known: WeakKeyDictionary[torch.nn.Module, tuple[int | None, Llama | None]] = WeakKeyDictionary()


# The weights that the loops have read nevertheless, in a block without them; None outside such a block.
_off: ContextVar[set[Llama] | None] = ContextVar("loops are off", default=None)


@contextlib.contextmanager
def without_loops() -> Iterator[set[Llama]]:
    """Let sessions that are opened in this block be computed by PyTorch's operators, to compare or to measure them.

    A copy in eight bits is always computed by the loops. The set that this gives collects the weights of such copies.
    """
    copies: set[Llama] = set()
    before = _off.set(copies)
    try:
        yield copies
    finally:
        _off.reset(before)


def are_wanted() -> bool:
    """Whether a session that is opened now should be computed by the loops, if they fit its model."""
    return _off.get() is None and (CAN_GIVE_WAY or torch.get_num_threads() <= _THREADS)


def of(model: torch.nn.Module) -> Llama | None:
    """The weights of a model as the loops take them, or None if the loops do not compute what this model computes."""
    if original(model) is not model:  # wrapped by `torch.compile`
        return None
    state, _ = fingerprint(model)
    known, llama = _known.get(model, (None, None))
    if known != state:
        llama = Llama(model) if _fits(model) else None
        _known[model] = state, llama
    return llama


def _fits(model: torch.nn.Module) -> bool:
    """Whether `loops.layer` computes what the layers of a model compute, as its class, weights and settings say."""
    config: Any = getattr(model, "config", None)
    if type(model).__name__ not in CLASSES or type(model).__module__.split(".")[0] != "transformers":
        return False
    rotation = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return (
        rotation in _ROTATIONS
        and kinds == {"full_attention"}
        and (type(model).__name__ != "MistralForCausalLM" or config.sliding_window is None)
        and config.hidden_act in ("silu", "swish")
        and not any(number % 16 for number in (config.hidden_size, config.intermediate_size, size))
        and all(weight.dtype == torch.float32 and weight.device.type == "cpu" for weight in model.parameters())
        and all(_is_plain(model.get_submodule(name), name, *what) for name, *what in _modules(model, size))
        and not has_hooks(model)
        and sys.byteorder == "little"
        and loops() is not None
    )


def _modules(model: Any, size: int):
    """The name, the class and the shape of each module whose weight the loops read."""
    config, width, vocab = model.config, model.config.hidden_size, len(model.model.embed_tokens.weight)
    queries, keys, inner = (
        config.num_attention_heads * size,
        config.num_key_value_heads * size,
        config.intermediate_size,
    )
    shapes = (queries, width), (keys, width), (keys, width), (width, queries), *[(inner, width)] * 2, (width, inner)
    for number in range(len(model.model.layers)):
        for name, shape in zip(PROJECTIONS, shapes, strict=True):
            yield f"model.layers.{number}.{name}", "Linear", shape
    yield "lm_head", "Linear", (vocab, width)
    yield "model.embed_tokens", "Embedding", (vocab, width)


def _is_plain(module: Any, name: str, kind: str, shape: tuple[int, int]) -> bool:
    """Whether a module is of this class of PyTorch, and not of another one in its place (an adapter, fewer bits), and
    its weight of this shape: loops do not look where they read. Only queries, keys and values may have a bias.
    """
    if type(module).__name__ != kind or not type(module).__module__.startswith("torch.nn.modules"):
        return False
    more = getattr(module, "bias", None) is not None and not name.endswith(PROJECTIONS[:3])
    return tuple(module.weight.shape) == shape and not more
