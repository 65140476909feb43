"""What the methods that write one token a call share: its cost, its ends, its seeds, and logits that are no numbers."""

import math

import pytest
import torch
from lossless import unlike

from tutorlib import (
    LM,
    NaNLogits,
    Seeded,
    TableLM,
    beam_search,
    context_contrast,
    contrastive_beam_search,
    contrastive_decoding,
    contrastive_sampling,
    contrastive_search,
    dola,
    greedy,
    run,
    sample,
)

# Of each method: its steps for a target and another model, which only some of them read.
DRAWING = {
    "sample": lambda lm, other, **how: sample(lm, [3, 1, 4], **how),
    "dola": lambda lm, other, **how: dola(lm, [3, 1, 4], layers=range(lm.layers), **how),
    "context_contrast": lambda lm, other, **how: context_contrast(lm, [3, 1, 4], without=[4], weight=1, **how),
    "contrastive_sampling": lambda lm, other, **how: contrastive_sampling(lm, other, [3, 1, 4], **how),
}
METHODS = {
    "greedy": lambda lm, other, rng: greedy(lm, [3, 1, 4]),
    "contrastive_decoding": lambda lm, other, rng: contrastive_decoding(lm, other, [3, 1, 4]),
    **DRAWING,
}


@pytest.mark.parametrize("method", DRAWING.values(), ids=DRAWING)
def test_the_same_seed_gives_the_same_text_and_another_seed_another(method):
    lm, other = unlike("llama", 0), unlike("gpt2", 1)
    draws = [run(method(lm, other, rng=Seeded(seed)), 20).tokens for seed in (5, 5, 6)]
    assert draws[0] == draws[1] != draws[2]


@pytest.mark.parametrize("rng", [None, Seeded(0)], ids=["greedy", "drawn"])
@pytest.mark.parametrize("name", METHODS)
def test_costs_one_call_a_token_and_ends_where_the_context_does(name, rng):
    lm, other = LM(unlike("llama", 0).model, context=12), LM(unlike("gpt2", 1).model)
    trace = run(METHODS[name](lm, other, rng=rng), 100)
    assert (len(trace.tokens), trace.stopped, trace.target_calls, len(trace.steps)) == (9, "context", 9, 9)
    assert (lm.calls, other.calls) == (9, 9 * name.startswith("contrastive"))


BEAMS = {"beams": 2, "max_new_tokens": 3}
READING = {
    "greedy": lambda lm, other: greedy(lm, "a"),
    "sample": lambda lm, other: sample(lm, "a", rng=None),
    "beam_search": lambda lm, other: beam_search(lm, "a", **BEAMS),
    "contrastive_search": lambda lm, other: contrastive_search(lm, "a", k=2),
    "context_contrast": lambda lm, other: context_contrast(lm, "a", without="b", weight=1),
    "contrastive_decoding": lambda lm, other: contrastive_decoding(lm, other, "a"),
    "contrastive_sampling": lambda lm, other: contrastive_sampling(lm, other, "a", rng=None),
    "contrastive_beam_search": lambda lm, other: contrastive_beam_search(lm, other, "a", **BEAMS),
}
OF_THE_OTHER = [(name, 1, "aa") for name in list(READING)[-3:]]


@pytest.mark.parametrize("wrong", [math.inf, math.nan])
@pytest.mark.parametrize(
    ("name", "who", "text"),
    [*((name, 0, "aa") for name in READING), ("context_contrast", 0, "ba"), *OF_THE_OTHER],
)
def test_logits_that_are_no_numbers_are_an_error_of_the_step_that_reads_them(name, who, text, wrong):
    pair = TableLM({"": [0.5, 0.5], text: [0.5, 0.5]}), TableLM({"": [0.4, 0.6], text: [0.5, 0.5]})
    pair[who]._rows[tuple(map("ab".index, text))] = torch.tensor([0.0, wrong], dtype=torch.float64)
    steps = READING[name](*pair)
    if name != "contrastive_search":  # which reads one token further
        next(steps)
    with pytest.raises(NaNLogits if math.isnan(wrong) else ValueError, match="NaN"):
        next(steps)
