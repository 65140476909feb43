"""What tests of loading share: a tiny family as the bundled one is laid out, and a cache of the hub, as fixtures."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch


def write_model(folder, vocab_size, seed, specials=None, weights_seed=None):
    """A tiny Llama with a tokenizer of the village, written by what writes the bundled ones."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from tutorlib.lab.training.tokenizers import END, START, learn
    from tutorlib.lab.training.train_village import save_model

    specials = specials or (START, END)
    config = LlamaConfig(
        vocab_size=vocab_size, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=64, tie_word_embeddings=True, initializer_range=0.4,
        bos_token_id=specials.index(START), eos_token_id=specials.index(END), pad_token_id=None,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(vocab_size if weights_seed is None else weights_seed)
        save_model(LlamaForCausalLM(config), learn(vocab_size, seed=seed, stories=30, specials=specials), folder)


@pytest.fixture(scope="session")
def pristine_weights(tmp_path_factory):
    from tutorlib import models
    from tutorlib.lab.training.tokenizers import END, START

    root = tmp_path_factory.mktemp("weights") / "storyworld"
    write_model(root / "target", 300, "one")
    write_model(root / "draft", 300, "one")
    write_model(root / "other_draft", 290, "two", (END, START))
    (root / "target" / "training_log.json").write_text("[]")
    (root / "MODEL_CARD.md").write_text("# Card")
    models.write_checksums(root)
    return root


@pytest.fixture
def weights(pristine_weights, tmp_path, monkeypatch):
    """A tiny family that may be damaged, in the place of the bundled one; no GPU, and nothing in the environment."""
    from tutorlib.loading import families, hub

    shutil.copytree(pristine_weights, tmp_path / "weights" / "storyworld")
    monkeypatch.setattr(hub, "WEIGHTS", tmp_path / "weights")
    monkeypatch.delenv(families.ENVIRONMENT, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return tmp_path / "weights" / "storyworld"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache of the hub, and no network; `cache.add(name, folder)` puts a model into the cache."""
    import huggingface_hub

    root = tmp_path / "hub"
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(root))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)

    def add(name, folder, only="*"):
        repository, commit = root / f"models--{name.replace('/', '--')}", "0" * 40
        (repository / "refs").mkdir(parents=True, exist_ok=True)
        (repository / "refs" / "main").write_text(commit)
        (repository / "snapshots" / commit).mkdir(parents=True, exist_ok=True)
        for path in Path(folder).glob(only):
            shutil.copy(path, repository / "snapshots" / commit)
        return repository / "snapshots" / commit

    return SimpleNamespace(add=add)
