"""Folders that are there with all their files or not at all, whenever the power goes or the disk fills.

What is written goes into a folder beside, is flushed to the disk, and only then takes its name. A kill leaves at most the folder
beside: hidden, `.NAME-….writing`, and nothing's name.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from breakeven.errors import CheckpointError

__all__ = ["UNFINISHED", "model_folder", "whole_folder"]

UNFINISHED = ".*.writing"


@contextmanager
def whole_folder(path: Path, *, replaces: bool) -> Iterator[Path]:
    """A new folder to write files into, which becomes `path` when the block ends; `replaces` what stood there, or must not.

    Raises:
        OSError: disk full or no permission; what stood at `path` is untouched, and nothing is left beside it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{path.name[:64]}-", suffix=".writing", dir=path.parent))
    try:
        yield beside
        for file in beside.iterdir():
            _flush(file)
        beside.chmod(0o755)  # temporary folders are private, these are not
        _flush(beside)
        if replaces and path.exists():
            shutil.rmtree(path)
        beside.rename(path)
        _flush(path.parent)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


@contextmanager
def model_folder(out: Path) -> Iterator[Path]:
    """The same for a model's folder that must not exist yet.

    Raises:
        CheckpointError: `out` is there already or cannot be written.
    """
    if out.exists():
        raise CheckpointError(f"{out}: is there already; choose another folder or remove it")
    try:
        with whole_folder(out, replaces=False) as building:
            yield building
    except (OSError, SafetensorError) as error:
        why = getattr(error, "strerror", None) or error
        raise CheckpointError(f"{out}: cannot be written ({why}); free some disk or choose another folder") from error


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
