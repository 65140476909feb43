"""Steps: what was checked of a draft, and the candidates that were weighed."""

import pytest
import torch
from scripted import run_scripted

from tutorlib import Seeded, Step, TableLM, TokenTree, decoders, frequency_penalty, run
from tutorlib.running.step import Candidates

LOGITS = torch.tensor([[0.1, 0.4, 0.4, 0.1], [0.0, 1.0, 0.0, 0.0]]).log()


def test_what_is_checked_of_a_draft_ends_with_the_first_rejected_token():
    tree = {"drafted": [1, 2, 0, 1], "tree": TokenTree([1, 2, 0, 1], [-1, -1, 0, 2])}  # 1 0 1, and 2 beside it
    steps = [
        Step([1]),  # the prompt's step drafts nothing
        Step([1, 2, 0], drafted=[1, 2, 1, 1], accepted=2),  # 3 checked: the last came after the rejected one
        Step([2], drafted=[0, 0, 0], accepted=0),  # 1
        Step([1, 2, 0, 1], drafted=[1, 2, 0], accepted=3),  # 3
        Step([0], accepted=0, **tree),  # 1: neither 1 nor 2 was drawn at the root
        Step([1, 2], accepted=1, path=(0,), **tree),  # 2: after 1 there was a 0, which was not drawn
        Step([2, 1], accepted=1, path=(1,), **tree),  # 1: after 2 there was nothing to check
        Step([1, 0, 1, 2], accepted=3, path=(0, 2, 3), **tree),  # 3
    ]
    assert [step.checked for step in steps] == [0, 3, 1, 3, 1, 2, 1, 3]
    assert [step.judged for step in steps] == [step.checked for step in steps]  # the name of the release before
    trace = run_scripted(steps)
    assert trace.acceptance == pytest.approx(10 / 14)
    assert trace.accepted_per_call == pytest.approx(10 / 7)


@pytest.mark.parametrize(("budget", "checked"), [(1, 1), (2, 2), (3, 3), (4, 3)])
@pytest.mark.parametrize("tree", [None, TokenTree([1, 2, 0, 1], [-1, 0, 1, 2])], ids=["chain", "tree"])
def test_what_a_run_cut_off_was_not_checked(budget, checked, tree):
    step = Step([1, 2, 1], drafted=[1, 2, 0, 1], accepted=2, tree=tree, path=(0, 1) if tree else ())
    trace = run_scripted([step], budget)
    assert trace.steps[0].checked == checked
    assert trace.acceptance == min(budget, 2) / checked


def test_candidates_are_the_likeliest_tokens_the_lowest_of_equals_first_and_none_of_probability_zero():
    first, second = Candidates(LOGITS, count=3)
    assert [token for token, _ in first] == [1, 2, 0]
    assert [prob for _, prob in first] == pytest.approx([0.4, 0.4, 0.1])
    assert [token for token, _ in second] == [1]


def test_candidates_are_computed_when_looked_at_and_then_hold_no_logits():
    candidates = Candidates(LOGITS)
    assert candidates.nbytes == LOGITS.numel() * 4
    assert len(candidates) == 2
    assert candidates.nbytes > 0
    candidates[0]
    assert candidates.nbytes == 0


def test_slices_of_candidates_stay_uncomputed():
    part = Candidates(LOGITS)[:1]
    assert part.nbytes > 0
    assert len(part) == 1


def test_candidates_keep_no_copy_of_a_history_that_is_the_beginning_of_a_text():
    text, warp = [0, 1, 1], [frequency_penalty(0.5)]
    expected = Candidates(LOGITS, warp=warp, histories=[[0, 1], [0, 1, 1]]).settled()
    shared = Candidates(LOGITS, warp=warp, histories=[[0, 1], [0, 1, 1]])
    assert shared.nbytes == LOGITS.numel() * 4 + 5 * 8, "copies are counted"
    shared.share(text, 2)
    text.append(3)
    assert shared.nbytes == LOGITS.numel() * 4
    assert shared[1:].settled() == expected[1:] and shared.settled() == expected
    others = Candidates(LOGITS, warp=warp, histories=[[0, 2], [0, 1, 1]])
    others.share(text, 2)
    assert others.nbytes == LOGITS.numel() * 4 + 2 * 8, "another history is kept"
    assert others.settled() == Candidates(LOGITS, warp=warp, histories=[[0, 2], [0, 1, 1]]).settled()
    assert Candidates(LOGITS, histories=[[0, 1], [0, 1, 1]]).nbytes == LOGITS.numel() * 4, "no warp reads them"


@pytest.mark.parametrize("rng", [None, Seeded(3)], ids=["greedy", "drawn"])
@pytest.mark.parametrize("method", ["sample", "speculative", "prompt_lookup", "suffix_lookup", "lookahead"])
def test_candidates_are_what_was_weighed_also_where_the_choice_is_greedy(method, rng):
    lm, draft, warp = TableLM.random(3, 2, 4), TableLM.random(3, 1, 5), [frequency_penalty(0.5)]
    models = (lm, draft) if method == "speculative" else (lm,)
    options = {"gamma": 2} if method.endswith("_lookup") else {}
    steps = getattr(decoders, method)(*models, [0, 1, 0], rng=rng, warp=warp, **options)
    trace = run(steps, 12, stop=())
    told = [weighed for step in trace.steps for weighed in step.candidates]
    for count, weighed in enumerate(told):
        before = [0, 1, 0, *trace.tokens[:count]]
        penalty = 0.5 * torch.tensor([before.count(token) for token in range(3)])
        assert dict(weighed) == pytest.approx(dict(enumerate((lm.log_probs(before) - penalty).softmax(-1).tolist())))
    assert len(told) == 12
