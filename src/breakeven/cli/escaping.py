"""Names of files, keys, servers and commands are other people's text: shown by their characters, they cannot steer a terminal."""

from __future__ import annotations

__all__ = ["escaped"]


def escaped(text: str) -> str:
    """`text` with everything but its line ends that is not printable as its code point."""
    return "".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text)
