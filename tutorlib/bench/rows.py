"""The rows of the benchmark: each method with its settings, and its peer of `transformers` beside it.

A row makes the same number of new tokens after each prompt; `measuring` times the rows against each other. No stop
token ends a text here, so that all rows do the same work. A new method needs one line in `ROWS`, and a function if
there is none for its like.

Settings are those that were fastest with the bundled models on two processor cores: of ours, and of the peers; where
that differs from what a peer does by itself, both have a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import NamedTuple

import torch
from transformers import GenerationConfig

from ..decoders import beam_search, greedy, sample
from ..decoders.context_contrast import context_contrast
from ..decoders.contrastive_decoding import contrastive_decoding
from ..decoders.contrastive_search import contrastive_search
from ..decoders.dola import dola, lower_layers
from ..decoders.eagle import drawn_chain, eagle
from ..decoders.lookahead import lookahead
from ..decoders.medusa import medusa
from ..decoders.prompt_lookup import prompt_lookup
from ..decoders.sample_batch import sample_batch
from ..decoders.speculative import speculative
from ..decoders.speculative_batch import speculative_batch
from ..decoders.string_match import string_match
from ..decoders.suffix_lookup import suffix_lookup
from ..decoders.token_intersection import token_intersection
from ..decoding import run, run_batch
from ..randomness import Seeded
from ..step import Step
from ..warp import temperature, top_k, top_p

PLAIN = "bare forward loop"
GREEDY = "greedy"
SAMPLE = "sample"
TWO_MODELS = "expert and amateur calls"
SPECULATIVE = "speculative, sampling"
SPECULATIVE_GREEDY = "speculative, greedy, gamma=2"
GENERATE = "generate(do_sample=False)"
GENERATE_SAMPLING = "generate(do_sample=True)"
GENERATE_FILTERED = "generate(do_sample=True), filtered"
GENERATE_BEAMS = "generate(num_beams=4)"
GENERATE_ASSISTED = "generate(assistant_model)"
GENERATE_ASSISTED_SAMPLING = "generate(assistant_model), sampling"
GENERATE_LOOKUP = "generate(prompt_lookup_num_tokens=3)"


class Output(NamedTuple):
    """What a row made.

    Attributes
    ----------
    texts : list of lists of int
        The new tokens after each prompt.
    calls : int or None
        How often it called the target for all of them; None: not counted.
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
    decode : function from (family, prompts as tokens, new tokens, seed) to Output
        `family` is what `models.load` returns: ``family.target`` is the LM whose text is made.
    peer : str or None
        The name of the row that this one is compared with: that of `generate` which does the same work. Where there is
        none, the row that does what the method cannot do without. None: nothing to compare with.
    is_drafting : bool
        Whether its time can be predicted from its steps: each is a call of the target, as wide as what was drafted and
        one token more.
    draft : str or None
        Which model of the family was called once for each drafted token, or for each level of a tree; None where drafts
        cost nothing.
    """

    name: str
    decode: Callable[[SimpleNamespace, Sequence[list[int]], int, int], Output]
    peer: str | None = GENERATE
    is_drafting: bool = field(default=False, kw_only=True)
    draft: str | None = field(default=None, kw_only=True)


# ----------------------------------------------------------------------------------------------------------------------
# How rows are made


def one_by_one(decode) -> Callable[..., Output]:
    """A row that makes one text after another: ``decode(family, prompt, new tokens, seed)`` returns (tokens, calls)."""

    def decode_all(family, prompts, count, seed):
        texts, calls = zip(*[decode(family, prompt, count, seed) for prompt in prompts], strict=True)
        return Output(list(texts), sum(calls))

    return decode_all


def ours(make_steps) -> Callable[..., Output]:
    """A row for one of our methods: ``make_steps(family, prompt, seed)`` returns its steps."""

    def decode(family, prompts, count, seed):
        traces = [run(make_steps(family, p, seed), count, stop=(), progress=False) for p in prompts]
        return Output(
            [trace.tokens for trace in traces],
            sum(trace.target_calls for trace in traces),
            [step for trace in traces for step in trace.steps],
        )

    return decode


def ours_searching(make_steps) -> Callable[..., Output]:
    """A row for one of our searches, which take the budget themselves: ``make_steps(family, prompt, new tokens)``."""

    def decode(family, prompts, count, seed):
        return ours(lambda family, prompt, _: make_steps(family, prompt, count))(family, prompts, count, seed)

    return decode


def ours_in_batches(make_steps, size: int) -> Callable[..., Output]:
    """A row for a method that makes `size` texts together: ``make_steps(family, prompts, seeds)`` returns its rounds.

    The prompts are taken again from the first on, with other seeds, until the last batch is full.
    """

    def decode(family, prompts, count, seed):
        texts, calls = [], 0
        for first in range(0, len(prompts), size):
            seeds = [(seed + 1) * 1000 + first + row for row in range(size)]
            rounds = make_steps(family, [prompts[(first + row) % len(prompts)] for row in range(size)], seeds)
            traces = run_batch(rounds, count, stop=(), progress=False)
            texts += [trace.tokens for trace in traces]
            calls += max(trace.target_calls for trace in traces)
        return Output(texts, calls)

    return decode


def generate(drafts: dict | None = None, **options) -> Callable[..., Output]:
    """A row for `transformers.generate`, with the options given and no stop token.

    What the model's own file sets besides, such as a repetition penalty, is left out: no other row has it.
    With `drafts` the family's draft assists. They are settings of *its* generation; ``{}`` leaves them as they are.
    """

    def decode(family, prompts, count, seed):
        model, texts = family.target.model, []
        if drafts is not None and family.draft.model is None:
            raise ValueError(
                f"generate takes a network as its assistant, and the draft is {type(family.draft).__name__}"
            )
        assistant = {} if drafts is None else {"assistant_model": family.draft.model}
        with _unset(model), settings(family.draft.model, drafts) if drafts else nullcontext():
            for prompt in prompts:
                text = torch.tensor([prompt], device=model.device)
                torch.manual_seed(seed)
                output = model.generate(
                    text,
                    attention_mask=torch.ones_like(text),
                    max_new_tokens=count,
                    eos_token_id=None,
                    pad_token_id=0,
                    **assistant,
                    **options,
                )
                texts.append(output[0, len(prompt) :].tolist())
        return Output(texts, None)

    return decode


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


def forward_loop(family, prompt, count, seed) -> tuple[list[int], int]:
    """The plain loop of a tutorial: the model, its own cache, argmax. What everything is compared with."""
    model = family.target.model
    tokens = []
    with torch.inference_mode():
        output = model(torch.tensor([prompt], device=model.device), use_cache=True, logits_to_keep=1)
        while True:
            tokens.append(int(output.logits[0, -1].argmax()))
            if len(tokens) == count:
                return tokens, count
            step = torch.tensor([tokens[-1:]], device=model.device)
            output = model(step, past_key_values=output.past_key_values, use_cache=True)


def session_loop(family, prompt, count, seed) -> tuple[list[int], int]:
    """The same loop over a `Session`: what its undo costs a method that never uses it."""
    session = family.target.session(prompt)
    tokens = [int(session.feed()[-1].argmax())]
    while len(tokens) < count:
        tokens.append(int(session.feed(tokens[-1:])[-1].argmax()))
    return tokens, session.calls


def two_models_loop(family, prompt, count, seed) -> tuple[list[int], int]:
    """The calls that contrastive decoding cannot do without: target and draft read the text, and the target goes on."""
    expert, amateur = family.target.session(prompt), family.draft.session(prompt)
    tokens = []
    while len(tokens) < count:
        logits, _ = expert.feed(tokens[-1:]), amateur.feed(tokens[-1:])
        tokens.append(int(logits[-1].argmax()))
    return tokens, expert.calls


# ----------------------------------------------------------------------------------------------------------------------
# The rows

# The options that make transformers sample from the model as it is: its defaults filter.
UNWARPED = {"do_sample": True, "top_k": 0, "top_p": 1.0, "temperature": 1.0}
# The usual filters, for both: transformers applies them in this order whatever order they are given in.
FILTERS = [temperature(0.8), top_k(50), top_p(0.9)]
FILTERED = {"do_sample": True, "temperature": 0.8, "top_k": 50, "top_p": 0.9}
# How an assistant drafts: so many tokens, or up to the first of which it is less sure than this.
ASSISTANT_GREEDY = {
    "num_assistant_tokens": 5,
    "num_assistant_tokens_schedule": "constant",
    "assistant_confidence_threshold": 0.3,
}
ASSISTANT_SAMPLING = ASSISTANT_GREEDY | {"num_assistant_tokens": 10, "assistant_confidence_threshold": 0.0}

DRAWN = 9  # tokens that an EAGLE network draws in a step when sampling


def method_row(
    name: str, method, *roles: str, peer: str = GENERATE, sampling=False, drafting=False, draft=None, **settings
) -> Row:
    """A row for a method that takes the target, the family's models or heads in these roles, the prompt, and settings.

    Greedy, or when sampling with a seed of its own for each round; `drafting` and `draft` are those of `Row`.
    """

    def steps(family, prompt, seed):
        rng = {"rng": Seeded(seed)} if sampling else {}
        return method(family.target, *(getattr(family, role) for role in roles), prompt, **settings, **rng)

    return Row(name, ours(steps), peer, is_drafting=drafting, draft=draft)


def assisted(sampling: bool) -> str:
    """The row of `generate` with an assistant model that a drafting row is compared with."""
    return GENERATE_ASSISTED_SAMPLING if sampling else GENERATE_ASSISTED


def eagle_row(name: str, *, sampling: bool) -> Row:
    """A row for `eagle` with this network of the family: its own tree, or when sampling a chain that is drawn."""
    tree, how = (drawn_chain(DRAWN), f"sampling, {DRAWN} drawn") if sampling else (None, "greedy")
    options = {"peer": assisted(sampling), "sampling": sampling, "drafting": True, "draft": name}
    return method_row(f"{name}, {how}", eagle, name, tree=tree, **options)


def speculative_row(gamma: int, *, sampling: bool, confidence: float = 0.0) -> Row:
    """A row for `speculative` with this γ."""
    name = f"{SPECULATIVE if sampling else 'speculative, greedy'}, gamma={gamma}"
    options = {"peer": assisted(sampling), "sampling": sampling, "drafting": True, "draft": "draft"}
    return method_row(name, speculative, "draft", gamma=gamma, confidence=confidence, **options)


def _dola(target, prompt):
    return dola(target, prompt, layers=lower_layers(target))


def _context_contrast(target, prompt):
    return context_contrast(target, prompt, without=prompt[-1:], weight=0.5)


def _beam_search(family, prompt, count):
    return beam_search(family.target, prompt, beams=4, max_new_tokens=count, stop=())


def _sample_batch(family, prompts, seeds):
    return sample_batch(family.target, prompts, rngs=[Seeded(seed) for seed in seeds])


def _speculative_batch(family, prompts, seeds):
    return speculative_batch(family.target, family.draft, prompts, gamma=8, rngs=[Seeded(seed) for seed in seeds])


# What is measured with each kind of prompt, where the family has a chat format: greedy, one text at a time.
OF_EACH_KIND = (
    GREEDY, SPECULATIVE_GREEDY, "prompt_lookup, gamma=5", "suffix_lookup, gamma=8", "lookahead", "medusa, greedy",
    "eagle, greedy", "eagle3, greedy", GENERATE_LOOKUP,
)  # fmt: skip

ROWS = [
    Row(PLAIN, one_by_one(forward_loop)),
    Row("Session loop", one_by_one(session_loop)),
    method_row(GREEDY, greedy),
    method_row(SAMPLE, sample, sampling=True, peer=GENERATE_SAMPLING),
    method_row("sample, filtered", sample, sampling=True, warp=FILTERS, peer=GENERATE_FILTERED),
    Row("sample_batch of 8", ours_in_batches(_sample_batch, size=8), peer=SAMPLE),
    Row("beam_search, 4 beams", ours_searching(_beam_search), peer=GENERATE_BEAMS),
    Row(TWO_MODELS, one_by_one(two_models_loop), peer=TWO_MODELS),
    method_row("contrastive_decoding", contrastive_decoding, "draft", peer=TWO_MODELS),
    method_row("contrastive_search, k=4", contrastive_search, k=4, peer=GREEDY),
    method_row("dola, lower layers", _dola, peer=GREEDY),
    method_row("context_contrast", _context_contrast, peer=GREEDY),
    speculative_row(2, sampling=False, confidence=0.3),
    speculative_row(8, sampling=True),
    Row(
        "speculative_batch of 8, sampling",
        ours_in_batches(_speculative_batch, size=8),
        peer=f"{SPECULATIVE}, gamma=8",
    ),
    method_row("prompt_lookup, gamma=5", prompt_lookup, gamma=5, peer=GENERATE_LOOKUP, drafting=True),
    method_row("suffix_lookup, gamma=8", suffix_lookup, gamma=8, peer=GENERATE_LOOKUP, drafting=True),
    method_row("lookahead", lookahead, drafting=True),
    method_row("medusa, greedy", medusa, "medusa", peer=assisted(False), drafting=True),
    method_row("medusa, sampling", medusa, "medusa", sampling=True, peer=assisted(True), drafting=True),
    *(eagle_row(name, sampling=sampling) for name in ("eagle", "eagle3") for sampling in (False, True)),
    method_row(
        "token_intersection, sampling, gamma=8", token_intersection, "other_draft", gamma=8, sampling=True,
        peer=GENERATE_SAMPLING, drafting=True, draft="other_draft",
    ),
    method_row("string_match, greedy, gamma=3", string_match, "other_draft", gamma=3),
    method_row(
        "string_match, sampling, gamma=2", string_match, "other_draft", gamma=2, sampling=True, peer=GENERATE_SAMPLING
    ),
    Row(GENERATE, generate(do_sample=False)),
    Row(GENERATE_SAMPLING, generate(**UNWARPED), peer=GENERATE_SAMPLING),
    Row(GENERATE_FILTERED, generate(**FILTERED), peer=GENERATE_FILTERED),
    Row(GENERATE_BEAMS, generate(do_sample=False, num_beams=4), peer=GENERATE_BEAMS),
    Row(GENERATE_ASSISTED, generate({}, do_sample=False), peer=GENERATE_ASSISTED),
    Row(f"{GENERATE_ASSISTED}, tuned", generate(ASSISTANT_GREEDY, do_sample=False), peer=GENERATE_ASSISTED),
    Row(GENERATE_ASSISTED_SAMPLING, generate({}, **UNWARPED), peer=GENERATE_ASSISTED_SAMPLING),
    Row(
        f"{GENERATE_ASSISTED_SAMPLING}, tuned",
        generate(ASSISTANT_SAMPLING, **UNWARPED),
        peer=GENERATE_ASSISTED_SAMPLING,
    ),
    Row(GENERATE_LOOKUP, generate(do_sample=False, prompt_lookup_num_tokens=3), peer=GENERATE_LOOKUP),
]  # fmt: skip
