"""The formulas, by hand and against PyTorch's own count of what a forward pass does."""

import math
import random

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tutorlib.measures import theory
from tutorlib.measures.cost import CallTimes, shape_of
from tutorlib.model.lm import LM
from tutorlib.sampling.randomness import Exhaustive


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
    expected = theory.call_operations(shape.parameters, tokens, layers=shape.layers, query_width=shape.query_width)
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
        return theory.arithmetic_intensity(theory.call_operations(10_000, tokens), theory.call_bytes(10_000, tokens))

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


# ----------------------------------------------------------------------------------------------------------------------
# Speculation

# Leviathan et al. (2023), table 1: alpha, gamma and speed against the plain loop, for a draft that is free.
PAPERS_TABLE = [
    (0.6, 2, 1.96),
    (0.7, 3, 2.53),
    (0.8, 2, 2.44),
    (0.8, 5, 3.69),
    (0.9, 2, 2.71),
    (0.9, 10, 6.86),
]


@pytest.mark.parametrize(("alpha", "gamma", "speed"), PAPERS_TABLE)
def test_speeds_are_those_of_the_papers_table(alpha, gamma, speed):
    assert theory.walltime_factor(alpha, gamma, 0.0) == pytest.approx(speed, abs=0.005)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("gamma", [0, 1, 2, 5])
def test_expected_tokens_are_those_of_a_round_with_independent_acceptances(alpha, gamma):
    expected = 0.0
    for rng in Exhaustive():
        accepted = 0
        while accepted < gamma and rng.accept(alpha):
            accepted += 1
        expected += rng.weight * (accepted + 1)
    assert theory.expected_tokens(alpha, gamma) == pytest.approx(expected)
    if alpha < 1:
        assert theory.expected_tokens(alpha, gamma) == pytest.approx((1 - alpha ** (gamma + 1)) / (1 - alpha))


def test_an_alpha_close_to_one_is_no_trouble():
    assert theory.expected_tokens(1 - 1e-16, 5) == pytest.approx(6)
    assert theory.expected_tokens(1 - 1e-9, 5) == pytest.approx(6 - 15e-9, abs=1e-12)


def test_what_a_draft_is_accepted_for_is_what_the_two_distributions_share():
    assert theory.acceptance_rate([0.5, 0.3, 0.2], [0.2, 0.2, 0.6]) == pytest.approx(0.6)
    assert theory.acceptance_rate([0.5, 0.5, 0.0], [0.0, 0.0, 1.0]) == 0
    assert theory.acceptance_rate([0.5, 0.5], [0.5, 0.5]) == 1
    with pytest.raises(ValueError, match="as long as the vocabulary, got 2 and 3"):
        theory.acceptance_rate([0.5, 0.5], [0.5, 0.25, 0.25])


def test_time_by_hand():
    # A round: 3 draft calls of 0.1 and a target call of 1 give 1 + 0.5 + 0.25 + 0.125 tokens.
    assert theory.walltime_factor(0.5, 3, 0.1) == pytest.approx(1.875 / 1.3)
    assert theory.walltime_factor(0.0, 4, 0.25) == 0.5
    assert theory.walltime_factor(0.9, 0, 0.25) == 1


def test_an_alpha_above_c_pays_as_the_papers_corollary_says():
    for alpha, c in ((0.3, 0.2), (0.6, 0.05), (0.95, 0.9)):
        gamma = theory.best_gamma(alpha, c, most=50)
        assert gamma >= 1
        assert theory.walltime_factor(alpha, gamma, c) >= (1 + alpha) / (1 + c) > 1
    assert theory.best_gamma(0.2, 0.2, most=50) == theory.best_gamma(0.1, 0.2, most=50) == 0


def test_the_best_gamma_is_the_best_of_all_and_the_least_of_equals():
    assert theory.best_gamma(0.8, 0.05, most=16) == 8
    factors = [theory.walltime_factor(0.8, gamma, 0.05) for gamma in range(17)]
    assert factors.index(max(factors)) == 8
    assert theory.best_gamma(0.8, 0.05, most=5) == 5
    assert theory.best_gamma(0.0, 0.0, most=9) == 0, "with a free draft that is never right all are equal"
    assert theory.best_gamma(1.0, 0.5, most=9) == 9


def test_a_measured_curve_that_is_flat_gives_the_papers_factor():
    for alpha, gamma, c in ((0.0, 3, 0.1), (0.7, 4, 0.2), (1.0, 2, 0.0)):
        measured = theory.measured_factor(alpha, gamma, [2.0] * 6, 2.0 * c)
        assert measured == pytest.approx(theory.walltime_factor(alpha, gamma, c))
    assert theory.best_measured_gamma(0.8, [1.0] * 17, 0.05, most=16) == theory.best_gamma(0.8, 0.05, most=16)


def test_a_measured_curve_that_rises_costs_what_it_says():
    seconds = [3.0, 3.3, 3.6, 9.0]
    assert theory.measured_factor(0.5, 2, seconds, 0.5) == pytest.approx(1.75 * 3.0 / (1.0 + 3.6))
    assert theory.measured_factor(0.5, 0, seconds, 0.5) == 1
    assert theory.best_measured_gamma(0.8, seconds, 0.5, most=3) == 2
    assert theory.best_measured_gamma(0.05, seconds, 0.5, most=3) == 0
    assert theory.best_measured_gamma(0.8, CallTimes(*([seconds] * 4)).seconds, 0.5, most=3) == 2


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: theory.expected_tokens(1.1, 2), "alpha must be the probability .* from 0 to 1, got 1.1"),
        (lambda: theory.expected_tokens(-0.1, 2), "alpha"),
        (lambda: theory.expected_tokens(float("nan"), 2), "alpha"),
        (lambda: theory.expected_tokens(0.5, -1), "gamma .*whole number of 0 or more, got -1"),
        (lambda: theory.expected_tokens(0.5, 1.5), "gamma"),
        (lambda: theory.expected_tokens(0.5, True), "gamma"),
        (lambda: theory.walltime_factor(0.5, 2, -0.1), "c, the time .* got -0.1"),
        (lambda: theory.measured_factor(0.5, 2, [1.0, 1.0], 0.1), "gamma = 2 needs .* 3 tokens, but .* has 2 times"),
        (lambda: theory.measured_factor(0.5, 1, [0.0, 1.0], 0.1), "finite and above 0, got 0.0 for 1 token, 1.0 for 2"),
        (lambda: theory.measured_factor(0.5, 1, [1.0, float("nan")], 0.1), "finite and above 0"),
        (lambda: theory.measured_factor(0.5, 1, [1.0, 1.0], -1), "draft_seconds"),
        (lambda: theory.best_gamma(0.5, 0.1, most=-1), "most"),
        (lambda: theory.best_measured_gamma(0.5, [1.0, 1.0], 0.1, most=2), "gamma = 2 needs"),
    ],
)
def test_nonsense_about_speculation_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_alpha_is_estimated_from_the_tokens_that_were_checked():
    """A thousand rounds with acceptances that are independent: the estimate finds their probability again."""
    rng = random.Random(0)
    rounds = []
    for _ in range(1000):
        accepted = next((place for place in range(4) if rng.random() >= 0.7), 4)
        rounds.append((4, accepted))
    assert theory.estimated_alpha(rounds) == pytest.approx(0.7, abs=0.02)
    assert math.isnan(theory.estimated_alpha([])) and math.isnan(theory.estimated_alpha([(0, 0)]))


def test_rounds_of_one_length_cost_what_the_formula_says():
    call_seconds, alpha = [2.0, 2.2, 2.5, 2.9], 0.5
    # With alpha = 1/2 and gamma = 2, of four rounds two accept nothing, one accepts one token, and one accepts both.
    rounds = [(2, 2, 1), (2, 2, 1), (2, 2, 2), (2, 2, 3)]
    expected = theory.measured_factor(alpha, 2, call_seconds, 0.3)
    assert theory.rounds_factor(rounds, call_seconds, 0.3) == pytest.approx(expected)
    assert theory.rounds_factor([(0, 0, 1)] * 3, call_seconds) == 1, "who drafts nothing is the plain loop"


def test_a_round_takes_its_draft_calls_however_many_tokens_they_drafted():
    """A tree of 3 nodes on 2 levels: a call of 4 tokens, and two draft calls."""
    assert theory.rounds_factor([(3, 2, 3)], [2.0, 2.2, 2.5, 2.9], 0.3) == pytest.approx(3 * 2.0 / (2.9 + 2 * 0.3))


@pytest.mark.parametrize(
    ("rounds", "seconds", "words"),
    [([], [1.0], "0 rounds"), ([(3, 3, 1)], [1.0, 2.0], "up to 4 tokens"), ([(1, 1, 1)], [1.0, 0.0], "above 0")],
)
def test_rounds_of_unknown_cost_are_refused(rounds, seconds, words):
    with pytest.raises(ValueError, match=words):
        theory.rounds_factor(rounds, seconds)
