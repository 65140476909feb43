"""Families: found by name, loaded lazily and quietly, checked before they are trusted, refused with a reason."""

import json
import math
import re
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
import torch
from conftest import random_model
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils import logging as hf_logging

from tutorlib import greedy, models, run
from tutorlib.decoders.eagle import eagle
from tutorlib.decoders.medusa import medusa
from tutorlib.heads.eagle import TREE, Eagle3Head, EagleHead
from tutorlib.heads.formats import load_eagle, save_eagle, save_medusa
from tutorlib.heads.medusa import MedusaHeads
from tutorlib.training.storyworld import save
from tutorlib.training.tokenizers import END, START, learn

PAGE = Path(__file__).parents[1] / "book" / "models.md"
TEMPLATE = "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }} {% endfor %}[assistant]"


def write_model(folder, vocab_size, seed, specials=(START, END)):
    """A tiny Llama with a tokenizer of the village, written by what writes the bundled ones."""
    config = LlamaConfig(
        vocab_size=vocab_size, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=64, tie_word_embeddings=True, initializer_range=0.4,
        bos_token_id=specials.index(START), eos_token_id=specials.index(END), pad_token_id=None,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(vocab_size)
        save(LlamaForCausalLM(config), learn(vocab_size, seed=seed, stories=30, specials=specials), folder)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    """A family as the bundled one is laid out, tiny."""
    root = tmp_path_factory.mktemp("weights") / "storyworld"
    write_model(root / "target", 300, "one")
    write_model(root / "draft", 300, "one")
    write_model(root / "other_draft", 290, "two", (END, START))
    (root / "target" / "training_log.json").write_text("[]")
    (root / "MODEL_CARD.md").write_text("# Card")
    models.write_checksums(root)
    return root


@pytest.fixture
def weights(pristine, tmp_path, monkeypatch):
    """A copy of it that may be damaged, in the place of the bundled family."""
    shutil.copytree(pristine, tmp_path / "weights" / "storyworld")
    monkeypatch.setattr(models, "WEIGHTS", tmp_path / "weights")
    return tmp_path / "weights" / "storyworld"


@pytest.fixture(autouse=True)
def no_gpu_and_nothing_chosen(monkeypatch):
    monkeypatch.delenv(models.ENVIRONMENT, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """An empty cache of the hub, and no network; `hub.add(name, folder)` puts a model into the cache."""
    cache = tmp_path / "hub"
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)

    def add(name, folder, only="*"):
        repository, commit = cache / f"models--{name.replace('/', '--')}", "0" * 40
        (repository / "refs").mkdir(parents=True, exist_ok=True)
        (repository / "refs" / "main").write_text(commit)
        (repository / "snapshots" / commit).mkdir(parents=True, exist_ok=True)
        for path in Path(folder).glob(only):
            shutil.copy(path, repository / "snapshots" / commit)
        return repository / "snapshots" / commit

    return SimpleNamespace(add=add)


# The bundled family.


@pytest.fixture(scope="module")
def bundled():
    return models.load("storyworld", device="cpu")


def test_the_bundled_models_write_stories(bundled):
    for lm in (bundled.target, bundled.draft, bundled.other_draft):
        assert (lm.device.type, lm.dtype) == ("cpu", torch.float32) and lm.stop_tokens
        trace = run(greedy(lm, "Mia is in the"), max_new_tokens=12)
        assert trace.text.isprintable() and len(trace.text.split()) > 3


def test_the_bundled_drafts_have_the_targets_tokenizer_and_another(bundled):
    assert bundled.same_tokenizer
    assert bundled.target.encode("a red kite") == bundled.draft.encode("a red kite")
    assert bundled.target.encode("a red kite") != bundled.other_draft.encode("a red kite")
    for lm in (bundled.target, bundled.draft, bundled.other_draft):
        assert lm.decode(lm.encode("Ünlikely {wörds}, 3 times!")) == "Ünlikely {wörds}, 3 times!"


def test_the_bundled_heads_guess_for_the_bundled_target(bundled):
    prompt = "Mia, Ben and Ada lived in a small village. Mia was at the mill."
    plain, guessed = (
        run(steps, max_new_tokens=40)
        for steps in (greedy(bundled.target, prompt), medusa(bundled.target, bundled.medusa, prompt))
    )
    assert guessed.tokens == plain.tokens and guessed.target_calls < plain.target_calls / 2
    assert bundled.medusa.accuracies is not None and next(bundled.medusa.parameters()).dtype == torch.float32


@pytest.mark.parametrize("role", ["eagle", "eagle3"])
def test_the_bundled_networks_guess_for_the_bundled_target(bundled, role):
    prompt = "Mia, Ben and Ada lived in a small village. Mia was at the mill."
    network = getattr(bundled, role)
    assert isinstance(network, {"eagle": EagleHead, "eagle3": Eagle3Head}[role])
    plain, guessed = (
        run(steps, max_new_tokens=40)
        for steps in (greedy(bundled.target, prompt), eagle(bundled.target, network, prompt))
    )
    assert guessed.tokens == plain.tokens and guessed.target_calls < plain.target_calls / 2
    assert network.fc.weight.dtype == torch.float32 and network.tree != TREE  # the one that was measured to pay


def test_the_bundled_files_are_small_and_all_of_them_have_checksums():
    root = models.WEIGHTS / models.BUNDLED
    sums = json.loads((root / models.CHECKSUMS).read_text())
    files = [path for folder in models._models_in(root).values() for path in folder.iterdir()]
    loaded = {path.relative_to(root).as_posix() for path in files if path.name != "training_log.json"}
    assert loaded <= set(sums)
    assert sum(entry["bytes"] for entry in sums.values()) <= 24e6
    assert (root / "MODEL_CARD.md").is_file()


# What loading gives.


def test_a_family_has_the_three_models_in_single_precision(weights):
    family = models.load("storyworld")
    target, draft, other = family.target, family.draft, family.other_draft
    assert (target.vocab_size, draft.vocab_size, other.vocab_size) == (300, 300, 290)
    assert target.dtype == draft.dtype == torch.float32 and str(target.device) == "cpu"
    assert family.target is target and family.tokenizer is target.tokenizer
    assert target.stop_tokens == (1,) and other.stop_tokens == (0,)
    assert len(run(greedy(target, "Mia was"), 5, stop=()).tokens) == 5


def test_loading_gives_the_weights_that_were_saved(weights):
    from safetensors.torch import load_file

    saved = load_file(weights / "target" / "model.safetensors")
    loaded = models.load("storyworld").target.model.state_dict()
    assert saved and all(torch.equal(loaded[name], tensor.float()) for name, tensor in saved.items())


def test_models_are_loaded_when_they_are_first_used(weights, monkeypatch):
    loaded = []
    monkeypatch.setattr(models, "_load_model", lambda folder, *_: loaded.append(folder.name) or random_model("llama"))
    family = models.load("storyworld")
    assert family.same_tokenizer and family.chat("Hello") and loaded == []
    assert family.draft is family.draft and loaded == ["draft"]


def test_tokenizers_are_compared_by_their_vocabularies(weights):
    assert models.load("storyworld").same_tokenizer
    assert not models.load("storyworld", draft=weights / "other_draft").same_tokenizer


def test_device_and_dtype_are_the_callers_to_choose(weights):
    assert models.load("storyworld", dtype="float64").target.dtype == torch.float64
    assert models.load("storyworld", dtype=torch.bfloat16, device="cpu").draft.dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", ["float99", "int8", "nn", 3])
def test_a_dtype_that_is_none_is_refused(weights, dtype):
    with pytest.raises(ValueError, match=re.escape(repr(dtype))):
        models.load("storyworld", dtype=dtype)


@pytest.mark.parametrize("device", ["abacus", "cuda", "cuda:1", 1.5])
def test_a_device_that_is_not_there_is_refused(weights, device):
    with pytest.raises(ValueError, match=f"device='?{device}"):
        models.load("storyworld", device=device)


@pytest.mark.parametrize(("capability", "dtype"), [((7, 5), torch.float16), ((8, 0), torch.bfloat16)])
def test_a_gpu_gets_bfloat16_only_if_it_has_it(monkeypatch, capability, dtype):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert models._dtype(None, torch.device("cuda"), bundled=False) == dtype
    assert models._dtype(None, torch.device("cuda"), bundled=True) == torch.float32
    assert models._dtype(None, torch.device("mps"), bundled=False) == torch.float32


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_the_bundled_family_loads_on_a_gpu(monkeypatch):
    monkeypatch.undo()
    family = models.load("storyworld")
    assert (family.target.device.type, family.target.dtype) == ("cuda", torch.float32)
    assert run(greedy(family.target, "Mia is in the"), 8).tokens


@pytest.mark.parametrize("heads", ["medusa", "eagle", "eagle3"])
def test_heads_that_a_family_has_not_are_named(weights, heads):
    with pytest.raises(AttributeError, match="'storyworld' has no (Medusa|EAGLE|EAGLE-3) .* yet"):
        getattr(models.load("storyworld"), heads)


def test_nothing_is_printed_and_the_settings_of_logging_come_back(weights, capfd, recwarn, caplog, progress_bars):
    level = hf_logging.get_verbosity()
    family = models.load("storyworld")
    _ = family.target, family.draft, family.other_draft
    assert capfd.readouterr() == ("", "") and not recwarn.list and not caplog.records
    assert hf_logging.get_verbosity() == level and hf_logging.is_progress_bar_enabled()


@pytest.fixture
def progress_bars():
    """On, as in a fresh session; whoever disabled them gets them back disabled."""
    before = hf_logging.is_progress_bar_enabled()
    hf_logging.enable_progress_bar()
    yield
    if not before:
        hf_logging.disable_progress_bar()


# Which family.


def test_without_a_name_the_environment_decides_and_then_the_machine(weights, hub, monkeypatch, tmp_path):
    assert models.load().name == "storyworld"
    shutil.copytree(weights, tmp_path / "mine")
    monkeypatch.setenv(models.ENVIRONMENT, str(tmp_path / "mine"))
    assert models.load().name == "mine" and models.load("storyworld").name == "storyworld"
    monkeypatch.setenv(models.ENVIRONMENT, "storywrold")
    with pytest.raises(ValueError, match="TUTORLIB_MODELS='storywrold' .* Did you mean 'storyworld'"):
        models.load()
    monkeypatch.setenv(models.ENVIRONMENT, "")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(ConnectionError, match="openai-community/gpt2-large"):
        models.load(device="cpu")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("storywolrd", "storyworld"), ("gpt-2", "gpt2"), ("gpt2large", "openai-community/gpt2-large"),
        ("Quen2.5", "qwen2.5"), ("opt-125", "facebook/opt-125m"), ("gema2", "gemma-2"), ("vicuna7b", "vicuna"),
    ],
)  # fmt: skip
def test_an_unknown_name_suggests_the_nearest(typed, meant):
    with pytest.raises(ValueError, match=f"'{re.escape(typed)}' is no known model.*Did you mean '{re.escape(meant)}'"):
        models.load(typed)


@pytest.mark.parametrize("name", ["zzzzzz", "", "./nowhere", "/nowhere/at/all", "a/b/c", 7, ["gpt2"]])
def test_a_name_that_is_nothing_is_refused(name):
    with pytest.raises(ValueError, match=re.escape(repr(name))):
        models.load(name)


def test_a_directory_with_a_model_is_a_family_with_a_target(weights):
    for place in (weights / "draft", str(weights / "draft")):
        family = models.load(place)
        assert family.name == "draft" and family.target.vocab_size == 300 and family.published is None
        with pytest.raises(AttributeError, match="has no draft: add one with load"):
            _ = family.draft
    pair = models.load(weights / "target", draft=weights / "draft", other_draft=str(weights / "other_draft"))
    assert pair.same_tokenizer and pair.draft.vocab_size == 300 and pair.other_draft.vocab_size == 290


def test_a_directory_without_a_model_is_refused(tmp_path, weights):
    for arguments in ({"name": tmp_path / "weights"}, {"name": "storyworld", "draft": str(tmp_path)}):
        with pytest.raises(ValueError, match=re.escape(f"{tmp_path}") + ".* holds no model: expected config.json"):
            models.load(**arguments)


@pytest.mark.parametrize("name", ["gpt2", "GPT2", "gpt2-large", "openai-community/gpt2-large"])
def test_a_published_family_is_found_by_its_name_and_its_targets(weights, hub, name):
    hub.add("openai-community/gpt2-large", weights / "target")
    hub.add("openai-community/gpt2", weights / "draft")
    family = models.load(name)
    assert family.published.name == family.name == "gpt2" and family.same_tokenizer
    assert family.target.vocab_size == 300 and family.draft.vocab_size == 300


def test_any_other_hub_name_will_do(weights, hub):
    hub.add("someone/something", weights / "target")
    hub.add("someone/smaller", weights / "draft")
    family = models.load("someone/something", draft="someone/smaller")
    assert family.target.vocab_size == family.draft.vocab_size == 300


# Altered, truncated, missing.


def test_checksums_cover_what_is_loaded_and_nothing_else(weights):
    sums = json.loads((weights / models.CHECKSUMS).read_text())
    loaded = ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    assert sorted(sums) == sorted(f"{role}/{name}" for role in models._ROLES for name in loaded)
    (weights / "MODEL_CARD.md").write_text("# Another card")
    models.load("storyworld")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_single_altered_bit_is_found(weights, data):
    path = weights / data.draw(st.sampled_from(sorted(json.loads((weights / models.CHECKSUMS).read_text()))))
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
    with pytest.raises(
        ValueError, match=re.escape(f"{path} is missing: restore it") + ".*tutorlib.training storyworld"
    ):
        models.load("storyworld")


@pytest.mark.parametrize("content", [None, "{", "[]", "{}", '{"target/config.json": {}}', "[" * 100_000])
def test_checksums_that_are_missing_or_broken_are_named(weights, content):
    place = weights / models.CHECKSUMS
    place.unlink() if content is None else place.write_text(content)
    with pytest.raises(ValueError, match=re.escape(str(place))):
        models.load("storyworld")


@pytest.mark.parametrize(
    "added",
    ["config.json", "target/adapter_config.json", "target/chat_template.jinja", "medusa/config.json", "target/a/b.py"],
)
def test_a_file_without_a_checksum_is_refused(weights, added):
    """Some that transformers would read if they were there, one that makes the folder another family's, and others."""
    path = weights / added
    path.parent.mkdir(exist_ok=True)
    path.write_text("{}")
    with pytest.raises(ValueError, match=re.escape(f"{path} has no checksum") + ".*remove it"):
        models.load("storyworld")
    path.unlink()
    models.load("storyworld")


def test_without_any_bundled_weights_the_message_says_how_to_make_them(tmp_path, monkeypatch):
    monkeypatch.setattr(models, "WEIGHTS", tmp_path)
    with pytest.raises(ValueError, match=r"checksums.json is missing: .*python -m tutorlib.training storyworld"):
        models.load("storyworld")


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
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(ValueError, match=r"model.safetensors.index.json is broken"):
        _ = models.load(tmp_path).target


@pytest.mark.parametrize("name", ["../model.safetensors", "/dev/zero", "a\0b", "..", "", 3, None, ["a"], "a\\b"])
def test_an_index_names_files_beside_it_and_no_others(tmp_path, name):
    random_model("llama").save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"lm_head.weight": name}}))
    with pytest.raises(ValueError, match=r"model.safetensors.index.json (must name files beside it|is broken)"):
        _ = models.load(tmp_path).target


@pytest.mark.parametrize("name", ["a\0b", "\udcff", "a" * 10_000, "..\\..", "CON", "/dev/null", "owner/name\n", "~"])
def test_odd_names_are_no_models(name):
    with pytest.raises(ValueError, match=r"no known model|holds no model"):
        models.load(name)


@pytest.mark.parametrize(
    "key, value",
    [
        *(("num_hidden_layers", 10**9), ("vocab_size", 10**12), ("num_attention_heads", 10**9), ("head_dim", 10**10)),
        *(("num_hidden_layers", -1), ("hidden_size", "wide"), ("intermediate_size", None), ("vocab_size", [3])),
        *(("rope_parameters", {"num_hidden_layers": 10**9}), ("model_type", "nobody's"), ("num_hidden_layers", 1)),
    ],
)
def test_a_configuration_of_something_else_is_refused_before_it_is_made(weights, key, value):
    place = weights / "target" / "config.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | {key: value}))
    began = time.process_time()
    with pytest.raises(ValueError, match="config|cannot be loaded"):
        _ = models.load(weights / "target").target
    assert time.process_time() - began < 5


@pytest.mark.parametrize("content", ["[" * 100_000, "[]", "3", "{", "\xff", '{"a": ' * 50_000])
def test_a_configuration_that_is_no_object_is_refused(weights, content):
    (weights / "target" / "config.json").write_text(content)
    (weights / "target" / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match="config"):
        _ = models.load(weights / "target").target


def test_weights_of_another_model_are_refused(weights):
    config = json.loads((weights / "target" / "config.json").read_text())
    (weights / "target" / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    with pytest.raises(ValueError, match=r"model.safetensors: 9 of the model's tensors are missing"):
        _ = models.load(weights / "target").target
    (weights / "target" / "config.json").write_text(json.dumps(config | {"hidden_size": 32}))
    with pytest.raises(ValueError, match=r"cannot be loaded as a language model from .*model.safetensors"):
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


# Medusa heads.


def write_heads(folder, layout="medusa", seed=0, **sizes):
    """Seeded heads of the tiny target's sizes, in half precision as the bundled ones, in a layout."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        heads = MedusaHeads(**{"width": 16, "vocab_size": 300, "heads": 2, **sizes})
        for weight in heads.parameters():
            torch.nn.init.normal_(weight)
    heads.choices = [(0,), (0, 1)]
    save_medusa(heads.half(), folder, layout)
    return heads


def assert_are(loaded, saved, dtype=torch.float32):
    expected = saved.state_dict()
    assert loaded.state_dict().keys() == expected.keys()
    assert all(torch.equal(tensor, expected[name].to(dtype)) for name, tensor in loaded.state_dict().items())


def test_a_familys_heads_are_those_that_were_saved_in_the_targets_type(weights):
    saved = write_heads(weights / "medusa")
    (weights / "medusa" / "training_log.json").write_text("{}")
    models.write_checksums(weights)
    family = models.load("storyworld")
    assert_are(family.medusa, saved)
    assert family.medusa is family.medusa and family.medusa.choices == [(0,), (0, 1)]
    assert_are(models.load("storyworld", dtype="float64").medusa, saved, torch.float64)
    plain = run(greedy(family.target, "Mia was"), 12, stop=()).tokens
    assert run(medusa(family.target, family.medusa, "Mia was"), 12, stop=()).tokens == plain


def test_heads_are_checked_before_they_are_trusted(weights):
    write_heads(weights / "medusa")
    models.write_checksums(weights)
    assert {"medusa/config.json", "medusa/medusa_lm_head.safetensors"} < set(
        json.loads((weights / models.CHECKSUMS).read_text())
    )
    path = weights / "medusa" / "medusa_lm_head.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ValueError, match=re.escape(f"{path} was altered")):
        models.load("storyworld")


def test_heads_from_a_directory_go_with_any_target(weights, tmp_path):
    for layout in ("medusa", "vllm"):
        saved = write_heads(tmp_path / layout, layout)
        assert_are(models.load(weights / "target", medusa=tmp_path / layout).medusa, saved)
    with pytest.raises(ValueError, match="holds no model: expected config.json"):
        models.load(weights / "target", medusa=tmp_path)


def test_heads_of_another_target_are_refused(weights, tmp_path):
    write_heads(tmp_path / "wide", width=24)
    write_heads(tmp_path / "other", vocab_size=290)
    with pytest.raises(ValueError, match="width 24, the target's have 16"):
        _ = models.load(weights / "target", medusa=tmp_path / "wide").medusa
    with pytest.raises(ValueError, match="the heads know 290 tokens, the target 300"):
        _ = models.load(weights / "target", medusa=tmp_path / "other").medusa


def test_published_heads_are_found_by_their_hub_name(weights, hub, tmp_path):
    hub.add("lmsys/vicuna-7b-v1.3", weights / "target")
    family = models.load("vicuna")
    with pytest.raises(ConnectionError, match="FasterDecoding/medusa-vicuna-7b-v1.3 is not on this machine"):
        _ = family.medusa
    saved = write_heads(tmp_path / "heads")
    hub.add("FasterDecoding/medusa-vicuna-7b-v1.3", tmp_path / "heads", "config.json")
    with pytest.raises(ConnectionError, match="FasterDecoding/medusa-vicuna-7b-v1.3 is not on this machine"):
        _ = family.medusa  # the settings alone are not enough
    hub.add("FasterDecoding/medusa-vicuna-7b-v1.3", tmp_path / "heads")
    assert_are(family.medusa, saved)


def test_of_published_heads_pickles_are_downloaded_only_where_there_is_nothing_else(
    weights, hub, tmp_path, monkeypatch
):
    saved = write_heads(tmp_path / "heads")
    save_medusa(saved, tmp_path / "heads", pickled=True)
    here = hub.add("someone/heads", tmp_path / "heads", "nothing")
    asked = []

    def snapshot_download(repo, *, local_files_only=False, allow_patterns=(), ignore_patterns=None):
        if not local_files_only:
            asked.append([pattern for pattern in allow_patterns if pattern not in models._SMALL_FILES])
            for pattern in allow_patterns:
                hub.add("someone/heads", tmp_path / "heads", pattern)
        return str(here)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert_are(models.load(weights / "target", medusa="someone/heads").medusa, saved)
    assert asked == [["medusa_lm_head.safetensors"], ["medusa_lm_head.pt"]]


def test_a_pickle_of_heads_that_brings_code_is_refused_and_the_code_does_not_run(weights, tmp_path):
    write_heads(tmp_path / "heads")
    (tmp_path / "heads" / "medusa_lm_head.safetensors").unlink()
    torch.save({"0.0.linear.weight": Payload(tmp_path / "ran")}, tmp_path / "heads" / "medusa_lm_head.pt")
    with pytest.raises(ValueError, match=r"medusa_lm_head.pt .*no code in it was run"):
        _ = models.load(weights / "target", medusa=tmp_path / "heads").medusa
    assert not (tmp_path / "ran").exists()


# EAGLE networks.


def write_network(folder, role, layout="eagle", **sizes):
    """A seeded network of the tiny target's sizes, in half precision as the bundled ones, in a layout."""
    given = {"vocab_size": 300, "hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2}
    config = LlamaConfig(**{**given, "num_hidden_layers": 1, **sizes})
    network = EagleHead(config) if role == "eagle" else Eagle3Head(config, (0, 1, 2), range(0, 300, 2))
    for seed, weight in enumerate(network.parameters()):
        weight.data = torch.randn(weight.shape, generator=torch.Generator().manual_seed(seed)).half()
    network.tree = {"nodes": 5, "depth": 3, "top_k": 2}
    save_eagle(network, folder, layout)
    return network


NETWORKS = [("eagle", "eagle"), ("eagle3", "eagle"), ("eagle3", "speculators")]


@pytest.mark.parametrize(("role", "layout"), NETWORKS)
def test_a_familys_networks_are_those_that_were_saved_in_the_targets_type(weights, role, layout):
    saved = write_network(weights / role, role, layout)
    (weights / role / "training_log.json").write_text("{}")
    models.write_checksums(weights)
    assert {f"{role}/config.json", f"{role}/model.safetensors"} < set(
        json.loads((weights / models.CHECKSUMS).read_text())
    )
    family = models.load("storyworld")
    network = getattr(family, role)
    assert_network(network, saved, torch.float32)
    assert network is getattr(family, role) and network.tree == {"nodes": 5, "depth": 3, "top_k": 2}
    assert network.fc.weight.device == family.target.device
    plain = run(greedy(family.target, "Mia was"), 12, stop=()).tokens
    assert run(eagle(family.target, network, "Mia was"), 12, stop=()).tokens == plain
    for dtype in (torch.float64, torch.bfloat16):
        network = getattr(models.load("storyworld", dtype=dtype), role)
        assert_network(network, saved, dtype)
        places = torch.arange(400)[None]  # whose angles are not rounded with the weights
        exact = load_eagle(weights / role, dtype=torch.float64).rotation(places)
        assert all(map(torch.equal, network.rotation(places), (part.to(dtype) for part in exact)))


def assert_network(loaded, saved, dtype):
    expected = saved.state_dict()
    assert type(loaded) is type(saved) and loaded.state_dict().keys() == expected.keys()
    for name, tensor in loaded.state_dict().items():
        assert torch.equal(tensor, expected[name].to(dtype) if tensor.is_floating_point() else expected[name])
        assert tensor.dtype == (dtype if expected[name].is_floating_point() else expected[name].dtype)


def test_networks_from_a_directory_go_with_any_target(weights, tmp_path):
    for role, layout in NETWORKS:
        saved = write_network(tmp_path / role / layout, role, layout)
        family = models.load(weights / "target", **{role: tmp_path / role / layout})
        assert_network(getattr(family, role), saved, torch.float32)
    with pytest.raises(ValueError, match="holds no model: expected config.json"):
        models.load(weights / "target", eagle=tmp_path)
    path = write_network(weights / "eagle3", "eagle3") and weights / "eagle3" / "model.safetensors"
    models.write_checksums(weights)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(ValueError, match=re.escape(f"{path} was altered")):
        models.load("storyworld")


def test_one_kind_of_network_in_place_of_the_other_is_named(weights, tmp_path):
    for role, _ in NETWORKS:
        write_network(tmp_path / role, role)
    with pytest.raises(
        ValueError, match=r"eagle3 holds an EAGLE-3 network, expected an EAGLE network: load.…, eagle3="
    ):
        _ = models.load(weights / "target", eagle=tmp_path / "eagle3").eagle
    with pytest.raises(ValueError, match=r"eagle holds an EAGLE network, expected an EAGLE-3 network: load.…, eagle="):
        _ = models.load(weights / "target", eagle3=tmp_path / "eagle").eagle3


@pytest.mark.parametrize("role", ["eagle", "eagle3"])
def test_networks_of_another_target_are_refused(weights, tmp_path, role):
    for name, sizes, says in (
        ("wide", {"hidden_size": 24}, "hidden_size is 24, the target's is 16: the network is not its"),
        ("other", {"vocab_size": 310}, "vocab_size is 310, the target's is 300: the network is not its"),
    ):
        write_network(tmp_path / name, role, **sizes)
        with pytest.raises(ValueError, match=says):
            getattr(models.load(weights / "target", **{role: tmp_path / name}), role)


def test_published_networks_are_found_by_their_hub_name(weights, hub, tmp_path):
    hub.add("lmsys/vicuna-7b-v1.3", weights / "target")
    family = models.load("vicuna")
    saved = write_network(tmp_path / "network", "eagle")
    save_eagle(saved, tmp_path / "network", pickled=True)  # as these are published
    for there in ("nothing", "config.json"):  # the settings alone are not enough
        hub.add("yuhuili/EAGLE-Vicuna-7B-v1.3", tmp_path / "network", there)
        with pytest.raises(ConnectionError, match="yuhuili/EAGLE-Vicuna-7B-v1.3 is not on this machine"):
            _ = family.eagle
    hub.add("yuhuili/EAGLE-Vicuna-7B-v1.3", tmp_path / "network")
    assert_network(family.eagle, saved, torch.float32)
    assert family.published.eagle == "yuhuili/EAGLE-Vicuna-7B-v1.3"


def test_a_published_pickle_without_embeddings_takes_the_targets(weights, tmp_path):
    saved = write_network(tmp_path / "network", "eagle3")
    tensors = {name: tensor for name, tensor in saved.state_dict().items() if name != "embed_tokens.weight"}
    (tmp_path / "network" / "model.safetensors").unlink()
    torch.save(tensors, tmp_path / "network" / "pytorch_model.bin")
    family = models.load(weights / "target", eagle3=tmp_path / "network")
    embeddings = family.target.model.get_input_embeddings().weight
    assert torch.equal(family.eagle3.embed_tokens.weight, embeddings)


def test_a_pickle_of_a_network_that_brings_code_is_refused_and_the_code_does_not_run(weights, tmp_path):
    write_network(tmp_path / "network", "eagle")
    (tmp_path / "network" / "model.safetensors").unlink()
    torch.save({"fc.weight": Payload(tmp_path / "ran")}, tmp_path / "network" / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"pytorch_model.bin .*no code in it was run"):
        _ = models.load(weights / "target", eagle=tmp_path / "network").eagle
    assert not (tmp_path / "ran").exists()


# Nothing of a model's repository is executed.


def test_pickled_weights_are_loaded_where_there_are_no_others(tmp_path):
    model = random_model("gpt2")
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    loaded = models.load(tmp_path).target.model
    assert torch.equal(loaded.transformer.wte.weight, model.transformer.wte.weight)


class Payload:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return open, (str(self.mark), "w")


def test_a_pickle_that_brings_code_is_refused_and_the_code_does_not_run(tmp_path):
    random_model("gpt2").config.save_pretrained(tmp_path)
    torch.save({"lm_head.weight": Payload(tmp_path / "ran")}, tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"pytorch_model.bin: the pickle .* no code in it was run"):
        _ = models.load(tmp_path).target
    assert not (tmp_path / "ran").exists()


def test_a_repository_with_code_of_its_own_is_refused_and_the_code_does_not_run(weights, tmp_path):
    folder = weights / "target"
    automatic = {"AutoConfig": "mine.Config", "AutoModelForCausalLM": "mine.Model"}
    (folder / "config.json").write_text(json.dumps({"model_type": "mine", "auto_map": automatic}))
    (folder / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(ValueError, match="tutorlib runs no code from a model's repository"):
        models._load_model(folder, "mine", torch.device("cpu"), torch.float32)
    assert not (tmp_path / "ran").exists()


# No network, no access, no memory.


def test_without_a_network_the_message_says_what_to_do(hub):
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


def test_without_a_network_what_is_on_the_machine_is_used(weights, hub):
    hub.add("openai-community/gpt2-large", weights / "target", "*.json")
    family = models.load("gpt2")  # tokenizer and settings are here, the weights are not
    assert family.chat("Hello")
    with pytest.raises(ConnectionError, match="gpt2-large is not on this machine"):
        _ = family.target
    with pytest.raises(ConnectionError, match="openai-community/gpt2 is not on this machine"):
        _ = family.draft
    hub.add("openai-community/gpt2-large", weights / "target")
    assert family.target.vocab_size == 300


@pytest.mark.parametrize("error", [OSError("[Errno 101] Network is unreachable"), TimeoutError("timed out")])
def test_every_kind_of_no_network_gives_the_same_error(hub, monkeypatch, error):
    monkeypatch.setattr(huggingface_hub, "snapshot_download", answering(error))
    with pytest.raises(ConnectionError, match=f"{type(error).__name__}: .*{error.args[0][-9:]}"):
        models.load("pythia")


def answering(error):
    """A `snapshot_download` that finds nothing on this machine, and `error` on the network."""

    def snapshot_download(repo, *, local_files_only=False, **_):
        if local_files_only:
            raise huggingface_hub.errors.LocalEntryNotFoundError("nothing here")
        raise error

    return snapshot_download


def hub_error(kind):
    error = kind.__new__(kind)
    Exception.__init__(error, "the hub says no")
    return error


def test_a_gated_model_says_where_to_ask(hub, monkeypatch):
    monkeypatch.setattr(huggingface_hub, "snapshot_download", answering(hub_error(GatedRepoError)))
    with pytest.raises(PermissionError, match=r"huggingface.co/google/gemma-2-9b-it.*hf auth login.*storyworld"):
        models.load("gemma-2")


def test_a_model_that_the_hub_has_not_suggests_the_nearest(hub, monkeypatch):
    monkeypatch.setattr(huggingface_hub, "snapshot_download", answering(hub_error(RepositoryNotFoundError)))
    with pytest.raises(ValueError, match="no directory 'facebook/opt-13b'.*Did you mean 'facebook/opt-1.3b'"):
        models.load("facebook/opt-13b")


def test_a_full_disk_is_not_called_a_missing_network(hub, monkeypatch):
    monkeypatch.setattr(huggingface_hub, "snapshot_download", answering(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="no space left") as caught:
        models.load("pythia")
    assert not isinstance(caught.value, ConnectionError)


def test_only_the_files_that_are_needed_are_downloaded(weights, hub, monkeypatch):
    """Not the same weights in other formats; pickles only where there is nothing else."""
    asked = []

    def snapshot_download(repo, *, local_files_only=False, allow_patterns=(), ignore_patterns=None):
        if local_files_only:
            return str(here)
        asked.append([pattern for pattern in allow_patterns if pattern not in models._SMALL_FILES])
        assert ignore_patterns == ["*/*"]
        hub.add("facebook/opt-1.3b", weights / "target", "*.json")
        if "pytorch_model*.bin" in allow_patterns:
            torch.save({}, here / "pytorch_model.bin")
        return str(here)

    here = hub.add("facebook/opt-1.3b", weights / "target", "nothing")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    family = models.load("opt")
    assert asked == [[]]
    assert models._folder(family._sources["target"], weights=True) == here
    assert asked == [[], ["model*.safetensors"], ["pytorch_model*.bin"]]


def test_a_model_that_does_not_fit_says_sizes_and_a_smaller_family(weights, monkeypatch):
    monkeypatch.setattr(models, "_free", lambda device: 1000.0)
    with pytest.raises(MemoryError, match=r"does not fit: .* in float32 take .* GB.*load\('storyworld'\)"):
        _ = models.load(weights / "target").target
    monkeypatch.setattr(models, "_free", lambda device: 15e9)
    message = models._too_large("big", 7_000_000_000, torch.float16, torch.device("cpu"))
    assert "7,000 million weights in float16 take 14.0 GB, and cpu has 15.0 GB free" in message
    assert "load('qwen2.5-3b')" in message


def test_running_out_of_memory_while_loading_is_the_same_error(weights, monkeypatch):
    monkeypatch.setattr(LlamaForCausalLM, "to", lambda *_, **__: (_ for _ in ()).throw(torch.OutOfMemoryError("CUDA")))
    with pytest.raises(MemoryError, match="does not fit"):
        _ = models.load("storyworld").target


def test_free_memory_is_known_on_this_machine_or_unlimited():
    assert models._free(torch.device("cpu")) > 1e6
    assert models._free(torch.device("mps")) in (math.inf, models._free(torch.device("mps")))


def test_a_quantization_is_handed_to_the_target_only(weights, monkeypatch):
    given_to = {}

    def load_model(folder, name, device, dtype, quantization):
        given_to[folder.name] = quantization
        return random_model("llama")

    monkeypatch.setattr(models, "_load_model", load_model)
    family = models.load("storyworld", quantization="4 bits")
    _ = family.target, family.draft
    assert given_to == {"target": "4 bits", "draft": None}


# Chat.


@pytest.fixture
def chatty(weights):
    (weights / "target" / "chat_template.jinja").write_text(TEMPLATE)
    return models.load(weights / "target")


def test_a_question_is_written_in_the_models_own_format_with_its_special_tokens_once(chatty):
    tokens = chatty.chat("Where is Mia?")
    assert tokens == chatty.target.encode("[user] Where is Mia? [assistant]")
    assert tokens.count(chatty.tokenizer.bos_token_id) == 1
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where is Mia?"}]
    assert chatty.target.decode(chatty.chat(messages)) == "[system] Be brief. [user] Where is Mia? [assistant]"
    assert len(run(greedy(chatty.target, chatty.chat(messages)), 3, stop=()).tokens) == 3


def test_a_base_model_gets_plain_text(weights):
    family = models.load("storyworld")
    assert family.chat("Where is Mia?") == family.target.encode("Where is Mia?")
    two = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hi."}]
    assert family.chat(two) == family.target.encode("Hello.\nHi.")


@pytest.mark.parametrize("messages", [[], ["Hello"], [{"role": "user"}], [{"content": "Hello"}], [3]])
def test_messages_of_another_form_are_refused(chatty, messages):
    with pytest.raises(ValueError, match="messages must each be"):
        chatty.chat(messages)


def test_a_format_that_refuses_a_message_says_so(weights):
    (weights / "target" / "chat_template.jinja").write_text("{{ raise_exception('System role not supported') }}")
    with pytest.raises(ValueError, match="refuses .*System role not supported"):
        models.load(weights / "target").chat("Hello")


def test_vicuna_is_asked_in_its_own_words(weights, hub):
    hub.add("lmsys/vicuna-7b-v1.3", weights / "target")
    family = models.load("vicuna")
    text = family.target.decode(family.chat("Hello!"))
    assert text.startswith("A chat between a curious user") and text.endswith("questions. USER: Hello! ASSISTANT:")


# The table of published families, and its page.


def row(family):
    """A line of the page's table."""
    cell = "[{0}]({1})".format
    links = [cell(model.hub.partition("/")[2], model.page) if model else "–" for model in
             (family.target, family.draft, family.other_draft)]  # fmt: skip
    size = f"{family.download:.0f} GB" if family.download >= 10 else f"{family.download:.1f} GB"
    fits = {"float16": "yes, in float16", "4 bits": "target in 4 bits", "no": "no"}[family.t4]
    cells = [f"`{family.name}`", *links, size, family.licence, "yes" if family.gated else "no", fits, family.note]
    return "| " + " | ".join(cells) + " |"


def test_the_page_lists_the_published_families_as_they_are():
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert lines == [row(family) for family in models.families()]


def test_the_table_agrees_with_what_is_known_of_the_published_models():
    table = {family.name: family for family in models.families()}
    assert len(table) == len(models.families()) == 8
    assert {name for name, family in table.items() if family.gated} == {"gemma-2", "llama-2"}
    assert {name: family.t4 for name, family in table.items()} == {
        "gpt2": "float16", "opt": "float16", "pythia": "float16", "qwen2.5": "float16", "qwen2.5-3b": "float16",
        "gemma-2": "4 bits", "llama-2": "4 bits", "vicuna": "4 bits",
    }  # fmt: skip
    for family in table.values():
        assert family.target.parameters > 2 * family.draft.parameters
        for model in family.models:  # published in 2 or 4 bytes a weight; shared buffers and rounding aside
            assert 1.8 < model.download * 1000 / model.parameters < 4.6, model.hub
        assert repr(family).startswith(f"{family.name}: ") and family.target.hub in repr(family)


def test_the_family_for_gpus_is_open_and_fits_the_smallest():
    chosen = next(family for family in models.families() if family.name == models.ON_A_GPU)
    assert not chosen.gated and chosen.t4 == "float16"
