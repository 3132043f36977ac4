"""What was found in one stretch of a log: from one start of a server to the next."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from breakeven.readers.series import COLUMNS, Series
from breakeven.versions import Version

__all__ = ["MAX_PAIRS", "Event", "Section", "row"]

EventKind = Literal["cache flushed", "requests retracted", "cap on running requests"]
MAX_EVENTS = 10_000
# Printed with two decimals there are a few thousand; a log with more of them is not printing two decimals.
MAX_PAIRS = 20_000
_NAN_ROW = dict.fromkeys(COLUMNS, math.nan)


def row(values: Mapping[str, float]) -> tuple[float, ...]:
    """A row for `Series.append`; NaN for what is not in `values`."""
    return tuple((_NAN_ROW | dict(values)).values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something the server did between two printed intervals; `row` is how many intervals came before."""

    kind: EventKind
    row: int
    time_s: float


@dataclass(slots=True, kw_only=True)
class Section:
    """Filled while a log is read.

    pairs: printed (accept length, accept rate) with the digits they were printed with, and how often.
    positions: for vLLM and llama.cpp, printed per-position rates times rounds, summed; `position_rounds` is what to divide by.
    settings: what the banner says about the launch, engine's own names.
    engine: the one in whose words the lines are.
    """

    engine: str
    version: Version | None = None
    version_line: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    series: Series = field(default_factory=Series)
    pairs: dict[tuple[bytes, bytes], int] = field(default_factory=dict)
    positions: list[float] = field(default_factory=list)
    position_rounds: float = 0.0
    position_lines: Counter[str] = field(default_factory=Counter)
    events: list[Event] = field(default_factory=list)
    num_malformed: int = 0
    is_embedded: bool = False  # Breakeven's own engine, in vLLM's words
    decode_interval: int = 40  # SGLang: decode forwards of the whole batch a line, unless --decode-log-interval says otherwise
    # what lines of a kind that comes before the interval's own line have said
    pending: dict[str, float] = field(default_factory=dict)
    # what a line that counts since the server's start said last
    counts: dict[str, float] = field(default_factory=dict)

    @property
    def who(self) -> str:
        """The engine to name; `engine` says whose lines these are."""
        return "local" if self.is_embedded else self.engine

    @property
    def is_empty(self) -> bool:
        return not self.series.num_appended

    def count_pair(self, length: bytes, rate: bytes) -> None:
        pairs, pair = self.pairs, (length, rate)
        if pair in pairs:
            pairs[pair] += 1
        elif len(pairs) < MAX_PAIRS:
            pairs[pair] = 1

    def note(self, kind: EventKind, time_s: float) -> None:
        if len(self.events) < MAX_EVENTS:
            self.events.append(Event(kind=kind, row=self.series.num_appended, time_s=time_s))

    def add_positions(self, rates: list[float], rounds: float) -> None:
        self.positions += [0.0] * (len(rates) - len(self.positions))
        for place, rate in enumerate(rates):
            self.positions[place] += rate * rounds
        self.position_rounds += rounds
