"""Speculative decoding has the target's distribution, exactly; greedily the target's text; and costs what it says."""

import math
from types import SimpleNamespace

import pytest
import torch
from conftest import VOCAB, exactly, random_model

from tutorlib import theory
from tutorlib.decoders import greedy
from tutorlib.decoders.speculative import adaptive, speculative
from tutorlib.lm import LM, NaNLogits
from tutorlib.proof import exact_distribution, target_distribution, total_variation
from tutorlib.randomness import Seeded
from tutorlib.run import Step, run
from tutorlib.table import TableLM
from tutorlib.warp import min_p, repetition_penalty, temperature, top_k, top_p

EXACT = 1e-9

WARPS = {
    "plain": (),
    "temperature 0.5": (temperature(0.5),),
    "temperature 2": (temperature(2.0),),
    "top_k": (top_k(2),),
    "top_p": (top_p(0.7),),
    "min_p": (min_p(0.4),),
    "penalty": (repetition_penalty(1.8),),
    "temperature, top_p": (temperature(1.5), top_p(0.7)),
    "penalty, min_p": (repetition_penalty(1.8), min_p(0.4)),
    "top_k, temperature": (top_k(2), temperature(0.5)),
}


def tables(vocab, **options):
    """A target that looks two tokens back, and a draft that looks one back."""
    return TableLM.random(vocab, 2, 5, **options), TableLM.random(vocab, 1, 3, **options)


_real = {}


def real_pair(vocab):
    """A Llama and, as its draft, a GPT-2: small, random, in float64."""
    import transformers as hf

    if vocab not in _real:
        ends = {"bos_token_id": None, "eos_token_id": None}
        configs = [
            hf.LlamaConfig(
                vocab_size=vocab, hidden_size=8, intermediate_size=8, num_hidden_layers=2, num_attention_heads=2,
                max_position_embeddings=16, initializer_range=0.8, **ends,
            ),
            hf.GPT2Config(
                vocab_size=vocab, n_embd=8, n_layer=1, n_head=2, n_positions=16, initializer_range=0.4, **ends
            ),
        ]  # fmt: skip
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            _real[vocab] = [LM(hf.AutoModelForCausalLM.from_config(config).to(torch.float64)) for config in configs]
    return _real[vocab]


def distance(pair, prompt, length, warp=(), **options):
    """Total variation of speculation from plain sampling, the latter multiplied out from whole texts."""
    target, draft = pair
    with exactly(target.dtype):
        made = exact_distribution(
            lambda rng: speculative(target, draft, prompt, rng=rng, warp=warp, **options), length, stop=()
        )
        return total_variation(made, target_distribution(target, prompt, length, warp=warp, stop=()))


# ----------------------------------------------------------------------------------------------------------------------
# Exact


@pytest.mark.parametrize("warp", WARPS.values(), ids=WARPS)
def test_keeps_the_targets_distribution(warp):
    assert distance(tables(3), [0, 2], 3, warp, gamma=1) < EXACT


@pytest.mark.parametrize("warp", ["plain", "penalty"])
def test_keeps_it_through_full_drafts_bonus_tokens_and_the_rollback_after_them(warp):
    assert distance(tables(2), [1], 4, WARPS[warp], gamma=2) < EXACT


def test_keeps_it_over_real_caches():
    assert distance(real_pair(2), [1], 3, gamma=1) < EXACT


@pytest.mark.slow
@pytest.mark.parametrize("warp", WARPS.values(), ids=WARPS)
def test_keeps_it_over_real_caches_under_every_warp(warp):
    assert distance(real_pair(3), [0, 2, 2], 3, warp, gamma=1) < EXACT


@pytest.mark.slow
@pytest.mark.parametrize("warp", ["plain", "penalty"])
@pytest.mark.parametrize("prompt", [[1], [0, 1, 1, 0]], ids=len)
def test_keeps_it_over_real_caches_through_full_drafts_and_rollbacks(warp, prompt):
    assert distance(real_pair(2), prompt, 4, WARPS[warp], gamma=2) < EXACT


@pytest.mark.slow
@pytest.mark.parametrize("warp", ["top_k", "top_p", "min_p", "penalty, min_p", "top_k, temperature"])
def test_keeps_it_under_filters_through_full_drafts_and_rollbacks(warp):
    assert distance(tables(3), [0, 2], 4, WARPS[warp], gamma=2) < EXACT


@pytest.mark.slow
def test_keeps_it_with_drafts_of_three():
    target = TableLM({"": [0.6, 0.4], "aa": [0.2, 0.8], "b": [0.7, 0.3]})
    draft = TableLM({"": [0.5, 0.5], "b": [1.0, 0.0]})  # sure where it can be: there are fewer ways to draw then
    assert distance((target, draft), [1], 5, gamma=3) < EXACT


def test_keeps_it_with_a_draft_that_is_always_wrong_and_one_that_is_the_target():
    target = TableLM({"": [0.3, 0.3, 0.4], "a": [0.5, 0.5, 0.0], "b": [0.0, 0.5, 0.5]})
    wrong = TableLM({"": [0.3, 0.3, 0.4], "a": [0.0, 0.0, 1.0], "b": [1.0, 0.0, 0.0]})
    assert distance((target, wrong), "a", 4, gamma=2) < EXACT
    assert distance((target, target), "a", 3, gamma=2) < EXACT


def test_text_that_ends_inside_a_draft_ends_there_with_the_right_probability():
    target, draft = tables(3, stop_tokens=[2])
    made = exact_distribution(lambda rng: speculative(target, draft, "a", gamma=2, rng=rng), 3)
    assert total_variation(made, target_distribution(target, "a", 3)) < EXACT
    assert {len(tokens) for tokens in made} == {1, 2, 3}


@pytest.mark.parametrize("contexts", [(4, 64), (64, 2), (64, 3), (5, 4)])
def test_keeps_it_up_to_the_end_of_either_context(contexts):
    target, draft = (TableLM.random(2, order, seed, context=c) for order, seed, c in zip((2, 1), (5, 3), contexts))
    expected = target_distribution(target, "ab", min(4, contexts[0] - 2))
    made = exact_distribution(lambda rng: speculative(target, draft, "ab", gamma=2, rng=rng), 4)
    assert total_variation(made, expected) < EXACT


def shifting(rounds):
    """A γ that goes up and down with what was accepted."""
    return 1 + (len(rounds) + sum(accepted for _, accepted in rounds)) % 2


def adapting():
    """The same, as it is meant to be used: here a single rejection turns γ from 2 to 1."""
    return adaptive([1.0, 1.2, 1.5], 0.1, prior=0.65, weight=0.5)


@pytest.mark.parametrize("gamma", [shifting, adapting()], ids=["shifting", "adaptive"])
def test_keeps_it_while_gamma_follows_what_was_accepted(gamma):
    assert distance(tables(2), [1], 4, gamma=gamma) < EXACT
    target, draft = tables(2)
    seen = {len(step.drafted) for seed in range(20) for step in run(speculative(
        target, draft, "b", gamma=gamma, rng=Seeded(seed)), 8).steps[:-1]}  # fmt: skip
    assert seen == {1, 2}


@pytest.mark.parametrize("warp", ["plain", "top_p"])
def test_keeps_it_while_unsure_drafts_end_early(warp):
    target, draft = tables(2)
    assert distance((target, draft), [1], 4, WARPS[warp], gamma=2, confidence=0.7) < EXACT
    trace = run(speculative(target, draft, "b", gamma=2, confidence=0.7, rng=Seeded(1)), 20)
    assert {len(step.drafted) for step in trace.steps[:-1]} == {1, 2}


# ----------------------------------------------------------------------------------------------------------------------
# Greedy


def unlike(family, seed):
    """A random model in float64 whose text does not repeat itself: with an output head of its own."""
    model = random_model(family, torch.float64, seed)
    head = model.get_output_embeddings()
    weights = 0.5 * torch.randn(head.weight.shape, generator=torch.Generator().manual_seed(seed))
    head.weight = torch.nn.Parameter(weights.double())
    return LM(model)


def test_without_luck_it_is_greedy_on_every_family_up_to_the_contexts_end(family):
    with exactly(torch.float64):
        target, draft = unlike(family, 0), unlike("gpt2", 1)
        prompt = [1, 2, 0, 7, 7, 4, 2, 9, 11] * 3
        trace = run(speculative(target, draft, prompt, gamma=4), 48)
        assert (trace.tokens, trace.stopped) == (run(greedy(target, prompt), 48).tokens, "context")


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"gamma": 3}, {"gamma": 5, "confidence": 0.3}], ids=str)
def test_without_luck_it_is_greedy_on_every_family_with_any_draft(family, options):
    with exactly(torch.float64):
        target, draft = unlike(family, 0), unlike("gpt2", 1)
        for prompt in ([3], [1, 2, 0, 7, 7, 4, 2, 9, 11]):
            expected = run(greedy(target, prompt), 48).tokens
            for other in (draft, target):
                trace = run(speculative(target, other, prompt, **options), 48)
                assert trace.tokens == expected
    assert trace.acceptance == 1, "the target drafting for itself is always right"


@pytest.mark.slow
def test_without_luck_it_is_greedy_on_the_bundled_models():
    from tutorlib import models, storyworld

    family = models.load("storyworld", dtype="float64")
    for seed in (1, 2):
        prompt = family.target.prompt_tokens(storyworld.story(seed))[:30]
        expected = run(greedy(family.target, prompt), 120)
        for options in ({"gamma": 4}, {"gamma": 6, "confidence": 0.3}):
            trace = run(speculative(family.target, family.draft, prompt, **options), 120)
            assert trace.tokens == expected.tokens
            assert trace.tokens_per_call > 2


# ----------------------------------------------------------------------------------------------------------------------
# What it costs, and what it says


def test_a_round_is_one_call_of_the_target_and_gamma_of_the_draft():
    target, draft = unlike("llama", 0), unlike("gpt2", 1)
    trace = run(speculative(target, draft, [3, 1, 4], gamma=3, rng=Seeded(0)), 20)
    assert trace.target_calls == len(trace.steps) > 5
    assert draft.calls == 3 * len(trace.steps)


def test_with_the_target_as_draft_every_round_gives_gamma_and_one_tokens():
    target = unlike("llama", 0)
    again = LM(target.model)
    trace = run(speculative(target, again, [3, 1, 4], gamma=3, rng=Seeded(0)), 20)
    assert [len(step.tokens) for step in trace.steps] == [4] * 5
    assert trace.tokens_per_call == theory.expected_tokens(1.0, 3)
    assert again.calls == 3 * 5, "the two tokens that it has not read after such a round are fed in one call"


def test_tokens_a_call_are_what_the_formula_says_where_acceptances_are_independent():
    target, draft = TableLM({"": [0.5, 0.3, 0.2]}, context=3000), TableLM({"": [0.2, 0.2, 0.6]}, context=3000)
    trace = run(speculative(target, draft, "a", gamma=3, rng=Seeded(0)), 2000)
    alpha = theory.acceptance_rate([0.5, 0.3, 0.2], [0.2, 0.2, 0.6])
    assert trace.tokens_per_call == pytest.approx(theory.expected_tokens(alpha, 3), rel=0.05)
    assert trace.acceptance == pytest.approx(alpha, abs=0.03)


def test_a_step_shows_the_draft_what_was_accepted_of_it_and_what_the_target_made_of_each_place():
    target = TableLM({"": [0.0, 1.0, 0.0], "b": [0.0, 0.0, 1.0], "c": [0.75, 0.25, 0.0]})
    draft = TableLM({"": [0.0, 1.0, 0.0], "b": [0.0, 0.0, 1.0], "c": [0.0, 0.0, 1.0]})
    step = next(speculative(target, draft, "a", gamma=3, rng=Seeded(0)))
    assert (step.drafted, step.accepted, step.tokens[:2]) == ([1, 2, 2], 2, [1, 2])
    assert step.tokens[2] in (0, 1)
    assert [row[0] for row in step.candidates] == [(1, 1.0), (2, 1.0), (0, pytest.approx(0.75))]


def test_the_draft_is_warped_as_the_target_is_with_its_own_histories():
    seen = []

    def spy(logits, histories):
        seen.append([list(history) for history in histories])
        return logits

    target, draft = tables(3)
    step = next(speculative(target, draft, "ab", gamma=2, rng=Seeded(3), warp=[spy]))
    x, y = step.drafted
    assert seen == [[[0, 1]], [[0, 1, x]], [[0, 1], [0, 1, x], [0, 1, x, y]]]


def test_the_same_seed_gives_the_same_text_and_another_seed_another():
    target, draft = tables(3)
    texts = [run(speculative(target, draft, "a", rng=Seeded(seed)), 20).tokens for seed in (5, 5, 6)]
    assert texts[0] == texts[1] != texts[2]


# ----------------------------------------------------------------------------------------------------------------------
# The ends of things


def test_drafts_are_cut_to_the_room_and_the_text_fills_the_context():
    target, draft = tables(3, context=9)
    trace = run(speculative(target, target, "ab", gamma=4, rng=Seeded(0)), 50)
    assert (len(trace.tokens), trace.stopped) == (7, "context")
    assert [len(step.drafted) for step in trace.steps] == [4, 1]
    assert [step.cut for step in trace.steps] == [0, 0], "nothing was drafted that there is no room for"
    steps = speculative(target, draft, "ab", gamma=4, rng=Seeded(0))
    assert sum(len(step.tokens) for step in steps) == 7, "it ends by itself, too"


def test_it_goes_on_without_drafts_where_only_the_drafts_context_is_full():
    target = TableLM.random(3, 2, 5)
    draft = TableLM.random(3, 1, 3, context=6)
    trace = run(speculative(target, draft, "abc", gamma=2, rng=Seeded(0)), 12)
    assert (len(trace.tokens), trace.stopped) == (12, "budget")
    before = 3
    for step in trace.steps:
        assert len(step.drafted) == max(0, min(2, 6 - before + 1))
        before += len(step.tokens)


def test_a_prompt_that_fills_the_context_leaves_nothing_to_do():
    target, draft = tables(3, context=3)
    trace = run(speculative(target, draft, "abc"), 5)
    assert (trace.tokens, trace.stopped, trace.target_calls) == ([], "context", 0)
    assert list(speculative(target, draft, "abc")) == []


def test_a_stop_token_inside_a_draft_is_the_last_token():
    lm = TableLM({"": {"b": 1.0}, "b": {"c": 1.0}, "c": {"a": 1.0}}, ["a", "b", "c"], stop_tokens=["c"])
    trace = run(speculative(lm, lm, "a", gamma=5), 20)
    assert (trace.tokens, trace.stopped, trace.steps[0].cut) == ([1, 2], "stop", 4)


# ----------------------------------------------------------------------------------------------------------------------
# A γ that adapts

SECONDS = [3.0, 3.3, 3.6, 3.9, 4.2, 4.5, 4.8]


def test_adaptive_takes_the_gamma_that_theory_calls_best_for_what_was_seen():
    gamma = adaptive(SECONDS, 0.5, prior=0.6, weight=2.0, memory=1.0)
    assert gamma([]) == theory.best_measured_gamma(0.6, SECONDS, 0.5, most=6)
    # 1.2 of 2 tokens to begin with. (4, 1): one accepted, the second rejected, two not judged. (4, 4): all accepted.
    assert gamma([(4, 1), (4, 4)]) == theory.best_measured_gamma(6.2 / 8, SECONDS, 0.5, most=6)
    assert gamma([(4, 4)] * 50) == 6
    assert gamma([(4, 0)] * 50) == 1, "who does not draft learns nothing"


def test_adaptive_forgets():
    keen, stubborn = (adaptive(SECONDS, 0.5, memory=memory) for memory in (0.5, 1.0))
    rounds = [(4, 0)] * 40 + [(4, 4)] * 8
    assert keen(rounds) > stubborn(rounds)


def test_adaptive_goes_no_further_than_it_is_told():
    assert adaptive(SECONDS, 0.01, most=3)([(3, 3)] * 50) == 3
    assert adaptive(SECONDS[:2], 0.01)([]) == 1


def test_adaptive_remembers_nothing_from_one_run_to_the_next():
    target, draft = tables(3)
    gamma = adaptive(SECONDS, 0.5)
    first, second = (run(speculative(target, draft, "a", gamma=gamma, rng=Seeded(4)), 30) for _ in range(2))
    assert first.to_dict() == second.to_dict()
    assert len({len(step.drafted) for step in first.steps}) > 1


def test_a_gamma_function_sees_the_rounds_so_far_and_may_draft_nothing():
    seen = []

    def every_other(rounds):
        seen.append(list(rounds))
        return 2 * (len(rounds) % 2)

    target, draft = tables(3)
    steps = [step for step, _ in zip(speculative(target, draft, "a", gamma=every_other, rng=Seeded(0)), range(4))]
    assert [len(step.drafted) for step in steps] == [0, 2, 0, 2]
    assert seen[3] == [(len(step.drafted), step.accepted) for step in steps[:3]]


# ----------------------------------------------------------------------------------------------------------------------
# Bad input


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gamma": lambda: 2}, "gamma must be a whole number, or a function of the rounds so far; got <function"),
        ({"gamma": 0}, "gamma is how many tokens are drafted in a round, a whole number of 1 or more, got 0"),
        ({"gamma": -1}, "got -1"),
        ({"gamma": True}, "got True"),
        ({"gamma": 2.0}, "got 2.0"),
        ({"gamma": "4"}, "got '4'"),
        ({"gamma": None}, "got None"),
        ({"confidence": -0.1}, "confidence must be a probability .* got -0.1"),
        ({"confidence": math.nan}, "confidence"),
        (
            {"draft": TableLM.random(4, 1, 0)},
            "the draft .* 3 tokens and 4.* token_intersection and string_match",
        ),
        ({"draft": TableLM.random("acb", 1, 0)}, "different tokens: 1 is 'b'.* token_intersection and string_match"),
        ({"draft": TableLM.random(3, 1, 0, context=2)}, "prompt has 3 tokens, but the draft's context is 2"),
        ({"draft": "gpt2"}, "the draft must be an LM, got str"),
        ({"draft": SimpleNamespace()}, "the draft must be an LM, got SimpleNamespace"),
    ],
)
def test_nonsense_is_named_at_the_call(options, words):
    target, draft = tables(3)
    with pytest.raises(ValueError, match=words):
        speculative(**{"target": target, "draft": draft, "prompt": "abc", "rng": Seeded(0)} | options)


def test_a_draft_on_another_device_is_refused_at_the_call(models):
    elsewhere = random_model("llama").to("meta")
    with pytest.raises(ValueError, match="the draft is on meta, the target on cpu: load both on one device"):
        speculative(LM(models("llama")), LM(elsewhere), [1, 2])


@pytest.mark.parametrize("answer", [-1, 1.5, None, True])
def test_a_gamma_function_that_returns_nonsense_is_named(answer):
    target, draft = tables(3)
    with pytest.raises(ValueError, match=f"the function passed as gamma .* got {answer}"):
        next(speculative(target, draft, "a", gamma=lambda rounds: answer))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: adaptive([3.0], 0.5), "most is the largest gamma, .* got 0"),
        (lambda: adaptive(SECONDS, 0.5, most=0), "most .* got 0"),
        (lambda: adaptive(SECONDS, 0.5, most=7), "gamma = 7 needs the time of a call with 8 tokens"),
        (lambda: adaptive(SECONDS, -0.5), "draft_seconds"),
        (lambda: adaptive([3.0, math.nan], 0.5), "call_seconds must be finite and above 0"),
        (lambda: adaptive(SECONDS, 0.5, prior=1.2), "prior must be a number from 0 to 1, got 1.2"),
        (lambda: adaptive(SECONDS, 0.5, memory=-1), "memory"),
        (lambda: adaptive(SECONDS, 0.5, weight=0), "weight must be a finite number above 0, got 0"),
    ],
)
def test_nonsense_about_adapting_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("who", [0, 1], ids=["target", "draft"])
def test_logits_that_are_no_numbers_are_an_error(who):
    pair = [TableLM({"": [0.5, 0.5]}), TableLM({"": [0.4, 0.6]})]
    pair[who]._rows[()] = torch.tensor([0.0, math.nan], dtype=torch.float64)
    with pytest.raises(NaNLogits):
        run(speculative(*pair, "b", rng=Seeded(0)), 3)


def test_models_with_nothing_but_a_size_in_common_are_taken_at_their_word(models):
    pair = LM(models("llama")), TableLM.random(VOCAB, 1, 0)
    assert isinstance(next(speculative(*pair, [1, 2])), Step)
