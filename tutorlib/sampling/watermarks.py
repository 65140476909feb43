"""Watermarks: warps that leave a mark in a text, and the scores that find it again.

Both are pure functions of the last few tokens and a secret key. So the mark is part of the target's distribution, and
every lossless method keeps it. A score counts each n-gram once: otherwise a text that repeats itself would be found, or
not, by the luck of a few n-grams.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch

from ..arguments import check_whole_number, ints, is_number, number_text
from .checks import Warp, named, one_history_each

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def green_list(key: int, bias: float = 2.0, share: float = 0.25) -> Warp:
    """Add `bias` to the logits of the tokens that are green after the last token.

    The key and the last token decide which tokens are green: each with probability `share`, and always the same ones.

    Source: Kirchenbauer et al. (2023), "A Watermark for Large Language Models" (arXiv 2301.10226), algorithm 2, with a
    hash of each token in place of a list that is shuffled.

    Parameters
    ----------
    key : int
        Secret. 0 or more; otherwise ValueError.
    bias : float
        Finite; otherwise ValueError.
    share : float
        Between 0 and 1, both excluded; otherwise ValueError.
    """
    if not is_number(bias):
        raise ValueError(f"green_list needs a finite number as bias, got {bias!r}")
    _check_green("green_list", key, share)
    name = f"green_list({key}, {number_text(bias)}, {number_text(share)})"

    def green_list_warp(logits, histories=None):
        logits, vocab = logits.clone(), logits.shape[-1]
        for row, history in enumerate(one_history_each(histories, logits, name)):
            green = _green(key, _last(history, 1, vocab, name), np.arange(vocab), share)
            logits[row, torch.from_numpy(green).to(logits.device)] += bias
        return logits

    return named(green_list_warp, name)


def green_score(tokens: Sequence[int], key: int, share: float = 0.25) -> float:
    """How many standard deviations more green tokens a text has than one without the mark.

    Parameters
    ----------
    tokens : sequence of int
        The text, without its prompt. The first token is not counted, because the one before it is missing.
    key, share
        As for `green_list`.

    Returns
    -------
    float
        (green - share · n) / sqrt(n · share · (1 - share)), where n is the number of different pairs of neighbouring
        tokens. Without a mark, it is rarely above 2. NaN if the text is too short.
    """
    _check_green("green_score", key, share)
    pieces = _pieces(tokens, 1)
    green = sum(bool(_green(key, piece[:-1], np.array(piece[-1:]), share)[0]) for piece in pieces)
    return (green - share * len(pieces)) / math.sqrt(len(pieces) * share * (1 - share)) if pieces else math.nan


def synthid(keys: Sequence[int], width: int = 4) -> Warp:
    """SynthID's rule: a tournament in which each key gives each token 0 or 1, and tokens with 1 gain probability.

    For each key in turn, ``p(x) ← p(x) · (1 + g(x) - Σ p g)``, where g(x), 0 or 1, is the first bit of a hash of the
    key, the last `width` tokens and x. Averaged over keys, the distribution is not changed; with the same keys, it is.

    Source: Dathathri et al. (2024), "Scalable watermarking for identifying large language model outputs", Nature 634,
    equation for two-way tournaments in the supplement. Here, contexts that come again are marked again: a rule that
    skips them would have to remember the text.

    Parameters
    ----------
    keys : sequence of int
        Secret, one for each round of the tournament; the paper uses 30. Each 0 or more; otherwise ValueError.
    width : int
        1 or more; otherwise ValueError.
    """
    keys = _checked_keys("synthid", keys, width)
    name = f"synthid({len(keys)} keys, {width})"

    def synthid_warp(logits, histories=None):
        rows, vocab = [], logits.shape[-1]
        for row, history in zip(logits, one_history_each(histories, logits, name), strict=True):
            g = _bits(keys, _last(history, width, vocab, name), np.arange(vocab))
            row = row.double()
            for values in torch.from_numpy(g).to(row):
                mass = (row.softmax(-1).nan_to_num(0) * values).sum()
                row = row + (1 + values - mass).clamp(min=0).log()
            rows.append(row)
        return torch.stack(rows).to(logits.dtype) if rows else logits

    return named(synthid_warp, name)


def synthid_score(tokens: Sequence[int], keys: Sequence[int], width: int = 4) -> float:
    """The mean of g over the keys and the different n-grams of a text: 1/2 without a mark, more with one.

    Parameters
    ----------
    tokens : sequence of int
        The text, without its prompt. The first `width` tokens are not counted.
    keys, width
        As for `synthid`.

    Returns
    -------
    float
        NaN if the text is too short.
    """
    keys = _checked_keys("synthid_score", keys, width)
    means = [float(_bits(keys, piece[:-1], np.array(piece[-1:])).mean()) for piece in _pieces(tokens, width)]
    return sum(means) / len(means) if means else math.nan


# ----------------------------------------------------------------------------------------------------------------------
# The hash that both use


def hashed(keys: Sequence[int], context: Sequence[int], tokens: np.ndarray) -> np.ndarray:
    """A number of 64 bits for each key and each token after a context, which looks random to whoever lacks the key.

    The mixing is that of splitmix64 (Steele, Lea and Flood, 2014). It is quick, but no cipher.

    Returns
    -------
    array of uint64, shape (keys, tokens)
    """
    with np.errstate(over="ignore"):
        state = _mixed(np.array(keys, np.uint64)[:, None] + GOLDEN)
        for token in context:
            state = _mixed(state + GOLDEN * np.uint64(token + 1))
        return _mixed(state + GOLDEN * (tokens.astype(np.uint64) + np.uint64(1)))


def _mixed(numbers: np.ndarray) -> np.ndarray:
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))


def _green(key: int, context: Sequence[int], tokens: np.ndarray, share: float) -> np.ndarray:
    return hashed([key], context, tokens)[0] < share * 2.0**64


def _bits(keys: Sequence[int], context: Sequence[int], tokens: np.ndarray) -> np.ndarray:
    """The first bit of each hash, shape (keys, tokens)."""
    return (hashed(keys, context, tokens) >> np.uint64(63)).astype(np.float64)


def _last(history: Sequence[int], width: int, vocab: int, name: str) -> list[int]:
    """The last `width` tokens of a history, or all if it is shorter."""
    last = ints(history[max(0, len(history) - width) :], f"{name} needs histories of token ids (ints)")
    wrong = [token for token in last if not 0 <= token < vocab]
    if wrong:
        raise ValueError(f"{name} was given a history with {wrong}, outside the vocabulary of {vocab} tokens")
    return last


def _pieces(tokens: Iterable[int], width: int) -> list[tuple[int, ...]]:
    """The different pieces of width + 1 tokens, in the order of the text."""
    tokens = ints(tokens, "a score needs a list of token ids (ints)")
    return list(dict.fromkeys(tuple(tokens[end - width : end + 1]) for end in range(width, len(tokens))))


def _check_green(name: str, key, share) -> None:
    check_whole_number(key, 0, f"{name} needs a key")
    if not is_number(share) or not 0 < share < 1:
        raise ValueError(f"{name} needs a share of green tokens between 0 and 1, both excluded, got {share!r}")


def _checked_keys(name: str, keys, width) -> list[int]:
    check_whole_number(width, 1, f"{name} needs in width how many tokens decide")
    keys = ints(keys, f"{name} needs a list of keys (ints)")
    if not keys or min(keys) < 0:
        raise ValueError(f"{name} needs at least one key, each 0 or more, got {keys!r}")
    return keys
