"""Bad input to the methods on drafts: an error that names what was given and what to do, or what is documented."""

import pytest
import torch
from conftest import exactly, random_model
from draft_networks import ring_network
from lossless import ring

from tutorlib.decoders import (
    greedy,
    lookahead,
    prompt_lookup,
    speculative,
    speculative_batch,
    string_match,
    suffix_lookup,
    token_intersection,
)  # fmt: skip
from tutorlib.decoders.draft_trees import chain
from tutorlib.decoders.eagle import eagle
from tutorlib.lm import LM
from tutorlib.run import run, run_batch
from tutorlib.table import TableLM, TableTokenizer

LETTERS = TableTokenizer([chr(ord("a") + token) for token in range(19)])

# Each as a function (lm, prompt, gamma) -> trace, where the model drafts for itself, which goes as far as it can.
METHODS = {
    "speculative": lambda lm, prompt, gamma: run(speculative(lm, lm, prompt, gamma=gamma), 99),
    "speculative_batch": lambda lm, prompt, gamma: run_batch(speculative_batch(lm, lm, [prompt], gamma=gamma), 99)[0],
    "prompt_lookup": lambda lm, prompt, gamma: run(prompt_lookup(lm, prompt, gamma=gamma), 99),
    "suffix_lookup": lambda lm, prompt, gamma: run(suffix_lookup(lm, prompt, gamma=gamma, least=0), 99),
    "lookahead": lambda lm, prompt, gamma: run(lookahead(lm, prompt, window=gamma), 99),
    "eagle": lambda lm, prompt, gamma: run(eagle(lm, ring_network(lm), prompt, tree=chain(gamma)), 99),
    "token_intersection": lambda lm, prompt, gamma: run(token_intersection(lm, lm, prompt, gamma=gamma), 99),
    "string_match": lambda lm, prompt, gamma: run(string_match(lm, lm, prompt, gamma=gamma), 99),
}
every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
with_a_draft = pytest.mark.parametrize(
    "method",
    [speculative, lambda lm, draft, prompt: speculative_batch(lm, draft, [prompt]), token_intersection, string_match],
    ids=["speculative", "speculative_batch", "token_intersection", "string_match"],
)


@pytest.mark.parametrize("gamma", [0, -3, 2.5, True, "4", None], ids=repr)
@every_method
def test_a_gamma_below_1_or_that_is_no_number_is_named_with_what_it_should_be(method, gamma):
    with pytest.raises(ValueError, match=f"(gamma|window|length) .*, a whole number of 1 or more, got {gamma!r}"):
        method(ring(4), [0, 1], gamma)


def test_models_whose_vocabularies_differ_are_told_which_methods_are_for_them():
    target = TableLM.random("abc", 1, 0)
    for other in (TableLM.random("abcd", 1, 0), TableLM.random("acb", 1, 0)):
        for call in (
            lambda draft: speculative(target, draft, [0]),
            lambda draft: speculative_batch(target, draft, [[0], [1, 2]]),
        ):
            with pytest.raises(ValueError, match="target and the draft must have one vocabulary") as error:
                call(other)
            assert "for others there are token_intersection and string_match" in str(error.value)
        assert len(run(token_intersection(target, other, [0]), 4).tokens) == 4
        assert len(run(string_match(target, other, [0]), 4).tokens) == 4


@with_a_draft
def test_a_draft_on_another_device_is_named_with_both_devices(method):
    target, elsewhere = LM(random_model("llama"), LETTERS), LM(random_model("gpt2").to("meta"), LETTERS)
    with pytest.raises(ValueError, match="on (cpu|meta).* on (meta|cpu): (load both on one device|move one to)"):
        method(target, elsewhere, [1, 2])


@every_method
def test_a_context_that_ends_in_mid_draft_is_filled_and_no_more(method):
    """Round a ring every draft is right, and would go on beyond the end."""
    for context in range(30, 36):
        lm = ring(6, context=context)
        trace = method(lm, [*range(6)] * 4, 4)
        assert trace.tokens == [place % 6 for place in range(24, context)]
        assert trace.stopped == "context"
        assert all(step.cut == 0 for step in trace.steps), "nothing was drafted that there is no room for"


@every_method
def test_a_context_that_is_full_leaves_nothing_to_do(method):
    trace = method(ring(6, context=12), [*range(6)] * 2, 4)
    assert (trace.tokens, trace.stopped, trace.target_calls) == ([], "context", 0)


@with_a_draft
def test_where_only_the_drafts_context_is_full_the_text_goes_on_without_drafts(method):
    target, draft = ring(6, context=60), ring(6, context=30)
    steps = [_of_one(step) for step in method(target, draft, [*range(6)] * 3)]
    tokens = [token for step in steps for token in step.tokens]
    assert tokens == [place % 6 for place in range(18, 60)]
    assert steps[0].drafted and not steps[-1].drafted


def _of_one(step):
    return step[0] if isinstance(step, list) else step


@every_method
def test_an_end_of_text_inside_a_draft_is_the_last_token(method):
    """The lookups find it in the prompt, with what came after it there."""
    lm = ring(6)
    lm.stop_tokens = (3,)
    lm.tokenizer.special = frozenset(lm.stop_tokens)
    trace = method(lm, [0, 1, 2, 3, 4, 5, 0, 1], 5)
    assert (trace.tokens, trace.stopped) == ([2, 3], "stop")
    assert trace.text == "c", "the end itself is no text"


def test_vocabularies_with_nothing_in_common_are_named_with_the_method_for_them():
    target, draft = TableLM.random("abc", 1, 0), TableLM.random("xy", 1, 0)
    with pytest.raises(
        ValueError, match="target's 3 tokens and the draft's 2 have none in common.* string_match needs"
    ):
        token_intersection(target, draft, "ab")
    assert run(string_match(target, draft, "ab"), 9).tokens == run(greedy(target, "ab"), 9).tokens


def test_a_batch_of_very_different_prompts_is_what_each_would_be_alone():
    """One token, and all but one of the context; neither is cut nor padded for the other's sake."""
    prompts = [[3], [5, 7] * 23 + [1], [2, 4]]
    with exactly(torch.float64):
        target, draft = LM(random_model("llama", torch.float64)), LM(random_model("gpt2", torch.float64, seed=1))
        traces = run_batch(speculative_batch(target, draft, prompts, gamma=3), 20)
        for prompt, trace in zip(prompts, traces, strict=True):
            alone = run(greedy(target, prompt), 20)
            assert (trace.tokens, trace.stopped) == (alone.tokens, alone.stopped)
    assert [len(trace.tokens) for trace in traces] == [20, 1, 20]


@pytest.mark.parametrize(
    ("prompts", "says"),
    [
        ([], "prompts is empty: a batch needs at least one prompt"),
        ([[0], [], [1]], r"prompt 1 of 3: the prompt is empty \(\[\]\): give at least one token"),
        ([[0], ""], "prompt 1 of 2: the prompt '' has no tokens: give at least one"),
        ("abc", r"prompts must be a list of prompts, got 'abc': for one prompt write \[prompt\]"),
    ],
    ids=str,
)
def test_an_empty_batch_or_an_empty_prompt_in_it_is_named(prompts, says):
    lm = ring(6)
    with pytest.raises(ValueError, match=says):
        speculative_batch(lm, lm, prompts)


@every_method
def test_an_empty_prompt_is_named(method):
    with pytest.raises(ValueError, match=r"the prompt is empty \(\[\]\): give at least one token"):
        method(ring(6), [], 3)
