"""The formulas, by hand and against PyTorch's own count of what a forward pass does."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tutorlib import theory
from tutorlib.cost import shape_of
from tutorlib.lm import LM


def test_operations_by_hand():
    assert theory.call_operations(10, tokens=3) == 60
    # One new token, nine before it: in each of 2 layers, 10 keys and 10 values of 8 numbers, 2 operations each.
    assert theory.call_operations(0, tokens=1, cached=9, layers=2, query_width=8) == 2 * 20 * 8 * 2
    # Three new tokens see 10, 11 and 12 tokens: 33 pairs.
    assert theory.call_operations(0, tokens=3, cached=9, layers=2, query_width=8) == 2 * 66 * 8 * 2


@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen3"], indirect=True)
@pytest.mark.parametrize("tokens", [1, 5])
def test_operations_equal_pytorchs_count_of_a_forward_pass(models, family, tokens):
    lm = LM(models(family))
    shape = shape_of(lm)
    text = torch.arange(tokens)[None]
    attention = lm.model.config._attn_implementation
    lm.model.set_attn_implementation("eager")
    try:
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            lm.model(input_ids=text, use_cache=False)
    finally:
        lm.model.set_attn_implementation(attention)
    expected = theory.call_operations(
        shape.parameters, tokens, layers=shape.layers, query_width=shape.query_width
    )
    # PyTorch computes the half of the attention that the mask then hides; rotary angles are a few operations more.
    hidden = 4 * shape.layers * shape.query_width * tokens * (tokens - 1) // 2
    assert counter.get_total_flops() == pytest.approx(expected + hidden, rel=0.01)


def test_bytes_by_hand():
    assert theory.cache_bytes(100, layers=12, key_width=256) == 100 * 12 * 256 * 2 * 4
    assert theory.cache_bytes(100, layers=12, key_width=256, bytes_each=2) == 100 * 12 * 256 * 2 * 2
    assert theory.call_bytes(1000, tokens=5, bytes_each=2) == 2000
    assert theory.call_bytes(1000, tokens=5, cached=20, layers=3, key_width=4) == 4000 + 25 * 3 * 4 * 2 * 4


def test_one_token_has_half_an_operation_a_byte_in_float32_and_many_tokens_have_more():
    def intensity(tokens):
        return theory.arithmetic_intensity(
            theory.call_operations(10_000, tokens), theory.call_bytes(10_000, tokens)
        )

    assert intensity(1) == 0.5
    assert intensity(5) == 2.5


def test_the_roofline_is_the_longer_of_the_two_times():
    assert theory.roofline_seconds(10, 100, peak_operations=10, bandwidth=50) == 2
    assert theory.roofline_seconds(100, 100, peak_operations=10, bandwidth=50) == 10


def test_nonsense_is_named():
    with pytest.raises(ValueError, match="bytes_moved must be above 0, got 0"):
        theory.arithmetic_intensity(10, 0)
    with pytest.raises(ValueError, match="bandwidth must be above 0, got -1"):
        theory.roofline_seconds(1, 1, peak_operations=1, bandwidth=-1)
