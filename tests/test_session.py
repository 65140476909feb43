"""Session: whatever is fed, kept and rolled back, the logits are those of full recomputation."""

import math

import pytest
import torch
from conftest import CONTEXT, EVERY_FAMILY, EVERY_HYBRID, SLIDING, VOCAB, WINDOW, exactly, random_model
from full_passes import PROPERTY, TABLE, assert_rows, in_float64_and_slowly_in_float32, recomputed
from hypothesis import given, settings
from hypothesis import strategies as st

from tutorlib import LM, NaNLogits, TokenTree

VERBS = ("feed", "feed_tree", "rollback", "advance_to")
tokens_of = st.lists(st.integers(0, VOCAB - 1), max_size=5)


def random_tree(data, room):
    """A tree of up to 8 nodes, at most `room` tokens deep."""
    tokens = data.draw(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=8), label="tree tokens")
    parents, depths = [], []
    for node in range(len(tokens)):
        parent = data.draw(st.integers(-1, node - 1), label="parent")
        if parent >= 0 and depths[parent] + 2 > room:
            parent = -1
        parents.append(parent)
        depths.append(0 if parent < 0 else depths[parent] + 1)
    return TokenTree(tokens, parents)


@in_float64_and_slowly_in_float32([*EVERY_FAMILY, "table"], EVERY_HYBRID)
def test_any_sequence_of_verbs_gives_the_logits_of_full_recomputation(models, family, dtype, early_limits):
    model = TABLE if family == "table" else models(family, dtype)
    lm = TABLE if family == "table" else LM(model, context=CONTEXT)

    @settings(max_examples=25, **PROPERTY)
    @given(st.data())
    def check(data):
        prompt = data.draw(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=12), label="prompt")
        session = lm.session(prompt, cache=data.draw(st.sampled_from(["dynamic", "dynamic", "static"]), label="cache"))
        wanted, fresh = list(prompt), True
        for verb in data.draw(st.lists(st.sampled_from(VERBS), min_size=2, max_size=8)):
            new = data.draw(tokens_of, label="tokens")
            if verb == "feed":
                new = new[: session.room]
                if not new and not (fresh and wanted):
                    continue  # nothing to compute: an error, tested below
                precedes = bool(fresh and wanted)
                logits = session.feed(new)
                wanted += new
                assert_rows(logits, recomputed(model, wanted)[-len(new) - precedes :])
                fresh = False
            elif verb == "rollback":
                n = data.draw(st.integers(0, min(len(wanted), 9)), label="n")
                session.rollback(n)
                del wanted[len(wanted) - n :]
            elif verb == "advance_to":
                # Another continuation of some beginning of this one, perhaps shorter, perhaps longer, perhaps equal.
                wanted = (wanted[: data.draw(st.integers(0, len(wanted)), label="common")] + new)[:CONTEXT] or [3]
                logits = session.advance_to(wanted)
                assert_rows(logits, recomputed(model, wanted)[-len(logits) :])
                fresh = False
            elif session.room:
                tree = random_tree(data, session.room)
                logits = session.feed_tree(tree)
                assert session.tokens == wanted
                expected = torch.empty_like(logits)
                for path in tree.paths():
                    branch = [tree.tokens[node] for node in path]
                    expected[path] = recomputed(model, wanted + branch)[-len(path) :]
                assert_rows(logits, expected)
                path = tree.path(data.draw(st.integers(-1, len(tree) - 1), label="kept"))
                session.keep(path)
                wanted += [tree.tokens[node] for node in path]
                fresh = False
            assert session.tokens == wanted
            assert session.room == CONTEXT - len(wanted)

    with exactly(dtype):
        check()


def test_the_first_feed_gives_the_prompts_last_row_and_what_is_computed_is_what_is_asked_for(lm):
    """One row a token after that; the prompt's inside is never put through the output head."""
    session, fed, widths = lm.session(list(range(12))), [], []
    head = lm.model.get_output_embeddings()
    with (
        lm.model.register_forward_pre_hook(lambda module, args, kwargs: fed.append(kwargs), with_kwargs=True),
        head.register_forward_pre_hook(lambda module, inputs: widths.append(inputs[0].shape[-2])),
    ):
        lm.session([1])  # a model with other hooks is tried anew
        fed.clear()
        widths.clear()
        assert [session.feed(tokens).shape for tokens in ([4, 5], [6])] == [(3, VOCAB), (1, VOCAB)]
        assert (session.calls, lm.calls) == (2, 2)
        lm.session(list(range(12))).feed()
        lm.batch([list(range(12)), [1, 2]]).feed([[], []])
    assert widths == [3, 1, 1, 2]  # in the batch: one column for the end of each prompt
    assert fed[1]["input_ids"].tolist() == [[6]] and fed[1]["attention_mask"] is None


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_branches_are_moved_in_the_tensors_of_a_cache_that_has_grown_since_the_last(models, family, monkeypatch):
    monkeypatch.setattr("tutorlib.model.cache._SPARE_SLOTS", 1)
    model, tree = models(family, torch.float64), TokenTree.from_paths([[1], [2, 3]])
    session = LM(model).session([1, 2, 3])
    with exactly(torch.float64):
        session.feed()
        for _ in range(3):
            session.feed_tree(tree)
            session.keep([1, 2])
            assert_rows(session.feed([4]), recomputed(model, session.tokens)[-1:])


def test_a_static_cache_keeps_its_tensors_and_the_shapes_of_a_call(lm):
    session, shapes = lm.session([1, 2, 3], cache="static"), set()
    session.feed()
    layer = session._cache.cache.layers[0]
    before = layer.keys.data_ptr(), layer.keys.shape

    def look(module, args, kwargs):
        masks = kwargs["attention_mask"]
        masks = masks.values() if isinstance(masks, dict) else [masks]
        shapes.add((kwargs["input_ids"].shape, *(mask.shape for mask in masks)))

    with lm.model.register_forward_pre_hook(look, with_kwargs=True):
        for token in range(10):
            session.feed([token])
    assert (layer.keys.data_ptr(), layer.keys.shape) == before
    assert len(shapes) == 1


def test_what_a_session_gives_may_be_changed_without_changing_the_session(llama):
    session, batch = llama.session([1, 2, 3], hidden=-1), llama.batch([[1, 2]])
    logits = session.feed()
    assert not torch.is_inference(logits) and not logits.requires_grad
    logits[0, 0] = -math.inf
    session.hidden.mul_(0)
    session.tokens.append(3)
    batch.tokens[0].append(3)
    assert (session.tokens, batch.tokens) == ([1, 2, 3], [[1, 2]])
    assert_rows(session.feed([4]), recomputed(llama.model, [1, 2, 3, 4])[-1:])


@pytest.mark.parametrize("family", SLIDING)
def test_a_window_counts_positions_and_not_nodes(models, family):
    # Five nodes side by side, and below the last of them a chain that is longer than the window: its end is WINDOW
    # positions from its top, so it no longer sees it, however the nodes are numbered.
    lm, prompt = LM(models(family)), [1, 2, 3, 4, 5, 6, 7, 8, 9]
    chain = list(range(WINDOW))
    tree = TokenTree([5, 6, 7, 8, 9, *chain], [-1] * 5 + list(range(4, 4 + WINDOW)))
    logits = lm.session(prompt).feed_tree(tree)
    assert_rows(logits[4:], recomputed(lm.model, prompt + [9, *chain])[len(prompt) :])


def test_advance_to_feeds_only_what_differs(llama):
    session = llama.session([1, 2, 3])
    session.feed([4, 5, 6])
    assert session.advance_to([1, 2, 3, 4, 7, 8]).shape == (2, VOCAB)
    assert session.advance_to([1, 2, 3, 4, 7, 8]).shape == (1, VOCAB)  # the same again: its last token is fed
    assert session.advance_to([1, 2]).shape == (1, VOCAB)
    assert session.tokens == [1, 2]


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_both_implementations_of_attention_take_trees_and_uneven_batches(attention):
    lm = LM(random_model("llama", attn_implementation=attention))
    session, batch = lm.session([1, 2, 3]), lm.batch([[1, 2, 3], [4]])
    session.feed()
    logits = session.feed_tree(TokenTree.from_paths([[4, 5], [6]]))
    assert_rows(logits[2:], recomputed(lm.model, [1, 2, 3, 6])[-1:])
    batch.feed([[], []])
    assert_rows(batch.feed([[1], [2]])[1], recomputed(lm.model, [4, 2])[-1:])


def test_a_prompt_may_fill_the_context_and_then_there_is_no_room(lm):
    session = lm.session([1] * CONTEXT)
    assert_rows(session.feed(), recomputed(lm.model, [1] * CONTEXT)[-1:])
    assert session.room == 0
    with pytest.raises(ValueError, match="1 tokens to feed, but room for 0"):
        session.feed([1])


# ----------------------------------------------------------------------------------------------------------------------
# Hidden states


def test_hidden_states_are_row_for_row_with_the_logits_in_transformers_order(lm):
    layers = lm.model.config.get_text_config().num_hidden_layers
    wanted = (0, 1, layers, -1)
    session = lm.session([1, 2, 3], hidden=wanted)
    assert session.hidden is None
    for feed, rows in ((lambda: session.feed([4, 5]), 3), (lambda: session.feed([6]), 1)):
        logits = feed()
        with torch.no_grad():
            states = lm.model(torch.tensor([session.tokens]), use_cache=False, output_hidden_states=True).hidden_states
        assert len(logits) == rows
        assert tuple(session.hidden) == wanted
        for layer in wanted:
            torch.testing.assert_close(session.hidden[layer], states[layer][0, -rows:], rtol=0, atol=1e-4)
    for layer in wanted:
        torch.testing.assert_close(session.prompt_hidden[layer], states[layer][0, :3], rtol=0, atol=1e-4)


def test_hidden_states_of_a_tree_are_in_the_order_of_its_nodes(llama):
    session = llama.session([1, 2, 3], hidden=1)
    session.feed()
    tree = TokenTree.from_paths([[4, 5], [6, 7]])
    session.feed_tree(tree)
    with torch.no_grad():
        states = llama.model(torch.tensor([[1, 2, 3, 6, 7]]), output_hidden_states=True).hidden_states[1][0]
    torch.testing.assert_close(session.hidden[2:], states[-2:], rtol=0, atol=1e-4)


def test_a_model_that_gives_no_hidden_states_is_an_error_that_says_so(monkeypatch):
    lm = LM(random_model("llama"))
    forward = lm.model.forward
    monkeypatch.setattr(lm.model, "forward", lambda output_hidden_states=None, **kwargs: forward(**kwargs))
    session = lm.session([1, 2], hidden=-1)
    with pytest.raises(ValueError, match="LlamaForCausalLM gives no hidden states"):
        session.feed()
    lm.session([1, 2]).feed()


# ----------------------------------------------------------------------------------------------------------------------
# Bad input: a clear error that names what was given


@pytest.mark.parametrize(
    "misuse, message",
    [
        (lambda s: s.feed(), "without tokens"),
        (lambda s: s.feed([VOCAB]), "outside the vocabulary"),
        (lambda s: s.feed([1] * CONTEXT), "room for"),
        (lambda s: s.rollback(-1), "expected 0 to 3"),
        (lambda s: s.rollback(4), "expected 0 to 3"),
        (lambda s: s.advance_to([]), "whole sequence"),
        (lambda s: s.advance_to([1] * (CONTEXT + 1)), "does not fit"),
        (lambda s: s.advance_to([1, 2, VOCAB]), "outside the vocabulary"),
        (lambda s: s.keep([]), "there is no tree"),
        (lambda s: s.feed_tree(TokenTree([], [])), "the tree is empty"),
        (lambda s: s.feed_tree(TokenTree([VOCAB], [-1])), "the tree holds"),
        (lambda s: s.feed_tree(TokenTree.chain([1] * CONTEXT)), f"{CONTEXT} tokens deep"),
    ],
)
def test_misuse_of_a_session_is_named_and_changes_nothing(llama, misuse, message):
    session = llama.session([1, 2, 3])
    session.feed()
    with pytest.raises(ValueError, match=message):
        misuse(session)
    assert session.tokens == [1, 2, 3]
    assert_rows(session.feed([4]), recomputed(llama.model, [1, 2, 3, 4])[-1:])


@pytest.mark.parametrize("path", [[1], [0, 2], [0, 0], [3], [-1], [0, 1, 2]])
def test_keep_refuses_what_is_no_path_down_the_tree(llama, path):
    session = llama.session([1, 2, 3])
    session.feed_tree(TokenTree([4, 5, 6], [-1, 0, -1]))
    with pytest.raises(ValueError, match="not a path down the tree"):
        session.keep(path)
    session.keep([0, 1])
    assert session.tokens == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("verb", ["feed", "rollback", "advance_to", "feed_tree"])
def test_an_open_tree_must_be_closed_first(llama, verb):
    session = llama.session([1, 2, 3])
    tree = TokenTree.chain([4, 5])
    session.feed_tree(tree)
    argument = {"feed": [1], "rollback": 1, "advance_to": [1, 2, 9], "feed_tree": tree}[verb]
    with pytest.raises(ValueError, match=f"{verb}: a tree has been fed"):
        getattr(session, verb)(argument)
    session.keep(())
    assert_rows(session.feed([4]), recomputed(llama.model, [1, 2, 3, 4])[-1:])


@pytest.mark.parametrize(
    "options, message",
    [
        ({"hidden": 4}, "no layer 4"),
        ({"hidden": (0, -5)}, "no layer -5"),
        ({"hidden": 1.5}, "hidden=1.5 must be the number of a layer"),
        ({"hidden": [True]}, "must be the number of a layer"),
        ({"cache": "magic"}, "kind of cache"),
    ],
)
def test_unknown_options_of_a_session_are_refused(llama, options, message):
    with pytest.raises(ValueError, match=message):
        llama.session([1], **options)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("where", ["get_output_embeddings", "get_input_embeddings"])
def test_nan_logits_are_an_error_and_leave_the_session_as_it_was_and_no_nan_behind(where, cache):
    """A weight of 0 times NaN is NaN: what the failed call wrote beyond the next one would spoil it, masked or not."""
    lm = LM(random_model("llama"))
    session, batch = lm.session([1, 2], cache=cache), lm.batch([[1, 2], [3]])
    session.feed()
    batch.feed([[], []])
    weight = getattr(lm.model, where)().weight.data
    before = weight.clone()
    weight[5] = math.nan
    tree = TokenTree.from_paths([[1, 5, 3], [2]])
    for call in (
        lambda: session.feed([5, 3, 4]),
        lambda: batch.feed([[], [2, 5, 3]]),
        lambda: session.feed_tree(tree),
    ):
        with pytest.raises(NaNLogits, match="NaN"):
            call()
    weight.copy_(before)
    assert (session.tokens, batch.tokens) == ([1, 2], [[1, 2], [3]])
    assert_rows(session.feed([3]), recomputed(lm.model, [1, 2, 3])[-1:])
    for logits, tokens in zip(batch.feed([[3, 1], [2]]), batch.tokens, strict=True):
        assert_rows(logits, recomputed(lm.model, tokens)[-len(logits) :])
