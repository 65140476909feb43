"""Greedy decoding is what transformers calls greedy decoding, and what the definition says."""

import math

import pytest
import torch
from conftest import WINDOW, exactly
from lossless import Forcing, unlike

from tutorlib import decoders
from tutorlib.decoders import greedy
from tutorlib.model.table import TableLM
from tutorlib.running.decoding import run


def generated(lm, prompt, count):
    """What transformers' own greedy search adds to the prompt."""
    with torch.no_grad():
        output = lm.model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            do_sample=False,
            max_new_tokens=count,
            eos_token_id=None,
            pad_token_id=0,
        )
    return output[0, len(prompt) :].tolist()


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_equals_generate_token_for_token_past_the_sliding_window(family):
    lm, seen = unlike(family, 1), set()
    with exactly(torch.float64):
        for prompt in ([5], [7, 3, 11], list(range(1, WINDOW + 4))):
            trace = run(greedy(lm, prompt), 2 * WINDOW)
            assert trace.tokens == generated(lm, prompt, 2 * WINDOW)
            seen.update(trace.tokens)
    assert len(seen) > 3, "a model that repeats itself would hide mistakes"


def test_of_equally_likely_tokens_takes_the_lowest_id():
    lm = TableLM({"": [0.2, 0.4, 0.4]})
    assert run(greedy(lm, "a"), 3).tokens == [1, 1, 1]


METHODS = {
    "greedy": {},
    "sample": {"rng": None},
    "beam_search": {"beams": 2, "max_new_tokens": 2},
    "best_first_beam_search": {"beams": 2, "max_new_tokens": 2},
    "context_contrast": {"without": "b", "weight": 1.0},
    "contrastive_decoding": {"amateur": TableLM.random(3, 1, 0)},
    "contrastive_sampling": {"amateur": TableLM.random(3, 1, 0), "rng": None},
    "contrastive_beam_search": {"amateur": TableLM.random(3, 1, 0), "beams": 2, "max_new_tokens": 2},
    "jump_ahead": {"grammar": Forcing(TableLM.random(3, 1, 0), 2)},
    "lookahead": {},
    "prompt_lookup": {"gamma": 2},
    "suffix_lookup": {"gamma": 2},
    "speculative": {"draft": TableLM.random(3, 1, 0)},
    "string_match": {"draft": TableLM.random(3, 1, 0)},
    "token_intersection": {"draft": TableLM.random(3, 1, 0)},
}


@pytest.mark.parametrize("name", METHODS)
def test_logits_without_a_most_likely_token_are_refused_by_every_method_as_by_sample(name):
    lm = TableLM.random(3, 1, 0)
    for row in ([0, math.inf, 0], [-math.inf] * 3):
        lm.log_probs = lambda tokens, row=row: torch.tensor(row, dtype=torch.float64)
        with pytest.raises(ValueError, match=r"row 0.* (NaN or \+inf|nothing but -inf)|no token is left in row 0"):
            run(getattr(decoders, name)(lm, prompt="aba", **METHODS[name]), 2)


def test_is_locally_right_and_globally_wrong_by_hand():
    # Greedy starts with b (0.6) and is then stuck with 0.6 * 0.4; c, then a, has 0.4 * 1.
    lm = TableLM({"a": [0.0, 0.6, 0.4], "b": [0.4, 0.3, 0.3], "c": [1.0, 0.0, 0.0]})
    assert run(greedy(lm, "a"), 2).text == "ba"


def test_offers_its_candidates_with_the_token_it_takes_first(llama):
    trace = run(greedy(llama, [3, 1, 4]), 5)
    probs = llama.session([3, 1, 4]).feed()[-1].double().softmax(-1)
    for step in trace.steps:
        assert step.candidates[0][0][0] == step.tokens[0]
        assert len(step.candidates[0]) == 5
    assert trace.steps[0].candidates[0][0][1] == pytest.approx(float(probs.max()))
