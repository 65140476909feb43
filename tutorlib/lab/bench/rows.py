"""The rows of the benchmark: each method with its settings, and its peer of `transformers` beside it.

A row makes the same number of new tokens after each prompt, at any temperature that it can run at (0 is greedy), and
for as many prompts at a time as it can take; `measuring` times the rows against each other. No stop token ends a text
here, so that all rows do the same work. A new method needs one line in `ROWS`.

Settings are those that were fastest with the bundled models on two processor cores: of ours, and of the peers. Where
one setting is fastest greedily and another for samples, or a peer's own setting is not its fastest, both have a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

import torch
import transformers
from transformers import GenerationConfig

from ...decoders import beam_search, greedy, sample
from ...decoders.context_contrast import context_contrast
from ...decoders.contrastive_decoding import contrastive_decoding
from ...decoders.contrastive_search import contrastive_search
from ...decoders.dflash import dflash
from ...decoders.dola import dola, lower_layers
from ...decoders.dspark import dspark
from ...decoders.eagle import eagle
from ...decoders.early_exit import early_exit
from ...decoders.lookahead import lookahead
from ...decoders.medusa import medusa
from ...decoders.mtp import mtp
from ...decoders.parallel_draft import parallel_draft
from ...decoders.prompt_lookup import prompt_lookup
from ...decoders.sample_batch import sample_batch
from ...decoders.speculative import speculative
from ...decoders.speculative_batch import speculative_batch
from ...decoders.string_match import string_match
from ...decoders.suffix_lookup import suffix_lookup
from ...decoders.token_intersection import token_intersection
from ...drafting.draft_trees import chain_draft, drawn_chain
from ...drafting.lookup_draft import with_lookup
from ...model.cache import call_with_cache
from ...running.decoding import run, run_batch
from ...running.step import Step
from ...running.trace import Trace
from ...sampling.randomness import Seeded
from ...sampling.warp import Warp, probabilities, temperature, top_k, top_p
from .other_programs import llama_cpp, openvino

PLAIN = "plain loop"
PYTORCH = "plain loop in PyTorch"
COPY_ALONE = "eight-bit copy, alone"
WITH_COPY = "eight-bit copy as draft, gamma=5"
CHAIN_OF_THREE = "eight-bit copy with lookups, gamma=8"
TWO_MODELS = "expert and amateur calls"
GENERATE = "generate"
GENERATE_FILTERED = "generate, filtered"
GENERATE_BEAMS = "generate(num_beams=4)"
GENERATE_ASSISTED = "generate(assistant_model)"
GENERATE_LOOKUP = "generate(prompt_lookup_num_tokens=3)"
LLAMA_CPP = {32: "llama.cpp, float32", 4: "llama.cpp, four bits"}
OPENVINO = {False: "OpenVINO GenAI", True: "OpenVINO GenAI, prompt lookup"}
OTHER_PROGRAMS = (*LLAMA_CPP.values(), *OPENVINO.values())


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


# ----------------------------------------------------------------------------------------------------------------------
# How rows are made


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
        drawn = {"warp": [*usual(t, p), *filters]} if t else {}
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


# ----------------------------------------------------------------------------------------------------------------------
# The rows

# The options that make transformers sample from the model as it is: its defaults filter.
UNWARPED = {"do_sample": True, "top_k": 0, "top_p": 1.0}
# The usual filters, for both: transformers applies them after the temperature, in this order.
FILTERS = [top_k(50), top_p(0.9)]
FILTERED = {"top_k": 50, "top_p": 0.9}
# How an assistant drafts: so many tokens, or up to the first of which it is less sure than this.
ASSISTANT_GREEDY = {
    "num_assistant_tokens": 5,
    "num_assistant_tokens_schedule": "constant",
    "assistant_confidence_threshold": 0.3,
}
ASSISTANT_SAMPLING = ASSISTANT_GREEDY | {"num_assistant_tokens": 10, "assistant_confidence_threshold": 0.0}

DRAWN = 9  # tokens that an EAGLE network draws in a step when sampling


def eagle_row(name: str, **more) -> Row:
    """A row for `eagle` with this network of the family."""
    return method_row(name, eagle, name.partition(",")[0], peer=GENERATE_ASSISTED, drafting=True, **more)


def speculative_row(gamma: int, *, confidence: float = 0.0) -> Row:
    """A row for `speculative` with this γ."""
    return method_row(
        f"speculative, gamma={gamma}", speculative, "draft", together=speculative_batch, peer=GENERATE_ASSISTED,
        drafting=True, gamma=gamma, confidence=confidence,
    )  # fmt: skip


def _one(target, prompt, rng=None, warp=()):
    return sample(target, prompt, rng=rng, warp=warp) if rng else greedy(target, prompt)


def _copy_alone(target, copy, prompt, **drawn):
    return _one(copy, prompt, **drawn)


def _chain_of_three(target, copy, prompt, **more):
    return speculative(target, with_lookup(copy), prompt, **more)


def _early_exit(target, prompt, **drawn):
    return early_exit(target, prompt, layers=2 * target.layers // 3, **drawn)


def _dola(target, prompt, **drawn):
    return dola(target, prompt, layers=lower_layers(target), **drawn)


def _context_contrast(target, prompt, **drawn):
    return context_contrast(target, prompt, without=prompt[-1:], weight=0.5, **drawn)


def _beam_search(family, prompts, count, seed, t, p=1.0):
    steps = beam_search(family.target, prompts[0], beams=4, max_new_tokens=count, stop=())
    return output_of([run(steps, count, stop=(), progress=False)])


# What is measured with each kind of prompt, where the family has a chat format.
OF_EACH_KIND = (
    PLAIN, PYTORCH, COPY_ALONE, WITH_COPY, CHAIN_OF_THREE, "speculative, gamma=2", "prompt_lookup, gamma=5",
    "suffix_lookup, gamma=8", "lookahead", "medusa", "medusa, 1 guess", "eagle", "eagle3", "eagle3, 1 guess",
    "eagle3, 1 drawn", "pruned draft, gamma=1", GENERATE_LOOKUP, *OTHER_PROGRAMS,
)  # fmt: skip

ROWS = [
    method_row(PLAIN, _one, together=sample_batch),
    Row(PYTORCH, pytorch_loop),
    method_row(COPY_ALONE, _copy_alone, "quantized", peer=None),
    method_row(WITH_COPY, speculative, "quantized", drafting=True, gamma=5),
    method_row(CHAIN_OF_THREE, _chain_of_three, "quantized", gamma=8),
    method_row("sample, filtered", sample, together=sample_batch, filters=FILTERS, peer=GENERATE_FILTERED,
               greedily=False),
    Row("beam_search, 4 beams", _beam_search, GENERATE_BEAMS, texts=4, sampling=False),
    Row(TWO_MODELS, two_models_loop, TWO_MODELS, helpers=("draft",), sampling=False),
    method_row("contrastive_decoding", contrastive_decoding, "draft", peer=TWO_MODELS, sampling=False),
    method_row("contrastive_search, k=4", contrastive_search, k=4, peer=PLAIN, sampling=False),
    method_row("dola, lower layers", _dola, peer=PLAIN),
    method_row("context_contrast", _context_contrast, peer=PLAIN, texts=2),
    speculative_row(2, confidence=0.3),
    speculative_row(8),
    method_row("prompt_lookup, gamma=5", prompt_lookup, gamma=5, peer=GENERATE_LOOKUP, drafting=True),
    method_row("suffix_lookup, gamma=8", suffix_lookup, gamma=8, peer=GENERATE_LOOKUP, drafting=True),
    method_row("lookahead", lookahead, drafting=True),
    method_row("medusa", medusa, "medusa", peer=GENERATE_ASSISTED, drafting=True),
    method_row("medusa, 1 guess", medusa, "medusa", peer=GENERATE_ASSISTED, drafting=True, shape=[(0,)]),
    eagle_row("eagle"),
    eagle_row(f"eagle, {DRAWN} drawn", shape=drawn_chain(DRAWN), greedily=False),
    eagle_row("eagle3"),
    eagle_row("eagle3, 1 guess", shape=chain_draft(1)),
    eagle_row("eagle3, 1 drawn", shape=drawn_chain(1), greedily=False),
    eagle_row(f"eagle3, {DRAWN} drawn", shape=drawn_chain(DRAWN), greedily=False),
    method_row("pruned draft, gamma=1", speculative, "pruned", peer=GENERATE_ASSISTED, drafting=True, gamma=1),
    method_row("early_exit, two thirds", _early_exit, peer=GENERATE_ASSISTED),
    method_row("dflash", dflash, "dflash", peer=GENERATE_ASSISTED, drafting=True),
    method_row("dflash, drawn", dflash, "dflash", peer=GENERATE_ASSISTED, drafting=True, shape=drawn_chain(8),
               greedily=False),
    method_row("mtp", mtp, "mtp", peer=GENERATE_ASSISTED, drafting=True),
    method_row("parallel_draft", parallel_draft, "parallel", peer=GENERATE_ASSISTED, drafting=True),
    method_row("dspark", dspark, "dspark", peer=GENERATE_ASSISTED, drafting=True),
    method_row("dspark, drawn", dspark, "dspark", peer=GENERATE_ASSISTED, drafting=True, shape=drawn_chain(8),
               greedily=False),
    method_row("token_intersection, gamma=8", token_intersection, "other_draft", gamma=8, drafting=True),
    method_row("string_match, gamma=3", string_match, "other_draft", gamma=3),
    generate_row(GENERATE, at={"in_batches": True}),
    generate_row(GENERATE_FILTERED, at={"in_batches": True, "greedily": False}, **FILTERED),
    generate_row(GENERATE_BEAMS, at={"sampling": False, "texts": 4}, num_beams=4),
    generate_row(GENERATE_ASSISTED, assisted=True),
    generate_row(f"{GENERATE_ASSISTED}, tuned", GENERATE_ASSISTED, assisted=True, tuned=True),
    generate_row(GENERATE_LOOKUP, prompt_lookup_num_tokens=3),
    *(other_program_row(name, llama_cpp, bits=bits) for bits, name in LLAMA_CPP.items()),
    *(other_program_row(name, openvino, lookup=lookup) for lookup, name in OPENVINO.items()),
]  # fmt: skip
