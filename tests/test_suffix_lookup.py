"""Suffix lookup drafts what followed the longest known end of the text. That it is exact: `test_lossless.py`."""

from collections import Counter

import pytest
from lossless import EXACT, distance, table

from tutorlib import Seeded, TableLM, run, suffix_lookup
from tutorlib.decoders.suffix_lookup import SuffixAutomaton

TEXTS = [[0, 1, 1, 0, 1], [0, 0], [1, 0, 0, 1, 1, 1, 0]]


def test_it_keeps_the_models_distribution_with_larger_trees_and_further_texts():
    assert distance(suffix_lookup, table(2), [0, 1, 1, 0], 5, gamma=6, least=0, texts=TEXTS) < EXACT


# ----------------------------------------------------------------------------------------------------------------------
# What it drafts


def reached(text, path_length):
    """From the definition: each path of so many tokens that followed the longest earlier end, with what reaches it."""
    for length in range(len(text) - 1, 0, -1):
        starts = [start for start in range(len(text) - length) if text[start : start + length] == text[-length:]]
        if starts:
            break
    else:
        return {}
    estimates = {(): 1.0}
    for _ in range(path_length):
        longer = {}
        for path, share in estimates.items():
            piece = [*text[-length:], *path]
            follow = Counter()
            for start in range(len(text) - len(piece)):
                if text[start : start + len(piece)] == piece:
                    follow[text[start + len(piece)]] += 1
            for token, count in follow.items():
                longer[(*path, token)] = share * count / (follow.total() + 1 / length)
        estimates = longer
    return estimates


def drafted(seen):
    tree = seen.continuations(most=1000, depth=3, least=0.05)
    return {tuple(tree.tokens[node] for node in tree.path(node)) for node in range(len(tree))}


def expected(text):
    return {path for length in (1, 2, 3) for path, share in reached(text, length).items() if share >= 0.05}


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_a_tree_holds_what_followed_the_longest_end_that_was_there_before(size):
    rng = Seeded(size)
    seen, text = SuffixAutomaton(), []
    for _ in range(50):
        token = rng.choose([1 / size] * size)
        seen.extend([token])
        text.append(token)
        assert drafted(seen) == expected(text)


@pytest.mark.parametrize("seed", range(4))
def test_it_does_so_after_long_repetitions_however_seldom_it_is_asked(seed):
    rng = Seeded(seed)
    seen, text = SuffixAutomaton(), []
    for _ in range(15):
        piece = [[0] * 9, [0, 1] * 4, [2], [1] * 3, [0, 0, 1]][rng.choose([0.2] * 5)]
        seen.extend(piece)
        text += piece
        if rng.accept(0.5):
            assert drafted(seen) == expected(text)


@pytest.mark.parametrize("period", [1, 3])
def test_repeated_text_takes_no_more_steps_for_a_token_than_other_text(period):
    class Counted(list):
        changes = 0

        def __setitem__(self, place, value):
            self.changes += 1
            super().__setitem__(place, value)

    seen = SuffixAutomaton()
    seen._count = Counted(seen._count)
    for token in range(600):
        seen.extend([token % period])
        assert seen.continuations(most=1).tokens == ([] if token < period else [(token + 1) % period])
    assert seen._count.changes <= 5 * 600


def test_of_many_continuations_the_likeliest_are_drafted_and_of_equals_the_latest():
    seen = SuffixAutomaton()
    seen.extend([1, 5, 1, 6, 1, 6, 1, 7, 1])
    assert seen.continuations(most=1).tokens == [6]
    assert sorted(seen.continuations(most=3, depth=1).tokens) == [5, 6, 7]
    assert seen.continuations(most=2, depth=1).tokens == [6, 7], "5 and 7 were there once each, 7 later"
    seen = SuffixAutomaton()
    seen.extend([1, 5, 1, 6, 1, 6, 1, 5, 9, 1])
    assert seen.continuations(most=1).tokens == [5], "both twice, and 5 last, though 6 came new after it"


def test_no_draft_runs_from_one_text_into_the_next():
    seen = SuffixAutomaton()
    seen.extend([1, 2, None, 5, 6, None, 4, 1])
    assert seen.continuations(most=4).tokens == [2]
    seen.extend([2])
    assert len(seen.continuations(most=4)) == 0, "nothing ever followed 1 2 but an end"


def test_it_has_at_most_two_states_a_token():
    seen = SuffixAutomaton()
    rng = Seeded(0)
    seen.extend(rng.choose([0.5, 0.5]) for _ in range(500))
    assert len(seen._next) <= 2 * 500


def test_further_texts_are_looked_in():
    lm = TableLM.random(6, 1, 0)
    first = next(iter(suffix_lookup(lm, [0, 1, 2], gamma=4, texts=[[3, 1, 2, 5, 4]])))
    assert first.drafted == [5, 4]
    assert next(iter(suffix_lookup(lm, [0, 1, 2], gamma=4))).drafted == []


def test_what_is_unlikely_to_be_reached_is_not_drafted():
    lm, text = TableLM.random(9, 1, 0), [1, 2, 3, 4, 5, 6, 7, 8, 1]
    # One token seen once: each further one is half as probable.
    drafted = [next(suffix_lookup(lm, text, gamma=6, least=least)).drafted for least in (0, 0.1, 0.3, 0.6)]
    assert drafted == [[2, 3, 4, 5, 6, 7], [2, 3, 4], [2], []]


def test_the_steps_tell_the_tree_and_the_path_taken():
    lm = TableLM({"": [0.0, 1.0, 0.0], "b": [0.9, 0.0, 0.1], "a": [0.2, 0.6, 0.2]})
    step = run(suffix_lookup(lm, "abacbaba", gamma=4, least=0), 3).steps[0]
    assert (step.tree.tokens, step.tree.parents) == ([2, 1, 0, 1], [-1, 0, 1, 2])
    assert (step.path, step.accepted, step.tokens) == ((), 0, [1])
    step = run(suffix_lookup(lm, "abaca", gamma=4, least=0), 4).steps[0]
    assert (step.tree.tokens, step.tree.parents) == ([2, 1, 0, 0], [-1, -1, 0, 1])
    assert (step.path, step.accepted, step.tokens) == ((1, 3), 2, [1, 0, 1])
    assert step.drafted == step.tree.tokens
    assert len(step.candidates) == 3


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"gamma": 2, "least": 1.5}, "least must be a probability from 0 to 1, got 1.5"),
        ({"gamma": 2, "texts": "abc"}, "texts must be a list of texts"),
        ({"gamma": 2, "texts": ["abc"]}, "encode it first"),
        ({"gamma": 2, "texts": [0, 1]}, "texts must hold lists of token ids, got 0"),
        ({"gamma": 2, "texts": [[0, 3]]}, "texts holds 3, outside the vocabulary of 3 tokens"),
    ],
    ids=str,
)
def test_bad_arguments_are_named_at_the_call(settings, says):
    with pytest.raises(ValueError, match=says):
        suffix_lookup(table(), [0], **settings)
