"""What the tests of lossless methods share: small models, the warps to try, and the distance from plain sampling."""

import torch
from conftest import exactly
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, MistralConfig

from tutorlib.lm import LM
from tutorlib.proof import exact_distribution, target_distribution, total_variation
from tutorlib.table import TableLM
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
        return LM(AutoModelForCausalLM.from_config(CONFIGS[family]).to(torch.float64))


def distance(method, lm, prompt, length, warp=(), stop=(), **settings):
    """Total variation between what a method writes and what plain sampling from its model does."""
    with exactly(torch.float64):
        written = exact_distribution(lambda rng: method(lm, prompt, rng=rng, warp=warp, **settings), length, stop=stop)
        return total_variation(written, target_distribution(lm, prompt, length, warp=warp, stop=stop))
