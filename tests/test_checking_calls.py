"""One call for a tree: its logits are those of each path by itself, and the session goes on from the accepted one."""

import pytest
import torch
from conftest import VOCAB, exactly

from tutorlib.checking import check_tree, typical_acceptance
from tutorlib.lm import LM
from tutorlib.randomness import Greedy, Seeded
from tutorlib.table import TableLM
from tutorlib.tree import TokenTree
from tutorlib.warp import frequency_penalty

TEXT = [1, 2, 3, 4, 2, 7, 7, 0, 5]  # longer than the window of the families that have one
TREE = TokenTree.from_paths([[3, 1, 4], [3, 1, 5], [3, 6], [8], [9, 3, 1, 1]])


def opened(lm, text, hidden=None):
    session = lm.session(text, hidden=hidden)
    session.rollback(1)
    return session


def taking(*nodes):
    """A rule that accepts these nodes, whatever the target says."""

    def accept(tree, probs_at, rng):
        return list(nodes), rng.choose(probs_at(nodes[-1] if nodes else -1))

    return accept


def test_the_trees_logits_are_those_of_each_path_by_itself(models, family):
    lm = LM(models(family, torch.float64))
    with exactly(torch.float64):
        checked = check_tree(opened(lm, TEXT), TEXT, TREE, Greedy(), [])
        assert checked.logits.shape == (len(TREE) + 1, VOCAB)
        for node in range(-1, len(TREE)):
            alone = lm.session(TEXT + [TREE.tokens[above] for above in TREE.path(node)]).feed()[-1]
            assert torch.allclose(checked.logits[node + 1], alone, rtol=0, atol=1e-10)


def test_the_session_goes_on_from_every_node_as_if_its_path_had_been_fed(models, family):
    lm = LM(models(family, torch.float64))
    with exactly(torch.float64):
        for node in (-1, 0, 3, 4, len(TREE) - 1):
            session, path = opened(lm, TEXT), TREE.path(node)
            checked = check_tree(session, TEXT, TREE, Greedy(), [], taking(*path))
            text = TEXT + checked.tokens
            assert checked.tokens[:-1] == [TREE.tokens[above] for above in path]
            assert session.tokens == text[:-1]
            again = check_tree(session, text, TokenTree.chain([4, 4]), Greedy(), [])
            alone = lm.session([*text, 4, 4]).feed()[-1]
            assert torch.allclose(again.logits[-1], alone, rtol=0, atol=1e-10)


def test_the_last_row_is_the_one_the_last_token_was_drawn_from(llama):
    for node in (-1, 2, 6):
        session = opened(llama, TEXT, hidden=-1)
        checked = check_tree(session, TEXT, TREE, Greedy(), [], taking(*TREE.path(node)))
        assert checked.rows[-1] == node + 1
        assert checked.tokens[-1] == int(checked.logits[checked.rows[-1]].argmax())
        alone = llama.session(TEXT + checked.tokens[:-1], hidden=-1)
        alone.feed()
        assert torch.allclose(session.hidden[checked.rows[-1]], alone.hidden[-1], atol=1e-4)


def test_an_empty_tree_is_a_plain_step(llama):
    checked = check_tree(opened(llama, TEXT), TEXT, TokenTree([], []), Greedy(), [])
    assert (checked.path, checked.rows[-1], checked.logits.shape) == ([], 0, (1, VOCAB))
    assert checked.tokens == [int(llama.session(TEXT).feed()[-1].argmax())]


def test_it_costs_one_call(llama):
    before = llama.calls
    check_tree(opened(llama, [5]), [5], TREE, Seeded(1), [], typical_acceptance())
    assert llama.calls == before + 1


@pytest.mark.parametrize("accept", [None, typical_acceptance(0.05, 0.3)], ids=["exact", "typical"])
def test_each_place_is_warped_with_the_tokens_before_it(accept):
    """By hand: a penalty of 0.5 a time on the log-probabilities of a table."""
    lm, text, tree = TableLM.random(3, 2, 4), [0, 1, 0], TokenTree.from_paths([[0, 0], [1, 0], [2, 0]])
    rule = {} if accept is None else {"accept": accept}
    for seed in range(12):
        checked = check_tree(opened(lm, text), text, tree, Seeded(seed), [frequency_penalty(0.5)], **rule)
        for place, weighed in enumerate(checked.weighed):
            before = text + checked.tokens[:place]
            counts = torch.tensor([before.count(token) for token in range(3)])
            probs = (lm.log_probs(before) - 0.5 * counts).softmax(-1)
            assert dict(weighed) == pytest.approx(dict(enumerate(probs.tolist())))
        assert len(checked.weighed) == len(checked.tokens) == len(checked.path) + 1


def test_only_rows_that_the_rule_asks_for_are_warped():
    seen = []

    def watch(logits, histories):
        seen.extend(map(tuple, histories))
        return logits

    lm, text = TableLM.random(3, 2, 4), [0, 1]
    tree = TokenTree.from_paths([[0, 0], [1, 0], [2, 0]])
    checked = check_tree(opened(lm, text), text, tree, Seeded(3), [watch])
    assert seen == [tuple(text + checked.tokens[:count]) for count in range(len(checked.tokens))]
