"""The sweep of chapter 15: what it measures is what it says, and the committed file holds what the chapter says."""

import math
from types import SimpleNamespace

import pytest
import torch

from tutorlib import MedusaHeads, Seeded, TableLM, TokenTree, exact, typical_acceptance
from tutorlib.lab.experiments import medusa as sweep
from tutorlib.lab.experiments import results


def rows():
    return results("medusa")["rows"]


PROBS = {-1: [0.5, 0.3, 0.2], 0: [0.1, 0.8, 0.1], 1: [0.2, 0.2, 0.6]}


def probs_at(node):
    return torch.tensor(PROBS[node], dtype=torch.float64)


def test_a_token_that_was_bound_to_come_is_as_far_off_as_it_was_unlikely_and_a_drawn_one_is_not():
    tree = TokenTree([0, 1], [-1, 0])
    watched = sweep.RecordedRule(typical_acceptance(0.09, 0.3))
    path, _ = watched(tree, probs_at, Seeded(0))
    assert path == [0, 1]
    assert watched.distances == pytest.approx([1 - 0.5, 1 - 0.8, 0])


def test_what_is_drawn_exactly_is_never_off():
    watched = sweep.RecordedRule(exact)
    for seed in range(20):
        watched(TokenTree([0, 1], [-1, 0]), probs_at, Seeded(seed))
    assert set(watched.distances) == {0.0} and len(watched.distances) > 20


def test_the_distance_is_the_total_variation_of_the_two_laws_at_a_place():
    # At the first place the rule's law is a certainty.
    bound, law = torch.tensor([1.0, 0, 0]), probs_at(-1)
    watched = sweep.RecordedRule(typical_acceptance(0.4, 0.6))
    watched(TokenTree([0], [-1]), probs_at, Seeded(0))
    assert watched.distances[0] == pytest.approx(float((bound - law).abs().sum() / 2))


@pytest.fixture
def village(monkeypatch):
    """A table in the target's place, with heads of its width, and few prompts."""
    lm = TableLM.random([" Tom", " was", " with", "."], 1, seed=3)
    lm.encode = lambda text: [0, 1]
    lm.prompt_tokens = lambda prompt: [0, 1] if isinstance(prompt, str) else list(prompt)
    torch.manual_seed(0)
    heads = MedusaHeads(lm.width, lm.vocab_size, 2, accuracies=[[0.6, 0.2, 0.1, 0.1], [0.5, 0.2, 0.1, 0.1]]).double()
    monkeypatch.setattr(sweep, "SETTING", {**sweep.SETTING, "prompts": 3, "quality_prompts": 3, "tokens": 12})
    return SimpleNamespace(target=lm, medusa=heads)


def test_a_row_counts_tokens_and_calls(village):
    before = village.target.calls
    row = sweep.row(village, "sampling, 4 nodes")
    assert row["tokens"] == 36 and row["calls"] == village.target.calls - before
    assert row["per_call"] == pytest.approx(36 / row["calls"]) and 0 < row["accepted"] < 2
    assert "distance" not in row
    assert sweep.row(village, "sampling, 4 nodes") == row


def test_a_judged_row_has_its_distance_and_what_all_sweeps_say_of_texts(village, monkeypatch):
    monkeypatch.setattr(sweep, "figures", lambda lm, prompts, traces: {"texts": len(traces)})
    one, other = sweep.row(village, "exact"), sweep.row(village, "typical 0.09")
    assert one["distance"] == 0 < other["distance"] < 1 and one["texts"] == 3


def test_what_the_chapter_says_of_the_results_is_so():
    for way in ("greedy", "sampling"):
        counts = [rows()[f"{way}, {nodes} nodes"]["per_call"] for nodes in sweep.SIZES]
        assert counts == sorted(counts)
        # The last doubling brings less than the first, in proportion.
        assert counts[-1] / counts[-2] < counts[1] / counts[0]
    for nodes in sweep.SIZES:
        assert rows()[f"sampling, {nodes} nodes"]["per_call"] < rows()[f"greedy, {nodes} nodes"]["per_call"]
    assert rows()["greedy, 16 nodes"]["per_call"] >= 2.4
    assert all(rows()[name]["repetition_4"] < 0.15 for name in ("greedy", "exact")), "the text does not loop"
    drawn = rows()["exact"]
    assert drawn["distance"] == rows()["greedy"]["distance"] == 0
    for epsilon in sweep.EPSILONS:
        lossy = rows()[sweep.rule_name(epsilon)]
        assert lossy["per_call"] > 1.5 * drawn["per_call"]
        assert 0.27 < lossy["distance"] < 0.32, "almost three tokens in ten"
        # What it accepts contradicts the story more often, in more than the uncertainty of both.
        assert lossy["consistent_interval"][1] < drawn["consistent_interval"][0]
        assert 1 - lossy["consistent"] > 3 * (1 - drawn["consistent"])
        assert lossy["perplexity"] == pytest.approx(drawn["perplexity"], rel=0.03)
        assert rows()["greedy"]["distinct_2"] < lossy["distinct_2"] < 0.7 * drawn["distinct_2"]
    # ε hardly matters here.
    distances = [rows()[sweep.rule_name(epsilon)]["distance"] for epsilon in sweep.EPSILONS]
    assert max(distances) - min(distances) < 0.05 and not math.isnan(sum(distances))
