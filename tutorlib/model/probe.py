"""Test whether a model respects the mask and the positions, before `LM` relies on it.

`LM` computes with a cache, and passes masks (for a tree, or for rows of different lengths) and positions to a model.
Most model families respect them. Some count the slots of the cache instead, or number positions in their own way, and
would return wrong logits without an error. So when a model is first used, a short text is computed in all the ways in
which `LM` uses a cache, and the logits are compared with those of passes without a cache. If they differ, the model's
own cache is tested in the same ways (`own_cache.py`). If that fails too, the model is computed without a cache from
then on (`uncached.py`). If the logits without a cache are wrong too, the model is refused.

How far logits may differ is measured: passes over texts of different lengths compute the same positions, and differ by
rounding alone. A verdict is remembered for this model in its present state (`fingerprint.py`), if a wrong mask would
have been noticed. Otherwise the model is tested again as soon as any of its weights has another value. Long sequences
are tested when they get to a length at which the computation could change (`lengths.py`).
"""

from __future__ import annotations

import json
import math
import random
import threading
import warnings
from collections.abc import Callable
from weakref import WeakKeyDictionary

import torch

from .batch import Batch
from .fingerprint import fingerprint, original
from .forward import Forward
from .lengths import is_size
from .session import Session
from .tree import TokenTree
from .uncached import TokenCache

# Tokens in the test's text, unless a later position is to be tested.
LENGTH = 12
# The last tokens of a text are fed one by one, in pieces, or as a tree; all tokens before them in one call.
_TAIL = 6
# How many nodes of the tree come between the text and the branch that continues it: a model that counts the slots of
# the cache then places this branch far away.
_BETWEEN = 12
# A model is right if one of so many texts shows no fault: where rounding is coarse, a near tie between two experts may
# change a text.
_TEXTS = 3
# What is allowed as rounding: a small multiple of what was measured, but at least so many units of the last digit. Some
# processors compute plain texts of all lengths to the same bits, and yet round a tree in another way, because the terms
# of its sums stand elsewhere: up to 10 units were seen in bfloat16.
_MULTIPLE, _UNITS = 4, 12
# Two ways to compute one thing in float32, such as a scan over a text and a loop over its tokens, differ more than one.
_KERNELS = 6e-5
# Settings that may differ between two models of one kind and do not affect attention.
_NO_PART = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version")
# How many verdicts are remembered for a model that changes all the time.
_REMEMBERED = 200

_MASK, _POSITIONS = "a wrong mask", "wrong positions"
_SEEN = (True, True)  # of a fault that was found

_lock = threading.RLock()  # a hook of a model that is being tested may open a session
# For each model, by its state and what was tested: None if it is right, a description of what is wrong with a cache, or
# the error with which it is refused.
_verdicts: WeakKeyDictionary[torch.nn.Module, dict[tuple, str | ValueError | None]] = WeakKeyDictionary()
# What was tested with weights that let nothing be noticed (an untrained model may ignore what it attends to): for each
# model and state, the sum of each weight.
_unseen: WeakKeyDictionary[torch.nn.Module, dict[tuple, tuple[float, ...]]] = WeakKeyDictionary()


def kind(model) -> tuple:
    """The class and configuration of a model. Models that share them attend in the same way."""
    config = {name: value for name, value in model.config.to_dict().items() if name not in _NO_PART}
    attention = getattr(model.config, "_attn_implementation", None)
    return type(model), json.dumps(config, sort_keys=True, default=str), attention


def may_cache(lm, open_cache: Callable, settings: tuple, length: int = 0, warn: bool = True) -> bool:
    """Whether the model's logits are the same with and without a cache, for sequences of `length` tokens.

    The model is put into evaluation mode.

    Parameters
    ----------
    lm : LM
    open_cache : function from an LM, or what stands for it in the test, and a number of rows to an empty cache
    settings : tuple
        Settings of the cache that the result depends on, besides the model.
    length : int
        The lengths up to this one at which the computation could change are tested, besides a short text.
    warn : bool
        Whether to warn that a model is computed in full, if this kind of cache is the last one to be tested.

    Raises
    ------
    ValueError
        If the model does not behave like a causal language model even without a cache.
    """
    model = original(lm.model)
    number, in_training = fingerprint(model)
    if in_training:
        lm.model.eval()
    state = (number, lm.kind, settings)
    turns = [turn for turn in lm.turns if turn <= length and not is_size(model, lm.kind, turn)]
    return all(_right(lm, open_cache, state, turn, warn) for turn in (0, *turns))


def _right(lm, open_cache, state: tuple, turn: int, warn: bool) -> bool:
    model = original(lm.model)
    known, unseen = _verdicts.setdefault(model, {}), _unseen.setdefault(model, {})
    key = (*state, turn)
    if key not in known:
        with _lock:
            if key in unseen and unseen[key] == _sums(model):
                return True
            if key not in known:
                verdict, noticed = _judge(lm, open_cache, turn)
                for memory in (known, unseen):
                    if len(memory) >= _REMEMBERED:
                        memory.clear()
                if not noticed:
                    unseen[key] = _sums(model)
                    return True
                said = [earlier for (*_, tested, _), earlier in known.items() if tested == state[-1]]
                if warn and isinstance(verdict, str) and verdict not in said:
                    _warn(lm, verdict)
                known[key] = verdict
    verdict = known[key]
    if isinstance(verdict, ValueError):
        raise ValueError(str(verdict))
    return verdict is None


def _sums(model: torch.nn.Module) -> tuple[float, ...]:
    return tuple(float(weight.detach().sum()) for weight in model.parameters())


def _warn(lm, wrong: str) -> None:
    name = type(original(lm.model)).__name__
    warnings.warn(
        f"{name} cannot be used with a cache: {wrong}. LM computes every sequence and every "
        "branch of a tree in full instead, one after the other. The logits are right, but each call takes much longer",
        stacklevel=2,
    )


def _judge(lm, open_cache, turn: int) -> tuple[str | ValueError | None, bool]:
    """The verdict, see `_verdicts`, and whether a wrong mask would have been noticed."""
    forward = lm.forward.uncompiled()  # compiling for the shapes of a probe would take minutes
    called, limit = _invocation(forward.model), max(lm.limit or 0, lm.context)
    # The tail lies on both sides of the turn, and comes after what an adapter waits for.
    length = min(max(LENGTH, turn + _TAIL // 2, 2 * len(called) + _TAIL + 2), limit)
    name = type(forward.model).__name__
    if length <= _TAIL:
        return f"{name} has too few positions ({limit}) for a cache to be tried out", True
    wrong, noticed = _faults(_Tried(lm, forward, length, open_cache), length, _BETWEEN)
    if wrong is None:
        return None, noticed or turn > 0
    # Without a cache each branch of a tree is a call.
    in_full = _Tried(lm, forward, length, lambda lm, rows: TokenCache(lm, [[] for _ in range(rows)]))
    uncached, _ = _faults(in_full, length, between=0)
    if uncached is not None:
        waits = ". An adapter that acts after its invocation tokens does so wherever they occur last: disable it"
        return ValueError(
            f"{name} cannot be used: even without a cache, {uncached}. LM needs a decoder-only model whose logits "
            "depend on the tokens up to a position and on nothing else; a model that also exists as an encoder may "
            "need is_decoder=True in its configuration" + waits * bool(called)
        ), True
    return wrong, True


class _Tried:
    """Stands for the `LM` in a test: its model with one kind of cache, in calls that nobody counts."""

    turns = ()  # the test itself must not start a test

    def __init__(self, lm, forward: Forward, length: int, open_cache: Callable):
        self.forward, self.in_full = forward, forward.in_full
        self.layers, self.context = lm.layers, max(lm.context, length)
        self.prompt_tokens, self.check_tokens, self.count_call = list, lm.check_tokens, lambda: None
        self.open_cache = lambda rows, static=False: open_cache(self, rows)


def _faults(lm, length: int, between: int) -> tuple[str | None, bool]:
    """Describe what is wrong with a cache, None if it gives the same logits as the model without one; and whether a
    wrong mask would have been noticed.
    """
    faults, noticed = [], False
    for seed in range(_TEXTS):
        fault, mask, positions = _faults_of_a_text(lm, *_texts(lm.forward, length, seed, between))
        if fault is None and (mask and positions or not between):
            return None, True
        faults.append(fault)
        noticed |= mask
    # No text has shown that a fault would be noticed, or each has a fault: all must be right.
    return next((fault for fault in faults if fault is not None), None), noticed


def _texts(forward: Forward, length: int, seed: int, between: int) -> tuple[list[int], list[int], list[int]]:
    """A text of ordinary tokens, two tokens for another branch, and tokens that stand between them in a tree."""
    config, size = forward.model.config.to_dict(), forward.config.vocab_size
    special = {value for name, value in config.items() if name.endswith(("token_id", "token_index"))
               and isinstance(value, int)}  # fmt: skip
    rng = random.Random(seed)
    ordinary = [token for token in rng.sample(range(size), min(size, 100)) if token not in special] or list(range(size))
    text, aside = rng.choices(ordinary, k=length), rng.choices(ordinary, k=2)
    called = _invocation(forward.model)[: (length - _TAIL) // 2]
    for start in (0, length - len(called)):  # a second time too: it must not change what comes before it
        text[start : start + len(called)] = called
    return text, aside, rng.choices(text + aside, k=between)  # the model has computed these tokens before


def _invocation(model) -> list[int]:
    """Tokens without which an adapter does nothing, so that a text without them would not test it."""
    adapters = getattr(model, "peft_config", None)
    found = []
    for adapter in adapters.values() if isinstance(adapters, dict) else ():
        for name, value in vars(adapter).items():
            found += value if "invocation" in name and isinstance(value, list | tuple) else []
    return [token for token in found if type(token) is int]


class _Text:
    """A text computed without a cache, with what its rows of logits may differ by.

    Parameters
    ----------
    tokens, branch : list of int
        The branch shares all but the last tokens of the text, and then goes on in another way.

    Attributes
    ----------
    tolerance : float
        How far right logits may be off because of rounding.
    spread : float
        How much logits differ between positions. It is 0 or NaN if nothing can be seen in them.
    """

    def __init__(self, forward: Forward, tokens: list[int], branch: list[int]):
        self.ends = {True: len(tokens), False: len(branch)}
        start, shared = len(tokens) - _TAIL, len(branch) - 2
        first = max(len(tokens) - LENGTH, 0)  # the rows before it are not needed

        def plain(tokens):
            return forward.in_full(tokens, len(tokens) - first)[0].float()

        self.rows = {True: plain(tokens), False: plain(branch)}
        self.usable = self.rows[True].isfinite().all(0)  # impossible tokens are -inf
        rows = self.rows[True][:, self.usable]
        self.spread = float((rows - rows.mean(0)).square().mean().sqrt())
        if self.rows[True].isnan().any():
            self.spread = math.nan
        # The same positions as part of shorter texts: other shapes of tensors, so other rounding.
        shorter = [self.rows[False][: shared - first]]
        if not first:
            shorter += [plain(tokens[:end]) for end in (shared, start, start - 2) if end > 0]
        rounding = max(self.far(part, self.rows[True][: len(part)]) for part in shorter)
        epsilon = _epsilon(forward)
        least, most = (_UNITS * epsilon + _KERNELS) * self.spread, epsilon**0.5 * self.spread
        self.tolerance = min(max(_MULTIPLE * rounding, least), most)

    def expected(self, on_text: bool, end: int, count: int) -> torch.Tensor:
        """The logits of `count` positions before `end`, on the text or on the branch."""
        rows = self.rows[on_text]
        end += len(rows) - self.ends[on_text]
        return rows[end - count : end]

    def far(self, logits: torch.Tensor, expected: torch.Tensor) -> float:
        """The root mean square difference in the worst row."""
        logits = logits.float()[:, self.usable]
        return float((logits - expected[:, self.usable]).square().mean(-1).sqrt().max())


def _faults_of_a_text(lm, text: list[int], aside: list[int], between: list[int]) -> tuple[str | None, bool, bool]:
    """What is wrong with a cache, and whether a wrong mask and wrong positions would have been noticed."""
    branch = text[: len(text) - _TAIL + 1] + aside
    try:
        plain = _Text(lm.forward, text, branch)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        name = type(lm.forward.model).__name__
        raise ValueError(f"{name} cannot compute a plain text of {len(text)} tokens: {_in_words(error)}") from error
    if not plain.spread > 0:
        return None, False, False
    noticed = {_MASK: False}
    try:
        for what, on_text, end, logits in _everything(lm, text, aside, between):
            expected = plain.expected(on_text, end, len(logits))
            if logits.shape != expected.shape:
                return f"{what} has logits of shape {tuple(logits.shape)} instead of {tuple(expected.shape)}", *_SEEN
            far = plain.far(logits, expected)
            if what in (_MASK, _POSITIONS):
                noticed[what] = not far <= plain.tolerance
            elif not far <= plain.tolerance:
                return f"the logits of {what} are wrong by {far / plain.spread:.0%} of their spread", *_SEEN
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        return f"it raises {_in_words(error)}", *_SEEN
    return None, noticed[_MASK], noticed.get(_POSITIONS, True)


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__} ({(str(error).strip().splitlines() or [''])[0]})"


def _everything(lm, text: list[int], aside: list[int], between: list[int]):
    """All uses of a cache in `LM`: a description, whether it is on the text or on the side branch, its end, its logits.
    If there are tokens `between`, two wrong uses as well.
    """
    start = len(text) - _TAIL
    top = start + 1
    session = Session(lm, text[:start])
    yield "a text", True, start, session.feed()
    yield "one token after others", True, top, session.feed(text[start:top])
    yield "several tokens after others", False, top + 2, session.feed(aside)
    session.rollback(2)
    side = len(between)
    tokens = [*between, *aside, *text[top : top + 3]]
    parents = [-1] * side + [-1, side, -1, side + 2, side + 3]
    if between:
        # The second node of the text attends to the other branch in place of its parent.
        wrong = TokenTree(tokens, [*parents[:-2], side, side + 3])
        yield _MASK, True, top + 3, session.feed_tree(wrong)[side + 3 :]
        session.keep(())
        if lm.open_cache(rows=1).takes_positions:
            wrong = TokenTree(tokens, parents)
            wrong.depths = [min(node, session.room - 1) for node in range(len(tokens))]  # as if it counted slots
            yield _POSITIONS, True, top + 3, session.feed_tree(wrong)[side + 2 :]
            session.keep(())
    logits = session.feed_tree(TokenTree(tokens, parents))
    yield "a tree's first branch", False, top + 2, logits[side : side + 2]
    yield "a tree's second branch", True, top + 3, logits[side + 2 :]
    session.keep([side + 2, side + 3, side + 4])
    yield "tokens after a kept branch", True, len(text), session.feed(text[top + 3 :])
    batch = Batch(lm, [text[:-3], text[:start]])
    longer, shorter = batch.feed([[], []])
    yield "a longer row of a batch", True, len(text) - 3, longer
    yield "a shorter row of a batch", True, start, shorter
    longer, shorter = batch.feed([text[-3:-2], text[start : start + 3]])
    yield "a longer row after others", True, len(text) - 2, longer
    yield "a shorter row after others", True, start + 3, shorter


def _epsilon(forward: Forward) -> float:
    """The rounding error of the model. Models compute some steps in float32, whatever their dtype is."""
    dtypes = [forward.dtype, torch.float32]
    if forward.device.type != "cpu" and torch.get_float32_matmul_precision() != "highest":
        dtypes.append(torch.float16)
    if getattr(forward.model.config, "quantization_config", None) is not None:
        dtypes.append(torch.bfloat16)
    return max(torch.finfo(dtype).eps for dtype in dtypes)
