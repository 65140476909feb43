"""The logits processors that `generate` has made of its options, as warps.

A processor reads a batch with its padding; a warp reads rows of logits and the texts before them, in any order and more
than once. What this file does not do: read other options (`inputs`), or refuse them (`options`).
"""

import copy
import itertools
from collections.abc import Callable, Sequence

import torch

from ..sampling.checks import checked_histories, named
from ..sampling.warp import Warp

# Processors, by what they depend on besides the logits. Those not named here depend on the text.
_NOTHING = {  # so all rows can be processed at once
    "TemperatureLogitsWarper", "TopKLogitsWarper", "TopPLogitsWarper", "MinPLogitsWarper", "TypicalLogitsWarper",
    "EpsilonLogitsWarper", "EtaLogitsWarper", "TopHLogitsWarper", "SuppressTokensLogitsProcessor", "LogitNormalization",
}  # fmt: skip
_LENGTH = {  # which counts the padding
    "MinLengthLogitsProcessor", "MinNewTokensLengthLogitsProcessor", "ForcedBOSTokenLogitsProcessor",
    "ForcedEOSTokenLogitsProcessor", "ExponentialDecayLengthPenalty", "SuppressTokensAtBeginLogitsProcessor",
}  # fmt: skip
_ROW = {  # of the batch
    "EncoderRepetitionPenaltyLogitsProcessor", "EncoderNoRepeatNGramLogitsProcessor",
    "PrefixConstrainedLogitsProcessor",
}  # fmt: skip
_EARLIER_CALLS = {"UnbatchedClassifierFreeGuidanceLogitsProcessor", "SynthIDTextWatermarkLogitsProcessor"}


def as_warps(
    processors: Sequence[Callable], fronts: Sequence[Sequence[int]] = ((),), prompts: Sequence[Sequence[int]] = ((),)
) -> list[Warp]:
    """Turn the processors of `generate` into warps that change logits in the same way, one warp for each.

    Parameters
    ----------
    processors : sequence of functions
        ``(input_ids (n, length), scores (n, vocab)) -> scores``, as transformers has them.
    fronts : sequence of lists of int
        The padding of each row. It is not in the histories.
    prompts : sequence of lists of int
        The prompt of each row.

    Raises
    ------
    ValueError
        If a processor depends on more than logits and text.
    """
    return [_as_warp(processor, [list(front) for front in fronts], prompts) for processor in processors]


def _as_warp(processor: Callable, fronts: list[list[int]], prompts: Sequence[Sequence[int]]) -> Warp:
    name, padding = type(processor).__name__, [len(front) for front in fronts]
    processor = _without_padding(processor, padding)
    if name in _EARLIER_CALLS:
        raise ValueError(
            f"{name} (guidance_scale, or a watermark) changes with every call: a method that checks several tokens at "
            "once cannot use it"
        )
    if name in _ROW and (len(padding) > 1 or any(padding)):
        raise ValueError(f"{name} depends on the row of the batch: call generate for one unpadded prompt at a time")
    counts = name in _LENGTH
    if counts:
        _check_told_apart(name, prompts)

    def before(history):  # the padding is counted too, and may differ from row to row
        if not counts or len(set(padding)) == 1:
            return fronts[0] if counts else []
        return next(front for front, prompt in zip(fronts, prompts) if history[: len(prompt)] == prompt)

    def warp_all(logits, histories=None):
        return _beside(processor, logits)(None, logits)

    def warp_each(logits, histories=None):
        histories = checked_histories(histories, logits, name)
        rows, change = [], _beside(processor, logits)
        for row, history in zip(logits.clone(), histories, strict=True):
            rows.append(change(torch.tensor([before(history) + history], device=logits.device), row[None]))
        return torch.cat(rows)

    return named(warp_all if name in _NOTHING else warp_each, name)


def _check_told_apart(name: str, prompts: Sequence[Sequence[int]]) -> None:
    """Raise ValueError if a text could continue either of two prompts that differ in length."""
    for short, long in itertools.permutations(prompts, 2):
        if len(short) < len(long) and long[: len(short)] == short:
            raise ValueError(
                f"{name} (min_new_tokens or another option that counts tokens) must know which prompt a text "
                f"continues, but the prompt {long} begins with another, {short}: call generate for one of them at a "
                "time"
            )


def _beside(processor: Callable, logits: torch.Tensor) -> Callable:
    """The processor with its tensors on the device of the logits: the CPU if the model's GPU does not support
    float64.
    """
    held = getattr(processor, "__dict__", {})
    moved = {name: value.to(logits.device) for name, value in held.items() if isinstance(value, torch.Tensor)}
    if all(moved[name] is held[name] for name in moved):
        return processor
    processor = copy.copy(processor)
    vars(processor).update(moved)
    return processor


def _without_padding(processor: Callable, padding: Sequence[int]) -> Callable:
    """Adapt a repetition penalty that skips padding to texts without padding."""
    ignored = getattr(processor, "prompt_ignore_length", None)
    if ignored is None or (len(padding) == 1 and not padding[0]):
        return processor
    if not isinstance(ignored, torch.Tensor) or ignored.tolist() != list(padding):
        raise ValueError(
            f"prompt_ignore_length={ignored} counts the padding: call generate for one unpadded prompt at a time"
        )
    processor = copy.copy(processor)
    vars(processor)["prompt_ignore_length"] = None
    return processor
