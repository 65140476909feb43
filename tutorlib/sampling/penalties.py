"""Penalties: warps that make tokens of the text so far less likely.

Each keeps what it has counted of a text in its `KnownTexts`, so that a longer text costs only its new tokens. What this
file does not do: drop tokens whatever the text is (the filters in `warp`).
"""

import functools
import math
from collections.abc import Iterable

import numpy as np
import torch

from ..arguments import check_whole_number, ints, is_number, number_text
from .checks import Warp, named, one_history_each
from .known_text import Followers, KnownTexts, Places, TokenCounts

LARGEST_POWER = 500  # a penalty of 2^500 forbids a token, and is still a number


def repetition_penalty(theta: float, ignore_first: int | None = 0, last: int | None = None) -> Warp:
    """For tokens in the history, divide positive logits by `theta` and multiply negative logits by it.

    Both lower the logit if `theta` is above 1. It does not matter how often a token has occurred. Adding a constant to
    all logits does not change the probabilities, but it changes the effect of this penalty, so the effect depends on
    where a model's logits happen to lie.

    Source: Keskar et al. (2019), "CTRL: A Conditional Transformer Language Model for Controllable Generation", section
    4.1. (The formula there divides negative logits too, which would favour repetition.)

    Parameters
    ----------
    theta : float
        Above 0 and finite; otherwise ValueError. 1 changes nothing, and values below 1 reward repetition. The paper
        used 1.2.
    ignore_first : int or None
        How many tokens at the beginning of each history do not count, 0 or more; otherwise ValueError. With None, the
        tokens of each text's own prompt do not count, also in a batch of prompts of different lengths.
    last : int or None
        Count only the last so many tokens of each history, as most engines do: llama.cpp the last 64, mlx-lm the last
        20. 1 or more; otherwise ValueError. None counts all.
    """
    if not is_number(theta) or theta <= 0:
        raise ValueError(f"repetition_penalty needs a finite number above 0 (1 changes nothing), got {theta!r}")
    name, memory = penalty_name("repetition_penalty", theta, ignore_first, last), _counting(ignore_first, last)

    def repetition_penalty_warp(logits, histories=None):
        seen = occurrences(logits, histories, name, memory) > 0
        return torch.where(seen, torch.where(logits < 0, logits * theta, logits / theta), logits)

    return named(repetition_penalty_warp, name)


def frequency_penalty(strength: float, ignore_first: int | None = 0, last: int | None = None) -> Warp:
    """Subtract `strength` from a token's logit each time it occurs in the history: logit - count · strength.

    Source: OpenAI's API reference, "Frequency and presence penalties".

    Parameters
    ----------
    strength : float
        Finite; otherwise ValueError. 0 changes nothing, and a negative number rewards repetition.
    ignore_first : int or None
        How many tokens at the beginning of each history do not count, 0 or more; otherwise ValueError. With None, the
        tokens of each text's own prompt do not count, also in a batch of prompts of different lengths.
    last : int or None
        Count only the last so many tokens of each history, as most engines do: llama.cpp the last 64, mlx-lm the last
        20. 1 or more; otherwise ValueError. None counts all.
    """
    if not is_number(strength):
        raise ValueError(f"frequency_penalty needs a finite number (0 changes nothing), got {strength!r}")
    name, memory = penalty_name("frequency_penalty", strength, ignore_first, last), _counting(ignore_first, last)

    def frequency_penalty_warp(logits, histories=None):
        return logits - strength * occurrences(logits, histories, name, memory)

    return named(frequency_penalty_warp, name)


def presence_penalty(strength: float, ignore_first: int | None = 0, last: int | None = None) -> Warp:
    """Subtract `strength` once from the logit of each token in the history: logit - [count > 0] · strength.

    Parameters and source are those of `frequency_penalty`.
    """
    if not is_number(strength):
        raise ValueError(f"presence_penalty needs a finite number (0 changes nothing), got {strength!r}")
    name, memory = penalty_name("presence_penalty", strength, ignore_first, last), _counting(ignore_first, last)

    def presence_penalty_warp(logits, histories=None):
        return logits - strength * occurrences(logits, histories, name, memory).clamp(max=1)

    return named(presence_penalty_warp, name)


def no_repeat_ngram(n: int) -> Warp:
    """Drop every token that would complete an n-gram which the history already contains.

    Source: Paulus, Xiong and Socher (2017), "A Deep Reinforced Model for Abstractive Summarization", section 2.5, with
    n = 3.

    Parameters
    ----------
    n : int
        At least 1; otherwise ValueError. 1 forbids every token of the history, including the prompt. With a small `n`
        and a small vocabulary, no token may be left in the end; `probabilities` then raises ValueError.
    """
    check_whole_number(n, 1, "no_repeat_ngram needs the length of the n-grams")
    memory, name = KnownTexts(functools.partial(Followers, n=n)), f"no_repeat_ngram({n})"

    def no_repeat_ngram_warp(logits, histories=None):
        logits = logits.clone()
        for row, history in enumerate(one_history_each(histories, logits, name)):
            logits[row, memory.of(row, history, logits.shape[-1], name).of_the_end()] = -math.inf
        return logits

    return named(no_repeat_ngram_warp, name)


def dry(
    multiplier: float,
    base: float = 1.75,
    allowed_length: int = 2,
    breakers: Iterable[int] = (),
    last: int | None = None,
) -> Warp:
    """Lower a token's logit if it would continue a repetition: the longer the repetition is, the more.

    "Don't repeat yourself": let n be the length of the longest piece of text that ends the history, and that stands
    somewhere earlier with this token after it. If n is at least `allowed_length`, the token's logit is lowered by
    ``multiplier · base ** (n - allowed_length)``. Short repetitions, such as names, cost nothing, and no token is
    forbidden.

    Source: P. E. Weidmann (2024), text-generation-webui, pull request 5677.

    Parameters
    ----------
    multiplier : float
        0 or more and finite; otherwise ValueError. 0 changes nothing; 0.8 is usual.
    base : float
        1 or more and finite; otherwise ValueError.
    allowed_length : int
        1 or more; otherwise ValueError.
    breakers : token ids
        No repetition goes over one of these, for example over line breaks.
    last : int or None
        Look only at the last so many tokens. 1 or more; otherwise ValueError. None looks at all.
    """
    if not is_number(multiplier) or multiplier < 0:
        raise ValueError(f"dry needs a multiplier of 0 or more (0 changes nothing), got {multiplier!r}")
    if not is_number(base) or base < 1:
        raise ValueError(f"dry needs a base of 1 or more, got {base!r}")
    check_whole_number(allowed_length, 1, "dry needs the length up to which repetitions are free")
    _check_last("dry", last)
    stops = frozenset(ints(breakers, "dry needs token ids as breakers"))
    furthest = LARGEST_POWER / math.log2(base) if base > 1 else math.inf
    name, memory = f"dry({number_text(multiplier)}, {number_text(base)}, {allowed_length})", KnownTexts(Places)

    def dry_warp(logits, histories=None):
        logits = logits.clone()
        for row, history in enumerate(one_history_each(histories, logits, name)):
            known = memory.of(row, history, logits.shape[-1], name)
            for token, length in known.repeated(stops, last).items():
                if length >= allowed_length:
                    logits[row, token] -= multiplier * base ** min(length - allowed_length, furthest)
        return logits

    return named(dry_warp, name)


def _counting(ignore_first: int | None, last: int | None = None) -> KnownTexts:
    """Remembers how often each token occurs after the first `ignore_first` ones (None: after the prompt), and among
    the `last` ones.
    """
    return KnownTexts(functools.partial(TokenCounts, ignored=ignore_first, last=last))


def occurrences(logits: torch.Tensor, histories, name: str, memory: KnownTexts) -> torch.Tensor:
    """How often each token occurs in each history, as far as the memory counts them.

    Returns
    -------
    tensor of whole numbers, of the type, shape (n, vocab) and device of `logits`
    """
    counts = np.zeros(logits.shape, dtype=np.int64)
    for row, history in enumerate(one_history_each(histories, logits, name)):
        counts[row] = memory.of(row, history, logits.shape[-1], name).counts
    return torch.from_numpy(counts).to(logits.device, logits.dtype)


def penalty_name(name: str, strength: float, ignore_first: int | None, last: int | None = None) -> str:
    """The name of a penalty, such as ``repetition_penalty(1.2, ignore_first=8)``; also checks its window."""
    if ignore_first is not None:
        check_whole_number(ignore_first, 0, f"{name} needs in ignore_first how many tokens not to count")
    _check_last(name, last)
    window = "" if ignore_first == 0 else f", ignore_first={ignore_first}"
    window += "" if last is None else f", last={last}"
    return f"{name}({number_text(strength)}{window})"


def _check_last(name: str, last) -> None:
    if last is not None:
        check_whole_number(last, 1, f"{name} needs in last how many tokens to look back at (None for all)")
