"""The result of a run: a `Trace`, and the `Text` from which it is made step by step.

This file draws no pictures: `Trace.show` uses `tutorlib.viz` when it is called.
"""

import operator
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..arguments import Prompted, ints
from .step import Candidates, Step

if TYPE_CHECKING:
    from ..model.lm import LM
    from ..viz.player import Player

# A run keeps the logits of its candidates until they are read, which takes no time. If those of all its texts take more
# bytes than this (a large vocabulary, a long run, many texts), it reduces each row to its few best tokens at once.
CANDIDATE_BYTES = 16 * 2**20


@dataclass
class Trace:
    """The result of a run: the text, how it was made, and what it cost.

    Attributes
    ----------
    prompt : list of int
        The prompt's tokens.
    tokens : list of int
        The new tokens. If a stop token ended the run, it is the last of them.
    text : str
        The new tokens as text, without special tokens such as the stop token; empty without a tokenizer.
    steps : list of Step
        The steps of the method. The last one is cut where the run ended.
    target_calls : int
        Forward calls of the method's first model in this run, including the call that reads the prompt. Calls of the
        same model as a draft, or in another run, are not counted.
    seconds : float
        Wall-clock time of the run, including the call that reads the prompt; NaN in a trace that was read from a file.
    stopped : {"budget", "stop", "context", "end", "interrupted"}
        Why the run ended. "budget": it reached `max_new_tokens`. "stop": it reached a stop token. "context": the
        model's context is full. "end": the method itself ended. "interrupted": Ctrl-C was pressed.
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
        """New tokens per target call, where the call that reads the prompt counts too; 1 for plain decoding."""
        return len(self.tokens) / self.target_calls if self.target_calls else float("nan")

    @property
    def accepted_per_call(self) -> float:
        """How many drafted tokens were accepted per step, averaged over the steps with a draft; NaN if no step had one.

        The token that the target adds after them is not counted.
        """
        drafting = [step for step in self.steps if step.drafted]
        return sum(step.accepted for step in drafting) / len(drafting) if drafting else float("nan")

    @property
    def acceptance(self) -> float:
        """The share of the checked tokens that were accepted (see `Step.checked`); NaN if no token was checked.

        This estimates the probability that a drafted token is accepted, which the formulas call alpha. The share of
        *all* drafted tokens would be smaller, and would fall with the length of the drafts, because it includes tokens
        that were never checked.
        """
        checked = sum(step.checked for step in self.steps)
        return sum(step.accepted for step in self.steps) / checked if checked else float("nan")

    @property
    def scored_hypotheses(self) -> int:
        """How many hypotheses the model scored in a search; 0 for methods that do not search."""
        return sum(step.scored for step in self.steps)

    def piece(self, token: int) -> str:
        """The text of a single token. A stop token is shown by its name, and a part of a character as U+FFFD."""
        if token not in self._pieces:
            self._pieces[token] = f"<{token}>" if self.lm is None else token_piece(self.lm, token)
        return self._pieces[token]

    def show(self, **options: Any) -> "Player":
        """The step view for a notebook, to go through the run step by step. It needs no kernel. See `tutorlib.viz`."""
        from ..viz import player

        return player.show(self, **options)

    def _repr_html_(self) -> str:
        return self.show()._repr_html_()

    def to_dict(self) -> dict:
        """This trace as plain lists, numbers and strings. The time is left out, so the result is the same on every
        machine.
        """
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
            # Sorted pairs, because JSON has no integer keys, and equal traces should give equal files.
            "pieces": [[token, self.piece(token)] for token in sorted(seen)],
        }

    @classmethod
    def from_dict(cls, plain: dict) -> "Trace":
        """The trace that `to_dict` wrote, directly or after a way through JSON."""
        plain = dict(plain)
        pieces = dict(plain.pop("pieces", []))
        steps = [Step.from_dict(step) for step in plain.pop("steps")]
        return cls(**plain, steps=steps, seconds=float("nan"), _pieces=pieces)

    def __str__(self) -> str:
        """The step view in plain text: a headline, then one line for each step. The same on every machine."""
        return str(self.show())


def token_piece(lm: "LM", token: int) -> str:
    """The text of a single token; the name of a special token, whose text is empty."""
    if lm.tokenizer is None:
        return f"<{token}>"
    return lm.decode([token]) or lm.tokenizer.convert_ids_to_tokens(token) or f"<{token}>"


class Text:
    """One text while it is being made: takes steps, cuts them to fit, and determines when and why it ends.

    Parameters
    ----------
    steps : Steps, BatchSteps or iterable of Step
        The source of the steps, for its name, model and counter. No steps are taken from it here.
    prompt : list of int
    budget : int
    stop : set of int

    Attributes
    ----------
    limit : int
        The largest number of new tokens: the budget, or less if the context is full earlier.
    tokens : list of int
        The new tokens so far.
    stopped : str or None
        Why it ended, as in `Trace`; None until it has ended.
    """

    def __init__(self, steps: Any, prompt: list[int], budget: int, stop: frozenset[int]):
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
        self._whole = Prompted(prompt, len(prompt))  # with the new tokens; shared by the candidates of all steps
        self._candidate_bytes = 0
        self._most_candidate_bytes = CANDIDATE_BYTES // len(getattr(steps, "prompts", [prompt]))

    def begin(self) -> None:
        """Start the clock. A text without any room left ends at once."""
        self._calls_before, self._began = self._calls(), time.perf_counter()
        if self.limit <= 0:
            self.end("context")

    def add(self, step: Step) -> Step:
        """Add a step, or as much of it as fits, and return what was added."""
        if not isinstance(step, Step):
            raise TypeError(f"a method must yield steps, such as Step([token]); it yielded {step!r}")
        step, stopped = cut_to_fit(step, self.limit - len(self.tokens), self.stop)
        if self.lm is not None:
            step.calls = self._calls() - self._calls_before
        self._steps.append(step)
        self.tokens += step.tokens
        if stopped is None and len(self.tokens) == self.limit:
            stopped = "budget" if self.limit == self.budget else "context"
        start = len(self._whole)
        self._whole += step.tokens
        if isinstance(step.candidates, Candidates):
            step.candidates.share(self._whole, start)
            self._candidate_bytes += step.candidates.nbytes
            if self._candidate_bytes > self._most_candidate_bytes:
                self._candidate_bytes -= step.candidates.nbytes
                step.candidates.settled()
        if stopped is not None:
            self.end(stopped)
        return step

    def end(self, stopped: str) -> None:
        """Stop the clock, and store the reason."""
        self.stopped = stopped
        self._seconds, self._target_calls = time.perf_counter() - self._began, self._calls() - self._calls_before

    def trace(self) -> Trace:
        """The trace of the text, after it has ended."""
        tokens = [token for step in self._steps for token in step.tokens]  # as an interrupt may have left them
        return Trace(
            prompt=self.prompt,
            tokens=tokens,
            text=self.lm.decode(tokens) if self.lm is not None and self.is_readable else "",
            steps=self._steps,
            target_calls=self._target_calls,
            seconds=self._seconds,
            stopped=self.stopped or "",
            method=self.method,
            lm=self.lm,
        )

    def _calls(self) -> int:
        return getattr(self._counter, "calls", 0)


def cut_to_fit(step: Step, room: int, stop: frozenset[int]) -> tuple[Step, str | None]:
    """Cut a step after its first stop token, or where the room ends; also return "stop" if a stop token ends it."""
    # Methods may yield tensors or numpy integers. They become plain ints here, because JSON needs them.
    step.tokens = ints(step.tokens, "the tokens of a step must be token ids (ints)")
    step.drafted = ints(step.drafted, "the drafted tokens of a step must be token ids (ints)")
    step.accepted = operator.index(step.accepted)
    for count, token in enumerate(step.tokens[:room], start=1):
        if token in stop:
            return step.first(count), "stop"
    return step.first(room), None


class TextStream:
    """Pass on text while its tokens come in, in whole characters only.

    A byte-level token may hold only part of a character, which is decoded as U+FFFD. Such an ending is held back until
    the rest has come, or until the run ends. Each step decodes all new tokens again, because some tokenizers decode
    tokens differently next to each other than one by one.

    Parameters
    ----------
    lm : LM
        Decodes the tokens.
    on_text : function
        Called with each new piece of text, which is never empty.
    """

    def __init__(self, lm: "LM", on_text: Callable[[str], Any]):
        self._lm, self._on_text, self._written = lm, on_text, ""

    def write(self, tokens: list[int]) -> None:
        """Pass on the new, complete part of the text of `tokens` (all new tokens so far)."""
        self._hand_out(self._lm.decode(tokens).rstrip("\ufffd"))

    def close(self, tokens: list[int]) -> None:
        """Pass on the rest as it is, including incomplete characters."""
        if tokens:
            self._hand_out(self._lm.decode(tokens))

    def _hand_out(self, text: str) -> None:
        # A tokenizer that tidies its text may change what it decoded before ("do n" becomes "don't"). Text that was
        # passed on cannot be taken back: wait until the decoded text agrees with it again.
        if len(text) > len(self._written) and text.startswith(self._written):
            piece, self._written = text[len(self._written) :], text
            self._on_text(piece)
