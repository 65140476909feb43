"""Warps and the softmax after them."""

import math

import pytest
import torch

from tutorlib.warp import checked_warp, one_hot, probabilities, temperature


def test_probabilities_are_the_softmax_in_float64():
    logits = torch.tensor([[0.0, math.log(3)], [2.0, 2.0]])
    probs = probabilities(logits)
    assert probs.dtype == torch.float64
    torch.testing.assert_close(probs, torch.tensor([[0.25, 0.75], [0.5, 0.5]]).double(), atol=1e-7, rtol=0)


def test_half_precision_logits_are_warped_in_float64():
    logits = torch.tensor([[1.0, 3.0, -2.0]], dtype=torch.bfloat16)
    expected = (logits.double() / 0.3).softmax(-1)
    assert torch.equal(probabilities(logits, [temperature(0.3)]), expected)


def test_temperature_divides_logits_by_hand():
    # Probabilities 1/4 and 3/4 at temperature 1/2 become 1/16 and 9/16, normalised: 1/10 and 9/10.
    probs = probabilities(torch.tensor([[1.0, 3.0]]).double().log(), [temperature(0.5)])
    torch.testing.assert_close(probs, torch.tensor([[0.1, 0.9]]).double())


def test_warps_apply_in_order_and_see_the_histories():
    seen = []

    def add_one_to_the_first(logits, histories):
        seen.append(histories)
        return logits + torch.tensor([1.0, 0.0])

    logits = torch.zeros(1, 2)
    first = probabilities(logits, [add_one_to_the_first, temperature(0.5)], [[4, 2]])
    last = probabilities(logits, [temperature(0.5), add_one_to_the_first], [[4, 2]])
    assert float(first[0, 0]) == pytest.approx(1 / (1 + math.exp(-2)))
    assert float(last[0, 0]) == pytest.approx(1 / (1 + math.exp(-1)))
    assert seen == [[[4, 2]], [[4, 2]]]


def test_warps_do_not_change_the_logits_they_are_given():
    logits = torch.randn(3, 5, dtype=torch.float64)
    before = logits.clone()
    probabilities(logits, [temperature(0.5), one_hot])
    assert torch.equal(logits, before)


def test_one_hot_leaves_the_likeliest_token_and_of_equals_the_lowest():
    logits = torch.tensor([[1.0, 3.0, 2.0], [5.0, 5.0, 5.0], [-math.inf, 0.0, 0.0]])
    assert probabilities(logits, [one_hot]).tolist() == [[0, 1, 0], [1, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize("t", [0, -1, float("nan"), float("inf"), "hot", None, True])
def test_a_temperature_must_be_above_zero_and_finite(t):
    with pytest.raises(ValueError, match="rng=None"):
        temperature(t)


def test_a_row_with_nothing_left_is_an_error_that_names_the_warps():
    def forbid_all(logits, histories=None):
        return torch.full_like(logits, -math.inf)

    with pytest.raises(ValueError, match=r"row 0: the warp temperature\(0.7\), forbid_all filtered everything away"):
        probabilities(torch.zeros(2, 3), [temperature(0.7), forbid_all])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_not_numbers_are_an_error(bad):
    logits = torch.zeros(2, 3)
    logits[1, 2] = bad
    with pytest.raises(ValueError, match="row 1 of the logits holds NaN"):
        probabilities(logits)


@pytest.mark.parametrize(
    ("warp", "words"),
    [
        (temperature(0.7), r"write warp=\[temperature\(0.7\)\]"),
        ("top", "list of functions"),
        ([0.7], "0.7"),
        (3, "got 3"),
    ],
)
def test_a_warp_must_be_a_list_of_functions(warp, words):
    with pytest.raises(ValueError, match=words):
        checked_warp(warp)
