"""The sweep of five published prompts: its rows are averages over texts that the methods write."""

from types import SimpleNamespace

import pytest

from tutorlib import TableLM, metrics, run
from tutorlib.decoders import context_contrast, contrastive_decoding, sample
from tutorlib.lab.experiments import bundled, five_prompts, results
from tutorlib.sampling.randomness import Seeded
from tutorlib.sampling.warp import top_p

# Models that have no layers, and words for tokens.
VOCAB = [" a", " b", " c", " d", " ."]
LM, AMATEUR = (TableLM.random(VOCAB, order=2, seed=seed, stop_tokens=[" ."]) for seed in (1, 2))


def test_each_row_is_its_method_with_its_settings_and_nothing_ends_it_early():
    prompt = " a b"
    expected = {
        "top-p 0.95": sample(LM, prompt, rng=Seeded(6), warp=[top_p(0.95)]),
        "guidance, weight 0.5": context_contrast(LM, prompt, without=" b", weight=0.5),
        five_prompts.TWO_MODELS: contrastive_decoding(LM, AMATEUR, prompt, amateur_temperature=0.5),
    }
    for name, steps in expected.items():
        trace = five_prompts.text(LM, name, prompt, AMATEUR)
        assert trace.tokens == run(steps, 50, stop=()).tokens and len(trace.tokens) == 50, name
    drawn = five_prompts.text(LM, "plain sampling", prompt)
    assert 4 in drawn.tokens[:-1]  # the stop token


def test_a_row_is_averaged_over_the_texts(monkeypatch):
    monkeypatch.setattr(five_prompts, "PROMPTS", (" a", " b c"))
    row = five_prompts.row(SimpleNamespace(target=LM), "plain sampling")
    words = [text.split() for text in row["texts"]]
    assert row["words"] == sum(map(len, words)) / 2 > 30 and len(words) == 2
    assert row["entropy_2"] == pytest.approx(sum(metrics.ngram_entropy(one, 2) for one in words) / 2)
    assert row["distinct_1"] == pytest.approx(sum(metrics.distinct_n([one], 1) for one in words) / 2)
    tokens = [five_prompts.text(LM, "plain sampling", prompt).tokens for prompt in (" a", " b c")]
    judged = [metrics.perplexity(LM, prompt, one) for prompt, one in zip((" a", " b c"), tokens)]
    assert row["perplexity"] == pytest.approx(sum(judged) / 2)


def test_the_file_holds_a_text_for_each_prompt():
    for row in results("five_prompts")["rows"].values():
        assert len(row["texts"]) == len(five_prompts.PROMPTS) == 5
        words = [text.split() for text in row["texts"]]
        assert row["words"] == pytest.approx(sum(map(len, words)) / 5, rel=1e-3)
        assert row["entropy_2"] == pytest.approx(sum(metrics.ngram_entropy(one, 2) for one in words) / 5, rel=1e-3)


def test_what_the_chapter_says_of_the_results_is_so():
    rows = results("five_prompts")["rows"]
    assert min(rows, key=lambda name: rows[name]["distinct_2"]) == "guidance, weight 0.5"
    for name in ("contrastive search, k 4", "contrastive search, k 8"):
        assert rows[name]["distinct_2"] > rows["plain sampling"]["distinct_2"] - 0.04
        assert rows[name]["perplexity"] < 1.5 * rows["greedy"]["perplexity"] < rows["plain sampling"]["perplexity"] / 8
    assert rows["guidance, weight 0.5"]["texts"][3].count("I'm all for it") > 5


@pytest.mark.slow
def test_a_text_computed_anew_begins_as_that_of_the_file():
    lm = bundled("smollm2").target
    prompt, name = five_prompts.PROMPTS[3], "guidance, weight 0.5"
    again = run(five_prompts.SETTINGS[name](lm, prompt), 20, stop=())
    assert results("five_prompts")["rows"][name]["texts"][3].startswith(again.text)
