"""Read and write files: JSON is checked when it is read, and every file is written completely or not at all."""

import contextlib
import errno
import json
import os
import platform
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def read_json(path, cure: str = "download or copy it again"):
    """The contents of a JSON file.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is broken, incomplete, nested too deeply, or not an ordinary file. The message names the file and
        ends with `cure`.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is not an ordinary file: {cure}")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError(f"{path} is broken (it is nested too deeply): {cure}") from None
    except ValueError as error:
        raise ValueError(f"{path} is half-written or broken ({error}): {cure}") from error


def differences(found: dict, wanted: dict) -> str:
    """The differences between two dicts in words, such as "rows 4 instead of 8, seed 1 instead of 0", or an empty
    text.
    """
    other = [name for name, value in wanted.items() if found.get(name) != value]
    return ", ".join(f"{name} {found.get(name)!r} instead of {wanted[name]!r}" for name in other)


def plain_name(name) -> bool:
    """Whether a name that is given in a file is a plain file name: not a path, and no way out of the folder."""
    return isinstance(name, str) and name not in ("", ".", "..") and not set("/\\\0") & set(name)


@contextlib.contextmanager
def replacing(path, size: int = 0) -> Iterator[Path]:
    """A temporary path to write to, which becomes `path` once everything is written. If that fails, the old file is
    unchanged.

    Parameters
    ----------
    path : path
    size : int
        How many bytes it will take, if this is known; for the error message.

    Raises
    ------
    OSError
        If the disk is full. The message names the folder, the free space and the space needed.
    """
    path = Path(path)
    fresh = path.with_name(path.name + ".new")
    try:
        with room_in(path.parent, path.name, size):
            yield fresh
        os.replace(fresh, path)
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink()


@contextlib.contextmanager
def filling(folder, size: int = 0) -> Iterator[Path]:
    """A temporary folder to write files to, which are moved to `folder` once all are written. See `replacing`."""
    folder = Path(folder)
    fresh = folder / ".new"
    with _made(folder):
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        try:
            with room_in(folder, "its files", size):
                yield fresh
            for file in fresh.iterdir():
                os.replace(file, folder / file.name)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)


@contextlib.contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Make a folder and its parents. After an error, those that were missing before and are empty are removed again."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        with contextlib.suppress(OSError):  # one that is not empty stays, with its parents
            for place in missing:
                place.rmdir()
        raise


@contextlib.contextmanager
def locked(path) -> Iterator[None]:
    """Lock a file or folder for this process, until the context ends or the process ends for any reason.

    The lock is a file next to `path`, called ``.NAME.lock``. If there can be none, because the folder is not writable
    or the file system has no locks, nothing is locked.

    Raises
    ------
    ValueError
        If another process or thread holds the lock. The message names the process and its machine.
    """
    path = Path(path).absolute()
    lock = _lock(path)
    with contextlib.ExitStack() as parents:
        try:
            parents.enter_context(_made(path.parent))
            lock.acquire()
            if isinstance(lock, FileLock):  # otherwise filelock found no flock here, and has a record of its own there
                Path(lock.lock_file).write_text(f"process {os.getpid()} on {platform.node()}", encoding="utf-8")
        except Timeout:
            raise ValueError(
                f"{path} is in use: {_holder(lock) or 'another process'} writes to it. Wait until that has ended, or "
                "name another place"
            ) from None
        except (OSError, NotImplementedError):  # no locks here; or Windows, where nobody may write to what is locked
            pass
        try:
            yield
        finally:
            _give_up(lock)


def abandoned(path) -> bool:
    """Whether a process that locked this file or folder was killed: the lock is there, and nobody holds it. If so, the
    lock is removed.
    """
    lock = _lock(Path(path).absolute())
    if not os.path.exists(lock.lock_file):
        return False
    try:
        lock.acquire()
    except (OSError, NotImplementedError):  # somebody holds it, or there are no locks here
        return False
    _give_up(lock)
    return True


def _lock(path: Path) -> FileLock:
    """The lock of a path, not yet taken; it is tried once."""
    return FileLock(path.with_name(f".{path.name}.lock"), timeout=0)


def _holder(lock: FileLock) -> str:
    try:
        return Path(lock.lock_file).read_text(encoding="utf-8")
    except OSError:
        return ""


def _give_up(lock: FileLock) -> None:
    """Release a lock, if it is held, and remove its file: what is left there tells of a process that was killed."""
    if lock.is_locked:
        with contextlib.suppress(OSError):  # while the lock is held: nobody's next one is removed
            os.unlink(lock.lock_file)
        lock.release()


def write_text(path, text: str) -> None:
    """Write a text file completely or not at all."""
    content = text.encode()
    with replacing(path, len(content)) as fresh:
        fresh.write_bytes(content)


@contextlib.contextmanager
def room_in(folder, what: str, size: int = 0):
    """Raise a readable error if the disk is full, whatever error the writing library raises."""
    try:
        yield
    except Exception as error:
        number = disk_full(error)
        if number is None:
            raise
        needed = f"{megabytes(size)} needed, " if size else ""
        there = next(place for place in (Path(folder), *Path(folder).absolute().parents) if place.exists())
        raise OSError(
            number,
            f"{what} cannot be written to {folder}: no space left on the disk, or in a quota ({needed}"
            f"{megabytes(shutil.disk_usage(there).free)} free on the disk). What was there before is unchanged: make "
            "room, or choose another folder, and try again",
        ) from error


def disk_full(error: BaseException | None) -> int | None:
    """The error number, if a full disk is the cause of an error; otherwise None."""
    while error is not None:
        told = re.search(r"\(os error (\d+)\)", str(error))  # of safetensors, which gives no number
        number = getattr(error, "errno", None) or (int(told[1]) if told else None)
        if number in FULL:
            return number
        error = error.__cause__ or error.__context__
    return None


def megabytes(size: float) -> str:
    return f"{size / 1e6:,.1f} MB"
