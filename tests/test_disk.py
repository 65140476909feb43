"""What is written is written whole or not at all, a full disk is called one, and broken files are named."""

import errno
import os
import resource
import signal
import subprocess
import sys

import pytest
import torch
from conftest import random_model

from tutorlib import MedusaHeads, disk
from tutorlib.lab.training import loop, train_village
from tutorlib.loading.formats import save_medusa

ROOM = 5_000  # bytes that a file may have on the full disk


@pytest.fixture
def full_disk(monkeypatch):
    """Files end at so many bytes, as on a full disk: what writes more gets the same errors."""
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, usual[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    signal.signal(signal.SIGXFSZ, handler)


def heads():
    return MedusaHeads(width=64, vocab_size=200, heads=2)


def checkpoint(folder):
    model = torch.nn.Linear(100, 100)
    loop._write(folder / "checkpoint.pt", model, [torch.optim.Adam(model.parameters())], 1, 1.0, [])


class Tokenizer:
    def save_pretrained(self, folder):
        (folder / "tokenizer.json").write_text("{}")


WRITERS = {
    "text": lambda folder: disk.write_text(folder / "model.txt", "a" * 2 * ROOM),
    "safetensors": lambda folder: save_medusa(heads(), folder),
    "pickle": lambda folder: save_medusa(heads(), folder, pickled=True),
    "checkpoint": checkpoint,
    "model": lambda folder: train_village.save_model(random_model("llama"), Tokenizer(), folder),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_full_disk_is_said_with_what_is_needed_and_nothing_is_left_half_made(write, tmp_path, full_disk):
    with pytest.raises(OSError, match="no space left.*MB needed.*MB free") as caught:
        write(tmp_path)
    assert str(tmp_path) in str(caught.value) and disk.disk_full(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_where_there_is_room_it_is_written_and_nothing_else_is(write, tmp_path):
    write(tmp_path)
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".new")] and list(tmp_path.iterdir())


def test_what_fails_for_another_reason_is_raised_as_it_is(tmp_path):
    (tmp_path / "a.txt").write_text("old")
    for error in (OSError(errno.EACCES, "no access"), RuntimeError("unexpected pos"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as caught, disk.replacing(tmp_path / "a.txt") as fresh:
            fresh.write_text("half")
            raise error
        assert caught.value is error
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000, b"9" * 10_000])
def test_broken_json_is_a_value_error_that_names_the_file(content, tmp_path):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"a.json is .*broken.*: download"):
        disk.read_json(tmp_path / "a.json")


def test_json_is_read_from_files_alone(tmp_path):
    with pytest.raises(ValueError, match="not an ordinary file"):
        disk.read_json("/dev/zero")
    with pytest.raises(FileNotFoundError):
        disk.read_json(tmp_path / "a.json")


# Two processes and one place.

HOLDS = """import importlib.util, sys, time
spec = importlib.util.spec_from_file_location("disk", sys.argv[1])  # alone: the package takes long to import
spec.loader.exec_module(disk := importlib.util.module_from_spec(spec))
with disk.locked(sys.argv[2]):
    print("held", flush=True)
    time.sleep(99)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that has locked a folder."""
    command = [sys.executable, "-c", HOLDS, disk.__file__, str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_process_is_told_who_has_a_place_and_gets_it_when_that_was_killed(holder, tmp_path):
    says = f"out is in use: process {holder.pid} on .* writes to it. Wait until that has ended, or name another place"
    with pytest.raises(ValueError, match=says), disk.locked(tmp_path / "out"):
        pass
    with disk.locked(tmp_path / "other"):
        pass
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with disk.locked(tmp_path / "out"), pytest.raises(ValueError, match=f"in use: process {os.getpid()} "):
        disk.locked(tmp_path / "out").__enter__()
    assert list(tmp_path.iterdir()) == []


def test_a_lock_ends_with_an_error_and_the_error_is_raised_as_it_is(tmp_path):
    for _ in range(2):
        with pytest.raises(KeyError) as caught, disk.locked(tmp_path / "deep" / "out"):
            raise KeyError(1)
        assert caught.value.__context__ is None


def test_a_lock_that_a_killed_process_left_is_abandoned_and_one_that_is_held_is_not(holder, tmp_path):
    assert not disk.abandoned(tmp_path / "other") and not disk.abandoned(tmp_path / "out")
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert disk.abandoned(tmp_path / "out") and list(tmp_path.iterdir()) == []


def test_where_there_can_be_no_lock_there_is_none(tmp_path, monkeypatch):
    def none(file, how):
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr("fcntl.flock", none)
    with disk.locked(tmp_path / "out"), disk.locked(tmp_path / "out"):
        assert not disk.abandoned(tmp_path / "out")
