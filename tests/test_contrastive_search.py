"""Contrastive search is what the paper's formula says, in one call a token."""

import math
import random

import pytest
import torch
from conftest import CONTEXT, VOCAB, exactly
from lossless import unlike

from tutorlib import TableLM, contrastive_search, greedy, run
from tutorlib.decoders.contrastive_search import Directions, direction


@pytest.fixture(scope="module")
def small_models():
    return [unlike("llama", 0), unlike("gemma2", 1)]


def computed(lm, tokens):
    """The probabilities after the tokens, and the last layer's state of each of them, by one call without a cache."""
    with torch.no_grad():
        output = lm.model(torch.tensor([tokens]), use_cache=False, output_hidden_states=True)
    return output.logits[0, -1].softmax(-1).tolist(), output.hidden_states[-1][0].tolist()


def table_computed(lm, tokens):
    return lm.log_probs(tokens).exp().tolist(), [lm.log_probs(tokens[: i + 1]).tolist() for i in range(len(tokens))]


def cosine(one, other):
    return sum(a * b for a, b in zip(one, other, strict=True)) / math.hypot(*one) / math.hypot(*other)


def slowly(lm, prompt, count, k, penalty, computed=computed):
    """The paper's loop: every candidate's text is computed anew. The new tokens, and the candidates' scores."""
    text, scores = list(prompt), []
    for _ in range(count):
        probs, _ = computed(lm, text)
        candidates = sorted(range(len(probs)), key=lambda x: -probs[x])[:k]
        score = {}
        for x in candidates:
            *before, state = computed(lm, [*text, x])[1]
            score[x] = (1 - penalty) * probs[x] - penalty * max(cosine(state, other) for other in before)
        scores.append(sorted(score.values(), reverse=True))
        text.append(max(sorted(score), key=score.get))
    return text[len(prompt) :], scores


def test_equals_the_formula_token_for_token_on_models_of_several_families(small_models):
    rng, changed = random.Random(1), 0
    with exactly(torch.float64):
        for lm in small_models:
            for penalty in (0.2, 0.6, 0.8, 1.0):
                prompt, k = [rng.randrange(VOCAB) for _ in range(rng.randint(1, 9))], rng.choice((2, 3, 4, 6))
                trace = run(contrastive_search(lm, prompt, k=k, penalty=penalty), 7)
                tokens, scores = slowly(lm, prompt, 7, k, penalty)
                assert trace.tokens == tokens
                for step, wanted in zip(trace.steps, scores, strict=True):
                    assert [score for _, score in step.hypotheses] == pytest.approx(wanted, abs=1e-9)
                changed += tokens != run(greedy(lm, prompt), 7).tokens
    assert changed > 5, "a penalty that changes nothing shows nothing"


def test_equals_the_formula_on_tables_whose_states_are_their_log_probabilities():
    changed = 0
    for seed in range(30):
        lm, k, penalty = TableLM.random(6, 2, seed), 1 + seed % 6, (0.3, 0.6, 0.9)[seed % 3]
        trace = run(contrastive_search(lm, [0, 1, 2], k=k, penalty=penalty), 8)
        assert trace.tokens == slowly(lm, [0, 1, 2], 8, k, penalty, table_computed)[0]
        changed += trace.tokens != run(greedy(lm, [0, 1, 2]), 8).tokens
    assert changed > 8


def test_a_likely_repetition_loses_to_something_new_by_hand():
    # A second a would have the state of the first: cosine 1. After b everything is otherwise.
    lm = TableLM({"": [0.6, 0.3, 0.1], "b": [0.1, 0.1, 0.8]})
    similarity = cosine([math.log(p) for p in (0.6, 0.3, 0.1)], [math.log(p) for p in (0.1, 0.1, 0.8)])
    assert similarity < 0.75
    step = next(contrastive_search(lm, "a", k=2, penalty=0.6))
    assert step.tokens == [1]
    assert step.hypotheses == [
        [[1], pytest.approx(0.4 * 0.3 - 0.6 * similarity)],
        [[0], pytest.approx(0.4 * 0.6 - 0.6 * 1)],
    ]
    assert (step.score, step.scored) == (step.hypotheses[0][1], 2)
    assert run(contrastive_search(lm, "a", k=2, penalty=0.1), 1).tokens == [0]


def test_without_a_penalty_or_a_choice_it_is_greedy(small_models):
    for lm in small_models:
        wanted = run(greedy(lm, [3, 1, 4]), 9).tokens
        assert run(contrastive_search(lm, [3, 1, 4], penalty=0), 9).tokens == wanted
        assert run(contrastive_search(lm, [3, 1, 4], k=1, penalty=1), 9).tokens == wanted


def test_of_equal_scores_the_lowest_id_wins():
    lm = TableLM({"": [0.25] * 4})
    assert run(contrastive_search(lm, "d", k=3), 3).tokens == [0, 0, 0]
    unlikely_first = TableLM({"": [0.1, 0.4, 0.4, 0.1]})
    for penalty in (0, 0.5, 1):
        wanted = [0, 0] if penalty == 1 else [1, 1]
        assert run(contrastive_search(unlikely_first, "d", k=4, penalty=penalty), 2).tokens == wanted


def test_more_candidates_than_tokens_compare_all(small_models):
    lm = small_models[0]
    all_of_them = run(contrastive_search(lm, [1, 2], k=VOCAB), 6)
    assert run(contrastive_search(lm, [1, 2], k=10 * VOCAB), 6).tokens == all_of_them.tokens
    assert all_of_them.steps[0].scored == VOCAB


def test_costs_one_call_a_token_and_one_for_the_prompt(llama):
    trace = run(contrastive_search(llama, [3, 1, 4]), 9)
    assert (trace.target_calls, len(trace.steps), trace.scored_hypotheses) == (10, 9, 36)


def test_fills_the_context_to_its_last_token(llama):
    trace = run(contrastive_search(llama, [3] * (CONTEXT - 6)), 100)
    assert (len(trace.tokens), trace.stopped) == (6, "context")
    assert trace.tokens == run(contrastive_search(llama, [3] * (CONTEXT - 6)), 5).tokens + trace.tokens[5:]
    assert run(contrastive_search(llama, [3] * CONTEXT), 5).tokens == []


def test_offers_the_models_own_candidates(llama):
    step = next(contrastive_search(llama, [3, 1, 4]))
    assert step.candidates == next(greedy(llama, [3, 1, 4])).candidates
    assert {token for token, _ in step.candidates[0][:4]} == {tokens[0] for tokens, _ in step.hypotheses}


def test_directions_are_kept_whole_while_they_grow_and_are_seldom_copied():
    states = torch.randn(70, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    past, copies = Directions(states[:1]), 0
    for count in range(1, 70):
        rows = past._rows
        past.append(direction(states[count : count + 1])[0])
        copies += past._rows is not rows
        query = direction(states[:3] + 0.1)
        wanted = [max(cosine(a, b) for b in states[: count + 1].tolist()) for a in query.tolist()]
        assert past.nearest(query).tolist() == pytest.approx(wanted)
    assert copies == 7


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"k": 0}, "k says how many tokens are candidates, a whole number of 1 or more, got 0"),
        ({"k": 2.0}, "k says"),
        ({"penalty": -0.1}, r"penalty must be a weight from 0 \(greedy\) to 1 \(similarity alone\), got -0.1"),
        ({"penalty": 1.1}, "penalty must be"),
        ({"penalty": math.nan}, "penalty must be"),
    ],
)
def test_nonsense_is_named_at_the_call(options, words):
    with pytest.raises(ValueError, match=words):
        contrastive_search(TableLM.random(5, 1, 0), "a", **options)


def test_a_state_without_a_direction_is_an_error_that_says_what_to_do():
    with pytest.raises(ValueError, match="no direction to compare .*give every token a probability above 0"):
        run(contrastive_search(TableLM({"": [0.5, 0.5, 0.0]}), "a"), 2)
