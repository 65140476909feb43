"""Texts in one file: all come back, heads learn from them what they learn from new ones, and damage is named."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from training_runs import arguments, write_family

from tutorlib.lab.training.__main__ import main
from tutorlib.lab.training.sampled_texts import SampledText
from tutorlib.lab.training.text_files import read_texts, write_texts

TRAIN = [SampledText([1, 2, 3, 40], 2, 3), SampledText([5, 6], 1, 2)]
HELD_OUT = [SampledText([7, 8, 9], 1, 3)]


@pytest.mark.parametrize("largest", [49_151, 70_000])
def test_texts_come_back_as_they_were_in_two_bytes_a_token_where_that_is_enough(largest, tmp_path):
    train = [*TRAIN, SampledText([largest], 0, 1)]
    path = write_texts(tmp_path / "texts.npz", train, HELD_OUT, {"length": 4})
    assert read_texts(path, largest + 1) == (train, HELD_OUT, {"length": 4})
    with np.load(path) as stored:
        assert stored["train"].dtype == (np.uint16 if largest < 2**16 else np.uint32)
    assert read_texts(write_texts(tmp_path / "none.npz", [], [], {}), 9) == ([], [], {})


def test_a_file_that_is_none_and_texts_of_another_target_are_named(tmp_path):
    path = write_texts(tmp_path / "texts.npz", TRAIN, HELD_OUT, {})
    with pytest.raises(ValueError, match="has the token 40, and the target's vocabulary has 40: .* another target"):
        read_texts(path, 40)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ValueError, match="texts.npz holds no texts, or is damaged .* write it again"):
        read_texts(path, 99)
    np.savez(tmp_path / "other.npz", made=np.zeros(3))
    with pytest.raises(ValueError, match="holds no texts"):
        read_texts(tmp_path / "other.npz", 99)
    with pytest.raises(FileNotFoundError):
        read_texts(tmp_path / "missing.npz", 99)


def sampling(family, folder, *more):
    """The arguments that write the texts of a small training."""
    given = arguments("texts", family, folder, *more)
    for option in ("--steps", "--rows"):
        at = given.index(option)
        del given[at : at + 2]
    return given


def test_heads_learn_from_a_file_what_they_learn_from_the_texts_in_it(tmp_path):
    family, file = write_family(tmp_path / "family"), tmp_path / "one" / "texts.npz"
    main(sampling(family, tmp_path / "one", "--out", str(file)))
    main(arguments("medusa", family, tmp_path / "one"))
    main(arguments("medusa", family, tmp_path / "two", "--written", str(file), "--length", "256"))
    heads = [load_file(next((tmp_path / name / "out").rglob("*.safetensors"))) for name in ("one", "two")]
    assert all(torch.equal(heads[0][name], heads[1][name]) for name in heads[0])
    log = json.loads(next((tmp_path / "two" / "out").rglob("training_log.json")).read_text())
    assert (log["written"], log["length"], log["texts"]) == ("texts.npz", 16, 12) and "train texts" in log[
        "texts_command"
    ]


def test_the_target_may_write_and_read_in_half_precision(tmp_path):
    family = write_family(tmp_path / "family")
    main(arguments("eagle3", family, tmp_path, "--half", "--features", "0.1"))
    stored = load_file(next(tmp_path.glob("runs/*/features/* layer 0.safetensors")))
    assert {tensor.dtype for tensor in stored.values()} == {torch.bfloat16}
    heads = load_file(next((tmp_path / "out").rglob("*.safetensors")))
    assert all(tensor.isfinite().all() for tensor in heads.values())


def test_what_does_not_go_together_is_refused(tmp_path):
    family, file = write_family(tmp_path / "family"), tmp_path / "texts.npz"
    write_texts(file, TRAIN, HELD_OUT, {"target": "somebody/else"})
    for more, words in (
        (("--low-share", "0.9"), "written already: leave out --length, --low-share, or --written"),
        (("--length", "256"), "are those of somebody/else"),
        (("--length", "256", "--half"), "--half has nothing to do"),
    ):
        with pytest.raises(SystemExit, match=words):
            main(arguments("medusa", family, tmp_path, "--written", str(file), *more))
