"""Sampling draws from the model's own distribution, warped or not."""

import pytest
import torch

from tutorlib.decoders import greedy, sample
from tutorlib.randomness import Seeded
from tutorlib.run import run
from tutorlib.table import TableLM
from tutorlib.warp import temperature

# That its distribution is exactly the right one is shown in test_proof.py.


def test_the_same_seed_gives_the_same_text_and_another_seed_another(llama):
    draws = [run(sample(llama, [1, 2], rng=Seeded(seed)), 20).tokens for seed in (5, 5, 6)]
    assert draws[0] == draws[1] != draws[2]


def test_without_luck_it_is_greedy(lm):
    assert run(sample(lm, [1, 2], rng=None), 15).tokens == run(greedy(lm, [1, 2]), 15).tokens
    assert run(sample(lm, [1, 2], rng=None, warp=[temperature(3.0)]), 15).tokens == run(greedy(lm, [1, 2]), 15).tokens


def test_a_low_temperature_comes_close_to_greedy_and_a_high_one_to_even():
    lm = TableLM({"": [0.2, 0.5, 0.3]}, context=1000)
    cold = run(sample(lm, "a", rng=Seeded(0), warp=[temperature(0.05)]), 200).tokens
    hot = run(sample(lm, "a", rng=Seeded(0), warp=[temperature(1000.0)]), 900).tokens
    assert cold.count(1) == 200
    assert all(abs(hot.count(token) - 300) < 60 for token in range(3))


def test_costs_one_call_a_token(llama):
    assert run(sample(llama, [3, 1, 4], rng=Seeded(0)), 9).target_calls == 9


def test_each_row_comes_with_the_tokens_before_it():
    seen = []

    def penalty(logits, histories):
        assert logits.shape == (1, 3)
        seen.append(list(histories[0]))
        return logits

    trace = run(sample(TableLM.random(3, 1, 0), "ab", rng=Seeded(0), warp=[penalty]), 3)
    assert seen == [[0, 1, *trace.tokens[:count]] for count in range(3)]


def test_offers_the_warped_distribution_as_candidates():
    lm = TableLM({"": [0.25, 0.75]})
    step = run(sample(lm, "a", rng=Seeded(0), warp=[temperature(0.5)]), 1).steps[0]
    assert [token for token, _ in step.candidates[0]] == [1, 0]
    assert [prob for _, prob in step.candidates[0]] == pytest.approx([0.9, 0.1])


def test_a_filter_that_leaves_nothing_is_an_error_that_names_it():
    def forbid_all(logits, histories):
        return torch.full_like(logits, -torch.inf)

    with pytest.raises(ValueError, match="forbid_all filtered everything away"):
        run(sample(TableLM.random(3, 1, 0), "a", rng=Seeded(0), warp=[forbid_all]), 1)
