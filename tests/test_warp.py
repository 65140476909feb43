"""Warps, each against transformers or by hand, and the softmax after them."""

import functools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    MinPLogitsWarper,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from tutorlib.course.exercises.sampling import nucleus_probs
from tutorlib.decoders import sample, sample_batch
from tutorlib.model.table import TableLM
from tutorlib.running.decoding import run, run_batch
from tutorlib.sampling.known_text import Followers, History, TokenCounts
from tutorlib.sampling.randomness import Seeded
from tutorlib.sampling.warp import (
    checked_warp,
    dry,
    dynamic_temperature,
    epsilon_cutoff,
    eta_cutoff,
    exactly_k,
    frequency_penalty,
    green_list,
    logit_bias,
    min_p,
    no_repeat_ngram,
    one_hot,
    presence_penalty,
    probabilities,
    repetition_penalty,
    synthid,
    temperature,
    top_h,
    top_k,
    top_n_sigma,
    top_p,
    typical,
    xtc,
)

# That sampling under every warp has the distribution it should is shown in test_proof_warps.py.

INF = math.inf
FILTERS = [top_k(2), top_p(0.7), min_p(0.3), typical(0.6), one_hot, exactly_k(2), top_n_sigma(1), top_h(0.6)]
FILTERS += [epsilon_cutoff(0.2), eta_cutoff(0.3), xtc(0.5, 0.2), xtc(0.5, 0.2, [temperature(2)])]
PENALTIES = [repetition_penalty(1.3), frequency_penalty(0.5), presence_penalty(0.5, last=2), no_repeat_ngram(2)]
PENALTIES += [dry(0.8, allowed_length=1), green_list(7), synthid([3, 4])]
EVERY_WARP = [temperature(0.7), dynamic_temperature(1, 0.5), logit_bias({0: -1.0, 2: 1.0}), *FILTERS, *PENALTIES]
by_name = {"ids": lambda warp: getattr(warp, "__name__", None)}


def rows(*lists):
    return torch.tensor(lists, dtype=torch.float64)


def kept(logits):
    """The ids that are left of one row."""
    return (logits > -INF).nonzero()[:, 0].tolist()


def log(*probs):
    return rows(probs).log()


# ----------------------------------------------------------------------------------------------------------------------
# The same as transformers


@st.composite
def logit_rows(draw):
    """Rows with ties, all-equal rows, -inf entries and rows with one token left among them; in each one is finite."""
    count, vocab = draw(st.integers(1, 4)), draw(st.integers(1, 8))
    # Equal, or further apart than rounding: what is equal on paper counts as equal here, and not in transformers.
    free = st.floats(-20, 20).map(lambda value: round(value, 6))
    logit = st.one_of(free, st.integers(-2, 2).map(float), st.just(-INF), st.just(0.0))
    row = st.lists(logit, min_size=vocab, max_size=vocab)
    drawn = [draw(row) for _ in range(count)]
    for row in drawn:
        if max(row) == -INF:
            row[draw(st.integers(0, vocab - 1))] = 1.5
    return torch.tensor(drawn, dtype=torch.float64)


@st.composite
def logits_and_histories(draw):
    """Rows, and before each a history of its own length, in which every id, 0 too, is a real token."""
    logits = draw(logit_rows())
    history = st.lists(st.integers(0, logits.shape[-1] - 1), max_size=9)
    return logits, [draw(history) for _ in logits]


def many_rows(seed, ties=False):
    """Many rows over forty tokens at once: far more than hypothesis draws, but all of one kind."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 4, (300, 40))
    if ties:
        logits = logits.round()
    logits[rng.random(logits.shape) < 0.2] = -INF
    logits[:, 0] = np.maximum(logits[:, 0], -9.0)
    return torch.tensor(logits)


def huggingface(processor, logits, histories):
    """The processor's answer row by row: its histories must be of one length, ours need not."""
    made = [
        processor(torch.tensor([history], dtype=torch.long), row[None].clone())
        for row, history in zip(logits, histories, strict=True)
    ]
    return torch.cat(made)


# Where equal logits sum to exactly a share such as 2/5, transformers keeps what rounding decides.
_SUMS = {count / vocab for vocab in (3, 5, 6, 7) for count in range(1, vocab)} - {0.5}
shares = st.one_of(st.floats(0.001, 0.999), st.sampled_from([0.1, 0.25, 0.5, 0.9])).filter(lambda one: one not in _SUMS)
probabilities_to_keep = st.one_of(shares, st.just(1.0))
strengths = st.one_of(st.floats(0.1, 4), st.just(1.0))


def assert_filters_equal_those_of_transformers(logits, k, share, mass):
    assert torch.equal(top_k(k)(logits), TopKLogitsWarper(k)(None, logits))
    assert torch.equal(min_p(share)(logits), MinPLogitsWarper(share)(None, logits))
    assert torch.equal(typical(mass)(logits), TypicalLogitsWarper(mass)(None, logits))


def assert_top_p_equals_that_of_transformers_and_of_equals_keeps_the_lowest_ids(logits, p):
    ours, theirs = top_p(p)(logits), TopPLogitsWarper(p)(None, logits)
    # Which of several equal logits transformers keeps is up to an unstable sort: compare how many of each are left.
    assert torch.equal(ours.sort().values, theirs.sort().values)
    for before, row, other in zip(logits, ours, theirs, strict=True):
        finite = before[before > -INF]
        if len(finite.unique()) == len(finite):
            assert torch.equal(row, other)
        for value in finite.unique():
            equals = (before == value).nonzero()[:, 0].tolist()
            left = [token for token in equals if row[token] > -INF]
            assert left == equals[: len(left)]
            assert (row[left] == value).all()


@settings(max_examples=80, deadline=None)
@given(logit_rows(), st.floats(0.05, 20), st.integers(1, 12), shares, probabilities_to_keep)
def test_temperature_and_filters_equal_those_of_transformers(logits, t, k, share, p):
    assert torch.equal(temperature(t)(logits), TemperatureLogitsWarper(t)(None, logits))
    assert_filters_equal_those_of_transformers(logits, k, share, share)
    assert_top_p_equals_that_of_transformers_and_of_equals_keeps_the_lowest_ids(logits, p)


@pytest.mark.parametrize("ties", [False, True])
def test_filters_equal_those_of_transformers_on_many_rows_and_at_their_limits(ties):
    logits = many_rows(0, ties)
    for k, share, mass in ((1, 0.01, 0.01), (7, 0.1, 0.2), (39, 0.5, 0.5), (40, 0.95, 0.95), (1000, 1.0, 0.999)):
        assert_filters_equal_those_of_transformers(logits, k, share, mass)
        assert_top_p_equals_that_of_transformers_and_of_equals_keeps_the_lowest_ids(logits[:50], share)
        assert torch.equal(top_p(share)(logits).sort().values, TopPLogitsWarper(share)(None, logits).sort().values)
    assert torch.equal(min_p(0)(logits), MinPLogitsWarper(0.0)(None, logits))


@settings(max_examples=60, deadline=None)
@given(logits_and_histories(), strengths, st.integers(0, 10), st.integers(1, 4))
def test_penalties_equal_those_of_transformers(given_rows, theta, ignore, n):
    logits, histories = given_rows
    expected = huggingface(RepetitionPenaltyLogitsProcessor(theta), logits, histories)
    assert torch.equal(repetition_penalty(theta)(logits, histories), expected)
    expected = huggingface(RepetitionPenaltyLogitsProcessor(theta, prompt_ignore_length=ignore), logits, histories)
    assert torch.equal(repetition_penalty(theta, ignore)(logits, histories), expected)
    expected = huggingface(NoRepeatNGramLogitsProcessor(n), logits, histories)
    assert torch.equal(no_repeat_ngram(n)(logits, histories), expected)


# ----------------------------------------------------------------------------------------------------------------------
# By hand


@pytest.mark.parametrize("mass", [1e-300, math.nextafter(1, 0)])
def test_typical_at_its_limits(mass):
    """However little the mass, one token stays; however close to 1, no index runs off the end."""
    probs = probabilities(many_rows(5), [typical(mass)])
    assert bool((probs.sum(-1) - 1 < 1e-12).all())


# Each warp with the probabilities of a row and the ids that it leaves.
TIES = (0.1, 0.2, 0.2, 0.2, 0.2, 0.1)
LEFT = [
    # top_k keeps every token that equals the k-th, and of the vocabulary or more changes nothing.
    (top_k(2), (0.1, 0.4, 0.2, 0.2, 0.1), [1, 2, 3]),
    (top_k(1), (0.25,) * 4, [0, 1, 2, 3]),
    (top_k(10**9), (0.5, 0, 0.5), [0, 2]),
    # top_p keeps the token that crosses the threshold, and drops what comes after exactly enough.
    (top_p(0.01), (0.15, 0.5, 0.05, 0.3), [1]),
    (top_p(0.55), (0.15, 0.5, 0.05, 0.3), [1, 3]),
    (top_p(0.79), (0.15, 0.5, 0.05, 0.3), [1, 3]),
    (top_p(0.81), (0.15, 0.5, 0.05, 0.3), [0, 1, 3]),
    (top_p(0.97), (0.15, 0.5, 0.05, 0.3), [0, 1, 2, 3]),
    (top_p(0.5), (0.25, 0.5, 0.25), [1]),
    # Of equals it keeps the lowest ids.
    (top_p(0.35), TIES, [1, 2]),
    (top_p(0.7), TIES, [1, 2, 3, 4]),
    (top_p(0.85), TIES, [0, 1, 2, 3, 4]),
    (top_p(0.545), (0.01,) * 100, list(range(55))),
    # min_p compares with the most likely.
    (min_p(0.3), (0.5, 0.2, 0.04, 0.26), [0, 1, 3]),
    (min_p(0.5), (0.5, 0.2, 0.04, 0.26), [0, 3]),
    (min_p(1), (0.4, 0.4, 0.2), [0, 1]),
    (min_p(0), (0.5, 0.2, 0.04, 0.26), [0, 1, 2, 3]),
    # H = -.4 ln .4 - 2 · .3 ln .3 = 1.089 nats; surprises 0.916 (0.173 from H) and 1.204 (0.115 from it, twice), so
    # typical may drop the most likely; it keeps all that are equally far from H.
    (typical(0.5), (0.4, 0.3, 0.3), [1, 2]),
    (typical(0.59), (0.4, 0.3, 0.3), [1, 2]),
    (typical(0.61), (0.4, 0.3, 0.3), [0, 1, 2]),
    (typical(0.1), (0.2,) * 5, [0, 1, 2, 3, 4]),
    # H = 2 bits, and surprises of 1 and 3: all are equally far from it. And of 1, 2, 3, 3 bits, with H = 1.75, the mass
    # of two is met exactly.
    (typical(0.3), (0.5, 0.125, 0.125, 0.125, 0.125), [0, 1, 2, 3, 4]),
    (typical(0.75), (0.5, 0.25, 0.125, 0.125), [0, 1]),
    (typical(0.6), (0.4, 0.3, 0.3), [1, 2]),
    (typical(0.3), (0.4, 0.1, 0.1, 0.1, 0.3), [4]),
]


@pytest.mark.parametrize(("warp", "probs", "left"), LEFT, ids=lambda value: getattr(value, "__name__", ""))
def test_filters_by_hand(warp, probs, left):
    assert kept(warp(log(*probs))[0]) == left
    assert kept(warp(log(*probs), None)[0]) == left, "filters need no histories"


def exactly_kept(parts, warp, share):
    """The ids that a filter keeps of tokens with these parts of the whole, by exact fractions."""
    probs = [Fraction(part, sum(parts)) for part in parts]
    if warp is min_p:
        return [token for token, prob in enumerate(probs) if prob >= share * max(probs)]
    order, total = sorted(range(len(probs)), key=lambda token: -probs[token]), Fraction(0)
    for place, token in enumerate(order):
        total += probs[token]
        if total >= share:
            return sorted(order[: place + 1])
    raise AssertionError("the probabilities sum to 1")


@pytest.mark.parametrize("warp", [top_p, min_p], **by_name)
def test_a_filter_keeps_what_exact_fractions_keep_where_a_threshold_is_met_exactly(warp):
    """Thresholds that are a sum of the most likely tokens, or their part of the most likely one, for many rows."""
    rng = np.random.default_rng(0)
    for parts in ([3, 1, 1, 5], [1] * 10, [1] * 4, *rng.integers(1, 12, (60, 7)).tolist()):
        shares = {Fraction(part, max(parts)) for part in parts}
        if warp is top_p:
            shares = {Fraction(sum(sorted(parts)[-count:]), sum(parts)) for count in range(1, len(parts) + 1)}
        for share in shares:
            probs, due = rows([part / sum(parts) for part in parts]), exactly_kept(parts, warp, share)
            assert kept(warp(float(share))(probs.log())[0]) == due, (parts, share)
            if warp is top_p:  # as the exercise of chapter 5 does
                assert nucleus_probs(probs[0], float(share)).nonzero()[:, 0].tolist() == due, (parts, share)


def test_top_p_of_one_keeps_even_what_is_too_unlikely_for_float64():
    assert kept(top_p(1)(rows([0, -2000, 3]))[0]) == [0, 1, 2]


@pytest.mark.parametrize("make", [lambda: frequency_penalty(0.5, 2), lambda: no_repeat_ngram(3)], ids=["counts", "n"])
def test_penalties_depend_on_the_histories_alone_whatever_they_were_given_before(make):
    """They remember what they counted: here the texts grow, lose their end, change places and begin anew."""
    rng, warp, texts = np.random.default_rng(0), make(), [[], [], [0]]
    for _ in range(200):
        row, cut = int(rng.integers(len(texts))), int(rng.integers(4))
        texts[row] = texts[row][: max(len(texts[row]) - cut, 0)] + rng.integers(0, 3, 5).tolist()
        if rng.random() < 0.2:
            texts = [texts[place][: int(rng.integers(60))] for place in rng.integers(0, len(texts), len(texts))]
        logits = torch.zeros(len(texts), int(rng.integers(3, 5)), dtype=torch.float64)
        assert torch.equal(warp(logits, texts), make()(logits, texts))
        with pytest.raises(ValueError, match=r"history with \[2"):
            warp(logits[:, :2], [[0, 1, 2, 2]] * len(texts))


@pytest.mark.parametrize("make", [lambda: repetition_penalty(1.1), lambda: no_repeat_ngram(4)], ids=["counts", "n"])
def test_penalties_read_only_what_is_new_in_a_history(make, monkeypatch):
    read = []
    for kind in (TokenCounts, Followers):
        monkeypatch.setattr(kind, "push", lambda known, token, push=kind.push: read.append(token) or push(known, token))
    warp, logits = make(), torch.zeros(2, 9, dtype=torch.float64)
    for length in range(300):
        warp(logits, [[token % 9 for token in range(length)], [0] * length])
    assert len(read) == 2 * 299


class ReadTokens(list):
    """A list that counts how many of its tokens are read."""

    read = 0

    def __getitem__(self, index):
        self.read += len(range(len(self))[index]) if isinstance(index, slice) else 1
        return super().__getitem__(index)

    def __iter__(self):
        self.read += len(self)
        return super().__iter__()


READERS = {
    "counts": lambda: frequency_penalty(0.5),
    "without the prompt": lambda: repetition_penalty(1.5, ignore_first=30),
    "n": lambda: no_repeat_ngram(6),
}


@pytest.mark.parametrize("make", READERS.values(), ids=READERS)
def test_penalties_of_a_methods_own_text_read_its_new_tokens_and_no_others(make):
    rng, warp, logits = np.random.default_rng(3), make(), torch.randn(3, 6, dtype=torch.float64)
    text, read = ReadTokens(rng.integers(0, 6, 1000).tolist()), []
    for _ in range(20):
        drafted = rng.integers(0, 6, 2).tolist()
        text.read = 0
        # A filter first: it must not copy the text either.
        probabilities(logits, [temperature(0.5), warp, top_k(6)], [History(text, drafted[:n]) for n in range(3)])
        read.append(text.read)
        text += rng.integers(0, 6, 3).tolist()
    # Three rows read three new tokens each, once to compare them and once to add them.
    assert read[0] >= 3000 and max(read[1:]) <= 3 * 2 * 3, read


@pytest.mark.parametrize("make", READERS.values(), ids=READERS)
def test_a_history_over_a_text_is_worth_as_much_as_the_list_of_its_tokens(make):
    rng, warp, logits = np.random.default_rng(4), make(), torch.randn(1, 4, dtype=torch.float64)
    texts = [[], [0, 1]]
    for _ in range(300):
        text = texts[int(rng.integers(2))]
        text += rng.integers(0, 4, int(rng.integers(4))).tolist()
        history = History(text, rng.integers(0, 4, int(rng.integers(4))).tolist())
        plain = [*text, *history.more]
        given = plain if rng.random() < 0.2 else history  # a list in between is compared as a whole
        assert torch.equal(warp(logits, [given]), make()(logits, [plain]))
        first, last, step = (int(number) for number in (*rng.integers(-9, 9, 2), rng.choice([-2, -1, 1, 3])))
        assert history[first:last:step] == plain[first:last:step] and list(history) == plain
        assert len(history) == len(plain) and all(history[place] == plain[place] for place in range(-len(plain), 0))


def test_anybody_elses_warp_gets_lists_of_tokens():
    seen = []
    probabilities(torch.zeros(1, 3), [lambda logits, histories: seen.extend(histories) or logits], [History([1], [2])])
    assert seen == [[1, 2]] and type(seen[0]) is list


def test_tokens_that_a_penalty_ignores_may_lie_outside_the_vocabulary():
    logits = torch.zeros(1, 3, dtype=torch.float64)
    assert presence_penalty(1.0, ignore_first=2)(logits, [[9, 7, 1]]).tolist() == [[0, -1, 0]]
    with pytest.raises(ValueError, match=r"history with \[3\]"):
        presence_penalty(1.0, ignore_first=2)(logits, [[9, 7, 1, 3]])


def test_one_hot_leaves_the_likeliest_token_and_of_equals_the_lowest():
    logits = torch.tensor([[1.0, 3.0, 2.0], [5.0, 5.0, 5.0], [-INF, 0.0, 0.0]])
    assert probabilities(logits, [one_hot]).tolist() == [[0, 1, 0], [1, 0, 0], [0, 1, 0]]


@settings(max_examples=40, deadline=None)
@given(logits_and_histories(), st.floats(-2, 2), st.integers(0, 10))
def test_frequency_and_presence_penalties_by_counting(given_rows, strength, ignore):
    logits, histories = given_rows
    frequent = frequency_penalty(strength, ignore)(logits, histories).tolist()
    present = presence_penalty(strength, ignore)(logits, histories).tolist()
    for row, history in enumerate(histories):
        counts = Counter(history[ignore:])
        for token, logit in enumerate(logits[row].tolist()):
            assert frequent[row][token] == logit - strength * counts[token]
            assert present[row][token] == logit - strength * (token in counts)


# ----------------------------------------------------------------------------------------------------------------------
# True of all of them


@pytest.mark.parametrize("warp", EVERY_WARP, **by_name)
def test_rows_do_not_touch_each_other(warp):
    """A row's answer is the same alone and among others; histories belong to their rows and differ in length."""
    logits = many_rows(4)[:20, :6]
    histories = [[token % 6 for token in range(row, row + row % 7)] * 2 for row in range(20)]
    alone = [warp(logits[row : row + 1], histories[row : row + 1]) for row in range(20)]
    assert torch.equal(warp(logits, histories), torch.cat(alone))


@pytest.mark.parametrize("warp", EVERY_WARP, **by_name)
def test_minus_infinity_stays_so_and_nothing_becomes_nan(warp):
    logits = rows([0, -INF, 1, 2], [-INF, -INF, -3, -INF], [-INF, -INF, -INF, -INF])
    warped = warp(logits, [[0, 1, 2], [1, 3], [2, 2]])
    assert not warped.isnan().any()
    assert (warped[logits == -INF] == -INF).all()
    assert kept(warped[1]) == [2], "the one token left is never dropped"


@pytest.mark.parametrize("warp", EVERY_WARP, **by_name)
def test_logits_that_are_given_are_not_changed_and_keep_their_type(warp):
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        logits = torch.randn(3, 5, generator=torch.Generator().manual_seed(0)).to(dtype)
        before = logits.clone()
        warped = warp(logits, [[0, 1, 1], [2], []])
        assert torch.equal(logits, before)
        assert (warped.dtype, warped.shape) == (dtype, logits.shape)


def test_names_say_what_was_asked_for():
    made = [temperature(0.7), top_k(50), top_p(0.9), min_p(0.05), typical(0.95), repetition_penalty(1.2)]
    made += [frequency_penalty(0.5, ignore_first=7), presence_penalty(-1), no_repeat_ngram(3)]
    made += [top_p(0.9999999), temperature(1 / 3), typical(np.float64(0.1)), presence_penalty(1e-7, 1)]
    assert [warp.__name__ for warp in made] == [
        "temperature(0.7)", "top_k(50)", "top_p(0.9)", "min_p(0.05)", "typical(0.95)", "repetition_penalty(1.2)",
        "frequency_penalty(0.5, ignore_first=7)", "presence_penalty(-1)", "no_repeat_ngram(3)",
        "top_p(0.9999999)", "temperature(0.3333333333333333)", "typical(0.1)",
        "presence_penalty(1e-07, ignore_first=1)",
    ]  # fmt: skip


# ----------------------------------------------------------------------------------------------------------------------
# The softmax after them


def test_probabilities_are_the_softmax_in_float64_after_the_warps():
    logits = torch.tensor([[0.0, math.log(3)], [2.0, 2.0]])
    torch.testing.assert_close(probabilities(logits), rows([0.25, 0.75], [0.5, 0.5]), atol=1e-7, rtol=0)
    # 1/4 and 3/4 at temperature 1/2 become 1/16 and 9/16, normalised: 1/10 and 9/10.
    warped = probabilities(logits[:1].double(), [temperature(0.5)])
    torch.testing.assert_close(warped, rows([0.1, 0.9]), atol=1e-7, rtol=0)
    half = torch.tensor([[1.0, 3.0, -2.0]], dtype=torch.bfloat16)
    assert torch.equal(probabilities(half, [temperature(0.3)]), (half.double() / 0.3).softmax(-1))
    assert probabilities(torch.zeros(0, 3), EVERY_WARP, []).shape == (0, 3)


def test_a_filter_sees_what_the_warps_before_it_left():
    """Flattened first, 0.5, 0.3 and 0.2 need all three tokens for 0.75; filtered first, two are enough."""
    logits = log(0.5, 0.3, 0.2)
    flat_first = probabilities(logits, [temperature(10.0), top_p(0.75)])
    flat_last = probabilities(logits, [top_p(0.75), temperature(10.0)])
    assert (flat_first > 0).tolist() == [[True, True, True]]
    assert (flat_last > 0).tolist() == [[True, True, False]]


# ----------------------------------------------------------------------------------------------------------------------
# Bad input


NOT_NUMBERS = [math.nan, INF, -INF, "hot", None, True, [0.5]]


@pytest.mark.parametrize(
    ("make", "bad", "words"),
    [
        (temperature, [0, -1, *NOT_NUMBERS], "rng=None"),
        (top_k, [0, -1, 2.0, 2.5, *NOT_NUMBERS], "top_k needs how many tokens to keep, a whole number of 1 or more"),
        (top_p, [0, -0.1, 1.0001, 90, *NOT_NUMBERS], "top_p needs a probability above 0 and at most 1"),
        (min_p, [-0.1, 1.0001, 5, *NOT_NUMBERS], "min_p needs a share of the highest probability, from 0"),
        (typical, [0, 1, -0.1, 1.1, *NOT_NUMBERS], "typical needs a probability between 0 and 1"),
        (repetition_penalty, [0, -1.2, *NOT_NUMBERS], "repetition_penalty needs a finite number above 0"),
        (frequency_penalty, NOT_NUMBERS, "frequency_penalty needs a finite number"),
        (presence_penalty, NOT_NUMBERS, "presence_penalty needs a finite number"),
        (
            no_repeat_ngram,
            [0, -1, 2.0, *NOT_NUMBERS],
            "no_repeat_ngram needs the length of the n-grams, a whole number",
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_bad_setting_is_refused_when_the_warp_is_made(make, bad, words):
    for value in bad:
        with pytest.raises(ValueError, match=words) as error:
            make(value)
        assert repr(value) in str(error.value)


@pytest.mark.parametrize("penalty", [repetition_penalty, frequency_penalty, presence_penalty])
def test_a_bad_ignore_first_is_refused_when_the_penalty_is_made(penalty):
    words = f"{penalty.__name__} needs in ignore_first .* a whole number of 0 or more"
    for bad in (-1, 1.0, True, math.nan, "3"):
        with pytest.raises(ValueError, match=words):
            penalty(1.2, ignore_first=bad)


def test_numpy_numbers_are_numbers():
    logits, history = rows([1, 3, 2]), [[1]]
    assert torch.equal(top_k(np.int64(2))(logits), top_k(2)(logits))
    assert torch.equal(top_p(np.float32(0.5))(logits), top_p(0.5)(logits))
    assert torch.equal(repetition_penalty(np.float64(2))(logits, history), repetition_penalty(2)(logits, history))


@pytest.mark.parametrize("penalty", PENALTIES, **by_name)
@pytest.mark.parametrize(
    ("histories", "words"),
    [
        (None, "needs the tokens before each row: pass histories"),
        ([1, 2], "one sequence of tokens per row"),
        ([[1, 2]], "needs one history per row: got 1 for 2 rows"),
        ([[1], [2, 5]], r"history with \[5\], outside the vocabulary of 3"),
        ([[1], [-1]], r"history with \[-1\], outside the vocabulary of 3"),
    ],
)
def test_a_penalty_names_what_is_wrong_with_its_histories(penalty, histories, words):
    with pytest.raises(ValueError, match=words) as error:
        penalty(torch.zeros(2, 3), histories)
    assert str(error.value).startswith(penalty.__name__)


@pytest.mark.parametrize(
    "after", [[], [top_p(0.5)], [typical(0.5)], [min_p(0.5)], [top_k(1)], [one_hot], [temperature(2)]]
)
def test_a_row_with_nothing_left_is_an_error_that_names_the_warps(after):
    warp = [temperature(0.7), no_repeat_ngram(1), *after]
    words = r"no token is left in row 1: the warp temperature\(0.7\), no_repeat_ngram\(1\).* filtered everything away"
    with pytest.raises(ValueError, match=words):
        probabilities(torch.zeros(2, 3), warp, [[0, 1], [2, 1, 0]])


@pytest.mark.parametrize(
    "warp", [[], *([warp] for warp in EVERY_WARP)], ids=lambda warp: "".join(w.__name__ for w in warp)
)
@pytest.mark.parametrize("bad", [math.nan, INF])
def test_logits_that_are_not_numbers_are_an_error_even_where_a_warp_would_drop_them(bad, warp):
    logits = torch.zeros(3, 3)
    logits[1, 2] = bad
    with pytest.raises(ValueError, match="row 1 of the logits holds NaN"):
        probabilities(logits, warp, [[0], [2, 2], [1]])


def test_a_warp_that_makes_nan_or_infinity_is_named():
    def broken(logits, histories):
        return logits * math.nan

    with pytest.raises(ValueError, match=r"row 0 of the logits holds NaN or \+inf after the warp top_k\(2\), broken"):
        probabilities(torch.zeros(1, 3), [top_k(2), broken])
    with pytest.raises(ValueError, match=r"after the warp temperature\(1e-310\)"):
        probabilities(torch.ones(1, 3), [temperature(1e-310)])


@pytest.mark.parametrize(
    ("warp", "words"),
    [
        (temperature(0.7), r"write warp=\[temperature\(0.7\)\]"),
        ("top", "list of functions"),
        ([0.7], "0.7"),
        (3, "got 3"),
        ([top_k], r"top_k, which does not take \(logits, histories\): write top_k\(\.\.\.\)"),
    ],
)
def test_a_warp_must_be_a_list_of_functions(warp, words):
    for use in (checked_warp, lambda warp: probabilities(torch.zeros(1, 9), warp))[: 1 + callable(warp)]:
        with pytest.raises(ValueError, match=words):
            use(warp)


RESULTS = {
    "None: a warp must return logits .* of the shape": lambda logits: None,
    r"torch.float64, shape \(2, 2\), on cpu: a warp must return .* of the shape \(2, 3\)": lambda logits: logits[:, :2],
    r"shape \(3, 3\)": lambda logits: torch.cat([logits, logits[:1]]),
    r"shape \(2,\)": lambda logits: logits[:, 0],
    "torch.int64": lambda logits: logits.long(),
    "torch.bool": lambda logits: logits > 0,
    "on meta: .* on cpu": lambda logits: logits.to("meta"),
}


@pytest.mark.parametrize("says", RESULTS)
def test_what_a_warp_returns_must_be_logits_like_those_it_was_given(says):
    def careless(logits, histories):
        return RESULTS[says](logits)

    with pytest.raises(ValueError, match=f"the warp careless returned .*{says}"):
        probabilities(torch.zeros(2, 3), [temperature(2.0), careless])


def test_a_warp_may_answer_in_another_precision_and_change_what_it_was_given():
    def in_place(logits, histories):
        logits -= 1
        return logits.float()

    logits = torch.tensor([[0.0, 1.0]]).double()
    assert probabilities(logits, [in_place]).dtype == torch.float64
    assert logits.tolist() == [[0.0, 1.0]], "what the model said is not changed"


def test_a_penalty_may_ignore_the_prompt_of_each_text_whatever_its_length():
    """One number serves one prompt: in a batch of several, each row has a number of its own."""
    lm, prompts = TableLM.random(3, 1, 2), [[0], [1, 2, 0, 0, 1], [2, 2]]
    for penalty in (functools.partial(frequency_penalty, 0.7), functools.partial(repetition_penalty, 1.7)):
        rngs = [Seeded(number) for number in range(3)]
        made = run_batch(sample_batch(lm, prompts, rngs=rngs, warp=[penalty(ignore_first=None)]), 12)
        for number, prompt in enumerate(prompts):
            warp = [penalty(ignore_first=len(prompt))]
            assert made[number].tokens == run(sample(lm, prompt, rng=Seeded(number), warp=warp), 12).tokens
        with pytest.raises(ValueError, match=r"ignore_first=None\) needs to know where the prompt ends"):
            penalty(ignore_first=None)(torch.zeros(1, 3), [[0, 1]])
