"""Test whether a model respects the mask and the positions, before `LM` relies on it.

`LM` computes with a cache, and passes masks (for a tree, or for rows of different lengths) and positions to a model.
Most model families respect them. Some count the slots of the cache instead, or number positions in their own way, and
would return wrong logits without an error. So when a kind of model is first used, a short text is computed in all the
ways in which `LM` uses a cache, and the logits are compared with those of passes without a cache. If they differ, the
model's own cache is tested in the same ways (`own_cache.py`). If that fails too, the model is computed without a cache
from then on (`uncached.py`). If the logits without a cache are wrong too, the model is refused.
"""

from __future__ import annotations

import json
import math
import random
import threading
import warnings

import torch

from .tree import TokenTree
from .uncached import TokenCache

# Tokens in the test's text, unless a window requires more.
_LENGTH = 12
# Windows up to this length are tested at once, with a text that is longer; longer ones when a sequence gets there.
_SHORT_WINDOW = 64
# The last tokens of a text are fed one by one, in pieces, or as a tree; all tokens before them in one call.
_TAIL = 6
# Settings that may differ between two models of one kind and do not affect attention.
_NO_PART = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version")

_lock = threading.Lock()
# None for correct models, a description of what is wrong with a cache, or the error with which they are refused.
_verdicts: dict[tuple, str | ValueError | None] = {}


class _NothingLearned(Exception):
    """The model's logits are the same after any text, or NaN, so the test says nothing about its kind."""


def kind(model) -> tuple:
    """The class and configuration of a model. Models that share them attend in the same way."""
    config = {name: value for name, value in model.config.to_dict().items() if name not in _NO_PART}
    attention = getattr(model.config, "_attn_implementation", None)
    return type(model), json.dumps(config, sort_keys=True, default=str), attention


def windows(config) -> list[int]:
    """The sizes of all sliding windows in a configuration, as far as they are known, in ascending order."""
    found = {
        value
        for name, value in config.to_dict().items()
        if ("window" in name or "chunk" in name or name.startswith(("local", "index_topk")))
        and type(value) is int
        and value > 0
    }
    return sorted(found)


def next_window(windows: list[int], length: int) -> float:
    """The next window size above `length`: longer sequences have to be tested again."""
    longer = [window for window in windows if window > max(length, _SHORT_WINDOW)]
    return min(longer, default=float("inf"))


def longest_sequence(model, config) -> tuple[int | None, str]:
    """The longest possible sequence (None if there is no limit), and the reason if the configuration gives a higher
    number.
    """
    name = type(model).__name__
    limit = getattr(config, "max_position_embeddings", None) or getattr(config, "max_target_positions", None) or 0
    limit = limit if limit > 0 else None
    table = getattr(getattr(model.base_model, "embeddings", None), "position_embeddings", None)
    if limit and getattr(table, "padding_idx", None) is not None:
        limit -= table.padding_idx + 1
        return limit, f"{name} goes to {limit}: the first positions of its table are not for tokens"
    ropes = getattr(config, "rope_parameters", None) or {}
    for rope in (ropes, *(rope for rope in ropes.values() if isinstance(rope, dict))):
        scaling = rope.get("rope_type") or ""
        # Both rotate every token of a call by the position of the last token.
        if scaling == "longrope" or "long_mscale" in rope:
            short = rope.get("original_max_position_embeddings") or config.original_max_position_embeddings
        elif "dynamic" in scaling and limit:
            short = limit - 1  # at the limit itself, it depends on earlier calls
        else:
            continue
        if limit is None or short < limit:
            return short, (
                f'{name} goes to {short}: in longer sequences its rotary scaling ("{scaling}") turns all positions '
                "differently, so that logits would depend on later tokens"
            )
    return limit, ""


def may_cache(lm, open_cache, settings: tuple, length: int = 0, warn: bool = True) -> bool:
    """Whether the model's logits are the same with and without a cache, for sequences of `length` tokens.

    Parameters
    ----------
    lm : LM
    open_cache : function from an LM and a number of rows to an empty cache
    settings : tuple
        Settings of the cache that the result depends on, besides the model.
    length : int
        Windows up to this length are tested, besides the short ones.
    warn : bool
        Whether to warn that a model is computed in full, if this kind of cache is the last one to be tested.

    Raises
    ------
    ValueError
        If the model does not behave like a causal language model even without a cache.
    """
    passed = max([window for window in lm.windows if window <= max(length, _SHORT_WINDOW)], default=0)
    key = (*lm.kind, *settings, passed)
    if key not in _verdicts:
        with _lock:
            if key not in _verdicts:
                try:
                    _verdicts[key] = _judge(lm, open_cache, passed, warn)
                except _NothingLearned:
                    return True
    verdict = _verdicts[key]
    if isinstance(verdict, ValueError):
        raise ValueError(str(verdict))
    return verdict is None


def _judge(lm, open_cache, window: int, warn: bool) -> str | ValueError | None:
    quiet = lm.counted()
    quiet._counts_for = None  # its calls are not counted
    quiet.windows = []  # the test itself must not start a test
    quiet.model = getattr(lm.model, "_orig_mod", lm.model)  # compiling for the shapes of a probe would take minutes
    limit = lm.limit or window + _LENGTH
    length = min(max(_LENGTH, window + _TAIL), limit)
    name = type(quiet.model).__name__
    if length <= _TAIL:
        return f"{name} has too few positions ({limit}) for a cache to be tried out"
    quiet.context = max(lm.context, length)
    wrong = _faults(quiet, lambda rows: open_cache(quiet, rows), length)
    if wrong is None:
        return None
    uncached = _faults(quiet, lambda rows: TokenCache(quiet, [[] for _ in range(rows)]), length)
    if uncached is not None:
        return ValueError(
            f"{name} cannot be used: even without a cache, {uncached}. LM needs a decoder-only model whose logits "
            "depend on the tokens up to a position and on nothing else; a model that also exists as an encoder may "
            "need is_decoder=True in its configuration"
        )
    if not warn:
        return wrong
    warnings.warn(
        f"{name} cannot be used with a cache: {wrong}. LM computes every sequence and every branch of a tree in full "
        "instead, one after the other. The logits are right, but each call takes much longer",
        stacklevel=2,
    )
    return wrong


def _faults(lm, open_cache, length: int) -> str | None:
    """Describe what is wrong with a cache; None if it gives the same logits as the model without one."""
    lm.open_cache = lambda rows, static=False: open_cache(rows)
    texts = 2 if _epsilon(lm) > 1e-4 else 1  # with coarse rounding, a near tie between experts may change one text
    for seed in range(texts):
        found = _faults_of_a_text(lm, *_texts(lm, length, seed))
        if found is None:
            break
    return found


def _texts(lm, length: int, seed: int) -> tuple[list[int], list[int]]:
    """A text of ordinary tokens, and two tokens for a wrong continuation."""
    special = {value for name, value in lm.model.config.to_dict().items() if name.endswith(("token_id", "token_index"))
               and isinstance(value, int)}  # fmt: skip
    rng = random.Random(seed)
    ordinary = [token for token in rng.sample(range(lm.vocab_size), min(lm.vocab_size, 100)) if token not in special]
    ordinary = ordinary or list(range(lm.vocab_size))
    return rng.choices(ordinary, k=length), rng.choices(ordinary, k=2)


def _faults_of_a_text(lm, text: list[int], aside: list[int]) -> str | None:
    top = len(text) - _TAIL + 1
    branch = text[:top] + aside
    try:
        full = {True: lm.in_full(text, min(len(text), _LENGTH))[0], False: lm.in_full(branch, 2)[0]}
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        name = type(lm.model).__name__
        raise ValueError(f"{name} cannot compute a plain text of {len(text)} tokens: {_in_words(error)}") from error
    tolerance = _tolerance(lm, full[True])
    if not tolerance > 0:
        raise _NothingLearned
    try:
        for what, on_text, end, logits in _everything(lm, text, aside):
            expected = full[on_text]
            end -= len(text if on_text else branch)
            expected = expected[len(expected) + end - len(logits) : len(expected) + end]
            if logits.shape != expected.shape:
                return f"{what} has logits of shape {tuple(logits.shape)} instead of {tuple(expected.shape)}"
            far = float(torch.where(logits == expected, 0, logits - expected).abs().max())
            if not far <= tolerance:
                return f"the logits of {what} are wrong by up to {far:.2g}"
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        return f"it raises {_in_words(error)}"
    return None


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__} ({(str(error).strip().splitlines() or [''])[0]})"


def _everything(lm, text: list[int], aside: list[int]):
    """All uses of a cache in `LM`: a description, whether it is on the text or on the side branch, its end, its
    logits.
    """
    start = len(text) - _TAIL
    top = start + 1
    session = lm.session(text[:start])
    yield "a text", True, start, session.feed()
    yield "one token after others", True, top, session.feed(text[start:top])
    yield "several tokens after others", False, top + 2, session.feed(aside)
    session.rollback(2)
    logits = session.feed_tree(TokenTree([*aside, *text[top : top + 3]], [-1, 0, -1, 2, 3]))
    yield "a tree's first branch", False, top + 2, logits[:2]
    yield "a tree's second branch", True, top + 3, logits[2:]
    session.keep([2, 3, 4])
    yield "tokens after a kept branch", True, len(text), session.feed(text[top + 3 :])
    batch = lm.batch([text[:-3], text[:start]])
    longer, shorter = batch.feed([[], []])
    yield "a longer row of a batch", True, len(text) - 3, longer
    yield "a shorter row of a batch", True, start, shorter
    longer, shorter = batch.feed([text[-3:-2], text[start : start + 3]])
    yield "a longer row after others", True, len(text) - 2, longer
    yield "a shorter row after others", True, start + 3, shorter


def _epsilon(lm) -> float:
    """The rounding error of the model. Models compute some steps in float32, whatever their dtype is."""
    quantized = getattr(lm.model.config, "quantization_config", None) is not None
    coarse = lm.device.type != "cpu" and torch.get_float32_matmul_precision() != "highest"
    dtypes = [lm.dtype, torch.float32, *([torch.float16] if coarse else ()), *([torch.bfloat16] if quantized else ())]
    return max(torch.finfo(dtype).eps for dtype in dtypes)


def _tolerance(lm, logits: torch.Tensor) -> float:
    """How much rounding may change logits, relative to their differences between positions."""
    logits = logits.float().nan_to_num(math.nan, 0, 0)  # impossible tokens do not differ
    return _epsilon(lm) ** 0.5 * float((logits.amax(0) - logits.amin(0)).max())
