"""Where output goes when nobody reads it: `breakeven … | head -1`, `2>&-`, a terminal that was closed.

Rich and click both end a program with 1 where a pipe is broken, and 1 is what `doctor`, `equal` and `gates` say when they found a
fault. So the pipe is met below them, where bytes are written. Nobody reads standard output: the command is done, with 0. Nobody
reads messages: the command goes on, and its exit code still tells how it ended.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Any, TextIO

__all__ = ["guard_streams"]

STDOUT, STDERR = 1, 2


def guard_streams() -> None:
    """Replace this process's own standard streams; ones that somebody else has put in their place stay as they are."""
    if sys.stdout is sys.__stdout__:
        sys.stdout = _guarded(STDOUT, sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _guarded(STDERR, sys.stderr)


class _Output(io.FileIO):
    """A standard stream that outlives its reader."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if self.fileno() == STDOUT and not isinstance(error, BrokenPipeError):
                raise
            # what is still buffered, and whatever a child of ours writes, goes nowhere either
            _to_nowhere(self.fileno())
            if self.fileno() == STDOUT:
                raise SystemExit(0) from None
            return len(data)


def _guarded(number: int, stream: TextIO | None) -> TextIO:
    if stream is None:
        # closed by whoever started us; left so, the next file that is opened would be written to by mistake
        _to_nowhere(number)
    raw = _Output(number, "w", closefd=False)
    # python -u has no buffer between text and file
    unbuffered = stream is not None and isinstance(stream.buffer, io.RawIOBase)
    return io.TextIOWrapper(
        raw if unbuffered else io.BufferedWriter(raw),
        encoding=stream.encoding if stream is not None else "utf-8",
        errors=stream.errors if stream is not None else "backslashreplace",
        line_buffering=number == STDERR or raw.isatty(),
        write_through=unbuffered,
    )


def _to_nowhere(number: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    if nowhere != number:
        os.dup2(nowhere, number)
        os.close(nowhere)
