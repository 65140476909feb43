"""Families: loaded lazily and quietly, in the type that fits, with their heads, and without running anybody's code."""

import importlib.util
import json
import re
import shutil
from types import SimpleNamespace

import huggingface_hub
import pytest
import torch
import transformers
from conftest import random_model
from packaging.version import Version
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils import logging as hf_logging

from tutorlib import greedy, models, run, run_batch, sample_batch, speculative
from tutorlib.decoders.eagle import eagle
from tutorlib.decoders.medusa import medusa
from tutorlib.drafting.eagle_head import Eagle3Head, EagleHead
from tutorlib.drafting.medusa_heads import MedusaHeads
from tutorlib.lab.training import train_eagle
from tutorlib.loading.families import ENVIRONMENT
from tutorlib.loading.formats import BORROWED, load_eagle, load_medusa, output_weight, save_eagle, save_medusa

TEMPLATE = "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }} {% endfor %}[assistant]"


# What loading gives.


def test_a_family_has_the_three_models_in_single_precision(weights):
    family = models.load("storyworld")
    target, draft, other = family.target, family.draft, family.other_draft
    assert (target.vocab_size, draft.vocab_size, other.vocab_size) == (300, 300, 290)
    assert target.dtype == draft.dtype == torch.float32 and str(target.device) == "cpu"
    assert family.target is target and family.tokenizer is target.tokenizer
    assert target.stop_tokens == (1,) and other.stop_tokens == (0,)
    assert len(run(greedy(target, "Mia was"), 5, stop=()).tokens) == 5
    assert family.same_tokenizer and not models.load("storyworld", draft=weights / "other_draft").same_tokenizer
    saved, loaded = load_file(weights / "target" / "model.safetensors"), target.model.state_dict()
    assert saved and all(torch.equal(loaded[name], tensor.float()) for name, tensor in saved.items())


def test_models_are_loaded_when_they_are_first_used(weights, monkeypatch):
    asked = []

    def from_pretrained(folder, **_):
        asked.append(folder.name)
        return random_model("llama"), {"missing_keys": [], "unexpected_keys": []}

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", from_pretrained)
    family = models.load("storyworld")
    assert family.same_tokenizer and family.chat("Hello") and asked == []
    assert family.draft is family.draft and asked == ["draft"]
    assert family.target and asked == ["draft", "target"]


@pytest.mark.parametrize(
    ("name", "value"),
    [*(("dtype", dtype) for dtype in ("float99", "int8", "nn", 3)),
     *(("device", device) for device in ("abacus", "cuda", "cuda:1", 1.5))],
)  # fmt: skip
def test_a_dtype_or_device_that_is_none_is_refused(weights, name, value):
    with pytest.raises(ValueError, match=re.escape(f"{name}={value!r}")):
        models.load("storyworld", **{name: value})


@pytest.mark.parametrize(("capability", "dtype"), [((7, 5), torch.float16), ((8, 0), torch.bfloat16)])
def test_a_gpu_gets_bfloat16_only_if_it_has_it(weights, monkeypatch, capability, dtype):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    family = models.load(weights / "target")
    assert (family.device.type, family.dtype) == ("cuda", dtype)
    assert models.load("storyworld").dtype == torch.float32


def test_an_apple_gpu_gets_single_precision(weights, monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert models.load(weights / "target", device="mps").dtype == torch.float32


# Targets larger than a card.

PARTS = ("embed_tokens", "layers.0", "layers.1", "norm", "rotary_emb")
SCATTERED = {f"model.{part}": "cpu" for part in PARTS} | {"lm_head": "cpu"}
MAPS = {
    "all in one place": {"": "cpu"},
    "a layer on the disk": SCATTERED | {"model.layers.1": "disk"},
    "both ends on the disk": SCATTERED | {"model.embed_tokens": "disk", "lm_head": "disk"},
    "all on the disk": {"model": "disk", "lm_head": "disk"},
}


@pytest.mark.parametrize("device_map", MAPS.values(), ids=MAPS)
def test_with_weights_in_several_places_the_tokens_are_the_same(weights, device_map, tmp_path, capfd, caplog):
    accelerate = pytest.importorskip("accelerate")
    plain, family = models.load(weights), models.load(weights, device_map=device_map)
    if set(device_map.values()) == {"disk"} and Version(accelerate.__version__) < Version("1.15"):
        with pytest.raises(ValueError, match="You are trying to offload the whole model to the disk"):
            _ = family.target
        return
    assert str(family.target.device) == "cpu" and family.draft.model.device.type == "cpu"
    offloaded = {weight.is_meta for weight in family.target.model.parameters()}
    assert offloaded == ({False} if "disk" not in device_map.values() else offloaded | {True})
    save_medusa(MedusaHeads(16, 300, 2, output=output_weight(plain.target)), tmp_path / "medusa", "vllm", borrowed=True)
    head = train_eagle.new_eagle3(plain.target, [], (0, 1, 2))
    save_eagle(head, tmp_path / "eagle3", borrowed=BORROWED)
    for method in (
        lambda target: greedy(target, "Mia was"),
        lambda target: medusa(target, load_medusa(tmp_path / "medusa", target), "Mia was"),
        lambda target: eagle(target, load_eagle(tmp_path / "eagle3", target), "Mia was"),
        lambda target: speculative(target, family.draft, "Mia was"),
    ):
        assert run(method(family.target), 12, stop=()).tokens == run(method(plain.target), 12, stop=()).tokens
    prompts = ["Mia was", "Ben"]
    ours, theirs = (run_batch(sample_batch(one.target, prompts), 6, stop=()) for one in (plain, family))
    assert [trace.tokens for trace in ours] == [trace.tokens for trace in theirs]
    assert capfd.readouterr() == ("", "") and not caplog.records


def test_a_device_map_that_cannot_be_is_refused(weights, monkeypatch):
    for settings, says in [
        ({"device": "cpu", "device_map": "auto"}, "device='cpu' and device_map='auto': give one of the two"),
        ({"device_map": "everywhere"}, "device_map='everywhere': expected auto, .* or a dict"),
        ({"device_map": 0}, "device_map=0: expected auto, .* or a dict"),
        ({"offload_folder": "here"}, "offload_folder='here' needs a device_map"),
    ]:
        with pytest.raises(ValueError, match=says):
            models.load(weights, **settings)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="device_map needs accelerate: `pip install accelerate`"):
        models.load(weights, device_map="auto")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_the_bundled_family_loads_on_a_gpu():
    family = models.load("storyworld")
    assert (family.target.device.type, family.target.dtype) == ("cuda", torch.float32)
    assert run(greedy(family.target, "Mia is in the"), 8).tokens


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


def test_without_a_name_the_environment_decides_and_otherwise_it_is_the_village_on_every_machine(
    weights, cache, monkeypatch, tmp_path
):
    assert models.load().name == "storyworld"
    shutil.copytree(weights, tmp_path / "mine")
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "mine"))
    assert models.load().name == "mine" and models.load("storyworld").name == "storyworld"
    monkeypatch.setenv(ENVIRONMENT, "storywrold")
    with pytest.raises(ValueError, match="TUTORLIB_MODELS='storywrold' .* Did you mean 'storyworld'"):
        models.load()
    monkeypatch.setenv(ENVIRONMENT, "")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert models.load(device="cpu").name == "storyworld"


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


# Heads: Medusa's, and EAGLE networks.


def write_heads(folder, role, layout=None, **sizes):
    """Seeded heads of the tiny target's sizes, in half precision as the bundled ones, in a layout."""
    if role == "medusa":
        heads = MedusaHeads(**{"width": 16, "vocab_size": 300, "heads": 2, **sizes})
        heads.choices = [(0,), (0, 1)]
    else:
        given = {"vocab_size": 300, "hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2}
        config = LlamaConfig(**{**given, "num_hidden_layers": 1, **sizes})
        heads = EagleHead(config) if role == "eagle" else Eagle3Head(config, (0, 1, 2), range(0, 300, 2))
        heads.tree = {"nodes": 5, "depth": 3, "top_k": 2}
    for seed, weight in enumerate(heads.parameters()):
        weight.data = torch.randn(weight.shape, generator=torch.Generator().manual_seed(seed)).half()
    if role == "medusa":
        save_medusa(heads, folder, layout or "medusa")
    else:
        save_eagle(heads, folder, layout or "eagle")
    return heads


def assert_are(loaded, saved, dtype=torch.float32):
    expected = saved.state_dict()
    assert type(loaded) is type(saved) and loaded.state_dict().keys() == expected.keys()
    for name, tensor in loaded.state_dict().items():
        as_loaded = expected[name].to(dtype) if expected[name].is_floating_point() else expected[name]
        assert tensor.dtype == as_loaded.dtype and torch.equal(tensor, as_loaded)


ROLES = pytest.mark.parametrize("role", ["medusa", "eagle", "eagle3"])
LAYOUTS = pytest.mark.parametrize(
    ("role", "layout"),
    [("medusa", "medusa"), ("medusa", "vllm"), ("eagle", "eagle"), ("eagle3", "eagle"), ("eagle3", "speculators")],
)


@LAYOUTS
def test_a_familys_heads_are_those_that_were_saved_in_the_targets_type(weights, role, layout):
    saved = write_heads(weights / role, role, layout)
    (weights / role / "training_log.json").write_text("{}")
    models.write_checksums(weights)
    family = models.load("storyworld")
    heads = getattr(family, role)
    assert_are(heads, saved)
    assert heads is getattr(family, role)
    assert heads.choices == saved.choices if role == "medusa" else heads.tree == saved.tree
    assert {weight.device for weight in heads.parameters()} == {family.target.device}
    method = medusa if role == "medusa" else eagle
    plain = run(greedy(family.target, "Mia was"), 12, stop=()).tokens
    assert run(method(family.target, heads, "Mia was"), 12, stop=()).tokens == plain
    for dtype in ("float64", torch.bfloat16):
        family = models.load("storyworld", dtype=dtype)
        heads = getattr(family, role)
        assert_are(heads, saved, family.dtype)
        if role != "medusa":
            positions = torch.arange(400)[None]  # whose angles are not rounded with the weights
            exact = load_eagle(weights / role, dtype=torch.float64).rotation(positions)
            assert all(map(torch.equal, heads.rotation(positions), (part.to(family.dtype) for part in exact)))


@ROLES
def test_heads_from_a_directory_go_with_any_target(weights, tmp_path, role):
    saved = write_heads(tmp_path / "heads", role)
    assert_are(getattr(models.load(weights / "target", **{role: tmp_path / "heads"}), role), saved)
    with pytest.raises(ValueError, match="holds no model: expected config.json"):
        models.load(weights / "target", **{role: tmp_path})


@pytest.mark.parametrize(
    ("role", "sizes", "says"),
    [
        ("medusa", {"vocab_size": 290}, "the heads know 290 tokens, the target 300"),
        ("eagle", {"hidden_size": 24}, "width 24, the target's have 16: it does not fit"),
        ("eagle3", {"vocab_size": 310}, "knows 310 tokens, the target 300: it does not fit"),
    ],
)
def test_heads_of_another_target_are_refused(weights, tmp_path, role, sizes, says):
    """In all that they could be of another one: see `test_formats.py`."""
    write_heads(tmp_path / "heads", role, **sizes)
    with pytest.raises(ValueError, match=says):
        getattr(models.load(weights / "target", **{role: tmp_path / "heads"}), role)


@pytest.mark.parametrize(
    ("role", "name"),
    [("medusa", "FasterDecoding/medusa-vicuna-7b-v1.3"), ("eagle", "yuhuili/EAGLE-Vicuna-7B-v1.3")],
)
def test_published_heads_are_found_by_their_hub_name(weights, cache, tmp_path, role, name):
    cache.add("lmsys/vicuna-7b-v1.3", weights / "target")
    family = models.load("vicuna")
    saved = write_heads(tmp_path / "heads", role)
    if role == "eagle":
        save_eagle(saved, tmp_path / "heads", pickled=True)  # as these are published
    for there in ("nothing", "config.json"):  # the settings alone are not enough
        cache.add(name, tmp_path / "heads", there)
        with pytest.raises(ConnectionError, match=f"{name} is not on this machine"):
            getattr(family, role)
    cache.add(name, tmp_path / "heads")
    assert_are(getattr(family, role), saved)


def test_pickles_of_heads_are_downloaded_only_where_there_is_nothing_else(weights, cache, tmp_path, monkeypatch):
    saved = write_heads(tmp_path / "heads", "medusa")
    save_medusa(saved, tmp_path / "heads", pickled=True)
    here = cache.add("someone/heads", tmp_path / "heads", "nothing")
    asked = []

    def snapshot_download(repo, *, local_files_only=False, allow_patterns=(), ignore_patterns=None):
        if not local_files_only:
            asked.append([pattern for pattern in allow_patterns if "medusa" in pattern])
            for pattern in allow_patterns:
                cache.add("someone/heads", tmp_path / "heads", pattern)
        return str(here)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert_are(models.load(weights / "target", medusa="someone/heads").medusa, saved)
    assert asked == [["medusa_lm_head.safetensors"], ["medusa_lm_head.pt"]]


@ROLES
def test_heads_that_a_family_has_not_are_named(weights, role):
    what = {"medusa": "Medusa heads", "eagle": "EAGLE network", "eagle3": "EAGLE-3 network"}[role]
    says = f"'storyworld' has no {what} yet: make some with `python -m tutorlib train {role}`"
    with pytest.raises(AttributeError, match=says):
        getattr(models.load("storyworld"), role)


@pytest.mark.parametrize(("asked", "there"), [("eagle", "eagle3"), ("eagle3", "eagle")])
def test_one_kind_of_network_in_place_of_the_other_is_named(weights, tmp_path, asked, there):
    write_heads(tmp_path / there, there)
    names = {"eagle": "EAGLE network", "eagle3": "EAGLE-3 network"}
    says = f"{there} holds an {names[there]}, expected an {names[asked]}: load.…, {there}="
    with pytest.raises(ValueError, match=says):
        getattr(models.load(weights / "target", **{asked: tmp_path / there}), asked)


# Nothing of a model's repository is executed.


def test_pickled_weights_are_loaded_where_there_are_no_others(tmp_path):
    model = random_model("gpt2")
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    loaded = models.load(tmp_path, device="cpu").target.model
    assert torch.equal(loaded.transformer.wte.weight, model.transformer.wte.weight)


class Payload:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return open, (str(self.mark), "w")


def test_a_pickle_that_brings_code_is_refused_and_the_code_does_not_run(weights, tmp_path):
    """That of heads: see `test_formats.py`."""
    (weights / "target" / "model.safetensors").unlink()
    torch.save({"lm_head.weight": Payload(tmp_path / "ran")}, weights / "target" / "pytorch_model.bin")
    with pytest.raises(ValueError, match="pytorch_model.bin.* no code in it was run"):
        _ = models.load(weights / "target").target
    assert not (tmp_path / "ran").exists()


def test_a_repository_with_code_of_its_own_is_refused_and_the_code_does_not_run(weights, tmp_path):
    folder = weights / "target"
    automatic = {"AutoConfig": "mine.Config", "AutoModelForCausalLM": "mine.Model"}
    (folder / "config.json").write_text(json.dumps({"model_type": "mine", "auto_map": automatic}))
    (folder / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    (folder / "tokenizer.json").unlink()  # it would be refused first
    with pytest.raises(ValueError, match="tutorlib runs no code from a model's repository"):
        _ = models.load(folder).target
    assert not (tmp_path / "ran").exists()


# Memory.


def test_a_model_that_does_not_fit_says_sizes_and_a_smaller_family(weights, monkeypatch):
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=13_312_000_000))
    (weights / "target" / "model.safetensors").unlink()
    with open(weights / "target" / "pytorch_model.bin", "wb") as file:
        file.truncate(14 * 10**9)  # an empty file of that size takes no room
    says = r"7,000 million weights in float16 take 14.0 GB, and cpu has 13.3 GB free.*load\('qwen2.5-3b'\)"
    with pytest.raises(MemoryError, match=says):
        _ = models.load(weights / "target", dtype="float16").target


def test_running_out_of_memory_while_loading_is_the_same_error(weights, monkeypatch):
    monkeypatch.setattr(LlamaForCausalLM, "to", lambda *_, **__: (_ for _ in ()).throw(torch.OutOfMemoryError("CUDA")))
    with pytest.raises(MemoryError, match=r"does not fit: .* in float32 take 0.0 GB.*load\('storyworld'\)"):
        _ = models.load("storyworld").target


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


def test_a_base_model_gets_a_text_as_it_is_and_no_messages_with_roles(weights):
    family = models.load("storyworld")
    assert family.chat("Where is Mia?") == family.target.encode("Where is Mia?")
    two = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hi."}]
    with pytest.raises(ValueError, match="the family 'storyworld' has no chat format, .*'Hi.'.* would be lost"):
        family.chat(two)


@pytest.mark.parametrize("messages", [[], ["Hello"], [{"role": "user"}], [{"content": "Hello"}], [3]])
def test_messages_of_another_form_are_refused(chatty, messages):
    with pytest.raises(ValueError, match="messages must each be"):
        chatty.chat(messages)


def test_a_format_that_refuses_a_message_says_so(weights):
    (weights / "target" / "chat_template.jinja").write_text("{{ raise_exception('System role not supported') }}")
    with pytest.raises(ValueError, match="refuses .*System role not supported"):
        models.load(weights / "target").chat("Hello")


def test_vicuna_is_asked_in_its_own_words(weights, cache):
    cache.add("lmsys/vicuna-7b-v1.3", weights / "target")
    family = models.load("vicuna")
    text = family.target.decode(family.chat("Hello!"))
    assert text.startswith("A chat between a curious user") and text.endswith("questions. USER: Hello! ASSISTANT:")
