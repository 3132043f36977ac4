"""One writer a folder. The lock goes with the process, however that ends."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from breakeven.errors import StoreError

__all__ = ["LOCK", "folder_lock"]

LOCK = ".lock"


@contextmanager
def folder_lock(folder: Path, *, doing: str, advice: str) -> Iterator[None]:
    """Hold the lock of `folder`, which is made if need be, while the block lasts.

    Raises:
        StoreError: another process is `doing` it there, or the folder cannot be written to; the message ends with `advice`.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("ab")
    except OSError as error:
        raise StoreError(f"{folder}: cannot be written to ({error.strerror}); {advice}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StoreError(f"{folder}: another process is {doing} there; wait for it, or {advice}") from error
        yield
