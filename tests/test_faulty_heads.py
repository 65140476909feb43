"""Each fault leaves the text as it is, and less acceptance, where its docstring says so."""

import functools

import pytest

from tutorlib import Seeded, chain_draft, eagle, greedy, medusa, models, run, speculative, temperature
from tutorlib.course.zoo import faulty_heads as faulty
from tutorlib.storyworld.questions import opening

PROMPT = opening("faults")
# Bounds of the first guess's acceptance, which is over 0.8 with the right head: at most, at least.
HEADS = {
    "with_layers": (lambda head: faulty.with_layers(head, head.feature_layers[::-1]), 0.7, 0.3),
    "late_features": (faulty.late_features, 0.7, 0.3),
    "late_tokens": (faulty.late_tokens, 0.3, 0),
    "of_another_target": (faulty.of_another_target, 0.6, 0.1),
    "normed_states": (faulty.normed_states, 1, 0.7),
    "without_map": (faulty.without_map, 0, 0),
    "ids_for_offsets": (faulty.ids_for_offsets, 0, 0),
}


@pytest.fixture(scope="module")
def village():
    return models.load("storyworld", device="cpu", dtype="float32")


@functools.cache
def plain(target):
    return run(greedy(target, PROMPT), 40, stop=()).tokens


def first_and_third(steps, target, same):
    """How many of the drafts had a first, and a third, guess accepted; the text is the plain loop's."""
    trace = run(steps, 40, stop=())
    assert not same or trace.tokens == plain(target)
    drafts = [step for step in trace.steps if len(step.drafted) >= 3]
    return [sum(step.accepted >= i for step in drafts) / len(drafts) for i in (1, 3)]


@functools.cache
def of_a_chain(head, target):
    return first_and_third(eagle(target, head, PROMPT, shape=chain_draft(4)), target, same=True)


@pytest.mark.parametrize(("fault", "most", "least"), HEADS.values(), ids=HEADS)
def test_a_faulty_head_writes_the_same_text_and_its_first_guess_is_right_less_often(village, fault, most, least):
    right, wrong = (of_a_chain(head, village.target) for head in (village.eagle3, fault(village.eagle3)))
    assert right[0] > 0.8 and least <= wrong[0] <= most
    assert wrong[1] < right[1] and (fault is not faulty.normed_states or wrong[1] < 0.1)


def test_medusa_heads_that_are_one_position_late_guess_nothing(village):
    for heads, bounds in ((village.medusa, (0.5, 1)), (faulty.late_heads(village.medusa), (0, 0.1))):
        steps = medusa(village.target, heads, PROMPT, shape=[(0, 0, 0)])
        assert bounds[0] <= first_and_third(steps, village.target, same=True)[0] <= bounds[1]


def test_a_hotter_draft_is_accepted_less_often_and_one_with_other_ids_never(village):
    shares = []
    for draft in (village.draft, faulty.hotter(village.draft, 8), faulty.shifted_ids(village.draft)):
        steps = speculative(village.target, draft, PROMPT, rng=Seeded(0), warp=[temperature(0.5)])
        shares.append(first_and_third(steps, village.target, same=False)[0])
    assert shares[0] > 0.8 > shares[1] > shares[2] == 0


def test_what_is_right_stays_right(village):
    before = {name: tensor.clone() for name, tensor in village.eagle3.state_dict().items()}
    for fault, _, _ in HEADS.values():
        fault(village.eagle3)
    faulty.shifted_ids(village.draft), faulty.hotter(village.draft, 2)
    assert all(tensor.equal(before[name]) for name, tensor in village.eagle3.state_dict().items())
    assert not village.draft.model.get_output_embeddings()._forward_hooks
