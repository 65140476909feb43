"""The sweep of chapter 7: its rows are what the methods write, and the committed file holds what the chapter says."""

import pytest
import torch

from tutorlib import Seeded, TableLM, contrastive_decoding, contrastive_sampling, metrics, run
from tutorlib.lab import experiments
from tutorlib.lab.experiments import contrast, results


def rows():
    return results("contrast")["rows"]


def test_methods_side_by_side_write_what_they_write_one_by_one():
    # float64 tables, so that the order of additions cannot matter
    expert, amateur = (TableLM.random(6, order=2, seed=seed, context=200, stop_tokens=[5]) for seed in (1, 2))
    prompts = [[0, 1], [2], [3, 3, 1], [4, 0]]
    options = {"alpha": 0.2, "amateur_temperature": 0.7}
    greedily = contrast.contrasted(expert, amateur, prompts, range(4), **options)
    drawn = contrast.contrasted(expert, amateur, prompts, range(4), **options, greedy=False)
    for i, prompt in enumerate(prompts):
        one = run(contrastive_decoding(expert, amateur, prompt, **options), contrast.SETTING["tokens"])
        assert greedily[i].tokens == one.tokens and greedily[i].text == one.text
        one = run(contrastive_sampling(expert, amateur, prompt, rng=Seeded(i), **options), contrast.SETTING["tokens"])
        assert drawn[i].tokens == one.tokens
    assert len({len(text.tokens) for text in drawn}) > 1  # some ended at the stop token


def test_greedy_is_the_end_of_both_scales():
    assert rows()[contrast.cd_name(1)] == rows()["greedy"]


def test_rows_that_chapter_4_has_too_are_the_same():
    other = results("sampling")["rows"]
    for name in ("plain sampling", "greedy", "top-p 0.9"):
        mine = rows()[name]
        shared = mine.keys() & other[name].keys()
        assert {"consistent", "distinct_2_within", "perplexity", "kinds"} <= shared
        for key in shared - {"distinct_2_within", "distinct_2_within_interval"}:
            assert mine[key] == other[name][key], (name, key)
        # There the stop token counts, here it does not.
        assert mine["distinct_2_within"] == pytest.approx(other[name]["distinct_2_within"], abs=0.01)


def test_what_the_chapter_says_of_the_results_is_so():
    found, penalised = rows(), results("penalties")["rows"]["greedy, frequency_penalty 1, new only"]
    plain, contrasted = found["plain sampling"], found[contrast.cd_name(0.1)]
    search = "contrastive search, k 4, penalty"
    # Contrastive decoding as published: less true than sampling, and the intervals do not touch.
    assert contrasted["consistent_interval"][1] < plain["consistent_interval"][0]
    assert contrasted["perplexity"] < min(row["perplexity"] for row in (plain, found["greedy"], found["top-p 0.9"]))
    # Truth over alpha: up to plain sampling's, then down, then greedy's.
    truth = [found[contrast.cd_name(alpha)]["consistent"] for alpha in (0.01, 0.1, 0.3, 0.5, 0.7, 1)]
    assert truth[:3] == sorted(truth[:3]) and truth[2] > truth[3] > truth[4] < truth[5] == found["greedy"]["consistent"]
    # Contrastive search: a mild penalty does well, the published one cannot be read; a plain penalty is truer still.
    mild, severe = found[f"{search} 0.4"], found[f"{search} 0.6"]
    assert mild["consistent"] > plain["consistent"] and mild["readable"] > 0.99 > 0.7 > severe["readable"]
    assert mild["distinct_2_within"] > 0.84 and mild["repetition_4"] < 0.05
    assert penalised["consistent_interval"][0] > mild["consistent_interval"][1]
    assert penalised["repetition_4"] < mild["repetition_4"] and penalised["distinct_2"] > mild["distinct_2"]
    assert found["contrastive search, k 8, penalty 0.6"]["readable"] < 0.34  # with the paper's k
    # DoLa with the paper's penalty repeats less, most of all over the lower layers, and is no truer, chance aside.
    for layers, factor in (("lower", 6), ("upper", 1.3)):
        without, with_it = (found[f"DoLa, {layers} layers{more}"] for more in ("", ", repetition penalty 1.2"))
        assert without["repetition_4"] > factor * with_it["repetition_4"]
        assert without["consistent_interval"][1] > with_it["consistent_interval"][0]
        assert with_it["consistent"] < without["consistent"]
    assert all(row["consistent"] < 0.81 for name, row in found.items() if name.startswith("DoLa"))


@pytest.mark.slow
def test_a_row_is_averaged_as_its_docstring_says(monkeypatch):
    monkeypatch.setitem(contrast.SETTING, "prompts", 3)
    monkeypatch.setitem(contrast.SETTING, "tokens", 24)
    family, prompts = experiments.bundled(), experiments.village_prompts(3)
    lm, row = family.target, contrast.row(family, contrast.cd_name(0.1))
    texts = contrast.SETTINGS[contrast.cd_name(0.1)](lm, family.draft, prompts)
    alone = [run(contrastive_decoding(lm, family.draft, prompt), 24) for prompt in prompts]
    assert [text.tokens for text in texts] == [trace.tokens for trace in alone]
    entropies = [metrics.ngram_entropy(text.tokens, 2) for text in texts]
    assert row["ngram_entropy_2"] == pytest.approx(sum(entropies) / 3)
    logs = [metrics.log_probabilities(lm, prompt, text.tokens) for prompt, text in zip(prompts, texts)]
    assert row["perplexity"] == pytest.approx(float((-torch.cat(logs).mean()).exp()), abs=0.006)
    low, high = row["perplexity_interval"]
    assert low <= row["perplexity"] <= high
