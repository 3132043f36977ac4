"""Files for somebody's own deployment: never over one that is there, and all of them or none."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from breakeven.checkpoints.named_path import without_detours
from breakeven.errors import UsageError
from breakeven.whole import whole_file

__all__ = ["write_new"]


def write_new(files: Sequence[tuple[Path, str]]) -> tuple[Path, ...]:
    """Write each text to a file that does not exist yet: all of the files, whole, or none. Returns their absolute paths.

    Raises:
        UsageError: one exists or cannot be written, or two of them are one.
    """
    _check([path for path, _ in files])
    named: list[Path] = []
    try:
        _write(files, named)
    except BaseException:
        for path in named:
            with contextlib.suppress(OSError):
                path.unlink()
        raise
    return tuple(without_detours(path.absolute()) for path, _ in files)


def _write(files: Sequence[tuple[Path, str]], named: list[Path]) -> None:
    """`named` collects files that have got their names, which the first gets last: when all texts are on the disk."""
    if not files:
        return
    (path, text), *others = files
    is_special = path.exists()  # a pipe, or refused
    with _explained(path):
        with whole_file(path, replaces=False) as file:
            file.write(text.encode())
            file.flush()
            _write(others, named)
        if not is_special:
            named.append(path)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError as error:
        raise _there(path) from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); check the folder and its permissions") from error


def _there(path: Path) -> UsageError:
    return UsageError(f"{path}: exists, and may hold changes of yours; remove it or give another name")


def _check(paths: Sequence[Path]) -> None:
    """What can be seen before anything is written: to a pipe, writing is for good."""
    for path in paths:
        if path.is_file():
            raise _there(path)
    new = [os.path.realpath(path) for path in paths if not path.exists()]
    for name in new:
        if new.count(name) > 1:
            raise UsageError(f"{name}: is to hold two files at once; give each a name of its own")
