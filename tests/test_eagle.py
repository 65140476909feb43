"""EAGLE drafts in every step what its network makes of the whole text. That it is exact: `test_lossless.py`."""

import itertools
import math

import pytest
import torch
from conftest import FAMILIES, VOCAB, exactly, in_words
from draft_networks import (
    NETWORKS,
    best_tree,
    drafted_anew,
    eagle1,
    eagle3,
    law,
    paths_in,
    reduced,
    ring_network,
    tree_of_ranks,
)
from lossless import EXACT, WARPS, distance, on, ring, table

from tutorlib.decoders import greedy
from tutorlib.decoders.eagle import eagle
from tutorlib.drafting.choices import full
from tutorlib.drafting.draft_trees import chain_draft, drawn_chain, drawn_tree, dynamic_tree, static_tree
from tutorlib.drafting.medusa_heads import MedusaHeads
from tutorlib.model.lm import LM
from tutorlib.model.session import NaNLogits
from tutorlib.model.table import TableLM
from tutorlib.model.tree import TokenTree
from tutorlib.running.decoding import run
from tutorlib.sampling.randomness import Exhaustive, Seeded
from tutorlib.sampling.warp import frequency_penalty, probabilities, temperature, top_k

RANKS = [(0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0)]
# Each shape, and the same as a function of what the network says: see `draft_networks`.
SHAPES = {
    "chain": (chain_draft(3), lambda guess, room: best_tree(guess, 3, min(3, room), 1)[0]),
    "static": (static_tree(RANKS), lambda guess, room: tree_of_ranks(guess, RANKS, room)),
    "dynamic": (dynamic_tree(7, 4, 3), lambda guess, room: best_tree(guess, 7, min(4, room), 3)[0]),
}
TREES = {name: shape for name, (shape, _) in SHAPES.items()}
every_network = pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)
every_shape = pytest.mark.parametrize(("make", "shape"), [*zip(NETWORKS.values(), SHAPES)], ids=NETWORKS)


@pytest.mark.parametrize("tree", [*TREES.values(), drawn_tree([(0, 0), (1, 0)])], ids=[*TREES, "drawn"])
def test_where_the_network_knows_nothing_that_may_follow_it_is_exact_all_the_same(tree):
    """A filter that bans all that the network would say leaves it without guesses, and the text goes on."""

    def ban(logits, histories):
        """After an even number of tokens all that the network knows; then it knows all that may follow."""
        even = torch.tensor([len(history) % 2 == 0 for history in histories])[:, None]
        return logits.masked_fill(even == torch.tensor([False, True, True]), -math.inf)

    lm = TableLM.random(3, 1, 0)
    head = eagle3(lm, tokens=[1, 2])
    assert distance(on(eagle, head), lm, [0], 4, [ban], shape=tree) < EXACT
    drafts = [len(step.drafted) for step in run(eagle(lm, head, [0], shape=tree, rng=Seeded(0), warp=[ban]), 20).steps]
    assert 0 in drafts[1:]


# ----------------------------------------------------------------------------------------------------------------------
# Trees that are drawn


def test_a_drawn_tree_keeps_it_with_two_children_and_two_after_the_second():
    lm = table(3)
    tree = drawn_tree([(1, 1)])
    assert distance(on(eagle, eagle3(lm)), lm, [0, 1], 3, WARPS["temperature and top-p"], shape=tree) < EXACT


def test_without_random_draws_a_drawn_tree_is_the_static_one_and_the_text_is_greedys(models):
    lm = LM(models("llama", torch.float64))
    with exactly(torch.float64):
        head = reduced(lm)
        for drawn, chosen in (
            (drawn_chain(3), chain_draft(3)),
            (drawn_tree([(0, 1), (2,)]), static_tree([(0, 1), (0, 0), (1,), (2,)])),
        ):
            trace, best = (run(eagle(lm, head, [1, 2], shape=tree), 12) for tree in (drawn, chosen))
            assert trace.tokens == run(greedy(lm, [1, 2]), 12).tokens
            for one, other in zip(trace.steps[1:], best.steps[1:], strict=True):
                assert paths_in(one.tree) == paths_in(other.tree)


def test_a_drawn_tree_is_drawn_from_what_the_network_says_and_siblings_without_replacement():
    """How often each tree is drafted, by enumeration, against the network's law written out."""
    lm, warp = TableLM.random(3, 1, 2), [temperature(0.7), frequency_penalty(0.5)]
    head, text = eagle1(lm), [0, 2, 1]

    drafts = {}
    for rng in Exhaustive():
        steps = eagle(lm, head, text[:2], shape=drawn_tree([(1,), (1, 0)]), rng=rng, warp=warp)
        if next(steps).tokens == text[2:]:
            step = next(steps)
            assert step.tree.parents == [-1, -1, 1]
            drafted = tuple(step.drafted)
            drafts[drafted] = drafts.get(drafted, 0.0) + rng.weight
    total = sum(drafts.values())

    def row(path):
        return probabilities(law(head, lm, text, path)[None], warp, [[*text, *path]])[0].tolist()

    for one, two, below in itertools.product(range(3), repeat=3):
        prob = row(())[one] * row(())[two] / (1 - row(())[one]) * row((two,))[below] if one != two else 0.0
        assert drafts.get((one, two, below), 0.0) / total == pytest.approx(prob, abs=1e-6)


# ----------------------------------------------------------------------------------------------------------------------
# What it drafts


@every_shape
def test_every_tree_is_what_the_network_makes_of_the_whole_text(models, make, shape):
    lm = LM(models("llama", torch.float64))
    tree, expected = SHAPES[shape]
    head = make(lm, seed=1)
    drafted_anew(lm, head, expected, run(eagle(lm, head, [5, 1, 4], shape=tree, rng=Seeded(1)), 9))


@every_network
def test_trees_follow_the_warps_and_are_no_chains_without_random_draws(make):
    lm = TableLM.random(6, 2, 1, context=20)
    head = make(lm)
    tree, expected = SHAPES["dynamic"]
    for warp, rng in (([temperature(0.5), frequency_penalty(0.8)], Seeded(3)), ([top_k(2)], None)):
        trace = run(eagle(lm, head, [5, 1, 4], shape=tree, rng=rng, warp=warp), 8)
        drafted_anew(lm, head, expected, trace, warp)
        assert not trace.steps[1].tree.is_chain


@pytest.mark.slow
@pytest.mark.parametrize("number, family", list(enumerate(FAMILIES)))
def test_every_tree_is_what_the_network_makes_of_the_whole_text_in_every_family(models, number, family):
    # Gemma 2 caps its logits, which `law` leaves out where the target's head makes them: EAGLE-3 has a head of its own.
    make = eagle3 if family == "gemma2" else list(NETWORKS.values())[number % 3]
    lm = LM(models(family, torch.float64))
    tree, expected = list(SHAPES.values())[number % 3]
    with exactly(torch.float64):
        head = make(lm)
        drafted_anew(lm, head, expected, run(eagle(lm, head, [5, 1, 4, 4, 2, 7, 7, 3], shape=tree), 12))


def test_a_network_that_knows_the_ring_is_right_up_to_the_end_of_every_tree():
    """It is right where token and feature belong together, and nowhere else: by hand."""
    lm = ring(10)
    head = ring_network(lm)
    trace = run(eagle(lm, head, [8, 9, 0], shape=chain_draft(3)), 13)
    assert [step.tokens for step in trace.steps] == [[1], [2, 3, 4, 5], [6, 7, 8, 9], [0, 1, 2, 3]]
    assert [(step.drafted, step.accepted, step.path) for step in trace.steps] == [
        ([], 0, ()), ([2, 3, 4], 3, (0, 1, 2)), ([6, 7, 8], 3, (0, 1, 2)), ([0, 1, 2], 3, (0, 1, 2)),
    ]  # fmt: skip
    assert trace.target_calls == 4
    fixed = static_tree([(1,), (0, 0), (0, 1), (1, 0)])
    for tree, most in ((dynamic_tree(6, 4, 2), 5), (fixed, 3), (drawn_chain(2), 3)):
        for rng in (None, Seeded(0)):
            steps = run(eagle(lm, head, [4], shape=tree, rng=rng, warp=[temperature(0.1)]), 1 + 3 * most).steps
            assert [len(step.tokens) for step in steps] == [1, most, most, most]


def test_after_a_path_it_goes_on_from_the_features_of_that_path():
    """The second best guess is right, and after it the best: what is kept is neither first nor in one piece."""
    lm = ring(10)

    class SecondBest(type(ring_network(lm))):
        def read_out(self, hidden, target=None):
            logits, best = hidden.clone(), hidden.argmax(-1, keepdim=True)
            first = self.calls == 0
            self.calls += 1
            return logits.scatter_(-1, (best + 5) % 10, 6.0) if first else logits

        calls = 0

    head = SecondBest()
    steps = eagle(lm, head, [0], shape=static_tree([(0,), (1,), (0, 0), (1, 0), (1, 0, 0)]))
    text = [0]
    for _ in range(4):
        head.calls = 0
        step = next(steps)
        text += step.tokens
    assert text == [place % 10 for place in range(14)]
    assert (step.tree, step.path) == (TokenTree([5, 0, 5, 1, 2], [-1, -1, 0, 1, 3]), (1, 3, 4))


def test_without_a_tree_it_is_the_dynamic_one_that_the_network_brings(llama):
    head = eagle1(llama)
    head.tree = {"nodes": 5, "depth": 3, "top_k": 2}
    mine, same = (run(eagle(llama, head, [1, 2], **more), 12) for more in ({}, {"shape": dynamic_tree(5, 3, 2)}))
    assert [step.tree for step in mine.steps] == [step.tree for step in same.steps]
    assert {len(step.tree) for step in mine.steps[1:]} == {5}


def test_it_costs_one_call_a_step_and_the_network_one_a_level(llama, monkeypatch):
    from tutorlib.drafting.draft_session import DraftSession

    made = []
    monkeypatch.setattr(
        "tutorlib.drafting.eagle_head.DraftSession", lambda *args: made.append(DraftSession(*args)) or made[-1]
    )
    two = full([2, 2])
    for tree, levels in ((chain_draft(3), 3), (static_tree(two), 2), (drawn_chain(4), 4), (drawn_tree(two), 2)):
        trace = run(eagle(llama, eagle1(llama), [1, 2, 3], shape=tree, rng=Seeded(0)), 20)
        assert trace.target_calls == len(trace.steps)
        assert made[-1].calls == levels * (len(trace.steps) - 1)
        assert made[-1].length == len(trace.prompt) + sum(len(step.tokens) for step in trace.steps[:-1]) - 1
    lm = ring(10, context=3)
    assert run(eagle(lm, ring_network(lm), [0], shape=chain_draft(3)), 9).tokens == [1, 2]
    assert made[-1].calls == 0, "before the last token there is no room for a guess"


def test_a_network_that_is_being_trained_is_used_without_gradients(llama):
    head = eagle3(llama).train().requires_grad_(True)
    assert run(eagle(llama, head, [1, 2, 3], rng=Seeded(1)), 12).tokens
    assert all(weight.grad is None for weight in head.parameters())


# ----------------------------------------------------------------------------------------------------------------------
# Bad input


@pytest.mark.parametrize(
    ("head", "settings", "says"),
    [
        ({"vocab_size": VOCAB + 1}, {}, "the draft network knows 20 tokens, the target 19: it does not fit"),
        ({}, {"shape": dynamic_tree}, r"function of a draft, such as dynamic_tree\(59, 8, 10\), .*, got"),
        ({}, {"shape": drawn_chain}, "shape must be a function of a draft, .*, got <function drawn_chain"),
        ({}, {"shape": lambda draft, room: None}, "shape must be a function of a draft, .*, got <function"),
        ({}, {"shape": 60}, "shape must be a function of a draft, .*, got 60"),
        ({}, {"shape": [(0,), (0, 0)]}, r"shape must be a function of a draft, .*, got \[\(0,\), \(0, 0\)\]"),
        ({}, {"prompt": "Once"}, "this LM has no tokenizer"),
    ],
    ids=in_words,
)
def test_bad_arguments_are_named_at_the_call(llama, head, settings, says):
    with pytest.raises(ValueError, match=says):
        eagle(llama, eagle3(llama, **head), **{"prompt": [1], **settings})


def test_a_tree_that_a_network_brings_is_checked_at_the_call(llama):
    head = eagle1(llama)
    head.tree = {"nodes": 0}
    with pytest.raises(ValueError, match="nodes is how many candidates the tree has.* got 0"):
        eagle(llama, head, [1])
    eagle(llama, head, [1], shape=chain_draft(2))  # it is not asked for


def test_what_is_no_network_or_one_elsewhere_is_said(llama):
    for head in (None, "eagle", llama, torch.nn.Linear(16, 19), MedusaHeads(16, VOCAB)):
        with pytest.raises(ValueError, match=f"head must be an EagleHead or an Eagle3Head, got {type(head).__name__}"):
            eagle(llama, head, [1])
    with pytest.raises(ValueError, match="eagle needs an LM as its argument 'target', got LlamaForCausalLM"):
        eagle(llama.model, eagle1(llama), [1])
    with pytest.raises(ValueError, match=r"the draft network is on meta, the target on cpu: head.to\(target.device\)"):
        eagle(llama, eagle1(llama).to("meta"), [1])


def test_a_network_whose_numbers_are_none_is_said(llama):
    for make in NETWORKS.values():
        head = make(llama)
        head.fc.weight.data[0, 0] = torch.nan
        with pytest.raises(NaNLogits, match="the draft network returned logits that are NaN"):
            run(eagle(llama, head, [1, 2, 3]), 12)
