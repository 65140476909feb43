"""The proof machinery: plain sampling passes it, planted faults do not, on a table and over real caches."""

import math

import lossless
import numpy as np
import pytest
import torch
from conftest import exactly, random_model
from lossless import EXACT, distance
from scipy import stats

from tutorlib import LM, Seeded, Step, TableLM, decoder, greedy, run, sample, temperature
from tutorlib.measures.proof import (
    empirical_check,
    exact_distribution,
    samples_needed,
    target_distribution,
    token_distribution,
    total_variation,
)
from tutorlib.sampling.warp import probabilities

# Sampling with one mistake each, as it has been published.


@decoder
def ignoring_the_warp(lm, prompt, *, rng, warp=()):
    session = lm.session(prompt)
    logits = session.feed()
    while True:
        token = rng.choose(probabilities(logits)[-1])
        yield Step([token])
        logits = session.feed([token])


@decoder
def one_row_late(lm, prompt, *, rng, warp=()):
    """The row that checked the last token checks the next one too."""
    session = lm.session(prompt)
    logits = late = session.feed()
    while True:
        token = rng.choose(probabilities(late, warp)[-1])
        yield Step([token])
        late, logits = logits, session.feed([token])


@decoder
def now_and_then_the_likeliest(lm, prompt, *, rng, warp=()):
    session = lm.session(prompt)
    logits = session.feed()
    while True:
        probs = probabilities(logits, warp)[-1]
        token = int(probs.argmax()) if rng.accept(0.25) else rng.choose(probs)
        yield Step([token])
        logits = session.feed([token])


@decoder
def rolled_back_by_one_too_few(lm, prompt, *, rng, warp=()):
    """Peeks one token ahead before each step and forgets to take the second of its two tokens back."""
    session = lm.session(prompt)
    logits = session.feed()
    while True:
        token = rng.choose(probabilities(logits, warp)[-1])
        yield Step([token])
        logits = session.feed([token])
        session.feed([0, 0])
        session.rollback(1)


@decoder
def position_by_position(lm, prompt, *, rng, warp=()):
    """Each token has the right distribution by itself, but neighbours are drawn independently of each other."""
    session, other = lm.session(prompt), lm.session(prompt)
    logits, hidden = session.feed(), other.feed()
    while True:
        token = rng.choose(probabilities(logits, warp)[-1])
        unseen = rng.choose(probabilities(hidden, warp)[-1])
        yield Step([token])
        logits, hidden = other.feed([unseen]), session.feed([token])
        session, other = other, session


FAULTS = [ignoring_the_warp, one_row_late, now_and_then_the_likeliest, rolled_back_by_one_too_few, position_by_position]


@pytest.fixture(scope="module", params=["table", "llama"])
def small(request):
    """A vocabulary of three: a table, and real caches over real layers in float64."""
    return TableLM.random(3, 3, seed=4) if request.param == "table" else lossless.small("llama")


@pytest.mark.parametrize("warp", [(), (temperature(0.5),)], ids=["plain", "temperature"])
def test_sampling_keeps_the_models_distribution_also_where_sequences_stop(small, warp):
    assert distance(sample, small, [0, 2, 1, 1], 3, warp) < EXACT
    assert distance(sample, small, [1], 3, warp, stop=[2]) < EXACT


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__wrapped__.__name__)
def test_planted_faults_are_far_from_it(small, fault):
    length = 2 if fault is position_by_position else 3  # it draws twice a token, so its branches multiply twice as fast
    assert distance(fault, small, [1], length, [temperature(0.5)]) > 0.01


def test_a_fault_that_every_single_position_hides_is_seen_in_the_joint_distribution(small):
    def second_token(distribution):
        return {token: math.fsum(p for tokens, p in distribution.items() if tokens[1] == token) for token in range(3)}

    with exactly(small.dtype):
        ours = exact_distribution(lambda rng: position_by_position(small, [1], rng=rng), 2, stop=())
        right = target_distribution(small, [1], 2, stop=())
    assert total_variation(second_token(ours), second_token(right)) < EXACT
    assert total_variation(ours, right) > 0.01


def test_target_distribution_by_hand():
    lm = TableLM({"": [0.5, 0.5], "a": [0.25, 0.75], "b": [1.0, 0.0]})
    assert target_distribution(lm, "a", 2) == pytest.approx({(0, 0): 1 / 16, (0, 1): 3 / 16, (1, 0): 3 / 4})
    assert target_distribution(lm, "a", 2, stop=[1]) == pytest.approx({(0, 0): 1 / 16, (0, 1): 3 / 16, (1,): 3 / 4})
    # Temperature 1/2 squares the odds: 1:9 after a.
    assert target_distribution(lm, "a", 1, warp=[temperature(0.5)]) == pytest.approx({(0,): 0.1, (1,): 0.9})


def test_target_distribution_of_a_real_model_is_that_of_full_forward_passes(small):
    if small.model is None:
        pytest.skip("a table has no forward pass")
    with exactly(small.dtype), torch.no_grad():
        by_hand = {}
        for first in range(3):
            rows = small.model(torch.tensor([[1, first]])).logits[0].softmax(-1)
            by_hand.update({(first, second): float(rows[0, first] * rows[1, second]) for second in range(3)})
        assert target_distribution(small, [1], 2) == pytest.approx(by_hand, abs=1e-12)


def test_models_stop_tokens_are_the_default():
    lm = TableLM({"": [0.5, 0.5]}, stop_tokens=["b"])
    expected = {(1,): 0.5, (0, 1): 0.25, (0, 0): 0.25}
    assert exact_distribution(lambda rng: sample(lm, "a", rng=rng), 2) == pytest.approx(expected)
    assert target_distribution(lm, "a", 2) == pytest.approx(expected)


def test_the_distribution_of_a_method_without_random_draws_is_one_sequence():
    lm = TableLM.random(3, 2, 0)
    tokens = tuple(run(greedy(lm, "a"), 4).tokens)
    assert exact_distribution(lambda rng: greedy(lm, "a"), 4) == {tokens: 1.0}


def test_tokens_drawn_beyond_the_length_do_not_count_twice():
    @decoder
    def two_at_a_time(lm, prompt, *, rng):
        session = lm.session(prompt)
        logits = session.feed()
        while True:
            first = rng.choose(probabilities(logits)[-1])
            second = rng.choose(probabilities(session.feed([first]))[-1])
            yield Step([first, second])
            logits = session.feed([second])

    lm = TableLM.random(3, 3, 1)
    ours = exact_distribution(lambda rng: two_at_a_time(lm, "a", rng=rng), 3)
    assert total_variation(ours, target_distribution(lm, "a", 3)) < EXACT


def test_too_many_branches_say_what_to_do():
    lm = TableLM.random(3, 1, 0)
    with pytest.raises(ValueError, match="more than 50 branches"):
        exact_distribution(lambda rng: sample(lm, "a", rng=rng), 4, max_branches=50)


def test_total_variation_by_hand():
    assert total_variation({"x": 1.0}, {"y": 1.0}) == 1
    assert total_variation({"x": 0.5, "y": 0.5}, {"y": 0.25, "x": 0.75}) == 0.25
    with pytest.raises(ValueError, match="sums to 0.9"):
        total_variation({"x": 0.9}, {"x": 1.0})


# ----------------------------------------------------------------------------------------------------------------------
# The check for decoders that are not ours


def drawing(method, lm, **options):
    """A decoder as a stranger would bring it: a function from a prompt to new tokens, that draws by itself."""
    seeds = iter(range(1_000_000))
    return lambda prompt: run(method(lm, prompt, rng=Seeded(next(seeds)), **options), 3, stop=()).tokens


@pytest.fixture(scope="module")
def table():
    return TableLM.random(4, 3, seed=2)


def test_the_check_passes_right_samplers_about_as_often_as_it_should(table):
    # Checks of right samplers: their p values must look uniform, not crowd at either end.
    p_values = []
    for repeat in range(15):
        rng = Seeded(repeat)
        check = empirical_check(
            lambda prompt, rng=rng: run(sample(table, prompt, rng=rng), 2, stop=()).tokens, "ab", table, 2, 100
        )
        assert check.passed
        p_values.append(check.p_value)
    assert sum(p < 0.1 for p in p_values) <= 4
    assert sum(p > 0.9 for p in p_values) <= 4
    assert 0.3 < sum(p_values) / 15 < 0.7


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__wrapped__.__name__)
def test_the_check_catches_planted_faults(table, fault):
    warp = [temperature(0.5)]
    check = empirical_check(drawing(fault, table, warp=warp), "a", table, 3, 800, warp=warp)
    assert not check.passed
    assert check.verdict.startswith("wrong")


def test_the_check_passes_transformers_own_sampling():
    lm = LM(random_model("llama"))
    torch.manual_seed(0)

    def decode(prompt):
        output = lm.model.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), do_sample=True,
            top_k=0, top_p=1.0, temperature=0.5, max_new_tokens=2, eos_token_id=None, pad_token_id=0,
        )  # fmt: skip
        return output[0, len(prompt) :].tolist()

    with torch.random.fork_rng(devices=[]):
        assert empirical_check(decode, [3, 1], lm, 2, 100, warp=[temperature(0.5)]).passed
        wrong = empirical_check(decode, [3, 1], lm, 2, 100, warp=[temperature(1.0)])
    assert not wrong.passed


def test_g_and_its_degrees_of_freedom_by_hand():
    draws = iter([[0]] * 60 + [[1]] * 40)
    check = empirical_check(lambda prompt: next(draws), [0], {(0,): 0.5, (1,): 0.5}, 1, 100)
    # G = 2 (60 ln 60/50 + 40 ln 40/50); the p value for one degree of freedom is erfc(sqrt(G / 2)).
    statistic = 2 * (60 * math.log(1.2) + 40 * math.log(0.8))
    assert (check.statistic, check.dof) == (pytest.approx(statistic), 1)
    assert check.p_value == pytest.approx(math.erfc(math.sqrt(statistic / 2)))
    assert check.observed == {(0,): 60, (1,): 40}
    assert str(check) == "no difference found (G(1) = 4.0, p = 0.045, 100 samples)"
    assert check.worst(1)[0][1:] in [(60, 50.0), (40, 50.0)]


def test_rare_sequences_are_pooled_with_their_neighbours():
    counts = {(0, 0): 100, (0, 1): 58, (0, 2): 4, (0, 3): 3, (1, 0): 14, (1, 1): 3, (2, 0): 18}
    reference = {tokens: count / 200 for tokens, count in counts.items()}
    draws = iter([tokens for tokens, count in counts.items() for _ in range(count)])
    check = empirical_check(lambda prompt: next(draws), [0], reference, 2, 200)
    # (0, 2) and (0, 3) make 7 together. (1, 1) has no company after 1, nor at the root: it joins the smallest cell.
    pooled = {(0, 0): 100, (0, 1): 58, (0, None): 10, (1, 0): 14, (2, 0): 18}
    assert check.expected == pytest.approx(pooled)
    assert check.observed == pooled
    assert (check.statistic, check.dof) == (pytest.approx(0, abs=1e-9), 4)


def test_something_impossible_is_wrong_however_rare():
    draws = iter([[0], [1]] * 499 + [[2], [0]])
    check = empirical_check(lambda prompt: next(draws), [0], {(0,): 0.5, (1,): 0.5, (3,): 0.0}, 1, 1000)
    assert (check.impossible, check.passed, check.p_value) == (1, False, 0.0)
    assert "1 samples have probability zero" in check.verdict


def test_what_comes_after_the_length_or_a_stop_token_is_ignored():
    lm = TableLM({"": [0.5, 0.5]})
    seeds = iter(range(1000))

    def decode(prompt):
        return run(sample(lm, prompt, rng=Seeded(next(seeds))), 9).tokens

    check = empirical_check(decode, "a", lm, 2, 200, stop=[1])
    assert set(check.expected) == {(1,), (0, 0), (0, 1)}
    assert check.passed


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"samples": 10, "length": 3}, "10 samples are too few"),
        ({"samples": 0}, "samples must be at least 1"),
        ({"length": 0}, "at least 1"),
        ({"decode": lambda prompt: [1]}, "at least 2 new tokens"),
        ({"reference": {(0, 0): 0.5}}, "sums to 0.5"),
        ({"warp": temperature(1.0)}, "list of functions"),
    ],
)
def test_bad_checks_are_named(table, options, words):
    arguments = {"decode": lambda prompt: [0, 0, 0], "reference": table, "length": 2, "samples": 500} | options
    with pytest.raises(ValueError, match=words):
        empirical_check(prompt="a", **arguments)


# ----------------------------------------------------------------------------------------------------------------------
# How many samples a test needs


def test_one_token_of_a_text_has_the_sum_of_the_texts_with_it():
    texts = {(0, 1): 0.25, (1, 1): 0.5, (1,): 0.25}
    assert token_distribution(texts, 0) == {(0,): 0.25, (1,): 0.75}
    assert token_distribution(texts, 1) == {(1,): 0.75, (): 0.25}
    with pytest.raises(ValueError, match="position"):
        token_distribution(texts, -1)


def test_so_many_samples_find_a_mistake_as_often_as_promised():
    """Counted: of 2,000 χ² tests with so many samples, 90 % find the mistake, and 5 % blame a right decoder."""
    due, made = [0.5, 0.3, 0.2], [0.45, 0.3, 0.25]
    needed = samples_needed(dict(enumerate(made)), dict(enumerate(due)))
    for drawn_from, share in ((made, 0.9), (due, 0.05)):
        counts = np.random.default_rng(0).multinomial(needed, drawn_from, size=2000)
        found = stats.chisquare(counts, needed * np.array(due), axis=1).pvalue < 0.05
        assert found.mean() == pytest.approx(share, abs=0.02)


def test_for_two_outcomes_the_number_is_that_of_the_textbook():
    """n = ((z(0.975) + z(0.9)) / w)², of which w is the effect, here 0.1 / 0.5."""
    textbook = ((stats.norm.isf(0.025) + stats.norm.isf(0.1)) / 0.2) ** 2
    assert samples_needed({"a": 0.6, "b": 0.4}, {"a": 0.5, "b": 0.5}) == math.ceil(textbook)


def test_what_is_impossible_gives_itself_away_and_what_is_right_never_does():
    due = {"a": 0.5, "b": 0.5}
    assert samples_needed({"c": 1.0}, due) == 1
    assert samples_needed({"a": 0.5, "b": 0.4, "c": 0.1}, due) <= math.ceil(math.log(0.1) / math.log(0.9))
    assert samples_needed({"b": 1.0}, {"a": 1.0}) == 1 and samples_needed({"a": 0.9, "b": 0.1}, {"a": 1.0}) == 22
    assert samples_needed(due, due) == math.inf
    for level, power in ((0, 0.9), (0.5, 0.4), (0.05, 1)):
        with pytest.raises(ValueError, match="level and power"):
            samples_needed({"a": 1.0}, due, level=level, power=power)
