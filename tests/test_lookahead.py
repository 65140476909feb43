"""Lookahead guesses ahead with the model itself. That it is exact: `test_lossless.py`."""

import pytest
import torch
from conftest import exactly
from lossless import EXACT, distance, ring, small, table

from tutorlib import Seeded, TableLM, TokenTree, greedy, lookahead, run
from tutorlib.decoders.lookahead import Pool, ends

SETTINGS = [
    {"window": 1, "ngram": 2, "guesses": 1},
    {"window": 2, "ngram": 3, "guesses": 2},
    {"window": 3, "ngram": 4, "guesses": 0},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_it_keeps_it_whatever_the_window(settings):
    assert distance(lookahead, table(2), [0, 1, 1, 0], 5, **settings) < EXACT


@pytest.mark.slow
def test_on_the_bundled_model_it_is_greedy_with_fewer_calls_and_fewer_still_with_a_wider_window():
    from tutorlib import models
    from tutorlib.lab import bench

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


def test_a_step_is_no_wider_than_it_says(llama):
    trace = run(lookahead(llama, [1, 2, 3], window=5, ngram=4, guesses=3, rng=Seeded(0)), 30)
    assert 20 < max(len(step.drafted) for step in trace.steps) <= 5 * 3 + 3 * 3


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"ngram": 1}, "ngram is the length of the n-grams collected, a whole number of 2 or more, got 1"),
        ({"guesses": -1}, "guesses is the largest number of n-grams that are tried"),
    ],
    ids=str,
)
def test_bad_arguments_are_named_at_the_call(settings, says):
    with pytest.raises(ValueError, match=says):
        lookahead(table(), [0], **settings)
