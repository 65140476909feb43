"""Make a small n-gram model from a target's own texts: count n-grams, drop the rare ones, measure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import cast

import numpy as np

from ...arguments import check_whole_number
from ...disk import write_text
from ...loading.formats.ngram_files import as_tensors, save_ngram
from ...model.lm import LM
from ...model.ngram import Level, NgramLM
from .sampled_texts import SampledText
from .texts import TargetTexts

MEGABYTES = 2.9  # of the file


def count_ngrams(texts: Iterable[Sequence[int]], order: int, vocab_size: int) -> list[Level]:
    """Count all n-grams of 1 to ``order + 1`` tokens.

    Parameters
    ----------
    texts : iterable of sequences of int
        N-grams do not cross from one text into the next.
    order : int
        The number of earlier tokens that the model uses.
    vocab_size : int

    Returns
    -------
    list of Level

    Examples
    --------
    >>> [level.counts.tolist() for level in count_ngrams([[0, 1, 0, 1, 1]], 1, 2)]
    [[2, 3], [2, 1, 1]]
    """
    arrays = [np.asarray(text, dtype=np.int64) for text in texts]
    tokens = np.concatenate([np.zeros(0, dtype=np.int64), *arrays])
    left = np.concatenate([np.zeros(0, dtype=np.int64), *(np.arange(len(text), 0, -1) for text in arrays)])
    found, levels = tokens.copy(), []  # `found`: for each position, the number of the n-gram that begins there
    levels = [Level(np.arange(vocab_size), np.bincount(tokens, minlength=vocab_size))]
    for length in range(2, order + 2):
        begins = np.flatnonzero(left >= length)
        keys = found[begins] * vocab_size + tokens[begins + length - 1]
        keys, found[begins], counts = np.unique(keys, return_inverse=True, return_counts=True)
        children = np.bincount(keys // vocab_size, minlength=len(levels[-1].tokens))
        levels[-1] = levels[-1]._replace(children=children)
        levels.append(Level(keys % vocab_size, counts))
    return levels


def discount(counts: np.ndarray) -> float:
    """The discount of a level, from the number of n-grams seen once and twice (Ney et al., 1994).

    Examples
    --------
    >>> discount(np.array([1, 1, 2, 5]))
    0.5
    """
    once, twice = int((counts == 1).sum()), int((counts == 2).sum())
    return once / (once + 2 * twice) if once else 0.5


def prune(levels: Sequence[Level], least: Sequence[int]) -> list[Level]:
    """Leave out the n-grams that were seen less often than `least`, which has a number for each length.

    An n-gram is seen at least as often as any longer n-gram that begins with it. So if `least` does not fall with the
    length, every beginning of an n-gram that stays also stays.
    """
    kept, pruned, parents = np.ones(len(levels[0].counts), dtype=bool), [], None
    for length, (level, lowest) in enumerate(zip(levels, least, strict=True)):
        if length:
            kept_above, kept = kept, level.counts >= lowest
            parents = np.repeat(np.arange(len(kept_above)), cast(np.ndarray, levels[length - 1].children))[kept]
            children = np.bincount(parents, minlength=len(kept_above))[kept_above]
            pruned[-1] = pruned[-1]._replace(children=children)
        pruned.append(Level(level.tokens[kept], level.counts[kept]))
    return pruned


def made_to_fit(levels: Sequence[Level], megabytes: float, **lm) -> NgramLM:
    """The model with as many n-grams as fit into a file of this size. The rarest are left out first, longest first.

    Raises
    ------
    ValueError
        If not even the single tokens fit.
    """
    discounts = [discount(level.counts[level.counts > 0]) for level in levels]
    least = [1] * len(levels)
    while True:
        model = NgramLM(prune(levels, least), discounts, **lm)
        size = sum(tensor.nbytes for tensor in as_tensors(model).values())
        if size <= 1e6 * megabytes:
            return model
        if not any(len(level.tokens) for level in model.levels[1:]):
            raise ValueError(f"single tokens alone take {size / 1e6:g} MB, more than {megabytes:g}: allow more")
        # The next longest lengths get the same bound, until all have it; then it rises.
        place = next((n for n in range(len(least) - 1, 0, -1) if least[n] == min(least[1:])), 1)
        least[place:] = [least[place] + 1] * (len(least) - place)


def made_of(target: LM, texts: Sequence[SampledText], order: int, megabytes: float) -> NgramLM:
    """The n-gram model of a target's own tokens, with the last tokens of the prompt before them."""
    own = [text.tokens[max(0, text.own - order) :] for text in texts]
    lm = {"tokenizer": target.tokenizer, "stop_tokens": target.stop_tokens, "device": target.device}
    return made_to_fit(count_ngrams(own, order, target.vocab_size), megabytes, **lm)


def _measured(lm: NgramLM, texts: Sequence[SampledText]) -> dict[str, float]:
    """Measure how well a model predicts the tokens of other texts after their prompts.

    Returns
    -------
    dict
        "right": the share of tokens that were its most likely token. "bits": the mean of -log2 of their probabilities.
    """
    right, bits, count = 0, 0.0, 0
    for text in texts:
        for position in range(text.own, len(text.tokens)):
            row, token = lm.log_probs(text.tokens[:position]), text.tokens[position]
            right += int(row.argmax()) == token
            bits -= float(row[token]) / float(np.log(2))
            count += 1
    return {"right": round(right / max(count, 1), 4), "bits": round(bits / max(count, 1), 3)}


def make_ngram(
    texts: TargetTexts, target: LM, out, *, order: int = 3, megabytes: float = MEGABYTES, command: Sequence[str] = ()
) -> Path:
    """Count a target's own texts, and write the n-gram model with a log.

    Parameters
    ----------
    texts : TargetTexts
        See `texts.family_texts`.
    target : LM
    out : path
        The folder to write.
    order : int
        The number of earlier tokens that the model uses.
    megabytes : float
        The largest size of the file.
    command : sequence of str
        The command to make it again, for ``training_log.json``.

    Returns
    -------
    path of the folder
    """
    check_whole_number(order, 0, "order is how many tokens the model looks back")
    out = Path(out)
    model = made_of(target, texts.train, order, megabytes)
    save_ngram(model, out, base=texts.base)
    log = {
        "command": shlex.join(command),
        **texts.setting,
        "tokens": sum(len(text.tokens) - text.own for text in texts.train),
        "order": order,
        "n-grams": [len(level.tokens) for level in model.levels],
        "held out": _measured(model, texts.held_out),
    }
    write_text(out / "training_log.json", json.dumps(log, indent=1) + "\n")
    return out
