"""The rows of the benchmark: each method with its settings, and its peer of `transformers` beside it.

A row makes the same number of new tokens after each prompt, at any temperature that it can run at (0 is greedy), and
for as many prompts at a time as it can take; `measuring` times the rows against each other. No stop token ends a text
here, so that all rows do the same work. A new method needs one line in `ROWS`. What this file does not do: make a row
from a method or from `generate` (`row_makers`).

Settings are those that were fastest with the bundled models on two processor cores: of ours, and of the peers. Where
one setting is fastest greedily and another for samples, or a peer's own setting is not its fastest, both have a row.
"""

from __future__ import annotations

from typing import Any

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
from ...running.decoding import run
from ...sampling.warp import top_k, top_p
from .other_programs import llama_cpp, openvino
from .row_makers import (
    GENERATE,
    Row,
    generate_row,
    method_row,
    other_program_row,
    output_of,
    pytorch_loop,
    two_models_loop,
)

PLAIN = "plain loop"
PYTORCH = "plain loop in PyTorch"
COPY_ALONE = "eight-bit copy, alone"
WITH_COPY = "eight-bit copy as draft, gamma=5"
CHAIN_OF_THREE = "eight-bit copy with lookups, gamma=8"
TWO_MODELS = "expert and amateur calls"
GENERATE_FILTERED = "generate, filtered"
GENERATE_BEAMS = "generate(num_beams=4)"
GENERATE_ASSISTED = "generate(assistant_model)"
GENERATE_LOOKUP = "generate(prompt_lookup_num_tokens=3)"
LLAMA_CPP = {32: "llama.cpp, float32", 4: "llama.cpp, four bits"}
OPENVINO = {False: "OpenVINO GenAI", True: "OpenVINO GenAI, prompt lookup"}
OTHER_PROGRAMS = (*LLAMA_CPP.values(), *OPENVINO.values())
# The usual filters, for both: transformers applies them after the temperature, in this order.
FILTERS = [top_k(50), top_p(0.9)]
FILTERED: dict[str, Any] = {"top_k": 50, "top_p": 0.9}
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
