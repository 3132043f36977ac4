"""One `breakeven bench` at a time on a run folder. The kernel frees the lock when its holder dies, by kill -9 as well."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

from breakeven.errors import StoreError

__all__ = ["RunLock"]


class RunLock:
    """An exclusive lock on `folder`/lock, which also tells others the holder's process id. Servers do not inherit it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "lock"
        self._descriptor: int | None = None

    def __enter__(self) -> RunLock:
        """Take the lock.

        Raises:
            StoreError: another process holds it, or the folder cannot be written.
        """
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(f"{self._path}: cannot be written ({error.strerror}); expected a folder of your own") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(descriptor, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise StoreError(
                f"{self._path.parent}: process {holder} is measuring this run; wait for it, end it, or give this run another --name"
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # the file stays: removing it would let a third process lock a new file of the same name
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
