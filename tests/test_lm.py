"""LM, Session and Batch: whatever is fed, kept and rolled back, the logits are those of full recomputation."""

import copy
import math
import threading

import numpy as np
import pytest
import torch
import transformers as hf
from conftest import CONTEXT, EVERY_FAMILY, SLIDING, VOCAB, WINDOW, encoder_with_decoder, exactly, random_model
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tutorlib.lm import LM
from tutorlib.session import NaNLogits
from tutorlib.table import TableLM
from tutorlib.tree import TokenTree
from tutorlib.vocabularies import check_same_vocabulary

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}
PROPERTY = {
    "deadline": None,
    "database": None,
    "derandomize": True,
    "suppress_health_check": list(HealthCheck),
}
VERBS = ("feed", "feed_tree", "rollback", "advance_to")
BATCH_VERBS = ("feed", "feed", "rollback", "reorder")
tokens_of = st.lists(st.integers(0, VOCAB - 1), max_size=5)
# The finer of the two shows every fault of a cache that the other would; both take their time.
in_float64_and_slowly_in_float32 = pytest.mark.parametrize(
    "dtype", [torch.float64, pytest.param(torch.float32, marks=pytest.mark.slow)], ids=str
)
TABLE = TableLM.random(VOCAB, 2, 5, context=CONTEXT)  # whose reference is the table itself


def recomputed(model, tokens):
    """Logits after each of `tokens`, (len, vocab), by one call of the model without any cache: the reference."""
    if model is TABLE:
        return torch.stack([TABLE.log_probs(tokens[:end]) for end in range(1, len(tokens) + 1)])
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False).logits[0]


def assert_rows(logits, expected):
    assert logits.shape == expected.shape
    torch.testing.assert_close(logits, expected, rtol=0, atol=TOLERANCE[logits.dtype])


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


# ----------------------------------------------------------------------------------------------------------------------
# The claim everything rests on


@in_float64_and_slowly_in_float32
@pytest.mark.parametrize("family", [*EVERY_FAMILY, "table"])
def test_any_sequence_of_verbs_gives_the_logits_of_full_recomputation(models, family, dtype, monkeypatch):
    monkeypatch.setattr("tutorlib.cache._SPARE_SLOTS", 1)  # so that the cache of a short sequence has to grow too
    model = TABLE if family == "table" else models(family, dtype)
    lm = TABLE if family == "table" else LM(model)

    @settings(max_examples=15, **PROPERTY)
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
                expected = [
                    recomputed(model, wanted + [tree.tokens[i] for i in tree.path(node)])[-1]
                    for node in range(len(tree))
                ]
                assert_rows(logits, torch.stack(expected))
                path = tree.path(data.draw(st.integers(-1, len(tree) - 1), label="kept"))
                session.keep(path)
                wanted += [tree.tokens[node] for node in path]
                fresh = False
            assert session.tokens == wanted
            assert session.room == CONTEXT - len(wanted)

    with exactly(dtype):
        check()


@in_float64_and_slowly_in_float32
@pytest.mark.parametrize("family", [*EVERY_FAMILY, "table"])
def test_rows_of_a_batch_are_what_each_would_be_alone(models, family, dtype, monkeypatch):
    monkeypatch.setattr("tutorlib.cache._SPARE_SLOTS", 1)  # so that the cache of a short sequence has to grow too
    model = TABLE if family == "table" else models(family, dtype)
    lm = TABLE if family == "table" else LM(model)

    @settings(max_examples=10, **PROPERTY)
    @given(st.data())
    def check(data):
        prompts = data.draw(
            st.lists(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=14), min_size=1, max_size=4)
        )
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


# ----------------------------------------------------------------------------------------------------------------------
# Session


def test_the_first_feed_gives_the_prompts_last_row_and_what_is_computed_is_what_is_asked_for(lm):
    """One row a token after that; the prompt's inside is never put through the output head."""
    session, fed, widths = lm.session(list(range(12))), [], []
    head = lm.model.get_output_embeddings()
    with (
        lm.model.register_forward_pre_hook(lambda module, args, kwargs: fed.append(kwargs), with_kwargs=True),
        head.register_forward_pre_hook(lambda module, inputs: widths.append(inputs[0].shape[-2])),
    ):
        assert [session.feed(tokens).shape for tokens in ([4, 5], [6])] == [(3, VOCAB), (1, VOCAB)]
        assert (session.calls, lm.calls) == (2, 2)
        lm.session(list(range(12))).feed()
        lm.batch([list(range(12)), [1, 2]]).feed([[], []])
    assert widths == [3, 1, 1, 2]  # in the batch: one column for the end of each prompt
    assert fed[1]["input_ids"].tolist() == [[6]] and fed[1]["attention_mask"] is None


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


def truncated(model, layers):
    """The model without its layers from number `layers` on: its early layers, norm and output head."""
    model = copy.deepcopy(model)
    decoder = model.get_decoder()
    name = "h" if hasattr(decoder, "h") else "layers"
    setattr(decoder, name, getattr(decoder, name)[:layers])
    return model


def test_an_early_hidden_state_is_read_out_as_a_model_of_so_many_layers_would(lm):
    prompt = [5, 1, 11, 2, 7, 3, 9, 4, 8]
    session = lm.session(prompt[:6], hidden=range(lm.layers))
    session.feed(prompt[6:])
    seen = []
    for layer in range(lm.layers):
        logits = lm.read_out(session.hidden[layer])
        assert_rows(logits, recomputed(truncated(lm.model, layer), prompt)[-4:])
        seen.append(logits)
    assert lm.calls == 1, "reading out is no call"
    assert len({tuple(rows.argmax(-1).tolist()) for rows in seen}) > 1, "layers that agree show nothing"


def test_the_last_hidden_state_is_read_out_as_the_models_own_logits(lm):
    session = lm.session([1, 2, 3], hidden=-1)
    assert_rows(session.feed([4, 5]), lm.read_out(session.hidden, normed=True))
    one_more_axis = lm.read_out(session.hidden[None], normed=True)
    assert one_more_axis.shape == (1, 3, VOCAB) and not one_more_axis.requires_grad
    session = TableLM.random("abc", 1, 0).session("ab", hidden=-1)
    logits = session.feed([2])
    read = session.lm.read_out(session.hidden, normed=True)
    assert torch.equal(read, logits) and read.data_ptr() != session.hidden.data_ptr()


def test_families_that_project_or_scale_are_read_out_rightly_too():
    shapes = {"vocab_size": VOCAB, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": CONTEXT}
    shapes |= {"bos_token_id": None, "eos_token_id": None}
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_key_value_heads": 2, "initializer_range": 0.4}
    models = [
        # Like opt-350m: a projection behind the layers, and no final norm.
        hf.OPTForCausalLM(hf.OPTConfig(hidden_size=16, word_embed_proj_dim=8, ffn_dim=24, do_layer_norm_before=False,
                                       init_std=0.4, pad_token_id=1, **shapes)),
        hf.CohereForCausalLM(hf.CohereConfig(logit_scale=0.3, pad_token_id=0, **sizes, **shapes)),
        hf.GraniteForCausalLM(hf.GraniteConfig(logits_scaling=3.0, **sizes, **shapes)),
        hf.Gemma2ForCausalLM(hf.Gemma2Config(final_logit_softcapping=0.5, head_dim=4, **sizes, **shapes)),
    ]  # fmt: skip
    for model in models:
        lm = LM(model)
        session = lm.session([1, 2, 3], hidden=(1, -1))
        assert_rows(session.feed(), lm.read_out(session.hidden[-1], normed=True))
        assert_rows(recomputed(truncated(lm.model, 1), [1, 2, 3])[-1:], lm.read_out(session.hidden[1]))


def test_the_first_to_read_out_takes_no_notice_of_what_other_threads_compute(llama):
    session = llama.session([1, 2, 3], hidden=1)
    session.feed()
    expected = LM(llama.model).read_out(session.hidden)
    begun = []

    def compute_beside(*_):
        if not begun:  # in the midst of the call that finds out how to read
            begun.append(threading.Thread(target=llama.session([5, 6]).feed))
            begun[0].start()
            begun[0].join()

    calls = llama.calls
    with llama.model.get_input_embeddings().register_forward_hook(compute_beside):
        assert torch.equal(llama.counted().read_out(session.hidden), expected)
    assert (len(begun), llama.calls) == (1, calls + 1)
    with llama.model.get_input_embeddings().register_forward_hook(lambda *_: pytest.fail("found out already")):
        llama.counted().read_out(session.hidden)


def test_a_model_that_does_something_else_to_its_logits_is_not_read_out(monkeypatch):
    lm = LM(random_model("llama"))
    session = lm.session([1, 2, 3], hidden=1)
    session.feed()
    monkeypatch.setattr(lm.model.config, "logits_scaling", 1.5, raising=False)  # nothing that Llama looks at
    with pytest.raises(ValueError, match="LlamaForCausalLM does something else .* cannot read out"):
        lm.read_out(session.hidden)
    monkeypatch.undo()
    monkeypatch.setattr("tutorlib.lm._AFTER_LAYERS", ("the_name_of_no_norm",))
    with pytest.raises(ValueError, match="the modules the_name_of_no_norm and its output head"):
        LM(lm.model).read_out(session.hidden)


def test_a_model_that_gives_no_hidden_states_is_an_error_that_says_so(monkeypatch):
    lm = LM(random_model("llama"))
    forward = lm.model.forward
    monkeypatch.setattr(lm.model, "forward", lambda output_hidden_states=None, **kwargs: forward(**kwargs))
    session = lm.session([1, 2], hidden=-1)
    with pytest.raises(ValueError, match="LlamaForCausalLM gives no hidden states"):
        session.feed()
    lm.session([1, 2]).feed()


def test_hidden_states_of_a_tree_are_in_the_order_of_its_nodes(llama):
    session = llama.session([1, 2, 3], hidden=1)
    session.feed()
    tree = TokenTree.from_paths([[4, 5], [6, 7]])
    session.feed_tree(tree)
    with torch.no_grad():
        states = llama.model(torch.tensor([[1, 2, 3, 6, 7]]), output_hidden_states=True).hidden_states[1][0]
    torch.testing.assert_close(session.hidden[2:], states[-2:], rtol=0, atol=1e-4)


# ----------------------------------------------------------------------------------------------------------------------
# Batch


def test_a_short_row_may_ride_along_at_the_end_of_the_context(lm):
    # The padding of the long row would have positions beyond the context; learned positions have no row for them.
    batch = lm.batch([[1] * (CONTEXT - 2), [2]])
    batch.feed([[], []])
    rows = batch.feed([[3, 4], [5, 6, 7, 8, 9, 10]])
    assert batch.room == [0, CONTEXT - 7]
    for logits, tokens in zip(rows, batch.tokens, strict=True):
        assert_rows(logits, recomputed(lm.model, tokens)[-len(logits) :])


# ----------------------------------------------------------------------------------------------------------------------
# LM


def test_lm_reads_size_context_and_stop_tokens_from_the_model():
    config = hf.LlamaConfig(
        vocab_size=50, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=33, eos_token_id=[7, 3, 99],
    )  # fmt: skip
    lm = LM(hf.LlamaForCausalLM(config))
    assert (lm.vocab_size, lm.context, lm.dtype, lm.device.type) == (50, 33, torch.float32, "cpu")
    assert lm.stop_tokens == (3, 7)  # 99 is no token of this model
    assert LM(lm.model, context=10).context == 10


def test_a_model_in_training_mode_is_put_in_evaluation_mode():
    config = hf.GPT2Config(vocab_size=VOCAB, n_embd=16, n_layer=2, n_head=2, n_positions=16)
    lm = LM(hf.GPT2LMHeadModel(config).train())
    torch.testing.assert_close(lm.session([1, 2]).feed(), lm.session([1, 2]).feed())
    assert not lm.model.training


def words():
    """A tokenizer of five words that begins every text with <s>."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from tokenizers.processors import TemplateProcessing

    vocabulary = {"<s>": 0, "</s>": 1, "the": 2, "cat": 3, ",": 4, "?": 5}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


def test_text_is_encoded_with_the_tokenizers_special_tokens_and_decoded_without(models):
    lm = LM(models("llama"), words())
    assert lm.encode("the cat") == [0, 2, 3]
    assert lm.decode([0, 2, 3, 4, 1]) == "the cat ,"
    assert lm.session("the cat").tokens == [0, 2, 3]
    assert lm.stop_tokens == (1,)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_both_implementations_of_attention_take_trees_and_uneven_batches(attention):
    lm = LM(random_model("llama", attn_implementation=attention))
    session, batch = lm.session([1, 2, 3]), lm.batch([[1, 2, 3], [4]])
    session.feed()
    logits = session.feed_tree(TokenTree.from_paths([[4, 5], [6]]))
    assert_rows(logits[2:], recomputed(lm.model, [1, 2, 3, 6])[-1:])
    batch.feed([[], []])
    assert_rows(batch.feed([[1], [2]])[1], recomputed(lm.model, [4, 2])[-1:])


# ----------------------------------------------------------------------------------------------------------------------
# Bad input: a clear error that names what was given


@pytest.mark.parametrize(
    "prompt, message",
    [
        ([], r"empty"),
        ("the", r"no tokenizer"),
        ([1, VOCAB], rf"holds \[{VOCAB}\], outside the vocabulary of {VOCAB}"),
        ([-1], r"holds \[-1\]"),
        ([1.5], r"sequence of token ids .* got \[1.5\]"),
        ([[1, 2]], r"sequence of token ids"),
        ([True], r"sequence of token ids .* got \[True\]"),
        ({1, 2}, r"sequence of token ids .* got \{1, 2\}"),
        ({1: 2}, r"sequence of token ids .* got \{1: 2\}"),
        (b"\1\2", r"sequence of token ids .* got b"),
        (["1"], r"sequence of token ids .* got \['1'\]"),
        (np.array([1.0]), r"sequence of token ids .* got \[1.0\]"),
        (torch.tensor([[1, 2]]), r"sequence of token ids .* got \[\[1, 2\]\]"),
        (3, r"sequence of token ids .* got 3"),
        ([1] * (CONTEXT + 1), rf"{CONTEXT + 1} tokens, more than the context of {CONTEXT}"),
    ],
)
def test_a_bad_prompt_is_refused_at_once(llama, prompt, message):
    for make in (llama.prompt_tokens, llama.session, lambda prompt: llama.batch([prompt])):
        with pytest.raises(ValueError, match=message):
            make(prompt)


def test_a_text_without_tokens_is_refused(models):
    lm = LM(models("llama"), words())
    lm.tokenizer.backend_tokenizer.post_processor = None
    with pytest.raises(ValueError, match="the prompt '' has no tokens"):
        lm.session("")


def test_a_prompt_may_fill_the_context_and_then_there_is_no_room(lm):
    session = lm.session([1] * CONTEXT)
    assert_rows(session.feed(), recomputed(lm.model, [1] * CONTEXT)[-1:])
    assert session.room == 0
    with pytest.raises(ValueError, match="1 tokens to feed, but room for 0"):
        session.feed([1])


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
    "misuse, message",
    [
        (lambda b: b.feed([[1]]), "2 rows, got 1 entries"),
        (lambda b: b.feed([[], []]), "no row has anything"),
        (lambda b: b.feed([[1], [VOCAB]]), "row 1 holds"),
        (lambda b: b.feed([[1], [1] * CONTEXT]), "row 1: .* room for"),
        (lambda b: b.rollback([1]), "2 rows, got 1 entries"),
        (lambda b: b.rollback([0, 2]), "row 1 has 1 tokens, but 2"),
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


def flash_attention():
    model = random_model("llama")
    model.config._attn_implementation = "flash_attention_2"
    return model


NO_MODEL = "LM wraps a transformers model that has been loaded, got"
NO_CONTEXT = "context must be how many tokens fit, a whole number of at least 1, got"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        *((lambda model, what=what: LM(what), NO_MODEL) for what in ("gpt2", LM, TableLM, torch.nn.Linear(1, 1))),
        (lambda model: LM(TableLM.random(3, 1, 0)), NO_MODEL),
        *((lambda model, size=size: LM(model, context=size), NO_CONTEXT) for size in (0, -1, 1.5, True, "48")),
        (lambda model: LM(model.model), "LlamaModel makes no text.* AutoModelForCausalLM"),
        (lambda model: LM(model, "gpt2"), "the tokenizer must be a loaded one.* got 'gpt2'"),
        (lambda model: LM(encoder_with_decoder()), "decoder-only"),
        (lambda model: LM(flash_attention()), "sdpa"),
    ],
)
def test_what_cannot_be_wrapped_is_refused_at_the_call(models, make, message):
    with pytest.raises(ValueError, match=message):
        make(models("llama"))


@pytest.mark.parametrize(
    "ask",
    [
        lambda lm, session: lm.decode([1.7]),
        lambda lm, session: lm.decode("12"),
        lambda lm, session: lm.decode([-1]),
        lambda lm, session: lm.encode(["a", "b"]),
        lambda lm, session: session.rollback(0.5),
        lambda lm, session: session.rollback(True),
        lambda lm, session: session.feed({1}),
    ],
)
def test_numbers_and_texts_that_are_none_are_refused_and_not_cut(ask):
    lm = TableLM.random(3, 1, 0)
    with pytest.raises(ValueError, match="must be|needs|outside the vocabulary"):
        ask(lm, lm.session("a"))


def test_numpy_numbers_are_numbers(models):
    lm = LM(models("llama"), context=np.int64(9))
    session = lm.session(np.array([1, 2]), hidden=np.int64(1))
    assert session.feed(np.array([3], dtype=np.int32)).shape == (2, VOCAB) and session.hidden.shape == (2, 16)
    session.rollback(np.int64(1))
    assert (session.tokens, session.room, type(lm.context)) == ([1, 2], 7, int)
    assert TableLM.random(np.int64(3), np.int64(1), 0, context=np.int64(9)).decode(np.array([2])) == "c"


def test_nan_logits_are_an_error_and_the_session_is_unchanged():
    lm = LM(random_model("llama"))
    session, batch = lm.session([1, 2]), lm.batch([[1, 2], [3]])
    session.feed()
    batch.feed([[], []])
    weight = lm.model.get_output_embeddings().weight
    with torch.no_grad():
        old = weight[5].clone()
        weight[5] = math.nan
    with pytest.raises(NaNLogits, match="NaN"):
        session.feed([3])
    with pytest.raises(NaNLogits, match="NaN"):
        batch.feed([[3], []])
    with pytest.raises(NaNLogits, match="NaN"):
        session.feed_tree(TokenTree.from_paths([[1], [2]]))
    with torch.no_grad():
        weight[5] = old
    assert session.tokens == [1, 2]
    assert_rows(session.feed([3]), recomputed(lm.model, [1, 2, 3])[-1:])
    assert_rows(batch.feed([[3], []])[0], recomputed(lm.model, [1, 2, 3])[-1:])


def test_running_out_of_memory_says_how_much_was_asked(llama, monkeypatch):
    def forward(**kwargs):
        raise torch.OutOfMemoryError("out of memory")

    batch = llama.batch([[1, 2, 3], [4]])
    monkeypatch.setattr(llama.model, "forward", forward)
    with pytest.raises(torch.OutOfMemoryError, match="2 rows of 3 new tokens after 0"):
        batch.feed([[], []])


# ----------------------------------------------------------------------------------------------------------------------
# Two models, one vocabulary


def test_models_with_different_tokens_are_told_apart(llama):
    """Without a tokenizer only the number of tokens counts."""
    one, same = TableLM.random("abc", 1, 0), TableLM.random("abc", 1, 1)
    for expert, amateur in ((one, same), (llama, TABLE), (TABLE, llama)):
        check_same_vocabulary(expert=expert, amateur=amateur)
    with pytest.raises(ValueError, match=f"{VOCAB} tokens and 3"):
        check_same_vocabulary(expert=llama, amateur=one)
    with pytest.raises(ValueError, match='the target and the draft .* 3 tokens and 2.* section "Other tokenizers"'):
        check_same_vocabulary(target=one, draft=TableLM.random("ab", 1, 0))
    with pytest.raises(ValueError, match="different tokens: 1 is 'b' here and 'c' there.* chapter 9"):
        check_same_vocabulary(target=one, draft=TableLM.random("acb", 1, 0))


def test_the_width_is_that_of_what_the_output_head_reads():
    assert LM(random_model("llama")).width == 16
    sizes = {"vocab_size": 19, "hidden_size": 16, "ffn_dim": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    narrow = LM(hf.OPTForCausalLM(hf.OPTConfig(**sizes, word_embed_proj_dim=8, init_std=0.4)))
    session = narrow.session([5, 6, 7], hidden=-1)
    session.feed()
    assert narrow.width == session.hidden.shape[-1] == 8
