"""Joints correct a block's guesses by the tokens before them. That they are exact: `test_lossless.py`."""

import json

import pytest
import torch
from conftest import random_model
from draft_networks import best_tree, drafted_anew, joint_head, knowing_joint
from lossless import EXACT, distance, on
from safetensors.torch import load_file
from test_dflash import law, theirs
from test_llama import tiny
from training_runs import habits, loss_of, new, sampled

from tutorlib.decoders.dflash import dflash
from tutorlib.decoders.dspark import dspark
from tutorlib.drafting.checking import drawn
from tutorlib.drafting.dflash2_head import DFlash2Head
from tutorlib.drafting.draft_trees import chain_draft, drawn_chain, dynamic_tree
from tutorlib.drafting.dspark_head import DSparkHead
from tutorlib.drafting.survival import confident_chain, shared_lengths
from tutorlib.lab.training import learner
from tutorlib.lab.training.train_joints import DFlash2Learner, DSparkLearner, new_dflash2, new_dspark
from tutorlib.loading.formats import load_dflash2, load_dspark, save_dflash2, save_dspark
from tutorlib.model.lm import LM
from tutorlib.model.session import NaNLogits
from tutorlib.model.table import TableLM
from tutorlib.model.tree import TokenTree
from tutorlib.running.decoding import run
from tutorlib.sampling.randomness import Exhaustive, Seeded

DSPARK, DFLASH2 = (dspark, DSparkHead), (dflash, DFlash2Head)
joints = pytest.mark.parametrize(("method", "make"), [DSPARK, DFLASH2], ids=["dspark", "dflash2"])


@pytest.fixture(scope="module")
def double():
    return LM(random_model("llama", torch.float64))


@joints
def test_it_drafts_the_block_of_transformers_network_and_a_bias_from_the_token_before(double, method, make):
    head = joint_head(double, make=make)
    network, cached = theirs(head.network), {}

    def corrected(_, lm, text, path):
        rows, states = cached.setdefault(tuple(text), law(network, head.network, lm, list(text)))
        before = head.before.weight[[*text, *path][-1]]
        if make is DFlash2Head:
            before = before * (head.gate.weight @ states[len(path)] + head.gate.bias)
        return rows[len(path)] + head.after.weight @ before

    for shape, wide in ((chain_draft(3), 1), (dynamic_tree(7, 4, 7), 7)):
        trace = run(method(double, head, [3, 1, 4], shape=shape), 16)
        nodes = 3 if wide == 1 else 7
        expected = lambda guess, room, nodes=nodes, wide=wide: best_tree(guess, nodes, min(3, room), wide)[0]  # noqa: E731
        drafted_anew(double, head, expected, trace, law=corrected)


@joints
def test_a_joint_keeps_what_a_block_alone_loses(method, make):
    """After c, a target writes ab or ba. A block with the right distribution of each position keeps 1.5 tokens."""
    both, rest = [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]
    lm = TableLM({"": rest, "c": both, "ca": [0.0, 1.0, 0.0], "cb": [1.0, 0.0, 0.0], "ab": rest, "ba": rest})
    after = TableLM({"": rest, "a": [0.0, 1.0, 0.0], "b": [1.0, 0.0, 0.0], "c": both})
    kept = 0.0
    for rng in Exhaustive():
        steps = method(lm, knowing_joint(after, 3, make), "ab", shape=drawn_chain(2), rng=rng)
        assert next(steps).tokens == [2]
        accepted = next(steps).accepted
        kept += rng.weight * accepted
    assert kept == pytest.approx(2)


def test_a_confident_chain_ends_before_the_token_that_is_not_worth_its_cost():
    lm = TableLM.random(4, 1, 0)
    head = knowing_joint(lm, 5)
    chance = (torch.arange(4) - 1.0).sigmoid().tolist()  # as the joint predicts after each token
    costs = [2.0, 2.6, 3.3, 4.0, 4.7]
    trace = run(dspark(lm, head, [0, 3], shape=confident_chain(costs), rng=Seeded(1)), 60)
    text, lengths = [0, 3, *trace.steps[0].tokens], set()
    for step in trace.steps[1:-1]:
        expected = survival = 1.0
        before, length = [text[-1], *step.drafted], 0
        while length < 4:
            survival *= chance[before[length]]
            if (expected + survival) / costs[length + 1] <= expected / costs[length]:
                break
            expected, length = expected + survival, length + 1
            assert length < len(before)
        assert len(step.drafted) == length
        lengths.add(length)
        text += step.tokens
    assert len(lengths) > 1


def test_who_looks_at_a_token_before_he_drops_it_changes_the_distribution():
    """The same chain, but its last token is dropped if the head is not confident *after* it."""
    lm, draft = TableLM.random(3, 1, 0), TableLM.random(3, 1, 1)

    def looking(shown):
        tokens, q = [], shown.probs()[0]
        token = shown.rng.choose(q)
        shown.grow([token], [-1])
        if shown.session.chances[0] > 0.4:
            tokens = [token]
        return TokenTree.chain(tokens), drawn([q] * len(tokens))

    far = distance(on(dspark, knowing_joint(draft, 3)), lm, [0], 3, shape=looking)
    assert far > 0.01
    before = confident_chain([2.0, 2.6, 3.3])
    assert distance(on(dspark, knowing_joint(draft, 3)), lm, [0], 3, shape=before) < EXACT


def test_texts_that_share_a_call_get_tokens_in_the_order_of_their_survival():
    chances = [[0.9, 0.8, 0.9], [0.3, 0.9, 0.9], []]
    assert shared_lengths(chances, lambda tokens: 1.0) == [3, 3, 0]  # a call that costs the same, however wide
    assert shared_lengths(chances, lambda tokens: tokens) == [0, 0, 0]  # each token costs as much as the first
    # 3 tokens for 13, 3.9 for 14, 4.62 for 15, 5.268 for 16; 5.568 for 17 would be less.
    assert shared_lengths(chances, lambda tokens: 10 + tokens) == [3, 0, 0]


def test_they_learn_a_joint_and_leave_the_network_as_it_is(tmp_path):
    train, held_out = sampled()
    block = new("dflash")
    learner.fit(block, train, held_out, tmp_path / "block", steps=30, rows=8, rate=0.01, progress=False)
    before = {name: weight.clone() for name, weight in block.head.state_dict().items()}
    for kind, new_joint in ((DSparkLearner, new_dspark), (DFlash2Learner, new_dflash2)):
        joint = kind(habits(), new_joint(block.head, 4))
        joint.stride = 2
        untrained = loss_of(joint, held_out).item()
        learner.fit(joint, train, held_out, tmp_path / kind.name, steps=40, rows=8, rate=0.02, progress=False)
        assert loss_of(joint, held_out).item() < untrained - 0.03
        assert all(torch.equal(weight, before[name]) for name, weight in joint.head.network.state_dict().items())
        moved = joint.head.confidence if kind is DSparkLearner else joint.head.gate
        assert joint.head.after.weight.abs().max() > 0 and moved.weight.abs().max() > 0


# -- bad input --


def test_bad_arguments_are_named_at_the_call(double):
    head, pairs = joint_head(double), joint_head(double, make=DFlash2Head)
    for (method, *arguments), said in {
        (dspark, double, head.network): "head must be a DSparkHead, got DFlashHead: family.dspark",
        (dspark, double, pairs): "head must be a DSparkHead, got DFlash2Head",
        (dflash, double, head): "head must be a DFlashHead or DFlash2Head, got DSparkHead",
        (dspark, double, joint_head(LM(tiny()))): "does not fit",
        (dspark, LM(tiny()), head): "does not fit",
        (dflash, LM(tiny()), pairs): "does not fit",
    }.items():
        with pytest.raises(ValueError, match=said):
            method(*arguments, [1])
    with pytest.raises(ValueError, match="shape must be a function of a draft"):
        dspark(double, head, [1], shape=3)
    with pytest.raises(ValueError, match="a joint needs a DFlashHead: family.dflash, for instance, got object"):
        DSparkHead(object())
    with pytest.raises(ValueError, match="rank is the width of a joint's two matrices"):
        DSparkHead(head.network, 0)
    for costs in ([1.0], [1.0, -1.0], [1.0, float("nan")], [1.0, "2"]):
        with pytest.raises(ValueError, match="costs are the times of rounds with 0, 1, 2"):
            confident_chain(costs)
    with pytest.raises(ValueError, match="confident_chain needs a head that predicts acceptance"):
        run(dflash(double, pairs, [1], shape=confident_chain([1.0, 1.1])), 8)
    for method, make in (DSPARK, DFLASH2):
        broken = joint_head(double, make=make)
        broken.after.weight.data[3, 0] = float("nan")
        with pytest.raises(NaNLogits, match=f"the {make.title} returned logits that are NaN"):
            run(method(double, broken, [1]), 8)


@pytest.mark.parametrize(
    ("make", "save", "load"), [(DSparkHead, save_dspark, load_dspark), (DFlash2Head, save_dflash2, load_dflash2)]
)
def test_what_was_saved_is_loaded_and_what_is_wrong_is_named(double, tmp_path, make, save, load):
    head = joint_head(double, make=make)
    path = save(head, tmp_path, base="somebody/model")
    assert load_file(path).keys() == head.joint.keys()  # and nothing of the network
    again = load(tmp_path, head.network)
    assert again.network is head.network and all(
        torch.equal(weight, again.joint[name]) for name, weight in head.joint.items()
    )
    good = json.loads((tmp_path / "config.json").read_text())
    (rank,) = (key for key in good if key.endswith("_rank"))
    for key, (value, said) in {
        "architectures": (["DFlashDraftModel"], f"is not of a {make.title}"),
        rank: (2, "before.weight has shape"),
        "vocab_size": (18, "the joint has vocab_size 18, the DFlash network 19"),
        "hidden_size": (1 << 20, "do not belong together"),
    }.items():
        (tmp_path / "config.json").write_text(json.dumps(good | {key: value}))
        with pytest.raises(ValueError, match=said):
            load(tmp_path, head.network)
