"""What every lossless method promises: the target's distribution, its ends, its cost, and errors that say what to do.

A row that cannot be warped, a filter that leaves no token, and zeros in the tables: see `tests/test_fuzz.py`.
That these claims notice mistakes: see `tests/test_guards_matter.py`.
"""

import functools

import pytest
import torch
from conftest import FAMILIES, LIKE_OTHERS, exactly, random_model
from lossless import (
    AFTER_ONE,
    CONFIGS,
    EXACT,
    LETTERS,
    METHODS,
    NOT_P,
    ODD_CONFIGS,
    SAME_DISTRIBUTION,
    SAME_TEXT,
    TWO_MODELS,
    WARPS,
    WITHOUT_A_COUNT,
    WRONG_ON_A_RING,
    distance,
    failing,
    other_tokenizer,
    ring,
    small,
    tables,
    unlike,
    with_zeros,
)

from tutorlib.decoders import greedy, sample, speculative, string_match, token_intersection
from tutorlib.measures.proof import exact_distribution, target_distribution, total_variation
from tutorlib.model.lm import LM
from tutorlib.model.session import NaNLogits
from tutorlib.model.table import TableLM
from tutorlib.running.decoding import run
from tutorlib.sampling.budgets import stop_when_unsure
from tutorlib.sampling.randomness import Seeded
from tutorlib.sampling.warp import frequency_penalty, mirostat, temperature, top_k

SLOW = pytest.mark.slow
every_method = pytest.mark.parametrize("name", METHODS)
UNLIKE = [family for family in FAMILIES if family not in LIKE_OTHERS]


def far(name, pair, prompt, length, warp=(), stop=(), gamma=1):
    """How far a method is from plain sampling from the first of two models."""
    target, draft = pair

    def written(lm, prompt, **how):
        return METHODS[name](lm, draft, prompt, gamma, **how)

    return distance(written, target, prompt, length, warp, stop)


def written(name, target, draft, prompt, gamma=4, budget=99, rng=None, warp=()):
    return run(METHODS[name](target, draft, prompt, gamma, rng=rng, warp=warp), budget, progress=False)


# ----------------------------------------------------------------------------------------------------------------------
# Its distribution


def slow_unless(fast, names=METHODS):
    return [name if fast(name) else pytest.param(name, marks=SLOW) for name in names]


def under_warps():
    """One method of each rule under every warp, quickly; the others that draw, too; of the rest each under two."""
    for place, name in enumerate(METHODS):
        fast = name in ("speculative", "suffix_lookup")
        for number, warp in enumerate(WARPS):
            if fast or name in SAME_DISTRIBUTION or (number - place) % len(WARPS) in (0, 4):
                yield pytest.param(name, warp, marks=[] if fast else SLOW)


@pytest.mark.parametrize("name, warp", list(under_warps()))
def test_it_keeps_the_targets_distribution_under_every_warp(name, warp):
    assert far(name, with_zeros(3), [0, 2, 0], 3, WARPS[warp]) < EXACT


REMEMBER = {"mirostat": mirostat(0.8, 0.9), "unsure": stop_when_unsure(1, below=0.95, best=2, group_size=3)}


@pytest.mark.parametrize("warp", REMEMBER)
@pytest.mark.parametrize("name", slow_unless(lambda name: name in ("speculative", "suffix_lookup", "eagle, dynamic")))
def test_it_keeps_that_of_sampling_under_a_warp_that_remembers_rows(name, warp):
    """It remembers them of the target alone, and for each beginning of a text."""
    (target, draft), warp = with_zeros(3), [REMEMBER[warp]]
    with exactly(torch.float64):
        made = exact_distribution(lambda rng: METHODS[name](target, draft, [0, 2, 0], 2, rng=rng, warp=warp), 4)
        due = exact_distribution(lambda rng: sample(target, [0, 2, 0], rng=rng, warp=warp), 4)
        unlimited = exact_distribution(lambda rng: sample(target, [0, 2, 0], rng=rng), 4)
    assert total_variation(made, due) < EXACT < 0.1 < total_variation(due, unlimited)


@pytest.mark.parametrize("warp", ["penalty and top-k", "thinking", pytest.param("no warp", marks=SLOW)])
@every_method
def test_it_keeps_it_with_drafts_that_may_say_anything(name, warp):
    assert far(name, tables(3), [0, 2, 0], 3, WARPS[warp]) < EXACT


@pytest.mark.parametrize(
    "prompt, warp", [([0, 1, 0], "penalty and temperature"), pytest.param([0, 1, 1, 0], "no warp", marks=SLOW)]
)
@every_method
def test_it_keeps_it_through_full_drafts_and_the_rollback_after_them(name, prompt, warp):
    assert far(name, with_zeros(2), prompt, 4, WARPS[warp], gamma=2) < EXACT


@every_method
def test_it_keeps_it_with_a_draft_that_is_always_wrong_and_one_that_is_the_target(name):
    target = TableLM({"": [0.3, 0.3, 0.4], "a": [0.5, 0.5, 0.0], "b": [0.0, 0.5, 0.5]})
    wrong = TableLM({"": [0.0, 0.0, 1.0], "b": [1.0, 0.0, 0.0]})
    assert far(name, (target, wrong), [0], 3, gamma=2) < EXACT
    assert far(name, (target, target), [0], 2, gamma=1) < EXACT


@every_method
def test_it_keeps_it_where_stop_tokens_are_drafted(name):
    pair = TableLM.random(3, 1, 5, stop_tokens=[2]), TableLM({"": [0.0, 0.4, 0.6], "a": [0.5, 0.5, 0.0]})
    assert far(name, pair, [0, 2, 1, 0], 2, stop=None, gamma=2) < EXACT


@pytest.mark.parametrize(
    "name, contexts",
    [(name, (4, 64)) for name in METHODS]
    + [(name, (64, 3)) for name in TWO_MODELS]
    + [pytest.param(name, contexts, marks=SLOW) for name in METHODS for contexts in ((64, 2), (5, 4))],
)
def test_it_keeps_it_up_to_the_end_of_either_context(name, contexts):
    target, draft = (TableLM.random(2, order, 5 - order, context=c) for order, c in zip((2, 1), contexts))
    made = exact_distribution(lambda rng: METHODS[name](target, draft, [0, 1], 2, rng=rng), 4, stop=())
    assert total_variation(made, target_distribution(target, [0, 1], min(4, contexts[0] - 2), stop=())) < EXACT


@every_method
def test_it_keeps_it_over_real_caches(name):
    pair = small("llama"), small("gpt2", seed=2)
    assert far(name, pair, [0, 1, 0], 3 + (name in AFTER_ONE), WARPS["penalty and top-k"]) < EXACT


@pytest.mark.parametrize("family", slow_unless(lambda family: family == "llama", CONFIGS))
@pytest.mark.parametrize("name", slow_unless(lambda name: name in ("medusa", "sample_batch", "speculative_batch")))
def test_it_keeps_it_over_static_caches_and_batches_after_calls_that_have_failed(name, family):
    pair = failing(family), small("gpt2", seed=2)
    assert far(name, pair, [0, 1, 0], 3 + (name in AFTER_ONE), WARPS["penalty and top-k"]) < EXACT


KINDS = [family for family in CONFIGS | ODD_CONFIGS if family != "llama"]  # which the test before last has


@SLOW
@pytest.mark.parametrize("family", KINDS)
@every_method
def test_it_keeps_it_over_real_caches_of_every_other_kind(name, family):
    """Each time under another warp."""
    warp = list(WARPS)[(list(METHODS).index(name) + KINDS.index(family)) % len(WARPS)]
    assert far(name, (small(family), small("gpt2", seed=2)), [0, 1, 2, 0], 3 + (name in AFTER_ONE), WARPS[warp]) < EXACT


@SLOW
@pytest.mark.parametrize("warp", ["top-p", "penalty and top-k"])
@pytest.mark.parametrize("name", ["speculative", "eagle, drawn chain"])
def test_it_keeps_it_under_filters_through_full_drafts_and_the_rollback_after_them(name, warp):
    assert far(name, with_zeros(3), [0, 2], 4, WARPS[warp], gamma=2) < EXACT


@SLOW
@pytest.mark.parametrize("name", [*SAME_TEXT, "speculative"])
def test_it_keeps_it_with_three_drafted_tokens(name):
    target = TableLM({"": [0.6, 0.4], "aa": [0.2, 0.8], "b": [0.7, 0.3]})
    draft = TableLM({"": [0.5, 0.5], "b": [1.0, 0.0]})  # certain where it can be: there are fewer ways to draw then
    assert far(name, (target, draft), [1], 5, gamma=3) < EXACT


# ----------------------------------------------------------------------------------------------------------------------
# Its text


@functools.cache
def pair_of(family):
    return unlike(family, 0), unlike("gpt2", 1)


@functools.cache
def plain(method, family, prompt, budget=99, **how):
    lm, _ = pair_of(family)
    with exactly(torch.float64):
        if method is greedy:
            return run(greedy(lm, list(prompt)), budget, progress=False)
        return run(sample(lm, list(prompt), rng=Seeded(4), warp=WARPS["temperature"]), budget, progress=False)


@pytest.mark.parametrize("family", slow_unless(lambda family: family == "gemma2", UNLIKE))
@every_method
def test_it_writes_what_greedy_writes_and_with_a_seed_what_sample_writes_to_the_contexts_end(name, family):
    prompt = [3, 1, 2, 0, 7, 1, 2] * 5  # past the window of the families that have one
    with exactly(torch.float64):
        trace = written(name, *pair_of(family), prompt)
        expected = plain(greedy, family, tuple(prompt))
        assert (trace.tokens, trace.stopped) == (expected.tokens, "context")
        if name in SAME_TEXT:
            trace = written(name, *pair_of(family), prompt, rng=Seeded(4), warp=WARPS["temperature"])
            assert trace.tokens == plain(sample, family, tuple(prompt)).tokens


@SLOW
@pytest.mark.parametrize("name", ["prompt_lookup", "suffix_lookup", "lookahead", *TWO_MODELS])
def test_on_the_bundled_models_it_is_greedy_with_fewer_calls(name):
    """In float32: a tie within rounding could differ, and none does here."""
    from tutorlib import models
    from tutorlib.lab import bench

    family = models.load("storyworld")
    draft = family.other_draft if name in ("token_intersection", "string_match") else family.draft
    for prompt in bench.story_prompts(family.target, 3):
        expected = run(greedy(family.target, prompt), 80)
        trace = written(name, family.target, draft, prompt, gamma=4, budget=80)
        assert trace.tokens == expected.tokens
        assert trace.target_calls < 0.8 * expected.target_calls


@every_method
def test_the_same_seed_gives_the_same_steps_and_another_seed_another_text(name):
    one, same, other = (written(name, *tables(3), [0], budget=20, rng=Seeded(seed)) for seed in (5, 5, 6))
    assert one.to_dict() == same.to_dict() and one.tokens != other.tokens


# ----------------------------------------------------------------------------------------------------------------------
# Its ends. Round a ring every draft that knows it is right, and would go on beyond the end.


@every_method
def test_a_context_that_ends_in_mid_draft_is_filled_and_no_more(name):
    for context in (26, 29, 31, 33, 34):
        lm = ring(6, context=context)
        expected = [place % 6 for place in range(18, context)]
        trace = written(name, lm, lm, [*range(6)] * 3)
        assert (trace.tokens, trace.stopped) == (expected, "context")
        assert all(step.cut == 0 for step in trace.steps), "nothing was drafted that there is no room for"
        assert name in WRONG_ON_A_RING or len(trace.steps) <= 2 + (context - 18) / 2, (
            "what is right is accepted; a method whose drafts are wrong on a ring of 6 belongs in WRONG_ON_A_RING"
        )
        steps, found = METHODS[name](lm, lm, [*range(6)] * 3, 4), []
        with pytest.raises(StopIteration) as end:
            while len(found) < 99:
                found += next(steps).tokens
        assert found == expected and end.value.value == "context", "it ends by itself, too"


def deepest(step):
    """How many drafted tokens a step would have added at most."""
    return len(step.drafted) if step.tree is None else 1 + max(step.tree.depths)


@every_method
def test_no_draft_is_longer_than_there_is_room_for_it_and_the_token_after_it_whether_it_is_right_or_not(name):
    for lm, draft in ((ring(6, context=16), ring(6, context=16)), tables(3, context=12)):
        prompt = [0, 1, 2, 0, 1, 2, 0, 1]
        steps, length = METHODS[name](lm, draft, prompt, 4, rng=Seeded(1)), len(prompt)
        for step in steps:
            assert deepest(step) <= lm.context - length - 1, "a draft is cut to `lm.context - len(text) - 1` tokens"
            length += len(step.tokens)
        assert length == lm.context


@every_method
def test_a_context_that_is_full_leaves_nothing_to_do(name):
    lm = ring(6, context=12)
    trace = written(name, lm, lm, [*range(6)] * 2)
    assert (trace.tokens, trace.stopped, trace.target_calls) == ([], "context", 0)


@pytest.mark.parametrize("name", TWO_MODELS)
def test_where_only_the_drafts_context_is_full_the_text_goes_on_without_drafts(name):
    target, draft = ring(6, context=60), ring(6, context=30)
    trace = written(name, target, draft, [*range(6)] * 3)
    assert trace.tokens == [place % 6 for place in range(18, 60)]
    length = 18
    for step in trace.steps:
        assert len(step.drafted) == max(0, min(4, 60 - length - 1, 30 - length + 1))
        length += len(step.tokens)


@every_method
def test_an_end_of_text_inside_a_draft_is_the_last_token(name):
    """The lookups find it in the prompt, with what came after it there."""
    lm = ring(6)
    lm.stop_tokens = (3,)
    lm.tokenizer.special = frozenset(lm.stop_tokens)
    trace = written(name, lm, lm, [0, 1, 2, 3, 4, 5, 0, 1], gamma=5)
    assert (trace.tokens, trace.stopped) == ([2, 3], "stop")
    assert trace.text == "c", "the end itself is no text"


# ----------------------------------------------------------------------------------------------------------------------
# Its cost, and what its steps say


@every_method
def test_a_step_is_one_call_of_the_target_and_says_what_was_drafted_accepted_and_drawn_from(name):
    target, draft = pair_of("llama")
    before = target.calls
    trace = written(name, target, draft, [3, 1, 4, 1], gamma=3, budget=24, rng=Seeded(0))
    assert target.calls - before == trace.target_calls == len(trace.steps)
    for step in trace.steps:
        nodes = range(step.accepted) if step.tree is None else step.path
        assert step.tree is None or step.tree.tokens == step.drafted
        assert [step.drafted[node] for node in nodes] == step.tokens[: step.accepted]
        assert len(step.tokens) == step.accepted + (step is not trace.steps[-1] or step.accepted < len(step.tokens))
        assert len(step.candidates) == len(step.tokens), "a row for each token, and none beyond"


# (A rule that draws its own token and compares does not know how likely the drafted one was.)
@pytest.mark.parametrize("name", [name for name in SAME_DISTRIBUTION if name not in NOT_P])
def test_what_is_drawn_from_the_targets_own_distribution_is_all_accepted(name):
    """The draft is warped as the target is, with the tokens before each: so q is p, and p/q is 1."""
    lm = TableLM.random(4, 1, 0)
    for warp in ([], [temperature(0.5)], [frequency_penalty(1.0), top_k(3)]):
        trace = written(name, lm, lm, [0, 3], gamma=3, budget=40, rng=Seeded(1), warp=warp)
        assert trace.acceptance == 1 and trace.target_calls <= 11


# ----------------------------------------------------------------------------------------------------------------------
# Bad input


@pytest.mark.parametrize("name", [name for name in METHODS if name not in WITHOUT_A_COUNT])
def test_a_gamma_below_1_or_that_is_no_number_is_named_with_what_it_should_be(name):
    for gamma in (0, 2.5, True, "4", None):
        with pytest.raises(ValueError, match=f"(gamma|window|length) .*, a whole number of 1 or more, got {gamma!r}"):
            METHODS[name](ring(4), ring(4), [0, 1], gamma)
            pytest.fail("give @decoder(check=check) a function that calls check_whole_number, as prompt_lookup does")


BAD_ARGUMENTS = [
    ({"prompt": []}, r"the prompt is empty \(\[\]\): give at least one token"),
    ({"prompt": [1, 4]}, r"the prompt holds \[4\], outside the vocabulary of 4 tokens"),
    ({"prompt": [1] * 65}, "the prompt has 65 tokens, more than the context of 64"),
    ({"rng": 7}, "rng must have the methods choose and accept"),
    ({"warp": 0.5}, "warp"),
    ({"warp": temperature(0.5)}, r"write warp=\[temperature\(0.5\)\]"),
]


@every_method
def test_bad_arguments_are_named_at_the_call(name):
    lm = ring(4)
    good = {"lm": lm, "draft": lm, "prompt": [0, 1], "gamma": 2, "rng": Seeded(0), "warp": []}
    for change, says in BAD_ARGUMENTS:
        with pytest.raises(ValueError, match=says):
            METHODS[name](**good | change)


@pytest.mark.parametrize("name", TWO_MODELS)
def test_what_is_no_draft_or_is_on_another_device_is_named(name):
    target = LM(random_model("llama"), LETTERS)
    with pytest.raises(ValueError, match="the draft must be an LM, got str"):
        METHODS[name](target, "gpt2", [1], 2)
    elsewhere = LM(random_model("gpt2").to("meta"), LETTERS)
    with pytest.raises(ValueError, match="on (cpu|meta).* on (meta|cpu): (load both on one device|move one to)"):
        METHODS[name](target, elsewhere, [1, 2], 2)


def test_models_whose_vocabularies_differ_are_told_which_methods_are_for_them():
    target = TableLM.random("abc", 1, 0)
    for other in (TableLM.random("abcd", 1, 0), TableLM.random("acb", 1, 0)):
        for method in (speculative, METHODS["speculative_batch"]):
            with pytest.raises(ValueError, match="have one vocabulary.*there are token_intersection and string_match"):
                method(target, other, [0], gamma=2)
        for method in (token_intersection, string_match):
            assert len(run(method(target, other, [0]), 4).tokens) == 4
    other = TableLM.random("xy", 1, 0)
    with pytest.raises(ValueError, match="target's 3 tokens and the draft's 2 have none in common.* string_match"):
        token_intersection(target, other, "ab")
    assert run(string_match(target, other, "ab"), 9).tokens == run(greedy(target, "ab"), 9).tokens


@pytest.mark.parametrize("method", [token_intersection, string_match])
def test_models_without_a_tokenizer_are_named(method):
    with_one = LM(random_model("llama"), LETTERS)
    with pytest.raises(ValueError, match="the draft has no tokenizer"):
        method(with_one, LM(with_one.model), [1])
    with pytest.raises(ValueError, match="the target has no tokenizer"):
        method(LM(with_one.model), with_one, [1])


@pytest.mark.parametrize("name", TWO_MODELS)
def test_logits_that_are_not_numbers_are_an_error(name):
    for who in (0, 1):
        pair = [TableLM({"": [0.5, 0.5]}), TableLM({"": [0.4, 0.6]})]
        for lm in (pair[who], other_tokenizer(pair[who])):
            lm._rows[()] = torch.tensor([0.0, torch.nan], dtype=torch.float64)
        with pytest.raises(NaNLogits):
            written(name, *pair, [1], budget=3, rng=Seeded(0))
