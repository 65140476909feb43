"""Small random models of many families, as fixtures: seeded, tiny, unlike enough to show what fits only one."""

import contextlib
import gc
import re
import warnings

import pytest
import torch
from tiny_family import cache, pristine_weights, weights  # noqa: F401

from tutorlib.model.lm import LM

# The models of the tests are tiny: threads would wait for each other longer than they compute, the more so where other
# work goes on beside the tests.
torch.set_num_threads(1)

# What is imported while tests are collected is all kept. Looking for garbage in it would take a third of that time.
gc.disable()

VOCAB = 19
CONTEXT = 48
WINDOW = 7  # of the families that have one: short, so that small tests get past it

_SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.4,  # large, so that the logits tell one context from another
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


def _config(family):
    import transformers as hf

    sizes = dict(_SIZES)
    if family == "gpt2":
        return hf.GPT2Config(
            vocab_size=VOCAB, n_embd=16, n_layer=3, n_head=4, n_positions=CONTEXT, initializer_range=0.4,
            bos_token_id=None, eos_token_id=None,
        )  # fmt: skip
    if family == "opt":
        return hf.OPTConfig(
            vocab_size=VOCAB, hidden_size=16, word_embed_proj_dim=16, ffn_dim=24, num_hidden_layers=3,
            num_attention_heads=4, max_position_embeddings=CONTEXT, init_std=0.4,
            bos_token_id=None, eos_token_id=None, pad_token_id=1,
        )  # fmt: skip
    if family == "gpt_neox":
        del sizes["num_key_value_heads"], sizes["head_dim"]
        return hf.GPTNeoXConfig(**sizes, rotary_pct=0.5)
    if family == "gemma2":
        return hf.Gemma2Config(**sizes, sliding_window=WINDOW, query_pre_attn_scalar=4)
    if family == "gemma3":
        layers = ["sliding_attention", "full_attention", "sliding_attention"]
        return hf.Gemma3TextConfig(**sizes, sliding_window=WINDOW, layer_types=layers, query_pre_attn_scalar=4)
    if family == "mistral":
        return hf.MistralConfig(**sizes, sliding_window=WINDOW)
    if family == "qwen2_mixed":
        return hf.Qwen2Config(**sizes, use_sliding_window=True, sliding_window=WINDOW, max_window_layers=1)
    if family in HYBRIDS:
        return _hybrid(family, sizes)
    if family in LOOPED:  # of sizes that the compiled loops take
        sizes |= {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2, "num_key_value_heads": 1}
        sizes |= {"head_dim": 16}
        kinds = {"looped_llama": hf.LlamaConfig, "looped_qwen2": hf.Qwen2Config, "looped_qwen3": hf.Qwen3Config}
        return kinds[family](**sizes)
    return {"llama": hf.LlamaConfig, "qwen2": hf.Qwen2Config, "qwen3": hf.Qwen3Config}[family](**sizes)


def _hybrid(family, sizes):
    """Models with a state of constant size, in some of their layers or in all of them."""
    import transformers as hf

    plain = {name: size for name, size in sizes.items() if name in ("vocab_size", "hidden_size", "num_hidden_layers")}
    plain |= {name: None for name in sizes if name.endswith("token_id")} | {"initializer_range": 0.4}
    mamba = {"mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 4, "mamba_n_groups": 1, "mamba_chunk_size": 8}
    if family == "qwen3_5":
        heads = {"linear_num_key_heads": 2, "linear_num_value_heads": 4}
        heads |= {"linear_key_head_dim": 4, "linear_value_head_dim": 4}
        layers = ["linear_attention", "full_attention", "linear_attention"]
        rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 0]}
        return hf.Qwen3_5TextConfig(**sizes | {"head_dim": 8}, **heads, layer_types=layers, rope_parameters=rope)
    if family == "lfm2":
        del sizes["head_dim"]
        return hf.Lfm2Config(**sizes, layer_types=["conv", "full_attention", "conv"])
    if family == "falcon_h1":  # every layer has both
        return hf.FalconH1Config(**sizes, **mamba, mamba_d_ssm=32)
    if family == "granitemoehybrid":
        sizes |= {"num_local_experts": 0, "num_experts_per_tok": 0, "shared_intermediate_size": 24}
        return hf.GraniteMoeHybridConfig(**sizes, **mamba, layer_types=["mamba", "attention", "mamba"])
    if family == "bamba":
        return hf.BambaConfig(**sizes, **mamba, attn_layer_indices=[1])
    if family == "jamba":
        sizes |= {"num_experts": 1, "num_experts_per_tok": 1, "mamba_d_state": 4, "mamba_dt_rank": 2}
        return hf.JambaConfig(**sizes, attn_layer_period=2, attn_layer_offset=1)
    if family == "mamba":
        return hf.MambaConfig(**plain, state_size=4)
    return hf.Mamba2Config(**plain, state_size=4, num_heads=4, head_dim=8, n_groups=1, chunk_size=8)


# These are computed with the cache that they make themselves (`own_cache.py`). Of the first three, one has layers of
# two kinds, one has two kinds of state in each layer, and one has nothing but states, and takes one token at a time.
HYBRIDS = ("qwen3_5", "falcon_h1", "mamba", "lfm2", "granitemoehybrid", "bamba", "jamba", "mamba2")
EVERY_HYBRID = [name if name in HYBRIDS[:3] else pytest.param(name, marks=pytest.mark.slow) for name in HYBRIDS]
FAMILIES = ("gpt2", "opt", "gpt_neox", "llama", "qwen2", "qwen3", "gemma2", "gemma3", "mistral", "qwen2_mixed")
LOOPED = ("looped_llama", "looped_qwen2", "looped_qwen3")  # computed by the compiled loops (`loops.py`), in float32
SLIDING = ("gemma2", "gemma3", "mistral", "qwen2_mixed")
# Each of these asks nothing of a cache that one of the others does not: they are left to the slow tests.
LIKE_OTHERS = ("gpt_neox", "qwen2", "qwen3", "gemma3")
EVERY_FAMILY = [pytest.param(name, marks=pytest.mark.slow) if name in LIKE_OTHERS else name for name in FAMILIES]


def random_model(family, dtype=torch.float32, seed=0, **settings):
    """A random model of `family` with VOCAB tokens and CONTEXT positions, in evaluation mode."""
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(_config(family), **settings)
    return model.to(dtype).eval()


def encoder_with_decoder():
    """A tiny model of a kind that this book is not about."""
    from transformers import BartConfig, BartForConditionalGeneration

    sizes = dict.fromkeys(("d_model", "encoder_ffn_dim", "decoder_ffn_dim", "max_position_embeddings"), 8)
    sizes |= {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    return BartForConditionalGeneration(BartConfig(vocab_size=9, **sizes, **special)).eval()


class Float64Throughout:
    """Lets models in float64 stay in float64.

    Models round to float32 inside (norms, softmax, rotary angles) whatever their weights are in. That rounding depends
    on the shapes of a call, so two right ways to compute the same logits differ by 1e-7; within this mode they agree to
    the last digits, and what is left is a fault of the cache.

    It replaces the few functions with which models do that. (A `TorchFunctionMode` would see them all, but takes nearly
    half the time of a small model: it is asked whenever somebody looks at a shape.)
    """

    ROUNDING = [(torch.Tensor, name) for name in ("to", "type", "softmax", "log_softmax", "sum", "mean")]
    ROUNDING += [(module, "softmax") for module in (torch, torch.nn.functional)]

    def __enter__(self):
        self._patch = pytest.MonkeyPatch()
        for place, name in self.ROUNDING:
            self._patch.setattr(place, name, _in_float64(getattr(place, name)))
        self._patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        # Angles are frequencies in float32 times positions, now in float64: in transformers 5.15 a matrix product.
        self._patch.setattr(torch.Tensor, "__matmul__", _of_one_dtype(torch.Tensor.__matmul__))
        return self

    def __exit__(self, *error):
        self._patch.undo()


def _in_float64(function):
    """`function`, which makes no float32 of a float64 tensor."""

    def call(tensor, *args, **kwargs):
        if tensor.dtype is torch.float64:
            if any(arg is torch.float32 for arg in args):
                args = [torch.float64 if arg is torch.float32 else arg for arg in args]
            if kwargs.get("dtype") is torch.float32:
                kwargs["dtype"] = torch.float64
        return function(tensor, *args, **kwargs)

    return call


def _of_one_dtype(product):
    """A matrix product whose factors may have two dtypes, as those of an elementwise one may."""

    def call(left, right):
        dtype = torch.promote_types(left.dtype, right.dtype)
        return product(left.to(dtype), right.to(dtype))

    return call


def in_words(value):
    """The name of a test's case: its argument, without addresses, which would be others in another process."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))


def exactly(dtype):
    """The mode above for float64, nothing for other dtypes."""
    return Float64Throughout() if dtype == torch.float64 else contextlib.nullcontext()


@pytest.fixture(scope="session")
def models():
    """`models(family, dtype)`: the same random model each time it is asked for."""
    made = {}

    def get(family, dtype=torch.float32):
        if (family, dtype) not in made:
            made[family, dtype] = random_model(family, dtype)
        return made[family, dtype]

    return get


@pytest.fixture(params=EVERY_FAMILY)
def family(request):
    return request.param


@pytest.fixture
def lm(models, family):
    """A small random model of each family, in float32."""
    return LM(models(family))


@pytest.fixture
def llama(models):
    """A small random Llama, in float32: for claims that do not depend on the family."""
    return LM(models("llama"))


class Clock:
    """A clock that stands still until a test moves it on: pass it, or put it, where `time.perf_counter` would be."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def early_limits(monkeypatch):
    """What changes in a cache at a length changes in a short sequence too."""
    monkeypatch.setattr("tutorlib.model.cache._SPARE_SLOTS", 1)  # so that the cache of a short sequence has to grow too
    monkeypatch.setattr("tutorlib.model.own_cache._AGAIN", 2)  # and snapshots are taken of it
    monkeypatch.setattr("tutorlib.model.llama.MANY", 5)  # and the beginning of some prompts is a matrix product


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def figures():
    """The book's style for a test that draws, no warning let through, and no figure left open."""
    import matplotlib
    import matplotlib.pyplot as plt

    from tutorlib.viz import use_book_style

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("error")
        # matplotlib 3.8 calls a newer pyparsing by its old names; that is between these two.
        warnings.filterwarnings(
            "ignore", r"'\w+' (argument is )?deprecated", DeprecationWarning, r"(matplotlib|pyparsing)\b"
        )
        use_book_style()
        yield
    plt.close("all")
