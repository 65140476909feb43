"""Early exit drafts with the target's own first layers. That it is exact: `test_lossless.py`."""

import copy

import pytest
import torch
from conftest import random_model
from test_llama import tiny

from tutorlib.decoders import early_exit, greedy
from tutorlib.drafting.checking import exact
from tutorlib.model import llama
from tutorlib.model.lm import LM
from tutorlib.model.table import TableLM
from tutorlib.running.decoding import run


def target(kind="loops"):
    """In the compiled loops, or in PyTorch's operators."""
    return LM(tiny(num_hidden_layers=4) if kind == "loops" else random_model("llama", torch.float64))


@pytest.mark.parametrize("kind", ["loops", "PyTorch"])
def test_it_drafts_what_transformers_own_early_exit_drafts(kind):
    lm, prompt = target(kind), [3, 1, 4, 1, 5]
    trace = run(early_exit(lm, prompt, layers=2, gamma=3), 30, stop=())
    assert trace.tokens == run(greedy(lm, prompt), 30, stop=()).tokens
    model, calls = copy.deepcopy(lm.model), []
    forward = model.forward

    def counted(*args, **kwargs):
        if model.config.num_hidden_layers == lm.layers:  # in the draft's calls, the configuration names fewer
            calls.append(kwargs["input_ids"][0].tolist())
        return forward(*args, **kwargs)

    model.forward = counted
    ids = torch.tensor([prompt])
    alike = {"num_assistant_tokens": 3, "num_assistant_tokens_schedule": "constant", "eos_token_id": None}
    model.generation_config.update(**alike, assistant_confidence_threshold=0.0)
    made = model.generate(
        ids, attention_mask=torch.ones_like(ids), assistant_early_exit=2, max_new_tokens=30, do_sample=False,
        eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    assert made[0, len(prompt) :].tolist() == trace.tokens
    # The first call drafts there and not here, and each cuts the last drafts to the room in its own way.
    assert [call[1:] for call in calls[1:-2]] == [step.drafted for step in trace.steps[1:-2]] and len(calls) > 10


@pytest.mark.parametrize("kind", ["loops", "PyTorch"])
def test_the_draft_has_no_weights_and_computes_nothing_of_the_text(kind):
    lm = target(kind)
    early = lm.first_layers(2)
    assert early is lm.first_layers(2) is lm.counted().first_layers(2) and early.first_of is lm
    mine = {weight.data_ptr() for weight in lm.model.parameters()}
    assert {weight.data_ptr() for weight in early.model.parameters()} < mine
    session = lm.session([3, 1, 4, 1, 5])
    session.feed()
    before = early.calls
    drafts = session.first_layers(early)
    expected = early.session([3, 1, 4, 1, 5, 9])
    torch.testing.assert_close(drafts.feed([9]), expected.feed()[-1:], rtol=1e-4, atol=1e-5)
    assert early.calls == before + 2
    # What the draft has written is overwritten by the target.
    whole = lm.session([3, 1, 4, 1, 5, 2]).feed()[-1:]
    torch.testing.assert_close(session.feed([2]), whole, rtol=1e-4, atol=1e-5)


def test_another_model_computes_the_whole_sequence_itself():
    lm, other = target(), TableLM.random(19, 1, 0)
    session = lm.session([3, 1, 4])
    session.feed()
    drafts = session.first_layers(other)
    assert drafts.tokens == [3, 1, 4] and drafts.feed([5]).shape == (2, 19)


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"layers": 0}, "after how many of the target's layers .* 1 or more, got 0"),
        ({"layers": 4}, "layers must be less than the target's 4, .* got 4"),
        ({"layers": 2, "gamma": 0}, "gamma is how many tokens .* got 0"),
        ({"layers": 2, "rule": exact}, "rule must be a function of the draft's distributions"),
    ],
)
def test_bad_arguments_are_named_at_the_call(settings, said):
    with pytest.raises(ValueError, match=said):
        early_exit(target(), [1], **settings)


def test_models_of_another_kind_are_refused():
    with pytest.raises(ValueError, match="GPT2LMHeadModel is not built like Llama"):
        early_exit(LM(random_model("gpt2")), [1], layers=1)
    with pytest.raises(ValueError, match="TableLM has no layers after which a draft could end"):
        early_exit(TableLM.random(3, 1, 0), [1], layers=1)


def test_where_the_loops_are_off_the_draft_shares_the_cache_too():
    lm = target()
    with llama.without_loops():
        made = run(early_exit(lm, [3, 1, 4], layers=3, gamma=2), 20, stop=())
    assert made.tokens == run(early_exit(lm, [3, 1, 4], layers=3, gamma=2), 20, stop=()).tokens
