"""An n-gram model: a language model that only counts, and therefore the cheapest draft that has probabilities.

It looks up how often each token has followed the last few tokens in some text. An n-gram is n tokens in a row. The
counts of all n-grams up to some length are stored in a trie, as a few arrays. What this file does not do: count
(`training.train_ngram` does).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from .arguments import is_number
from .disk import read_json
from .heads.formats.files import CONFIG, check_names, read_folder, whole_number, write_folder
from .lm import LM
from .table import TableLM

KIND = "ngram"  # `model_type` in config.json


class Level(NamedTuple):
    """The n-grams of one length. Those that differ only in the last token are stored together, sorted by that token.

    Attributes
    ----------
    tokens : (n,) array of whole numbers
        The last token of each n-gram. The first level has all tokens of the vocabulary.
    counts : (n,) array of whole numbers
        How often each n-gram was seen.
    children : (n,) array of whole numbers, or None
        How many n-grams of the next length begin with each n-gram; None in the last level. They are stored next to each
        other there.
    """

    tokens: np.ndarray
    counts: np.ndarray
    children: np.ndarray | None = None


class NgramLM(TableLM):
    """A language model that looks up how often each token has followed the last few tokens.

    Counts alone would give probability 0 to everything that was never seen. So they are smoothed by *interpolated
    absolute discounting*: every count is reduced by the same number d between 0 and 1, and the probability that becomes
    free is distributed like the predictions for the context without its first token::

        P(w | context) = max(count(context w) - d, 0) / count(context) + rest(context) P(w | shorter context)

    ``rest(context)`` makes the row sum to 1. It includes the probability of n-grams that were left out to save space.
    After the empty context, the rest is distributed evenly over all tokens. So every token has a probability above 0. A
    row takes a few lookups and a few passes over the vocabulary.

    Source: Ney, Essen and Kneser (1994), "On structuring probabilistic dependences in stochastic language modelling";
    Chen and Goodman (1999), "An empirical study of smoothing techniques for language modeling", section 2.7.

    Parameters
    ----------
    levels : sequence of Level
        The n-grams of 1, 2, 3, ... tokens.
    discounts : sequence of float
        d for each level, above 0 and at most 1.
    tokenizer, stop_tokens
        From the model whose texts were counted.
    device : torch.device
        The device of the rows. Lookups are done on the processor.

    Attributes
    ----------
    order : int
        Length of the longest context.

    Examples
    --------
    >>> ones, twos = Level([0, 1], np.array([2, 3]), [1, 2]), Level(np.array([1, 0, 1]), np.array([2, 1, 1]))
    >>> NgramLM([ones, twos], [0.5, 0.5]).session([0]).feed().exp()
    tensor([[0.1000, 0.9000]])
    """

    dtype = torch.float32

    def __init__(
        self,
        levels: Sequence[Level],
        discounts: Sequence[float],
        *,
        tokenizer=None,
        stop_tokens: Sequence[int] = (),
        device: torch.device | str = "cpu",
    ):
        self.levels, self.discounts = list(levels), list(discounts)
        self.vocab_size = self.width = len(levels[0].counts)
        self.tokenizer, self.stop_tokens, self.device = tokenizer, tuple(stop_tokens), torch.device(device)
        self.order, self.context, self.calls, self._found = len(levels) - 1, 1_000_000_000, 0, {}
        # Where the children of each n-gram begin in the next level, and finally where all of them end.
        self._begins = [np.append(0, np.cumsum(level.children, dtype=np.int64)) for level in levels[:-1]]
        seen = torch.from_numpy(levels[0].counts.astype(np.float64)) - self.discounts[0]
        seen = seen.clamp(min=0) / max(int(levels[0].counts.sum()), 1)
        self._shortest = (seen + (1 - seen.sum()) / self.vocab_size).float()

    def __repr__(self) -> str:
        sizes = ", ".join(f"{len(level.tokens):,}" for level in self.levels)
        return f"NgramLM(vocab_size={self.vocab_size}, order={self.order}, n-grams by length: {sizes})"

    def log_probs(self, tokens: Sequence[int]) -> torch.Tensor:
        """Log-probabilities of the token after `tokens`: float32, shape (vocab,). This is not counted as a call."""
        probs = self._shortest
        for length in range(1, min(self.order, len(tokens)) + 1):
            node = self._find(tokens[len(tokens) - length :])
            if node is None:
                break  # then longer contexts are missing too
            followers, discounted = self._followers(length, node)
            probs = probs * (1 - discounted.sum())
            probs[torch.from_numpy(followers)] += torch.from_numpy(discounted).float()
        return probs.log().to(self.device)

    def _find(self, context: Sequence[int]) -> int | None:
        """The index of the n-gram of these tokens in its level."""
        node = context[0]
        for length, token in enumerate(context[1:], 1):
            first, last = self._begins[length - 1][node : node + 2]
            node = first + np.searchsorted(self.levels[length].tokens[first:last], token)
            if node == last or self.levels[length].tokens[node] != token:
                return None
        return int(node)

    def _followers(self, length: int, node: int) -> tuple[np.ndarray, np.ndarray]:
        """The tokens that followed an n-gram of `length` tokens, and their discounted shares."""
        first, last = self._begins[length - 1][node : node + 2]
        level, count = self.levels[length], int(self.levels[length - 1].counts[node])
        shares = (level.counts[first:last] - self.discounts[length]).clip(0) / max(count, 1)
        return level.tokens[first:last].astype(np.int64), shares


# Files.


def is_ngram(folder) -> bool:
    """Whether a folder contains an n-gram model."""
    try:
        return read_json(Path(folder) / CONFIG).get("model_type") == KIND
    except (OSError, ValueError, AttributeError):
        return False


def save_ngram(lm: NgramLM, folder, *, base: str = "") -> Path:
    """Write an n-gram model to a folder: ``config.json`` and ``model.safetensors``, in the smallest types that suffice.

    Parameters
    ----------
    lm : NgramLM
    folder : path
        Created if it is missing.
    base : str
        The name of the model whose texts were counted.

    Returns
    -------
    path of the file with the counts
    """
    config = {
        "model_type": KIND,
        "vocab_size": lm.vocab_size,
        "order": lm.order,
        "discounts": lm.discounts,
        "vocabulary": vocabulary_checksum(lm.tokenizer),
        "base_model_name_or_path": base,
    }
    path = write_folder(folder, KIND, config, as_tensors(lm), pickled=False)
    path.chmod(0o644)  # safetensors are written as private
    return path


def load_ngram(folder, target: LM) -> NgramLM:
    """Read an n-gram model to be used as a draft for a target.

    Raises
    ------
    ValueError
        If a file is missing, incomplete or inconsistent (the message names the file), or if the model counted the
        tokens of another vocabulary than the target's.
    """
    _, config, tensors, place, path = read_folder(folder, _layout_of)
    order, size = whole_number(config, "order", 0, place), whole_number(config, "vocab_size", 1, place)
    if size != target.vocab_size or config.get("vocabulary") not in (None, vocabulary_checksum(target.tokenizer)):
        base = config.get("base_model_name_or_path") or "another model"
        raise ValueError(
            f"{folder} counts the {size} tokens of {base}, but the target has another vocabulary, of "
            f"{target.vocab_size}: count texts of its own with `python -m tutorlib.training ngram`"
        )
    names = [_names(length, order) for length in range(order + 1)]
    check_names(tensors, {name: name for level in names for name in level.values()}, path)
    levels = []
    for level in names:
        arrays = {part: tensors[name].numpy() for part, name in level.items()}
        levels.append(Level(**{"tokens": np.arange(size), "children": None} | arrays))
    _check(levels, size, path)
    discounts = config.get("discounts")
    if (
        not isinstance(discounts, list)
        or len(discounts) != order + 1
        or not all(is_number(d) and 0 < d <= 1 for d in discounts)
    ):
        raise ValueError(f"{place}: discounts must be {order + 1} numbers above 0 and up to 1, got {discounts!r}")
    return NgramLM(levels, discounts, tokenizer=target.tokenizer, stop_tokens=target.stop_tokens, device=target.device)


def vocabulary_checksum(tokenizer) -> str | None:
    """A checksum by which vocabularies can be compared; None without a tokenizer."""
    if tokenizer is None:
        return None
    return hashlib.sha256(json.dumps(sorted(tokenizer.get_vocab().items())).encode()).hexdigest()


def as_tensors(lm: NgramLM) -> dict[str, torch.Tensor]:
    """The tensors that are stored for an n-gram model, by their names in the file."""
    return {
        name: torch.from_numpy(array.astype(np.min_scalar_type(int(array.max(initial=0)))))
        for length, level in enumerate(lm.levels)
        for part, name in _names(length, lm.order).items()
        for array in (getattr(level, part),)
    }


def _names(length: int, order: int) -> dict[str, str]:
    """The names of the arrays that are stored for a level. The first has all tokens, and the last no children."""
    parts = ["tokens"] * (length > 0) + ["counts"] + ["children"] * (length < order)
    return {part: f"{length + 1}.{part}" for part in parts}


def _layout_of(config: dict, place: Path) -> str:
    if config.get("model_type") != KIND:
        raise ValueError(f"{place} is not of an n-gram model: its model_type is {config.get('model_type')!r}")
    return KIND


def _check(levels: Sequence[Level], size: int, path: Path) -> None:
    """Raise ValueError if the arrays are not a trie of counts."""
    above, parents = np.array([size]), np.array([np.iinfo(np.int64).max])
    for length, level in enumerate(levels, 1):
        arrays = [array for array in level if array is not None]
        if any(array.dtype.kind not in "iu" or array.ndim != 1 or array.min(initial=0) < 0 for array in arrays):
            raise ValueError(f"{path}: the arrays of {length}-grams must be rows of whole numbers, 0 or more")
        tokens, counts = level.tokens.astype(np.int64), level.counts.astype(np.int64)
        ends = np.cumsum(above)
        if {len(array) for array in arrays} != {int(ends[-1])}:
            raise ValueError(f"{path}: there must be {int(ends[-1])} {length}-grams, by the numbers of those before")
        if tokens.max(initial=0) >= size or (np.diff(tokens) <= 0)[~np.isin(np.arange(1, len(tokens)), ends)].any():
            raise ValueError(f"{path}: the tokens of {length}-grams must be below {size} and in ascending order")
        sums = np.diff(np.append(0, np.cumsum(counts))[np.append(0, ends)])
        if (sums > parents).any():
            raise ValueError(f"{path}: some {length}-grams were seen more often than what they begin with")
        if level.children is not None:
            above, parents = level.children.astype(np.int64), counts
