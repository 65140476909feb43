"""What the tests of lossless methods share: small models, the warps to try, and the distance from plain sampling."""

import warnings

import pytest
import torch
from conftest import exactly
from transformers import AutoModelForCausalLM, GPT2Config, GPTNeoConfig, LlamaConfig, MistralConfig, Phi3Config

from tutorlib.lm import LM
from tutorlib.proof import exact_distribution, target_distribution, total_variation
from tutorlib.table import TableLM
from tutorlib.uncached import TokenCache
from tutorlib.warp import frequency_penalty, min_p, no_repeat_ngram, repetition_penalty, temperature, top_k, top_p

EXACT = 1e-9
# Nothing; one of each kind; three pairs. None of their thresholds lies on a sum of probabilities of the models below.
WARPS = {
    "no warp": [],
    "temperature": [temperature(1.7)],
    "top-k": [top_k(2)],
    "top-p": [top_p(0.71)],
    "min-p": [min_p(0.37)],
    "penalty": [repetition_penalty(1.6)],
    "temperature and top-p": [temperature(0.6), top_p(0.83)],
    "penalty and temperature": [frequency_penalty(0.4), temperature(1.3)],
    "penalty and top-k": [no_repeat_ngram(4), top_k(2)],
}
SIZES = {"vocab_size": 3, "bos_token_id": None, "eos_token_id": None}
LAYERS = {
    **SIZES, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 16, "initializer_range": 0.8,
}  # fmt: skip
CONFIGS = {
    "llama": LlamaConfig(**LAYERS),
    "mistral, window 3": MistralConfig(**LAYERS, sliding_window=3),
    "gpt2": GPT2Config(**SIZES, n_embd=8, n_layer=2, n_head=2, n_positions=16, initializer_range=0.8),
}
LONGROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0, 1.5], "long_factor": [1.0, 4.0]}
# A constant scaling of rotary angles; one that ends the context at half of its positions; and no cache to rely on.
ODD_CONFIGS = {
    "llama, yarn": LlamaConfig(**LAYERS, rope_parameters={
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 4}),
    "phi3, longrope": Phi3Config(
        **LAYERS, pad_token_id=None, original_max_position_embeddings=8, rope_parameters=LONGROPE),
    "gpt_neo, window 3": GPTNeoConfig(
        **SIZES, hidden_size=8, num_layers=2, num_heads=2, max_position_embeddings=16, initializer_range=0.8,
        attention_types=[[["global", "local"], 1]], window_size=3),
}  # fmt: skip
# Every warp over the models that are used most, and one warp over the others.
on_real_models = pytest.mark.parametrize(
    "family, warp",
    [pytest.param(family, warp, id=f"{family}-{name}") for family in CONFIGS for name, warp in WARPS.items()]
    + [pytest.param(family, WARPS["penalty and temperature"], id=family) for family in ODD_CONFIGS],
)


def table(vocab=3):
    """Every token is possible after every context of two."""
    return TableLM.random(vocab, 2, seed=3)


def ring(size, context=64):
    """Sure of everything: after each token comes the next, and after the last the first."""
    return TableLM(
        {(token,): [float(other == (token + 1) % size) for other in range(size)] for token in range(size)},
        context=context,
    )


def small(family):
    """A random model with three tokens, in float64."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        lm = LM(AutoModelForCausalLM.from_config({**CONFIGS, **ODD_CONFIGS}[family]).to(torch.float64))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # GPT-Neo does without a cache, which others are not to do
        lm.session([0])
    assert isinstance(lm.session([0])._cache, TokenCache) == (family == "gpt_neo, window 3")
    return lm


def distance(method, lm, prompt, length, warp=(), stop=(), **settings):
    """Total variation between what a method writes and what plain sampling from its model does."""
    with exactly(torch.float64):
        written = exact_distribution(lambda rng: method(lm, prompt, rng=rng, warp=warp, **settings), length, stop=stop)
        return total_variation(written, target_distribution(lm, prompt, length, warp=warp, stop=stop))
