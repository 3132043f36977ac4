"""Time stamps of log lines, in seconds. Cheap, because a log has one on every line: the minute is looked up, not computed.

vLLM prints no year, so times are good for differences only; a date that jumps back by months is taken for a new year. llama.cpp
prints the time since its start.
"""

from __future__ import annotations

import calendar
import math
import re

__all__ = ["Clock"]

_STAMP = re.compile(rb"(?:(\d{4})[-/])?(\d\d)[-/](\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?")
_SINCE_START = re.compile(rb"^(?:\[\d+\] )?(\d+)\.(\d\d)\.(\d{3})\.(\d{3}) [A-Z] ")
# A leap year, so that any day of a date without a year exists.
_NO_YEAR = 2000
_HALF_A_YEAR_S = 15_000_000
_MAX_MINUTES = 4096


class Clock:
    """Reads stamps of one file in order."""

    def __init__(self) -> None:
        self._minutes: dict[tuple[bytes | None, bytes, bytes, bytes, bytes], float] = {}
        self._starts: dict[bytes, float] = {}
        self._last_s = math.nan
        self._year_offset_s = 0.0

    def at(self, minute: bytes, second: bytes) -> float:
        """As `read`, for a stamp that is cut already: b"2026-03-01 12:34" or b"03-01 12:34" and b"56"."""
        start_s = self._starts.get(minute)
        if start_s is None:
            start_s = self.read(minute + b":00")
            if len(self._starts) >= _MAX_MINUTES:
                self._starts.clear()
            self._starts[minute] = start_s
        return start_s + int(second)

    def read(self, prefix: bytes) -> float:
        """Seconds, or NaN where `prefix` (what stands before the message) holds no stamp."""
        match = _STAMP.search(prefix)
        if match is None:
            since = _SINCE_START.match(prefix)
            if since is None:
                return math.nan
            minutes, seconds, milliseconds, microseconds = map(int, since.groups())
            return minutes * 60.0 + seconds + milliseconds / 1e3 + microseconds / 1e6
        year, month, day, hour, minute, second, fraction = match.groups()
        key = (year, month, day, hour, minute)
        start_s = self._minutes.get(key)
        if start_s is None:
            start_s = self._start_of(key)
            if len(self._minutes) >= _MAX_MINUTES:
                self._minutes.clear()
            self._minutes[key] = start_s
        time_s = start_s + int(second) + (float(b"0." + fraction) if fraction else 0.0)
        if year is None:
            time_s += self._year_offset_s
            if self._last_s - time_s > _HALF_A_YEAR_S:
                self._year_offset_s += 366 * 86_400.0
                self._starts.clear()
                time_s += 366 * 86_400.0
        self._last_s = time_s
        return time_s

    @staticmethod
    def _start_of(key: tuple[bytes | None, bytes, bytes, bytes, bytes]) -> float:
        year, month, day, hour, minute = (int(part) if part is not None else _NO_YEAR for part in key)
        if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and year >= 1970):
            return math.nan
        return float(calendar.timegm((year, month, day, hour, minute, 0)))
