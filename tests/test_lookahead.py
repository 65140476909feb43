"""Lookahead guesses ahead with the model itself, and keeps the model's distribution exactly."""

import pytest
import torch
from conftest import exactly
from lossless import EXACT, WARPS, distance, on_real_models, ring, small, table

from tutorlib.decoders import greedy, sample
from tutorlib.decoders.lookahead import Pool, ends, lookahead
from tutorlib.lm import LM
from tutorlib.randomness import Seeded
from tutorlib.run import run
from tutorlib.table import TableLM
from tutorlib.tree import TokenTree

SETTINGS = [
    {"window": 1, "ngram": 2, "guesses": 1},
    {"window": 2, "ngram": 3, "guesses": 2},
    {"window": 3, "ngram": 4, "guesses": 0},
]

# ----------------------------------------------------------------------------------------------------------------------
# It is exact


@pytest.mark.parametrize("warp", WARPS.values(), ids=WARPS)
def test_it_keeps_the_models_distribution(warp):
    assert distance(lookahead, table(), [0, 1, 0, 2, 0], 4, warp, window=2, ngram=3, guesses=2) < EXACT


@pytest.mark.parametrize("warp", [WARPS["no warp"], WARPS["penalty and top-k"]], ids=["no warp", "a pair"])
def test_it_keeps_it_after_a_prompt_of_one_token(warp):
    assert distance(lookahead, table(), [1], 4, warp, window=2, ngram=3, guesses=2) < EXACT


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_it_keeps_it_whatever_the_window(settings):
    assert distance(lookahead, table(2), [0, 1, 1, 0], 5, **settings) < EXACT


def test_it_keeps_it_where_a_stop_token_is_guessed():
    lm = TableLM.random(3, 1, 5, stop_tokens=[2])
    assert distance(lookahead, lm, [0, 2, 1, 0], 4, window=3, ngram=3, guesses=2, stop=None) < EXACT


def test_it_keeps_it_at_the_end_of_the_context():
    lm = TableLM.random(2, 1, 5, context=7)
    assert distance(lookahead, lm, [0, 1, 0], 4, window=3, ngram=3, guesses=2) < EXACT


def test_it_keeps_the_distribution_of_a_real_model():
    warp = WARPS["penalty and top-k"]
    assert distance(lookahead, small("llama"), [0, 1, 0], 4, warp, window=2, ngram=3, guesses=2) < EXACT


@pytest.mark.slow
@on_real_models
def test_it_keeps_the_distribution_of_real_models_under_every_warp(family, warp):
    assert distance(lookahead, small(family), [0, 1, 2, 0], 4, warp, window=2, ngram=3, guesses=2) < EXACT


def test_with_one_seed_it_writes_what_sample_writes(models, family):
    lm = LM(models(family, torch.float64))
    with exactly(torch.float64):
        plain = run(sample(lm, [1, 2, 1, 2], rng=Seeded(4), warp=WARPS["temperature"]), 20)
        trace = run(lookahead(lm, [1, 2, 1, 2], rng=Seeded(4), warp=WARPS["temperature"]), 20)
    assert trace.tokens == plain.tokens


@pytest.mark.parametrize("settings", [{}, {"window": 9, "ngram": 5, "guesses": 4}], ids=str)
def test_it_goes_on_to_the_end_of_the_context(models, settings):
    lm = LM(models("gemma2", torch.float64))
    with exactly(torch.float64):
        plain = run(sample(lm, [1, 2, 1, 2], rng=Seeded(5)), 60)
        trace = run(lookahead(lm, [1, 2, 1, 2], rng=Seeded(5), **settings), 60)
    assert trace.tokens == plain.tokens
    assert trace.stopped == plain.stopped == "context"
    assert sum(step.accepted for step in trace.steps) > 0


def test_without_luck_it_is_greedy_with_fewer_calls(models, family):
    lm = LM(models(family, torch.float64))
    with exactly(torch.float64):
        plain, trace = run(greedy(lm, [3, 1]), 25), run(lookahead(lm, [3, 1]), 25)
    assert trace.tokens == plain.tokens
    assert trace.target_calls < plain.target_calls


@pytest.mark.slow
def test_on_the_bundled_model_it_is_greedy_with_fewer_calls_and_fewer_still_with_a_wider_window():
    from tutorlib import bench, models

    lm = models.load("storyworld").target
    calls = {1: 0, 8: 0}
    for prompt in bench.story_prompts(lm, 3):
        plain = run(greedy(lm, prompt), 60)
        for window in calls:
            trace = run(lookahead(lm, prompt, window=window), 60)
            assert trace.tokens == plain.tokens
            calls[window] += trace.target_calls
    assert calls[8] < 0.9 * calls[1] < 0.9 * 180


# ----------------------------------------------------------------------------------------------------------------------
# What it guesses


def test_the_pool_keeps_the_most_recent_ngrams_of_each_first_token():
    pool = Pool(2)
    for ngram in ([1, 5, 5], [1, 6, 6], [2, 7, 7], [1, 5, 5]):
        pool.add(ngram)
    assert pool[1] == [[5, 5], [6, 6]], "seen again, it is the most recent"
    pool.add([1, 8, 8])
    assert pool[1] == [[8, 8], [5, 5]]
    assert pool[2] == [[7, 7]]
    assert pool[3] == []


def test_paths_end_where_their_tokens_lead():
    paths = [[5, 7], [5, 8], [6], [5, 8, 5]]
    tree = TokenTree.from_paths(paths)
    assert [[tree.tokens[node] for node in tree.path(end)] for end in ends(tree, paths)] == paths


def after(lm, tokens):
    """The likeliest token after some tokens, computed without a cache."""
    return int(lm.session(tokens).feed()[-1].argmax())


@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("make", [lambda: TableLM.random(5, 3, 2), lambda: small("llama")], ids=["table", "llama"])
def test_each_round_is_the_papers_written_out_with_a_call_for_every_guess(make, most):
    """Window, pool and candidates of each round, from the definition: one token at a time, each from its own prompt."""
    lm = make()
    width, n, prompt = 3, 3, [0, 2, 1]
    with exactly(torch.float64):
        trace = run(lookahead(lm, prompt, window=width, ngram=n, guesses=most), 11)
        text, pool = list(prompt), []
        levels = [[prompt[(i + level) % 3] for i in range(width)] for level in range(n - 1)]  # as rows, oldest first
        for step in trace.steps:
            tries = [ngram[1:] for ngram in pool if ngram[0] == text[-1]][:most]
            rows = [levels[0][: i + 1] + [level[i] for level in levels[1:]] for i in range(width)]
            tree = step.tree
            nodes = {tuple(tree.tokens[above] for above in tree.path(node)) for node in range(len(tree))}
            assert nodes == {tuple(path[:end]) for path in tries + rows for end in range(1, len(path) + 1)}
            new = [after(lm, text + row) for row in rows]
            for i in range(width):
                ngram = [*(level[i] for level in levels), new[i]]
                pool = [ngram, *(known for known in pool if known != ngram)]
            levels = [*levels[1:], new]
            text += step.tokens


def test_a_candidate_sees_the_text_and_its_own_path_and_nothing_else_of_the_window(llama):
    """The probabilities of every emitted token are those that follow its text, computed without a tree."""
    trace = run(lookahead(llama, [1, 2, 3], window=5, ngram=4, guesses=5, rng=Seeded(1)), 24)
    text = [1, 2, 3]
    assert trace.target_calls < 24, "nothing accepted shows nothing"
    for step in trace.steps:
        for token, candidates in zip(step.tokens, step.candidates, strict=True):
            probs = llama.session(text).feed()[-1].softmax(-1)
            assert all(prob == pytest.approx(float(probs[other]), abs=1e-4) for other, prob in candidates)
            text.append(token)


def test_what_repeats_is_soon_found_in_the_pool():
    """A text that goes round in a ring of six: each n-gram is learnt once, and then three tokens come a call."""
    trace = run(lookahead(ring(6), [0], window=1, ngram=3, guesses=1), 40)
    assert all(step.accepted == 2 for step in trace.steps[-6:-1])


def test_without_guesses_from_the_pool_plain_jacobi_iteration_is_left():
    """Where nothing depends on what came before, a wrong guess spoils none after it: one round, and all are right."""
    always = TableLM({"": [0.0, 1.0]})
    steps = run(lookahead(always, [0], window=4, ngram=2, guesses=0), 21).steps
    assert [step.accepted for step in steps] == [0, 4, 4, 4, 4]


def test_guessing_takes_nothing_from_the_luck(llama):
    class Counting(Seeded):
        draws = 0

        def choose(self, probs):
            self.draws += 1
            return super().choose(probs)

    rng = Counting(0)
    steps = lookahead(llama, [1, 2, 3], rng=rng)
    made = sum(len(next(steps).tokens) for _ in range(10))
    assert rng.draws == made


def test_the_steps_tell_the_tree_and_the_path_taken(llama):
    for step in run(lookahead(llama, [1, 2, 3], rng=Seeded(1)), 30).steps:
        assert step.drafted == step.tree.tokens
        assert step.accepted == len(step.path)
        assert [step.tree.tokens[node] for node in step.path] == step.tokens[: step.accepted]


def test_it_costs_one_call_a_step_of_no_more_than_the_stated_width(llama):
    trace = run(lookahead(llama, [1, 2, 3], window=5, ngram=4, guesses=3, rng=Seeded(0)), 30)
    assert trace.target_calls == len(trace.steps)
    assert 20 < max(len(step.drafted) for step in trace.steps) <= 5 * 3 + 3 * 3


def test_candidates_are_cut_to_the_context(llama):
    # Round a ring, every draft is accepted as far as it goes.
    for lm, prompt in ((ring(12, context=40), [*range(12), *range(12)]), (llama, [5, 6] * (llama.context // 2 - 4))):
        steps = list(lookahead(lm, prompt, window=10, ngram=4))
        assert len(prompt) + sum(len(step.tokens) for step in steps) == lm.context
        with pytest.raises(StopIteration) as end:
            next(lookahead(lm, [1] * lm.context))
        assert end.value.value == "context"
        assert run(lookahead(lm, [1] * lm.context, window=10, ngram=4), 3).stopped == "context"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"window": 0}, "window is the number of places ahead that are guessed, a whole number of 1 or more, got 0"),
        ({"ngram": 1}, "ngram is the length of the n-grams collected, a whole number of 2 or more, got 1"),
        ({"guesses": -1}, "guesses is how many n-grams are tried at most"),
        ({"rng": 7}, "rng must have the verbs"),
    ],
    ids=str,
)
def test_bad_arguments_are_named_at_the_call(settings, says):
    with pytest.raises(ValueError, match=says):
        lookahead(table(), [0], **settings)
