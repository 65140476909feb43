"""Trees of guesses: EAGLE-2's is that of a search without short cuts, for less work; the others are what they say."""

import math
import random

import pytest
import torch
from conftest import in_words
from draft_networks import best_tree, paths_in, ranked, tree_of_ranks

from tutorlib.drafting.checking import exact
from tutorlib.drafting.choices import full
from tutorlib.drafting.draft_trees import (
    Draft,
    chain_draft,
    drafted_with_rule,
    drawn_chain,
    drawn_tree,
    dynamic_tree,
    static_tree,
)
from tutorlib.drafting.rules import match
from tutorlib.model.tree import ROOT, TokenTree
from tutorlib.sampling.warp import frequency_penalty, no_repeat_ngram, one_hot, temperature, top_k

FAR = 99  # more levels than any tree here has
TEXT = [3, 1, 4, 1, 5]


def anything(vocab=12, seed=0, sharpness=2.0, unknown=()):
    """Log-probabilities after any path: random, the same at each question. `unknown` tokens have none."""

    def guess(path):
        rng = random.Random(f"{seed} {tuple(path)}")
        logits = [-math.inf if token in unknown else sharpness * rng.gauss(0, 1) for token in range(vocab)]
        total = math.log(sum(math.exp(logit) for logit in logits))
        return [logit - total for logit in logits]

    return guess


class Network:
    """Stands where a session of a draft network stands, and says what it was told to."""

    def __init__(self, guess):
        self.guess, self.paths, self.reads = guess, [], []

    def grow(self, tokens, parents):
        self.reads.append(len(tokens))
        new = [(*(self.paths[parent] if parent != ROOT else ()), token) for token, parent in zip(tokens, parents)]
        self.paths += new
        return self.logits(new)

    def logits(self, paths):
        return torch.tensor([self.guess(path) for path in paths], dtype=torch.float64)


def grown(shape, guess, depth=FAR, text=(), warp=()):
    """The tree of a shape as a set of paths, and how many guesses the network read at each of its calls."""
    network = Network(guess)
    tree = shape(Draft(network, network.logits([()]), list(text), warp, depth))
    assert isinstance(tree, TokenTree)
    return paths_in(tree), network.reads


def after(warp, guess, text=()):
    """What `guess` says once it is warped."""

    def warped(path):
        logits = torch.tensor([guess(path)], dtype=torch.float64)
        for function in warp:
            logits = function(logits, [[*text, *path]])
        return logits.softmax(-1)[0].nan_to_num(0.0).log().tolist()

    return warped


# ----------------------------------------------------------------------------------------------------------------------
# EAGLE-2's


SIZES = [(1, 1, 1), (3, 2, 2), (4, 8, 1), (5, 3, 4), (7, 2, 3), (10, 5, 3), (17, 4, 12), (30, 6, 5), (59, 8, 10)]


@pytest.mark.parametrize(("nodes", "depth", "top"), SIZES)
def test_the_dynamic_tree_is_that_of_the_paper_for_no_more_work(nodes, depth, top):
    for seed, sharpness in enumerate((0.2, 1.0, 4.0, 12.0)):
        guess = anything(seed=seed, sharpness=sharpness)
        made, reads = grown(dynamic_tree(nodes, depth, top), guess)
        expected, their_reads = best_tree(guess, nodes, depth, top)
        assert made == expected
        assert len(reads) <= len(their_reads) <= depth - 1
        assert all(mine <= theirs for mine, theirs in zip(reads, their_reads))


def test_it_asks_no_more_than_it_has_to():
    """Of a sure network the tree is one path; a path that has no chance is not guessed on from."""
    guess = anything(seed=1, sharpness=12.0)
    _, reads = grown(dynamic_tree(6, 8, 10), guess)
    _, their_reads = best_tree(guess, 6, 8, 10)
    assert sum(reads) < sum(their_reads) / 5
    even = [math.log(1 / 12)] * 12
    assert grown(dynamic_tree(10, 8, 10), lambda path: even)[1] == [], "ten guesses as good as each other are the tree"


def test_where_all_are_equal_the_shorter_paths_are_kept():
    paths, _ = grown(dynamic_tree(6, 3, 2), lambda path: [math.log(0.5)] * 2)
    assert paths == {(0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1)}


def test_a_path_of_certain_guesses_is_as_long_as_the_tree_may_be():
    """Each is as good as the one above it, which must not be left out for it."""

    def certain(path):
        return [0.0 if token == (path or (2,))[-1] + 1 else -math.inf for token in range(12)]

    assert grown(dynamic_tree(4, 8, 10), certain) == ({(3,), (3, 4), (3, 4, 5), (3, 4, 5, 6)}, [1, 1, 1])
    assert grown(dynamic_tree(59, 5, 10), certain) == ({tuple(range(3, end)) for end in range(4, 9)}, [1] * 4)


def test_paths_below_the_confidence_are_not_guessed_on_from():
    for seed, confidence in enumerate((0.02, 0.2, 0.7, 1.0)):
        guess = anything(seed=seed, sharpness=4.0)
        made, reads = grown(dynamic_tree(20, 6, 4, confidence), guess)
        expected, their_reads = best_tree(guess, 20, 6, 4, confidence)
        assert made == expected
        assert sum(reads) <= sum(their_reads)
    assert grown(dynamic_tree(20, 6, 4, 1.0), guess)[1] == [], "a guess is not certain"


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_tree_is_no_deeper_than_there_is_room(depth):
    guess = anything(seed=2)
    for shape, expected in (
        (dynamic_tree(20, 6, 4), best_tree(guess, 20, depth, 4)[0]),
        (static_tree(SHAPES["sparse"]), tree_of_ranks(guess, SHAPES["sparse"], depth)),
    ):
        made, reads = grown(shape, guess, depth)
        assert made == expected and len(reads) == depth - 1


# ----------------------------------------------------------------------------------------------------------------------
# Chains, and trees of ranks


def test_a_chain_is_the_best_guess_after_the_best_guess():
    for length in (1, 2, 5):
        guess, path = anything(seed=length), ()
        for _ in range(length):
            path += (max(range(12), key=guess(path).__getitem__),)
        made, reads = grown(chain_draft(length), guess)
        assert made == {path[: 1 + end] for end in range(length)}
        assert reads == [1] * (length - 1)
        assert made == grown(dynamic_tree(length, length, 1), guess)[0]
    assert grown(chain_draft(5), guess, depth=2) == ({path[:1], path[:2]}, [1])


def test_a_chain_ends_where_all_of_it_has_become_unsure():
    """Each guess has probability 0.6: 0.6, 0.36, 0.216."""

    def guess(path):
        return [math.log(0.3), math.log(0.6), math.log(0.1)]

    lengths = [len(grown(chain_draft(6, confidence), guess)[0]) for confidence in (0.7, 0.5, 0.3, 0.2, 0.0)]
    assert lengths == [1, 2, 3, 4, 6]


SHAPES = {
    "one": [(0,)],
    "chain": [(0, 0, 0)],
    "full": full([3, 2, 2]),
    "sparse": [(0,), (1,), (2,), (0, 0), (0, 3), (1, 1), (0, 0, 0), (0, 3, 2), (1, 1, 4), (1, 1, 4, 0)],
    "beginnings left out": [(2, 1, 0, 3), (2, 0), (5,)],
}


@pytest.mark.parametrize("paths", SHAPES.values(), ids=SHAPES)
def test_a_static_tree_has_the_same_ranks_in_every_step(paths):
    for seed in range(4):
        guess = anything(seed=seed)
        made, reads = grown(static_tree(paths), guess)
        assert made == tree_of_ranks(guess, paths, FAR)
        inner = {path[:end] for path in paths for end in range(1, len(path))}  # what something is guessed after
        assert reads == [sum(len(path) == level for path in inner) for level in range(1, max(map(len, paths)))]


# ----------------------------------------------------------------------------------------------------------------------
# Trees that are drawn


class Drawing:
    """Draws what it was told to, and notes from which law."""

    def __init__(self, tokens):
        self.tokens, self.laws = list(tokens), []

    def choose(self, probs):
        self.laws.append(torch.as_tensor(probs))
        return self.tokens[len(self.laws) - 1]


def drawn_from(guess, tokens, shape, depth=FAR, text=(), warp=()):
    """What a shape drafts when these tokens are drawn; the laws, the rule, and what the network read."""
    network, rng = Network(guess), Drawing(tokens)
    draft = Draft(network, network.logits([()]), list(text), warp, depth, rng)
    tree, rule = drafted_with_rule(shape, draft)
    return tree, rng.laws, rule, network.reads


every_draw = pytest.mark.parametrize(
    "warp", [[], [temperature(0.4), frequency_penalty(0.7)], [top_k(2)]], ids=["none", "two", "k"]
)


def due(warp, guess, text, path):
    return torch.tensor(after(warp, guess, text)(tuple(path)), dtype=torch.float64).exp()


@every_draw
def test_each_token_of_a_drawn_chain_is_drawn_from_the_warped_law_after_those_before_it(warp):
    guess, drawn = anything(vocab=6, seed=4), [4, 4, 0, 2]
    tree, laws, rule, reads = drawn_from(guess, drawn, drawn_chain(4), text=TEXT, warp=warp)
    assert tree == TokenTree.chain(drawn) and reads == [1, 1, 1]
    for place, law in enumerate(laws):
        assert law.dtype == torch.float64 and torch.allclose(law, due(warp, guess, TEXT, drawn[:place]), atol=1e-12)
    assert len(laws) == 4 and rule is not exact


def test_a_chain_that_is_matched_has_the_most_likely_tokens():
    guess = anything(vocab=6, seed=4)
    tree, _, rule, _ = drawn_from(guess, [0, 0, 0], drawn_chain(3, match), text=TEXT)
    assert tree.tokens == [int(due([], guess, TEXT, tree.tokens[:place]).argmax()) for place in range(3)]
    assert rule is exact


@every_draw
def test_siblings_are_drawn_without_the_earlier_ones_and_a_node_has_no_more_children_than_are_possible(warp):
    guess = anything(vocab=6, seed=4)
    possible = due(warp, guess, TEXT, ())
    first = possible.argsort(descending=True).tolist()[: min(3, possible.count_nonzero())]
    below = due(warp, guess, TEXT, first[1:2]).argsort(descending=True).tolist()[:2]
    tree, laws, _, reads = drawn_from(guess, first + below, drawn_tree([(2,), (1, 1)]), text=TEXT, warp=warp)
    assert tree == TokenTree(first + below, [-1] * len(first) + [1, 1]) and reads == [1]
    for node, law in enumerate(laws):
        path = [tree.tokens[above] for above in tree.path(node)[:-1]]
        expected = due(warp, guess, TEXT, path)
        for earlier in tree.children(tree.parents[node]):
            expected[tree.tokens[earlier]] *= earlier >= node
        assert torch.allclose(law, expected / expected.sum(), atol=1e-12)


def test_a_drawn_chain_is_no_longer_than_asked_for_and_than_there_is_room():
    guess = anything()
    assert len(drawn_from(guess, [1] * 9, drawn_chain(5))[0]) == 5
    assert len(drawn_from(guess, [1] * 9, drawn_chain(5), depth=2)[0]) == 2


def test_a_drawn_chain_ends_where_nothing_can_be_drawn():
    def then_only_4(logits, histories):
        late = torch.tensor([len(history) > 1 for history in histories])[:, None]
        return logits.masked_fill(late & (torch.arange(12) != 4), -math.inf)

    for drawn in ([3, 5], []):
        text, guess = [0] * (2 - len(drawn)), anything(unknown={4})
        tree, laws, _, _ = drawn_from(guess, drawn, drawn_chain(5), text=text, warp=[then_only_4])
        assert tree == TokenTree.chain(drawn) and len(laws) == len(drawn)


# ----------------------------------------------------------------------------------------------------------------------
# Tokens that cannot be


@pytest.mark.parametrize("shape", [chain_draft(4), static_tree(SHAPES["sparse"]), dynamic_tree(20, 4, 5)], ids="abc")
def test_tokens_that_the_network_does_not_know_are_no_candidates(shape):
    for unknown in ({0, 3}, set(range(2, 12)), set(range(1, 12))):
        made, _ = grown(shape, anything(unknown=unknown))
        assert made and not {token for path in made for token in path} & unknown


def test_where_few_are_known_the_trees_hold_those():
    guess = anything(unknown=set(range(2, 12)))
    assert grown(dynamic_tree(99, 3, 10), guess)[0] == best_tree(guess, 99, 3, 10)[0]
    assert len(grown(dynamic_tree(99, 3, 10), guess)[0]) == 2 + 4 + 8
    assert grown(static_tree(SHAPES["sparse"]), guess)[0] == tree_of_ranks(guess, SHAPES["sparse"], FAR)
    made, reads = grown(static_tree([(2, 0), (3,)]), guess)
    assert (made, reads) == (set(), []), "there is no third best guess, and nothing after it"
    assert grown(static_tree([(20,), (0, 20)]), anything())[0] == {(ranked(anything(), (), 1)[0][0],)}, "nor a 21st"


# ----------------------------------------------------------------------------------------------------------------------
# Warps


@pytest.mark.parametrize(
    "warp",
    [[temperature(0.3)], [frequency_penalty(2.5)], [no_repeat_ngram(1), top_k(3)], [temperature(1.7), top_k(2)]],
    ids=["temperature", "penalty", "n-grams and top-k", "temperature and top-k"],
)
def test_trees_follow_the_warped_law_each_guess_after_its_own_path(warp):
    for seed in range(3):
        guess = anything(vocab=6, seed=seed)
        warped = after(warp, guess, TEXT)
        made, _ = grown(dynamic_tree(12, 4, 3), guess, text=TEXT, warp=warp)
        assert made == best_tree(warped, 12, 4, 3)[0]
        assert made != best_tree(guess, 12, 4, 3)[0] or warp[0].__name__ == "temperature_warp"
        made, _ = grown(static_tree(SHAPES["sparse"]), guess, text=TEXT, warp=warp)
        assert made == tree_of_ranks(warped, SHAPES["sparse"], FAR)


@pytest.mark.parametrize("shape", [chain_draft(4), static_tree(SHAPES["sparse"]), dynamic_tree(20, 4, 5)], ids="abc")
def test_where_a_warp_leaves_nothing_that_the_network_knows_there_are_no_candidates(shape):
    def only_4(logits, histories):
        return logits.masked_fill(torch.arange(12) != 4, -math.inf)

    assert grown(shape, anything(unknown={4}), warp=[only_4]) == (set(), [])

    def then_only_4(logits, histories):
        late = torch.tensor([len(history) > 0 for history in histories])[:, None]
        return logits.masked_fill(late & (torch.arange(12) != 4), -math.inf)

    made, _ = grown(shape, anything(unknown={4}), warp=[then_only_4])
    assert made and all(len(path) == 1 for path in made)


def test_that_the_likeliest_token_is_taken_makes_no_difference_to_the_tree():
    """Otherwise all that is not the best guess would be impossible, and every tree a chain."""
    for shape in (dynamic_tree(20, 4, 5), static_tree(SHAPES["sparse"]), chain_draft(3)):
        for warp in ([], [temperature(0.5)], [frequency_penalty(1.0)]):
            guess = anything(seed=5)
            assert grown(shape, guess, warp=[*warp, one_hot]) == grown(shape, guess, warp=warp)


def test_a_warp_may_write_in_place():
    def in_place(logits, histories):
        logits[:, 3] = -50.0
        return logits

    guess = anything()
    made, _ = grown(dynamic_tree(20, 4, 5), guess, warp=[in_place])
    assert made == best_tree(after([in_place], guess), 20, 4, 5)[0]
    network = Network(guess)
    draft = Draft(network, network.logits([()]), [], [in_place], FAR)
    assert draft.guesses(12) == draft.guesses(12)
    assert torch.equal(draft._logits, network.logits([()]))


def test_in_greedy_decoding_a_temperature_of_its_own_makes_the_tree_deeper():
    guess = anything(sharpness=1.5)
    for cold in (0.25, 0.5, 2.0):
        expected = best_tree(after([temperature(cold)], guess), 15, 8, 5)[0]
        assert grown(dynamic_tree(15, 8, 5, greedy_temperature=cold), guess, warp=[one_hot])[0] == expected
        sampled = grown(dynamic_tree(15, 8, 5, greedy_temperature=cold), guess)
        assert sampled == grown(dynamic_tree(15, 8, 5), guess)
    sure = after([temperature(0.25)], guess)
    made, _ = grown(chain_draft(6, 0.2, greedy_temperature=0.25), guess, warp=[one_hot])
    assert made == best_tree(sure, 6, 6, 1, 0.2)[0]
    assert len(made) > len(grown(chain_draft(6, 0.2), guess, warp=[one_hot])[0])


# ----------------------------------------------------------------------------------------------------------------------
# Bad input


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: dynamic_tree(nodes=0),
            "nodes is how many candidates the tree has, a whole number of 1 or more, got 0",
        ),
        (lambda: dynamic_tree(depth=0), "depth is how many levels the tree has, a whole number of 1 or more, got 0"),
        (lambda: dynamic_tree(top_k=0), "top_k is how many guesses follow each node, .*, got 0"),
        (lambda: dynamic_tree(top_k=True), "top_k .* got True"),
        (lambda: dynamic_tree(confidence=2), r"confidence must be a probability from 0 \(guess on, .*\) to 1, got 2"),
        (lambda: dynamic_tree(confidence=-0.1), "confidence must be a probability .*, got -0.1"),
        (lambda: dynamic_tree(confidence="sure"), "confidence must be a probability .*, got 'sure'"),
        (lambda: dynamic_tree(greedy_temperature=0), "greedy_temperature must be a finite number above 0, got 0"),
        (lambda: chain_draft(0), "length is how many tokens the chain has, a whole number of 1 or more, got 0"),
        (lambda: chain_draft(4, confidence=1.5), "confidence must be a probability .*, got 1.5"),
        (lambda: drawn_tree([]), "the tree is empty: give at least one path of ranks"),
        (lambda: drawn_chain(0), "length is how many tokens the chain has, a whole number of 1 or more, got 0"),
        (lambda: drawn_chain(2, exact), "rule must be a function of the draft's distributions: .*; got exact"),
        (lambda: static_tree([]), "the tree is empty: give at least one path of ranks"),
        (lambda: static_tree([(0, -1)]), "paths of ranks"),
    ],
    ids=in_words,
)
def test_bad_arguments_are_named(make, says):
    with pytest.raises(ValueError, match=says):
        make()
