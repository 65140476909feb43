"""Turn a generator of steps into a method with ``@decoder``, and pull its steps with ``run``.

No method is named here. `run` cuts the last step to fit, times the run, and returns a `Trace`.
"""

import functools
import inspect
import operator
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, overload

import numpy as np
from tqdm import tqdm

from .arguments import concrete
from .randomness import CheckedRandomness, Exhaustive, Greedy, Randomness, Seeded
from .step import Step
from .trace import Text, TextStream, Trace
from .warp import checked_warp, one_hot

if TYPE_CHECKING:
    from .lm import LM

P = ParamSpec("P")
Prompt = str | Sequence[int]  # a text, or the ids of its tokens

# How long an automatic progress bar waits before it appears, in seconds.
PROGRESS_DELAY = 2.0


class Steps:
    """What calling a method returns: its steps, not begun yet, with the model and the prompt they are for.

    An iterator of `Step`. `run` is the usual way to use it; ``next(steps)`` looks at one step at a time.

    Attributes
    ----------
    name : str
        The method's name.
    lm : LM
        The method's first argument: the model whose text this is.
    counter : LM
        The same model as the method has it, which counts the calls of these steps alone (see `LM.counted`).
    prompt : list of int
        The prompt's tokens.
    begun : bool
        Whether a step has been asked for.
    max_new_tokens : int or None
        The budget that the method was given, if it is a search, which takes it itself.
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
        """Let go of the method's caches. There are no more steps after this."""
        self.begun = True
        self._generator.close()

    def __repr__(self) -> str:
        return f"<the steps of {self.name}, {'begun' if self.begun else 'not begun'}: pass them to run()>"


class BatchSteps:
    """What calling a method for several prompts returns: its rounds, not begun yet. `run_batch` is the way to use it.

    An iterator of rounds. A round is a list with one `Step` for each prompt; that of a row which has ended is empty.
    The method's ``yield`` hands it the set of rows that are to go on (None: all), so that it computes no others.

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
        """The next round, for these rows alone; rows that are left out once are gone for good. None: all.

        The first round is made for all of them, whatever is asked for: a generator listens only once it has begun.
        """
        rows, self.begun = rows if self.begun else None, True
        return self._generator.send(rows)

    def close(self) -> None:
        """Let go of the method's caches. There are no more rounds after this."""
        self.begun = True
        self._generator.close()

    def __repr__(self) -> str:
        return f"<the rounds of {self.name}, {'begun' if self.begun else 'not begun'}: pass them to run_batch()>"


class Decorator(Protocol):
    """What ``decoder(check=...)`` is: it makes a method of a generator function, as `decoder` does."""

    @overload
    def __call__(self, method: Callable[P, Iterator[Step]], /) -> Callable[P, Steps]: ...
    @overload
    def __call__(self, method: Callable[P, Iterator[list[Step]]], /) -> Callable[P, BatchSteps]: ...


@overload
def decoder(method: Callable[P, Iterator[Step]], *, check: Callable[..., Any] | None = None) -> Callable[P, Steps]: ...
@overload
def decoder(
    method: Callable[P, Iterator[list[Step]]], *, check: Callable[..., Any] | None = None
) -> Callable[P, BatchSteps]: ...
@overload
def decoder(method: None = None, *, check: Callable[..., Any] | None = None) -> Decorator: ...
def decoder(
    method: Callable[..., Iterator[Any]] | None = None, *, check: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """Make a method out of a generator function ``method(lm, prompt, ...)`` that yields steps.

    Calling the method then returns `Steps`, and everything that can be wrong with its arguments is said at that call,
    before any model is asked:

    - the first argument must be an `LM`; `prompt` may be a string or a list of token ids and arrives as ids;
    - ``rng`` (where the method has it) must have `choose` and `accept`. ``rng=None`` is greedy: the method is handed a
      `Greedy` and a warp that ends in `one_hot`, so it needs no greedy branch of its own;
    - ``warp`` (where it has it) must be a sequence of functions;
    - a method for several texts has ``prompts`` and ``rngs`` in place of ``prompt`` and ``rng``: lists, with one entry
      for each text. It yields lists of steps, as `BatchSteps` says, and its call returns these;
    - `check` is called with those of the method's arguments that it names, and raises ValueError for what is wrong.

    Parameters
    ----------
    method : generator function
        Its first argument is the model whose text is written; one argument is called ``prompt`` (or ``prompts``).
    check : function, optional
        For example ``lambda gamma: ...``.

    Returns
    -------
    function with the same arguments, returning `Steps` (or `BatchSteps`)

    Raises
    ------
    ValueError
        At the call of the method, for a bad argument. (TypeError for a missing or unknown one, as in any call.)

    Examples
    --------
    >>> @decoder
    ... def parrot(lm, prompt):
    ...     while True:
    ...         yield Step([prompt[-1]])
    """
    if method is None:
        return functools.partial(decoder, check=check)
    signature = inspect.signature(method)
    names = list(signature.parameters)
    returned = BatchSteps if "prompts" in names else Steps
    plain = [parameter.replace(annotation=parameter.empty) for parameter in signature.parameters.values()]
    how = inspect.Signature(plain)  # as an error message shows it: without types
    if not inspect.isgeneratorfunction(method) or not {"prompt", "prompts"} & set(names[1:]):
        raise TypeError(f"@decoder needs a generator function (lm, ..., prompt, ...) that yields steps; got {method!r}")
    checked = list(inspect.signature(check).parameters) if check else []

    @functools.wraps(method)
    def call(*args, **kwargs) -> Steps | BatchSteps:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            hint = " (rng=Seeded(7), for instance, or rng=None for greedy)" if "'rng'" in str(error) else ""
            raise TypeError(f"{method.__name__}: {error}{hint}; call it as {method.__name__}{how}") from None
        bound.apply_defaults()
        given = bound.arguments
        for name, value in given.items():  # a number of numpy's becomes an ordinary one, and an iterator a list
            given[name] = value.item() if isinstance(value, np.generic) else concrete(value)
        lm = given[names[0]]
        if not hasattr(lm, "session") or not hasattr(lm, "prompt_tokens"):
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
    """Return prompts as lists of token ids; raise ValueError when they are not a list of at least one prompt."""
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
    """Return `rng`, with a check of its answers if it is not one of ours; ValueError when it has not the verbs."""
    if not isinstance(rng, Randomness) or isinstance(rng, type):
        raise ValueError(
            f"rng must have the verbs choose and accept, as Seeded(7) has, or be None for greedy; got {rng!r}"
        )
    return rng if type(rng) in (Seeded, Greedy, Exhaustive) else CheckedRandomness(rng)


def checked_rngs(rngs, count: int) -> list[Randomness]:
    """Return one `Randomness` for each of `count` texts, None meaning greedy for all; or raise ValueError."""
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
    """Pull steps from a method until the budget, a stop token, the context's end or the method's own end.

    Pressing Ctrl-C loses nothing: the trace so far is returned, with ``stopped == "interrupted"`` (a step that was
    being made at that moment is not in it). An error in the method or the model, NaN logits for instance, is raised.

    Parameters
    ----------
    steps : iterable of Step
        What a method returned, for instance ``greedy(lm, "Once upon a time")``. Used up by the run. Any other iterable
        of steps will do; without an `lm` attribute there is no text, no context's end and no count of calls.
    max_new_tokens : int, optional
        The budget, at least 1. A last step that is longer is cut, and its count of accepted tokens with it. It may be
        left out for searches, which have been given it already: ``run(beam_search(..., max_new_tokens=40))``.
    stop : token ids, optional
        The run ends with the first of them, which stays the last of the new tokens. None means the model's own
        (``lm.stop_tokens``), ``()`` means none.
    on_text : function, optional
        Called with each new piece of text as it comes. The pieces together are ``trace.text``; one never ends in the
        middle of a character, which several tokens may share.
    progress : bool, optional
        Whether to show a progress bar on stderr. None shows one only in a terminal, and only once the run has taken
        two seconds.

    Returns
    -------
    Trace

    Raises
    ------
    ValueError
        For a budget below 1 or none at all, a stop id outside the vocabulary, or steps that have been run before.
    TypeError
        When the method yields anything but a `Step`; for a method that makes several texts (use `run_batch`).
    """
    if isinstance(steps, BatchSteps):
        raise TypeError(f"{steps.name} makes several texts at once: use run_batch, which returns a trace for each")
    lm = getattr(steps, "lm", None)
    prompt = list(getattr(steps, "prompt", []))
    if max_new_tokens is None:
        max_new_tokens = getattr(steps, "max_new_tokens", None)
    if max_new_tokens is None:
        name = getattr(steps, "name", "what yields these steps")
        raise ValueError(f"{name} goes on without an end: say how many tokens, run(steps, max_new_tokens=40)")
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
    """Pull rounds from a method for several prompts, until each row has ended as it would have by itself.

    A row that has its budget, a stop token or a full context is left out of the rounds that follow.

    Parameters
    ----------
    steps : BatchSteps
        What a method for several prompts returned. Used up by the run.
    max_new_tokens : int
        The budget of each row, at least 1.
    stop, progress
        As for `run`. Ctrl-C loses nothing here either.

    Returns
    -------
    list of Trace, one for each prompt
        A row's `target_calls` and `seconds` are those up to its end; calls that rows share are counted in each. So the
        whole batch took as long as its slowest row.

    Raises
    ------
    ValueError
        For a budget below 1, a stop id outside the vocabulary, or steps that have been run before.
    TypeError
        When `steps` are those of a single text (`run` is for them), or the method yields anything but lists of steps.
    """
    if not isinstance(steps, BatchSteps):
        raise TypeError(f"run_batch needs what a method for several prompts returned, got {steps!r}: for one, use run")
    budget, stop = checked_budget(max_new_tokens), checked_stop(stop, steps.lm)
    refuse_begun(steps)
    texts = [Text(steps, prompt, budget, stop) for prompt in steps.prompts]
    _pull_all(steps, texts, progress)
    return [text.trace() for text in texts]


def pull(steps: Iterable[Step] | BatchSteps, texts: list[Text]) -> Iterator[tuple[Text, Step]]:
    """Begin some texts, and pull steps until all have ended: each step with the text that it is to be added to."""
    for text in texts:
        text.begin()
    source = steps if isinstance(steps, BatchSteps) else iter(steps)
    while going := {row for row, text in enumerate(texts) if text.stopped is None}:
        try:
            made = source.next_round(going) if isinstance(source, BatchSteps) else [next(source)]
        except StopIteration as end:
            for row in going:  # a method that ends because some model's context is full says so
                texts[row].end("context" if end.value == "context" else "end")
            return
        if not isinstance(made, list) or len(made) != len(texts):
            raise TypeError(f"a method must yield a list of {len(texts)} steps, one a prompt; it yielded {made!r}")
        for row in sorted(going):
            yield texts[row], made[row]


def _pull_all(steps, texts: list[Text], progress: bool | None, stream: TextStream | None = None) -> None:
    """Add steps to the texts until all have ended, or until Ctrl-C; with a progress bar, and a stream of the text."""
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
    """Raise ValueError for steps that have been run before."""
    if getattr(steps, "begun", False):
        raise ValueError("these steps have already been run, or begun: call the method again for fresh ones")


def checked_budget(max_new_tokens) -> int:
    """Return the budget as an int; raise ValueError when it is not a whole number of at least 1."""
    try:
        budget = operator.index(max_new_tokens)
    except TypeError:
        raise ValueError(f"max_new_tokens must be a whole number, got {max_new_tokens!r}") from None
    if budget < 1 or isinstance(max_new_tokens, bool):
        raise ValueError(f"max_new_tokens must be at least 1, got {max_new_tokens!r}: a run makes at least one token")
    return budget


def checked_stop(stop, lm) -> frozenset[int]:
    """Return the stop ids as a set; raise ValueError when one is not a token of the model."""
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
    """A bar on stderr, or None. None asks for one where a person is watching, and there only after a while."""
    if progress is None:
        progress, delay = sys.stderr.isatty(), PROGRESS_DELAY
    else:
        delay = 0.0
    return tqdm(total=total, unit="token", delay=delay, leave=False) if progress else None
