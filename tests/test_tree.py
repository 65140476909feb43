"""TokenTree: its shape, its mask, and the walk down it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tutorlib.drafting.checking import walk
from tutorlib.model.tree import TokenTree


@st.composite
def trees(draw):
    size = draw(st.integers(0, 12))
    tokens = draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    return TokenTree(tokens, [draw(st.integers(-1, node - 1)) for node in range(size)])


@pytest.fixture
def tree():
    """
    0:5 ── 1:7 ── 3:9
       └── 2:8
    4:6
    """
    return TokenTree([5, 7, 8, 9, 6], [-1, 0, 0, 1, -1])


def test_depths_children_and_paths_of_a_drawn_tree(tree):
    assert tree.depths == [0, 1, 1, 2, 0]
    assert tree.children() == [0, 4]
    assert tree.children(0) == [1, 2]
    assert tree.children(3) == []
    assert tree.path(3) == [0, 1, 3]
    assert tree.path(-1) == []
    assert tree.paths() == [[0, 2], [0, 1, 3], [4]]
    assert len(tree) == 5
    assert tree == TokenTree([5, 7, 8, 9, 6], (-1, 0, 0, 1, -1)) != TokenTree.chain([5, 7, 8, 9, 6])


@settings(max_examples=40, deadline=None)
@given(trees())
def test_a_node_sees_its_path_and_nothing_else_and_is_as_deep_as_it_has_ancestors(tree):
    assert tree.mask().dtype == torch.bool
    seen = [row.nonzero().flatten().tolist() for row in tree.mask()]
    assert seen == [tree.path(node) for node in range(len(tree))]
    assert tree.depths == [len(path) - 1 for path in seen]
    assert tree.is_chain == (len(tree.paths()) <= 1)


def test_a_chain_has_the_causal_mask():
    chain = TokenTree.chain([4, 4, 2])
    assert (chain.tokens, chain.parents) == ([4, 4, 2], [-1, 0, 1])
    assert chain.is_chain
    assert torch.equal(chain.mask(), torch.ones(3, 3, dtype=torch.bool).tril())


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(0, 2), max_size=4), max_size=6))
def test_a_tree_from_paths_holds_each_path_once(paths):
    tree = TokenTree.from_paths(paths)
    spelled = [tuple(tree.tokens[node] for node in tree.path(node)) for node in range(len(tree))]
    prefixes = {tuple(path[: end + 1]) for path in paths for end in range(len(path))}
    assert len(spelled) == len(set(spelled))
    assert set(spelled) == prefixes


@pytest.mark.parametrize(
    "tokens, parents, message",
    [
        ([1, 2], [-1], "2 tokens and 1 parents"),
        ([1, 2], [-1, 1], "node 1 has parent 1"),
        ([1, 2], [1, -1], "node 0 has parent 1"),
        ([1], [-2], "node 0 has parent -2"),
    ],
)
def test_what_is_no_tree_is_refused(tokens, parents, message):
    with pytest.raises(ValueError, match=message):
        TokenTree(tokens, parents)


@pytest.mark.parametrize(
    ("tokens", "parents"), [([1.7], [-1]), ([1], [-0.9]), ([True], [-1]), ({1, 2}, [-1, -1]), (b"a", [-1])], ids=str
)
def test_numbers_that_are_not_whole_are_refused_and_not_cut(tokens, parents):
    with pytest.raises(ValueError, match=r"\(ints\), got"):
        TokenTree(tokens, parents)
    with pytest.raises(ValueError, match=r"a path must hold token ids \(ints\), got \[1.7\]"):
        TokenTree.from_paths([[1.7]])


# ----------------------------------------------------------------------------------------------------------------------
# The walk


def test_the_walk_goes_on_while_a_child_holds_the_drawn_token(tree):
    choices = {-1: 5, 0: 7, 1: 9, 3: 2}
    assert walk(tree, choices.__getitem__) == ([0, 1, 3], [5, 7, 9, 2])


def test_the_walk_stops_at_the_first_token_that_no_child_holds(tree):
    asked = []
    choices = {-1: 5, 0: 9}
    assert walk(tree, lambda node: asked.append(node) or choices[node]) == ([0], [5, 9])
    assert asked == [-1, 0]  # one draw a node on the way, and none elsewhere


def test_the_walk_can_start_below_a_node_known_to_be_right(tree):
    assert walk(tree, {0: 8, 2: 1}.__getitem__, start=0) == ([2], [8, 1])


@settings(max_examples=40, deadline=None)
@given(trees())
def test_the_walk_gives_one_token_more_than_nodes_and_keeps_to_the_tree(tree):
    path, tokens = walk(tree, lambda node: (node * 7 + 3) % 4)
    assert len(tokens) == len(path) + 1
    assert [tree.tokens[node] for node in path] == tokens[:-1]
    assert [-1, *path][: len(path)] == [tree.parents[node] for node in path]
