"""Long sweeps: a method under many settings, computed once and kept as a small file that the chapters draw.

    python -m tutorlib.sweeps NAME

computes every row of the sweep in ``tutorlib/sweeps/NAME.py`` and writes ``results/NAME.json`` beside it. The module
provides

- ``SETTING``: what is the same for all rows (prompts, tokens, seed, …), as plain numbers and strings;
- ``SETTINGS``: what differs, a dict from a row's name to its warps or parameters, in the order of the rows;
- ``row(lm, name) -> dict``: the figures of one row, computed from nothing but the model, `SETTING` and
  ``SETTINGS[name]``, so that a chapter can compute it anew and compare it with the file;
- ``FAMILY``, where the model is not the bundled target: the name of another family for `models.load`.

There is no list of sweeps to keep: what lies here is one. No sweep is imported by this file, and no model.
"""

import json
import math
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from tqdm import tqdm

from .. import metrics
from ..disk import read_json, write_text
from ..storyworld.questions import opening

RESULTS = Path(__file__).parent / "results"
DIGITS = 4  # significant digits of every figure: more than any claim needs, fewer than rounding can reach
SELF_BLEU_TEXTS = 16  # self-BLEU compares each text with each, so it gets the first few only


# ----------------------------------------------------------------------------------------------------------------------
# The files


def names() -> list[str]:
    """The sweeps there are, computed or not: the modules of this package."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def results(name: str) -> dict:
    """What a sweep found, as it is committed.

    Returns
    -------
    dict
        ``"setting"``: what was the same for all rows; ``"rows"``: a dict from each row's name to its figures.

    Raises
    ------
    ValueError
        When no results of that name are here.
    """
    known = sorted(path.stem for path in RESULTS.glob("*.json"))
    if name not in known:
        how = f"python -m tutorlib.sweeps {name if name in names() else 'NAME'}"
        raise ValueError(
            f"there are no results of a sweep {name!r}; there are: {', '.join(known) or 'none yet'}. `{how}` computes "
            "them"
        )
    found = read_json(RESULTS / f"{name}.json", f"restore it, or make it anew: `python -m tutorlib.sweeps {name}`")
    if not isinstance(found, dict) or not all(isinstance(found.get(key), dict) for key in ("setting", "rows")):
        raise ValueError(f'{RESULTS / f"{name}.json"} must hold "setting" and "rows"')
    return found


def write(name: str, setting: Mapping, rows: Mapping[str, Mapping]) -> Path:
    """Write a sweep's results, rounded, and return the file's path. A run that is killed leaves the old file."""
    return _write(RESULTS / f"{name}.json", setting, rows)


def rounded(value):
    """`value` with every float in it rounded to `DIGITS` significant digits, as it is written to a file.

    Dicts, lists and tuples are gone through (a tuple becomes a list). What is NaN or infinite becomes None, which JSON
    can hold and which equals itself: so ``rounded(row(lm, name)) == results(...)["rows"][name]`` compares a row.
    """
    if isinstance(value, Mapping):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value


def _write(path: Path, setting, rows) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    # A line a row, so that a change of one shows as one changed line.
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(rounded(row))}" for name, row in rows.items())
    write_text(path, f'{{\n "setting": {json.dumps(setting)},\n "rows": {{\n{lines}\n }}\n}}\n')
    return path


def _read(path: Path, setting) -> dict | None:
    """The rows in a file; None where there is no file, or it was made in another setting."""
    if not path.is_file():
        return None
    found = read_json(path, "delete it to compute its rows anew")
    same = isinstance(found, dict) and found.get("setting") == json.loads(json.dumps(setting))
    return found.get("rows") if same else None


# ----------------------------------------------------------------------------------------------------------------------
# Computing them


def sweep(
    name: str,
    setting: Mapping,
    rows: Iterable[str],
    make_row: Callable[[str], Mapping],
    *,
    only: Sequence[str] = (),
    progress: bool = True,
) -> Path:
    """Compute the rows of a sweep and write its results; go on where a killed run was.

    Each finished row is put down at once in ``results/NAME.partial``. The same call takes rows from there, as long as
    `setting` is the same; only when all are done is the results' file replaced, and the partial one removed. Remove
    it yourself to begin anew after a change of the code.

    Parameters
    ----------
    name : str
    setting : mapping
        What is the same for all rows; goes into the file.
    rows : iterable of str
        The names of all rows, in order.
    make_row : function from a name to a dict of figures
    only : sequence of str
        Compute just these, anew. The other rows of the file stay as they are; where there is no file yet, these go
        into the partial one.
    progress : bool
        Whether to show a progress bar.

    Returns
    -------
    Path
        The file that holds the rows: the partial one, where some are missing still.

    Raises
    ------
    ValueError
        For a name in `only` that is no row, or a file made in another setting, which cannot be mended row by row.
    """
    rows, path, partial = list(rows), RESULTS / f"{name}.json", RESULTS / f"{name}.partial"
    unknown = [row for row in only if row not in rows]
    if unknown:
        raise ValueError(
            f"{name} has no row {', '.join(map(repr, unknown))}; its rows are {', '.join(map(repr, rows))}"
        )
    file = path if only and path.is_file() else partial
    done = _read(file, setting)
    if done is None and file == path:
        raise ValueError(
            f"{path.name} was made in another setting than {dict(setting)}: compute all rows, without only"
        )
    done = {row: done[row] for row in rows if row in (done or {})}  # rows that are no longer asked for are dropped
    lacking = [row for row in rows if row not in done and row not in only]
    if lacking and file == path:
        raise ValueError(
            f"{path.name} lacks {', '.join(map(repr, lacking))} too: name them as well, or compute all rows"
        )
    todo = list(only) or [row for row in rows if row not in done]
    for row in tqdm(todo, desc=name, unit="row", initial=len(rows) - len(todo), total=len(rows), disable=not progress):
        done[row] = make_row(row)
        done = {row: done[row] for row in rows if row in done}
        _write(file, setting, done)
    if len(done) < len(rows):
        return file
    write(name, setting, done)
    partial.unlink(missing_ok=True)
    return path


# ----------------------------------------------------------------------------------------------------------------------
# What sweeps of sampled stories have in common


def village_prompts(count: int) -> list[str]:
    """The beginnings of `count` village stories, none of which a bundled model was trained on. The same every time."""
    return [opening(f"sweep {number}") for number in range(count)]


def figures(lm, prompts: Sequence[str], traces: Sequence) -> dict:
    """Variety, truth and probability of what was written after some prompts, as one row of a sweep.

    Parameters
    ----------
    lm : LM
        Judges how probable the texts are, unwarped.
    prompts : sequence of str
    traces : sequence of Trace
        One for each prompt; any objects with `tokens` (the new ones) and `text` will do.

    Returns
    -------
    dict
        See `tutorlib.metrics.text` for what each figure is. NaN where there was nothing to count.

        - ``distinct_1``, ``distinct_2``: over all texts together;
        - ``entropy_1`` (bits), ``repetition_4``: of each text, averaged;
        - ``self_bleu``: of the first `SELF_BLEU_TEXTS` texts; NaN for fewer than two;
        - ``sentences``: how many were added; ``readable``: what share of them can be read; ``consistent``: what share
          of those contradicts nothing; and ``readable_interval``, ``consistent_interval``: [low, high] of both, at a
          level of 0.95, from resampling prompts;
        - ``new_sentences``: what share was not said before, word for word, in the same story;
        - ``length``: tokens, the mean over texts;
        - ``perplexity``: over all tokens together, the stop token included, which the other figures leave out. To two
          decimals: it alone hangs on the last bits of the model's arithmetic, which differ between processors.
    """
    if len(prompts) != len(traces) or not len(prompts):
        raise ValueError(f"expected a trace for each prompt; got {len(prompts)} prompts and {len(traces)} traces")
    texts = [_without_stop(trace.tokens, lm) for trace in traces]
    counts = [metrics.consistency(prompt, trace.text) for prompt, trace in zip(prompts, traces)]
    sentences, readable, consistent, new = zip(*counts)
    total = sum(counts)
    judged = [
        metrics.log_probabilities(lm, prompt, trace.tokens) for prompt, trace in zip(prompts, traces) if trace.tokens
    ]
    surprise = sum(-float(logs.sum()) for logs in judged) / max(sum(map(len, judged)), 1)
    return {
        "distinct_1": metrics.distinct_n(texts, 1),
        "distinct_2": metrics.distinct_n(texts, 2),
        "entropy_1": _mean(metrics.ngram_entropy(text, 1) for text in texts),
        "repetition_4": _mean(metrics.repetition(text, 4) for text in texts),
        "self_bleu": metrics.self_bleu(texts[:SELF_BLEU_TEXTS]) if len(texts) > 1 else math.nan,
        "sentences": total.sentences,
        "readable": total.share_readable,
        "readable_interval": metrics.bootstrap_interval(readable, sentences),
        "consistent": total.share_consistent,
        "consistent_interval": metrics.bootstrap_interval(consistent, readable),
        "new_sentences": total.new / total.sentences if total.sentences else math.nan,
        "length": fmean(map(len, texts)),
        "perplexity": round(math.exp(surprise), 2) if judged else math.nan,
    }


def _without_stop(tokens, lm):
    return tokens[:-1] if tokens and tokens[-1] in lm.stop_tokens else tokens


def _mean(values) -> float:
    """The mean of those that are numbers; NaN when none is."""
    values = [value for value in values if not math.isnan(value)]
    return fmean(values) if values else math.nan
