"""Medusa keeps the target's distribution exactly, or by a measured distance not; and takes what its heads guess."""

import functools
import math

import pytest
import torch
from conftest import VOCAB, exactly, in_words
from lossless import EXACT, WARPS, distance, on_real_models, ring, small, table

from tutorlib.checking import exact, typical_acceptance
from tutorlib.decoders import greedy, sample
from tutorlib.decoders.medusa import candidates, medusa
from tutorlib.heads.choices import full
from tutorlib.heads.medusa import MedusaHeads
from tutorlib.lm import LM
from tutorlib.proof import exact_distribution, target_distribution, total_variation
from tutorlib.randomness import Seeded
from tutorlib.run import run
from tutorlib.table import TableLM
from tutorlib.tree import TokenTree
from tutorlib.warp import typical

TREE = [(0,), (1,), (0, 0), (0, 1), (1, 0)]


def random_heads(lm, heads=2, seed=0):
    """Heads that guess anything: often wrong, often right with so few tokens."""
    made = MedusaHeads(lm.width, lm.vocab_size, heads, 1).to(lm.dtype)
    for number, parameter in enumerate(made.parameters()):
        generator = torch.Generator().manual_seed(100 * seed + number)
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=lm.dtype)
    return made


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


def far(method=medusa, *, heads=None, **settings):
    """`distance` of medusa with heads of the model's own size."""

    def written(lm, prompt, **more):
        return method(lm, heads if heads is not None else random_heads(lm), prompt, **settings, **more)

    return functools.partial(distance, written)


# ----------------------------------------------------------------------------------------------------------------------
# It is exact


@pytest.mark.parametrize("warp", WARPS.values(), ids=WARPS)
def test_it_keeps_the_targets_distribution(warp):
    assert far(tree=TREE[:4])(table(), [0, 1, 0, 2], 3, warp) < EXACT


@pytest.mark.parametrize("warp", ["no warp", "penalty"])
def test_it_keeps_it_through_paths_of_all_lengths_and_what_comes_after_them(warp):
    assert far(tree=TREE)(table(2), [1], 5, WARPS[warp]) < EXACT


@pytest.mark.parametrize(
    "tree", [[(0,)], [(0, 0, 0)], [(1,), (0, 1)], full([2, 2, 2])], ids=["one", "chain", "second first", "full"]
)
def test_it_keeps_it_with_trees_of_all_shapes(tree):
    lm = table(2)
    assert far(heads=random_heads(lm, 3, seed=5), tree=tree)(lm, [0, 1], 4) < EXACT


def test_it_keeps_it_where_the_tree_holds_stop_tokens():
    lm = TableLM.random(3, 1, 5, stop_tokens=[2])
    assert far(tree=full([3, 2]))(lm, [0, 1], 3, stop=None) < EXACT


def test_it_keeps_it_up_to_the_end_of_the_context():
    lm = TableLM.random(2, 1, 5, context=7)
    heads = random_heads(lm, 3)
    made = exact_distribution(lambda rng: medusa(lm, heads, [0, 1, 0], tree=full([2, 2, 2]), rng=rng), 6, stop=())
    assert total_variation(made, target_distribution(lm, [0, 1, 0], 4, stop=())) < EXACT


def test_it_keeps_it_over_a_real_cache():
    assert far(tree=TREE)(small("llama"), [0, 1, 0], 3, WARPS["temperature and top-p"]) < EXACT


@pytest.mark.slow
@on_real_models
def test_it_keeps_it_over_real_caches_under_every_warp(family, warp):
    assert far(tree=TREE)(small(family), [0, 1, 2, 0], 4, warp) < EXACT


@pytest.mark.slow
@pytest.mark.parametrize("warp", WARPS.values(), ids=WARPS)
def test_it_keeps_it_through_two_trees_under_every_warp(warp):
    assert far(tree=TREE)(table(), [0, 2], 5, warp) < EXACT


def test_with_one_seed_it_writes_what_sample_writes(models, family):
    lm = LM(models(family, torch.float64))
    heads = random_heads(lm, 3)
    with exactly(torch.float64):
        plain = run(sample(lm, [1, 2, 1, 2], rng=Seeded(4), warp=WARPS["temperature"]), 16)
        trace = run(medusa(lm, heads, [1, 2, 1, 2], tree=full([5, 4]), rng=Seeded(4), warp=WARPS["temperature"]), 16)
    assert trace.tokens == plain.tokens


def test_without_luck_it_is_greedy_up_to_the_end_of_the_context(models, family):
    lm = LM(models(family, torch.float64))
    # Heads that start as the target's own are right where its text repeats a token.
    heads = MedusaHeads(lm.width, VOCAB, 3, output=lm.model.get_output_embeddings().weight.double()).double()
    prompt = [3, 1, 2, 0, 7] * 7  # past the window of the families that have one
    with exactly(torch.float64):
        for accept in (exact, typical_acceptance()):
            plain, trace = run(greedy(lm, prompt), 60), run(medusa(lm, heads, prompt, accept=accept), 60)
            assert trace.tokens == plain.tokens
            assert trace.stopped == plain.stopped == "context"
            assert trace.target_calls == len(trace.steps)


# ----------------------------------------------------------------------------------------------------------------------
# Typical is not


def test_typical_acceptance_is_not_the_targets_distribution_by_a_distance_that_is_measured():
    lm = table()
    heads = random_heads(lm)
    strict, usual, lax = (
        far(heads=heads, tree=TREE, accept=typical_acceptance(epsilon, delta))(lm, [0, 2], 3)
        for epsilon, delta in ((1.0, 1.0), (0.09, 0.3), (0.0, 0.3))
    )
    assert usual > 0.1
    assert 1e-3 < strict < lax


def test_typical_acceptance_of_nothing_is_exact():
    lm = TableLM.random(3, 0, 3)  # no token has probability 1, nor above exp(-entropy) times much
    assert far(tree=TREE, accept=typical_acceptance(1.0, 50.0))(lm, [0, 2], 3) < EXACT


# ----------------------------------------------------------------------------------------------------------------------
# What it drafts


def test_the_tree_holds_the_tokens_that_the_heads_rank_so():
    guesses = torch.tensor([[0.1, 3.0, 2.0, -1.0], [5.0, 0.0, 1.0, 4.0]])  # tokens 1, 2, 0, 3 and 0, 3, 2, 1
    choices = [(0,), (0, 1), (1,), (1, 0), (1, 3), (3,)]
    assert candidates(guesses, choices, depth=2) == TokenTree([1, 3, 2, 0, 1, 3], [-1, 0, -1, 2, 2, -1])
    assert candidates(guesses, choices, depth=1) == TokenTree([1, 2, 3], [-1, -1, -1])
    assert not candidates(guesses, choices, depth=0)
    assert not candidates(None, choices, depth=2)


def test_head_i_guesses_the_token_i_and_two_places_on():
    """Round a ring the text is sure, so heads that know the ring are always right: by hand."""
    lm = ring(10)
    heads = Knowing(10, 3, lambda token, head: [(token + 1 + head) % 10])  # `token` itself is drawn, not guessed
    trace = run(medusa(lm, heads, [0], tree=[(0, 0, 0)]), 13)
    assert [step.tokens for step in trace.steps] == [[1], [2, 3, 4, 5], [6, 7, 8, 9], [0, 1, 2, 3]]
    assert [(step.drafted, step.accepted, step.path) for step in trace.steps] == [
        ([], 0, ()), ([2, 3, 4], 3, (0, 1, 2)), ([6, 7, 8], 3, (0, 1, 2)), ([0, 1, 2], 3, (0, 1, 2)),
    ]  # fmt: skip
    assert trace.target_calls == 4
    assert heads.asked == [1, 5, 9], "once a tree: a tree that nobody asks for is not guessed"


def test_heads_one_place_off_are_never_right():
    lm = ring(10)
    for offset in (0, 2):
        heads = Knowing(10, 2, lambda token, head, offset=offset: [(token + offset + head) % 10])
        trace = run(medusa(lm, heads, [0], tree=[(0, 0)]), 8)
        assert trace.tokens == [1, 2, 3, 4, 5, 6, 7, 8] and trace.target_calls == 8


def test_after_a_path_the_heads_are_asked_where_it_ends():
    """Of three guesses the second is wrong: the heads go on from the first, not from where the tree ends."""
    lm = ring(10)
    heads = Knowing(10, 3, lambda token, head: [(token + 1 + head) % 10 if head != 1 else token])
    steps = run(medusa(lm, heads, [0], tree=[(0, 0, 0)]), 7).steps
    assert [step.tokens for step in steps] == [[1], [2, 3], [4, 5], [6, 7]]
    assert heads.asked == [1, 3, 5]


def test_the_second_guess_of_a_head_may_be_the_right_one():
    lm = ring(10)
    heads = Knowing(10, 2, lambda token, head: [0 if head == 0 else 1, (token + 1 + head) % 10])
    steps = run(medusa(lm, heads, [3], tree=[(0,), (1,), (1, 1), (0, 0)]), 4).steps
    assert [step.tokens for step in steps] == [[4], [5, 6, 7]]
    assert (steps[1].tree, steps[1].path) == (TokenTree([0, 5, 6, 1], [-1, -1, 1, 0]), (1, 2))


def test_without_a_tree_it_is_the_one_that_the_heads_bring(llama):
    heads = random_heads(llama)
    heads.choices = TREE
    steps = run(medusa(llama, heads, [1, 2]), 12).steps
    assert [step.tree.parents for step in steps[1:3]] == [[-1, -1, 0, 0, 1]] * 2


def test_a_step_tells_what_each_token_was_chosen_from():
    lm = TableLM.random(3, 1, 4)
    for step in run(medusa(lm, random_heads(lm), [0], tree=TREE, rng=Seeded(3)), 30).steps:
        assert len(step.candidates) == len(step.tokens)
        assert all(token in [other for other, _ in row] for token, row in zip(step.tokens, step.candidates))
        if step.tree:
            assert [step.tree.tokens[node] for node in step.path] == step.tokens[: step.accepted]


def test_a_stop_token_inside_an_accepted_path_ends_the_text_there():
    lm = TableLM({(token,): [float(other == (token + 1) % 10) for other in range(10)] for token in range(10)},
                 stop_tokens=[3])  # fmt: skip
    heads = Knowing(10, 3, lambda token, head: [(token + 1 + head) % 10])
    trace = run(medusa(lm, heads, [0], tree=[(0, 0, 0)]), 20)
    assert (trace.tokens, trace.stopped) == ([1, 2, 3], "stop")
    assert (trace.steps[-1].accepted, trace.steps[-1].path, trace.steps[-1].cut) == (2, (0, 1), 2)


@pytest.mark.parametrize("context", [2, 3, 4, 5, 6, 7, 8])
def test_trees_are_cut_to_the_context(context):
    heads = Knowing(10, 3, lambda token, head: [(token + 1 + head) % 10])
    lm = ring(10, context=context)
    steps = list(medusa(lm, heads, [0], tree=[(0, 0, 0)]))
    assert [token for step in steps for token in step.tokens] == list(range(1, context))
    assert len(steps) == 1 + math.ceil((context - 2) / 4), "one token, and then four at a time as far as there is room"
    assert run(medusa(lm, heads, [0] * context), 3).stopped == "context"


def test_it_costs_one_call_a_step(llama):
    trace = run(medusa(llama, random_heads(llama), [1, 2, 3], rng=Seeded(0)), 30)
    assert trace.target_calls == len(trace.steps)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_heads_may_be_of_another_type_than_the_target(llama, dtype):
    trace = run(medusa(llama, random_heads(llama).to(dtype), [1, 2, 3]), 12)
    assert trace.tokens == run(greedy(llama, [1, 2, 3]), 12).tokens


def test_heads_that_guess_what_is_no_number_harm_nothing(llama):
    heads = random_heads(llama)
    heads[0][0].linear.weight.data.fill_(torch.nan)
    assert run(medusa(llama, heads, [1, 2, 3]), 12).tokens == run(greedy(llama, [1, 2, 3]), 12).tokens


# ----------------------------------------------------------------------------------------------------------------------
# Bad input


@pytest.mark.parametrize(
    ("heads", "settings", "says"),
    [
        ({"width": 17}, {}, "the heads read hidden states of width 17, the target's have 16: they are not its"),
        ({"vocab_size": VOCAB + 1}, {}, "the heads know 20 tokens, the target 19: they are not its"),
        ({}, {"tree": [(0,), (0, 0, 0)]}, "the tree is 3 tokens deep, but there are 2 heads: one for each level"),
        ({}, {"tree": []}, "the tree is empty: give at least one path of ranks"),
        ({}, {"tree": [()]}, "paths of ranks"),
        ({}, {"tree": [(0, -1)]}, "paths of ranks"),
        ({}, {"tree": [0, 1]}, "paths of ranks.*got 0"),
        ({}, {"tree": 5}, "paths of ranks"),
        ({}, {"tree": [(0, VOCAB)]}, "the tree asks for rank 19 of a vocabulary of 19 tokens"),
        ({}, {"accept": 0.3}, r"accept must be a rule .* such as exact or typical_acceptance\(0.09, 0.3\), got 0.3"),
        ({}, {"accept": typical(0.3)}, "typical is the filter, typical_acceptance is the rule"),
        ({}, {"accept": typical_acceptance}, "accept must be a rule .*, got typical_acceptance"),
        ({}, {"accept": lambda tree, probs_at: ([], 0)}, "accept must be a rule .*, got <lambda>"),
        ({}, {"rng": 7}, "rng must have the verbs"),
        ({}, {"warp": 0.5}, "warp"),
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


def test_a_prompt_that_does_not_fit_is_refused(llama):
    with pytest.raises(ValueError, match="more than the context"):
        medusa(llama, random_heads(llama), [1] * (llama.context + 1))
