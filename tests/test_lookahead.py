"""Lookahead guesses ahead with the model itself. That it is exact: `test_lossless.py`."""

import pytest
import torch
from conftest import exactly
from lossless import EXACT, distance, ring, small, table

from tutorlib import TableLM, lookahead, run

SETTINGS = [
    {"window": 1, "ngram": 2, "guesses": 1},
    {"window": 2, "ngram": 3, "guesses": 2},
    {"window": 3, "ngram": 4, "guesses": 0},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_it_keeps_it_whatever_the_window(settings):
    assert distance(lookahead, table(2), [0, 1, 1, 0], 5, **settings) < EXACT


# ----------------------------------------------------------------------------------------------------------------------
# What it guesses


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


def test_what_repeats_is_soon_found_in_the_pool():
    """A text that goes round in a ring of six: each n-gram is learnt once, and then three tokens come a call."""
    trace = run(lookahead(ring(6), [0], window=1, ngram=3, guesses=1), 40)
    assert all(step.accepted == 2 for step in trace.steps[-6:-1])


def test_without_guesses_from_the_pool_plain_jacobi_iteration_is_left():
    """Where nothing depends on what came before, a wrong guess spoils none after it: one round, and all are right."""
    always = TableLM({"": [0.0, 1.0]})
    steps = run(lookahead(always, [0], window=4, ngram=2, guesses=0), 21).steps
    assert [step.accepted for step in steps] == [0, 4, 4, 4, 4]


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
