"""Heads in files: bit-equal in each layout, read as the layouts are described, refused by name where they are wrong."""

import json
import os
import pickle
import time

import pytest
import torch
from conftest import VOCAB
from safetensors.torch import load_file, save_file

from tutorlib.decoders import greedy
from tutorlib.decoders.medusa import medusa
from tutorlib.heads import formats
from tutorlib.heads.formats import load_medusa, save_medusa
from tutorlib.heads.medusa import MedusaHeads
from tutorlib.lm import LM
from tutorlib.run import run
from tutorlib.table import TableLM

WIDTH = 16  # of the models of conftest
LAYOUTS = ("medusa", "vllm")
SAFE, PICKLE = "medusa_lm_head.safetensors", "medusa_lm_head.pt"


def numbers(*shape, seed=0, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def random_heads(heads=3, layers=2, vocab=VOCAB, width=WIDTH, dtype=torch.float32, **settings):
    """Heads of random numbers, none of them zero."""
    made = MedusaHeads(width, vocab, heads, layers, **settings).to(dtype)
    for seed, parameter in enumerate(made.parameters()):
        parameter.data = numbers(*parameter.shape, seed=seed, dtype=dtype)
    return made


def published(heads=3, layers=2, vocab=VOCAB, width=WIDTH, outputs=True):
    """Tensors named as the description of the published layout has it."""
    tensors = {}
    for i in range(heads):
        for j in range(layers):
            tensors[f"{i}.{j}.linear.weight"] = numbers(width, width, seed=len(tensors)) / 4
            tensors[f"{i}.{j}.linear.bias"] = numbers(width, seed=len(tensors))
        if outputs:
            tensors[f"{i}.{layers}.weight"] = numbers(vocab, width, seed=len(tensors))
    return tensors


def for_vllm(heads=3, layers=2, known=VOCAB, width=WIDTH, bias=True):
    """The same for the layout that vLLM reads."""
    tensors = {}
    for i in range(heads):
        for j in range(layers):
            tensors[f"blocks.{i}.layers.{j}.weight"] = numbers(width, width, seed=len(tensors)) / 4
            if bias:
                tensors[f"blocks.{i}.layers.{j}.bias"] = numbers(width, seed=len(tensors))
        tensors[f"lm_heads.{i}.weight"] = numbers(known, width, seed=len(tensors))
    return tensors


def published_config(heads=3, layers=2, **more):
    return {"medusa_num_heads": heads, "medusa_num_layers": layers, "base_model_name_or_path": "someone/model", **more}


def vllm_config(heads=3, layers=2, **more):
    return {
        "model_type": "medusa", "architectures": ["MedusaModel"], "num_heads": heads, "num_hidden_layers": layers,
        "hidden_size": WIDTH, "vocab_size": VOCAB, "truncated_vocab_size": VOCAB, "medusa_fc_bias": True, **more,
    }  # fmt: skip


def write(folder, config, tensors, name=None):
    """A folder of heads, written without the code under test."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    name = name or (SAFE if "medusa_num_heads" in config else "model.safetensors")
    if name.endswith(".safetensors"):
        save_file(tensors, folder / name)
    else:
        torch.save(tensors, folder / name)
    return folder


def bits(tensor):
    return tensor.dtype, tuple(tensor.shape), tensor.detach().contiguous().view(torch.uint8).tolist()


def same(heads, others):
    return {name: bits(tensor) for name, tensor in heads.state_dict().items()} == {
        name: bits(tensor) for name, tensor in others.state_dict().items()
    }


def silu(x):
    return x / (1 + torch.exp(-x))


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "heads"


# ----------------------------------------------------------------------------------------------------------------------
# There and back


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("pickled", [False, True], ids=["safetensors", "pickle"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_saved_heads_load_back_bit_equal(folder, layout, pickled, dtype):
    heads = random_heads(dtype=dtype)
    save_medusa(heads, folder, layout, pickled=pickled)
    assert same(load_medusa(folder), heads)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("heads", "layers"), [(1, 1), (5, 1), (2, 0), (2, 3)])
def test_any_number_of_heads_and_blocks_loads_back(folder, layout, heads, layers):
    made = random_heads(heads, layers)
    save_medusa(made, folder, layout)
    found = load_medusa(folder)
    assert same(found, made)
    assert (len(found), found.layers, found.width, found.vocab_size) == (heads, layers, WIDTH, VOCAB)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_tree_and_the_accuracies_come_back_too(folder, layout):
    accuracies = [[0.61, 1 / 3], [0.5, 0.0], [0.25, 1e-9]]
    save_medusa(random_heads(choices=[(0,), (1,), (1, 0)], accuracies=accuracies), folder, layout)
    found = load_medusa(folder)
    assert (found.choices, found.accuracies) == ([(0,), (1,), (1, 0)], accuracies)


def test_from_one_layout_to_the_other_and_back_nothing_is_lost(folder, tmp_path):
    heads = random_heads()
    save_medusa(heads, folder, "vllm")
    save_medusa(load_medusa(folder), tmp_path / "again", "medusa")
    assert same(load_medusa(tmp_path / "again"), heads)


def test_loaded_heads_guess_for_their_target_and_may_be_trained(llama, folder):
    save_medusa(random_heads(), folder)
    heads = load_medusa(folder, llama)
    assert not heads.training and not load_medusa(folder).training
    assert run(medusa(llama, heads, [1, 2]), 20).tokens == run(greedy(llama, [1, 2]), 20).tokens
    heads(numbers(WIDTH)).sum().backward()
    assert all(parameter.grad is not None for parameter in heads.parameters())


def test_heads_that_share_memory_can_be_saved(folder):
    heads = random_heads()
    for head in heads:
        head[-1].weight = heads[0][-1].weight
    save_medusa(heads, folder)
    assert same(load_medusa(folder), heads)


def test_a_saved_pickle_is_what_the_authors_code_reads(folder):
    heads = random_heads()
    path = save_medusa(heads, folder, base="someone/model", pickled=True)
    # Their loader: the parameters of a ModuleList of Sequentials, by name.
    tensors = torch.load(path, weights_only=True)
    assert path.name == "medusa_lm_head.pt"
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == {
        name: tuple(tensor.shape) for name, tensor in published().items()
    }
    assert json.loads((folder / "config.json").read_text()).items() >= published_config().items()


def test_a_file_for_vllm_has_the_names_and_keys_that_it_reads(folder):
    path = save_medusa(random_heads(), folder, "vllm")
    assert path.name == "model.safetensors"
    assert {name: tuple(tensor.shape) for name, tensor in load_file(path).items()} == {
        name: tuple(tensor.shape) for name, tensor in for_vllm().items()
    }
    config = json.loads((folder / "config.json").read_text())
    assert {key: config[key] for key in vllm_config()} == vllm_config()
    # It takes any key with "num" and "heads" or "layers" in it for its own.
    assert {key for key in config if "num" in key} == {"num_heads", "num_hidden_layers"}


# ----------------------------------------------------------------------------------------------------------------------
# What a file means


@pytest.mark.parametrize("name", [SAFE, PICKLE])
@pytest.mark.parametrize("layers", [1, 2])
def test_a_published_file_gives_the_logits_of_its_description(folder, layers, name):
    tensors = published(layers=layers)
    heads = load_medusa(write(folder, published_config(layers=layers), tensors, name))
    hidden = numbers(2, 5, WIDTH, seed=99)
    found = heads(hidden)
    assert found.shape == (3, 2, 5, VOCAB)
    for i in range(3):
        x = hidden.double()
        for j in range(layers):
            weight, bias = tensors[f"{i}.{j}.linear.weight"].double(), tensors[f"{i}.{j}.linear.bias"].double()
            x = x + silu(x @ weight.T + bias)
        expected = x @ tensors[f"{i}.{layers}.weight"].double().T
        assert torch.allclose(found[i].double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bias", [True, False])
def test_a_file_for_vllm_gives_the_logits_of_its_description(folder, bias):
    tensors, config = for_vllm(bias=bias), vllm_config()
    if not bias:
        del config["medusa_fc_bias"]  # absent means none
    heads = load_medusa(write(folder, config, tensors))
    hidden = numbers(4, WIDTH, seed=99)
    found = heads(hidden)
    for i in range(3):
        x = hidden.double()
        for j in range(2):
            added = x @ tensors[f"blocks.{i}.layers.{j}.weight"].double().T
            x = x + silu(added + (tensors[f"blocks.{i}.layers.{j}.bias"].double() if bias else 0))
        expected = x @ tensors[f"lm_heads.{i}.weight"].double().T
        assert torch.allclose(found[i].double(), expected, rtol=1e-4, atol=1e-4)


def test_heads_as_somebody_elses_modules_save_them_load_bit_equal(folder):
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            return x + torch.nn.SiLU()(self.linear(x))

    theirs = torch.nn.ModuleList(
        torch.nn.Sequential(Block(), torch.nn.Linear(WIDTH, VOCAB, bias=False)) for _ in range(4)
    )
    heads = load_medusa(write(folder, published_config(4, 1), dict(theirs.state_dict()), PICKLE))
    hidden = numbers(3, WIDTH)
    assert torch.equal(heads(hidden), torch.stack([head(hidden) for head in theirs]))


def test_old_heads_without_output_layers_use_the_targets(llama, folder):
    tensors = published(outputs=False)
    write(folder, published_config(), tensors, PICKLE)
    heads = load_medusa(folder, llama)
    hidden = numbers(WIDTH, seed=5)
    for i, logits in enumerate(heads(hidden)):
        x = hidden
        for j in range(2):
            x = x + silu(tensors[f"{i}.{j}.linear.weight"] @ x + tensors[f"{i}.{j}.linear.bias"])
        assert torch.allclose(logits, llama.model.lm_head(x), atol=1e-4)
    with pytest.raises(
        ValueError, match=r"no output layers of their own \(0.2.weight and so on\) and use the target's"
    ):
        load_medusa(folder)
    with pytest.raises(ValueError, match="no output head of shape .16, 16. to be used again"):
        load_medusa(folder, TableLM.random(16, 0, 0))


def test_training_old_heads_leaves_the_target_alone(llama, folder):
    heads = load_medusa(write(folder, published_config(), published(outputs=False)), llama)
    before = llama.model.lm_head.weight.clone()
    for parameter in heads.parameters():
        parameter.data.zero_()
    assert torch.equal(llama.model.lm_head.weight, before)


def test_a_target_whose_output_head_has_a_bias_cannot_lend_it(llama, folder, monkeypatch):
    write(folder, published_config(), published(outputs=False))
    monkeypatch.setattr(llama.model, "get_output_embeddings", lambda: torch.nn.Linear(WIDTH, VOCAB))
    with pytest.raises(ValueError, match="has a bias, for which Medusa heads have no place"):
        load_medusa(folder, llama)


def test_the_first_published_configuration_says_2_heads_where_there_are_5(folder):
    assert len(load_medusa(write(folder, published_config(heads=2), published(heads=5)))) == 5


def test_a_part_of_a_further_head_is_unknown(folder):
    tensors = published() | {"3.0.linear.weight": numbers(WIDTH, WIDTH)}
    with pytest.raises(ValueError, match="3.0.linear.weight is unknown"):
        load_medusa(write(folder, published_config(), tensors))


# ----------------------------------------------------------------------------------------------------------------------
# Heads that know a part of the vocabulary

MAP = [7, 3, 18, 0, 11]


def truncated_config(**more):
    return vllm_config(**{"truncated_vocab_size": len(MAP), **more})


def truncated(**more):
    return for_vllm(known=len(MAP)) | {"token_map": torch.tensor(MAP)} | more


def test_tokens_that_the_heads_do_not_know_are_never_guessed(llama, folder):
    heads = load_medusa(write(folder, truncated_config(), truncated()), llama)
    logits = heads(numbers(WIDTH, seed=3))
    full = load_medusa(write(folder, {**vllm_config(), "vocab_size": len(MAP), "truncated_vocab_size": len(MAP)},
                             for_vllm(known=len(MAP))))(numbers(WIDTH, seed=3))  # fmt: skip
    assert torch.equal(logits[:, MAP], full)
    assert {token for token in range(VOCAB) if bool((logits[:, token] == -torch.inf).all())} == set(range(VOCAB)) - {
        *MAP
    }
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


def test_one_output_layer_may_serve_all_heads(folder):
    tensors = for_vllm()
    del tensors["lm_heads.1.weight"], tensors["lm_heads.2.weight"]
    heads = load_medusa(write(folder, vllm_config(original_lm_head=True), tensors))
    for head in heads:
        assert torch.equal(head[-1].weight, tensors["lm_heads.0.weight"])
    heads[0][-1].weight.data.zero_()
    assert heads[1][-1].weight.any()


def test_names_may_carry_the_prefix_that_vllm_takes_off(folder):
    tensors = {f"medusa_heads.{name}": tensor for name, tensor in for_vllm().items()}
    assert torch.equal(load_medusa(write(folder, vllm_config(), tensors))[2][2].weight, for_vllm()["lm_heads.2.weight"])


@pytest.mark.parametrize(
    ("token_map", "says"),
    [
        (None, "token_map is missing"),
        (torch.tensor(MAP[:4]), r"token_map is of shape \(4,\) and torch.int64, expected 5 token ids, int64"),
        (torch.tensor(MAP).float(), "token_map is of shape .* and torch.float32"),
        (torch.tensor([7, 3, 19, 0, 11]), r"different tokens of a vocabulary of 19, got \[19\] among them"),
        (torch.tensor([7, 3, -1, 0, 11]), r"got \[-1\] among them"),
        (torch.tensor([7, 3, 3, 0, 11]), "some of them twice"),
    ],
    ids=str,
)
def test_a_wrong_token_map_is_named(folder, token_map, says):
    tensors = truncated(token_map=token_map)
    if token_map is None:
        del tensors["token_map"]
    with pytest.raises(ValueError, match=f"model.safetensors: {says}|model.safetensors: token_map must hold.*{says}"):
        load_medusa(write(folder, truncated_config(), tensors))


def test_a_token_map_over_the_whole_vocabulary_is_unknown(folder):
    tensors = for_vllm() | {"token_map": torch.arange(VOCAB)}
    with pytest.raises(ValueError, match="token_map is unknown"):
        load_medusa(write(folder, vllm_config(), tensors))


# ----------------------------------------------------------------------------------------------------------------------
# What is wrong is named

PUBLISHED = (published_config, published, SAFE, "1.0.linear.bias", "2.2.weight")
VLLM = (vllm_config, for_vllm, "model.safetensors", "blocks.1.layers.0.bias", "lm_heads.2.weight")


@pytest.mark.parametrize(("config", "tensors", "file", "block", "output"), [PUBLISHED, VLLM], ids=LAYOUTS)
class TestTensors:
    def refused(self, folder, config, tensors, file, says):
        write(folder, config(), tensors)
        with pytest.raises(ValueError, match=says) as caught:
            load_medusa(folder)
        assert str(folder / file) in str(caught.value)

    def test_missing(self, folder, config, tensors, file, block, output):
        held = tensors()
        del held[block]
        self.refused(folder, config, held, file, f"{block} is missing")
        del held[output]
        self.refused(folder, config, held, file, f"{block}, {output} are missing")

    def test_unknown(self, folder, config, tensors, file, block, output):
        held = tensors() | {"extra.weight": numbers(3)}
        self.refused(folder, config, held, file, "extra.weight is unknown")

    def test_renamed(self, folder, config, tensors, file, block, output):
        held = tensors()
        held["other"] = held.pop(block)
        self.refused(folder, config, held, file, f"{block} is missing, and other is unknown")

    def test_shapes(self, folder, config, tensors, file, block, output):
        self.refused(folder, config, tensors() | {block: numbers(WIDTH - 1)}, file,
                     rf"{block} has shape \(15,\), expected \(16,\)")  # fmt: skip
        self.refused(folder, config, tensors() | {output: numbers(VOCAB, WIDTH + 1)}, file,
                     rf"{output} has shape \(19, 17\), expected \(19, 16\)")  # fmt: skip
        self.refused(folder, config, tensors() | {output: numbers(VOCAB)}, file, rf"{output} has shape \(19,\)")

    def test_types(self, folder, config, tensors, file, block, output):
        held = tensors()
        self.refused(folder, config, held | {output: held[output].half()}, file,
                     f"{output} is torch.float16, expected torch.float32 as the others")  # fmt: skip
        quantized = {name: tensor.to(torch.int8) for name, tensor in held.items()}
        self.refused(folder, config, quantized, file, "is torch.int8, expected numbers of a floating type")

    @pytest.mark.parametrize("vocab", [VOCAB + 2, VOCAB - 2])
    def test_another_vocabulary(self, folder, config, tensors, file, block, output, vocab):
        write(folder, config(), tensors())
        with pytest.raises(ValueError, match=f"the heads know 19 tokens, the target {vocab}: they are not its"):
            load_medusa(folder, TableLM.random(vocab, 0, 0))

    def test_another_width(self, folder, config, tensors, file, block, output):
        write(folder, config(), tensors())
        with pytest.raises(ValueError, match="read hidden states of width 16, the target's have 19: they are not its"):
            load_medusa(folder, TableLM.random(VOCAB, 0, 0))


def test_heads_whose_first_tensor_is_the_wrong_one_are_named_by_it(folder):
    held = published() | {"0.2.weight": numbers(VOCAB + 1, WIDTH)}
    with pytest.raises(ValueError, match=r"0.2.weight has shape \(20, 16\), expected \(19, 16\)"):
        load_medusa(write(folder, published_config(), held))


def test_old_heads_of_another_width_are_refused(llama, folder):
    write(folder, published_config(), published(outputs=False, width=WIDTH + 4))
    with pytest.raises(ValueError, match="medusa_lm_head.safetensors: the heads read hidden states of width 20"):
        load_medusa(folder, llama)


def test_biases_that_vllm_would_drop_in_silence_are_an_error(folder):
    config = vllm_config()
    del config["medusa_fc_bias"]
    with pytest.raises(ValueError, match="blocks.0.layers.0.bias, .* are unknown"):
        load_medusa(write(folder, config, for_vllm()))


@pytest.mark.parametrize(
    ("config", "key"),
    [(published_config(), key) for key in ("medusa_num_heads", "medusa_num_layers")]
    + [(vllm_config(), key) for key in ("num_heads", "num_hidden_layers", "hidden_size", "vocab_size")],
    ids=str,
)
def test_a_key_that_is_missing_or_no_number_is_named(folder, config, key):
    tensors = published() if "medusa_num_heads" in config else for_vllm()
    for value in (None, "3", 2.5, True, -1, [3]):
        write(folder, {**config, key: value}, tensors)
        with pytest.raises(ValueError, match=f"config.json: {key} must be a whole number of [01] or more, got"):
            load_medusa(folder)
    write(folder, config, tensors)
    (folder / "config.json").write_text(json.dumps({name: config[name] for name in config if name != key}))
    with pytest.raises(ValueError, match=f"config.json lacks the key '{key}'"):
        load_medusa(folder)


def test_a_truncated_vocabulary_that_is_left_out_is_the_whole_one(folder):
    config = vllm_config()
    del config["truncated_vocab_size"]
    assert load_medusa(write(folder, config, for_vllm())).token_map is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "half-written or broken"),
        ('{"medusa_num_heads": 3, "medu', "half-written or broken"),
        ("[1, 2]", "must hold an object with keys and values"),
        ("{}", "is not that of Medusa heads: expected medusa_num_heads"),
        ('{"model_type": "llama", "vocab_size": 19}', "is not that of Medusa heads.*it has model_type, vocab_size"),
    ],
)
def test_a_configuration_that_is_none_is_refused(folder, text, says):
    write(folder, published_config(), published())
    (folder / "config.json").write_text(text)
    with pytest.raises(ValueError, match=f"config.json.*{says}"):
        load_medusa(folder)


def test_a_folder_without_one_of_the_files_is_refused(folder):
    write(folder, published_config(), published())
    (folder / SAFE).unlink()
    with pytest.raises(ValueError, match=f"has a config.json but no tensors: expected {SAFE} or {PICKLE}"):
        load_medusa(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ValueError, match="config.json is missing: this folder holds no heads"):
        load_medusa(folder)


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ([1], "expected an object"),
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
    with pytest.raises(ValueError, match=f"config.json.*{says}"):
        load_medusa(folder)


# ----------------------------------------------------------------------------------------------------------------------
# Broken and hostile files


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pickled", [False, True], ids=["safetensors", "pickle"])
def test_a_half_written_file_is_named(folder, layout, pickled):
    path = save_medusa(random_heads(), folder, layout, pickled=pickled)
    whole = path.read_bytes()
    for length in (0, 1, 7, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError) as caught:
            load_medusa(folder)
        assert str(path) in str(caught.value) and "broken" in str(caught.value), length


class Intruder:
    """Unpickled, it would write a file."""

    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return os.open, (str(self.place), os.O_CREAT | os.O_WRONLY)


@pytest.mark.parametrize("hidden", [False, True], ids=["alone", "among tensors"])
@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "plain pickle"])
def test_a_pickle_that_brings_code_is_refused_and_the_code_does_not_run(folder, tmp_path, hidden, legacy):
    mark = tmp_path / "mark"
    write(folder, published_config(), published(), PICKLE)
    cargo = published() | {"2.2.weight": Intruder(mark)} if hidden else Intruder(mark)
    torch.save(cargo, folder / PICKLE, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(ValueError, match="holds more than tensors; no code in it was run") as caught:
        load_medusa(folder)
    assert not mark.exists()
    assert "weights_only" not in str(caught.value), "that would be advice to run it"
    torch.load(folder / PICKLE, weights_only=False)
    assert mark.exists(), "this is what it would have done"


def test_a_bare_pickle_that_brings_code_does_not_run_either(folder, tmp_path):
    mark = tmp_path / "mark"
    write(folder, published_config(), published(), PICKLE)
    (folder / PICKLE).write_bytes(pickle.dumps(Intruder(mark)))
    with pytest.raises(ValueError, match="no code in it was run"):
        load_medusa(folder)
    assert not mark.exists()
    (folder / PICKLE).rename(folder / SAFE)  # under a safe name
    with pytest.raises(ValueError, match="half-written or broken"):
        load_medusa(folder)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("cargo", "says"),
    [
        ([numbers(2)], "must hold tensors by name, got list"),
        (numbers(2), "must hold tensors by name, got Tensor"),
        (published() | {"steps": 3}, "got int at 'steps'"),
        (published() | {"2.2.weight": {"weight": numbers(2)}}, "got dict at '2.2.weight'"),
        (published() | {7: numbers(2)}, "got Tensor at 7"),
    ],
    ids=["list", "tensor", "number", "dict", "number as name"],
)
def test_a_pickle_with_anything_but_tensors_is_refused(folder, cargo, says):
    write(folder, published_config(), cargo, PICKLE)
    with pytest.raises(ValueError, match=f"{PICKLE}.*{says}"):
        load_medusa(folder)


def test_safetensors_come_before_a_pickle(folder, tmp_path):
    write(folder, published_config(), published())
    torch.save(Intruder(tmp_path / "mark"), folder / PICKLE)
    assert len(load_medusa(folder)) == 3


# ----------------------------------------------------------------------------------------------------------------------
# Writing


def half(tensors, path, **_):
    path.write_bytes(b"half")
    raise KeyboardInterrupt


@pytest.mark.parametrize("layout", LAYOUTS)
def test_writing_that_is_cut_off_leaves_the_old_heads(folder, layout, monkeypatch):
    old, new = random_heads(), random_heads(layers=1)
    save_medusa(old, folder, layout)
    with monkeypatch.context() as patch:
        patch.setattr(formats.files, "save_file", half)
        with pytest.raises(KeyboardInterrupt):
            save_medusa(new, folder, layout)
    assert same(load_medusa(folder), old)
    assert sorted(path.suffix for path in folder.iterdir()) == [".json", ".safetensors"]
    (folder / f"{'model' if layout == 'vllm' else 'medusa_lm_head'}.safetensors.new").write_bytes(b"left by a kill")
    assert same(load_medusa(folder), old)
    save_medusa(new, folder, layout)
    assert same(load_medusa(folder), new)


def test_a_kill_between_the_two_files_is_never_taken_for_whole(folder, monkeypatch):
    def only_once(source, place, replace=os.replace):
        if place.name == "config.json":
            raise KeyboardInterrupt
        replace(source, place)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", only_once)
        with pytest.raises(KeyboardInterrupt):
            save_medusa(random_heads(), folder)
    with pytest.raises(
        ValueError, match="config.json is missing: this folder holds no heads, or they were not written"
    ):
        load_medusa(folder)


@pytest.mark.parametrize("key", ["medusa_num_heads", "medusa_num_layers", "num_heads", "num_hidden_layers"])
def test_sizes_beyond_what_the_file_holds_are_refused_at_once(folder, key):
    config, tensors = (published_config(), published()) if key.startswith("medusa") else (vllm_config(), for_vllm())
    began = time.process_time()
    with pytest.raises(ValueError, match="config.json"):
        load_medusa(write(folder, config | {key: 10**9}, tensors))
    assert time.process_time() - began < 2


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_heads_of_no_finite_numbers_are_refused(folder, number):
    tensors = published()
    tensors["1.0.linear.weight"][0, 0] = number
    with pytest.raises(ValueError, match=r"1.0.linear.weight has numbers that are not finite"):
        load_medusa(write(folder, published_config(), tensors))


@pytest.mark.parametrize("content", ["[" * 100_000, '{"a": ' * 50_000, "\x00", "[]"])
def test_configurations_that_are_none_are_named(folder, content):
    write(folder, published_config(), published())
    (folder / "config.json").write_text(content)
    with pytest.raises(ValueError, match=r"config.json (is|must)"):
        load_medusa(folder)


def test_the_later_of_a_pickle_and_safetensors_is_what_is_read(folder):
    save_medusa(random_heads(layers=1), folder)
    save_medusa(random_heads(layers=2), folder, pickled=True)
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", PICKLE]
    assert load_medusa(folder).layers == 2
    save_medusa(random_heads(layers=1), folder)
    assert load_medusa(folder).layers == 1


def test_a_models_folder_is_not_overwritten(tmp_path, llama):
    llama.model.save_pretrained(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for layout in LAYOUTS:
        with pytest.raises(ValueError, match="config.json is not that of Medusa heads"):
            save_medusa(random_heads(), tmp_path, layout)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_another_layout_is_refused(folder):
    with pytest.raises(ValueError, match="layout='tgi' is not known"):
        save_medusa(random_heads(), folder, "tgi")


@pytest.mark.slow
def test_heads_of_every_family_go_through_both_layouts(models, family, folder):
    lm = LM(models(family))
    heads = MedusaHeads(lm.width, lm.vocab_size, 2, output=formats.output_weight(lm))
    for layout in LAYOUTS:
        save_medusa(heads, folder, layout)
        assert same(load_medusa(folder, lm), heads)
