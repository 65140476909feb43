"""Turn a generator of steps into a decoding method with ``@decoder``, and run it with ``run``.

This file does not depend on any particular method. `run` cuts the last step to fit, times the run, and returns a
`Trace`.
"""

import functools
import inspect
import operator
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, overload

import numpy as np
from tqdm import tqdm

from ..arguments import concrete
from ..model.protocol import is_model
from ..sampling.randomness import CheckedRandomness, Exhaustive, Greedy, Randomness, Seeded
from ..sampling.warp import checked_warp, one_hot
from .step import Step
from .trace import Text, TextStream, Trace

if TYPE_CHECKING:
    from ..model.lm import LM

P = ParamSpec("P")
Prompt = str | Sequence[int]  # a text, or the ids of its tokens

# How long an automatic progress bar waits before it appears, in seconds.
PROGRESS_DELAY = 2.0


class Steps:
    """The result of calling a method: an iterator over its steps, not started yet, with the model and the prompt.

    Usually it is passed to `run`; ``next(steps)`` returns one `Step` at a time.

    Attributes
    ----------
    name : str
        The method's name.
    lm : LM
        The method's first argument: the model whose text is written.
    counter : LM
        The copy of this model that the method uses, which counts only the calls of these steps (see `LM.counted`).
    prompt : list of int
        The prompt's tokens.
    begun : bool
        Whether the first step has been requested.
    max_new_tokens : int or None
        The budget, if the method is a search and takes it as an argument.
    """

    def __init__(
        self,
        name: str,
        lm: "LM",
        counter: "LM",
        prompt: list[int],
        generator: Iterator[Step],
        max_new_tokens: int | None = None,
    ):
        self.name, self.lm, self.counter, self.prompt, self.begun = name, lm, counter, prompt, False
        self.max_new_tokens = max_new_tokens
        self._generator = generator

    def __iter__(self) -> "Steps":
        return self

    def __next__(self) -> Step:
        self.begun = True
        return next(self._generator)

    def close(self) -> None:
        """Release the method's caches. There are no more steps after this."""
        self.begun = True
        self._generator.close()

    def __repr__(self) -> str:
        return f"<the steps of {self.name}, {'begun' if self.begun else 'not begun'}: pass them to run()>"


class BatchSteps:
    """The result of calling a method for several prompts: an iterator over its rounds. Pass it to `run_batch`.

    A round is a list with one `Step` for each prompt; the step is empty for a row that has ended. The ``yield`` in the
    method returns the set of rows that should continue (None means all), so that the method computes no others.

    Attributes
    ----------
    name, lm, counter, begun
        As for `Steps`.
    prompts : list of lists of int
        Each prompt's tokens.
    """

    def __init__(self, name: str, lm: "LM", counter: "LM", prompts: list[list[int]], generator: Generator):
        self.name, self.lm, self.counter, self.prompts, self.begun = name, lm, counter, prompts, False
        self._generator = generator

    def __iter__(self) -> "BatchSteps":
        return self

    def __next__(self) -> list[Step]:
        return self.next_round()

    def next_round(self, rows: set[int] | None = None) -> list[Step]:
        """The next round for these rows only; None means all. A row that is left out once cannot come back.

        The first round always includes all rows, because a generator can receive a value only after it has started.
        """
        rows, self.begun = rows if self.begun else None, True
        return self._generator.send(rows)

    def close(self) -> None:
        """Release the method's caches. There are no more rounds after this."""
        self.begun = True
        self._generator.close()

    def __repr__(self) -> str:
        return f"<the rounds of {self.name}, {'begun' if self.begun else 'not begun'}: pass them to run_batch()>"


class Decorator(Protocol):
    """The type of ``decoder(check=...)``, which turns a generator function into a method."""

    @overload
    def __call__(self, method: Callable[P, Iterator[Step]], /) -> Callable[P, Steps]: ...
    @overload
    def __call__(self, method: Callable[P, Iterator[list[Step]]], /) -> Callable[P, BatchSteps]: ...


@overload
def decoder(
    method: Callable[P, Iterator[Step]],
    *,
    check: Callable[..., Any] | None = None,
    renamed: Mapping[str, str] | None = None,
) -> Callable[P, Steps]: ...
@overload
def decoder(
    method: Callable[P, Iterator[list[Step]]],
    *,
    check: Callable[..., Any] | None = None,
    renamed: Mapping[str, str] | None = None,
) -> Callable[P, BatchSteps]: ...
@overload
def decoder(
    method: None = None, *, check: Callable[..., Any] | None = None, renamed: Mapping[str, str] | None = None
) -> Decorator: ...
def decoder(
    method: Callable[..., Iterator[Any]] | None = None,
    *,
    check: Callable[..., Any] | None = None,
    renamed: Mapping[str, str] | None = None,
) -> Callable[..., Any]:
    """Turn a generator function ``method(lm, prompt, ...)`` that yields steps into a decoding method.

    Calling the method then returns `Steps`. All arguments are checked at that call, before any model is run:

    - The first argument must be an `LM`. `prompt` may be a string or a list of token ids; the method receives ids.
    - ``rng`` (if the method has this argument) must have `choose` and `accept`. ``rng=None`` means greedy: the method
      receives a `Greedy` and a warp that ends in `one_hot`, so it needs no code of its own for greedy decoding.
    - ``warp`` (if the method has this argument) must be a sequence of functions.
    - A method for several texts has ``prompts`` and ``rngs`` in place of ``prompt`` and ``rng``: lists with one entry
      for each text. It yields lists of steps, and calling it returns `BatchSteps`.
    - `check` is called with those of the method's arguments that it has as parameters. It raises ValueError if one is
      wrong.

    Parameters
    ----------
    method : generator function
        Its first argument is the model whose text is written; one argument is called ``prompt`` (or ``prompts``).
    check : function, optional
        For example ``lambda gamma: ...``.
    renamed : mapping, optional
        From names that arguments had in the release before to the names that they have now. Both can be given.

    Returns
    -------
    function with the same arguments, returning `Steps` (or `BatchSteps`)

    Raises
    ------
    ValueError
        When the method is called with a bad argument. (TypeError for a missing or unknown argument, as in any call.)

    Examples
    --------
    >>> @decoder
    ... def parrot(lm, prompt):
    ...     while True:
    ...         yield Step([prompt[-1]])
    """
    if method is None:
        return functools.partial(decoder, check=check, renamed=renamed)
    signature = inspect.signature(method)
    names = list(signature.parameters)
    returned = BatchSteps if "prompts" in names else Steps
    plain = [parameter.replace(annotation=parameter.empty) for parameter in signature.parameters.values()]
    how = inspect.Signature(plain)  # shown in error messages, without types
    if not inspect.isgeneratorfunction(method) or not {"prompt", "prompts"} & set(names[1:]):
        raise TypeError(f"@decoder needs a generator function (lm, ..., prompt, ...) that yields steps; got {method!r}")
    checked = list(inspect.signature(check).parameters) if check else []

    @functools.wraps(method)
    def call(*args, **kwargs) -> Steps | BatchSteps:
        for old, new in (renamed or {}).items():
            if old in kwargs and new not in kwargs:
                kwargs[new] = kwargs.pop(old)
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            hint = " (rng=Seeded(7), for instance, or rng=None for greedy)" if "'rng'" in str(error) else ""
            raise TypeError(f"{method.__name__}: {error}{hint}; call it as {method.__name__}{how}") from None
        bound.apply_defaults()
        given = bound.arguments
        for name, value in given.items():  # NumPy numbers become plain ones, and iterators lists
            given[name] = value.item() if isinstance(value, np.generic) else concrete(value)
        lm = given[names[0]]
        if not is_model(lm):
            raise ValueError(
                f"{method.__name__} needs an LM as its argument {names[0]!r}, got {type(lm).__name__}: "
                + ("pass its .target" if hasattr(lm, "target") else "wrap a transformers model as LM(model, tokenizer)")
            )
        given[names[0]] = counter = lm.counted() if hasattr(lm, "counted") else lm
        if "prompts" in given:
            given["prompts"] = prompts = checked_prompts(given["prompts"], lm)
        else:
            given["prompt"] = prompt = lm.prompt_tokens(given["prompt"])
        if "warp" in given:
            given["warp"] = checked_warp(given["warp"])
        draws = given.keys() & {"rng", "rngs"}
        if "warp" in given and any(given[name] is None for name in draws):
            given["warp"] = (*given["warp"], one_hot)
        if "rng" in draws:
            given["rng"] = Greedy() if given["rng"] is None else checked_rng(given["rng"])
        if "rngs" in draws:
            given["rngs"] = checked_rngs(given["rngs"], len(prompts))
        if check:
            check(**{name: given[name] for name in checked})
        generator = method(*bound.args, **bound.kwargs)
        if "prompts" in given:
            return BatchSteps(method.__name__, lm, counter, [list(prompt) for prompt in prompts], generator)
        return Steps(method.__name__, lm, counter, list(prompt), generator, given.get("max_new_tokens"))

    call.__annotations__ = {**method.__annotations__, "return": returned.__name__}
    call.__signature__ = signature.replace(return_annotation=returned.__name__)
    return call


def checked_prompts(prompts, lm) -> list[list[int]]:
    """Return prompts as lists of token ids; raise ValueError if they are not a list of at least one prompt."""
    if isinstance(prompts, str | bytes | Mapping | Set) or not isinstance(prompts, Iterable):
        raise ValueError(f"prompts must be a list of prompts, got {prompts!r}: for one prompt write [prompt]")
    prompts = list(prompts)
    if not prompts:
        raise ValueError("prompts is empty: a batch needs at least one prompt")
    checked = []
    for row, prompt in enumerate(prompts):
        try:
            checked.append(lm.prompt_tokens(prompt))
        except ValueError as error:
            raise ValueError(f"prompt {row} of {len(prompts)}: {error}") from None
    return checked


def checked_rng(rng) -> Randomness:
    """Return `rng`, wrapped so that its answers are checked if its class is not from this package; ValueError if it is
    wrong.
    """
    if not isinstance(rng, Randomness) or isinstance(rng, type):
        raise ValueError(
            f"rng must have the methods choose and accept, as Seeded(7) has, or be None for greedy; got {rng!r}"
        )
    return rng if type(rng) in (Seeded, Greedy, Exhaustive) else CheckedRandomness(rng)


def checked_rngs(rngs, count: int) -> list[Randomness]:
    """Return one `Randomness` for each of `count` texts (None means greedy for all); raise ValueError if that fails."""
    if rngs is None:
        return [Greedy()] * count
    one_each = f"rngs must hold one for each of the {count} prompts, as [Seeded(seed) for seed in range({count})] does"
    if not isinstance(rngs, Sequence):
        raise ValueError(f"{one_each}, or be None for greedy; got {rngs!r}")
    if len(rngs) != count:
        raise ValueError(f"{one_each}; got {len(rngs)}")
    return [checked_rng(rng) for rng in rngs]


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
    stream = TextStream(lm, on_text) if on_text else None
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
