"""Text metrics: by hand, against other people's code, and what must always hold."""

import math
import warnings

import numpy as np
import pytest
import torch
from conftest import exactly, random_model
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tutorlib import LM, TableLM, metrics
from tutorlib.measures import (
    Consistency,
    bootstrap_interval,
    consistency,
    distinct_n,
    ngram_entropy,
    self_bleu,
    wilson_interval,
)
from tutorlib.storyworld import story

TEXTS = st.lists(st.integers(0, 4), max_size=25)
LENGTHS = st.integers(1, 4)

# Variety and repetition.


@settings(max_examples=60, deadline=None)
@given(TEXTS, TEXTS, LENGTHS)
def test_variety_and_repetition_are_counted_from_the_ngrams(tokens, others, n):
    grams, more = ([tuple(text[i : i + n]) for i in range(len(text) - n + 1)] for text in (tokens, others))
    if more or grams:
        assert distinct_n([tokens, others], n) == pytest.approx(len({*grams, *more}) / len(grams + more))
    else:
        assert math.isnan(distinct_n([tokens, others], n))
    if not grams:
        assert math.isnan(ngram_entropy(tokens, n)) and math.isnan(metrics.repetition(tokens, n))
        return
    before = sum(gram in grams[:place] for place, gram in enumerate(grams))
    assert metrics.repetition(tokens, n) == pytest.approx(before / len(grams))
    counts = [grams.count(gram) for gram in set(grams)]
    assert ngram_entropy(tokens, n) == pytest.approx(stats.entropy(counts, base=2), abs=1e-12)


@pytest.mark.parametrize("n", [0, -1, 1.5, True, "2"])
def test_a_length_that_is_none_is_an_error(n):
    for measure in (ngram_entropy, metrics.repetition):
        with pytest.raises(ValueError, match="at least 1"):
            measure(["a", "b"], n)
    for measure in (distinct_n, self_bleu):
        with pytest.raises(ValueError, match="at least 1"):
            measure([["a"], ["b"]], n)


def test_tensors_count_by_their_values_and_strings_where_words_belong_are_an_error():
    tokens = torch.tensor([1, 2, 1, 2, 1])
    assert metrics.repetition(tokens, 2) == distinct_n(np.array([[1, 2], [1, 2]]), 1) == 0.5
    for call in (
        lambda: ngram_entropy("the cat", 1),
        lambda: metrics.repetition("the cat"),
        lambda: distinct_n("the cat", 1),
        lambda: distinct_n(["the cat"], 1),
        lambda: distinct_n([1, 2, 3], 1),  # one text, where several were expected
        lambda: self_bleu(["the cat", "the dog"]),
    ):
        with pytest.raises(ValueError, match="words"):
            call()


# Self-BLEU.


def bleu(text, references, n=4):
    """BLEU of one text, from the definition: clipped precisions, zeros as 0.1 over their count, brevity penalty."""

    def counts(words, size):
        grams = [tuple(words[i : i + size]) for i in range(len(words) - size + 1)]
        return {gram: grams.count(gram) for gram in grams}

    logs = 0.0
    for size in range(1, n + 1):
        own = counts(text, size)
        most = [max(counts(reference, size).get(gram, 0) for reference in references) for gram in own]
        right = sum(min(count, limit) for count, limit in zip(own.values(), most))
        if size == 1 and not right:
            return 0.0
        logs += math.log((right or 0.1) / max(sum(own.values()), 1)) / n
    nearest = min((abs(len(reference) - len(text)), len(reference)) for reference in references)[1]
    return math.exp(logs) * (1 if len(text) > nearest else math.exp(1 - nearest / len(text)))


def test_self_bleu_is_the_mean_of_bleus_from_their_definition():
    texts = [story(f"bleu {number}").split()[:length] for number, length in enumerate((30, 34, 41, 3))]
    expected = sum(bleu(text, texts[:i] + texts[i + 1 :]) for i, text in enumerate(texts)) / len(texts)
    assert 0.1 < expected < 0.9
    assert self_bleu(texts) == pytest.approx(expected, abs=1e-12)
    two = sum(bleu(text, texts[:i] + texts[i + 1 :], 2) for i, text in enumerate(texts)) / len(texts)
    assert self_bleu(texts, 2) == pytest.approx(two, abs=1e-12)


def test_self_bleu_is_one_of_copies_and_low_where_nothing_is_shared_and_never_warns():
    # "a b c d" against "a b c e": precisions 3/4, 2/3, 1/2, and 0 of 1, which counts as 0.1; no brevity penalty.
    assert self_bleu([list("abcd"), list("abce")]) == pytest.approx((3 / 4 * 2 / 3 * 1 / 2 * 0.1) ** 0.25)
    same = ["the", "kite", "was", "with", "Ben"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert self_bleu([same, same, same]) == pytest.approx(1)
        assert self_bleu([same, ["nobody", "knows", "where", "they", "went"]]) == 0
        assert self_bleu([[], same]) == 0
        assert 0 < self_bleu([["the"], ["the", "kite"]]) < 1
    with pytest.raises(ValueError, match="at least two, not 1"):
        self_bleu([same])


# Perplexity.


def test_perplexity_is_the_exponential_of_transformers_loss(models):
    lm = LM(models("llama", torch.float64))
    text = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    labels = text.clone()
    labels[:, :3] = -100  # the prompt is not judged
    with exactly(torch.float64), torch.no_grad():
        expected = float(lm.model(text, labels=labels).loss.exp())
        assert metrics.perplexity(lm, [3, 1, 4], [1, 5, 9, 2, 6]) == pytest.approx(expected, rel=1e-10)


def test_log_probabilities_are_computed_in_float64_from_a_model_of_half_precision():
    lm = LM(random_model("llama", torch.bfloat16))
    rows = lm.session([3, 1]).feed([4, 1])
    expected = rows[:2].double().numpy()
    expected = expected - np.log(np.exp(expected).sum(1, keepdims=True))
    found = metrics.log_probabilities(lm, [3, 1], [4, 1])
    assert found.dtype == torch.float64 and found.tolist() == pytest.approx(expected[[0, 1], [4, 1]], rel=1e-12)


def test_perplexity_by_hand_on_a_table():
    lm = TableLM({"a": [0.5, 0.25, 0.25], "b": [1, 0, 0], "": [0.2, 0.4, 0.4]})
    assert metrics.log_probabilities(lm, "a", [1, 0, 0]).exp().tolist() == pytest.approx([0.25, 1, 0.5])
    assert metrics.perplexity(lm, "a", [1, 0, 0]) == pytest.approx((0.25 * 1 * 0.5) ** (-1 / 3))
    assert metrics.perplexity(TableLM({"": [0.25] * 4}), "a", [3, 1]) == pytest.approx(4)
    assert metrics.perplexity(lm, "b", [1]) == math.inf


def test_perplexity_takes_one_call_and_fills_the_context():
    lm = TableLM.random(3, 1, 0, context=5)
    assert metrics.perplexity(lm, "ab", torch.tensor([0, 1, 2])) >= 1
    assert lm.calls == 1
    with pytest.raises(ValueError, match="2 tokens of prompt and 4 after it .* context of 5"):
        metrics.perplexity(lm, "ab", [0, 1, 2, 0])
    with pytest.raises(ValueError, match="no tokens to judge"):
        metrics.perplexity(lm, "ab", [])
    with pytest.raises(ValueError, match="outside the vocabulary"):
        metrics.perplexity(lm, "ab", [3])


# Consistency.

PROMPT = "Once there were three friends, Tom, Ben and Zoe. Tom waited at the fountain. The red kite was with Tom."


def test_counts_only_the_sentences_that_were_added():
    added = " The red kite was with Zoe. The kite was still with Tom. The kite kite. The kite was still with Tom."
    counts = consistency(PROMPT, added)
    assert counts == Consistency(sentences=4, readable=3, consistent=2, new=3)
    assert counts.contradictions == 1
    assert counts.share_readable == 3 / 4 and counts.share_consistent == 2 / 3


@pytest.mark.parametrize(
    ("begun", "added", "counts"),
    [
        (" The kite was still with", " Zoe.", (1, 1, 0, 1)),  # a sentence that the prompt began counts as added
        (" The kite was still with", " Tom.", (1, 1, 1, 1)),
        ("", "The kite was still with Tom.", (1, 0, 0, 1)),  # glued to the prompt's last sentence
        ("", " Tom waited at the fountain.", (1, 1, 1, 0)),  # one of the prompt's own is not new
    ],
)
def test_what_touches_the_prompt_is_judged_with_it(begun, added, counts):
    assert consistency(PROMPT + begun, added) == Consistency(*counts)


def test_a_sentence_that_a_budget_cut_off_does_not_count():
    added = " The kite was still with Tom."
    whole = consistency(PROMPT, added)
    assert whole.sentences == 1
    assert consistency(PROMPT, added + " The kite was still with Z") == whole
    assert consistency(PROMPT, ' The baker asked, "Who has the kite').sentences == 0
    assert consistency(PROMPT, ' The baker asked, "Who has the kite?"').sentences == 1


def test_counts_add_up_over_texts():
    counts = [Consistency(4, 3, 2, 3), Consistency(1, 1, 1, 1), Consistency()]
    assert sum(counts) == counts[0] + counts[1] == Consistency(5, 4, 3, 4)
    assert sum(counts, Consistency()).share_consistent == 3 / 4
    assert math.isnan(Consistency().share_readable) and math.isnan(Consistency().share_consistent)
    with pytest.raises(TypeError):
        counts[0] + (1, 1, 1, 1)


def test_tokens_where_text_belongs_are_an_error():
    with pytest.raises(ValueError, match="reads text, not tokens"):
        consistency(PROMPT, [1, 2, 3])


# Intervals.


def test_the_intervals_are_scipys_up_to_the_random_draws():
    rng = np.random.default_rng(0)
    readable = rng.integers(3, 12, 40)
    consistent = rng.binomial(readable, 0.8)
    theirs = {"n_resamples": 9999, "method": "percentile", "vectorized": True, "paired": True}
    of_mean = stats.bootstrap((consistent,), np.mean, **theirs).confidence_interval
    of_ratio = stats.bootstrap(
        (consistent, readable), lambda top, bottom, axis: top.sum(axis) / bottom.sum(axis), **theirs
    ).confidence_interval
    assert bootstrap_interval(consistent, resamples=9999) == pytest.approx(tuple(of_mean), abs=0.08)
    ours = bootstrap_interval(consistent, readable, resamples=9999)
    assert ours == pytest.approx(tuple(of_ratio), abs=0.005)
    assert ours[1] - ours[0] > 0.04  # so that the tolerance says something


def test_numbers_of_a_prompt_are_drawn_together():
    # Drawn apart, the ratio would spread; together it is 1/2 whatever is drawn.
    assert bootstrap_interval([1, 5, 50], [2, 10, 100]) == (0.5, 0.5)


def test_a_higher_level_is_wider_and_a_seed_repeats():
    values = list(range(30))
    narrow, wide = bootstrap_interval(values, level=0.5), bootstrap_interval(values, level=0.99)
    assert wide[0] < narrow[0] < 14.5 < narrow[1] < wide[1]
    assert bootstrap_interval(values) == bootstrap_interval(values, seed=0) != bootstrap_interval(values, seed=1)


def test_the_same_bounds_everywhere():
    assert bootstrap_interval([0, 1, 2, 3, 10], resamples=8) == pytest.approx((1.27, 3.765))


def test_draws_without_anything_below_the_line_are_left_out():
    low, high = bootstrap_interval([0, 3], [0, 4])
    assert low == high == 0.75
    assert all(map(math.isnan, bootstrap_interval([0, 0], [0, 0])))


@pytest.mark.parametrize(("successes", "low", "high"), [(0, 0.0, 0.2775), (5, 0.2366, 0.7634), (10, 0.7225, 1.0)])
def test_wilsons_interval_is_what_its_formula_gives_for_ten_trials(successes, low, high):
    assert wilson_interval(successes, 10) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: bootstrap_interval([]), "one value a prompt"),
        (lambda: bootstrap_interval([[1, 2]]), "one value a prompt"),
        (lambda: bootstrap_interval([1.0, math.nan]), "NaN among"),
        (lambda: bootstrap_interval([1, 2], over=[1]), "as many"),
        (lambda: bootstrap_interval([1, 2], level=95), "between 0 and 1"),
        (lambda: wilson_interval(3, 2), "got 3 of 2"),
        (lambda: wilson_interval(-1, 2), "got -1 of 2"),
        (lambda: wilson_interval(0, 0), "1 or more"),
        (lambda: wilson_interval(1, 2, level=95), "got 95"),
    ],
)
def test_an_interval_of_nonsense_is_an_error(make, complaint):
    with pytest.raises(ValueError, match=complaint):
        make()
