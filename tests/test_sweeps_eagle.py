"""The sweep of chapters 16 and 17 over trees and methods: it counts what it says, and the file holds what is said."""

from types import SimpleNamespace

import pytest
import torch
from draft_networks import eagle1, eagle3, features_of, law, paths_in

from tutorlib.decoders.greedy import greedy
from tutorlib.drafting.checking import drawn
from tutorlib.drafting.choices import grow
from tutorlib.drafting.draft_trees import (
    Draft,
    chain_draft,
    drafted_with_rule,
    drawn_tree,
    dynamic_tree,
    static_tree,
    without,
)
from tutorlib.drafting.medusa_heads import MedusaHeads
from tutorlib.lab.experiments import eagle as sweep
from tutorlib.lab.experiments import results
from tutorlib.model.lm import LM
from tutorlib.model.tree import TokenTree
from tutorlib.running.decoding import run, run_batch
from tutorlib.sampling.randomness import Exhaustive, Seeded

SHAPES = {
    "chain": chain_draft(3),
    "static": static_tree([(0, 0), (0, 1), (2,), (1, 0)]),
    "dynamic": dynamic_tree(9, 3, 3),
    "drawn": drawn_tree([(0, 0, 0), (1,), (0, 1)]),
}


def rows():
    return results("eagle")["rows"]


def drafted(lm, head, text, shape):
    """What a shape makes of a text, and the session that it asked."""
    session = head.session(lm)
    logits = session.feed(text[1:], features_of(lm, text, head.feature_layers)[:-1])
    tree, _ = drafted_with_rule(shape, Draft(session, logits, text, (), 8, Seeded(0)))
    return tree, session


def assert_chances(head, lm, text, tree, chances):
    """Those of whole paths, by the network's arithmetic."""
    for node, chance in enumerate(chances):
        path, due = [tree.tokens[above] for above in tree.path(node)], 1.0
        for place, token in enumerate(path):
            due *= float(law(head, lm, text, path[:place]).softmax(-1)[token])
        assert chance == pytest.approx(due, rel=1e-4)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_the_probabilities_that_are_noted_are_those_of_whole_paths_and_the_tree_is_the_same(shape, llama):
    head, text = eagle1(llama), [3, 1, 4, 1, 5]
    watched = sweep.Confidences(shape)
    tree, session = drafted(llama, head, text, watched)
    assert watched.trees == [tree] and watched.calls == [session.calls]
    plain, _ = drafted(llama, head, text, shape)
    assert (tree.tokens, tree.parents) == (plain.tokens, plain.parents) and len(paths_in(tree)) == len(tree)
    assert_chances(head, llama, text, tree, watched.chances[0])


@pytest.mark.parametrize("make", (eagle1, eagle3))
def test_a_draft_after_a_text_is_the_networks_with_the_probability_of_each_path(make, llama):
    head, text = make(llama), [3, 1, 4, 1, 5]
    tree, chances = sweep.drafted(llama, head, text, SHAPES["dynamic"])
    plain, _ = drafted(llama, head, text, SHAPES["dynamic"])
    assert (tree.tokens, tree.parents) == (plain.tokens, plain.parents)
    assert_chances(head, llama, text, tree, chances)


def test_levels_are_shares_of_the_steps_that_came_so_far():
    assert sweep.levels([3, 1, 0, 2], deepest=4, least=2) == [3 / 4, 2 / 3, 1 / 2]
    assert sweep.levels([3, 1, 0, 2], deepest=4, least=1) == [3 / 4, 2 / 3, 1 / 2, 0]
    assert sweep.levels([1, 1], deepest=1, least=1) == [1], "nothing is deeper than the trees were"


def test_confidence_is_binned_by_the_networks_probability():
    drafts = [([0.95, 0.05, 0.5], (0, 2)), ([1.0, 0.85, 0.07, 0.41], ())]
    found = sweep.accepted_by_confidence(drafts)
    assert [count for _, _, count in found] == [2, 1, 1, 1, 2]
    means, shares, _ = zip(*found, strict=True)
    assert means == pytest.approx((0.06, 0.41, 0.5, 0.85, 0.975)) and shares == (0, 0, 1, 0, 0.5)


@pytest.fixture
def few(monkeypatch, llama):
    """Few short texts, of tokens."""
    small = {
        **sweep.SETTING, "prompts": 3, "fewer_prompts": 2, "tokens": 12, "depth": 3, "ranked_texts": 4,
        "ranked_tokens": 5,
    }  # fmt: skip
    monkeypatch.setattr(sweep, "SETTING", small)
    monkeypatch.setattr(
        sweep,
        "story_prompts",
        lambda lm, count, first_seed=0: [[1 + i, 6] if first_seed else [2 + i, 7, 1] for i in range(count)],
    )
    sweep.ranks.cache_clear()
    yield small
    sweep.ranks.cache_clear()


def test_ranks_are_counted_as_somebody_would_who_knows_nothing_of_training(few, llama, monkeypatch):
    texts = []

    def telling(rounds, *args, **how):
        texts.extend(run_batch(rounds, *args, **how))
        return texts

    monkeypatch.setattr(sweep, "run_batch", telling)
    head = eagle1(llama)
    found = torch.tensor(sweep.ranks(llama, head, False))
    assert found.shape == (3, 10)
    for level in range(3):
        counts, seen = [0] * 10, 0
        for text in texts:
            prompt, tokens = text.prompt, text.prompt + text.tokens
            for place in range(2, len(tokens) - level):  # the text before the guesses
                if place + level >= len(prompt):
                    guessed = law(head, llama, tokens[:place], tokens[place : place + level])
                    rank = int((guessed > guessed[tokens[place + level]]).sum())
                    seen += 1
                    if rank < 10:
                        counts[rank] += 1
        assert found[level].tolist() == pytest.approx([count / seen for count in counts])
    for text, is_greedy in zip(texts, (False, True, False, True), strict=True):
        cold = run(greedy(llama, text.prompt), few["ranked_tokens"], stop=(), progress=False).tokens
        assert (text.tokens == cold) == is_greedy
    assert sweep.shape(llama, head, 5)[0] == (int(found[0].argmax()),)


def test_how_often_a_drawn_child_is_kept_is_what_checking_it_gives():
    target, draft = (torch.tensor(row, dtype=torch.float64) for row in ([0.5, 0.3, 0.2, 0], [0.1, 0.5, 0.2, 0.2]))
    due = [0.0] * 4
    for rng in Exhaustive():
        tokens, laws, left = [], [], draft
        while left is not None:
            tokens, laws = [*tokens, rng.choose(left)], [*laws, left]
            left = without(left, tokens[-1])
        path, _ = drawn(laws)(TokenTree(tokens, [-1] * 4), lambda node: target if node < 0 else draft, rng)
        due[path[0]] += rng.weight
    found = sweep.kept(target.expand(20_000, -1), draft.expand(20_000, -1), 4, torch.Generator().manual_seed(0))
    assert found.mean(0).tolist() == pytest.approx(due, abs=0.01)
    assert due[0] == pytest.approx(0.1 + 0.3 + 0.2), "the sum of min(p, q)"


def test_trees_of_drawn_tokens_grow_from_how_often_these_are_kept(few, llama):
    head = eagle1(llama)
    shares = sweep.ranks(llama, head, True)
    assert len(shares) == 3 and all(0 <= share <= 1 for level in shares for share in level)
    assert all(sum(level) <= 1 + 1e-6 for level in shares) and shares != sweep.ranks(llama, head, False)
    assert sweep.shape(llama, head, 5, drawn=True) == grow(shares, 5)


@pytest.fixture
def family(llama, few):
    torch.manual_seed(0)
    heads = MedusaHeads(llama.width, llama.vocab_size, 2, accuracies=[[0.6, 0.2, 0.1, 0.1], [0.5, 0.2, 0.1, 0.1]])
    networks = {"eagle": eagle1(llama), "eagle3": eagle3(llama)}
    for network in networks.values():
        network.tree = {"nodes": 6, "depth": 3, "top_k": 2}
    return SimpleNamespace(target=llama, draft=LM(llama.model), medusa=heads, **networks)


# Each method one way: both ways of every method are the same code.
NAMES = [
    "draft model, greedy, 8 nodes",
    "prompt lookup, sampling, 8 nodes",
    "medusa, greedy, 8 nodes",
    "EAGLE-1, greedy, 4 nodes",
    "EAGLE-1, sampling, 4 nodes",  # drawn
    "EAGLE-1 chosen, sampling, 4 nodes",
    "EAGLE-2, sampling, 4 nodes",
    "EAGLE-3 cooled, greedy, 4 nodes",
    "EAGLE-3 drawn chain, sampling, 4 nodes",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_row_counts_tokens_calls_and_candidates(name, family):
    for drawn_too in (False, True):
        sweep.shape(family.target, family.eagle, 1, drawn_too)  # which is no part of the row
    before = family.target.calls
    row = sweep.row(family, name)
    assert row["tokens"] == 12 * (3 if name in sweep.MANY else 2)
    assert row["per_call"] == pytest.approx(row["tokens"] / row["calls"])
    assert row["calls"] == family.target.calls - before
    is_tree = name.startswith("EAGLE")
    assert ("confidence" in row) == ("draft_calls" in row) == is_tree
    if is_tree:
        whole = sum(count for _, _, count in row["confidence"])
        accepted = sum(share * count for _, share, count in row["confidence"])
        assert row["accepted"] / row["candidates"] == pytest.approx(accepted / whole)
    assert all(0 <= share <= 1 for share in row["levels"])
    if is_tree and "sampling" in name:
        assert sweep.row(family, name) == row, "the same again"


def test_the_sizes_of_trees_are_what_the_rows_names_say(family):
    assert sweep.row(family, "EAGLE-2, greedy, 4 nodes")["candidates"] == 4
    two_deep = sweep.row(family, "EAGLE-2, sampling, 59 nodes, depth 2")
    assert two_deep["draft_calls"] == 2 and two_deep["accepted"] <= 2
    one = sweep.row(family, "EAGLE-3 chain, greedy, 2 nodes")
    assert one["candidates"] == one["draft_calls"] == 2


def test_a_draft_that_is_the_target_is_accepted_at_every_level(family):
    row = sweep.row(family, "draft model, greedy, 8 nodes")
    assert row["candidates"] == row["accepted"] == 8
    assert row["calls"] == 6, "three texts of 12 tokens, each in a step of 9 and one that is cut to fit"


def per_call(name):
    return rows()[name]["per_call"]


def test_what_the_chapter_says_of_the_results_is_so():
    for way in sweep.WAYS:
        for many in (True, False):
            drawn = [name for name in sweep.SETTINGS if "drawn" in name or name.startswith("EAGLE-1, sampling")]
            same = [name for name in sweep.SETTINGS if way in name and "EAGLE" in name and name not in drawn]
            same = {rows()[name]["tokens"] for name in same if (name in sweep.MANY) == many}
            assert len(same) == 1, "all trees of chosen tokens write the same text"
    # Greedily, with 8 candidates each, all of EAGLE beats what came before, of which Medusa is the best.
    three = [per_call(f"{method}, greedy, 8 nodes") for method in ("EAGLE-1", "EAGLE-2 cooled", "EAGLE-3 cooled")]
    others = {method: per_call(f"{method}, greedy, 8 nodes") for method in ("draft model", "prompt lookup", "medusa")}
    assert max(three) - min(three) < 0.3 and max(others.values()) == others["medusa"]
    assert min(three) > 1.2 * others["medusa"]
    # Greedily, small dynamic trees waste nodes on second choices, and cooling mends that; large ones have room.
    for nodes in (4, 8, 16, 32, 59):
        cooled = per_call(f"EAGLE-2 cooled, greedy, {nodes} nodes")
        assert cooled > per_call(f"EAGLE-2, greedy, {nodes} nodes")
        fixed = per_call(f"EAGLE-1, greedy, {nodes} nodes")
        assert (cooled > 1.1 * fixed) if nodes > 8 else abs(cooled - fixed) < 0.1
        assert (per_call(f"EAGLE-2, greedy, {nodes} nodes") > fixed) == (nodes > 8)
        chosen = per_call(f"EAGLE-1 chosen, sampling, {nodes} nodes")
        assert per_call(f"EAGLE-2, sampling, {nodes} nodes") > chosen
        # Drawn tokens are accepted further than chosen ones, and the more of them there are.
        assert per_call(f"EAGLE-1, sampling, {nodes} nodes") > 1.4 * chosen
    drawn = [per_call(f"EAGLE-1, sampling, {nodes} nodes") for nodes in sweep.SIZES]
    assert drawn[:5] == sorted(drawn[:5]) and max(drawn) - drawn[4] < 0.3, "trees of more nodes gain nothing"
    assert drawn[3] > per_call("EAGLE-2, sampling, 59 nodes")
    assert drawn[3] > 1.8 * per_call("EAGLE-1 chosen, sampling, 8 nodes")
    # Up to 8 nodes the best drawn tree is a chain. A longer chain gives more than a tree of as many nodes.
    for nodes in sweep.CHAINS:
        assert rows()[f"EAGLE-1 drawn chain, sampling, {nodes} nodes"] == rows()[f"EAGLE-1, sampling, {nodes} nodes"]
    assert per_call("EAGLE-1 drawn chain, sampling, 16 nodes") > drawn[4]
    for method in ("draft model", "EAGLE-3 drawn chain"):
        assert 7 < per_call(f"{method}, sampling, 8 nodes") < 8
    for method in ("EAGLE-1 chosen", "EAGLE-2", "EAGLE-3"):
        assert 2.5 < per_call(f"{method}, sampling, 8 nodes") < 4


def test_confidence_is_what_it_is_worth_for_most_candidates():
    def off(name):
        """The farthest that confidence is from acceptance, where there are many candidates."""
        return max(abs(mean - share) for mean, share, count in rows()[name]["confidence"] if count >= 100)

    assert off("EAGLE-2, sampling, 59 nodes") < 0.03
    assert off("EAGLE-2, greedy, 59 nodes") < 0.1 and off("EAGLE-2 cooled, greedy, 59 nodes") < 0.1
    # Greedily, that is an average: the best guesses alone are accepted far more often than the network says.
    best = [group for group in rows()["EAGLE-1 chain, greedy, 8 nodes"]["confidence"] if group[2] >= 30]
    assert all(share - mean > 0.15 for mean, share, _ in best if mean < 0.9)
    assert any(abs(mean - 0.14) < 0.01 and abs(share - 0.5) < 0.02 for mean, share, _ in best), "half of them"


def test_eagle3_gains_nothing_in_the_village_and_drawn_tokens_are_nearly_always_accepted():
    two, three = per_call("EAGLE-2 cooled, greedy, 59 nodes"), per_call("EAGLE-3 cooled, greedy, 59 nodes")
    assert two - three > 0.4
    assert per_call("EAGLE-3, sampling, 59 nodes") == pytest.approx(per_call("EAGLE-2, sampling, 59 nodes"), abs=0.05)
    for method in ("draft model", "EAGLE-3 drawn chain"):
        assert min(rows()[f"{method}, sampling, 8 nodes"]["levels"]) > 0.95
    assert sum(share < 0.5 for share in rows()["draft model, greedy, 8 nodes"]["levels"]) == 3
