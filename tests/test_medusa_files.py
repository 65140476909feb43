"""Medusa heads in files: what is peculiar to the published layout and to vLLM's. The rest: `test_formats.py`."""

import json

import pytest
import torch
from conftest import VOCAB
from layouts import (
    LAYOUTS,
    WIDTH,
    bits,
    for_vllm,
    numbers,
    published,
    published_config,
    random_heads,
    same,
    vllm_config,
    write,
    write_inside,
)

from tutorlib import LM, MedusaHeads, TableLM, greedy, medusa, run
from tutorlib.loading import formats
from tutorlib.loading.formats import load_medusa, save_medusa

SAFE, PICKLE = LAYOUTS["medusa"].files
either_layout = pytest.mark.parametrize("layout", ["medusa", "vllm"])


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "heads"


@either_layout
@pytest.mark.parametrize(("heads", "layers"), [(1, 1), (5, 1), (2, 0), (2, 3)])
def test_any_number_of_heads_and_blocks_loads_back(folder, layout, heads, layers):
    made = random_heads(heads, layers)
    save_medusa(made, folder, layout)
    found = load_medusa(folder)
    assert same(found, made)
    assert (len(found), found.layers, found.width, found.vocab_size) == (heads, layers, WIDTH, VOCAB)


def test_vllm_takes_any_key_about_a_number_for_its_own(folder):
    save_medusa(random_heads(), folder, "vllm")
    keys = json.loads((folder / "config.json").read_text())
    assert {key for key in keys if "num" in key} == {"num_heads", "num_hidden_layers"}


@pytest.mark.slow
def test_heads_of_every_family_go_through_both_layouts(models, family, folder):
    lm = LM(models(family))
    heads = MedusaHeads(lm.width, lm.vocab_size, 2, output=formats.output_weight(lm))
    for layout in ("medusa", "vllm"):
        save_medusa(heads, folder, layout)
        assert same(load_medusa(folder, lm), heads)


# ----------------------------------------------------------------------------------------------------------------------
# What a file means


@pytest.mark.parametrize("layers", [1, 2])
def test_heads_as_somebody_elses_modules_save_them_load_bit_equal(folder, layers):
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            return x + torch.nn.SiLU()(self.linear(x))

    theirs = torch.nn.ModuleList(
        torch.nn.Sequential(*(Block() for _ in range(layers)), torch.nn.Linear(WIDTH, VOCAB, bias=False))
        for _ in range(4)
    )
    heads = load_medusa(write(folder, published_config(4, layers), dict(theirs.state_dict()), PICKLE))
    hidden = numbers(2, 3, WIDTH)
    assert torch.equal(heads(hidden), torch.stack([head(hidden) for head in theirs]))


def test_a_file_for_vllm_without_biases_has_none(folder):
    tensors, config = for_vllm(bias=False), vllm_config()
    del config["medusa_fc_bias"]  # absent means none
    heads = load_medusa(write(folder, config, tensors))
    assert torch.equal(heads[1][1].linear.weight, tensors["blocks.1.layers.1.weight"])
    assert heads[1][1].linear.bias.shape == (WIDTH,) and not heads[1][1].linear.bias.any()
    with pytest.raises(ValueError, match="blocks.0.layers.0.bias, .* are unknown"):  # vLLM drops them in silence
        load_medusa(write(folder, config, for_vllm()))


def test_old_heads_without_output_layers_use_copies_of_the_targets(llama, folder, monkeypatch):
    tensors, weight = published(outputs=False), llama.model.lm_head.weight
    heads = load_medusa(write(folder, published_config(), tensors, PICKLE), llama)
    assert all(torch.equal(head[2].weight, weight) for head in heads)
    assert torch.equal(heads[2][1].linear.bias, tensors["2.1.linear.bias"])
    for parameter in heads.parameters():
        parameter.data.zero_()
        assert weight.any(), "it may be trained, and leaves the target alone"
    with pytest.raises(ValueError, match=r"layers of their own \(0.2.weight and so on\) and use the target's: load_me"):
        load_medusa(folder)
    with pytest.raises(ValueError, match="no output head of shape .16, 16. to be used again"):
        load_medusa(folder, TableLM.random(16, 0, 0))
    monkeypatch.setattr(llama.model, "get_output_embeddings", lambda: torch.nn.Linear(WIDTH, VOCAB))
    with pytest.raises(ValueError, match="has a bias, for which these heads have no place"):
        load_medusa(folder, llama)
    write(folder, published_config(), published(outputs=False, width=WIDTH + 4), PICKLE)
    with pytest.raises(ValueError, match=f"{PICKLE}: the heads read hidden states of width 20"):
        load_medusa(folder, llama)


def test_the_first_published_configuration_says_2_heads_where_there_are_5(folder):
    assert len(load_medusa(write(folder, published_config(heads=2), published(heads=5)))) == 5
    tensors = published() | {"3.0.linear.weight": numbers(WIDTH, WIDTH)}  # a part of a fourth
    with pytest.raises(ValueError, match="3.0.linear.weight is unknown"):
        load_medusa(write(folder, published_config(), tensors))


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin", None], ids=["one file", "pickle", "parts"])
def test_heads_may_be_inside_the_file_of_their_whole_model(llama, folder, file):
    heads = load_medusa(write_inside(folder, llama.model, published(), file), llama)
    assert bits(heads.state_dict()) == bits(published())
    with pytest.raises(ValueError, match="config.json is that of a whole model with heads inside: give a folder of i"):
        save_medusa(heads, folder)
    llama.model.save_pretrained(folder)  # without them
    (folder / "config.json").write_text(json.dumps(published_config()))
    for path in folder.glob("model*.index.json"):
        path.unlink()
    with pytest.raises(ValueError, match=f"has a config.json but no tensors: expected {SAFE}"):
        load_medusa(folder, llama)


# ----------------------------------------------------------------------------------------------------------------------
# Heads that know a part of the vocabulary

MAP = [7, 3, 18, 0, 11]


def truncated(**more):
    return for_vllm(known=len(MAP)) | {"token_map": torch.tensor(MAP)} | more


def truncated_config():
    return vllm_config(truncated_vocab_size=len(MAP))


def test_tokens_that_the_heads_do_not_know_are_never_guessed(llama, folder):
    heads = load_medusa(write(folder, truncated_config(), truncated()), llama)
    logits = heads(numbers(WIDTH, seed=3))
    assert torch.equal(logits[:, MAP], torch.stack([head(numbers(WIDTH, seed=3)) for head in heads]))
    assert torch.equal(heads[1][-1].weight, truncated()["lm_heads.1.weight"])
    unknown = {token for token in range(VOCAB) if bool((logits[:, token] == -torch.inf).all())}
    assert unknown == set(range(VOCAB)) - set(MAP)
    assert run(medusa(llama, heads, [1, 2]), 20).tokens == run(greedy(llama, [1, 2]), 20).tokens


def test_they_load_back_bit_equal_and_only_for_vllm(folder, tmp_path):
    heads = random_heads(token_map=MAP)
    save_medusa(heads, folder, "vllm")
    found = load_medusa(folder)
    assert same(found, heads) and found.token_map.tolist() == MAP
    assert json.loads((folder / "config.json").read_text())["truncated_vocab_size"] == len(MAP)
    with pytest.raises(ValueError, match="token_map cannot be written in the published layout"):
        save_medusa(heads, tmp_path / "published")
    assert not (tmp_path / "published").exists()


def test_output_layers_that_are_there_in_full_are_cut(folder):
    tensors = for_vllm() | {"token_map": torch.tensor(MAP)}
    heads = load_medusa(write(folder, truncated_config(), tensors))
    assert torch.equal(heads[1][-1].weight, tensors["lm_heads.1.weight"][MAP])


def test_a_truncated_vocabulary_that_is_left_out_is_the_whole_one(folder):
    config = vllm_config()
    del config["truncated_vocab_size"]
    assert load_medusa(write(folder, config, for_vllm())).token_map is None


def test_one_output_layer_may_serve_all_heads(folder):
    tensors = for_vllm()
    del tensors["lm_heads.1.weight"], tensors["lm_heads.2.weight"]
    heads = load_medusa(write(folder, vllm_config(original_lm_head=True), tensors))
    for head in heads:
        assert torch.equal(head[-1].weight, tensors["lm_heads.0.weight"])
    heads[0][-1].weight.data.zero_()
    assert heads[1][-1].weight.any()


@pytest.mark.parametrize("token_map", [None, MAP], ids=["all tokens", "some tokens"])
def test_an_output_layer_of_the_targets_is_in_the_file_once_or_not_at_all(llama, folder, token_map):
    heads, output = random_heads(token_map=token_map), llama.model.get_output_embeddings().weight.detach()
    for head in heads:
        head[-1].weight.data = (output if token_map is None else output[token_map]).clone()
    for options, there in (({"borrowed": True}, 0), ({"shared": True}, 1)):
        path = save_medusa(heads, folder, "vllm", **options)
        assert sum(name.startswith("lm_heads") for name in formats.files.read_tensors(path)) == there
        assert same(load_medusa(folder, llama), heads)
    assert same(load_medusa(folder), heads)


def test_names_may_carry_the_prefix_that_vllm_takes_off(folder):
    tensors = {f"medusa_heads.{name}": tensor for name, tensor in for_vllm().items()}
    assert torch.equal(load_medusa(write(folder, vllm_config(), tensors))[2][2].weight, for_vllm()["lm_heads.2.weight"])


@pytest.mark.parametrize(
    ("config", "token_map", "says"),
    [
        (truncated_config(), None, "token_map is missing"),
        (truncated_config(), MAP[:4], r"token_map is of shape \(4,\) and torch.int64, expected 5 token ids, int64"),
        (truncated_config(), [7.0, 3, 18, 0, 11], "token_map is of shape .* and torch.float32"),
        (truncated_config(), [7, 3, 19, 0, 11], r"different tokens of a vocabulary of 19, got \[19\] among them"),
        (truncated_config(), [7, 3, -1, 0, 11], r"got \[-1\] among them"),
        (truncated_config(), [7, 3, 3, 0, 11], "some of them twice"),
        (vllm_config(), list(range(VOCAB)), "token_map is unknown"),
    ],
)
def test_a_wrong_token_map_is_named(folder, config, token_map, says):
    tensors = for_vllm(known=config["truncated_vocab_size"])
    tensors |= {} if token_map is None else {"token_map": torch.tensor(token_map)}
    with pytest.raises(ValueError, match=f"model.safetensors: (token_map must hold.*)?{says}"):
        load_medusa(write(folder, config, tensors))


# ----------------------------------------------------------------------------------------------------------------------
# What is wrong is named


def test_of_shapes_that_differ_the_one_that_says_otherwise_is_named(folder):
    for wrong in (numbers(VOCAB + 1, WIDTH), numbers(VOCAB, WIDTH + 1), numbers(VOCAB)):
        says = rf"0.2.weight has shape .{str(tuple(wrong.shape))[1:-1]}., expected \(19, 16\)"
        with pytest.raises(ValueError, match=says):
            load_medusa(write(folder, published_config(), published() | {"0.2.weight": wrong}))


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"choices": []}, "the tree is empty"),
        ({"choices": [[0, -1]]}, "paths of ranks"),
        ({"choices": 3}, "paths of ranks"),
        ({"choices": [[0, 0, 0, 0]]}, "the tree is 4 tokens deep, but there are 3 heads"),
        ({"accuracies": [[0.5], [2.0], [0.1]]}, "shares from 0 to 1"),
        ({"accuracies": "high"}, "shares from 0 to 1"),
        ({"accuracies": [[0.5]]}, "accuracies are of 1 heads, but there are 3"),
    ],
    ids=str,
)
def test_what_is_wrong_in_our_own_entry_is_named(folder, entry, says):
    write(folder, published_config(tutorlib=entry), published())
    with pytest.raises(ValueError, match=f'config.json: "tutorlib": .*{says}'):
        load_medusa(folder)
