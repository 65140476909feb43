"""Batch: rows of different lengths are what each would be alone."""

import math

import pytest
import torch
from conftest import CONTEXT, EVERY_FAMILY, EVERY_HYBRID, VOCAB, exactly, random_model
from full_passes import PROPERTY, TABLE, assert_rows, in_float64_and_slowly_in_float32, recomputed
from hypothesis import given, settings
from hypothesis import strategies as st

from tutorlib.model.lm import LM
from tutorlib.model.session import NaNLogits

BATCH_VERBS = ("feed", "feed", "rollback", "reorder")
tokens_of = st.lists(st.integers(0, VOCAB - 1), max_size=5)


@in_float64_and_slowly_in_float32([*EVERY_FAMILY, "table"], EVERY_HYBRID)
def test_rows_of_a_batch_are_what_each_would_be_alone(models, family, dtype, monkeypatch, early_limits):
    model = TABLE if family == "table" else models(family, dtype)
    lm = TABLE if family == "table" else LM(model, context=CONTEXT)

    @settings(max_examples=15, **PROPERTY)
    @given(st.data())
    def check(data):
        prompts = data.draw(
            st.lists(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=14), min_size=1, max_size=4)
        )
        columns = data.draw(st.sampled_from([1, 4]), label="columns")
        monkeypatch.setattr("tutorlib.model.cache._COLUMNS_FOR_ONE", columns)
        batch = lm.batch(prompts)
        wanted, fresh = [list(prompt) for prompt in prompts], True
        for verb in data.draw(st.lists(st.sampled_from(BATCH_VERBS), min_size=2, max_size=8)):
            if verb == "feed":
                new = [data.draw(tokens_of, label="tokens")[:room] for room in batch.room]
                if not any(new) and not (fresh and any(wanted)):
                    continue
                rows = batch.feed(new)
                for logits, old, tokens in zip(rows, wanted, new, strict=True):
                    precedes = bool(fresh and old)
                    old += tokens
                    count = len(tokens) + precedes
                    assert_rows(
                        logits, recomputed(model, old)[-count:] if count else torch.empty(0, VOCAB, dtype=lm.dtype)
                    )
                fresh = False
            elif verb == "rollback":
                counts = [data.draw(st.integers(0, min(len(row), 6)), label="count") for row in wanted]
                batch.rollback(counts)
                wanted = [row[: len(row) - count] for row, count in zip(wanted, counts, strict=True)]
            else:
                order = data.draw(st.lists(st.integers(0, len(batch) - 1), min_size=1, max_size=5), label="order")
                batch.reorder(order)
                wanted = [list(wanted[row]) for row in order]
            assert batch.tokens == wanted

    with exactly(dtype):
        check()


def test_a_short_row_may_ride_along_at_the_end_of_the_context(lm):
    # The padding of the long row would have positions beyond the context; learned positions have no row for them.
    batch = lm.batch([[1] * (CONTEXT - 2), [2]])
    batch.feed([[], []])
    rows = batch.feed([[3, 4], [5, 6, 7, 8, 9, 10]])
    assert batch.room == [0, CONTEXT - 7]
    for logits, tokens in zip(rows, batch.tokens, strict=True):
        assert_rows(logits, recomputed(lm.model, tokens)[-len(logits) :])


def test_what_fills_up_shorter_rows_has_no_influence_even_where_no_row_could_hold_it():
    lm = LM(random_model("llama"))
    with torch.no_grad():
        lm.model.get_input_embeddings().weight[0] = math.nan
    batch = lm.batch([[1, 2, 3], [5, 6, 7, 8, 9], [4]])
    for lists in ([[], [], []], [[4], [3, 2], []], [[], [], [1, 2, 3]]):
        for logits, tokens in zip(batch.feed(lists), batch.tokens, strict=True):
            assert_rows(logits, recomputed(lm.model, tokens)[len(tokens) - len(logits) :])


@pytest.mark.parametrize("new", [[[]] * 8, [[1], [], [3], [2], [], [], [], []]], ids=["prompts alone", "with tokens"])
def test_the_head_computes_no_more_logits_for_uneven_prompts_than_are_needed(llama, new):
    columns = []
    hook = llama.model.get_output_embeddings().register_forward_hook(lambda *call: columns.append(call[2].shape[:2]))
    batch = llama.batch([[1] * length for length in (1, 30, 2, 17, 9, 22, 5, 26)])  # tries the model with the hook
    columns.clear()
    try:
        rows = batch.feed(new)
    finally:
        hook.remove()
    most = max(map(len, rows))
    assert [len(logits) for logits in rows] == [1 + len(tokens) for tokens in new]
    assert columns == [(8, 1), (8, most)], "one for each row where only the cache is filled, and then those needed"
    assert llama.calls == 1


@pytest.mark.parametrize(
    "misuse, message",
    [
        (lambda b: b.feed([[1]]), "2 rows, got 1 entries"),
        (lambda b: b.feed([[], []]), "no row has anything"),
        (lambda b: b.feed([[1], [VOCAB]]), "row 1 holds"),
        (lambda b: b.feed([[1], [1] * CONTEXT]), "row 1: .* room for"),
        (lambda b: b.rollback([1]), "2 rows, got 1 entries"),
        (lambda b: b.rollback([0, 2]), "row 1 has 1 tokens, so it cannot forget 2"),
        (lambda b: b.rollback([-1, 0]), "row 0"),
        (lambda b: b.reorder([2]), "from 0 to 1"),
        (lambda b: b.reorder([]), "at least one row"),
    ],
)
def test_misuse_of_a_batch_is_named_and_changes_nothing(llama, misuse, message):
    batch = llama.batch([[1, 2, 3], [4]])
    batch.feed([[], []])
    with pytest.raises(ValueError, match=message):
        misuse(batch)
    assert batch.tokens == [[1, 2, 3], [4]]
    assert_rows(batch.feed([[], [5]])[1], recomputed(llama.model, [4, 5])[-1:])


@pytest.mark.parametrize("prompts", [[], "the", [[1], []], {(1,): 2}, {(1,), (2,)}, b"the"], ids=str)
def test_a_batch_needs_a_list_of_prompts(llama, prompts):
    with pytest.raises(ValueError, match="prompt"):
        llama.batch(prompts)


def test_running_out_of_memory_says_how_much_was_asked(llama, monkeypatch):
    def forward(**kwargs):
        raise torch.OutOfMemoryError("out of memory")

    batch = llama.batch([[1, 2, 3], [4]])
    monkeypatch.setattr(llama.model, "forward", forward)
    with pytest.raises(torch.OutOfMemoryError, match="2 rows of 3 new tokens after 0"):
        batch.feed([[], []])


@pytest.mark.parametrize("family", ["llama", "gpt2", "looped_llama"])
def test_equal_prompts_are_read_once_for_all_rows(family):
    lm = LM(random_model(family, torch.float32 if "looped" in family else torch.float64))
    prompt, new = [1, 2, 3, 4] * 6, [[5], [], [6, 7]]
    alone, together = lm.batch([prompt] * 3), lm.batch([prompt] * 3)
    read = []
    kind = type(together._cache)
    with pytest.MonkeyPatch.context() as patch:
        name = "_compute" if "looped" in family else "_pass"
        whole = getattr(kind, name)
        patch.setattr(kind, name, lambda cache, rows, *a, **k: read.append(rows) or whole(cache, rows, *a, **k))
        rows = together.feed(new)
        assert read == [[prompt[:-1]], [prompt[-1:] + tokens for tokens in new]] and lm.calls == together.calls == 1
        patch.setattr(kind, "read_for_all", lambda *_: False)
        expected = alone.feed(new)
    for logits, others in zip(rows, expected, strict=True):
        assert len(logits) and ("looped" not in family or logits.equal(others))
        torch.testing.assert_close(logits, others)
    together.rollback([1, 0, 2])
    for logits, tokens in zip(together.feed([[2]] * 3), together.tokens, strict=True):
        assert_rows(logits, recomputed(lm.model, tokens)[-1:])


def test_a_shared_prompt_that_gives_nan_leaves_the_batch_as_it_was(llama):
    batch = llama.batch([[1] * 20] * 2)
    with torch.no_grad():
        weights = llama.model.get_input_embeddings().weight
        before = weights.clone()
        weights[1] = math.nan
        with pytest.raises(NaNLogits):
            batch.feed([[], [2]])
        weights.copy_(before)
    for logits, tokens in zip(batch.feed([[3], []]), batch.tokens, strict=True):
        assert_rows(logits, recomputed(llama.model, tokens)[-len(logits) :])
