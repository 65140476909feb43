"""The files of a model: find them on this machine or download them, and check that they are correct.

What this file does not do: list the models (`families`), or load one (`models`).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging as standard_logging
import warnings
from pathlib import Path

from ..disk import disk_full, read_json, room_in, write_text
from .families import BUNDLED, ENVIRONMENT, HEADS, MODELS, by_hub_name, nearest
from .weight_files import refuse_adapter, weight_files

WEIGHTS = Path(__file__).parents[1] / "weights"  # of the bundled family
CHECKSUMS = "checksums.json"

_UNCHECKED = ("*.md", ".*", "training_log.json", "figures.json", CHECKSUMS)  # in a family's folder, but not loaded
_PARTS = {"model.safetensors": "model*.safetensors", "pytorch_model.bin": "pytorch_model*.bin"}  # one file, or several
_SMALL_FILES = ["*.json", "*.jinja", "*.txt", "*.model"]  # of a hub repository: all but the weights


# Folders on this machine.


def directory(place) -> Path | None:
    """The directory with this name, if there is one."""
    try:
        folder = Path(place).expanduser()
        return folder if place and folder.is_dir() else None
    except (OSError, RuntimeError, ValueError):  # too long, of nobody's home, or with a NUL in it
        return None


def models_in(folder: Path) -> dict[str, Path]:
    """The contents of a directory by role: a model, which is the target, or the subdirectories of a family."""
    refuse_adapter(folder)
    if (folder / "config.json").is_file():
        return {"target": folder} | ({"medusa": folder} if has_heads(folder) else {})
    roles = _roles(folder)
    if "target" not in roles:
        raise ValueError(f"{folder} holds no model: expected config.json in it, or target/config.json")
    return roles


def has_heads(folder: Path) -> bool:
    """Whether Medusa heads are in the files of a whole model, as its configuration says."""
    try:
        return "medusa_num_heads" in read_json(folder / "config.json")
    except (ValueError, TypeError):  # loading will report what is wrong with it
        return False


def bundled_with(name: str) -> dict[str, Path]:
    """The drafts and heads that come with the package for a published target, by role, checked."""
    folder = WEIGHTS / name
    if not folder.is_dir():
        return {}
    verify(folder)
    return _roles(folder)


def _roles(folder: Path) -> dict[str, Path]:
    for role in (*MODELS, *HEADS):
        refuse_adapter(folder / role)
    return {role: folder / role for role in (*MODELS, *HEADS) if (folder / role / "config.json").is_file()}


def has_tokenizer(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"))


# Models of the hub.


def model_folder(source, weights: bool = False) -> Path:
    """The folder of a model's settings and tokenizer, and of its weights if `weights`; downloaded first if
    necessary.
    """

    def whole(folder):
        files = weight_files(folder) if weights else []
        found = (folder / "config.json").is_file() and has_tokenizer(folder) and all(path.is_file() for path in files)
        return found and (bool(files) or not weights)

    wanted = list(_PARTS.values()) if weights else []
    return _fetched(source, whole, wanted, "the files on this machine are incomplete")


def heads_folder(source, files) -> Path:
    """The folder of heads: with `config.json` and the first of `files` that exists; downloaded first if necessary.

    A file may also be there in parts, with an index.
    """

    def whole(folder):
        parts = weight_files(folder, files)
        return (folder / "config.json").is_file() and bool(parts) and all(path.is_file() for path in parts)

    wanted = [_PARTS.get(name, name) for name in files]
    return _fetched(source, whole, wanted, f"it has no config.json, or none of {', '.join(files)}")


def _fetched(source, whole, wanted, lacking) -> Path:
    """The folder of a source (itself, or that of a repository) with the first kind of wanted files that it has."""
    if isinstance(source, Path):
        return source
    folder = _snapshot(source)
    if folder is not None:
        refuse_adapter(folder)
        if whole(folder):
            return folder
    with quiet(bars=bool(wanted)):  # a progress bar, because gigabytes take long
        for pattern in wanted or _SMALL_FILES[:1]:
            folder = _download(source, pattern)
            if any(folder.glob(pattern)):
                break
    assert folder is not None  # there is at least one pattern
    refuse_adapter(folder)
    if not whole(folder):
        raise _unreachable(source, lacking)
    return folder


def _snapshot(hub) -> Path | None:
    """The part of a repository that is on this machine, complete or not."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(hub, local_files_only=True, allow_patterns=_SMALL_FILES))
    except LocalEntryNotFoundError:
        return None


def _download(hub, pattern) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.constants import HF_HOME
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    try:
        # Subfolders hold the same weights in other formats.
        return Path(snapshot_download(hub, allow_patterns=[*_SMALL_FILES, pattern], ignore_patterns=["*/*"]))
    except GatedRepoError as error:
        raise PermissionError(
            f"{hub} is gated: accept its licence at https://huggingface.co/{hub}, then run `hf auth login` on this "
            f'machine and try again. The bundled models need neither: load("{BUNDLED}")'
        ) from error
    except RepositoryNotFoundError as error:
        hint = nearest(hub, {known: known for known in by_hub_name()})
        raise ValueError(
            f"there is no directory {hub!r}, and no such model on the hub (or a private one: `hf auth login`).{hint}"
        ) from error
    except Exception as error:  # a missing network raises different errors on different machines
        if disk_full(error) is not None:
            with room_in(HF_HOME, hub, int(1e9 * _gigabytes(hub))):
                raise
        if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EROFS):
            raise
        raise _unreachable(hub, f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}") from error


def _gigabytes(hub) -> float:
    """Size of a repository's weights if it is in the table; otherwise 0."""
    known = by_hub_name().get(hub)
    return known.download if known else 0


def _unreachable(hub, cause) -> ConnectionError:
    size = f", about {_gigabytes(hub):.1f} GB" if _gigabytes(hub) else ""
    return ConnectionError(
        f"{hub} is not on this machine, and it cannot be downloaded now ({cause}). With a network, once: "
        f"`hf download {hub}` (into HF_HOME{size}); or copy the model here from elsewhere and give its directory, "
        f'load("path/to/directory"). Without any download: the bundled models, load("{BUNDLED}"), or set '
        f"{ENVIRONMENT}={BUNDLED}"
    )


@contextlib.contextmanager
def quiet(bars=False):
    """Suppress progress bars (unless wanted), log messages and warnings while files are fetched and read."""
    import huggingface_hub.utils.logging as hub_logging
    import transformers.utils.logging as logging

    shown, levels = logging.is_progress_bar_enabled(), (logging.get_verbosity(), hub_logging.get_verbosity())
    accelerate = standard_logging.getLogger("accelerate")
    level = accelerate.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.set_verbosity_error()
        hub_logging.set_verbosity_error()
        accelerate.setLevel("ERROR")
        if shown and not bars:
            logging.disable_progress_bar()
        try:
            yield
        finally:
            logging.set_verbosity(levels[0])
            hub_logging.set_verbosity(levels[1])
            accelerate.setLevel(level)
            if shown and not bars:
                logging.enable_progress_bar()


# Checksums.


def write_checksums(folder) -> Path:
    """Write the size and SHA-256 of every file that is read when a family is loaded, so that `load` can check them.

    Parameters
    ----------
    folder : path
        With a subfolder for each model.

    Returns
    -------
    path of the file written: {path relative to `folder`: {"bytes": int, "sha256": str}}
    """
    folder = Path(folder)
    sums = {name: checksum(folder / name) for name in _checked_files(folder)}
    place = folder / CHECKSUMS
    write_text(place, json.dumps(sums, indent=1) + "\n")
    return place


def _checked_files(folder) -> list[str]:
    """The files of a family that need checksums, by their paths in its folder: all that loading may read."""
    files = [path for path in sorted(folder.glob("**/*")) if not path.is_dir()]
    files = [path for path in files if not any(path.match(pattern) for pattern in _UNCHECKED)]
    return [path.relative_to(folder).as_posix() for path in files]


def checksum(path) -> dict:
    """Size and SHA-256 of a file: ``{"bytes": int, "sha256": str}``."""
    content = path.read_bytes()
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def verify(folder):
    """Raise a ValueError that names the file if anything in the folder does not agree with its checksums."""
    cure = (
        "restore it (in a clone with `git checkout`, else by installing tutorlib again), or make the models anew with "
        f"the command in {folder / 'MODEL_CARD.md'}"
    )
    place = folder / CHECKSUMS
    try:
        sums = read_json(place, cure)
        entries = [(folder / path, entry["bytes"], entry["sha256"]) for path, entry in sums.items()]
    except FileNotFoundError:
        raise ValueError(f"{place} is missing: {cure}") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{place} holds no checksums ({error}): {cure}") from error
    added = [name for name in _checked_files(folder) if name not in sums]
    if added:
        raise ValueError(
            f"{folder / added[0]} has no checksum in {place}: remove it if it was added, {cure}; or, for files of your "
            "own, tutorlib.loading.models.write_checksums(folder)"
        )
    for path, size, digest in entries:
        if not path.is_file():
            raise ValueError(f"{path} is missing: {cure}")
        found = checksum(path)
        if found["bytes"] != size:
            raise ValueError(f"{path} has {found['bytes']} bytes where {size} are expected: {cure}")
        if found["sha256"] != digest:
            raise ValueError(f"{path} was altered: its checksum is {found['sha256']}, not {digest}; {cure}")
