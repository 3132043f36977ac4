"""Files written whole or not at all: a full disk or a kill in the middle leaves the earlier version."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

__all__ = ["write_whole"]


def write_whole(file: Path, text: str) -> None:
    """Put `text` into `file` by way of a file beside it. What is no regular file (a pipe, /dev/stdout) is written to directly.

    Raises:
        OSError: it cannot be written; what stood there before still does.
    """
    try:
        special = not stat.S_ISREG(file.stat().st_mode)
    except FileNotFoundError:
        special = False
    if special:
        file.write_text(text, encoding="utf-8")
        return
    # a link keeps pointing where it points
    target = file.resolve()
    partial = target.with_name(f".{target.name[:64]}.{os.getpid()}")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
