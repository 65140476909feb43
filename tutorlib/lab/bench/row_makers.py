"""What a row of the benchmark is, and how one is made from a method, from `generate`, from a loop or another program.

What this file does not do: say which rows there are (`rows`), or time them (`measuring`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import torch
import transformers
from transformers import GenerationConfig

from ...model.cache import call_with_cache
from ...running.decoding import run, run_batch
from ...running.step import Step
from ...running.trace import Trace
from ...sampling.randomness import Seeded
from ...sampling.warp import Warp, probabilities, temperature, top_p

GENERATE = "generate"
# The options that make transformers sample from the model as it is: its defaults filter.
UNWARPED = {"do_sample": True, "top_k": 0, "top_p": 1.0}
# How an assistant drafts: so many tokens, or up to the first of which it is less sure than this.
ASSISTANT_GREEDY = {
    "num_assistant_tokens": 5,
    "num_assistant_tokens_schedule": "constant",
    "assistant_confidence_threshold": 0.3,
}
ASSISTANT_SAMPLING = ASSISTANT_GREEDY | {"num_assistant_tokens": 10, "assistant_confidence_threshold": 0.0}


class Output(NamedTuple):
    """What a row made of one batch of prompts.

    Attributes
    ----------
    texts : list of lists of int
        The new tokens after each prompt.
    calls : int or None
        How often it called the target for all of them together; None: not counted.
    steps : list of Step
        Those of all texts, where they tell what was drafted in each call.
    """

    texts: list[list[int]]
    calls: int | None
    steps: Sequence[Step] = ()


@dataclass(frozen=True)
class Row:
    """One line of the benchmark.

    Attributes
    ----------
    name : str
    decode : function from (family, prompts as tokens, new tokens, seed, temperature, p) to Output
        `family` is what `models.load` returns: ``family.target`` is the LM whose texts are made, all at once. Above
        temperature 0, tokens are drawn from the smallest set with probability `p`, by default from all.
    peer : str or None
        The name of the row that this one is compared with: that of `generate` which does the same work. Where there is
        none, the row that does what the method cannot do without. None: nothing to compare with.
    helpers : tuple of str
        Which models or heads of the family it uses besides the target.
    is_drafting : bool
        Whether its time can be predicted from its steps: each is a call of the target, as wide as what was drafted and
        one token more, and a call of the helper for each drafted token, or for each level of a tree.
    texts : int
        How many sequences of the target it keeps for each prompt, such as 4 for four beams.
    greedily, sampling : bool
        Whether it can run at temperature 0, and above.
    in_batches : bool
        Whether it takes more than one prompt at a time.
    """

    name: str
    decode: Callable[..., Output]
    peer: str | None = GENERATE
    _: KW_ONLY
    helpers: tuple[str, ...] = ()
    is_drafting: bool = False
    texts: int = 1
    greedily: bool = True
    sampling: bool = True
    in_batches: bool = False

    def can_run(self, temperature: float, batch: int) -> bool:
        return (self.sampling if temperature else self.greedily) and (batch == 1 or self.in_batches)


def method_row(
    name: str,
    method,
    *helpers: str,
    together=None,
    drafting=False,
    filters: Sequence[Warp] = (),
    peer=GENERATE,
    texts=1,
    greedily=True,
    sampling=True,
    **settings,
) -> Row:
    """A row for a method that takes the target, the family's models or heads of these names, the prompt, and settings.

    Above temperature 0 the method also gets a `warp`, the temperature and then `filters`, and an `rng` with a seed of
    its own for each round. `together` is the same method for several prompts, if there is one.
    """

    def decode(family, prompts, count, seed, t, p=1.0):
        models = [getattr(family, role) for role in ("target", *helpers)]
        drawn: dict[str, Any] = {"warp": [*usual(t, p), *filters]} if t else {}
        if len(prompts) == 1:
            drawn |= {"rng": Seeded(seed)} if t else {}
            return output_of([run(method(*models, prompts[0], **settings, **drawn), count, stop=(), progress=False)])
        drawn |= {"rngs": [Seeded((seed + 1) * 1000 + row) for row in range(len(prompts))]} if t else {}
        return output_of(run_batch(together(*models, prompts, **settings, **drawn), count, stop=(), progress=False))

    return Row(
        name, decode, peer, helpers=helpers, is_drafting=drafting, texts=texts,
        greedily=greedily, sampling=sampling, in_batches=together is not None,
    )  # fmt: skip


def usual(t: float, p: float) -> list[Warp]:
    """The warp of all rows at a temperature above 0."""
    return [temperature(t), top_p(p)] if p < 1 else [temperature(t)]


def output_of(traces: Sequence[Trace]) -> Output:
    """What some texts are that were made together: calls that they share count once."""
    steps = [step for trace in traces for step in trace.steps]
    return Output([trace.tokens for trace in traces], max(trace.target_calls for trace in traces), steps)


def generate_row(name: str, peer: str | None = None, *, assisted=False, tuned=False, at=None, **options) -> Row:
    """A row for `transformers.generate`, with the options given and no stop token; its peer is itself.

    What the model's own file sets besides, such as a repetition penalty, is left out: no other row has it.
    If it is `assisted`, the family's draft is its assistant; `tuned` says how many tokens that one drafts. `at` are
    the fields of `Row` that say where it can run.
    """

    def decode(family, prompts, count, seed, t, p=1.0):
        model, longest = family.target.model, max(map(len, prompts))
        helper, own = {}, {}
        if assisted:
            if family.draft.model is None:
                kind = type(family.draft).__name__
                raise ValueError(f"generate takes a network as its assistant, and the draft is {kind}")
            refuse_old_assistants()
            helper = {"assistant_model": family.draft.model}
            own = (ASSISTANT_SAMPLING if t else ASSISTANT_GREEDY) if tuned else {}
        padding = [longest - len(prompt) for prompt in prompts]
        text = torch.tensor([[0] * pad + list(prompt) for pad, prompt in zip(padding, prompts)], device=model.device)
        mask = torch.tensor([[0] * pad + [1] * (longest - pad) for pad in padding], device=model.device)
        narrower = {"top_p": min(p, options.get("top_p", 1.0))}
        torch.manual_seed(seed)
        with _unset(model), settings(family.draft.model, own) if own else nullcontext():
            output = model.generate(
                text,
                attention_mask=mask,
                max_new_tokens=count,
                eos_token_id=None,
                pad_token_id=0,
                **helper,
                **({"do_sample": False} | options if not t else UNWARPED | {"temperature": t} | options | narrower),
            )
        return Output(output[:, longest:].tolist(), None)

    return Row(name, decode, peer or name, helpers=("draft",) if assisted else (), **at or {})


def refuse_old_assistants():
    """Raise ValueError if transformers leaves rejected tokens in its assistant's cache, as it did before 5.16.

    It then drafts after a text that nobody wrote, or stops with an error of shapes: what is measured says nothing.
    """
    if tuple(map(int, transformers.__version__.split(".")[:2])) < (5, 16):
        raise ValueError(
            f"transformers {transformers.__version__} leaves rejected tokens in the cache of generate's assistant: "
            "install 5.16 or newer to measure it"
        )


@contextmanager
def _unset(model):
    """Take a model's own generation settings away for a while."""
    own, model.generation_config = model.generation_config, GenerationConfig()
    try:
        yield
    finally:
        model.generation_config = own


@contextmanager
def settings(model, values: dict):
    """Give a model's generation settings these values for a while."""
    before = {name: getattr(model.generation_config, name) for name in values}
    try:
        for name, value in values.items():
            setattr(model.generation_config, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(model.generation_config, name, value)


# ----------------------------------------------------------------------------------------------------------------------
# Loops to compare with


def pytorch_loop(family, prompts, count, seed, t, p=1.0) -> Output:
    """Plain decoding over the model itself, without a session: what the plain loop is where no loops are compiled."""
    model = family.target.model
    torch.manual_seed(seed)
    tokens = []
    with torch.inference_mode():
        rows, cache = call_with_cache(model, torch.tensor(prompts, device=model.device), logits_to_keep=1)
        while True:
            logits = rows[:, -1]
            tokens.append(int(torch.multinomial(probabilities(logits, usual(t, p)), 1) if t else logits.argmax()))
            if len(tokens) == count:
                return Output([tokens], count)
            step = torch.tensor([tokens[-1:]], device=model.device)
            rows, cache = call_with_cache(model, step, cache)


def two_models_loop(family, prompts, count, seed, t, p=1.0) -> Output:
    """The calls that contrastive decoding needs at least: target and draft read the text, and the target continues
    it.
    """
    expert, amateur = family.target.session(prompts[0]), family.draft.session(prompts[0])
    tokens = []
    while len(tokens) < count:
        logits, _ = expert.feed(tokens[-1:]), amateur.feed(tokens[-1:])
        tokens.append(int(logits[-1].argmax()))
    return Output([tokens], expert.calls)


def other_program_row(name: str, tokens, **settings) -> Row:
    """A row for another program, whose calls of the target are not counted. `tokens` makes its new ones."""

    def decode(*asked):
        return Output([tokens(*asked, **settings)], None)

    return Row(name, decode)
