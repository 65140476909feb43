"""LM: what it reads from a model, what it reads out of its layers, and what it refuses."""

import copy
import threading
import warnings

import numpy as np
import pytest
import torch
import transformers as hf
from conftest import CONTEXT, VOCAB, encoder_with_decoder, random_model
from full_passes import TABLE, assert_rows, recomputed
from tokenizers.processors import TemplateProcessing
from two_tokenizers import letters_tokenizer

from tutorlib.model.lm import LM
from tutorlib.model.table import TableLM
from tutorlib.model.vocabularies import check_same_vocabulary


def test_lm_reads_size_context_and_stop_tokens_from_the_model():
    config = hf.LlamaConfig(
        vocab_size=50, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=33, eos_token_id=[7, 3, 99],
    )  # fmt: skip
    lm = LM(hf.LlamaForCausalLM(config))
    assert (lm.vocab_size, lm.context, lm.dtype, lm.device.type) == (50, 33, torch.float32, "cpu")
    assert lm.stop_tokens == (3, 7)  # 99 is no token of this model
    assert LM(lm.model, context=10).context == 10


def test_the_width_is_that_of_what_the_output_head_reads():
    assert LM(random_model("llama")).width == 16
    sizes = {"vocab_size": 19, "hidden_size": 16, "ffn_dim": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    narrow = LM(hf.OPTForCausalLM(hf.OPTConfig(**sizes, word_embed_proj_dim=8, init_std=0.4)))
    session = narrow.session([5, 6, 7], hidden=-1)
    session.feed()
    assert narrow.width == session.hidden.shape[-1] == 8


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


def test_numpy_numbers_are_numbers(models):
    lm = LM(models("llama"), context=np.int64(9))
    session = lm.session(np.array([1, 2]), hidden=np.int64(1))
    assert session.feed(np.array([3], dtype=np.int32)).shape == (2, VOCAB) and session.hidden.shape == (2, 16)
    session.rollback(np.int64(1))
    assert (session.tokens, session.room, type(lm.context)) == ([1, 2], 7, int)
    assert TableLM.random(np.int64(3), np.int64(1), 0, context=np.int64(9)).decode(np.array([2])) == "c"


# ----------------------------------------------------------------------------------------------------------------------
# Reading out hidden states


def truncated(model, layers):
    """The model without its layers from number `layers` on: its early layers, norm and output head."""
    model = copy.deepcopy(model)
    decoder = model.get_decoder()
    name = next(name for name in ("h", "layers", "blocks") if hasattr(decoder, name))
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


@pytest.mark.filterwarnings("ignore:(Mpt|OpenAIGPT)[A-Za-z]* cannot be used with a cache")
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
        # Their last norms have names of their own: embedding_norm, norm_f, layer_norm. GPT has none.
        hf.Lfm2ForCausalLM(hf.Lfm2Config(layer_types=["full_attention"] * 2, **sizes, **shapes)),
        hf.MptForCausalLM(hf.MptConfig(d_model=16, n_heads=4, n_layers=2, max_seq_len=CONTEXT, initializer_range=0.4,
                                       vocab_size=VOCAB)),
        hf.XGLMForCausalLM(hf.XGLMConfig(d_model=16, ffn_dim=24, num_layers=2, attention_heads=4, init_std=0.4,
                                         dropout=0.0, **shapes)),
        hf.OpenAIGPTLMHeadModel(hf.OpenAIGPTConfig(vocab_size=VOCAB, n_positions=CONTEXT, n_embd=16, n_layer=2,
                                                   n_head=4, initializer_range=0.4)),
    ]  # fmt: skip
    for model in models:
        lm = LM(model.eval())
        session = lm.session([1, 2, 3], hidden=(1, -1))
        assert_rows(session.feed(), lm.read_out(session.hidden[-1], normed=True))
        assert_rows(recomputed(truncated(lm.model, 1), [1, 2, 3])[-1:], lm.read_out(session.hidden[1]))


def test_a_tokenizer_that_ends_every_text_is_warned_of_once():
    ends = letters_tokenizer("abcdefg")
    ends._tokenizer.post_processor = TemplateProcessing(single="$A g", special_tokens=[("g", 6)])
    ends.eos_token = "g"
    lm = LM(random_model("llama"), ends)
    with pytest.warns(UserWarning, match="ends every text with token 6 .'g'., which is a stop token") as warned:
        assert [lm.session("ab").tokens, lm.counted().session("ba").tokens] == [[0, 1, 6], [1, 0, 6]]
    assert len(warned) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = letters_tokenizer("abcdefg")
        plain.eos_token = "g"
        assert LM(random_model("llama"), plain).encode("abg") == [0, 1, 6], "the writer's own end is meant"


def test_the_first_to_read_out_takes_no_notice_of_what_other_threads_compute(llama):
    session = llama.session([1, 2, 3], hidden=1)
    session.feed()
    expected = LM(llama.model).read_out(session.hidden)
    begun, beside = [], llama.session([5, 6])

    def compute_beside(*_):
        if not begun:  # in the midst of the call that finds out how to read
            begun.append(threading.Thread(target=beside.feed))
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

    def change(decoder, _, output):
        return type(output)(output.last_hidden_state.relu(), hidden_states=output.hidden_states)

    with lm.model.model.register_forward_hook(change), pytest.raises(ValueError, match=r"after its layers \(norm\)"):
        LM(lm.model).read_out(session.hidden)


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


def flash_attention():
    model = random_model("llama")
    model.config._attn_implementation = "flash_attention_2"
    return model


NO_MODEL = "LM wraps a transformers model that has been loaded, got"
NO_CONTEXT = "context must be how many tokens fit, a whole number of 1 or more, got"


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


def test_models_with_different_tokens_are_told_apart(llama):
    """Without a tokenizer only the number of tokens counts."""
    one, same = TableLM.random("abc", 1, 0), TableLM.random("abc", 1, 1)
    for expert, amateur in ((one, same), (llama, TABLE), (TABLE, llama)):
        check_same_vocabulary(expert=expert, amateur=amateur)
    with pytest.raises(ValueError, match=f"{VOCAB} tokens and 3"):
        check_same_vocabulary(expert=llama, amateur=one)
    with pytest.raises(ValueError, match="the target and the draft .* 3 tokens and 2.* chapter 14"):
        check_same_vocabulary(target=one, draft=TableLM.random("ab", 1, 0))
    with pytest.raises(ValueError, match="different tokens: 1 is 'b' here and 'c' there.* chapter 14"):
        check_same_vocabulary(target=one, draft=TableLM.random("acb", 1, 0))
