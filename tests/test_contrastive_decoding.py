"""Contrastive decoding is what the paper's formula says, greedily, drawn and searched for."""

import itertools
import math
import random

import pytest
import torch
from conftest import VOCAB, exactly
from full_passes import recomputed
from lossless import EXACT, LETTERS, unlike
from test_fuzz import sparse
from test_proof_warps import LENGTH, definitions, direct, ours, softmax

from tutorlib.decoders import greedy
from tutorlib.decoders.contrastive_decoding import (
    contrastive_beam_search,
    contrastive_decoding,
    contrastive_sampling,
    contrastive_scores,
)
from tutorlib.measures.proof import exact_distribution, total_variation
from tutorlib.model.table import TableLM
from tutorlib.running.decoding import run
from tutorlib.sampling.randomness import Seeded


@pytest.fixture(scope="module")
def pairs():
    """Expert and amateur, each of another family."""
    return [(unlike("llama", 0), unlike("gpt2", 1)), (unlike("gemma2", 2), unlike("opt", 3))]


def next_probs(lm, tokens, t=1.0):
    """What may follow the tokens, by one call without a cache: a list of probabilities."""
    return softmax([logit / t for logit in recomputed(lm.model, tokens)[-1].tolist()])


def table_probs(lm, tokens, t=1.0):
    return softmax([log_prob / t for log_prob in lm.log_probs(tokens).tolist()])


def scored(expert, amateur, tokens, alpha, t, probs=next_probs):
    """The paper's scores, straight from its formulas: {token: score} of the plausible tokens."""
    by_expert, by_amateur = probs(expert, tokens), probs(amateur, tokens, t)
    plausible = [x for x in range(len(by_expert)) if by_expert[x] >= alpha * max(by_expert)]
    return {x: math.log(by_expert[x]) - math.log(by_amateur[x]) for x in plausible}


def slowly(expert, amateur, prompt, count, alpha, t):
    text = list(prompt)
    for _ in range(count):
        scores = scored(expert, amateur, text, alpha, t)
        text.append(max(scores, key=scores.get))
    return text[len(prompt) :]


# ----------------------------------------------------------------------------------------------------------------------
# The greedy form


def test_equals_the_formula_token_for_token_on_models_of_several_families(pairs):
    rng, changed = random.Random(0), {"greedy": 0, "no cut": 0, "temperature 1": 0}
    with exactly(torch.float64):
        for (expert, amateur), _ in itertools.product(pairs, range(4)):
            prompt = [rng.randrange(VOCAB) for _ in range(rng.randint(1, 9))]
            options = {"alpha": rng.choice((0.05, 0.1, 0.3)), "amateur_temperature": rng.choice((0.5, 1.7))}
            made = run(contrastive_decoding(expert, amateur, prompt, **options), 7).tokens
            assert made == slowly(expert, amateur, prompt, 7, *options.values())
            others = {
                "greedy": greedy(expert, prompt),
                "no cut": contrastive_decoding(expert, amateur, prompt, **options | {"alpha": 0}),
                "temperature 1": contrastive_decoding(expert, amateur, prompt, alpha=options["alpha"]),
            }
            for name, steps in others.items():
                changed[name] += made != run(steps, 7).tokens
    assert min(changed.values()) > 2, "settings that change nothing show nothing"


QUESTION = "Obama was born in "
ANSWERS = [QUESTION, "Honolulu", "1964", "Washington", "zzz", "Kenya"]
EXPERT = TableLM({"": {"Honolulu": 0.16, "1964": 0.1, "Washington": 0.02, "zzz": 0.0005, "Kenya": 0.7195}}, ANSWERS)
AMATEUR = TableLM(
    {"": {"Honolulu": 0.08, "1964": 0.001, "Washington": 0.04, "zzz": 1e-9, "Kenya": 0.879 - 1e-9}}, ANSWERS
)


def test_the_worked_example_by_hand():
    """1964 wins: 0.1 / 0.001 = 100. Without the cut the token that nobody thinks of does: 0.0005 / 1e-9 = 500,000."""
    ratios = {"Honolulu": 2, "1964": 100, "Washington": 0.5, "zzz": 5e5}
    scores = contrastive_scores(EXPERT.log_probs([0])[None], AMATEUR.log_probs([0])[None], alpha=0)[0]
    assert {text: float(scores[ANSWERS.index(text)]) for text in ratios} == pytest.approx(
        {text: math.log(ratio) for text, ratio in ratios.items()}
    )
    assert run(contrastive_decoding(EXPERT, AMATEUR, QUESTION), 1).text == "1964"
    assert run(contrastive_decoding(EXPERT, AMATEUR, QUESTION, alpha=0), 1).text == "zzz"
    assert run(greedy(EXPERT, QUESTION), 1).text == "Kenya"


def test_a_whole_cut_or_an_even_amateur_is_greedy(pairs):
    even = TableLM({}, vocab=LETTERS.vocab)
    for expert, amateur in pairs:
        wanted = run(greedy(expert, [3, 1, 4]), 12).tokens
        assert run(contrastive_decoding(expert, amateur, [3, 1, 4], alpha=1), 12).tokens == wanted
        for alpha in (0, 0.1):
            assert run(contrastive_decoding(expert, even, [3, 1, 4], alpha=alpha), 12).tokens == wanted


def test_of_equal_scores_the_lowest_id_wins():
    expert, amateur = TableLM({"": [0.2, 0.4, 0.2, 0.2]}), TableLM({"": [0.1, 0.4, 0.1, 0.4]})
    assert run(contrastive_decoding(expert, amateur, "b"), 2).tokens == [0, 0]


def test_what_one_of_them_finds_impossible():
    expert, amateur = TableLM({"": [0.5, 0.3, 0.2, 0.0]}), TableLM({"": [0.8, 0.2, 0.0, 0.0]})
    scores = contrastive_scores(expert.log_probs([])[None], amateur.log_probs([])[None], alpha=0)[0]
    assert scores.tolist() == pytest.approx([math.log(0.625), math.log(1.5), math.inf, -math.inf])
    assert run(contrastive_decoding(expert, amateur, "a"), 2).tokens == [2, 2]
    with pytest.raises(ValueError, match="the amateur gives token 2 no probability at all"):
        run(contrastive_sampling(expert, amateur, "a", rng=Seeded(0)), 2)


def test_offers_the_softmax_of_the_scores_as_candidates():
    steps = list(itertools.islice(contrastive_decoding(EXPERT, AMATEUR, QUESTION), 1))
    tokens, probs = zip(*steps[0].candidates[0], strict=True)
    assert [ANSWERS[token] for token in tokens] == ["1964", "Honolulu", "Kenya"]
    assert probs[0] == pytest.approx(100 / (100 + 2 + 0.7195 / 0.879))


@pytest.mark.parametrize("method, options", [(contrastive_decoding, {}), (contrastive_sampling, {"rng": None})])
def test_ends_where_the_shorter_context_does(method, options):
    def text(expert_context, amateur_context, prompt):
        models = TableLM.random(5, 1, 0, context=expert_context), TableLM.random(5, 1, 1, context=amateur_context)
        return run(method(*models, prompt, **options), 20)

    whole = text(64, 64, [1, 2]).tokens
    assert (text(6, 9, [1, 2]).tokens, text(6, 9, [1, 2]).stopped) == (whole[:4], "context")
    # The amateur has to read all of the text but its last token.
    assert (text(9, 6, [1, 2]).tokens, text(9, 6, [1, 2]).stopped) == (whole[:5], "context")
    assert (len(text(9, 6, [1] * 6).tokens), text(9, 6, [1] * 6).stopped) == (1, "context")


# ----------------------------------------------------------------------------------------------------------------------
# The sampled form


@pytest.mark.parametrize(
    "case, t", [([], 1.0), ([], 0.5), ([("temperature", 0.5)], 1.0), ([("repetition_penalty", 1.5)], 1.0)]
)
def test_sampling_has_exactly_the_distribution_of_the_formula(case, t):
    expert, amateur = TableLM.random(3, 2, 3), TableLM.random(3, 1, 4)

    def scores(text):
        left = scored(expert, amateur, text, 0.25, t, table_probs)
        return [left.get(token, -math.inf) for token in range(3)]

    options = {"alpha": 0.25, "amateur_temperature": t, "warp": ours(case)}
    made = exact_distribution(lambda rng: contrastive_sampling(expert, amateur, "ab", rng=rng, **options), LENGTH)
    by_hand = direct(scores, [0, 1], definitions(case))
    assert total_variation(made, by_hand) < EXACT
    assert len(by_hand) < 3**LENGTH, "the cut bites"


def test_sampling_without_random_draws_is_the_greedy_form(pairs):
    for expert, amateur in pairs:
        drawn = run(contrastive_sampling(expert, amateur, [1, 2], rng=None), 9)
        assert drawn.tokens == run(contrastive_decoding(expert, amateur, [1, 2]), 9).tokens


# ----------------------------------------------------------------------------------------------------------------------
# The beam form


def slow_beams(score, prompt, beams, longest, penalty, stop):
    """Beam search on sums of scores, never stopped early: `score(tokens)` is {token: score}. Finished, best first."""
    alive, finished = {(): 0.0}, {}
    for length in range(1, longest + 1):
        longer = {(*text, x): before + s for text, before in alive.items() for x, s in score([*prompt, *text]).items()}
        order = sorted(longer, key=lambda text: -longer[text])
        for text in order[:beams]:
            if text[-1] in stop or length == longest:
                finished[text] = longer[text] / length**penalty
        alive = {text: longer[text] for text in [text for text in order if text[-1] not in stop][:beams]}
    return sorted(finished.items(), key=lambda item: -item[1])[:beams]


def n_best(steps):
    return [(tuple(tokens), score) for tokens, score in list(steps)[-1].hypotheses]


def assert_same(ours, reference):
    assert [tokens for tokens, _ in ours] == [tokens for tokens, _ in reference]
    assert [score for _, score in ours] == pytest.approx([score for _, score in reference], abs=1e-9)


def test_beams_equal_a_slow_search_over_tables():
    ended, unlike_greedy = 0, 0
    for seed in range(30):
        rng = random.Random(seed)
        expert, amateur = TableLM.random(5, 2, seed), TableLM.random(5, 1, seed + 1000)
        alpha, t = rng.choice((0, 0.1, 0.4)), rng.choice((0.5, 1.0))
        penalty, stop = rng.choice((0.0, 0.5, 1.0)), rng.sample(range(5), rng.choice((0, 1, 2)))
        options = {"beams": rng.randint(1, 5), "max_new_tokens": rng.randint(1, 6), "length_penalty": penalty}
        steps = contrastive_beam_search(
            expert, amateur, [0, 1], stop=stop, alpha=alpha, amateur_temperature=t, **options
        )
        slow = slow_beams(
            lambda tokens, pair=(expert, amateur), alpha=alpha, t=t: scored(*pair, tokens, alpha, t, table_probs),
            [0, 1], options["beams"], options["max_new_tokens"], penalty, stop,
        )  # fmt: skip
        assert_same(n_best(steps), slow)
        ended += any(text[-1] in stop for text, _ in slow)
        one = run(contrastive_decoding(expert, amateur, [0, 1], alpha=alpha, amateur_temperature=t), 6, stop=stop)
        unlike_greedy += tuple(one.tokens) != slow[0][0]
    assert ended > 7 and unlike_greedy > 7


def test_beams_over_caches_equal_a_slow_search_without_any(pairs):
    with exactly(torch.float64):
        for expert, amateur in pairs:
            steps = contrastive_beam_search(
                expert, amateur, [1, 2, 3], beams=3, max_new_tokens=5, stop=[4], amateur_temperature=0.7
            )
            slow = slow_beams(
                lambda tokens, pair=(expert, amateur): scored(*pair, tokens, 0.1, 0.7), [1, 2, 3], 3, 5, 1.0, [4]
            )
            assert_same(n_best(steps), slow)


def test_one_beam_is_the_greedy_form_where_nothing_stops_it(pairs):
    for expert, amateur in pairs:
        beam = run(contrastive_beam_search(expert, amateur, [1, 2], beams=1, max_new_tokens=12))
        assert beam.tokens == run(contrastive_decoding(expert, amateur, [1, 2]), 12).tokens


def test_tokens_that_the_amateur_finds_impossible_come_first_and_among_those_texts_the_best_of_the_rest():
    met = 0
    for seed in range(20):
        expert, amateur = sparse(seed), sparse(seed + 500)
        alpha, texts = 0.05, {}
        for tokens in itertools.product(range(3), repeat=3):
            impossible, score = 0, 0.0
            for length, token in enumerate(tokens):
                p, q = (lm.log_probs([0, *tokens[:length]]).exp().tolist() for lm in (expert, amateur))
                if p[token] < alpha * max(p):
                    break
                impossible += q[token] == 0
                score += math.log(p[token] / q[token]) if q[token] else 0.0
            else:
                texts[tokens] = impossible, score
        best = max(texts, key=texts.get)
        found = run(contrastive_beam_search(expert, amateur, [0], beams=27, max_new_tokens=3, alpha=alpha, stop=()))
        assert texts[tuple(found.tokens)] == pytest.approx(texts[best])
        one, greedily = (
            run(steps, 3, stop=())
            for steps in (
                contrastive_beam_search(expert, amateur, [0], beams=1, max_new_tokens=3, alpha=alpha, stop=()),
                contrastive_decoding(expert, amateur, [0], alpha=alpha),
            )
        )
        assert one.tokens == greedily.tokens
        assert all(row for step in greedily.steps for row in step.candidates)
        met += texts[best][0] > 0
    assert met > 10


def test_a_text_that_has_ended_competes_with_those_that_go_on_by_hand():
    # b ends a text. It scores log 2 at once; a scores log 4/3 each time, so that two of them are better than one b.
    expert, amateur = TableLM({"": [0.8, 0.2]}), TableLM({"": [0.6, 0.4]})
    ends = TableLM({"": [0.6, 0.4]}), TableLM({"": [0.8, 0.2]})
    for pair, length, tokens, score in (
        ((expert, amateur), 3, [0, 0, 0], 3 * math.log(4 / 3)),
        (ends, 3, [1], math.log(2)),
    ):
        last = list(contrastive_beam_search(*pair, "a", beams=1, max_new_tokens=length, length_penalty=0, stop=[1]))[-1]
        assert (last.tokens, last.score) == (tokens, pytest.approx(score))
    averages = contrastive_beam_search(expert, amateur, "a", beams=2, max_new_tokens=3, stop=[1], length_penalty=1.0)
    assert list(averages)[-1].score == pytest.approx(math.log(4 / 3))


def test_beams_cost_one_call_of_each_a_length_and_say_what_they_hold(pairs):
    expert, amateur = pairs[0]
    before = amateur.calls
    trace = run(contrastive_beam_search(expert, amateur, [3, 1], beams=3, max_new_tokens=5))
    assert (trace.target_calls, amateur.calls - before, trace.scored_hypotheses) == (5, 5, 1 + 4 * 3)
    assert [len(step.hypotheses) for step in trace.steps] == [3, 3, 3, 3, 0, 3]
    assert trace.steps[-1].score == trace.steps[-1].hypotheses[0][1]
    assert [len(step.tokens) for step in trace.steps] == [0] * 5 + [5]


def test_beams_end_where_the_shorter_context_does():
    tables = TableLM.random(5, 1, 0, context=9), TableLM.random(5, 1, 1, context=6)
    for expert, amateur in (tables, tables[::-1]):
        trace = run(contrastive_beam_search(expert, amateur, [1, 2], beams=2, max_new_tokens=20))
        assert (len(trace.tokens), trace.stopped) == (4, "context")
        full = run(contrastive_beam_search(expert, amateur, [1] * 6, beams=2, max_new_tokens=20))
        assert (full.tokens, full.stopped) == ([], "context")
    stopped = run(contrastive_beam_search(*tables, [1, 2], beams=2, max_new_tokens=3), 20)
    assert (len(stopped.tokens), stopped.stopped) == (3, "end")


# ----------------------------------------------------------------------------------------------------------------------
# Bad input

METHODS = {
    contrastive_decoding: {},
    contrastive_sampling: {"rng": None},
    contrastive_beam_search: {"beams": 2, "max_new_tokens": 3},
}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"alpha": -0.1}, r"alpha must be a share .* from 0 \(no cut\) to 1 \(greedy\), got -0.1"),
        ({"alpha": 1.1}, "alpha must be"),
        ({"alpha": math.nan}, "alpha must be"),
        ({"amateur_temperature": 0}, "amateur_temperature must be a finite number above 0, got 0"),
        ({"amateur_temperature": math.inf}, "amateur_temperature must be"),
        ({"amateur": TableLM.random(4, 1, 0)}, "the expert and the amateur must have one vocabulary.*5 tokens and 4"),
        ({"amateur": TableLM.random("abdce", 1, 0)}, "different tokens: 2 is 'c' here and 'd' there.*chapter 14"),
        ({"amateur": TableLM.random(5, 1, 0, context=2)}, "prompt has 3 tokens, but the amateur's context is 2"),
        ({"amateur": "gpt2"}, "the amateur must be an LM, got str"),
    ],
)
def test_nonsense_is_named_at_the_call(options, words):
    good = {"expert": TableLM.random(5, 1, 0), "amateur": TableLM.random(5, 1, 1), "prompt": "abc"}
    for method, more in METHODS.items():
        with pytest.raises(ValueError, match=words):
            method(**good | more | options)


@pytest.mark.parametrize("options", [{"beams": 0}, {"max_new_tokens": 0}, {"stop": [5]}, {"length_penalty": math.nan}])
def test_nonsense_about_beams_is_named_at_the_call(options):
    with pytest.raises(ValueError, match=next(iter(options)).split("_")[0]):
        contrastive_beam_search(
            TableLM.random(5, 1, 0), TableLM.random(5, 1, 1), "a", **{"beams": 2, "max_new_tokens": 3} | options
        )
