"""Run a method with ``run``, or with ``run_batch`` if it takes several prompts.

`run` cuts the last step to fit, times the run, and returns a `Trace`. What this file does not do: turn a generator of
steps into a method (`decoder`), or depend on any particular method.
"""

import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tqdm import tqdm

from .decoder import BatchSteps
from .decoder import decoder as decoder  # for those who import it from here
from .step import Step
from .trace import Text, TextStream, Trace

# How long an automatic progress bar waits before it appears, in seconds.
PROGRESS_DELAY = 2.0


def run(
    steps: Iterable[Step],
    max_new_tokens: int | None = None,
    stop: Iterable[int] | None = None,
    *,
    on_text: Callable[[str], Any] | None = None,
    progress: bool | None = None,
) -> Trace:
    """Run a method until the budget is used up, a stop token appears, the context is full, or the method ends.

    If you press Ctrl-C, the trace so far is returned, with ``stopped == "interrupted"`` (without the step that was
    being computed at that moment). Errors in the method or the model, such as NaN logits, are raised.

    Parameters
    ----------
    steps : iterable of Step
        The result of calling a method, for example ``greedy(lm, "Once upon a time")``. It can be run only once. Any
        other iterable of steps works too; if it has no attribute `lm`, the trace has no text and no count of calls, and
        the context is not checked.
    max_new_tokens : int, optional
        The budget, at least 1. If the last step goes beyond it, the step is cut, and its number of accepted tokens is
        reduced. It may be left out for searches, which take it as an argument:
        ``run(beam_search(..., max_new_tokens=40))``.
    stop : token ids, optional
        The run ends when one of them appears; it is then the last of the new tokens. None means the stop tokens of the
        model (``lm.stop_tokens``), and ``()`` means no stop tokens.
    on_text : function, optional
        Called with each new piece of text as it comes. All pieces joined give ``trace.text``. A piece never ends in the
        middle of a character, even if the character is spread over several tokens.
    progress : bool, optional
        Whether to show a progress bar on stderr. With None, a bar is shown only in a terminal, and only after two
        seconds.

    Returns
    -------
    Trace

    Raises
    ------
    ValueError
        If the budget is missing or below 1, a stop id is outside the vocabulary, or the steps have been run before.
    TypeError
        If the method yields something that is not a `Step`, or makes several texts (then use `run_batch`).
    """
    if isinstance(steps, BatchSteps):
        raise TypeError(f"{steps.name} makes several texts at once: use run_batch, which returns a trace for each")
    lm = getattr(steps, "lm", None)
    prompt = list(getattr(steps, "prompt", []))
    if max_new_tokens is None:
        max_new_tokens = getattr(steps, "max_new_tokens", None)
    if max_new_tokens is None:
        name = getattr(steps, "name", "what yields these steps")
        raise ValueError(f"{name} goes on without an end: give the number of tokens, run(steps, max_new_tokens=40)")
    budget = checked_budget(max_new_tokens)
    stop = checked_stop(stop, lm)
    refuse_begun(steps)
    text = Text(steps, prompt, budget, stop)
    if on_text and not text.is_readable:
        raise ValueError("on_text needs a model with a tokenizer to make text with: LM(model, tokenizer)")
    stream = TextStream(lm, on_text) if lm is not None and on_text else None
    _pull_all(steps, [text], progress, stream)
    trace = text.trace()
    if stream is not None:
        stream.close(trace.tokens)
    return trace


def run_batch(
    steps: BatchSteps, max_new_tokens: int, stop: Iterable[int] | None = None, *, progress: bool | None = None
) -> list[Trace]:
    """Run a method for several prompts, until each text has ended as it would have ended alone.

    A row that has used up its budget, reached a stop token or filled its context is left out of the following rounds.

    Parameters
    ----------
    steps : BatchSteps
        The result of calling a method for several prompts. It can be run only once.
    max_new_tokens : int
        The budget of each row, at least 1.
    stop, progress
        As for `run`. Ctrl-C returns the traces so far.

    Returns
    -------
    list of Trace, one for each prompt
        `target_calls` and `seconds` of a row are counted up to its end, and a call that several rows share counts for
        each of them. So the time of the whole batch is that of its slowest row.

    Raises
    ------
    ValueError
        If the budget is below 1, a stop id is outside the vocabulary, or the steps have been run before.
    TypeError
        If `steps` belong to a single text (then use `run`), or the method yields something that is not a list of steps.
    """
    if not isinstance(steps, BatchSteps):
        raise TypeError(f"run_batch needs what a method for several prompts returned, got {steps!r}: for one, use run")
    budget, stop = checked_budget(max_new_tokens), checked_stop(stop, steps.lm)
    refuse_begun(steps)
    texts = [Text(steps, prompt, budget, stop) for prompt in steps.prompts]
    _pull_all(steps, texts, progress)
    return [text.trace() for text in texts]


def pull(steps: Iterable[Step] | BatchSteps, texts: list[Text]) -> Iterator[tuple[Text, Step]]:
    """Start some texts, and yield steps until all have ended: each step together with the text it belongs to."""
    for text in texts:
        text.begin()
    source = steps if isinstance(steps, BatchSteps) else iter(steps)
    while going := {row for row, text in enumerate(texts) if text.stopped is None}:
        try:
            made = source.next_round(going) if isinstance(source, BatchSteps) else [next(source)]
        except StopIteration as end:
            for row in going:  # a method returns "context" if it ended because a model's context is full
                texts[row].end("context" if end.value == "context" else "end")
            return
        if not isinstance(made, list) or len(made) != len(texts):
            raise TypeError(f"a method must yield a list of {len(texts)} steps, one a prompt; it yielded {made!r}")
        for row in sorted(going):
            yield texts[row], made[row]


def _pull_all(steps, texts: list[Text], progress: bool | None, stream: TextStream | None = None) -> None:
    """Add steps to the texts until all have ended or Ctrl-C is pressed; update the progress bar and the text stream."""
    bar = progress_bar(sum(text.limit for text in texts), progress)
    try:
        for text, step in pull(steps, texts):
            step = text.add(step)
            if bar is not None:
                bar.update(len(step.tokens))
            if stream is not None and step.tokens:
                stream.write(text.tokens)
    except KeyboardInterrupt:
        for text in texts:
            if text.stopped is None:
                text.end("interrupted")
    finally:
        if bar is not None:
            bar.close()
        if hasattr(steps, "close"):
            steps.close()


def refuse_begun(steps) -> None:
    """Raise ValueError if the steps have been run before."""
    if getattr(steps, "begun", False):
        raise ValueError("these steps have already been run, or begun: call the method again for fresh ones")


def checked_budget(max_new_tokens) -> int:
    """Return the budget as an int; raise ValueError if it is not a whole number of at least 1."""
    try:
        budget = operator.index(max_new_tokens)
    except TypeError:
        raise ValueError(f"max_new_tokens must be a whole number, got {max_new_tokens!r}") from None
    if budget < 1 or isinstance(max_new_tokens, bool):
        raise ValueError(f"max_new_tokens must be at least 1, got {max_new_tokens!r}: a run makes at least one token")
    return budget


def checked_stop(stop, lm) -> frozenset[int]:
    """Return the stop ids as a set; raise ValueError if one of them is not a token of the model."""
    if stop is None:
        return frozenset(getattr(lm, "stop_tokens", ()))
    if isinstance(stop, str | bytes | Mapping) or not isinstance(stop, Iterable):
        raise ValueError(f"stop must be token ids such as [2], () for none or None for the model's own; got {stop!r}")
    stop = list(stop)
    for token in stop:
        if isinstance(token, bool) or not hasattr(token, "__index__"):
            raise ValueError(f"stop must hold token ids, got {token!r}: encode text first, lm.encode(...)")
        if lm is not None and not 0 <= token < lm.vocab_size:
            raise ValueError(f"stop token {token} is outside the vocabulary, whose ids are 0 to {lm.vocab_size - 1}")
    return frozenset(int(token) for token in stop)


def progress_bar(total: int, progress: bool | None) -> tqdm | None:
    """A progress bar on stderr, or None. With ``progress=None``, a bar appears only in a terminal and after a delay."""
    if progress is None:
        progress, delay = sys.stderr.isatty(), PROGRESS_DELAY
    else:
        delay = 0.0
    return tqdm(total=total, unit="token", delay=delay, leave=False) if progress else None
