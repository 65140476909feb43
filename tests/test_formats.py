"""What all layouts of heads in files promise: bit-equal there and back, read as they are described, errors that name.

What is peculiar to one of them: see `tests/test_medusa_files.py` and `tests/test_eagle_files.py`.
"""

import io
import json
import os
import pickle
import re
import time

import pytest
import torch
from conftest import VOCAB
from layouts import LAYOUTS, bits, numbers, random_heads, random_network, same, write, write_parts
from safetensors.torch import load_file

from tutorlib import TableLM, greedy, run
from tutorlib.loading import formats

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
every_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
# Where nothing depends on the layout, as it is not yet known.
each_kind = pytest.mark.parametrize("layout", [LAYOUTS["medusa"], LAYOUTS["EAGLE-1"]], ids=["medusa", "EAGLE-1"])
either_file = pytest.mark.parametrize("pickled", [False, True], ids=["safetensors", "pickle"])


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "heads"


def refused(layout, folder, says, config=None, tensors=None, target=None):
    """A folder as described, but for what is given, is refused by an error that names the file."""
    write(folder, layout.config() if config is None else config, layout.tensors() if tensors is None else tensors)
    with pytest.raises(ValueError, match=says) as caught:
        layout.load(folder, target)
    assert str(folder / "config.json") in str(caught.value) or str(folder / layout.files[0]) in str(caught.value)


def floating(tensors):
    return [name for name, tensor in tensors.items() if tensor.is_floating_point()]


# ----------------------------------------------------------------------------------------------------------------------
# There and back


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@either_file
@every_layout
def test_saved_heads_load_back_bit_equal_with_all_that_they_know(folder, layout, pickled, dtype):
    heads = layout.random(dtype=dtype)
    assert layout.save(heads, folder, pickled=pickled) == folder / layout.files[pickled]
    found = layout.load(folder)
    assert same(found, heads) and not found.training
    for known in ("tree", "choices", "accuracies", "feature_layers", "norm_before_residual", "layers", "width"):
        assert repr(getattr(found, known, None)) == repr(getattr(heads, known, None))


@either_file
@every_layout
def test_a_file_is_read_and_written_as_it_is_described(folder, tmp_path, layout, pickled):
    described = layout.tensors()
    heads = layout.load(write(folder, layout.config(), described, layout.files[pickled]))
    assert bits({layout.here(name): tensor for name, tensor in described.items()}) == bits(heads.state_dict())
    path = layout.save(heads, tmp_path / "again", base="someone/model", pickled=pickled)
    written = torch.load(path, weights_only=True) if pickled else load_file(path)
    assert bits(written) == bits(described)
    config = json.loads((tmp_path / "again" / "config.json").read_text())
    nested = ("transformer_layer_config", "speculators_config")  # see the schema of that package
    assert {key: said for key, said in layout.config().items() if key not in nested}.items() <= config.items()


@either_file
@every_layout
def test_a_file_in_several_parts_is_the_same_file(folder, layout, pickled):
    described, name = layout.tensors(), layout.files[pickled]
    heads = layout.load(write_parts(folder, layout.config(), described, name))
    assert bits({layout.here(name): tensor for name, tensor in described.items()}) == bits(heads.state_dict())
    index = folder / f"{name}.index.json"
    there = json.loads(index.read_text())["weight_map"]
    index.write_text(json.dumps({"weight_map": dict(list(there.items())[1:])}))
    with pytest.raises(ValueError, match=f"{index.name} differ in {next(iter(there))}: the two do not belong together"):
        layout.load(folder)
    index.write_text(json.dumps({"weight_map": there}))
    (folder / min(there.values())).unlink()
    with pytest.raises(ValueError, match=f"{min(there.values())} is missing, though {index.name} names it"):
        layout.load(folder)


@pytest.mark.parametrize(
    ("one", "other"), [("medusa", "vllm"), ("EAGLE-3", "speculators"), ("EAGLE-3.1", "speculators")]
)
def test_from_one_layout_to_the_other_and_back_nothing_is_lost(folder, tmp_path, one, other):
    one, other = LAYOUTS[one], LAYOUTS[other]
    heads = one.random()
    other.save(heads, folder)
    one.save(other.load(folder), tmp_path / "again")
    assert same(one.load(tmp_path / "again"), heads)


@every_layout
def test_tensors_that_share_memory_can_be_saved_and_no_longer_do(folder, layout):
    heads, by_shape = layout.random(), {}
    for parameter in heads.parameters():
        parameter.data = by_shape.setdefault(parameter.shape, parameter.data)
    layout.save(heads, folder)
    found = layout.load(folder)
    assert same(found, heads)
    next(found.parameters()).data.zero_()
    assert all(parameter.any() for parameter in list(found.parameters())[1:])


@every_layout
def test_loaded_heads_guess_for_their_target_and_may_be_trained(llama, folder, layout):
    layout.save(layout.random(), folder)
    before = torch.get_rng_state()
    heads = layout.load(folder, llama)
    assert torch.equal(torch.get_rng_state(), before), "loading draws no random numbers"
    assert run(layout.decode(llama, heads, [1, 2]), 20).tokens == run(greedy(llama, [1, 2]), 20).tokens
    sum(parameter.square().sum() for parameter in heads.parameters()).backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in heads.parameters())


# ----------------------------------------------------------------------------------------------------------------------
# A wrong tensor is named


@every_layout
def test_a_tensor_that_is_missing_renamed_or_unknown_is_named(folder, layout):
    tensors = layout.tensors()

    def without(*names):
        return {name: tensor for name, tensor in tensors.items() if name not in names}

    for name in tensors.keys() - {"t2d"}:  # which follows from the other map
        # Where there is no token that is mapped, and where there are no embeddings: see the peculiar ones.
        refused(layout, folder, f"{name} is missing", tensors=without(name))
    one, *_, another = without("embed_tokens.weight", "t2d")
    renamed = without(one) | {"other": tensors[one]}
    refused(layout, folder, f"{re.escape(one)} is missing, and other is unknown", tensors=renamed)
    both = f"({one}, {another}|{another}, {one}) are missing"
    refused(layout, folder, both, tensors=without(one, another))
    more = tensors | {"extra.weight": numbers(3)}
    refused(layout, folder, f"{layout.files[0]}: extra.weight is unknown, by what .*config.json says", tensors=more)


@every_layout
def test_a_tensor_of_another_shape_is_named(folder, layout):
    """One row too many in each of them, or another order of sides, or a side more."""
    tensors, shapes = layout.tensors(), set()
    for name, tensor in tensors.items():
        wrongs = [torch.cat([tensor, tensor[:1]])]
        if tensor.shape not in shapes:
            wrongs += [tensor[None], *([tensor.T.contiguous()] if len(set(tensor.shape)) == 2 else [])]
        shapes.add(tensor.shape)
        for wrong in wrongs:
            wrong_shape, shape = (re.escape(str(tuple(each.shape))) for each in (wrong, tensor))
            says = f"{name} has shape {wrong_shape}, expected {shape}"
            refused(layout, folder, says, tensors=tensors | {name: wrong})


@every_layout
def test_a_tensor_of_another_type_or_of_numbers_that_are_not_finite_is_named(folder, layout):
    tensors = layout.tensors()
    for name in floating(tensors)[1:]:
        says = f"{name} is torch.float16, expected {tensors[name].dtype} as the others"
        refused(layout, folder, says, tensors=tensors | {name: tensors[name].half()})
    for name in tensors.keys() - floating(tensors):
        says = f"{name} is torch.int32, expected {tensors[name].dtype}"
        refused(layout, folder, says, tensors=tensors | {name: tensors[name].int()})
    quantized = {name: tensors[name].to(torch.int8) for name in floating(tensors)}
    says = f"{floating(tensors)[0]} is torch.int8, expected numbers of a floating type"
    refused(layout, folder, says, tensors=tensors | quantized)
    for number in (torch.nan, torch.inf):
        tensors = layout.tensors()
        name = floating(tensors)[-1]
        tensors[name].flatten()[-1] = number
        refused(layout, folder, f"{name} has numbers that are not finite", tensors=tensors)


@every_layout
def test_heads_of_another_target_are_refused(folder, layout):
    for vocab in (VOCAB + 2, VOCAB - 2):
        says = f"knows? 19 tokens, the target {vocab}: (they do|it does) not fit"
        refused(layout, folder, says, target=TableLM.random(vocab, 0, 0))
    says = "of width 16, the target's have 19: (they do|it does) not fit"
    refused(layout, folder, says, target=TableLM.random(VOCAB, 0, 0))


# ----------------------------------------------------------------------------------------------------------------------
# A wrong configuration is named


@every_layout
def test_a_size_that_is_missing_or_none_is_named(folder, layout):
    for key in layout.sizes:
        for value in (None, "3", 2.5, True, -1, [3]):
            says = f"config.json.*{key} must be a whole number of [01] or more, got {re.escape(repr(value))}"
            refused(layout, folder, says, layout.config(**{key: value}))
        lacking = layout.config()
        del lacking.get("transformer_layer_config", lacking)[key]
        refused(layout, folder, f"lacks the key '{key}'|expected the sizes .* {key}", lacking)


@every_layout
def test_sizes_beyond_what_the_file_holds_are_refused_at_once(folder, layout):
    for key in (*layout.sizes, *(("head_dim",) if "intermediate_size" in layout.sizes else ())):
        config = layout.config(
            **{key: 10**12},
            **({"truncated_vocab_size": 10**12} if key == "vocab_size" and layout.name == "vllm" else {}),
        )
        began = time.process_time()
        refused(layout, folder, rf"config.json.*{key} is 1000000000000, but .* no side longer than", config)
        assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "is half-written or broken"),
        ('{"hidden_size": 16, "medusa_num_heads": 3, "medu', "is half-written or broken"),
        ("\x00", "is half-written or broken"),
        ("[" * 100_000, "is broken .it is nested too deeply"),
        ('{"a": ' * 50_000, "is broken .it is nested too deeply"),
        ("[1, 2]", "must hold an object with keys and values"),
        (
            "{}",
            "is not that of (Medusa heads: expected medusa_num_heads|an EAGLE network: expected the sizes).*no keys",
        ),
        ('{"model_type": "gpt2", "vocab_size": 19}', "is not that of .*it has model_type, vocab_size"),
    ],
    ids=lambda value: value[:20],
)
@each_kind
def test_a_configuration_that_is_none_is_refused(folder, layout, content, says):
    write(folder, layout.config(), layout.tensors())
    (folder / "config.json").write_text(content)
    with pytest.raises(ValueError, match=f"config.json {says}"):
        layout.load(folder)


@every_layout
def test_a_folder_without_one_of_the_files_is_refused(folder, layout):
    write(folder, layout.config(), layout.tensors())
    (folder / layout.files[0]).unlink()
    with pytest.raises(ValueError, match=f"has a config.json but no tensors: expected {' or '.join(layout.files)}"):
        layout.load(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ValueError, match="config.json is missing: this folder holds no heads, or they were not writt"):
        layout.load(folder)


@every_layout
def test_our_own_entry_is_an_object(folder, layout):
    refused(
        layout, folder, r'config.json: "tutorlib" must be an object, got \[1\]', layout.config() | {"tutorlib": [1]}
    )


# ----------------------------------------------------------------------------------------------------------------------
# Broken and hostile files


@either_file
@each_kind
def test_a_half_written_file_is_named(folder, layout, pickled):
    path = layout.save(layout.random(), folder, pickled=pickled)
    whole = path.read_bytes()
    for length in (0, 1, 7, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=rf"{path} is (half-written or )?broken"):
            layout.load(folder)


class Intruder:
    """Unpickled, it would write a file."""

    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return os.open, (str(self.place), os.O_CREAT | os.O_WRONLY)


@pytest.mark.parametrize("hidden", [False, True], ids=["alone", "among tensors"])
@pytest.mark.parametrize("kind", ["zip", "older", "bare"])
@each_kind
def test_a_pickle_that_brings_code_is_refused_and_the_code_does_not_run(folder, tmp_path, layout, kind, hidden):
    mark, (safe, unsafe) = tmp_path / "mark", layout.files
    tensors = layout.tensors()
    cargo = tensors | {list(tensors)[-1]: Intruder(mark)} if hidden else Intruder(mark)
    write(folder, layout.config(), {}, unsafe)
    if kind == "bare":
        (folder / unsafe).write_bytes(pickle.dumps(cargo))
    else:
        torch.save(cargo, folder / unsafe, _use_new_zipfile_serialization=kind == "zip")
    with pytest.raises(ValueError, match=f"{unsafe} .*holds more than tensors; no code in it was run") as caught:
        layout.load(folder)
    assert "weights_only" not in str(caught.value), "that would be advice to run it"
    (folder / unsafe).rename(folder / safe)  # under a safe name
    with pytest.raises(ValueError, match="half-written or broken"):
        layout.load(folder)
    assert not mark.exists()
    cargo = (folder / safe).read_bytes()
    pickle.loads(cargo) if kind == "bare" else torch.load(io.BytesIO(cargo), weights_only=False)
    assert mark.exists(), "this is what it would have done"


@pytest.mark.parametrize(
    ("cargo", "says"),
    [
        ([numbers(2)], "must hold tensors by name, got list"),
        (numbers(2), "must hold tensors by name, got Tensor"),
        ({"a": numbers(2), "steps": 3}, "got int at 'steps'"),
        ({"a": {"weight": numbers(2)}}, "got dict at 'a'"),
        ({7: numbers(2)}, "got Tensor at 7"),
    ],
    ids=["list", "tensor", "number", "dict", "number as name"],
)
@each_kind
def test_a_pickle_with_anything_but_tensors_is_refused(folder, layout, cargo, says):
    write(folder, layout.config(), cargo, layout.files[1])
    with pytest.raises(ValueError, match=f"{layout.files[1]}.*{says}"):
        layout.load(folder)
    write(folder, layout.config(), layout.tensors())  # safetensors come before a pickle
    layout.load(folder)


# ----------------------------------------------------------------------------------------------------------------------
# Writing


@every_layout
def test_writing_that_is_cut_off_leaves_the_old_heads_and_the_later_file_is_read(folder, layout, monkeypatch):
    def half(tensors, path, **_):
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    old, new = layout.random(), layout.random(dtype=torch.float16)
    layout.save(old, folder)
    with monkeypatch.context() as patch:
        patch.setattr(formats.files, "save_file", half)
        with pytest.raises(KeyboardInterrupt):
            layout.save(new, folder)
    assert same(layout.load(folder), old)
    assert {path.name for path in folder.iterdir()} == {"config.json", layout.files[0]}
    (folder / f"{layout.files[0]}.new").write_bytes(b"left by a kill")
    assert same(layout.load(folder), old)
    for pickled in (True, False):
        layout.save(new, folder, pickled=pickled)
        assert same(layout.load(folder), new) and not (folder / layout.files[not pickled]).exists()


@every_layout
def test_a_kill_between_the_two_files_is_never_taken_for_whole(folder, layout, monkeypatch):
    def only_once(source, place, replace=os.replace):
        if place.name == "config.json":
            raise KeyboardInterrupt
        replace(source, place)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", only_once)
        with pytest.raises(KeyboardInterrupt):
            layout.save(layout.random(), folder)
    with pytest.raises(ValueError, match="config.json is missing: this folder holds no heads, or they were not writt"):
        layout.load(folder)


@every_layout
def test_heads_may_be_replaced_by_others_of_their_kind_and_nothing_else_is_overwritten(folder, tmp_path, llama, layout):
    kind = "Medusa heads" if "medusa" in layout.decode.__name__ else "an EAGLE network"
    llama.model.save_pretrained(tmp_path / "model")
    write(tmp_path / "dflash", {"speculators_model_type": "dflash"}, {})
    for other in LAYOUTS.values():
        place = tmp_path / "other"
        heads = other.random()
        other.save(heads, place)
        if other.decode is layout.decode:
            layout.save(layout.random(), place)
            assert same(layout.load(place), layout.random())
        for taken in ("model", "dflash", *(["other"] if other.decode is not layout.decode else [])):
            before = {path.name: path.read_bytes() for path in (tmp_path / taken).iterdir()}
            with pytest.raises(ValueError, match=f"config.json is not that of {kind}|must be .eagle3., got 'dflash'"):
                layout.save(layout.random(), tmp_path / taken)
            assert {path.name: path.read_bytes() for path in (tmp_path / taken).iterdir()} == before
        for path in place.iterdir():
            path.unlink()


def test_another_layout_is_refused(folder):
    with pytest.raises(ValueError, match="layout='tgi' is not known: use .medusa., as published, or .vllm."):
        formats.save_medusa(random_heads(), folder, "tgi")
    with pytest.raises(ValueError, match="layout='vllm' is not known: use .eagle., as published, or .speculators."):
        formats.save_eagle(random_network("EAGLE-1"), folder, "vllm")
    assert not folder.exists()
