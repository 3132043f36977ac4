"""A text file read as far as it could make sense: no device, pipe or dump of gigabytes is read whole."""

from __future__ import annotations

from pathlib import Path

from breakeven.errors import BreakevenError
from breakeven.units import format_bytes

__all__ = ["read_text"]


def read_text(path: Path, *, max_bytes: int, expected: str, error: type[BreakevenError], option: str = "") -> str:
    """The text of a UTF-8 file. Messages begin with the `option` that named it, if one did, and end with what was `expected`.

    Raises:
        error: it cannot be read, is longer than `max_bytes`, or is not UTF-8.
    """
    shown = f"{option} {path}".lstrip()
    try:
        with path.open("rb") as file:
            # a device or a pipe has no size to look at first, and no end
            data = file.read(max_bytes + 1)
    except OSError as fault:
        raise error(f"{shown}: cannot be read ({fault.strerror or fault}); expected {expected}") from fault
    if len(data) > max_bytes:
        raise error(f"{shown}: larger than {format_bytes(max_bytes)}; expected {expected}")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        raise error(f"{shown}: byte {fault.start} is not UTF-8; expected {expected}") from fault
