"""Small tokenizers, and pairs of models whose tokenizers differ, for the tests of what drafts across them."""

import copy
import random

import torch
from conftest import random_model
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, PreTrainedTokenizerFast

from tutorlib.model.lm import LM
from tutorlib.model.table import TableLM, TableTokenizer


def tables(target_vocab, draft_vocab, seed=0, **settings):
    """Two random tables over two vocabularies."""
    return TableLM.random(target_vocab, 2, seed), TableLM.random(draft_vocab, 2, seed + 100, **settings)


def letters_tokenizer(texts):
    """A real tokenizer for which each of these letters is a token, and which raises for any other."""
    tokenizer = Tokenizer(models.WordLevel({text: token for token, text in enumerate(texts)}))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False)


def byte_tokenizer():
    """A real byte-level tokenizer of the 256 bytes: characters beyond ASCII take several tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: token for token, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def small_lm(kind, texts, seed):
    """A random model with real layers in float64 and a real tokenizer, small enough to enumerate."""
    sizes = {"vocab_size": len(texts), "initializer_range": 0.8, "bos_token_id": None, "eos_token_id": None}
    if kind == "llama":
        config = LlamaConfig(
            hidden_size=8, intermediate_size=8, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=24,
            **sizes,
        )  # fmt: skip
    else:
        config = GPT2Config(n_embd=8, n_layer=2, n_head=2, n_positions=24, **sizes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config)
    return LM(model.to(torch.float64), letters_tokenizer(texts))


def family_lm(family, seed=0, dtype=torch.float64):
    """A small random model of a family, whose tokens are the letters a to s."""
    return LM(random_model(family, dtype, seed), TableTokenizer([chr(ord("a") + token) for token in range(19)]))


def renumbered(lm, seed=0):
    """The same model with its tokens in another order, letter for letter."""
    order = list(range(lm.vocab_size))
    random.Random(seed).shuffle(order)  # new id -> old id
    vocab = [lm.tokenizer.vocab[old] for old in order]
    if isinstance(lm, TableLM):
        new_of = {old: new for new, old in enumerate(order)}
        table = {tuple(new_of[token] for token in key): row.exp()[order].tolist() for key, row in lm._rows.items()}
        return TableLM(table, vocab, context=lm.context)
    model = copy.deepcopy(lm.model)
    with torch.no_grad():
        for weight in {module.weight for module in (model.get_input_embeddings(), model.get_output_embeddings())}:
            weight.copy_(weight[order].clone())
    return LM(model, TableTokenizer(vocab))
