"""Files and folders that are there whole or not at all, whenever the power goes, the disk fills or a process is killed.

What is written stands beside, is flushed to the disk, and only then takes its name. Until then it is hidden, `.NAME-….writing`, and
locked by whoever writes it. A kill leaves it there unlocked, and the next writer of that name removes it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

__all__ = ["UNFINISHED", "whole_file", "whole_folder", "write_whole"]

UNFINISHED = ".*.writing"
# a file system's limit on names is 255 bytes, and a character takes up to four
MAX_NAME = 48


@contextmanager
def whole_file(path: Path, *, replaces: bool) -> Iterator[BinaryIO]:
    """A new file to write bytes to, which becomes `path` when the block ends; `replaces` what stood there, or must not.

    What is no regular file (a pipe, /dev/stdout) is written to directly, and a link keeps pointing where it points.

    Raises:
        OSError: disk full or no permission, or FileExistsError; what stood at `path` is untouched, and nothing is left beside it.
    """
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        with path.open("wb") as special:
            yield special
        return
    if not replaces and (path.exists() or path.is_symlink()):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    target = Path(os.path.realpath(path))
    with _beside(target, lambda beside: os.close(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))) as beside:
        with beside.open("wb") as opened:
            yield opened
            opened.flush()
            os.fsync(opened.fileno())
        if replaces:
            beside.replace(target)
        else:
            _name_new(beside, target)


def write_whole(path: Path, text: str) -> None:
    """Put `text` into `path`, in place of what stood there.

    Raises:
        OSError: it cannot be written; what stood there before still does.
    """
    with whole_file(path, replaces=True) as opened:
        opened.write(text.encode())


@contextmanager
def whole_folder(path: Path, *, replaces: bool) -> Iterator[Path]:
    """A new folder to write files into, which becomes `path` when the block ends; `replaces` what stood there, or must not.

    Raises:
        OSError: disk full or no permission; what stood at `path` is untouched, and nothing is left beside it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _beside(path, Path.mkdir) as beside:
        yield beside
        # as readable as any folder made here: some libraries make files that only their owner can read
        readable = beside.stat().st_mode & 0o666
        for file in beside.iterdir():
            if file.is_file():
                file.chmod(file.stat().st_mode | readable)
            _flush(file)
        _flush(beside)
        if replaces and path.exists():
            # aside first, since removing takes its time: for all but a moment one of the two has the name
            before = path.rename(_hidden(path))
            try:
                beside.rename(path)
            except OSError:
                before.rename(path)
                raise
            _remove(before)
        else:
            beside.rename(path)
        _flush(path.parent)


@contextmanager
def _beside(path: Path, make: Callable[[Path], object]) -> Iterator[Path]:
    """A new hidden place beside `path`, locked while the block lasts, and gone after it if it has got no other name."""
    _sweep(path)
    while True:
        beside = _hidden(path)
        make(beside)
        handle = _locked(beside)
        # somebody who swept may have been faster than the lock
        if handle is None or _is(beside, handle):
            break
        os.close(handle)
    try:
        yield beside
    except OSError as error:
        # of a disk that is full the system says neither which one nor where
        if error.filename is None:
            error.filename = str(path)
        raise
    finally:
        _remove(beside)
        if handle is not None:
            os.close(handle)


def _hidden(path: Path) -> Path:
    return path.with_name(f".{path.name[:MAX_NAME]}-{secrets.token_hex(4)}.writing")


def _sweep(path: Path) -> None:
    """Remove what killed writers of `path` left. What cannot be locked is being written, or lies where nothing can be locked."""
    left_over = re.compile(rf"\.{re.escape(path.name[:MAX_NAME])}-\w{{8}}\.writing")
    with contextlib.suppress(OSError):
        for beside in path.parent.iterdir():
            if left_over.fullmatch(beside.name) and (handle := _locked(beside)) is not None:
                _remove(beside)
                os.close(handle)


def _locked(path: Path) -> int | None:
    """An open handle that holds the lock of a file or folder; None where somebody else does, or the file system has no locks."""
    handle = None
    try:
        # neither through a link nor waiting at a pipe: the place may be anybody's
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        if handle is not None:
            os.close(handle)
        return None
    return handle


def _is(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(handle))
    except OSError:
        return False


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink() if not path.is_dir() else shutil.rmtree(path, ignore_errors=True)


def _name_new(beside: Path, target: Path) -> None:
    """Give `beside` the name that nothing may have. A link fails where something has it; a rename would replace that."""
    try:
        target.hardlink_to(beside)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from None
        beside.rename(target)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
