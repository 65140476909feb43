"""A table is a language model, right by hand. Its sessions are tested in test_lm.py, with those of other models."""

import math

import pytest
import torch

from tutorlib import LM, TableLM, TokenTree

TINY = {"": [0.5, 0.5], "a": [0.1, 0.9], "ba": [1.0, 0.0]}


def test_the_longest_context_that_fits_is_used():
    lm = TableLM(TINY)
    by_text = {"b": [0.5, 0.5], "a": [0.1, 0.9], "aa": [0.1, 0.9], "ba": [1.0, 0.0], "ab": [0.5, 0.5]}
    for text, expected in by_text.items():
        assert lm.session(text).feed().exp()[-1].tolist() == pytest.approx(expected), text


def test_without_an_empty_context_the_default_is_uniform():
    lm = TableLM({"a": [0.0, 0.0, 1.0]})
    assert lm.session("c").feed().exp()[-1].tolist() == pytest.approx([1 / 3] * 3)


def test_contexts_and_tokens_may_be_texts_or_ids():
    vocab = [" Honolulu", " 1964", " in"]
    by_text = TableLM({(" in",): {" Honolulu": 0.25, " 1964": 0.75}}, vocab)
    by_id = TableLM({(2,): {0: 0.25, 1: 0.75}}, vocab)
    for lm in (by_text, by_id):
        assert lm.session(" in").feed().exp()[-1].tolist() == pytest.approx([0.25, 0.75, 0])
        assert lm.session([2]).feed()[-1, 2] == -math.inf


def test_it_is_an_lm_in_float64():
    lm = TableLM(TINY, stop_tokens=["b"])
    assert isinstance(lm, LM)
    assert (lm.vocab_size, lm.context, lm.stop_tokens, lm.dtype) == (2, 64, (1,), torch.float64)
    rows = lm.session("ab").feed([0])
    assert rows.shape == (2, 2)
    assert rows.dtype == torch.float64


def test_text_and_tokens_go_back_and_forth_and_stop_tokens_are_not_text():
    lm = TableLM({"": {"the": 1.0}}, ["the", "th", "e", "."], stop_tokens=["."])
    assert lm.encode("thethe.") == [0, 0, 3], "the longest token first"
    assert lm.decode([1, 2, 0, 3]) == "thethe"
    with pytest.raises(ValueError, match="no token of this table reads 'x'"):
        lm.encode("thex")


def test_random_tables_are_reproducible_and_differ_by_seed():
    one, same, other = TableLM.random(3, 2, 0), TableLM.random(3, 2, 0), TableLM.random(3, 2, 1)
    assert torch.equal(one.log_probs([0, 1]), same.log_probs([0, 1]))
    assert not torch.equal(one.log_probs([0, 1]), other.log_probs([0, 1]))
    assert one.order == 2
    # Random numbers of Python's own generator: the same everywhere.
    assert one.log_probs([0, 1]).exp().tolist() == pytest.approx([0.0427, 0.3560, 0.6013], abs=1e-4)


def test_calls_count_for_the_session_and_the_model():
    lm = TableLM.random(3, 1, 0)
    session, batch = lm.session("a"), lm.batch(["a", "b"])
    session.feed()
    session.feed_tree(TokenTree.from_paths([[0], [1]]))
    session.keep([])
    batch.feed([[1], [2, 0]])
    assert (session.calls, batch.calls, lm.calls) == (2, 1, 3)


def test_the_hidden_state_is_the_log_probabilities():
    lm = TableLM.random(3, 2, 0)
    session = lm.session("abc", hidden=-1)
    rows = session.feed([0])
    assert torch.equal(session.hidden, rows)
    assert torch.equal(session.prompt_hidden, torch.stack([lm.log_probs(end) for end in ([0], [0, 1], [0, 1, 2])]))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TableLM({"": [0.5, 0.4]}), "sum to 1"),
        (lambda: TableLM({"": [1.5, -0.5]}), "0 or more"),
        (lambda: TableLM({"": [0.5, float("nan")]}), "sum to 1"),
        (lambda: TableLM({"": [0.5, 0.5], "a": [1.0]}), "1 probabilities after 'a', but there are 2 tokens"),
        (lambda: TableLM({"": {0: 1.0}}), "pass vocab"),
        (lambda: TableLM({"": {"z": 1.0}}, ["a", "b"]), "'z' is not a token"),
        (lambda: TableLM({(5,): [0.5, 0.5]}), r"\[5\], outside the vocabulary of 2"),
        (lambda: TableLM({"": [0.5, 0.5]}, ["a", "a"]), "all different"),
        (lambda: TableLM(TINY, context=0), "context must be"),
        (lambda: TableLM(TINY, stop_tokens=[2]), r"\[2\], outside the vocabulary"),
        (lambda: TableLM(TINY).session(""), "no tokens"),
        (lambda: TableLM(TINY).session("a", hidden=1), "there is no layer 1"),
    ],
)
def test_bad_tables_and_prompts_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()
