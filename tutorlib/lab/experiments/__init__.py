"""Long sweeps: a method with many settings, measured once; the results are kept in a small file for the chapters.

    python -m tutorlib experiment NAME

computes every row of the experiment in ``NAME.py``, in this folder, and writes ``results/NAME.json``. The module ends
with ``EXPERIMENT``, an `Experiment`: what is the same for all rows, the rows, and the function that computes one.

There is no list of experiments: every module in this folder is one. This file imports none of them.
"""

import json
import math
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from tqdm import tqdm

from ... import measures
from ...disk import read_json, write_text
from ...loading import models
from ...storyworld.questions import opening

Setting: TypeAlias = dict[str, Any]  # plain numbers and strings, as they are stored
PAIR: Setting = {"target": "storyworld target", "draft": "storyworld draft"}  # of several experiments
RESULTS = Path(__file__).parent / "results"
DIGITS = 4  # significant digits of every figure: more than any claim needs, few enough to be reproducible
SELF_BLEU_TEXTS = 16  # self-BLEU compares all pairs of texts, so it uses only the first few


# ----------------------------------------------------------------------------------------------------------------------
# The files


def names() -> list[str]:
    """The names of all experiments, computed or not: the modules of this package."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def named(name: str) -> "Experiment":
    """The experiment of a module in this folder."""
    return import_module(f"{__package__}.{name}").EXPERIMENT


def results(name: str) -> dict:
    """The committed results of a sweep.

    Returns
    -------
    dict
        ``"setting"``: what was the same for all rows; ``"rows"``: a dict from each row's name to its figures.

    Raises
    ------
    ValueError
        If there are no results with that name, or the file is not valid.
    """
    known = sorted(path.stem for path in RESULTS.glob("*.json"))
    if name not in known:
        how = f"python -m tutorlib experiment {name if name in names() else 'NAME'}"
        raise ValueError(
            f"there are no results of a sweep {name!r}; there are: {', '.join(known) or 'none yet'}. `{how}` computes "
            "them"
        )
    found = read_json(RESULTS / f"{name}.json", f"restore it, or compute it: `python -m tutorlib experiment {name}`")
    if not isinstance(found, dict) or not all(isinstance(found.get(key), dict) for key in ("setting", "rows")):
        raise ValueError(f'{RESULTS / f"{name}.json"} must hold "setting" and "rows"')
    return found


def rounded(value):
    """`value` with every float in it rounded to `DIGITS` significant digits, as it is written to a file.

    This includes floats inside dicts, lists and tuples (a tuple becomes a list). NaN and infinite numbers become None,
    which JSON can store and which equals itself. So ``rounded(named(...).row(name)) == results(...)["rows"][name]``
    compares a row.
    """
    if isinstance(value, Mapping):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value


def write(path: Path, setting: Mapping, rows: Mapping[str, Mapping]) -> Path:
    """Write results, rounded, and return the file's path. If the program is killed, the old file stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # One line per row, so that a changed row shows as one changed line.
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(rounded(row))}" for name, row in rows.items())
    write_text(path, f'{{\n "setting": {json.dumps(setting)},\n "rows": {{\n{lines}\n }}\n}}\n')
    return path


def _read(path: Path, setting) -> dict | None:
    """The rows in a file; None if there is no file, or if it was made with another setting."""
    if not path.is_file():
        return None
    found = read_json(path, "delete it to compute its rows again")
    same = isinstance(found, dict) and found.get("setting") == json.loads(json.dumps(setting))
    return found.get("rows") if same else None


# ----------------------------------------------------------------------------------------------------------------------
# Computing them


@cache
def bundled(family: str = "storyworld", dtype: str = "float32") -> models.Family:
    """A family on the CPU, so that a row has the same figures on every machine."""
    return models.load(family, device="cpu", dtype=dtype)


@dataclass(frozen=True)
class Experiment:
    """A long comparison whose results are stored in a file.

    Attributes
    ----------
    name : str
        That of the module and of the file ``results/NAME.json``.
    setting : mapping
        What is the same for all rows (prompts, tokens, seed, …), as plain numbers and strings. It is stored too.
    rows : mapping
        What differs: from a row's name to its warps or parameters, in the order of the rows.
    figures : function (family, name) -> dict
        The figures of one row. They depend only on the family, `setting` and ``rows[name]``.
    family : str
        The family for `bundled`.
    """

    name: str
    setting: Setting
    rows: Mapping[str, Any]
    figures: Callable[[Any, str], Mapping]
    family: str = "storyworld"

    def row(self, name: str) -> Mapping:
        """Compute the figures of one row."""
        return self.figures(bundled(self.family), name)

    def run(self, *, only: Sequence[str] = (), progress: bool = True) -> Path:
        """Compute the rows and write the results; continue after the rows of an interrupted run.

        Each finished row is stored at once in ``results/NAME.partial``. The same call with the same `setting` reads
        these rows instead of computing them again. When all rows are done, the results file is replaced and the partial
        file removed. After a change of the code, delete the partial file yourself to start again.

        Parameters
        ----------
        only : sequence of str
            Compute only these rows, even if they exist. The other rows of the file stay as they are. If there is no
            file yet, these rows go into the partial one.
        progress : bool
            Whether to show a progress bar.

        Returns
        -------
        Path
            The file that contains the rows: the partial one, if some are still missing.

        Raises
        ------
        ValueError
            If a name in `only` is not a row, or if `only` is given and the file was made with another setting or lacks
            other rows.
        """
        name, rows, setting = self.name, list(self.rows), self.setting
        path, partial = RESULTS / f"{name}.json", RESULTS / f"{name}.partial"
        unknown = [row for row in only if row not in rows]
        if unknown:
            raise ValueError(
                f"{name} has no row {', '.join(map(repr, unknown))}; its rows are {', '.join(map(repr, rows))}"
            )
        file = path if only and path.is_file() else partial
        done = _read(file, setting)
        if done is None and file == path:
            raise ValueError(
                f"{path.name} was made with another setting than {dict(setting)}: compute all rows, without only"
            )
        stored = done or {}
        done = {row: stored[row] for row in rows if row in stored}  # rows that no longer exist are dropped
        lacking = [row for row in rows if row not in done and row not in only]
        if lacking and file == path:
            raise ValueError(
                f"{path.name} also lacks {', '.join(map(repr, lacking))}: name these rows as well, or compute all rows"
            )
        todo = list(only) or [row for row in rows if row not in done]
        began = len(rows) - len(todo)
        for row in tqdm(todo, desc=name, unit="row", initial=began, total=len(rows), disable=not progress):
            done[row] = self.row(row)
            done = {row: done[row] for row in rows if row in done}
            write(file, setting, done)
        if len(done) < len(rows):
            return file
        write(path, setting, done)
        partial.unlink(missing_ok=True)
        return path


# ----------------------------------------------------------------------------------------------------------------------
# What sweeps of sampled stories have in common


def village_prompts(count: int) -> list[str]:
    """The beginnings of `count` village stories, none of which a bundled model was trained on. The same every time."""
    return [opening(f"sweep {number}") for number in range(count)]


def counts(traces: Sequence) -> dict:
    """The ``tokens`` of some traces, the ``calls`` of the target (prompts included), and ``per_call``, their ratio."""
    tokens, calls = sum(len(trace.tokens) for trace in traces), sum(trace.target_calls for trace in traces)
    return {"tokens": tokens, "calls": calls, "per_call": tokens / calls}


def per_call_interval(traces) -> list[float]:
    """An interval of 95 % for ``per_call`` of `counts`, from resampling the texts."""
    pairs = [(len(trace.tokens), trace.target_calls) for trace in traces]
    return list(measures.bootstrap_interval(*zip(*pairs, strict=True)))


def figures(lm, prompts: Sequence[str | list[int]], traces: Sequence) -> dict:
    """Variety, truth and probability of the texts written after some prompts, as one row of a sweep.

    Parameters
    ----------
    lm : LM
        Computes the probabilities of the texts, without warps.
    prompts : sequence of str or lists of int
    traces : sequence of Trace
        One for each prompt; any objects with `tokens` (the new ones) and `text` will do.

    Returns
    -------
    dict
        The figures are defined in `tutorlib.measures.text`. A figure is NaN if there is nothing to count.

        - ``distinct_1``, ``distinct_2``: over all texts together;
        - ``entropy_1`` (bits), ``repetition_4``: of each text, averaged;
        - ``self_bleu``: of the first `SELF_BLEU_TEXTS` texts; NaN for fewer than two;
        - ``sentences``: the number of added sentences; ``readable``: the share of them that can be parsed;
          ``consistent``: the share of those that contradict nothing; and ``readable_interval``,
          ``consistent_interval``: 95 % intervals [low, high] for both, from resampling the prompts;
        - ``new_sentences``: the share of sentences that did not occur before, word for word, in the same story;
        - ``length``: the mean number of tokens in a text;
        - ``perplexity``: over all tokens together, including the stop token, which the other figures leave out. Rounded
          to two decimals, because it is the only figure that depends on the last bits of the model's arithmetic, which
          differ between processors.
    """
    if len(prompts) != len(traces) or not len(prompts):
        raise ValueError(f"expected a trace for each prompt; got {len(prompts)} prompts and {len(traces)} traces")
    texts = [without_stop(trace.tokens, lm) for trace in traces]
    read = [prompt if isinstance(prompt, str) else lm.decode(prompt) for prompt in prompts]
    counts = [measures.consistency(prompt, trace.text) for prompt, trace in zip(read, traces)]
    sentences, readable, consistent, new = zip(*counts)
    total = sum(counts, start=measures.Consistency())
    judged = [
        measures.log_probabilities(lm, prompt, trace.tokens) for prompt, trace in zip(prompts, traces) if trace.tokens
    ]
    surprise = sum(-float(logs.sum()) for logs in judged) / max(sum(map(len, judged)), 1)
    return {
        "distinct_1": measures.distinct_n(texts, 1),
        "distinct_2": measures.distinct_n(texts, 2),
        "entropy_1": _mean(measures.ngram_entropy(text, 1) for text in texts),
        "repetition_4": _mean(measures.repetition(text, 4) for text in texts),
        "self_bleu": measures.self_bleu(texts[:SELF_BLEU_TEXTS]) if len(texts) > 1 else math.nan,
        "sentences": total.sentences,
        "readable": total.share_readable,
        "readable_interval": measures.bootstrap_interval(readable, sentences),
        "consistent": total.share_consistent,
        "consistent_interval": measures.bootstrap_interval(consistent, readable),
        "new_sentences": total.new / total.sentences if total.sentences else math.nan,
        "length": fmean(map(len, texts)),
        "perplexity": round(math.exp(surprise), 2) if judged else math.nan,
    }


def without_stop(tokens, lm):
    """Tokens without the stop token at their end, if there is one."""
    return tokens[:-1] if tokens and tokens[-1] in lm.stop_tokens else tokens


def _mean(values) -> float:
    """The mean of the values that are not NaN; NaN if there are none."""
    values = [value for value in values if not math.isnan(value)]
    return fmean(values) if values else math.nan
