"""LM finds out whether a model obeys masks and positions, and returns the logits of full passes either way."""

import copy
import math
import threading
import weakref
from types import SimpleNamespace

import half_precision
import pytest
import torch
import transformers as hf
from conftest import random_model

from tutorlib.model import probe
from tutorlib.model.cache import KeyValues
from tutorlib.model.lm import LM
from tutorlib.model.own_cache import OwnCache
from tutorlib.model.tree import TokenTree
from tutorlib.model.uncached import TokenCache

SIZES = {"vocab_size": 29, "bos_token_id": None, "eos_token_id": None, "pad_token_id": 1}
LAYERS = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
LAYERS |= {"max_position_embeddings": 64, "initializer_range": 0.4}
LLAMA = {**SIZES, **LAYERS, "num_key_value_heads": 1, "pad_token_id": None}
DECODER = {"d_model": 16, "decoder_layers": 2, "decoder_attention_heads": 2, "decoder_ffn_dim": 24, "init_std": 0.4}
NEO = {**SIZES, "hidden_size": 16, "num_layers": 2, "num_heads": 2, "max_position_embeddings": 64}
NEO |= {"attention_types": [[["global", "local"], 1]], "initializer_range": 0.4}
# What each does with keys and values that is wrong: counts slots, numbers positions from the padding's on or by itself,
# has none or a state instead of keys, attends by distance, or in chunks.
DISOBEDIENT = {
    "gpt_neo": lambda: hf.GPTNeoForCausalLM(hf.GPTNeoConfig(**NEO, window_size=3)),
    "xlm_roberta": lambda: hf.XLMRobertaForCausalLM(hf.XLMRobertaConfig(**SIZES, **LAYERS, is_decoder=True)),
    "roberta": lambda: hf.RobertaForCausalLM(hf.RobertaConfig(**SIZES, **LAYERS, is_decoder=True)),
    "trocr": lambda: hf.TrOCRForCausalLM(hf.TrOCRConfig(**SIZES, **DECODER, max_position_embeddings=64)),
    "openai-gpt": lambda: hf.OpenAIGPTLMHeadModel(
        hf.OpenAIGPTConfig(vocab_size=29, n_embd=16, n_layer=2, n_head=2, n_positions=64, initializer_range=0.4)
    ),
    "bloom": lambda: hf.BloomForCausalLM(hf.BloomConfig(vocab_size=29, hidden_size=16, n_layer=2, n_head=2)),
    "rwkv": lambda: hf.RwkvForCausalLM(hf.RwkvConfig(**SIZES, hidden_size=16, num_hidden_layers=2)),
    "llama4": lambda: hf.Llama4ForCausalLM(
        hf.Llama4TextConfig(**LLAMA, attention_chunk_size=5, num_local_experts=2, head_dim=8, intermediate_size_mlp=24)
    ),
}


def made(family):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return DISOBEDIENT[family]().eval()


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    """Each test tries its models anew."""
    monkeypatch.setattr(probe, "_verdicts", weakref.WeakKeyDictionary())


def last_rows(model, tokens, rows):
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False).logits[0, -rows:]


def goes_right(lm):
    """Chains, a tree with a branch that is not in front, a rollback, rows of different lengths: against full passes."""

    def check(logits, tokens):
        torch.testing.assert_close(logits, last_rows(lm.model, tokens, len(logits)), rtol=0, atol=1e-4)

    text = [7, 3, 11, 5, 2, 17, 8]
    session = lm.session(text, hidden=1)
    check(session.feed([4, 6]), [*text, 4, 6])
    assert session.hidden.shape[0] == 3 and session.prompt_hidden.shape[0] == 7
    session.rollback(1)
    logits = session.feed_tree(TokenTree([9, 10, 12, 13, 14, 15, 16], [-1, 0, -1, 2, 2, 4, 5]))
    check(logits[:2], [*text, 4, 9, 10])
    check(logits[2:4], [*text, 4, 12, 13])
    check(logits[4:], [*text, 4, 12, 14, 15, 16])
    session.keep([2, 4, 5])
    check(session.feed([3]), [*text, 4, 12, 14, 15, 3])
    batch = lm.batch([text * 3, [5]])
    batch.feed([[], []])
    long, short = batch.feed([[4], [6, 8, 9]])
    check(long, [*text * 3, 4])
    check(short, [5, 6, 8, 9])
    batch.reorder([1, 1, 0])
    for logits, tokens in zip(batch.feed([[2], [3, 4], [5]]), batch.tokens, strict=True):
        check(logits, tokens)


@pytest.mark.parametrize("family", [family for family in DISOBEDIENT if family != "openai-gpt"])
def test_what_disobeys_is_computed_with_its_own_cache_and_no_warning(family):
    lm = LM(made(family))
    assert type(lm.session([1])._cache) is type(lm.batch([[1], [2]])._cache) is OwnCache
    goes_right(lm)
    assert lm.calls == 6, "the probe's calls are nobody's"


def test_what_has_no_cache_is_computed_in_full_and_says_so_once():
    lm = LM(made("openai-gpt"))
    with pytest.warns(UserWarning, match=f"{type(lm.model).__name__} cannot be used with a cache: .* in full"):
        assert type(lm.session([1])._cache) is TokenCache
    goes_right(lm)
    assert lm.calls == 6, "the probe's calls are nobody's"
    goes_right(LM(lm.model))  # the same model: no warning, or this would raise


def test_a_long_window_is_tried_when_a_sequence_gets_there():
    lm = LM(hf.GPTNeoForCausalLM(hf.GPTNeoConfig(**NEO, window_size=40)).eval())
    text = [5, 2, 9, 7, 11, 3] * 6 + [4, 4]
    session, batch = lm.session(text), lm.batch([text, [4]])
    session.feed()
    batch.feed([[], []])
    assert isinstance(batch._cache, KeyValues)
    longer, shorter = batch.feed([[6, 7, 8], [4]])
    assert isinstance(batch._cache, OwnCache)
    torch.testing.assert_close(longer, last_rows(lm.model, [*text, 6, 7, 8], 3))
    torch.testing.assert_close(shorter, last_rows(lm.model, [4, 4], 1))
    logits = session.feed_tree(TokenTree([9, 10, 11], [-1, -1, 1]))
    torch.testing.assert_close(logits[1:], last_rows(lm.model, [*text, 10, 11], 2))
    session.keep([1, 2])
    torch.testing.assert_close(session.feed([6]), last_rows(lm.model, [*text, 10, 11, 6], 1))


def test_only_numbers_that_size_no_weight_are_tried_when_a_sequence_gets_there():
    config = hf.MistralConfig(**{**LLAMA, "vocab_size": 40}, sliding_window=30, head_dim=14)
    lm = LM(hf.MistralForCausalLM(config).eval())
    assert lm.turns == [14, 16, 24, 30, 40]
    session = lm.session([1, 2, 3])
    cache = session._cache
    session.feed([4] * 50)
    assert session._cache is cache and session._cache.reach == math.inf
    assert {key[-1] for key in probe._verdicts[lm.model]} == {0, 30}


@pytest.mark.parametrize("rows_differ", [False, True])
def test_a_number_at_which_queries_are_scaled_anew_is_tried_whatever_its_name(rows_differ):
    # Llama 4 takes the position from the slot: a tree's nodes and shorter rows are scaled as if they were later.
    settings = {"num_local_experts": 2, "head_dim": 8, "intermediate_size_mlp": 8, "no_rope_layers": [0, 0]}
    config = hf.Llama4TextConfig(**LLAMA, **settings, attention_chunk_size=60, floor_scale=32, attn_scale=0.5)
    lm, text = LM(hf.Llama4ForCausalLM(config).eval()), [5, 2, 9, 7, 11, 3] * 5
    if rows_differ:
        batch = lm.batch([text, text[:25]])
        batch.feed([[], []])
        logits, _ = batch.feed([[6, 7, 8], [4]])
        assert isinstance(batch._cache, OwnCache)
        torch.testing.assert_close(logits, last_rows(lm.model, [*text, 6, 7, 8], 3))
    else:
        session = lm.session(text)
        session.feed()
        logits = session.feed_tree(TokenTree([3, 4, 5, 6], [-1, 0, -1, 2]))
        assert isinstance(session._cache, OwnCache)
        torch.testing.assert_close(logits[2:], last_rows(lm.model, [*text, 5, 6], 2))


def test_static_caches_are_tried_with_all_their_slots():
    # A window of slots would begin far beyond the text.
    lm = LM(hf.GPTNeoForCausalLM(hf.GPTNeoConfig(**NEO, window_size=60)).eval())
    session = lm.session([5, 2], cache="static")
    assert isinstance(session._cache, OwnCache)
    torch.testing.assert_close(session.feed([3]), last_rows(lm.model, [5, 2, 3], 2))


@pytest.mark.parametrize(
    "model, words",
    [
        (lambda: hf.BertLMHeadModel(hf.BertConfig(**SIZES, **LAYERS)), "is_decoder=True"),
        (lambda: hf.XmodForCausalLM(hf.XmodConfig(**SIZES, **LAYERS, is_decoder=True)), "set_default_language"),
    ],
)
def test_what_is_no_causal_language_model_is_refused_in_words(model, words):
    lm = LM(model().eval())
    for _ in range(2):
        with pytest.raises(ValueError, match=f"{type(lm.model).__name__} cannot .*{words}"):
            lm.session([1, 2])


def test_a_model_is_tried_once_by_all_threads_and_copies_together():
    lm, probes = LM(random_model("llama")), []
    forward = lm.model.forward
    lm.model.forward = lambda *args, **kwargs: probes.append(1) or forward(*args, **kwargs)
    threads = [threading.Thread(target=copy.copy(lm).session, args=([1],)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    LM(lm.model).session([1])
    assert len(probes) == 14 and lm.calls == 0


def push(module, inputs, output):
    """A hook whose effect depends on how a text is cut into calls."""
    output = output.clone()
    output[:, -1] += 5 * torch.arange(output.shape[-1]).sin()
    return output


def scale(module, inputs, output):
    """A hook that any cache can live with."""
    return output * 1.5


class Adapted(torch.nn.Module):
    """A layer with an adapter that looks at the whole call."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.active_adapter = layer, None

    def forward(self, states):
        return self.layer(push(self, None, states)) if self.active_adapter else self.layer(states)


def test_a_model_is_judged_by_itself_and_again_when_it_changes():
    plain, lm = LM(random_model("llama")), LM(random_model("llama"))
    for one in (plain, lm):
        one.session([1])
    layer = lm.model.model.layers[1].mlp
    hook = layer.down_proj.register_forward_hook(push)
    for _ in range(2):
        with pytest.raises(ValueError, match="even without a cache"):
            lm.session([1])
    hook.remove()
    layer.down_proj = Adapted(layer.down_proj)
    goes_right(lm)
    layer.down_proj.active_adapter = "one"
    with pytest.raises(ValueError, match="even without a cache"):
        lm.session([1])
    layer.down_proj.active_adapter = None
    layer.down_proj.register_forward_hook(scale)
    goes_right(lm)
    goes_right(plain)
    assert len(probe._verdicts[plain.model]) == 1


def by_an_optimizer(values, kept):
    for value, old in zip(values, kept, strict=True):
        value.grad = value.detach() - old
    torch.optim.SGD(values, lr=1.0).step()


def uncounted(values, kept):
    for value, old in zip(values, kept, strict=True):
        value.data.copy_(old)  # PyTorch does not count this as a change


@pytest.mark.parametrize("grow", [by_an_optimizer, uncounted])
def test_what_grows_in_training_is_tried_again(grow, monkeypatch):
    # A family whose cache is wrong, but so far attention moves nothing.
    model = made("gpt_neo")
    values = [layer.attn.attention.out_proj.weight for layer in model.transformer.h]
    kept = [value.detach().clone() for value in values]
    with torch.no_grad():
        for value in values:
            value.zero_()
        model.transformer.wpe.weight.zero_()
    lm = LM(model)
    assert isinstance(lm.session([1])._cache, KeyValues)
    assert not probe._verdicts[model], "nothing was seen, so nothing is remembered"
    with monkeypatch.context() as patch:
        patch.setattr(probe, "_judge", None)  # the same weights are not tried again
        lm.session([1])
    grow(values, kept)
    assert isinstance(lm.session([1])._cache, OwnCache)


def test_a_model_in_training_decodes_without_dropout():
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64, "initializer_range": 0.4}
    config = hf.GPT2Config(**SIZES, **sizes, resid_pdrop=0.5)
    lm = LM(hf.GPT2LMHeadModel(config).eval())
    session = lm.session([3, 4])
    expected = last_rows(lm.model, [3, 4, 5, 6], 2)
    lm.model.train()
    torch.testing.assert_close(session.feed([5, 6])[1:], expected)
    lm.model.transformer.h[0].train()  # one layer alone
    torch.testing.assert_close(lm.session([3, 4]).feed([5, 6])[1:], expected)


@pytest.mark.parametrize("family", ["gpt2", "opt", "gptj"])
def test_a_context_beyond_a_table_of_positions_is_refused(family):
    config = hf.GPTJConfig(vocab_size=19, n_embd=16, n_layer=1, n_head=2, n_positions=48, rotary_dim=4)
    model = hf.GPTJForCausalLM(config).eval() if family == "gptj" else random_model(family)
    assert LM(model, context=48).context == 48
    with pytest.raises(ValueError, match=r"context=49 is too long \(.* goes to 48: its table of positions"):
        LM(model, context=49)


class Invoked(torch.nn.Module):
    """A model with an adapter that acts from where a call last contains its invocation tokens (as aLoRA in peft)."""

    def __init__(self, model, tokens):
        super().__init__()
        self.model, self.config, self.tokens = model, model.config, tokens
        self.peft_config = {"default": SimpleNamespace(alora_invocation_tokens=tokens)}
        self.device, self.base_model = model.device, model.model
        self.get_input_embeddings = model.get_input_embeddings
        self.get_output_embeddings = model.get_output_embeddings

    def forward(self, input_ids, **inputs):
        output = self.model(input_ids=input_ids, **inputs)
        for row, logits in zip(input_ids.tolist(), output.logits, strict=True):
            places = [place for place in range(len(row)) if row[place : place + len(self.tokens)] == self.tokens]
            logits[max(places, default=len(row)) :] *= 2
        return output


def test_an_adapter_that_waits_for_tokens_is_refused():
    with pytest.raises(ValueError, match="even without a cache.*adapter that acts after its invocation tokens"):
        LM(Invoked(random_model("llama"), [4, 9, 7]).eval()).session([3, 1])


def test_a_model_whose_logits_show_nothing_teaches_nothing_about_its_kind():
    model = made("trocr")
    weight = model.get_output_embeddings().weight
    old = weight.detach().clone()
    with torch.no_grad():
        weight.zero_()
    LM(model).session([1]).feed()
    with torch.no_grad():
        weight.copy_(old)
    goes_right(LM(model))


@pytest.mark.parametrize("dtype", half_precision.DTYPES)
@pytest.mark.parametrize("family", [pytest.param(name, marks=pytest.mark.slow) for name in half_precision.HARD[1:]]
                         + ["mpt", "gemma2", "qwen2_moe", "bert"])  # fmt: skip
def test_in_half_precision_wrong_caches_are_found_out_and_right_ones_used(family, dtype):
    for *_, found, expected in half_precision.tried(family, 0, [dtype]):
        assert found == expected


def test_a_compiled_model_is_tried_without_compiling(monkeypatch):
    compiled = torch.compile(random_model("llama"), backend="eager")
    monkeypatch.setattr(type(compiled), "__call__", lambda *args, **kwargs: pytest.fail("compiled"))
    LM(compiled).session([1], cache="static")


# ----------------------------------------------------------------------------------------------------------------------
# Rotary scaling: constant, or another one for longer sequences

SHORT, LONG = 12, 24
LONG_FACTORS = {"short_factor": [1.0] * 4, "long_factor": [1.0, 2.0, 3.0, 4.0]}
ORIGINAL = {"original_max_position_embeddings": SHORT}
SCALINGS = {
    "default": {},
    "linear": {"factor": 2.0},
    "yarn": {"factor": 2.0, **ORIGINAL},
    "llama3": {"factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **ORIGINAL},
    "proportional": {},
    "longrope": {**LONG_FACTORS, **ORIGINAL},
    "dynamic": {"factor": 2.0},
}


def scaled(name, positions=LONG):
    rope = {"rope_type": name, "rope_theta": 10000.0, **SCALINGS[name]}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return hf.LlamaForCausalLM(
            hf.LlamaConfig(**{**LLAMA, "max_position_embeddings": positions}, rope_parameters=rope)
        ).eval()


def rows_that_later_tokens_change(model, length):
    """How many rows of a full pass over a shorter text differ from those of one over `length` tokens."""
    text = [7, 3, 11, 5, 2, 19, 8, 4] * 5
    whole = last_rows(copy.deepcopy(model), text[:length], length)
    short = last_rows(copy.deepcopy(model), text[:4], 4)
    return int(((whole[:4] - short).abs().amax(-1) > 1e-5).sum())


def test_every_rotary_scaling_of_transformers_is_measured_here():
    assert {"default", *hf.modeling_rope_utils.ROPE_INIT_FUNCTIONS} == set(SCALINGS)


@pytest.mark.parametrize("name", SCALINGS)
def test_the_context_ends_where_later_tokens_would_change_earlier_rows(name):
    model = scaled(name)
    lm, changing = LM(model), name in ("longrope", "dynamic")
    assert lm.context == {"longrope": SHORT, "dynamic": LONG - 1}.get(name, LONG)
    assert not rows_that_later_tokens_change(model, lm.context)
    assert bool(rows_that_later_tokens_change(model, LONG + 1)) == changing
    last_rows(model, [5] * (LONG + 6), 1)  # somebody else goes further: dynamic scaling would remember it
    text = [7, 3, 11, 5, 2, 19, 8, 4] * 5
    session = lm.session(text[:5])
    for start in range(5, lm.context, 3):
        logits = session.feed(text[start : start + 3][: session.room])
        fresh = last_rows(copy.deepcopy(scaled(name)), session.tokens, len(logits))
        torch.testing.assert_close(logits, fresh, rtol=0, atol=1e-4)
    assert session.room == 0
    if changing:
        words = rf'LlamaForCausalLM goes to {lm.context}: .* rotary scaling \("{name}"\)'
        with pytest.raises(ValueError, match=words):
            lm.session(text[: lm.context + 1])
        with pytest.raises(ValueError, match=words):
            LM(model, context=lm.context + 1)
    else:
        assert LM(model, context=LONG + 9).context == LONG + 9


def test_a_phi_3_stays_on_the_short_side_of_its_scaling():
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, **LONG_FACTORS}
    config = hf.Phi3Config(**LLAMA, original_max_position_embeddings=SHORT, rope_parameters=rope)
    assert LM(hf.Phi3ForCausalLM(config)).context == SHORT


def test_positions_before_the_first_token_are_no_room():
    lm = LM(made("roberta"))  # 64 positions, two of them below the first token's
    logits = lm.session([5] * 62).feed()
    assert lm.context == 62 and logits.shape == (1, 29)
    with pytest.raises(ValueError, match="62: the first positions of its table"):
        LM(lm.model, context=63)


def test_gemma_3n_is_not_read_out():
    # Four hidden states for each token between its layers, and one that is not normed at the end.
    config = hf.Gemma3nTextConfig(
        **LLAMA, head_dim=8, vocab_size_per_layer_input=29, hidden_size_per_layer_input=4, laurel_rank=2,
        num_kv_shared_layers=0, layer_types=["sliding_attention", "full_attention"], sliding_window=5,
    )  # fmt: skip
    lm = LM(hf.Gemma3nForCausalLM(config).eval())
    session = lm.session([1, 2, 3])
    torch.testing.assert_close(session.feed(), last_rows(lm.model, [1, 2, 3], 1))
    for normed in (False, True):
        with pytest.raises(ValueError, match="cannot read out its hidden states"):
            lm.read_out(torch.zeros(1, 16), normed=normed)
    with pytest.raises(ValueError, match=r"are no vector for each token: layer 1 has the shape \(4, 1, 3, 16\)"):
        lm.session([1, 2, 3], hidden=1).feed()
