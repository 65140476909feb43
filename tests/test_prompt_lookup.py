"""Prompt lookup drafts what followed the last n-gram before. That it is exact: `test_lossless.py`."""

import pytest
from lossless import table

from tutorlib import Seeded, TableLM, prompt_lookup, run
from tutorlib.decoders.prompt_lookup import NGrams

# ----------------------------------------------------------------------------------------------------------------------
# What it drafts


def following(tokens, longest, count):
    """The same from the definition: go back from the end through all places, for the longest n-gram first."""
    for n in range(min(longest, len(tokens) - 1), 0, -1):
        for start in range(len(tokens) - n - 1, -1, -1):
            if tokens[start : start + n] == tokens[-n:]:
                return tokens[start + n : start + n + count]
    return []


@pytest.mark.parametrize("longest", [1, 2, 3, 5])
def test_the_continuation_is_that_of_the_latest_occurrence_of_the_longest_ngram(longest):
    rng = Seeded(longest)
    for size in (1, 2, 3):
        text = NGrams(longest)
        for _ in range(120):
            text.extend([rng.choose([1 / size] * size)])
            assert text.continuation(3) == following(text.tokens, longest, 3)


def test_the_steps_tell_what_was_drafted_and_what_was_accepted():
    lm = TableLM({"": [0.0, 1.0, 0.0], "b": [0.9, 0.0, 0.1], "a": [0.2, 0.6, 0.2]})
    steps = run(prompt_lookup(lm, "abac", gamma=2), 7).steps
    assert [(step.drafted, step.accepted, step.tokens) for step in steps] == [
        ([], 0, [1]),  # c is new
        ([0, 2], 1, [0, 1]),  # the b before was followed by a c, but after a comes b
        ([0, 2], 1, [0, 1]),  # the first a b too
        ([0, 1], 2, [0, 1]),  # the latest b a b was followed by a b; the token after them is beyond the budget
    ]
    assert dict(steps[1].candidates[0]) == pytest.approx({0: 0.9, 2: 0.1}), "greedy weighs more than it takes"
    whole = [next(step) for step in [prompt_lookup(lm, "abac", gamma=2)] for _ in range(4)]
    assert all(len(step.candidates) == len(step.tokens) for step in whole), "a row for each token, and none beyond"


def test_the_longest_ngram_is_as_long_as_asked():
    text = [0, 1, 2, 3, 7, 5, 1, 2, 3, 8, 6, 2, 3, 9, 0, 1, 2, 3]
    lm = TableLM.random(10, 1, 0)
    drafted = [next(prompt_lookup(lm, text, gamma=1, max_ngram=longest)).drafted for longest in (1, 2, 3, 4, 9)]
    assert drafted == [[9], [9], [8], [7], [7]]


def test_a_bad_length_is_named_at_the_call():
    with pytest.raises(ValueError, match="max_ngram is the length of the longest n-gram looked up"):
        prompt_lookup(table(), [0], gamma=2, max_ngram=0)
