"""The newer warps by hand, by slow counting and against transformers; watermarks and their scores; mirostat's state."""

import itertools
import math

import numpy as np
import pytest
import torch
from transformers import (
    EpsilonLogitsWarper,
    EtaLogitsWarper,
    SynthIDTextWatermarkLogitsProcessor,
    TopHLogitsWarper,
)

from tutorlib import Seeded, TableLM, prompt_lookup, run, sample, sample_batch, speculative
from tutorlib.running.decoding import run_batch
from tutorlib.sampling.known_text import History
from tutorlib.sampling.warp import (
    dry,
    dynamic_temperature,
    epsilon_cutoff,
    eta_cutoff,
    exactly_k,
    frequency_penalty,
    green_list,
    green_score,
    logit_bias,
    mirostat,
    presence_penalty,
    probabilities,
    repetition_penalty,
    synthid,
    synthid_score,
    temperature,
    top_h,
    top_n_sigma,
    xtc,
)

INF = math.inf
DECREASING = torch.tensor([[0.4, 0.3, 0.2, 0.1]], dtype=torch.float64).log()


def probs(warp, logits=DECREASING, histories=None):
    return [round(float(prob), 4) for prob in probabilities(logits, [warp], histories)[0]]


def random_rows(count=200, vocab=30):
    rows = np.random.default_rng(0).normal(0, 3, (count, vocab))
    return torch.tensor(rows)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (top_h(0.4), TopHLogitsWarper(0.4)),
        (top_h(0.9), TopHLogitsWarper(0.9)),
        (epsilon_cutoff(0.03), EpsilonLogitsWarper(0.03)),
        (eta_cutoff(0.03), EtaLogitsWarper(0.03)),
        (eta_cutoff(0.9), EtaLogitsWarper(0.9)),
    ],
    ids=lambda warp: getattr(warp, "__name__", ""),
)
def test_filters_equal_those_of_transformers(ours, theirs):
    logits = random_rows()
    assert torch.equal(ours(logits), theirs(None, logits.clone()))


def test_newer_warps_by_hand():
    assert probs(exactly_k(2), torch.zeros(1, 3)) == [0.5, 0.5, 0], "of equal ones the lower ids"
    assert probs(top_n_sigma(1), torch.tensor([[0.0, 0.0, 0.0, 4.0]])) == [0, 0, 0, 1]  # sigma is sqrt(3)
    assert probs(top_n_sigma(2.4), torch.tensor([[0.0, 0.0, -INF, 4.0]]))[:3] == [0.0177, 0.0177, 0]  # 4 sqrt(2) / 3
    assert probs(xtc(1, 0.15)) == [0, 0, 0.6667, 0.3333]
    assert probs(xtc(0.5, 0.15)) == [0.2, 0.15, 0.4333, 0.2167], "half of one, and half of the other"
    assert probs(xtc(1, 0.35)) == probs(xtc(1, 0.5)) == probs(xtc(0, 0.1)) == [0.4, 0.3, 0.2, 0.1]
    assert probs(logit_bias({0: -INF, 3: math.log(2)})) == [0, 0.4286, 0.2857, 0.2857]
    even, one_left = torch.zeros(1, 5), torch.tensor([[3.0, -INF]])
    assert probs(dynamic_temperature(1, 0.5), even) == [0.2] * 5
    assert probs(dynamic_temperature(1, 0.5), one_left) == [1, 0]
    # Entropy .8979 of at most log 3 = 1.0986: the share is .8173, and its square .6680.
    row = torch.tensor([[0.6, 0.3, 0.1, 0.0]]).log()
    assert torch.allclose(dynamic_temperature(1, 0.5, 2)(row), row / (0.5 + 0.668), atol=1e-4)


def test_a_temperature_after_xtc_acts_on_both_outcomes_of_the_coin():
    outcomes = [probabilities(DECREASING, [xtc(coin, 0.15), temperature(2)]) for coin in (0, 1)]
    mixed = probabilities(DECREASING, [xtc(0.3, 0.15, [temperature(2)])])
    assert torch.allclose(mixed, 0.7 * outcomes[0] + 0.3 * outcomes[1], atol=1e-12)
    assert not torch.allclose(mixed, probabilities(DECREASING, [xtc(0.3, 0.15), temperature(2)]), atol=1e-2)


@pytest.mark.parametrize("make", [repetition_penalty, frequency_penalty, presence_penalty])
def test_a_window_is_the_penalty_of_the_last_tokens_alone(make):
    rng, texts = np.random.default_rng(1), [[], [0]]
    warps = {(last, first): make(1.5, first, last) for last in (1, 3, 50) for first in (0, 4)}
    for _ in range(80):
        place, logits = int(rng.integers(2)), torch.tensor(rng.normal(0, 2, (1, 4)))
        text = texts[place][: len(texts[place]) - int(rng.integers(3))] if texts[place] else []
        texts[place] = text = text + rng.integers(0, 4, int(rng.integers(4))).tolist()
        for (last, first), warp in warps.items():
            seen = text[max(first, len(text) - last) :]
            assert torch.equal(warp(logits, [text]), make(1.5)(logits, [seen]))


def longest(text, token, breakers, last):
    """How long the longest end of a text is that has come before with this token after it; by trying all."""
    text = text if last is None else text[-last:]
    lengths = [
        size
        for size in range(1, len(text))
        for start in range(len(text) - size)
        if text[start : start + size] == text[-size:] and text[start + size] == token
        if not set(text[-size:]) & set(breakers)
    ]
    return max(lengths, default=0)


def test_dry_by_trying_all_ends_of_texts_that_grow_and_shrink():
    rng, text, logits, settings = np.random.default_rng(2), [], torch.zeros(1, 3, dtype=torch.float64), []
    for breakers, last, allowed in itertools.product(([], [2]), (None, 9), (1, 3)):
        settings.append((dry(0.8, 1.5, allowed, breakers, last), breakers, last, allowed))
    for _ in range(30):
        text = text[: max(0, len(text) - int(rng.integers(4)))] + rng.integers(0, 3, 4).tolist()
        for warp, breakers, last, allowed in settings:
            lengths = [longest(text, token, breakers, last) for token in range(3)]
            due = [-0.8 * 1.5 ** (length - allowed) if length >= allowed else 0.0 for length in lengths]
            assert warp(logits, [text])[0].tolist() == pytest.approx(due)
    assert dry(1, 9.0)(logits, [[0] * 3000])[0, 0] == pytest.approx(-(9.0**98)), "lengths count up to 100"
    assert dry(1, 1e200)(logits, [[0] * 3000])[0, 0] > -INF


# ----------------------------------------------------------------------------------------------------------------------
# Watermarks


KEYS = range(100, 108)
MARKS = {
    "green list": (green_list(7), lambda tokens: green_score(tokens, 7), 4.0),
    "SynthID": (synthid(KEYS, width=2), lambda tokens: (synthid_score(tokens, KEYS, width=2) - 0.5) / 0.02, 4.0),
}
WAYS = {
    "sample": lambda lm, draft, **how: sample(lm, [0], **how),
    "prompt_lookup": lambda lm, draft, **how: prompt_lookup(lm, [0], **how),
    "speculative": lambda lm, draft, **how: speculative(lm, draft, [0], **how),
}


@pytest.mark.parametrize("mark", MARKS)
def test_a_watermark_is_found_whatever_wrote_the_text_and_not_without_it(mark):
    """In 250 tokens over a vocabulary of 40: chance is 0, and 4 is four standard deviations."""
    lm, draft = TableLM.random(40, 1, 0, context=400), TableLM.random(40, 1, 1, context=400)
    warp, score, least = MARKS[mark]
    for way in WAYS.values():
        assert score(run(way(lm, draft, rng=Seeded(3), warp=[warp]), 250, stop=()).tokens) > least
        assert abs(score(run(way(lm, draft, rng=Seeded(3)), 250, stop=()).tokens)) < 3


def synthid_bits(key, history, vocab):
    return [synthid_score([*history, token], [key]) for token in range(vocab)]


def test_synthid_gains_what_transformers_rule_gains():
    theirs = SynthIDTextWatermarkLogitsProcessor(5, list(KEYS), 16, 0, 16, "cpu")
    logits, history = random_rows(1, 12), [3, 1, 4, 1]
    g = torch.stack([torch.tensor(np.array(synthid_bits(key, history, 12))) for key in KEYS], -1)[None]
    due = theirs.update_scores(logits, g).softmax(-1)
    assert torch.allclose(probabilities(logits, [synthid(KEYS)], [history]), due, atol=1e-12)


def test_synthid_changes_nothing_on_average_over_keys_but_much_under_each():
    logits, plain = random_rows(1, 6), random_rows(1, 6).softmax(-1)
    each = torch.cat([probabilities(logits, [synthid([key, key + 5000])], [[1, 2]]) for key in range(2000)])
    assert torch.allclose(each.mean(0), plain[0], atol=0.01)
    assert float((each - plain).abs().sum(-1).mean()) / 2 > 0.2


def test_scores_count_each_piece_once_and_a_short_text_has_none():
    text = [1, 2, 3, 1, 2, 3, 1, 2, 3]
    assert green_score(text, 7) == green_score(text[:4], 7)
    assert synthid_score(text, KEYS, 1) == synthid_score([1, 2, 3, 1], KEYS, 1)
    assert math.isnan(green_score([1], 7)) and math.isnan(synthid_score([1, 2, 3, 4], KEYS))


def test_a_quarter_of_all_tokens_is_green_and_half_of_all_bits_are_ones():
    shares = [float((green_list(key)(torch.zeros(1, 4000), [[5]]) > 0).double().mean()) for key in range(20)]
    assert sum(shares) / 20 == pytest.approx(0.25, abs=0.005) and max(shares) < 0.28
    ones = [float(torch.tensor(synthid_bits(key, [1, 2, 3, 4], 300)).mean()) for key in range(20)]
    assert sum(ones) / 20 == pytest.approx(0.5, abs=0.02)


# ----------------------------------------------------------------------------------------------------------------------
# Mirostat


def test_mirostat_follows_its_formula_along_a_text():
    """Row by row: what is more surprising than the limit is dropped, and the limit moves by eta times the error."""
    lm, tau, eta = TableLM.random(8, 1, 0), 1.2, 0.7
    text, limit = run(sample(lm, [0], rng=Seeded(1), warp=[mirostat(tau, eta)]), 30).tokens, 2 * 1.2
    warp, grown = mirostat(tau, eta), [0]
    for token in text:
        logits = lm.log_probs(grown)[None]
        surprise = -logits[0] / math.log(2)
        left = [other for other in range(8) if surprise[other] <= limit] or [int(logits.argmax())]
        made = probabilities(logits, [warp], [History(grown)])[0]
        assert made.nonzero()[:, 0].tolist() == left
        limit -= eta * (-math.log2(float(made[token])) - tau)
        grown.append(token)


def test_texts_of_a_batch_have_limits_of_their_own():
    lm, prompts, warp = TableLM.random(5, 1, 0), [[0], [0], [3, 1]], [mirostat(1.0, 0.5)]
    rngs = [Seeded(seed) for seed in range(3)]
    together = run_batch(sample_batch(lm, prompts, rngs=rngs, warp=warp), 20)
    for seed, prompt in enumerate(prompts):
        assert together[seed].tokens == run(sample(lm, prompt, rng=Seeded(seed), warp=[mirostat(1.0, 0.5)]), 20).tokens


def test_the_rows_of_a_trace_can_be_shown_again_after_the_text_went_on():
    trace = run(sample(TableLM.random(5, 1, 0), [0], rng=Seeded(2), warp=[mirostat(0.9)]), 10)
    assert all(step.candidates for step in trace.steps) and all(
        dict(step.candidates[0]).get(step.tokens[0], 1) > 0 for step in trace.steps
    )


def test_mirostat_needs_a_text_that_grows_and_every_row_of_it():
    with pytest.raises(ValueError, match=r"mirostat\(1, 0.1\) needs a History over the text that grows"):
        mirostat(1)(DECREASING, [[0, 1]])
    warp, text = mirostat(1), [0]
    warp(DECREASING, [History(text)])
    text += [1, 2]
    with pytest.raises(ValueError, match=r"has not seen the row before the last token of \[0, 1, 2\]"):
        warp(DECREASING, [History(text)])


# ----------------------------------------------------------------------------------------------------------------------
# Bad input


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: exactly_k(0), "exactly_k needs how many tokens to keep, .* got 0"),
        (lambda: top_n_sigma(-1), "top_n_sigma needs how many standard deviations to keep, 0 or more, got -1"),
        (lambda: top_h(0), "top_h needs a share of the entropy, above 0 and at most 1, got 0"),
        (lambda: epsilon_cutoff(1), "epsilon_cutoff needs a probability between 0 and 1, both excluded, got 1"),
        (lambda: eta_cutoff(math.nan), "eta_cutoff needs a probability .* got nan"),
        (lambda: xtc(1.5, 0.1), "xtc needs the probability of leaving top choices out, from 0 to 1, got 1.5"),
        (lambda: xtc(0.5, 0), "xtc needs a threshold above 0 and at most 1, got 0"),
        (lambda: xtc(0.5, 0.1, temperature(2)), r"write warp=\[temperature\(2\)\]"),
        (lambda: dynamic_temperature(1, 1), "needs t above spread, and spread of 0 or more, got 1 and 1"),
        (lambda: dynamic_temperature(1, 0.5, 0), "needs an exponent above 0, got 0"),
        (lambda: logit_bias([1, 2]), r"logit_bias needs a dict from token ids to numbers, got \[1, 2\]"),
        (lambda: logit_bias({"a": 1}), "token ids of 0 or more as keys, got 'a'"),
        (lambda: logit_bias({1: INF}), r"finite numbers \(or -inf, which forbids a token\), got inf"),
        (lambda: logit_bias({9: 1})(DECREASING), "names the token 9, outside the vocabulary of 4"),
        (lambda: repetition_penalty(1.2, last=0), "repetition_penalty needs in last how many tokens .* got 0"),
        (lambda: dry(-1), "dry needs a multiplier of 0 or more"),
        (lambda: dry(1, 0.5), "dry needs a base of 1 or more, got 0.5"),
        (lambda: dry(1, allowed_length=0), "dry needs the length up to which repetitions are free, .* got 0"),
        (lambda: dry(1, breakers=["a"]), r"dry needs token ids as breakers, got \['a'\]"),
        (lambda: mirostat(0), "mirostat needs a finite number above 0 as tau, got 0"),
        (lambda: mirostat(1, -1), "mirostat needs a finite number above 0 as eta, got -1"),
        (lambda: green_list(-1), "green_list needs a key, a whole number of 0 or more, got -1"),
        (lambda: green_list(1, bias="2"), "green_list needs a finite number as bias, got '2'"),
        (lambda: green_score([1, 2], 1, share=1), "green_score needs a share of green tokens between 0 and 1"),
        (lambda: synthid([1], width=0), "needs in width how many tokens decide, .* got 0"),
        (lambda: synthid([]), r"synthid needs at least one key, each 0 or more, got \[\]"),
        (lambda: synthid_score("abc", [1]), "a score needs a list of token ids"),
    ],
)  # fmt: skip
def test_a_bad_setting_is_named_with_what_it_should_be(make, says):
    with pytest.raises(ValueError, match=says):
        make()
