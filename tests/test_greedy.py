"""Greedy decoding is what transformers calls greedy decoding, and what the definition says."""

import pytest
import torch
from conftest import WINDOW, random_model

from tutorlib.decoders import greedy
from tutorlib.lm import LM
from tutorlib.run import run
from tutorlib.table import TableLM


@pytest.fixture
def talkative(family):
    """A random model of each family that does not repeat itself: its output head is not its input embedding."""
    model = random_model(family)
    head = model.get_output_embeddings()
    generator = torch.Generator().manual_seed(1)
    head.weight = torch.nn.Parameter(torch.randn(head.weight.shape, generator=generator))
    return LM(model)


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


def test_equals_generate_token_for_token_past_the_sliding_window(talkative):
    count = 2 * WINDOW
    seen = set()
    for prompt in ([5], [7, 3, 11], list(range(1, WINDOW + 4))):
        trace = run(greedy(talkative, prompt), count)
        assert trace.tokens == generated(talkative, prompt, count)
        seen.update(trace.tokens)
    assert len(seen) > 3, "a model that repeats itself would hide mistakes"


def test_equals_the_definition_without_a_cache(llama):
    text = [3, 1, 4]
    for _ in range(10):
        with torch.no_grad():
            text.append(int(llama.model(torch.tensor([text])).logits[0, -1].argmax()))
    assert run(greedy(llama, [3, 1, 4]), 10).tokens == text[3:]


def test_costs_one_call_a_token(llama):
    trace = run(greedy(llama, [3, 1, 4]), 9)
    assert (trace.target_calls, len(trace.steps)) == (9, 9)


def test_of_equally_likely_tokens_takes_the_lowest_id():
    lm = TableLM({"": [0.2, 0.4, 0.4]})
    assert run(greedy(lm, "a"), 3).tokens == [1, 1, 1]


def test_is_locally_right_and_globally_wrong_by_hand():
    # Greedy starts with b (0.6) and is then stuck with 0.6 * 0.4; c, then a, has 0.4 * 1.
    lm = TableLM({"a": [0.0, 0.6, 0.4], "b": [0.4, 0.3, 0.3], "c": [1.0, 0.0, 0.0]})
    assert run(greedy(lm, "a"), 2).text == "ba"


def test_ends_where_the_context_does(models):
    lm = LM(models("llama"), context=12)
    trace = run(greedy(lm, [3, 1, 4]), 100)
    assert (len(trace.tokens), trace.stopped) == (9, "context")


def test_offers_its_candidates_with_the_token_it_takes_first(llama):
    trace = run(greedy(llama, [3, 1, 4]), 5)
    probs = llama.session([3, 1, 4]).feed()[-1].double().softmax(-1)
    for step in trace.steps:
        assert step.candidates[0][0][0] == step.tokens[0]
        assert len(step.candidates[0]) == 5
    assert trace.steps[0].candidates[0][0][1] == pytest.approx(float(probs.max()))
