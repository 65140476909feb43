"""DoLa is what the paper's formula says: an early layer, chosen for each token, for an amateur."""

import functools
import math
import random

import pytest
import torch
from conftest import VOCAB, exactly, random_model
from full_passes import recomputed
from lossless import EXACT, small, unlike
from scipy.spatial.distance import jensenshannon
from test_lm import truncated
from test_proof_warps import LENGTH, definitions, direct, ours
from transformers import AutoModelForCausalLM

from tutorlib import LM, NaNLogits, TableLM, dola, greedy, lower_layers, run, upper_layers
from tutorlib.decoders.dola import jensen_shannon
from tutorlib.measures.proof import exact_distribution, total_variation


@pytest.fixture(scope="module")
def small_models():
    return [unlike("llama", 0), unlike("gemma2", 1)]


def by_layer(lm):
    """`probs(tokens)`: what each layer says may follow, by models that end behind it, without a cache."""
    models = [truncated(lm.model, layer) for layer in range(lm.layers)] + [lm.model]

    @functools.cache
    def probs(tokens):
        return [recomputed(model, tokens)[-1].double().softmax(-1).tolist() for model in models]

    return lambda tokens: probs(tuple(tokens))


def kl(p, q):
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)


def divergence(p, q):
    mean = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
    return (kl(p, mean) + kl(q, mean)) / 2


def scored(rows, layers, alpha):
    """The paper's scores from each layer's probabilities: {token: score} of the plausible tokens, and the layer."""
    last = rows[-1]
    layer = max(layers, key=lambda layer: divergence(last, rows[layer]))
    plausible = [x for x in range(len(last)) if last[x] >= alpha * max(last)]
    return {x: math.log(last[x] / rows[layer][x]) for x in plausible}, layer


def slowly(probs, prompt, count, layers, alpha):
    text, chosen = list(prompt), []
    for _ in range(count):
        scores, layer = scored(probs(text), layers, alpha)
        text.append(max(scores, key=scores.get))
        chosen.append(layer)
    return text[len(prompt) :], chosen


def chosen_layers(trace):
    return [int(step.note.removeprefix("against layer ")) for step in trace.steps]


def test_equals_the_formula_token_for_token_on_models_of_several_families(small_models):
    rng, changed, seen = random.Random(2), 0, set()
    with exactly(torch.float64):
        for lm in small_models:
            probs = by_layer(lm)
            for layers in ((0,), (1,), (2,), (0, 1, 2), (1, 2), (2, 0)):
                prompt = [rng.randrange(VOCAB) for _ in range(rng.randint(1, 9))]
                alpha = rng.choice((0, 0.05, 0.1, 0.3))
                trace = run(dola(lm, prompt, layers=layers, alpha=alpha), 8)
                tokens, chosen = slowly(probs, prompt, 8, layers, alpha)
                assert (trace.tokens, chosen_layers(trace)) == (tokens, chosen)
                changed += tokens != run(greedy(lm, prompt), 8).tokens
                seen.add((len(layers), len(set(chosen))))
    assert changed > 8, "contrasts that change nothing show nothing"
    assert {(1, 1), (2, 2), (3, 2)} <= seen, "a choice that is always the same shows nothing"


def test_the_divergence_is_that_of_the_textbook():
    rows = torch.rand(2, 6, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64) ** 8
    p, q = rows / rows.sum(-1, keepdim=True)
    ours = jensen_shannon(p.log(), q.log())
    assert ours.tolist() == pytest.approx([jensenshannon(a, b) ** 2 for a, b in zip(p, q, strict=True)])
    assert jensen_shannon(p.log(), p.log()).abs().max() < 1e-15
    apart = torch.tensor([[0.5, 0.5, 0.0, 0.0]]).double().log(), torch.tensor([[0.0, 0.0, 0.3, 0.7]]).double().log()
    assert jensen_shannon(*apart).tolist() == pytest.approx([math.log(2)])


def test_sampling_has_exactly_the_distribution_of_the_formula():
    lm = small("llama")
    probs = by_layer(lm)

    def scores(text):
        left, _ = scored(probs(text), [0, 1], 0.3)
        return [left.get(token, -math.inf) for token in range(3)]

    with exactly(torch.float64):
        for case in ([], [("repetition_penalty", 1.5)]):
            options = {"layers": [0, 1], "alpha": 0.3, "warp": ours(case)}
            made = exact_distribution(lambda rng, options=options: dola(lm, [0, 1], rng=rng, **options), LENGTH)
            by_hand = direct(scores, [0, 1], definitions(case))
            assert total_variation(made, by_hand) < EXACT
            assert len({round(prob, 9) for prob in by_hand.values()}) > 5


def test_a_whole_cut_is_greedy(small_models):
    for lm in small_models:
        wanted = run(greedy(lm, [3, 1, 4]), 9).tokens
        assert run(dola(lm, [3, 1, 4], layers=[0, 1, 2], alpha=1), 9).tokens == wanted


def test_offers_the_softmax_of_the_scores_as_candidates(small_models):
    lm = small_models[0]
    scores, _ = scored(by_layer(lm)([3, 1, 4]), [1], 0.1)
    total = sum(math.exp(score) for score in scores.values())
    step = next(dola(lm, [3, 1, 4], layers=[1]))
    for token, prob in step.candidates[0]:
        assert prob == pytest.approx(math.exp(scores[token]) / total, rel=1e-4)
    assert step.candidates[0][0][0] == step.tokens[0]


def of_layers(count, tied):
    config = random_model("llama").config
    config.num_hidden_layers, config.tie_word_embeddings = count, tied
    return LM(AutoModelForCausalLM.from_config(config))


def test_the_buckets_are_the_papers_even_layers():
    for count, lower, upper in ((7, [0, 2], [4, 6]), (8, [0, 2], [4, 6]), (6, [0, 2], [4])):
        lm = of_layers(count, tied=False)
        assert (lower_layers(lm), upper_layers(lm)) == (lower, upper)
        tied = of_layers(count, tied=True)
        assert (lower_layers(tied), upper_layers(tied)) == (lower[1:], upper)
        assert run(dola(lm, [1], layers=upper_layers(lm)), 2).tokens
    with pytest.raises(ValueError, match="a model of 3 layers has no even ones from 2 to 0"):
        lower_layers(of_layers(3, tied=True))
    for bucket in (lower_layers, upper_layers):
        with pytest.raises(ValueError, match="a model of 0 layers"):
            bucket(TableLM.random(3, 1, 0))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"layers": []}, "layers is empty"),
        ({"layers": [0, 3]}, "layers holds 3, the last layer"),
        ({"layers": [4]}, r"layers holds 4, but this model's early layers are 0 \(embeddings\) to 2"),
        ({"layers": [-1]}, "layers holds -1, but"),
        ({"layers": [1.0]}, r"layers holds 1\.0, but"),
        ({"layers": "low"}, "layers holds 'l', but"),
        ({"layers": 1}, "layers must be a sequence of layer numbers"),
        ({"alpha": -0.1}, "alpha must be a share"),
        ({"alpha": math.nan}, "alpha must be a share"),
        ({"rng": 7}, "rng must have"),
    ],
)
def test_nonsense_is_named_at_the_call(llama, options, words):
    with pytest.raises(ValueError, match=words):
        dola(llama, [1, 2], **{"layers": [1]} | options)


def test_a_table_has_no_layers_to_contrast():
    with pytest.raises(ValueError, match="dola contrasts layers, but a TableLM has none"):
        dola(TableLM.random(3, 1, 0), "a", layers=[0])


def test_logits_that_are_no_numbers_are_an_error():
    lm = LM(random_model("llama"))
    steps = dola(lm, [1, 2], layers=[1])
    next(steps)
    with torch.no_grad():
        lm.model.get_output_embeddings().weight[5] = math.nan
    with pytest.raises(NaNLogits, match="NaN"):
        next(steps)
