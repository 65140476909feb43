"""Measured costs: they follow what is computed, and agree with the formulas where those count the same thing."""

import pytest
from conftest import CONTEXT, random_model

from tutorlib.measures import cost, theory
from tutorlib.model.lm import LM
from tutorlib.model.table import TableLM


def test_each_width_has_the_median_and_the_quartiles_of_what_its_calls_took(llama, clock, monkeypatch):
    """A call takes 3 seconds, 2 a token, and more with each repeat; the first of two, much slower, is not counted."""
    forward, seen, tried = llama.model.forward, [], []
    extra = iter([0, *(one for repeat in (0, 4, 8, 16, 32) for one in 2 * (1000, repeat))])  # 0: the prompt's call

    def slow(*args, **kwargs):
        if not tried:
            return forward(*args, **kwargs)
        seen.append((int(kwargs["position_ids"].min()), kwargs["input_ids"].shape[1]))
        clock.now += 3 + 2 * kwargs["input_ids"].shape[1] + next(extra)
        return forward(*args, **kwargs)

    monkeypatch.setattr(llama.model, "forward", slow)
    llama.session([1])  # a model with another forward pass is tried anew
    tried.append(True)
    times = cost.call_times(llama, [6, 1], cached=8, repeats=5, clock=clock)
    assert [column.tolist() for column in times] == [[6, 1], [15 + 8, 5 + 8], [15 + 4, 5 + 4], [15 + 16, 5 + 16]]
    assert times.relative.tolist() == [23 / 13, 1]
    assert seen == [(0, 8)] + [(8, 6), (8, 6), (8, 1), (8, 1)] * 5, "all widths are timed from the same position"


def test_models_that_take_turns_make_calls_of_one_token_alone_and_a_slow_phase_slows_all_of_them(clock):
    class Slow(TableLM):
        def open_cache(self, rows, static=False):
            cache, call = super().open_cache(rows, static), super().open_cache(rows, static).call

            def slow(tokens, *others, **more):
                seen.append((self, len(tokens[0])))
                clock.now += self.seconds * (100 if len(seen) > 35 else 1)
                return call(tokens, *others, **more)

            cache.call = slow
            return cache

    seen, lms = [], [Slow.random(3, 1, 0), Slow.random(3, 1, 0)]
    lms[0].seconds, lms[1].seconds = 2, 3
    assert cost.calls_in_turn(lms, cached=4, rounds=3, repeats=3, clock=clock) == [2, 3]
    turns = [lm for lm, tokens in seen if tokens == 4]
    assert turns == 3 * lms and [tokens for _, tokens in seen] == 6 * [4, 1, 1, 1, 1, 1, 1]
    seen *= 6
    assert cost.calls_in_turn(lms, cached=4, rounds=3, repeats=3, clock=clock) == [200, 300]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"widths": []}, "widths"),
        ({"widths": [0]}, "widths must be at least 1"),
        ({"widths": [1], "cached": 0}, "cached must be at least 1"),
        ({"widths": [1], "repeats": 0}, "repeats must be at least 1"),
        ({"widths": [CONTEXT], "cached": 1}, f"do not fit the context of {CONTEXT}"),
    ],
)
def test_nonsense_is_named(llama, options, words):
    with pytest.raises(ValueError, match=words):
        cost.call_times(llama, **options)


def test_the_cache_takes_the_bytes_that_theory_counts(lm):
    shape = cost.shape_of(lm)
    tokens = 6  # within the sliding window of the families that have one
    predicted = theory.cache_bytes(tokens, layers=shape.layers, key_width=shape.key_width)
    assert cost.measured_cache_bytes(lm, tokens) == predicted


def test_weights_take_the_bytes_of_their_numbers_and_shared_ones_count_once():
    for family, tied in (("llama", False), ("gpt2", True)):
        model = random_model(family)
        assert (model.get_output_embeddings().weight is model.get_input_embeddings().weight) == tied
        numbers = sum(p.numel() for p in model.parameters()) + sum(b.numel() for b in model.buffers())
        assert cost.weight_bytes(LM(model)) == pytest.approx(4 * numbers, rel=0.01)


def test_the_shape_of_a_model_by_hand(llama):
    # Three layers of width 16: q and o 16 x 16, k and v 8 x 16 (2 of 4 heads), three of 24 x 16; the head 19 x 16.
    by_hand = 3 * (2 * 16 * 16 + 2 * 8 * 16 + 3 * 24 * 16) + 19 * 16
    assert cost.shape_of(llama) == cost.Shape(by_hand, layers=3, query_width=16, key_width=8, bytes_each=4)
