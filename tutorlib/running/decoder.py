"""Turn a generator of steps into a decoding method with ``@decoder``, which checks every argument at the call.

Calling a method returns its `Steps`, or `BatchSteps` if it takes several prompts. What this file does not do: run them
(`decoding`), or depend on any particular method.
"""

import functools
import inspect
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, overload

import numpy as np

from ..arguments import concrete
from ..model.protocol import is_model
from ..sampling.checks import checked_warp
from ..sampling.randomness import CheckedRandomness, Exhaustive, Greedy, Randomness, Seeded
from ..sampling.warp import one_hot
from .step import Step

if TYPE_CHECKING:
    from ..model.lm import LM

P = ParamSpec("P")
Prompt = str | Sequence[int]  # a text, or the ids of its tokens


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
        generator: Generator[Step, Any, Any],
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

    def __init__(
        self, name: str, lm: "LM", counter: "LM", prompts: list[list[int]], generator: Generator[list[Step], Any, Any]
    ):
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
    vars(call)["__signature__"] = signature.replace(return_annotation=returned.__name__)
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
