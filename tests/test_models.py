"""Families: found by name, loaded lazily and quietly, checked before they are trusted, refused with a reason."""

import json
import logging
import re
import shutil
import warnings
from pathlib import Path

import huggingface_hub
import huggingface_hub.constants
import pytest
import torch
from conftest import random_model
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

import tutorlib
from tutorlib import greedy, models, run
from tutorlib.training.storyworld import START, build, save
from tutorlib.training.tokenizers import END, learn

BOOK = Path(__file__).parents[1] / "book"
TEMPLATE = "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }} {% endfor %}[assistant]"


class Shape:
    """What `build` needs of a recipe, small."""

    layers, width, heads, stages = 2, 16, 2, ()
    specials = (START, END)

    def __init__(self, vocab_size, specials=(START, END)):
        self.vocab_size, self.specials = vocab_size, specials


def save_tiny(folder, vocab_size, seed, specials=(START, END)):
    save(tiny_model(vocab_size, specials), learn(vocab_size, seed=seed, stories=30, specials=specials), folder)


def tiny_model(vocab_size, specials=(START, END)):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocab_size, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=64, tie_word_embeddings=True, initializer_range=0.4,
        bos_token_id=specials.index(START), eos_token_id=specials.index(END), pad_token_id=None,
    )  # fmt: skip
    return LlamaForCausalLM(config)
