"""EAGLE networks in files: what is peculiar to the layouts of the authors and of the package `speculators`.

What they promise as other heads do: `test_formats.py`. The arithmetic of a network, by the names of the published
files: `test_eagle_head.py`.
"""

import inspect
import json
import math

import pytest
import torch
from conftest import VOCAB, random_model
from draft_networks import features_of, law
from layouts import (
    INNER,
    KNOWN,
    LAYOUTS,
    LLAMA3,
    READ,
    SAFE,
    WIDTH,
    bits,
    first,
    first_config,
    layer_shapes,
    maps,
    numbers,
    package,
    package_config,
    random_network,
    same,
    sizes,
    third,
    third_config,
    write,
)
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

from tutorlib import LM, Eagle3Head, TableLM, dynamic_tree
from tutorlib.loading.formats import load_eagle, save_eagle

TOKENS = [3, 0, 18, 7, 7, 11]
EAGLES = {name: LAYOUTS[name] for name in ("EAGLE-1", "EAGLE-3", "EAGLE-3.1", "speculators")}
every_layout = pytest.mark.parametrize("layout", EAGLES.values(), ids=EAGLES)
THIRD = list(EAGLES.values())[1:]
third_layouts = pytest.mark.parametrize("layout", THIRD, ids=list(EAGLES)[1:])


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "network"


@pytest.fixture(scope="module")
def target():
    return LM(random_model("llama"))


# ----------------------------------------------------------------------------------------------------------------------
# What a file means

# What the configuration says, and the tensors that belong to it.
VARIANTS = {
    "grouped heads": ({}, {}),
    "as many key heads": ({"num_key_value_heads": 4}, {"kv": 4}),
    "no number of key heads": ({"num_key_value_heads": None}, {"kv": 4}),
    "heads of another size": ({"head_dim": 6}, {"dim": 6}),
    "biases of queries, keys and values": ({"qkv_bias": True}, {"qkv_bias": True}),
    "biases in attention": ({"attention_bias": True}, {"qkv_bias": True, "o_bias": True}),
    "biases everywhere": (
        {"attention_bias": True, "mlp_bias": True},
        {"qkv_bias": True, "o_bias": True, "mlp_bias": True},
    ),
}


@pytest.mark.parametrize(
    ("says", "has", "flag"),
    [*((*variant, True) for variant in VARIANTS.values()), ({}, {}, False), ({}, {}, None)],
    ids=[*VARIANTS, "no flag", "an absent flag"],
)
@every_layout
def test_a_file_is_computed_as_it_is_described(folder, target, layout, says, has, flag):
    """Its tensors are at the names of the description, and its keys set what is computed of them."""
    key = "bias" if layout is EAGLES["EAGLE-1"] else "norm_before_residual"
    tensors = layout.tensors(**has, **({"bias": flag is not False} if key == "bias" else {}))
    config = layout.config(**says) | {key: flag}
    if flag is None:  # absent, EAGLE-1 has a bias; EAGLE-3 norms first for the package, and as published does not
        del config[key]
    head = load_eagle(write(folder, config, tensors), target)
    assert bits({layout.here(name): tensor for name, tensor in tensors.items()}) == bits(head.state_dict())
    assert head.config.rms_norm_eps == 1e-5 and head.config.num_key_value_heads == has.get("kv", 2)
    if key == "norm_before_residual":
        assert head.feature_layers == tuple(READ)
        assert head.norm_before_residual is (layout is EAGLES["speculators"] if flag is None else flag)
    features = features_of(target, TOKENS, head.feature_layers)
    found, expected = head.session(target).feed(TOKENS[1:], features[:-1])[0], law(head, target, TOKENS)
    assert torch.allclose(found.double(), expected, rtol=1e-4, atol=1e-4)


def llama3_angle(position, i, dim, theta=500000.0):
    """Llama 3.1's: slow turns are divided, fast ones kept, those between blended."""
    turn = theta ** (-2 * i / dim)
    factor, low, high, length = (LLAMA3[key] for key in list(LLAMA3)[1:])
    wave = 2 * math.pi / turn
    share = min(1.0, max(0.0, (length / wave - low) / (high - low)))
    return position * (share * turn + (1 - share) * turn / factor)


ANGLES = {
    "theta": ({"rope_theta": 500.0}, lambda p, i, dim: p * 500.0 ** (-2 * i / dim)),
    "old linear scaling": (
        {"rope_scaling": {"type": "linear", "factor": 2.0}},
        lambda p, i, dim: p / 2 * 10000.0 ** (-2 * i / dim),
    ),
    "scaling and theta": ({"rope_theta": 500000.0, "rope_scaling": LLAMA3}, llama3_angle),
    "new parameters": ({"rope_parameters": {"rope_theta": 500000.0, **LLAMA3}}, llama3_angle),
    "new parameters of no kind": ({"rope_parameters": {"rope_theta": 500.0, "rope_type": "default"}},
                                  lambda p, i, dim: p * 500.0 ** (-2 * i / dim)),
    "no scaling": ({"rope_scaling": None}, lambda p, i, dim: p * 10000.0 ** (-2 * i / dim)),
    "by kind of attention": (
        {"rope_theta": 7.0, "layer_types": ["full_attention"], "rope_parameters": {
            "sliding_attention": {"rope_theta": 3.0, "rope_type": "default"},
            "full_attention": {"rope_theta": 500000.0, **LLAMA3}}},
        llama3_angle,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("says", "angle"), ANGLES.values(), ids=ANGLES)
def test_positions_turn_by_what_the_file_says_in_either_way(folder, says, angle):
    positions = [0, 1, 2, 9, 17, 40]
    expected = torch.tensor([[angle(position, i, 4) for i in range(2)] * 2 for position in positions])
    for layout in EAGLES.values():
        head = load_eagle(write(folder, layout.config(**says), layout.tensors()))
        cos, sin = (part[0, 0].double() for part in head.rotation(torch.tensor([positions])))
        assert torch.allclose(cos, expected.cos().double(), atol=1e-5)
        assert torch.allclose(sin, expected.sin().double(), atol=1e-5)
        layout.save(head, folder / "again")  # and is written so that it is read as the same again
        assert load_eagle(folder / "again").config.rope_parameters == head.config.rope_parameters


def test_a_network_that_knows_every_token_needs_no_maps(folder):
    for prefix, config in (("midlayer", third_config()), ("layers.0", package_config())):
        config["draft_vocab_size"] = VOCAB
        tensors = third(prefix, known=None)
        for given in ({}, maps(range(VOCAB))):
            head = load_eagle(write(folder, config, tensors | given))
            assert head.tokens.tolist() == list(range(VOCAB)) and bool(head.t2d.all())
        refused(folder, config, tensors | {"t2d": maps(range(VOCAB))["t2d"]}, "d2t is missing")
        shifted = maps(range(VOCAB)) | {"d2t": torch.ones(VOCAB, dtype=torch.int64)}
        refused(folder, config, tensors | shifted, "d2t makes token 18 the target's 19")
    del config["draft_vocab_size"]
    assert len(load_eagle(write(folder, config, tensors)).d2t) == VOCAB


@third_layouts
def test_one_map_is_enough_as_the_other_follows_from_it(folder, layout):
    whole = layout.tensors()
    head = load_eagle(write(folder, layout.config(), {name: whole[name] for name in whole if name != "t2d"}))
    assert bits({layout.here(name): tensor for name, tensor in whole.items()}) == bits(head.state_dict())
    wrong = {name: tensor for name, tensor in whole.items() if name != "t2d"} | {"d2t": torch.tensor(KNOWN)}
    refused(folder, layout.config(), wrong, "d2t makes token 5 the target's 23")


NORMS = {
    "joined": ({"norm_before_fc": True}, ["input_norm"]),
    "joined, said inside": ({"eagle_config": {"norm_before_fc": True}}, ["input_norm"]),
    "each": ({"fc_norm": True}, ["fc_norm.0", "fc_norm.1", "fc_norm.2"]),
    "output": ({"norm_output": True}, []),
    "output, said inside": ({"eagle_config": {"return_hidden_post_norm": True}}, []),
    "none": ({"norm_before_fc": False, "fc_norm": None, "eagle_config": {"norm_before_fc": False}}, []),
}


@pytest.mark.parametrize("case", NORMS)
def test_a_network_norms_what_its_configuration_says(folder, target, case):
    """As in vLLM 0.32.0 and speculators 0.9.0, by the names of the tensors there."""
    says, has = NORMS[case]
    more = {f"{name}.weight": numbers(3 * WIDTH if name == "input_norm" else WIDTH).double() + 1 for name in has}
    for layout in (EAGLES["EAGLE-3"], EAGLES["speculators"]):
        head = load_eagle(write(folder, layout.config() | says, layout.tensors() | more), target)
        session = head.session(target)
        session.feed(TOKENS[1:], features_of(target, TOKENS, head.feature_layers)[:-1])
        found, expected = session.grow([5], [-1])[0], law(head, target, TOKENS, [5])
        assert torch.allclose(found.double(), expected, rtol=1e-4, atol=1e-4)
        layout.save(head, folder / "again")
        again = load_eagle(folder / "again")
        assert same(again, head) and again.norm_output is head.norm_output is ("output" in case)
        if has:
            refused(folder, layout.config() | says, layout.tensors(), f"{has[0]}.weight.* missing, by what .* says")
            refused(folder, layout.config(), layout.tensors() | more, f"{has[0]}.weight.* unknown, by what .* says")


def test_a_midlayer_is_enough_to_tell_eagle_3(folder):
    config = third_config()
    del config["draft_vocab_size"]
    assert isinstance(load_eagle(write(folder, config, third(known=None))), Eagle3Head)


# ----------------------------------------------------------------------------------------------------------------------
# Which of the target's hidden states are read, and what is taken from it


@pytest.mark.parametrize(
    ("says", "read"),
    [
        ({"eagle_aux_hidden_state_layer_ids": [0, 3, 2]}, (0, 3, 2)),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 0, 2]}}, (2, 1, 3)),  # counts what puts them out
        ({"tutorlib": {"feature_layers": [-1, 1, 2]}}, (-1, 1, 2)),
        ({"tutorlib": {"feature_layers": [1, 2, 3]}, "eagle_aux_hidden_state_layer_ids": [0, 1, 2]}, (1, 2, 3)),
        ({"eagle_aux_hidden_state_layer_ids": [0, 1, 2],
          "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 2], "use_aux_hidden_state": True}}, (0, 1, 2)),
        ({"eagle_aux_hidden_state_layer_ids": None, "eagle_config": None, "tutorlib": {"feature_layers": [3, 1, 2]}},
         (3, 1, 2)),
    ],
    ids=str,
)  # fmt: skip
def test_the_layers_that_are_read_are_those_the_file_says(folder, target, says, read):
    config = third_config()
    del config["eagle_aux_hidden_state_layer_ids"]
    write(folder, config | says, third())
    assert load_eagle(folder).feature_layers == load_eagle(folder, target).feature_layers == read


def test_where_the_file_says_no_layers_they_are_the_usual_ones_of_the_target(folder, target):
    config = third_config()
    del config["eagle_aux_hidden_state_layer_ids"]
    write(folder, config, third())
    assert load_eagle(folder, deep(8)).feature_layers == (2, 4, 5)
    with pytest.raises(ValueError, match="does not say which of the target's layers .*: load_eagle.folder, target. "):
        load_eagle(folder)
    with pytest.raises(ValueError, match="does not say eagle_aux_hidden_state_layer_ids, and in a target of 3 layers"):
        load_eagle(folder, target)


def deep(layers):
    """A target of so many layers."""
    return LM(LlamaForCausalLM(LlamaConfig(**sizes(num_hidden_layers=layers))).eval())


@every_layout
def test_a_file_without_embeddings_takes_the_targets(folder, target, layout):
    config = layout.config
    tensors = {name: t.half() if t.is_floating_point() else t for name, t in layout.tensors().items()}
    del tensors["embed_tokens.weight"]
    write(folder, config(), tensors)
    head = load_eagle(folder, target)
    embeddings = target.model.get_input_embeddings().weight
    assert torch.equal(head.embed_tokens.weight, embeddings.half())
    assert torch.equal(load_eagle(folder, target, dtype=torch.float32).embed_tokens.weight, embeddings)  # not rounded
    write(folder, config(), {name: t.float() if t.is_floating_point() else t for name, t in tensors.items()})
    load_eagle(folder, target).embed_tokens.weight.data.zero_()
    assert embeddings.any(), "they are a copy"
    with pytest.raises(ValueError, match=f"{SAFE}: embed_tokens.weight is missing, .*: load_eagle.folder, target."):
        load_eagle(folder)


def test_embeddings_are_lent_by_targets_that_have_some(folder):
    config, tensors = third_config(), third()
    del tensors["embed_tokens.weight"]
    config |= {"hidden_size": VOCAB, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 4}
    config["eagle_aux_hidden_state_layer_ids"] = [0, 0, 0]
    with pytest.raises(ValueError, match=r"embed_tokens.weight is missing, and .* has no embeddings of shape .19, 19."):
        load_eagle(write(folder, config, tensors), TableLM.random(VOCAB, 0, 0))


# ----------------------------------------------------------------------------------------------------------------------
# There and back


@pytest.mark.parametrize("flag", [True, False])
@every_layout
def test_what_is_computed_with_the_tensors_comes_back_too(folder, layout, flag):
    head = layout.random(bias=flag, normed=flag, attention_bias=flag, mlp_bias=not flag)
    layout.save(head, folder)
    found, positions = load_eagle(folder), torch.arange(30, 36)[None]
    assert same(found, head)
    assert getattr(found, "norm_before_residual", flag) is flag
    assert all(map(torch.equal, found.rotation(positions), head.rotation(positions)))
    for key in ("rms_norm_eps", "max_position_embeddings", "rope_parameters", "num_key_value_heads", "head_dim"):
        assert getattr(found.config, key) == getattr(head.config, key)


def test_biases_of_queries_alone_come_back_too(folder):
    head = random_network("EAGLE-3", attention_bias=False, qkv_bias=True)
    save_eagle(head, folder)
    assert same(load_eagle(folder), head) and "midlayer.self_attn.o_proj.bias" not in head.state_dict()
    with pytest.raises(ValueError, match='qkv_bias without attention_bias is unknown to the layout "speculators"'):
        save_eagle(head, folder, "speculators")


def test_the_tree_that_comes_back_has_every_argument_there_is():
    assert random_network("EAGLE-1").tree.keys() == inspect.signature(dynamic_tree).parameters.keys()


def test_a_network_may_be_loaded_in_another_type_with_angles_as_they_are(folder):
    head = random_network("EAGLE-3")
    save_eagle(head, folder)
    found = load_eagle(folder, dtype=torch.bfloat16)
    places = torch.arange(400)[None]
    exact = head.rotation(places)
    assert same(found, head.to(torch.bfloat16))
    for network in (found, head):  # also one that was turned into another type later
        assert all(map(torch.equal, network.rotation(places), (part.to(torch.bfloat16) for part in exact)))


def test_an_old_kind_of_scaling_is_written_as_the_authors_code_reads_it(folder):
    rope = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}
    save_eagle(random_network("EAGLE-1", rope_parameters=rope), folder)
    assert json.loads((folder / "config.json").read_text())["rope_scaling"] == {"type": "linear", "factor": 2.0}
    assert load_eagle(folder).config.rope_parameters == rope


# ----------------------------------------------------------------------------------------------------------------------
# The package `speculators`: its schema as it stands in its source (0.9.0), and the package itself where it is installed

TEXT, COUNT, FLAG, NUMBER = str, int, bool, (int, float)
# For each key what it may be. All are asked for here; the package does without those that it has defaults for, and
# refuses a folder that lacks speculators_model_type or one of the keys in speculators_config or in verifier.
PROPOSAL = {"proposal_type": "greedy", "speculative_tokens": COUNT}
SCHEMA = {
    "architectures": [TEXT],
    "speculators_model_type": "eagle3",
    "speculators_version": TEXT,
    "speculators_config": {
        "algorithm": TEXT,
        "proposal_methods": [PROPOSAL],
        "default_proposal_method": "greedy",
        "verifier": {"name_or_path": (str, type(None)), "architectures": [TEXT]},
    },
    "draft_vocab_size": COUNT,
    "norm_before_residual": FLAG,
    "eagle_aux_hidden_state_layer_ids": [COUNT],
    "transformer_layer_config": {
        "model_type": "llama", "hidden_act": "silu", "num_hidden_layers": 1, "tie_word_embeddings": False,
        "vocab_size": VOCAB, "hidden_size": WIDTH, "intermediate_size": INNER, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 6, "max_position_embeddings": 64, "rms_norm_eps": NUMBER,
        "attention_bias": FLAG, "mlp_bias": FLAG, "rope_parameters": {"rope_theta": 77.0, **LLAMA3},
    },
}  # fmt: skip


def follows(value, schema, place="config"):
    """Fails where a configuration is not as the schema has it: all keys, no others, and their types or values."""
    if isinstance(schema, dict):
        assert isinstance(value, dict) and value.keys() == schema.keys(), place
        for key in schema:
            follows(value[key], schema[key], f"{place}.{key}")
    elif isinstance(schema, list):
        assert isinstance(value, list), place
        for entry in value:
            follows(entry, schema[0], place)
    elif isinstance(schema, type | tuple):
        assert isinstance(value, schema) and (schema is FLAG or not isinstance(value, bool)), place
    else:
        assert value == schema, place


@pytest.mark.parametrize("base", ["", "someone/model"])
def test_a_saved_folder_follows_the_schema_of_speculators(folder, base):
    head = random_network("EAGLE-3")
    path = save_eagle(head, folder, "speculators", base=base)
    config = json.loads((folder / "config.json").read_text())
    assert config.pop("tutorlib").keys() == {"tree", "feature_layers"}  # further keys are let pass there
    follows(config, SCHEMA)
    described = config["speculators_config"]
    assert described["verifier"]["name_or_path"] == (base or None)
    assert [method["proposal_type"] for method in described["proposal_methods"]] == ["greedy"]
    assert all(method["speculative_tokens"] >= 1 for method in described["proposal_methods"])
    # What the package makes of the layer's sizes.
    layer = LlamaConfig(**config["transformer_layer_config"])
    assert layer.rope_parameters == head.config.rope_parameters and layer.head_dim == head.config.head_dim
    every = {"qkv_bias": True, "o_bias": True, "mlp_bias": True}
    assert {name: t.shape for name, t in load_file(path).items()} == {
        name: t.shape for name, t in package(dim=6, **every).items()
    }


def test_a_network_that_knows_every_token_is_saved_for_speculators_without_maps(folder):
    head = Eagle3Head(LlamaConfig(**sizes()), READ)
    assert not {"d2t", "t2d"} & load_file(save_eagle(head, folder, "speculators")).keys()
    assert same(load_eagle(folder), head)


@pytest.fixture
def verifier(tmp_path, monkeypatch):
    """A tiny target on disk, for the package to find."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    random_model("llama").save_pretrained(tmp_path / "verifier")
    return str(tmp_path / "verifier")


@pytest.mark.parametrize("normed", [True, False])
def test_the_package_itself_accepts_a_saved_folder(folder, verifier, normed):
    package = pytest.importorskip("speculators")
    head = random_network("EAGLE-3", normed=normed)
    for base in ("", "someone/model", verifier):
        save_eagle(head, folder, "speculators", base=base)
        config = package.SpeculatorModelConfig.from_pretrained(folder)
        assert type(config).__name__ == "Eagle3SpeculatorConfig"
        assert (config.draft_vocab_size, config.norm_before_residual) == (len(KNOWN), normed)
        assert config.eagle_aux_hidden_state_layer_ids == READ
        assert config.speculators_config.verifier.name_or_path == (base or None)
        layer, ours = config.transformer_layer_config, head.config
        for key in ("vocab_size", "hidden_size", "head_dim", "num_key_value_heads", "rms_norm_eps", "rope_parameters"):
            assert getattr(layer, key) == getattr(ours, key), key


@pytest.mark.parametrize("normed", [True, False])
def test_the_packages_own_model_reads_a_saved_folder_and_computes_the_same(folder, tmp_path, verifier, normed):
    package = pytest.importorskip("speculators")
    head = random_network("EAGLE-3", normed=normed)
    for parameter in head.parameters():
        parameter.data *= 0.3
    save_eagle(head, folder, "speculators", base=verifier)
    theirs = package.SpeculatorModel.from_pretrained(folder)
    tensors = {name.replace("layers.0.", "midlayer."): tensor for name, tensor in theirs.state_dict().items()}
    assert bits({name: tensors[name] for name in head.state_dict()}) == bits(head.state_dict())
    theirs.config.transformer_layer_config._attn_implementation = "eager"
    tokens, hidden = torch.tensor([TOKENS]), numbers(1, len(TOKENS), WIDTH, dtype=torch.float32)
    joined = torch.cat([theirs.embed_tokens(tokens), hidden], dim=-1)
    places = torch.arange(len(TOKENS))[None]
    mask = torch.full((len(TOKENS), len(TOKENS)), -math.inf).triu(1)[None, None]
    angles = theirs.rotary_emb(joined, places)
    expected = theirs.layers[0](joined, attention_mask=mask, position_ids=places, position_embeddings=angles)
    found = head(tokens, hidden, head.rotation(places))
    assert torch.allclose(found, expected, atol=1e-5)
    # What it saves is read here.
    theirs.save_pretrained(tmp_path / "theirs")
    assert same(load_eagle(tmp_path / "theirs"), head)


# ----------------------------------------------------------------------------------------------------------------------
# What is wrong is named


def refused(folder, config, tensors, says):
    with pytest.raises(ValueError, match=says) as caught:
        load_eagle(write(folder, config, tensors))
    assert str(folder) in str(caught.value), "an error names the file"


@every_layout
def test_a_number_of_layers_that_lies_is_named_beside_a_tensor(folder, layout):
    config, tensors = layout.config, layout.tensors
    for count in (2, 32):
        says = f"num_hidden_layers is {count}, and .*{SAFE} has no layers.1.self_attn.q_proj.weight: expected 1"
        refused(folder, config(num_hidden_layers=count), tensors(), says)
    more = {f"layers.1.{name}": tensor for name, tensor in layer_shapes("", 2).items()}
    more = {name.replace("..", "."): numbers(*shape) for name, shape in more.items()}
    for count in (1, 2):
        says = rf"num_hidden_layers is {count}, and .*{SAFE} has layers.1.mlp.down_proj.weight: expected 1, and tensors"
        says += " of one layer; draft networks of several layers are unknown here" if count == 2 else " of one layer$"
        refused(folder, config(num_hidden_layers=count), tensors() | more, says)
    for count in (0, -1, 1.0, "1", None, True):
        refused(folder, config(num_hidden_layers=count), tensors(), "num_hidden_layers must be a whole number of 1 or")


@pytest.mark.parametrize(
    ("says", "match"),
    [
        ({"num_key_value_heads": 3}, "num_key_value_heads must divide num_attention_heads, 4, got 3"),
        ({"num_key_value_heads": 0}, "num_key_value_heads must be a whole number of 1 or more, got 0"),
        ({"head_dim": 5}, "head_dim must be even, .* got 5"),
        ({"head_dim": "4"}, "head_dim must be a whole number of 1 or more, got '4'"),
        ({"max_position_embeddings": -1}, "max_position_embeddings must be a whole number"),
        ({"rms_norm_eps": 0}, "rms_norm_eps must be a number above 0, got 0"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps must be a number above 0, got 'small'"),
        ({"hidden_act": "gelu"}, "hidden_act must be .silu., got 'gelu'"),
        ({"attention_bias": "no"}, "attention_bias must be true or false, got 'no'"),
        ({"mlp_bias": 1}, "mlp_bias must be true or false, got 1"),
        ({"qkv_bias": [True]}, "qkv_bias must be true or false"),
        ({"rope_theta": 0}, "rope_theta must be a number above 0, got 0"),
        ({"rope_theta": "10000"}, "rope_theta must be a number above 0, got '10000'"),
        ({"rope_scaling": [2]}, r"rope_scaling must be an object, got \[2\]"),
        ({"rope_scaling": {"type": "spiral"}}, "rope_scaling has rope_type 'spiral', which nobody knows"),
        ({"rope_parameters": {"rope_type": "spiral"}}, "rope_parameters has rope_type 'spiral'"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4}}, "these sizes, or rope_parameters, make no"),
        ({"rope_parameters": {"sliding_attention": {"rope_theta": 1e4}}}, "is of sliding_attention, expected of full_"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 0}}}, "rope_theta must be a number above 0, got 0"),
        ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "partial_rotary_factor is 0.5, exp"),
        ({"partial_rotary_factor": 0.25}, "partial_rotary_factor is 0.25, expected 1: networks that turn a part"),
        ({"layer_types": ["sliding_attention"], "sliding_window": 4}, "layer_types is .'sliding_attention'., expected"),
        ({"num_attention_heads": 3, "num_key_value_heads": 3}, "head_dim must be even|these sizes, .* make no layer"),
        ({"attention_bias": True}, "self_attn.q_proj.bias.* are missing"),
        ({"intermediate_size": 25}, r"gate_proj.weight has shape \(24, 16\), expected \(25, 16\)"),
        ({"vocab_size": 21}, r"(embed_tokens.weight|t2d) .*\(19.*21"),
        ({"num_key_value_heads": 4}, r"k_proj.weight has shape \(8, .*, expected \(16"),
        ({"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4}, r"q_proj.weight has shape \(16.*\(8"),
    ],
    ids=str,
)
def test_a_key_that_is_wrong_is_named(folder, says, match):
    for layout in EAGLES.values():
        refused(folder, layout.config(**says), layout.tensors(), match)


def test_a_bias_that_lies_is_named(folder):
    refused(folder, first_config(bias=False), first(), "fc.bias is unknown, by what .*config.json says")
    for config in (first_config(), first_config(bias=True)):
        refused(folder, config, first(bias=False), "fc.bias is missing, by what .*config.json says")
    refused(folder, first_config(bias="yes"), first(), "bias must be true or false, got 'yes'")
    refused(folder, third_config(), third() | {"fc.bias": numbers(WIDTH)}, "fc.bias is unknown")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"d2t": torch.zeros(6, dtype=torch.int64)}, "d2t is all zeros, as a map that was never filled"),
        ({"d2t": torch.zeros(6, dtype=torch.int64), "t2d": torch.arange(VOCAB) < 6}, "d2t is all zeros"),
        ({"d2t": torch.tensor([0, 1, 1, 4, 7, 14])}, "d2t makes token 5 the target's 19, expected one of 0 to 18"),
        ({"d2t": torch.tensor([-1, 1, 1, 4, 7, 13])}, "d2t makes token 0 the target's -1"),
        ({"d2t": torch.tensor([0, 1, 1, 2**62, 7, 13])}, "d2t makes token 3 the target's 46"),
        ({"d2t": torch.tensor(KNOWN)}, "d2t makes token 5 the target's 23"),  # ids in place of offsets
        ({"d2t": torch.tensor([0, 1, 0, 4, 7, 13])}, "d2t goes from the target's token 2 to 2: expected ascending"),
        ({"d2t": torch.tensor([2, -1, 1, 4, 7, 13])}, "d2t goes from the target's token 2 to 0"),
        ({"d2t": torch.tensor([0, 1, 1, 4, 7, 12])}, "d2t has the target's token 17, t2d has not: they contradict"),
        ({"t2d": torch.arange(VOCAB) < 6}, "t2d has the target's token 1, d2t has not: they contradict each other"),
        ({"t2d": torch.zeros(VOCAB, dtype=torch.bool)}, "d2t has the target's token 0, t2d has not"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_maps_that_cannot_be_are_named(folder, changed, says):
    for layout in THIRD:
        refused(folder, layout.config(), layout.tensors() | changed, f"{SAFE}: {says}")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"draft_vocab_size": 20}, "draft_vocab_size is 20, expected at most vocab_size, 19"),
        ({"draft_vocab_size": "6"}, "draft_vocab_size must be a whole number of 1 or more, got '6'"),
        ({"draft_vocab_size": 0}, "draft_vocab_size must be a whole number of 1 or more, got 0"),
        ({"draft_vocab_size": 7}, r"d2t has shape \(6,\), expected \(7,\)"),
        ({"norm_before_residual": "yes"}, "norm_before_residual must be true or false, got 'yes'"),
        ({"norm_output": "yes"}, "norm_output must be true or false, got 'yes'"),
        ({"norm_before_fc": True, "fc_norm": True}, "norm_before_fc and fc_norm are two ways to norm the features"),
        ({"eagle_config": {"eh_proj_before_attn": True}}, "eh_proj_before_attn in eagle_config is true, expected"),
        ({"target_hidden_size": 32}, "target_hidden_size is 32, expected hidden_size, 16"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2]}, r"fc.weight has shape \(16, 48\), expected \(16, 32|fc_norm.2"),
        ({"eagle_aux_hidden_state_layer_ids": []}, "layer_ids must be a list of numbers of the target's layers"),
        ({"eagle_aux_hidden_state_layer_ids": [1, "2", 3]}, "layer_ids must be a list of numbers"),
        ({"eagle_aux_hidden_state_layer_ids": 3}, "layer_ids must be a list of numbers"),
        ({"eagle_aux_hidden_state_layer_ids": [0, 1, True]}, "layer_ids must be a list of numbers"),
        ({"eagle_config": {"use_aux_hidden_state": False}}, "use_aux_hidden_state in eagle_config is false"),
        ({"tutorlib": {"feature_layers": "0, 1, 3"}}, 'feature_layers in "tutorlib" must be a list of numbers'),
        ({"tutorlib": {"tree": {"width": 3}}}, '"tutorlib": tree must have the keys nodes, depth, top_k, '),
        ({"tutorlib": {"tree": 60}}, '"tutorlib": tree must have the keys nodes, depth, top_k, '),
        ({"tutorlib": {"tree": {"nodes": 0}}}, '"tutorlib": the tree\'s nodes must be a whole number of 1 or more'),
        ({"tutorlib": {"tree": {"depth": 2.0}}}, "the tree's depth must be a whole number"),
        ({"tutorlib": {"tree": {"confidence": 2}}}, "the tree's confidence must be from 0 to 1, got 2"),
        ({"tutorlib": {"tree": {"greedy_temperature": 0}}}, "the tree's greedy_temperature must be above 0, got 0"),
    ],
    ids=str,
)
def test_what_a_configuration_of_eagle_3_gets_wrong_is_named(folder, more, says):
    for layout in THIRD:
        refused(folder, layout.config() | more, layout.tensors(), f"config.json.*{says}|{SAFE}: {says}")


@pytest.mark.parametrize("read", [[0, 4, 3], [0, -5, 3]], ids=str)
def test_a_network_for_a_target_of_more_layers_is_refused(folder, target, read):
    write(folder, third_config(tutorlib={"feature_layers": read}), third())
    load_eagle(folder)
    says = "config.json: the draft network reads features of layer (4|-5), but the target has hidden states 0 to 3"
    with pytest.raises(ValueError, match=says):
        load_eagle(folder, target)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"speculators_model_type": "dflash"}, "speculators_model_type must be .eagle3., got 'dflash'"),
        ({"transformer_layer_config": None}, "transformer_layer_config must be an object .* got None"),
        ({"transformer_layer_config": {"model_type": "qwen3"}}, "model_type in .* must be .llama., got 'qwen3'"),
        ({"transformer_layer_config": {"hidden_size": 16}}, "model_type in .* must be .llama., got None"),
    ],
)
def test_what_a_configuration_of_speculators_gets_wrong_is_named(folder, more, says):
    refused(folder, package_config() | more, package(), f"config.json: {says}")


def test_a_whole_language_model_is_no_network(tmp_path):
    random_model("llama").save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="num_hidden_layers is 3, and .* expected 1"):
        load_eagle(tmp_path)


def test_what_could_not_be_read_again_is_not_written(folder):
    with pytest.raises(ValueError, match='"speculators" is for EAGLE-3 networks alone: use layout="eagle"'):
        save_eagle(random_network("EAGLE-1"), folder, "speculators")
    beginning = Eagle3Head(LlamaConfig(**sizes()), READ, range(5))
    with pytest.raises(ValueError, match="d2t is all zeros"):
        save_eagle(beginning, folder)
    from_the_end = Eagle3Head(LlamaConfig(**sizes()), (-1, -2), KNOWN)
    with pytest.raises(ValueError, match=r"feature_layers=\(-1, -2\) counts the target's layers from the last"):
        save_eagle(from_the_end, folder, "speculators")
    odd = random_network("EAGLE-3")
    odd.tree = {"nodes": 0}
    with pytest.raises(ValueError, match="the tree's nodes must be a whole number of 1 or more, got 0"):
        save_eagle(odd, folder)
    assert not folder.exists()
    save_eagle(from_the_end, folder)
    assert load_eagle(folder).feature_layers == (-1, -2)
    assert "eagle_aux_hidden_state_layer_ids" not in json.loads((folder / "config.json").read_text())
