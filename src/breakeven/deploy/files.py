"""Files for somebody's own deployment: never over one that is there."""

from __future__ import annotations

from pathlib import Path

from breakeven.checkpoints.named_path import without_detours
from breakeven.errors import UsageError
from breakeven.whole import whole_file

__all__ = ["write_new"]


def write_new(path: Path, text: str) -> Path:
    """Write `text` to a file that does not exist yet, whole or not at all; returns its absolute path.

    Raises:
        UsageError: it exists, or cannot be written.
    """
    try:
        with whole_file(path, replaces=False) as file:
            file.write(text.encode())
    except FileExistsError as error:
        raise UsageError(f"{path}: exists, and may hold changes of yours; remove it or give another name") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); check the folder and its permissions") from error
    return without_detours(path.absolute())
