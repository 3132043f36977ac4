"""What a log format is."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Protocol

from breakeven.readers.clock import Clock
from breakeven.readers.sections import Section

__all__ = ["Format", "LineReader", "UsualReader", "bounded"]

# line from its mark on, seconds of its stamp (NaN without), what stood before the mark, the section to fill
LineReader = Callable[[bytes, float, bytes, Section], None]

# a match of the whole line, the file's clock, the section to fill; ValueError: not so usual after all
UsualReader = Callable[["re.Match[bytes]", Clock, Section], None]

# No server prints more; what does is not a figure.
_MOST = 1e12


class Format(Protocol):
    """marks: bytes that begin the message of a line worth reading, and what reads it. usual: for some of them an expression for the
    whole line, stamp included, as it nearly always is, and what takes its groups: several times as fast. intervals: those of them
    that report an interval. banners: those that mean a new start of the server once intervals have been printed."""

    @property
    def engine(self) -> str: ...
    @property
    def marks(self) -> Mapping[bytes, LineReader]: ...
    @property
    def usual(self) -> Mapping[bytes, tuple[re.Pattern[bytes], UsualReader]]: ...
    @property
    def intervals(self) -> frozenset[bytes]: ...
    @property
    def banners(self) -> frozenset[bytes]: ...

    def finish(self, section: Section) -> None:
        """Called at the end of a section: what waits for a companion line is filed as it is."""
        ...


def bounded(text: bytes) -> float:
    """A printed number that is not negative and not absurd.

    Raises:
        ValueError: anything else (a word, nan, inf, a sign).
    """
    value = float(text)
    if not 0.0 <= value <= _MOST:
        raise ValueError(f"{value} is no count, length or speed")
    return value
