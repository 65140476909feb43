"""Contrasting a model with and without a context is what the papers' formula says, and what transformers does."""

import math
import random

import pytest
import torch
from conftest import VOCAB, exactly
from full_passes import recomputed
from lossless import EXACT, small, unlike
from test_proof_warps import LENGTH, definitions, direct, ours, softmax

from tutorlib.decoders import greedy, sample
from tutorlib.decoders.context_contrast import context_contrast, context_scores
from tutorlib.measures.proof import exact_distribution, total_variation
from tutorlib.model.lm import LM
from tutorlib.model.table import TableLM
from tutorlib.running.decoding import run
from tutorlib.sampling.warp import repetition_penalty, temperature, top_k, top_p


@pytest.fixture(scope="module")
def small_models():
    return [unlike("llama", 0), unlike("gemma2", 1), unlike("gpt2", 2)]


def scored(lm, text, other, weight):
    """The formula, from two passes without a cache: a list of scores."""
    has, lacks = (recomputed(lm.model, tokens)[-1].tolist() for tokens in (text, other))
    return [
        (1 + weight) * math.log(p) - weight * math.log(q) for p, q in zip(softmax(has), softmax(lacks), strict=True)
    ]


def slowly(lm, prompt, without, weight, count):
    new = []
    for _ in range(count):
        scores = scored(lm, prompt + new, without + new, weight)
        new.append(scores.index(max(scores)))
    return new


def some_prompts(seed, count):
    """Pairs of prompts of uneven lengths, either of them the longer one, with a common end or none."""
    rng = random.Random(seed)
    for number in range(count):
        prompt, without = ([rng.randrange(VOCAB) for _ in range(rng.randint(1, 9))] for _ in range(2))
        yield prompt, prompt[-2:] if number % 2 else without


def test_equals_the_formula_token_for_token_on_models_of_several_families(small_models):
    changed = 0
    with exactly(torch.float64):
        for lm in small_models:
            for (prompt, without), weight in zip(some_prompts(0, 4), (0.5, 1, 2.5, 0.3), strict=True):
                made = run(context_contrast(lm, prompt, without=without, weight=weight), 7).tokens
                assert made == slowly(lm, prompt, without, weight, 7)
                changed += made != run(greedy(lm, prompt), 7).tokens
    assert changed > 8, "contrasts that change nothing show nothing"


def test_a_guidance_scale_in_transformers_is_one_more_than_the_weight(small_models):
    """Its processor for classifier-free guidance comes before the penalties there too, and makes log-probabilities."""
    changed = 0
    with exactly(torch.float64), torch.no_grad():
        for lm in small_models:
            for (prompt, without), weight in zip(some_prompts(1, 3), (0.5, 1, 2.5), strict=True):
                for theta in (1.0, 1.4):
                    theirs = lm.model.generate(
                        torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                        negative_prompt_ids=torch.tensor([without]), guidance_scale=1 + weight, do_sample=False,
                        repetition_penalty=theta, max_new_tokens=9, eos_token_id=None, pad_token_id=0,
                    )  # fmt: skip
                    warp = [repetition_penalty(theta)]
                    made = run(context_contrast(lm, prompt, without=without, weight=weight, warp=warp), 9).tokens
                    assert made == theirs[0, len(prompt) :].tolist()
                    changed += made != run(sample(lm, prompt, warp=warp), 9).tokens
    assert changed > 12


@pytest.mark.parametrize("case", [[], [("temperature", 0.5), ("top_p", 0.83)], [("repetition_penalty", 1.5)]])
def test_sampling_has_exactly_the_distribution_of_the_formula(case):
    lm, prompt, without = small("llama"), [0, 1, 0], [2]

    def scores(text):
        return scored(lm, text, without + text[len(prompt) :], 0.7)

    with exactly(torch.float64):
        options = {"without": without, "weight": 0.7, "warp": ours(case)}
        made = exact_distribution(lambda rng: context_contrast(lm, prompt, rng=rng, **options), LENGTH)
        assert total_variation(made, direct(scores, prompt, definitions(case))) < EXACT
        assert total_variation(made, exact_distribution(lambda rng: sample(lm, prompt, rng=rng), LENGTH)) > 0.05


def test_without_weight_it_is_greedy_and_has_the_distribution_of_sample(small_models):
    for lm in small_models:
        made = run(context_contrast(lm, [3, 1, 4], without=[1, 5], weight=0), 9)
        assert made.tokens == run(greedy(lm, [3, 1, 4]), 9).tokens
    lm = small("mistral, window 3")
    with exactly(torch.float64):
        for warp in ([], [temperature(1.7)], [top_k(2)], [top_p(0.71)]):
            ours, theirs = (
                exact_distribution(lambda rng, method=method, how=how: method(lm, [0, 1], rng=rng, **how), LENGTH)
                for method, how in (
                    (context_contrast, {"warp": warp, "without": [2, 2, 1], "weight": 0}),
                    (sample, {"warp": warp}),
                )
            )
            assert total_variation(ours, theirs) < EXACT


def next_probs(has, lacks, weight):
    """What may follow the token a with the context and b without it, by hand."""
    lm = TableLM({"a": has, "b": lacks})
    made = exact_distribution(lambda rng: context_contrast(lm, "a", without="b", weight=weight, rng=rng), 1)
    return [made.get((token,), 0.0) for token in range(len(has))]


def test_what_only_one_of_the_two_finds_possible_by_hand():
    assert next_probs([0.5, 0.5], [0.2, 0.8], 1) == pytest.approx([0.8, 0.2])  # 0.25 / 0.2 and 0.25 / 0.8
    # What is impossible with the context stays so. What is possible with it alone comes first: in proportion to p ** 2.
    assert next_probs([0.4, 0.6, 0, 0], [0.4, 0.2, 0.4, 0], 1) == pytest.approx([2 / 11, 9 / 11, 0, 0])
    assert next_probs([0.2, 0.3, 0.5, 0], [0, 0, 0.4, 0.6], 1) == pytest.approx([4 / 13, 9 / 13, 0, 0])
    for lacks in ([0, 0, 0.4, 0.6], [0.1, 0.2, 0.3, 0.4]):
        assert next_probs([0.2, 0.3, 0.5, 0], lacks, 0) == pytest.approx([0.2, 0.3, 0.5, 0])


@pytest.mark.parametrize("weight", [0, 1e-9, 1, 1e9, 1e308])
def test_scores_are_never_nan_and_leave_something_to_draw(weight):
    logits = torch.tensor([[0.0, -1.0, 2.0, -math.inf], [3.0, -math.inf, -math.inf, 0.0]])
    for other in (logits, logits.flip(0), logits.flip(1)):
        scores = context_scores(logits, other, weight)
        assert not scores.isnan().any() and (scores < math.inf).all()
        assert ((scores > -math.inf) <= (logits > -math.inf)).all()
        assert scores.softmax(-1).sum(-1).tolist() == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize(("prompt", "without", "room"), [(3, 5, 7), (5, 3, 7), (4, 4, 8), (1, 12, 0), (12, 1, 0)])
def test_ends_where_the_longer_text_fills_the_context(models, prompt, without, room):
    for lm in (LM(models("llama"), context=12), TableLM.random(3, 1, 0, context=12)):
        how = {"prompt": [1] * prompt, "without": [2] * without, "weight": 1}
        trace = run(context_contrast(lm, **how), 100)
        assert (len(trace.tokens), trace.stopped) == (room, "context")
        assert len(list(context_contrast(lm, **how))) == room, "by itself"


def test_offers_the_softmax_of_the_warped_scores_as_candidates(small_models):
    lm, warp = small_models[0], [temperature(0.5)]
    with exactly(torch.float64):
        step = next(context_contrast(lm, [3, 1, 4], without=[4], weight=1, warp=warp))
        probs = softmax([2 * score for score in scored(lm, [3, 1, 4], [4], 1)])
    assert step.candidates[0][0][0] == step.tokens[0]
    assert [prob for _, prob in step.candidates[0]] == pytest.approx(sorted(probs)[: -len(step.candidates[0]) - 1 : -1])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        *[({"weight": weight}, "weight must be a finite number of 0 .*, got") for weight in (-0.1, math.nan, math.inf)],
        ({"weight": True}, "weight must be .*, got True: a guidance scale, .*, is 1 [+] weight"),
        ({"weight": "1"}, "weight must be .*, got '1'"),
        ({"without": []}, "without, the prompt that lacks the context: the prompt is empty"),
        ({"without": ""}, "without, the prompt .* has no tokens: give at least one"),
        ({"without": [3]}, r"without, the prompt .* holds \[3\], outside the vocabulary of 3 tokens"),
        ({"without": [0] * 9}, "without, the prompt .* has 9 tokens, more than the context of 8"),
        ({"without": None}, "without, the prompt .* must be a sequence of token ids"),
    ],
)
def test_nonsense_is_named_at_the_call(options, words):
    with pytest.raises(ValueError, match=words):
        context_contrast(TableLM.random(3, 1, 0, context=8), "ab", **{"without": "b", "weight": 1} | options)
