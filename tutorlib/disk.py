"""Files of every kind: JSON that is read with suspicion, and whatever is written is written whole or not at all."""

import contextlib
import errno
import json
import os
import platform
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def read_json(path, cure: str = "download or copy it again"):
    """What a JSON file holds.

    Raises
    ------
    FileNotFoundError
        If there is none.
    ValueError
        That names the file, and says `cure`: if it is broken, half-written, nested too deeply, or no ordinary file.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is no ordinary file: {cure}")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError(f"{path} is broken (it is nested too deeply): {cure}") from None
    except ValueError as error:
        raise ValueError(f"{path} is half-written or broken ({error}): {cure}") from error


def differences(found: dict, wanted: dict) -> str:
    """What a file says otherwise than is wanted, in words: "rows 4 instead of 8, seed 1 instead of 0", or nothing."""
    other = [name for name, value in wanted.items() if found.get(name) != value]
    return ", ".join(f"{name} {found.get(name)!r} instead of {wanted[name]!r}" for name in other)


def plain_name(name) -> bool:
    """Whether a name, as a file gives it, is that of a file beside it: no path, and no way out of the folder."""
    return isinstance(name, str) and name not in ("", ".", "..") and not set("/\\\0") & set(name)


@contextlib.contextmanager
def replacing(path, size: int = 0) -> Iterator[Path]:
    """A place to write to, which becomes `path` once all is written: what fails before that leaves the old file whole.

    Parameters
    ----------
    path : path
    size : int
        How many bytes it will take, if that is known: for the message.

    Raises
    ------
    OSError
        If the disk is full: it names the folder, what is free there and what was needed.
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
    """A folder to write files to, which take their places in `folder` once all are written. See `replacing`."""
    folder = Path(folder)
    fresh = folder / ".new"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    try:
        with room_in(folder, "its files", size):
            yield fresh
        for file in fresh.iterdir():
            os.replace(file, folder / file.name)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


@contextlib.contextmanager
def locked(path) -> Iterator[None]:
    """Keep a file or folder to this process while the context lasts. The lock ends with the process, however that ends.

    It is on a file of its own beside `path`, ``.NAME.lock``. Where there can be none, in a folder that nobody may write
    to or on a file system without locks, there is none.

    Raises
    ------
    ValueError
        If another process, or another thread, has it: the message names the process and its machine.
    """
    path = Path(path).absolute()
    lock, file = path.with_name(f".{path.name}.lock"), None
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = _own(lock)
    except BlockingIOError:
        try:
            holder = lock.read_text(encoding="utf-8")
        except OSError:
            holder = ""
        raise ValueError(
            f"{path} is in use: {holder or 'another process'} writes to it. Wait until that has ended, or name another "
            "place"
        ) from None
    except OSError:
        pass
    try:
        yield
    finally:
        if file is not None:
            with contextlib.suppress(OSError):  # while the lock is held: nobody's next one is removed
                lock.unlink()
            file.close()


def _own(lock: Path):
    """The open file of a lock that is had; a BlockingIOError if somebody else has it."""
    while True:
        file = open(lock, "a+", encoding="utf-8")  # noqa: SIM115  (whoever closes it gives up the lock)
        try:
            _take(file)
            if os.path.samestat(os.fstat(file.fileno()), os.stat(lock)):
                file.truncate(0)
                file.write(f"process {os.getpid()} on {platform.node()}")
                file.flush()
                return file
        except FileNotFoundError:  # whoever had it has removed the file in the meantime: take the next one
            pass
        except OSError:
            file.close()
            raise
        file.close()


def _take(file) -> None:
    """Lock an open file for as long as it is open; a BlockingIOError if it is locked."""
    try:
        import fcntl
    except ImportError:  # Windows, where nobody may read what is locked: a byte beyond all that is written
        import msvcrt

        file.seek(1 << 20)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except PermissionError as error:
            raise BlockingIOError from error
        return
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def write_text(path, text: str) -> None:
    """Write a text file, whole or not at all."""
    content = text.encode()
    with replacing(path, len(content)) as fresh:
        fresh.write_bytes(content)


@contextlib.contextmanager
def room_in(folder, what: str, size: int = 0):
    """Say it in words if the disk is full, whatever the writing library makes of that."""
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
    """The error number, if what failed at the bottom of an error is that the disk is full; else None."""
    while error is not None:
        told = re.search(r"\(os error (\d+)\)", str(error))  # of safetensors, which gives no number
        number = getattr(error, "errno", None) or (int(told[1]) if told else None)
        if number in FULL:
            return number
        error = error.__cause__ or error.__context__
    return None


def megabytes(size: float) -> str:
    return f"{size / 1e6:,.1f} MB"
