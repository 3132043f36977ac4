"""The end of a server's log: what to show when it fails."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["log_lines", "log_tail"]

TAIL_BYTES = 65_536
MAX_LOG_BYTES = 64_000_000
# What is shown ends here; facts are read from whole lines, and vLLM states its configuration in one of 5000 characters.
MAX_SHOWN_CHARACTERS, MAX_LINE_CHARACTERS = 500, 20_000
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def log_tail(file: Path, num_lines: int = 30) -> tuple[str, ...]:
    """The last lines that hold text, safe to print: colours and control characters removed, long lines cut. Empty without a log."""
    return tuple(line[:MAX_SHOWN_CHARACTERS] for line in _read(file, TAIL_BYTES)[-num_lines:])


def log_lines(file: Path) -> tuple[str, ...]:
    """Every line (the last 64 MB of a longer log), cleaned as by `log_tail` and cut at 20 000 characters."""
    return tuple(_read(file, MAX_LOG_BYTES))


def _read(file: Path, last_bytes: int) -> list[str]:
    try:
        with file.open("rb") as opened:
            size = opened.seek(0, 2)
            opened.seek(max(0, size - last_bytes))
            text = opened.read(last_bytes).decode(errors="replace")
    except OSError:
        return []
    # progress bars overwrite their line with a carriage return: only what they showed last matters
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in _ESCAPES.sub("", text).split("\n"))
    return [line[:MAX_LINE_CHARACTERS] for line in (_CONTROLS.sub("", line).rstrip() for line in lines) if line]
