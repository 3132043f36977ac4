"""Paths as people write them, in plans and on command lines: `~` and relative ones, and what no file system could hold."""

from __future__ import annotations

import os
from pathlib import Path

from breakeven.errors import UsageError

__all__ = ["named_path", "without_detours"]

MAX_SHOWN = 80


def named_path(text: str, base_dir: Path) -> Path:
    """`text` as a path, relative ones from `base_dir`. Nothing needs to be there.

    Raises:
        UsageError: no file can have that name, or `~USER` is nobody here.
    """
    shown = ascii(text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "...")
    try:
        path = base_dir / Path(text).expanduser()
    except RuntimeError as error:
        raise UsageError(f"{shown}: there is no such user here; write the path out, without ~") from error
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass  # whoever opens it says what is missing
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it holds characters that no file name can"
        raise UsageError(f"{shown} cannot be the path of a file: {reason}") from error
    return without_detours(path)


def without_detours(path: Path) -> Path:
    """Without `..`, and through links as the system follows them: what people wrote once is shown and stored for years."""
    if ".." not in path.parts:
        return path
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # links in a circle
        return path
