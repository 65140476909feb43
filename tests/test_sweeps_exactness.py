"""The sweeps of chapter 11: their rows are what they say, and the files hold what the chapter says of them."""

import math

import pytest
import torch

from tutorlib import Seeded, TableLM, greedy, run, speculative, storyworld
from tutorlib.lab.experiments import assisted, bundled, results, rounding, specimens, village_prompts

# ----------------------------------------------------------------------------------------------------------------------
# rounding


def test_in_float64_both_loops_write_the_same_and_where_they_part_the_two_best_are_close():
    rows = results("rounding")["rows"]
    assert rows["float64"]["differ"] == rows["float32"]["differ"] == 0
    half = rows["bfloat16"]
    assert half["differ"] == len(half["gaps"]) > 5 and half["ties"] > 30
    assert max(half["gaps"]) <= 8 * torch.finfo(torch.bfloat16).eps
    first = half["first"]
    assert abs(first["one"][0] - first["one"][1]) > 0 and first["several"][1] >= first["several"][0]
    assert first["one"][0] > first["one"][1]


def test_a_text_that_parts_is_found_with_its_place_and_gap(monkeypatch):
    class Family:
        target = draft = TableLM({"": [0.5, 0.3, 0.2]})

    found = rounding.compare_loops(Family, [0])
    assert (found["place"], found["gap"], found["tokens"]) == (None, None, rounding.SETTING["tokens"])
    assert found["least_gap"] == pytest.approx(math.log(0.5 / 0.3))
    monkeypatch.setattr(rounding, "speculative", lambda *_, **__: greedy(TableLM({"": [0.1, 0.7, 0.2]}), [0]))
    found = rounding.compare_loops(Family, [0])
    assert (found["place"], found["tokens"]) == (0, 1) and found["gap"] == pytest.approx(math.log(0.5 / 0.3))


@pytest.mark.slow
def test_in_float64_no_text_of_the_bundled_models_parts(monkeypatch):
    monkeypatch.setitem(rounding.SETTING, "prompts", 2)
    assert rounding.row(None, "float64")["differ"] == 0


# ----------------------------------------------------------------------------------------------------------------------
# specimens


def test_what_the_chapter_says_of_the_stories_is_so():
    rows = results("specimens")["rows"]
    assert {method.__name__ for method in specimens.MISTAKES} < set(rows)
    target, alone, scored = rows["target alone"], rows["draft alone"], rows["score_only"]
    for key in ("readable", "consistent", "tokens", "perplexity"):
        assert scored[key] == alone[key], key
    assert alone["consistent"] < 0.5 < 0.9 < target["consistent"]
    # Wrong, and not to be told from the target by their truth.
    for name in ("resample_from_target", "fixed_threshold", "greedy_drafts", "speculative", "lagging_draft"):
        low, high = rows[name]["consistent_interval"]
        assert low < target["consistent_interval"][1] and target["consistent_interval"][0] < high, name
    # Trained with a fine loss, and yet further from the truth than the target, beyond chance.
    assert rows["mixed_with_prediction"]["consistent_interval"][1] < target["consistent_interval"][0]
    assert rows["rows_one_late"]["readable"] == 0 and rows["forgets_at_least_one"]["readable"] < 0.8
    assert rows["lagging_draft"]["target_calls"] > 1.1 * rows["speculative"]["target_calls"]


@pytest.mark.slow
def test_the_features_are_learnt_and_yet_stand_for_other_tokens():
    lm = bundled().target
    predict, losses = specimens.trained_predictor(lm)
    assert sum(losses[-20:]) / 20 < 0.4 < 0.9 < losses[0]
    tokens = lm.encode(storyworld.story("chapter 8, unseen 0"))
    session = lm.session(tokens[:1], hidden=-1)
    session.feed(tokens[1:])
    true, predicted = session.hidden[1:], predict(session.hidden[:-1])
    assert float(torch.cosine_similarity(true, predicted).mean()) > 0.7
    best = [lm.read_out(rows, normed=True).argmax(-1) for rows in (true, predicted)]
    assert float((best[0] == best[1]).double().mean()) < 0.6


@pytest.mark.slow
def test_a_row_of_stories_is_what_the_decoder_writes(monkeypatch):
    monkeypatch.setitem(specimens.SETTING, "prompts", 2)
    monkeypatch.setitem(specimens.SETTING, "tokens", 20)
    family = bundled()
    row = specimens.row(family, "speculative")
    traces = [
        run(speculative(family.target, family.draft, prompt, gamma=4, rng=Seeded(i)), 20)
        for i, prompt in enumerate(village_prompts(2))
    ]
    assert row["tokens"] == sum(len(trace.tokens) for trace in traces)
    assert row["target_calls"] == sum(trace.target_calls for trace in traces)


# ----------------------------------------------------------------------------------------------------------------------
# assisted


def test_what_the_chapter_says_of_assisted_generation_is_so():
    rows = results("assisted")["rows"]
    failed = [name for name, row in rows.items() if not row["passed"]]
    assert failed == ["assistant, two tokenizers", "assistant, two tokenizers, map backwards"]
    assert min(rows[name]["statistic"] for name in failed) > 10 * rows["generate"]["statistic"]


def test_the_small_pair_has_one_text_in_two_numberings_and_tokens_that_only_one_has():
    target, draft = assisted.small_target(), assisted.small_draft()
    vocabs = [lm.tokenizer.get_vocab() for lm in (target, draft)]
    assert set(vocabs[0]) < set(vocabs[1]) and len(vocabs[1]) == draft.vocab_size == 13
    assert draft.decode(draft.encode("bad cafe")) == target.decode(target.encode("bad cafe")) == "bad cafe"
    assert target.encode("bad") != draft.encode("bad")


def test_a_tokenizer_can_be_made_to_list_its_tokens_in_order_without_changing_them():
    tokenizer = assisted.small_draft().tokenizer
    before = dict(tokenizer.get_vocab())
    for backwards in (False, True):
        listed = assisted.in_order_of_ids(tokenizer, backwards).get_vocab()
        assert listed == before and list(listed.values()) == sorted(before.values(), reverse=backwards)


@pytest.mark.slow
def test_the_check_sees_what_it_is_said_to_see_in_the_installed_version():
    assert assisted.check_row("assistant, one tokenizer", samples=200).passed
    assert assisted.check_row("token_intersection", samples=200).passed
    assert assisted.check_row("assistant, two tokenizers, map sorted", samples=200).passed
    assert not assisted.check_row("assistant, two tokenizers, map backwards", samples=200).passed
