"""A method yields steps; ``run`` pulls them, cuts them to fit, times them, and returns a ``Trace``.

``@decoder`` turns a generator function ``method(lm, prompt, ...)`` into one that checks its arguments at the call.
No method is named here, and nothing is drawn: `Trace.show` asks `tutorlib.viz` for a picture when it is called.
"""

import functools
import inspect
import operator
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tqdm import tqdm

from .arguments import concrete
from .randomness import Checked, Exhaustive, Greedy, Randomness, Seeded
from .tree import TokenTree, ints
from .warp import checked_warp, in_float64, one_hot, probabilities

if TYPE_CHECKING:
    from .lm import LM

# A run keeps the rows of logits behind its candidates until somebody looks at them, which costs nothing in time; past
# this many bytes (a large vocabulary, a long run) it reduces each to its few best at once.
CANDIDATE_BYTES = 16 * 2**20

# How long an automatic progress bar waits before it appears, in seconds.
PROGRESS_DELAY = 2.0


# ----------------------------------------------------------------------------------------------------------------------
# What a method yields


class Candidates(Sequence):
    """What a method weighed for each token it emitted: a list of lists of (token, probability), likeliest first.

    Filled in only when somebody looks, so that a method can offer its candidates on every step for nothing.

    Parameters
    ----------
    logits : tensor of floats, shape (tokens, vocab)
        Rows whose softmax, warped, is the distribution that was weighed. Not changed afterwards.
    count : int
        How many of the likeliest tokens to keep of each row.
    warp, histories
        As for `probabilities`. A `one_hot` at the end is left out: it is how ``rng=None`` chooses, not what it weighs.

    Examples
    --------
    >>> Candidates(torch.tensor([[1.0, 1.0, -torch.inf]]))[0]
    [(0, 0.5), (1, 0.5)]
    """

    def __init__(self, logits: torch.Tensor, count: int = 5, *, warp: Sequence = (), histories=None):
        self._logits: torch.Tensor | None = logits
        self._count = count
        self._warp = warp[:-1] if warp and warp[-1] is one_hot else warp
        self._histories = histories
        self._lists: list[list[tuple[int, float]]] = []

    @property
    def nbytes(self) -> int:
        """Bytes held until somebody looks; 0 afterwards."""
        return 0 if self._logits is None else self._logits.numel() * self._logits.element_size()

    def settled(self) -> list[list[tuple[int, float]]]:
        """Compute the lists, if that has not been done yet, and let go of the rows."""
        if self._logits is not None:
            rows = in_float64(self._logits)
            probs = probabilities(rows, self._warp, self._histories) if self._warp else rows.softmax(-1)
            self._lists = [likeliest(row, self._count) for row in probs]
            self._logits = self._histories = None
        return self._lists

    def __getitem__(self, index):
        if isinstance(index, slice) and self._logits is not None:
            histories = self._histories and self._histories[index]
            return Candidates(self._logits[index], self._count, warp=self._warp, histories=histories)
        return self.settled()[index]

    def __len__(self) -> int:
        return len(self._lists) if self._logits is None else len(self._logits)

    def __eq__(self, other) -> bool:
        return list(self) == list(other) if isinstance(other, Candidates | list) else NotImplemented

    __hash__ = None

    def __repr__(self) -> str:
        return repr(self.settled())


def likeliest(probs: torch.Tensor, count: int) -> list[tuple[int, float]]:
    """The `count` likeliest tokens of one row (vocab,), as (token, probability); none of probability zero.

    Of equal probabilities the lowest id comes first, which `topk` alone does not promise.
    """
    least = probs.topk(min(count, len(probs))).values[-1]
    tokens = ((probs >= least) & (probs > 0)).nonzero()[:, 0].tolist()
    pairs = list(zip(tokens, probs[tokens].tolist(), strict=True))
    return sorted(pairs, key=lambda pair: -pair[1])[:count]


@dataclass
class Step:
    """One step of a method: the tokens it added to the text, and what a reader may want to know of how it got there.

    Only `tokens` is needed. A step without tokens is a search still looking.

    Attributes
    ----------
    tokens : list of int
        The tokens emitted, in order.
    drafted : list of int
        What was guessed beforehand: a chain of tokens, or the tokens of `tree` in its order.
    accepted : int
        How many of `tokens`, counted from the front, were drafted and accepted.
    tree : TokenTree or None
        The tree of candidates, for methods that draft one.
    path : tuple of int
        The nodes of `tree` that were kept, from its root on.
    candidates : list of lists of (token, probability)
        For each token emitted, a few of the likeliest tokens it was chosen from. `Candidates` makes them when needed.
    note : str
        A remark for the reader.
    hypotheses : list
        For searches: what they hold, as lists ``[tokens, score]``.
    score : float or None
        For searches: the score of what was emitted.
    scored : int
        For searches: how many hypotheses the model scored in this step, each with one distribution over what may
        follow it.
    cut : int
        How many tokens `run` cut off the end, to keep the budget or to end at a stop token.
    calls : int or None
        Calls of the target up to the end of this step, as `run` counted them.
    """

    tokens: list[int] = field(default_factory=list)
    drafted: list[int] = field(default_factory=list)
    accepted: int = 0
    tree: TokenTree | None = None
    path: tuple[int, ...] = ()
    candidates: Sequence[list[tuple[int, float]]] = field(default_factory=list)
    note: str = ""
    hypotheses: list = field(default_factory=list)
    score: float | None = None
    scored: int = 0
    cut: int = 0
    calls: int | None = None

    @property
    def judged(self) -> int:
        """How many drafted tokens were judged: the accepted ones, and one more if the next was rejected.

        What was drafted after a rejection was never judged, and neither was what `run` cut off. In a tree, the draw at
        a node is one judgement, however many children it has: the last one counts if no child was taken and there was
        one to take.
        """
        last = self.path[self.accepted - 1] if self.accepted and self.tree is not None else -1
        goes_on = len(self.drafted) > self.accepted if self.tree is None else last in self.tree.parents
        return self.accepted + (goes_on and len(self.tokens) > self.accepted)

    def first(self, count: int) -> "Step":
        """This step as if it had stopped after its first `count` tokens (itself, when it is no longer than that).

        What was drafted beyond them is taken out of the count of drafted tokens too: nobody asked whether it was right.
        """
        if count >= len(self.tokens):
            return self
        accepted = min(self.accepted, count)
        return replace(
            self,
            tokens=self.tokens[:count],
            accepted=accepted,
            drafted=self.drafted if self.tree is not None else self.drafted[:count],
            path=tuple(self.path[:accepted]),
            candidates=self.candidates[:count],
            cut=self.cut + len(self.tokens) - count,
        )

    def to_dict(self) -> dict:
        """This step as plain lists, numbers and strings; what is empty is left out."""
        plain: dict[str, Any] = {"tokens": list(self.tokens)}
        if self.drafted:
            plain["drafted"] = list(self.drafted)
        if self.accepted:
            plain["accepted"] = self.accepted
        if self.tree is not None:
            plain["tree"] = {"tokens": list(self.tree.tokens), "parents": list(self.tree.parents)}
        if self.path:
            plain["path"] = list(self.path)
        if len(self.candidates):
            plain["candidates"] = [[[token, round(prob, 6)] for token, prob in row] for row in self.candidates]
        if self.note:
            plain["note"] = self.note
        if self.hypotheses:
            plain["hypotheses"] = [[list(tokens), round(float(score), 6)] for tokens, score in self.hypotheses]
        if self.score is not None:
            plain["score"] = round(float(self.score), 6)
        if self.scored:
            plain["scored"] = self.scored
        if self.cut:
            plain["cut"] = self.cut
        if self.calls is not None:
            plain["calls"] = self.calls
        return plain

    @classmethod
    def from_dict(cls, plain: dict) -> "Step":
        """The step that `to_dict` wrote."""
        plain = dict(plain)
        if "tree" in plain:
            plain["tree"] = TokenTree(**plain["tree"])
        if "path" in plain:
            plain["path"] = tuple(plain["path"])
        if "candidates" in plain:
            plain["candidates"] = [[(token, prob) for token, prob in row] for row in plain["candidates"]]
        return cls(**plain)


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
    """

    def __init__(self, name: str, lm: "LM", counter: "LM", prompt: list[int], generator: Iterator[Step]):
        self.name, self.lm, self.counter, self.prompt, self.begun = name, lm, counter, prompt, False
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


def decoder(method: Callable[..., Iterator[Step]] | None = None, *, check: Callable[..., Any] | None = None):
    """Make a method out of a generator function ``method(lm, prompt, ...)`` that yields `Step`s.

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
    if not inspect.isgeneratorfunction(method) or not {"prompt", "prompts"} & set(names[1:]):
        raise TypeError(f"@decoder needs a generator function (lm, ..., prompt, ...) that yields steps; got {method!r}")
    checked = list(inspect.signature(check).parameters) if check else []

    @functools.wraps(method)
    def call(*args, **kwargs) -> Steps:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            luck = " (rng=Seeded(7), for instance, or rng=None for greedy)" if "'rng'" in str(error) else ""
            raise TypeError(f"{method.__name__}: {error}{luck}; call it as {method.__name__}{signature}") from None
        bound.apply_defaults()
        given = bound.arguments
        for name, value in given.items():  # a number of numpy's becomes an ordinary one, and an iterator a list
            given[name] = value.item() if isinstance(value, np.generic) else concrete(value)
        lm = given[names[0]]
        if not hasattr(lm, "session") or not hasattr(lm, "prompt_tokens"):
            raise ValueError(
                f"{method.__name__} needs an LM as its argument {names[0]!r}, got {type(lm).__name__}: "
                "wrap a transformers model as LM(model, tokenizer)"
            )
        given[names[0]] = counter = lm.counted() if hasattr(lm, "counted") else lm
        if "prompts" in given:
            given["prompts"] = prompts = checked_prompts(given["prompts"], lm)
        else:
            given["prompt"] = prompt = lm.prompt_tokens(given["prompt"])
        if "warp" in given:
            given["warp"] = checked_warp(given["warp"])
        luck = given.keys() & {"rng", "rngs"}
        if "warp" in given and any(given[name] is None for name in luck):
            given["warp"] = (*given["warp"], one_hot)
        if "rng" in luck:
            given["rng"] = Greedy() if given["rng"] is None else checked_rng(given["rng"])
        if "rngs" in luck:
            given["rngs"] = checked_rngs(given["rngs"], len(prompts))
        if check:
            check(**{name: given[name] for name in checked})
        generator = method(*bound.args, **bound.kwargs)
        if "prompts" in given:
            return BatchSteps(method.__name__, lm, counter, [list(prompt) for prompt in prompts], generator)
        return Steps(method.__name__, lm, counter, list(prompt), generator)

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
    return rng if type(rng) in (Seeded, Greedy, Exhaustive) else Checked(rng)


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


# ----------------------------------------------------------------------------------------------------------------------
# What a run leaves


@dataclass
class Trace:
    """What a run leaves: the text, how it came about, and what it cost.

    Attributes
    ----------
    prompt : list of int
        The prompt's tokens.
    tokens : list of int
        The new tokens. A stop token, if one was hit, is the last of them.
    text : str
        The new tokens as text, special tokens (a stop token among them) left out; empty without a tokenizer.
    steps : list of Step
        The method's steps, the last one cut to fit.
    target_calls : int
        Forward calls of the method's first model, the prompt's included: those of this run alone. What the method runs
        itself on that model belongs to it; what the same model does as a draft, or in another run, does not.
    seconds : float
        Wall-clock time of the run, the prompt's call included; NaN in a trace that was read from a file.
    stopped : {"budget", "stop", "context", "end", "interrupted"}
        Why it ended: `max_new_tokens` were made; a stop token came; the model's context is full; the method itself
        ended; Ctrl-C was pressed.
    method : str
        The method's name.
    lm : LM or None
        The model; None in a trace that was read from a file.
    """

    prompt: list[int]
    tokens: list[int]
    text: str
    steps: list[Step] = field(repr=False)
    target_calls: int
    seconds: float
    stopped: str
    method: str = ""
    lm: "LM | None" = field(default=None, repr=False, compare=False)
    _pieces: dict[int, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def tokens_per_call(self) -> float:
        """New tokens for each target call, the prompt's included; 1 for a plain loop."""
        return len(self.tokens) / self.target_calls if self.target_calls else float("nan")

    @property
    def accepted_per_call(self) -> float:
        """Drafted tokens accepted, averaged over the steps that drafted any; NaN when none did.

        The token that the target adds itself after them is not counted.
        """
        drafting = [step for step in self.steps if step.drafted]
        return sum(step.accepted for step in drafting) / len(drafting) if drafting else float("nan")

    @property
    def acceptance(self) -> float:
        """Drafted tokens accepted, as a share of those that were judged (see `Step.judged`); NaN when none was.

        This estimates the probability that a drafted token is accepted, which the formulas call alpha. The share of
        *all* drafted tokens would be smaller and would fall with the length of the drafts, because it counts tokens
        that nobody judged.
        """
        judged = sum(step.judged for step in self.steps)
        return sum(step.accepted for step in self.steps) / judged if judged else float("nan")

    @property
    def scored_hypotheses(self) -> int:
        """How many hypotheses a search had the model score; 0 for methods that do not search."""
        return sum(step.scored for step in self.steps)

    def piece(self, token: int) -> str:
        """The text of one token by itself. A stop token has its name; part of a character shows as U+FFFD."""
        if token not in self._pieces:
            self._pieces[token] = f"<{token}>" if self.lm is None else token_piece(self.lm, token)
        return self._pieces[token]

    def show(self, **options):
        """The step view for a notebook: steps forward and back, and needs no kernel afterwards. See `tutorlib.viz`."""
        from .viz import player

        return player.show(self, **options)

    def _repr_html_(self) -> str:
        return self.show()._repr_html_()

    def to_dict(self) -> dict:
        """This trace as plain lists, numbers and strings: the same on every machine, so without its clock time."""
        steps = [step.to_dict() for step in self.steps]
        seen = {*self.prompt, *self.tokens}
        for step in self.steps:
            seen.update(step.tokens, step.drafted, *([token for token, _ in row] for row in step.candidates))
            seen.update(*(tokens for tokens, _ in step.hypotheses))
        return {
            "method": self.method,
            "prompt": list(self.prompt),
            "tokens": list(self.tokens),
            "text": self.text,
            "steps": steps,
            "target_calls": self.target_calls,
            "stopped": self.stopped,
            # JSON has no integer keys: pairs, in order, so that equal traces are written equally.
            "pieces": [[token, self.piece(token)] for token in sorted(seen)],
        }

    @classmethod
    def from_dict(cls, plain: dict) -> "Trace":
        """The trace that `to_dict` wrote, as it is or through JSON."""
        plain = dict(plain)
        pieces = dict(plain.pop("pieces", []))
        steps = [Step.from_dict(step) for step in plain.pop("steps")]
        return cls(**plain, steps=steps, seconds=float("nan"), _pieces=pieces)

    def __str__(self) -> str:
        """The step view in plain text: a headline, then a line a step. The same on every machine."""
        return str(self.show())


def token_piece(lm: "LM", token: int) -> str:
    """The text of one token by itself; special tokens, whose text is empty, by their name."""
    if lm.tokenizer is None:
        return f"<{token}>"
    return lm.decode([token]) or lm.tokenizer.convert_ids_to_tokens(token) or f"<{token}>"


# ----------------------------------------------------------------------------------------------------------------------
# The run


def run(
    steps: Iterable[Step],
    max_new_tokens: int,
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
    max_new_tokens : int
        The budget, at least 1. A last step that is longer is cut, and its count of accepted tokens with it.
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
        For a budget below 1, a stop id outside the vocabulary, or steps that have been run before.
    TypeError
        When the method yields anything but a `Step`; for a method that makes several texts (use `run_batch`).
    """
    if isinstance(steps, BatchSteps):
        raise TypeError(f"{steps.name} makes several texts at once: use run_batch, which returns a trace for each")
    lm = getattr(steps, "lm", None)
    prompt = list(getattr(steps, "prompt", []))
    budget = checked_budget(max_new_tokens)
    stop = checked_stop(stop, lm)
    refuse_begun(steps)
    text = Text(steps, prompt, budget, stop)
    if on_text and not text.is_readable:
        raise ValueError("on_text needs a model with a tokenizer to make text with: LM(model, tokenizer)")
    stream = TextStream(lm, on_text) if on_text else None
    bar = progress_bar(text.limit, progress)
    text.begin()
    try:
        source = iter(steps)
        while text.stopped is None:
            try:
                step = next(source)
            except StopIteration as end:
                text.end(why_it_ended(end))
                break
            step = text.add(step)
            if bar is not None:
                bar.update(len(step.tokens))
            if stream is not None and step.tokens:
                stream.write(text.tokens)
    except KeyboardInterrupt:
        text.end("interrupted")
    finally:
        if bar is not None:
            bar.close()
        if hasattr(steps, "close"):
            steps.close()
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
    bar = progress_bar(sum(text.limit for text in texts), progress)
    for text in texts:
        text.begin()
    try:
        while going := {row for row, text in enumerate(texts) if text.stopped is None}:
            try:
                made = steps.next_round(going)
            except StopIteration as end:
                for row in going:
                    texts[row].end(why_it_ended(end))
                break
            if not isinstance(made, list) or len(made) != len(texts):
                raise TypeError(f"a method must yield a list of {len(texts)} steps, one a prompt; it yielded {made!r}")
            for row in sorted(going):
                step = texts[row].add(made[row])
                if bar is not None:
                    bar.update(len(step.tokens))
    except KeyboardInterrupt:
        for text in texts:
            if text.stopped is None:
                text.end("interrupted")
    finally:
        if bar is not None:
            bar.close()
        steps.close()
    return [text.trace() for text in texts]


class Text:
    """One text while it is made: takes steps, cuts them to fit, and knows when it ends and why.

    Parameters
    ----------
    steps : Steps, BatchSteps or iterable of Step
        Where its steps come from, for their name, model and counter. Nothing is pulled from it here.
    prompt : list of int
    budget : int
    stop : set of int

    Attributes
    ----------
    limit : int
        How many new tokens there may be: the budget, or less where the context is full before.
    tokens : list of int
        The new tokens so far.
    stopped : str or None
        Why it ended, as `Trace` says it; None while it goes on.
    """

    def __init__(self, steps: Iterable[Step], prompt: list[int], budget: int, stop: frozenset[int]):
        self.method = getattr(steps, "name", getattr(steps, "__name__", ""))
        self.lm = lm = getattr(steps, "lm", None)
        self._counter = getattr(steps, "counter", lm)
        self.prompt, self.budget, self.stop = prompt, budget, stop
        # The context holds prompt and new tokens together; the budget may ask for more than there is room for.
        self.limit = budget if lm is None else min(budget, lm.context - len(prompt))
        self.is_readable = lm is not None and lm.tokenizer is not None
        self.tokens: list[int] = []
        self.stopped: str | None = None
        self._steps: list[Step] = []
        self._candidate_bytes = 0

    def begin(self) -> None:
        """Start the clock. A text without any room ends at once."""
        self._calls_before, self._began = self._calls(), time.perf_counter()
        if self.limit <= 0:
            self.end("context")

    def add(self, step: Step) -> Step:
        """Go on by what fits of a step, and return that."""
        if not isinstance(step, Step):
            raise TypeError(f"a method must yield steps, such as Step([token]); it yielded {step!r}")
        step, stopped = fit(step, self.limit - len(self.tokens), self.stop)
        if self.lm is not None:
            step.calls = self._calls() - self._calls_before
        self._steps.append(step)
        self.tokens += step.tokens
        if stopped is None and len(self.tokens) == self.limit:
            stopped = "budget" if self.limit == self.budget else "context"
        self._candidate_bytes += getattr(step.candidates, "nbytes", 0)
        if self._candidate_bytes > CANDIDATE_BYTES and isinstance(step.candidates, Candidates):
            self._candidate_bytes -= step.candidates.nbytes
            step.candidates.settled()
        if stopped is not None:
            self.end(stopped)
        return step

    def end(self, stopped: str) -> None:
        """Stop the clock, for this reason."""
        self.stopped = stopped
        self._seconds, self._target_calls = time.perf_counter() - self._began, self._calls() - self._calls_before

    def trace(self) -> Trace:
        """What is left of it once it has ended."""
        tokens = [token for step in self._steps for token in step.tokens]  # an interrupt may have come between the two
        return Trace(
            prompt=self.prompt,
            tokens=tokens,
            text=self.lm.decode(tokens) if self.is_readable else "",
            steps=self._steps,
            target_calls=self._target_calls,
            seconds=self._seconds,
            stopped=self.stopped,
            method=self.method,
            lm=self.lm,
        )

    def _calls(self) -> int:
        return getattr(self._counter, "calls", 0)


def why_it_ended(end: StopIteration) -> str:
    """A method that ends because some model's context is full says so: ``return "context"``."""
    return "context" if end.value == "context" else "end"


def refuse_begun(steps) -> None:
    """Raise ValueError for steps that have been run before."""
    if getattr(steps, "begun", False):
        raise ValueError("these steps have already been run, or begun: call the method again for fresh ones")


def fit(step: Step, room: int, stop: frozenset[int]) -> tuple[Step, str | None]:
    """Cut a step after its first stop token, or where there is no more room; say "stop" if a stop token ends it."""
    # Methods may leave tensors or numpy integers; here they become plain ones, which alone can be written as JSON.
    step.tokens = ints(step.tokens, "the tokens of a step must be token ids (ints)")
    step.drafted = ints(step.drafted, "the drafted tokens of a step must be token ids (ints)")
    step.accepted = operator.index(step.accepted)
    for count, token in enumerate(step.tokens[:room], start=1):
        if token in stop:
            return step.first(count), "stop"
    return step.first(room), None


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


class TextStream:
    """Hand out text while its tokens come in, whole characters only.

    Byte-level tokens may hold part of a character; decoded, the part shows as U+FFFD. Such an ending is held back until
    the rest has come, or until the end of the run. Each step decodes all new tokens again, because tokenizers differ
    in what they do at the seams.

    Parameters
    ----------
    lm : LM
        Decodes the tokens.
    on_text : function
        Called with each new piece, never an empty one.
    """

    def __init__(self, lm: "LM", on_text: Callable[[str], Any]):
        self._lm, self._on_text, self._written = lm, on_text, ""

    def write(self, tokens: list[int]) -> None:
        """Hand out what is new and whole in the text of `tokens` (all new tokens so far)."""
        self._hand_out(self._lm.decode(tokens).rstrip("\ufffd"))

    def close(self, tokens: list[int]) -> None:
        """Hand out the rest as it is, half characters included."""
        if tokens:
            self._hand_out(self._lm.decode(tokens))

    def _hand_out(self, text: str) -> None:
        # A tokenizer that tidies its text may take back what it said ("do n" becomes "don't"). What is out is out:
        # go on once the text agrees with it again.
        if len(text) > len(self._written) and text.startswith(self._written):
            piece, self._written = text[len(self._written) :], text
            self._on_text(piece)
