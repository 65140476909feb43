"""Medusa: what its heads guess, and how lossy typical acceptance is. That it is exact otherwise: `test_lossless.py`."""

import pytest
import torch
from conftest import VOCAB, exactly, in_words
from lossless import EXACT, distance, on, random_heads, ring, table, unlike

from tutorlib import MedusaHeads, TableLM, TokenTree, greedy, medusa, run, typical, typical_acceptance
from tutorlib.decoders.medusa import ranked_tree
from tutorlib.drafting.choices import full

TREE = [(0,), (1,), (0, 0), (0, 1), (1, 0)]


class Knowing(MedusaHeads):
    """Heads that are told what to guess: `guess(token, head)` → tokens, the best first, where `token` is the likeliest
    after the place that the hidden state, a table's log-probabilities, is from."""

    def __init__(self, vocab, heads, guess):
        super().__init__(vocab, vocab, heads, 0)
        self.guess, self.asked = guess, []

    def forward(self, hidden):
        token = int(hidden.argmax())
        self.asked.append(token)
        logits = torch.zeros(len(self), self.vocab_size)
        for head in range(len(self)):
            for rank, guessed in enumerate(self.guess(token, head)):
                logits[head, guessed] = 10 - rank
        return logits


@pytest.mark.parametrize(
    "tree", [[(0,)], [(0, 0, 0)], [(1,), (0, 1)], full([2, 2, 2])], ids=["one", "chain", "second first", "full"]
)
def test_it_keeps_it_with_trees_of_all_shapes(tree):
    lm = table(2)
    assert distance(on(medusa, random_heads(lm, 3, seed=5)), lm, [0, 1], 4, shape=tree) < EXACT


def test_typical_acceptance_is_greedy_without_random_draws_up_to_the_end_of_the_context():
    lm = unlike("gemma2", 0)
    # Heads that start as the target's own are right where its text repeats a token.
    heads = MedusaHeads(lm.width, VOCAB, 3, output=lm.model.get_output_embeddings().weight.double()).double()
    prompt = [3, 1, 2, 0, 7] * 7  # past the window
    with exactly(torch.float64):
        plain = run(greedy(lm, prompt), 60)
        trace = run(medusa(lm, heads, prompt, rule=typical_acceptance()), 60)
    assert (trace.tokens, trace.stopped) == (plain.tokens, "context")


# ----------------------------------------------------------------------------------------------------------------------
# Typical is not


def test_typical_acceptance_is_not_the_targets_distribution_by_a_distance_that_is_measured():
    lm = table()
    method = on(medusa, random_heads(lm))
    strict, usual, lax = (
        distance(method, lm, [0, 2], 3, shape=TREE, rule=typical_acceptance(epsilon, delta))
        for epsilon, delta in ((1.0, 1.0), (0.09, 0.3), (0.0, 0.3))
    )
    assert usual > 0.1
    assert 1e-3 < strict < lax


def test_typical_acceptance_of_nothing_is_exact():
    lm = TableLM.random(3, 0, 3)  # no token has probability 1, nor above exp(-entropy) times much
    method = on(medusa, random_heads(lm))
    assert distance(method, lm, [0, 2], 3, shape=TREE, rule=typical_acceptance(1.0, 50.0)) < EXACT


# ----------------------------------------------------------------------------------------------------------------------
# What it drafts


def test_the_tree_holds_the_tokens_that_the_heads_rank_so():
    guesses = torch.tensor([[0.1, 3.0, 2.0, -1.0], [5.0, 0.0, 1.0, 4.0]])  # tokens 1, 2, 0, 3 and 0, 3, 2, 1
    choices = [(0,), (0, 1), (1,), (1, 0), (1, 3), (3,)]
    assert ranked_tree(guesses, choices, depth=2) == TokenTree([1, 3, 2, 0, 1, 3], [-1, 0, -1, 2, 2, -1])
    assert ranked_tree(guesses, choices, depth=1) == TokenTree([1, 2, 3], [-1, -1, -1])
    assert not ranked_tree(guesses, choices, depth=0)
    assert not ranked_tree(None, choices, depth=2)


def test_head_i_guesses_the_token_i_and_two_places_on():
    """Round a ring the text is sure, so heads that know the ring are always right: by hand."""
    lm = ring(10)
    heads = Knowing(10, 3, lambda token, head: [(token + 1 + head) % 10])  # `token` itself is drawn, not guessed
    trace = run(medusa(lm, heads, [0], shape=[(0, 0, 0)]), 13)
    assert [step.tokens for step in trace.steps] == [[1], [2, 3, 4, 5], [6, 7, 8, 9], [0, 1, 2, 3]]
    assert [(step.drafted, step.accepted, step.path) for step in trace.steps] == [
        ([], 0, ()), ([2, 3, 4], 3, (0, 1, 2)), ([6, 7, 8], 3, (0, 1, 2)), ([0, 1, 2], 3, (0, 1, 2)),
    ]  # fmt: skip
    assert trace.target_calls == 4
    assert heads.asked == [1, 5, 9], "once a tree: a tree that nobody asks for is not guessed"


def test_after_a_path_the_heads_are_asked_where_it_ends():
    """Of three guesses the second is wrong: the heads go on from the first, not from where the tree ends."""
    lm = ring(10)
    heads = Knowing(10, 3, lambda token, head: [(token + 1 + head) % 10 if head != 1 else token])
    steps = run(medusa(lm, heads, [0], shape=[(0, 0, 0)]), 7).steps
    assert [step.tokens for step in steps] == [[1], [2, 3], [4, 5], [6, 7]]
    assert heads.asked == [1, 3, 5]


def test_the_second_guess_of_a_head_may_be_the_right_one():
    lm = ring(10)
    heads = Knowing(10, 2, lambda token, head: [0 if head == 0 else 1, (token + 1 + head) % 10])
    steps = run(medusa(lm, heads, [3], shape=[(0,), (1,), (1, 1), (0, 0)]), 4).steps
    assert [step.tokens for step in steps] == [[4], [5, 6, 7]]
    assert (steps[1].tree, steps[1].path) == (TokenTree([0, 5, 6, 1], [-1, -1, 1, 0]), (1, 2))


def test_without_a_tree_it_is_the_one_that_the_heads_bring(llama):
    heads = random_heads(llama)
    heads.choices = TREE
    steps = run(medusa(llama, heads, [1, 2]), 12).steps
    assert [step.tree.parents for step in steps[1:3]] == [[-1, -1, 0, 0, 1]] * 2


def test_heads_may_be_of_another_type_than_the_target_and_what_they_guess_may_be_no_number(llama):
    spoilt = random_heads(llama)
    spoilt[0][0].linear.weight.data.fill_(torch.nan)
    expected = run(greedy(llama, [1, 2, 3]), 9).tokens
    for heads in (random_heads(llama).bfloat16(), random_heads(llama).double(), spoilt):
        assert run(medusa(llama, heads, [1, 2, 3]), 9).tokens == expected


# ----------------------------------------------------------------------------------------------------------------------
# Bad input


@pytest.mark.parametrize(
    ("heads", "settings", "says"),
    [
        ({"width": 17}, {}, "the heads read hidden states of width 17, the target's have 16: they do not fit"),
        ({"vocab_size": VOCAB + 1}, {}, "the heads know 20 tokens, the target 19: they do not fit"),
        ({}, {"shape": [(0,), (0, 0, 0)]}, "the tree is 3 tokens deep, but there are 2 heads: one for each level"),
        ({}, {"shape": [0, 1]}, "paths of ranks.*got 0"),
        ({}, {"shape": [(0, VOCAB)]}, "the tree asks for rank 19 of a vocabulary of 19 tokens"),
        ({}, {"rule": 0.3}, r"rule must be a function .* such as exact or typical_acceptance\(0.09, 0.3\), got 0.3"),
        ({}, {"rule": typical(0.3)}, "typical is the filter, typical_acceptance is the rule"),
        ({}, {"rule": typical_acceptance}, "rule must be a function .*, got typical_acceptance"),
        ({}, {"rule": lambda tree, probs_at: ([], 0)}, "rule must be a function .*, got <lambda>"),
    ],
    ids=in_words,
)
def test_bad_arguments_are_named_at_the_call(llama, heads, settings, says):
    made = MedusaHeads(**{"width": llama.width, "vocab_size": VOCAB, "heads": 2, **heads})
    with pytest.raises(ValueError, match=says):
        medusa(llama, made, [1], **settings)


def test_what_are_no_heads_or_heads_elsewhere_is_said(llama):
    for heads in (None, "medusa", llama, torch.nn.Linear(16, 19)):
        with pytest.raises(ValueError, match="heads must be MedusaHeads, got"):
            medusa(llama, heads, [1])
    with pytest.raises(ValueError, match=r"the heads are on meta, the target on cpu: heads.to\(target.device\)"):
        medusa(llama, random_heads(llama).to("meta"), [1])
