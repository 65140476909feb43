"""What a run leaves: a `Trace`, and the `Text` that becomes one step by step.

Nothing is drawn here: `Trace.show` asks `tutorlib.viz` for a picture when it is called.
"""

import operator
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .arguments import ints
from .step import Candidates, Step

if TYPE_CHECKING:
    from .lm import LM
    from .viz.player import Player

# A run keeps the rows of logits behind its candidates until somebody looks at them, which costs nothing in time; past
# this many bytes (a large vocabulary, a long run) it reduces each to its few best at once.
CANDIDATE_BYTES = 16 * 2**20


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

    def show(self, **options: Any) -> "Player":
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
        step, stopped = cut_to_fit(step, self.limit - len(self.tokens), self.stop)
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


def cut_to_fit(step: Step, room: int, stop: frozenset[int]) -> tuple[Step, str | None]:
    """Cut a step after its first stop token, or where there is no more room; say "stop" if a stop token ends it."""
    # Methods may leave tensors or numpy integers; here they become plain ones, which alone can be written as JSON.
    step.tokens = ints(step.tokens, "the tokens of a step must be token ids (ints)")
    step.drafted = ints(step.drafted, "the drafted tokens of a step must be token ids (ints)")
    step.accepted = operator.index(step.accepted)
    for count, token in enumerate(step.tokens[:room], start=1):
        if token in stop:
            return step.first(count), "stop"
    return step.first(room), None


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
