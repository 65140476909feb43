"""A model's files: found, downloaded when they are missing, checked before they are trusted, refused with a reason."""

import json
import re
import time

import huggingface_hub
import pytest
import torch
from conftest import random_model
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from tutorlib import greedy, models, run
from tutorlib.loading.families import MODELS
from tutorlib.loading.hub import CHECKSUMS

# Checksums: altered, truncated, missing, added.


def test_checksums_cover_what_is_loaded_and_nothing_else(weights):
    files = ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    loaded = {f"{role}/{name}" for role in MODELS for name in files}
    assert json.loads((weights / CHECKSUMS).read_text()).keys() == loaded
    (weights / "MODEL_CARD.md").write_text("# Another card")
    models.load("storyworld")


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_single_altered_bit_is_found(weights, data):
    path = weights / data.draw(st.sampled_from(sorted(json.loads((weights / CHECKSUMS).read_text()))))
    content = path.read_bytes()
    place, bit = data.draw(st.integers(0, len(content) - 1)), data.draw(st.integers(0, 7))
    path.write_bytes(content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :])
    try:
        with pytest.raises(ValueError, match=re.escape(f"{path} was altered")):
            models.load("storyworld")
    finally:
        path.write_bytes(content)


def test_a_truncated_or_missing_file_is_named_with_what_to_do(weights):
    path = weights / "draft" / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-100])
    with pytest.raises(ValueError, match=re.escape(f"{path} has {len(content) - 100} bytes where {len(content)}")):
        models.load("storyworld")
    path.unlink()
    with pytest.raises(ValueError, match=re.escape(f"{path} is missing: restore") + ".*command in .*MODEL_CARD"):
        models.load("storyworld")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "is missing: .*the command in .*MODEL_CARD.md"), ("{", "half-written"), ("[]", "no checksums"),
        ("[" * 100_000, "deeply"), ('{"target/config.json": {}}', "no checksums"), ("{}", "has no checksum in"),
    ],
)  # fmt: skip
def test_checksums_that_are_missing_or_broken_are_named(weights, content, says):
    place = weights / CHECKSUMS
    place.unlink() if content is None else place.write_text(content)
    with pytest.raises(ValueError, match=says) as caught:
        models.load("storyworld")
    assert str(place) in str(caught.value)


@pytest.mark.parametrize(
    "added",
    ["config.json", "target/adapter_config.json", "target/chat_template.jinja", "medusa/config.json",
     "eagle3/model.safetensors", "target/a/b.py"],
)  # fmt: skip
def test_a_file_without_a_checksum_is_refused(weights, added):
    """Some that transformers would read if they were there, one that makes the folder another family's, and others."""
    path = weights / added
    path.parent.mkdir(exist_ok=True)
    path.write_text("{}")
    with pytest.raises(ValueError, match=re.escape(f"{path} has no checksum") + ".*remove it"):
        models.load("storyworld")
    path.unlink()
    models.load("storyworld")


# Weights and settings that do not belong together, or are broken.


@pytest.mark.parametrize("kept", [0, 5, 200, -1])
def test_a_half_written_weight_file_of_any_directory_is_named(weights, kept):
    path = weights / "target" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=re.escape(f"{path} is truncated or altered")):
        _ = models.load(weights / "target").target


def test_a_missing_shard_is_named(tmp_path):
    random_model("llama").save_pretrained(tmp_path, max_shard_size="4KB")
    shards = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(shards) > 2 and models.load(tmp_path).target.vocab_size == 19
    shards[1].unlink()
    with pytest.raises(ValueError, match=re.escape(f"{shards[1]} is missing")):
        _ = models.load(tmp_path).target


@pytest.mark.parametrize(
    ("index", "says"),
    [
        *(({"weight_map": {"lm_head.weight": name}}, "must name files beside it") for name in
          ("../model.safetensors", "/dev/zero", "a\0b", "..", "", 3, None, "a\\b")),
        ({"weight_map": {"lm_head.weight": ["a"]}}, "is broken"), ({}, "is broken"), ({"weight_map": {}}, "names none"),
    ],
)  # fmt: skip
def test_an_index_names_files_beside_it_and_no_others(tmp_path, index, says):
    random_model("llama").save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=f"model.safetensors.index.json {says}"):
        _ = models.load(tmp_path).target


TOO_LARGE, BROKEN = r"config.json: {} is -?\d+, expected 1 to", "cannot be loaded"


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("num_hidden_layers", 10**9, TOO_LARGE), ("vocab_size", 10**12, TOO_LARGE), ("head_dim", 10**10, TOO_LARGE),
        ("num_attention_heads", 10**9, BROKEN), ("num_hidden_layers", -1, TOO_LARGE),
        ("hidden_size", "wide", BROKEN), ("intermediate_size", None, BROKEN), ("vocab_size", [3], BROKEN),
        ("rope_parameters", {"num_hidden_layers": 10**9}, TOO_LARGE), ("model_type", "nobody's", BROKEN),
        ("num_hidden_layers", 1, "9 tensors are of more layers than the config.json beside them says"),
        ("num_hidden_layers", 3, "model.safetensors: 9 of the model's tensors are missing"),
        ("hidden_size", 32, "cannot be loaded as a language model from .*model.safetensors"),
    ],
)  # fmt: skip
def test_a_configuration_of_something_else_is_refused_before_it_is_made(weights, key, value, says):
    place = weights / "target" / "config.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | {key: value}))
    began = time.process_time()
    with pytest.raises(ValueError, match=says.format("num_hidden_layers" if isinstance(value, dict) else key)):
        _ = models.load(weights / "target").target
    assert time.process_time() - began < 5


@pytest.mark.parametrize("content", ["[" * 100_000, "[]", "3", "{", "\xff", '{"a": ' * 50_000])
def test_a_configuration_that_is_no_object_is_refused(weights, content):
    (weights / "target" / "config.json").write_text(content)
    (weights / "target" / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match="config"):
        _ = models.load(weights / "target").target


def test_a_directory_without_weights_or_with_a_broken_tokenizer_is_refused(weights):
    (weights / "target" / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"target holds no weights: expected model.safetensors"):
        _ = models.load(weights / "target").target
    (weights / "target" / "tokenizer.json").write_text("{")
    with pytest.raises(ValueError, match=r"the tokenizer in .*target cannot be loaded"):
        _ = models.load(weights / "target").tokenizer


def test_a_model_without_a_tokenizer_takes_tokens_only(tmp_path):
    random_model("llama").save_pretrained(tmp_path)
    family = models.load(tmp_path)
    assert family.tokenizer is None and len(run(greedy(family.target, [3, 1]), 4).tokens) == 4
    with pytest.raises(ValueError, match="no tokenizer"):
        family.chat("Hello")


# The hub: no network, no access, no room.


def test_any_other_hub_name_will_do(weights, cache):
    cache.add("someone/something", weights / "target")
    cache.add("someone/smaller", weights / "draft")
    family = models.load("someone/something", draft="someone/smaller")
    assert family.target.vocab_size == family.draft.vocab_size == 300


def test_without_a_network_the_message_says_what_to_do(cache):
    with pytest.raises(ConnectionError) as caught:
        models.load("gpt2")
    for part in (
        "openai-community/gpt2-large is not on this machine",
        "hf download openai-community/gpt2-large",
        "3.2 GB",
        "HF_HOME",
        'load("path/to/directory")',
        'load("storyworld")',
        "TUTORLIB_MODELS=storyworld",
    ):
        assert part in str(caught.value)


def test_without_a_network_what_is_on_the_machine_is_used(weights, cache):
    cache.add("openai-community/gpt2-large", weights / "target", "*.json")
    family = models.load("gpt2")  # tokenizer and settings are here, the weights are not
    assert family.chat("Hello")
    with pytest.raises(ConnectionError, match="gpt2-large is not on this machine"):
        _ = family.target
    with pytest.raises(ConnectionError, match="openai-community/gpt2 is not on this machine"):
        _ = family.draft
    cache.add("openai-community/gpt2-large", weights / "target")
    assert family.target.vocab_size == 300


def hub_error(kind):
    error = kind.__new__(kind)
    Exception.__init__(error, "the hub says no")
    return error


@pytest.mark.parametrize(
    ("name", "error", "kind", "says"),
    [
        ("pythia", OSError("[Errno 101] Network is unreachable"), ConnectionError, "OSError: .*unreachable"),
        ("pythia", TimeoutError("timed out"), ConnectionError, "TimeoutError: timed out"),
        ("pythia", OSError(28, "No space left on device"), OSError, "no space left"),
        ("gemma-2", hub_error(GatedRepoError), PermissionError, "co/google/gemma-2-9b-it.*hf auth login.*storyworld"),
        ("facebook/opt-13b", hub_error(RepositoryNotFoundError), ValueError,
         "no directory 'facebook/opt-13b'.*Did you mean 'facebook/opt-1.3b'"),
    ],
)  # fmt: skip
def test_what_cannot_be_downloaded_says_why(cache, monkeypatch, name, error, kind, says):
    def snapshot_download(repo, *, local_files_only=False, **_):
        raise LocalEntryNotFoundError("nothing here") if local_files_only else error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    with pytest.raises(kind, match=says) as caught:
        models.load(name)
    assert caught.type is kind


def test_only_the_files_that_are_needed_are_downloaded(weights, cache, monkeypatch):
    """Not the same weights in other formats; pickles only where there is nothing else."""
    asked = []

    def snapshot_download(repo, *, local_files_only=False, allow_patterns=(), ignore_patterns=None):
        if not local_files_only:
            assert ignore_patterns == ["*/*"]
            asked.append([pattern for pattern in allow_patterns if "model" in pattern and pattern != "*.model"])
            for pattern in allow_patterns:
                cache.add("facebook/opt-1.3b", weights / "target", pattern)
        return str(here)

    path = weights / "target" / "model.safetensors"
    torch.save(load_file(path), path.with_name("pytorch_model.bin"))
    path.unlink()
    here = cache.add("facebook/opt-1.3b", weights / "target", "nothing")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    family = models.load("opt")
    assert asked == [[]]
    assert family.target.vocab_size == 300
    assert asked == [[], ["model*.safetensors"], ["pytorch_model*.bin"]]
