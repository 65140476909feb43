"""A target's hidden states on the disk: those that it computes, written once, and never those of anything else."""

import shutil
from pathlib import Path

import pytest
import torch
from conftest import random_model
from training_runs import arguments, fit, habits, loss_of, new, sampled, weights, write_family

from tutorlib.lab.training import stored_features as module
from tutorlib.lab.training.__main__ import main
from tutorlib.lab.training.batches import Batches
from tutorlib.lab.training.devices import Devices
from tutorlib.lab.training.sampled_texts import SampledText
from tutorlib.lab.training.stored_features import StoredFeatures
from tutorlib.model.lm import LM

LAYERS = (0, 2, -1)


@pytest.fixture
def texts():
    return sampled()[0]


@pytest.fixture(autouse=True)
def small_files(monkeypatch):
    """36 texts fill three files, the last one with four of them."""
    monkeypatch.setattr(module, "TOGETHER", 16)


@pytest.fixture
def calls(monkeypatch):
    """How many texts the target has read so far, in a list."""
    counted, compute = [], module.hidden_states
    monkeypatch.setattr(
        module,
        "hidden_states",
        lambda model, tokens, *rest: counted.append(len(tokens)) or compute(model, tokens, *rest),
    )
    return counted


def stored(texts, folder, target=None, layers=LAYERS, **settings):
    return StoredFeatures(target or habits(), texts, layers, folder, **{"best": True, "progress": False, **settings})


def batches(texts, features=None, rows=5):
    return Batches(habits(), texts, rows, layers=LAYERS, best=True, features=features)


# -- what is stored --


def test_batches_of_stored_features_are_those_that_are_computed_rounded_to_half_precision(texts, tmp_path):
    read, computed = batches(texts, stored(texts, tmp_path)), batches(texts)
    assert len(read) == len(computed) == 7
    for number in range(len(read)):
        one, other = read[number], computed[number]
        assert one.texts == other.texts and torch.equal(one.tokens, other.tokens)
        for row, text in enumerate(one.texts):
            here = row, slice(len(text.tokens))
            assert torch.equal(one.best[here], other.best[here])
            for layer in LAYERS:
                assert torch.allclose(one.hidden[layer][here], other.hidden[layer][here], rtol=1e-3, atol=1e-6)
        assert {state.dtype for state in one.hidden.values()} == {torch.float32} == {one.hidden[0].dtype}


def test_the_best_tokens_are_those_of_the_target(texts, tmp_path):
    batch = batches(texts, stored(texts, tmp_path))[3]
    with torch.no_grad():
        said = habits().model(batch.tokens).logits.argmax(-1)
    for row, text in enumerate(batch.texts):
        assert torch.equal(batch.best[row, : len(text.tokens)], said[row, : len(text.tokens)])


def test_files_take_two_bytes_a_number(texts, tmp_path):
    stored(texts, tmp_path)
    tokens = sum(len(text.tokens) for text in texts)
    size = sum(path.stat().st_size for path in tmp_path.glob("*.safetensors"))
    assert 0 < size - tokens * (3 * habits().width * 2 + 4) < 12 * 400


def test_a_target_in_bfloat16_keeps_its_own_numbers(texts, tmp_path):
    target = LM(random_model("llama", dtype=torch.bfloat16))
    read = Batches(target, texts, 5, layers=LAYERS, features=stored(texts, tmp_path, target))[0]
    computed = Batches(target, texts, 5, layers=LAYERS)[0]
    for row, text in enumerate(read.texts):
        assert torch.equal(*(one.hidden[2][row, : len(text.tokens)] for one in (read, computed)))


# -- computed once --


def test_who_comes_later_reads_what_is_there_in_batches_of_any_size(texts, tmp_path, calls):
    first = batches(texts, stored(texts, tmp_path), rows=5)
    assert sum(calls) == 36
    again = batches(texts, stored(texts, tmp_path), rows=36)[0]
    for layer in LAYERS:
        assert torch.equal(first[0].hidden[layer][0, :9], again.hidden[layer][0, :9])
    assert sum(calls) == 36


def test_only_layers_that_are_missing_are_added(texts, tmp_path, calls):
    stored(texts, tmp_path, layers=(-1,))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.safetensors")}
    stored(texts, tmp_path)
    assert sum(calls) == 72 and len(before) == 6 and len(list(tmp_path.glob("*.safetensors"))) == 12
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_further_texts_are_added_to_those_that_are_there(texts, tmp_path, calls):
    stored(texts[:20], tmp_path)
    assert sum(calls) == 20
    stored(texts, tmp_path)
    assert sum(calls) == 20 + 20  # the second file had four texts, and is computed with all its 16


def test_who_is_stopped_goes_on_after_the_last_file(texts, tmp_path, calls, monkeypatch):
    write, written = module.save_file, []

    def dies_halfway(tensors, path, **rest):
        written.append(path)
        if len(written) == 6:
            Path(path).write_bytes(b"half a file")
            raise KeyboardInterrupt
        write(tensors, path, **rest)

    monkeypatch.setattr(module, "save_file", dies_halfway)
    with pytest.raises(KeyboardInterrupt):
        stored(texts, tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) == 5 and not list(tmp_path.glob("*.new"))
    assert sum(calls) == 32
    monkeypatch.setattr(module, "save_file", write)
    stored(texts, tmp_path)
    assert sum(calls) == 32 + 16 + 4


def test_several_processes_share_the_work(texts, tmp_path, monkeypatch):
    monkeypatch.setattr(Devices, "wait", lambda self: None)
    for rank, files in ((1, {"00001"}), (0, {"00000", "00001", "00002"})):
        stored(texts, tmp_path, devices=Devices(rank=rank, processes=2))
        assert {path.name[:5] for path in tmp_path.glob("*.safetensors")} == files


# -- never those of anything else --


def test_features_of_other_texts_or_another_target_are_not_read(texts, tmp_path, calls):
    stored(texts, tmp_path)
    other = [SampledText([*text.tokens[:-1], (text.tokens[-1] + 1) % 19], *text[1:]) for text in texts]
    read, computed = batches(other, stored(other, tmp_path))[2], batches(other)[2]
    length = min(len(text.tokens) for text in read.texts)
    assert torch.allclose(*(one.hidden[2][:, :length] for one in (read, computed)), rtol=1e-3)
    assert sum(calls) == 72
    stored(other, tmp_path, LM(random_model("llama", seed=5)))
    assert sum(calls) == 108
    stored(texts, tmp_path)
    assert sum(calls) == 144


def test_a_damaged_file_is_named(texts, tmp_path):
    features = stored(texts, tmp_path)
    path = next(tmp_path.glob("00001*layer 2*"))
    whole = path.read_bytes()
    for content in (b"", whole[:100], whole[:-1], b"{}" * 100):
        path.write_bytes(content)
        for read in (lambda: stored(texts, tmp_path), lambda: [batches(texts, features)[n] for n in range(7)]):
            with pytest.raises(ValueError, match=r"00001 layer 2.safetensors is half-written or broken .*delete it"):
                read()


def test_features_that_do_not_fit_are_refused_before_anything_is_computed(texts, tmp_path, calls, monkeypatch):
    with pytest.raises(
        ValueError, match=r"hidden states of 36 texts take 0.1 MB on the disk, and may take 0.0 MB: allow more"
    ):
        stored(texts, tmp_path / "features", disk=1000)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(ValueError, match=r"need 0.1 MB more .* 0.0 MB are free: make room"):
        stored(texts, tmp_path / "features")
    assert not calls and not (tmp_path / "features").exists()


def test_a_disk_that_is_full_is_said(texts, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "save_file", full)
    with pytest.raises(OSError, match="cannot be written to .*: no space left on the disk"):
        stored(texts, tmp_path)


def test_states_too_large_for_half_precision_are_refused(texts, tmp_path, monkeypatch):
    compute = module.hidden_states
    monkeypatch.setattr(
        module, "hidden_states", lambda *args: {layer: 1e5 * state for layer, state in compute(*args).items()}
    )
    with pytest.raises(ValueError, match=r"layer 0 .* too large for half precision: train without --features"):
        stored(texts, tmp_path, best=False)


# -- in training --


@pytest.mark.parametrize("kind", ["medusa", "eagle", "eagle3"])
def test_heads_learn_from_stored_features_what_they_learn_from_computed_ones(kind, tmp_path):
    made = [new(kind, texts=sampled()[0]) for _ in range(2)]
    fit(made[0], tmp_path / "one" / kind)
    fit(made[1], tmp_path / "two" / kind, disk=1e9)
    assert (tmp_path / "two" / "features").is_dir() and not (tmp_path / "one" / "features").exists()
    assert torch.allclose(weights(made[0].head), weights(made[1].head), atol=0.02)
    assert loss_of(made[0]).item() == pytest.approx(loss_of(made[1]).item(), rel=0.01)


def test_the_command_stores_features_beside_the_texts(tmp_path, calls):
    family = write_family(tmp_path / "family")
    main(arguments("eagle3", family, tmp_path, "--features", "0.1"))
    assert sum(calls) == 12 and next(tmp_path.glob("runs/*/features")).is_dir()
    with pytest.raises(SystemExit, match="--features is how many GB .* 0 or more, got -1"):
        main(arguments("eagle3", family, tmp_path, "--features", "-1"))
