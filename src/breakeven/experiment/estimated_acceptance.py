"""Acceptance where a server counts none: from what its log printed during the window, else from a gauge looked at now and then.

Both are averages over intervals, rounded; they are stored as such (`Acceptance.source`) and shown as such.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from breakeven.acceptance import Acceptance
from breakeven.engines.base import Arm, Speculation
from breakeven.experiment.live import Measured

__all__ = ["LogWindow", "with_estimated_acceptance"]

MAX_LOG_BYTES = 50_000_000
# A gauge tells a mean and no count: this many steps stand for each look, so that windows weigh the same.
STEPS_PER_LOOK = 100


class LogWindow:
    """The part of a server's log that was written between `open` and `close`."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._begin: int | None = None
        self._end: int | None = None

    def open(self) -> None:
        self._begin = self._size()

    def close(self) -> None:
        self._end = self._size()

    def lines(self) -> list[str]:
        """Its lines; none where the window never opened. The first may be half a line."""
        if self._begin is None or self._end is None:
            return []
        try:
            with self._log.open("rb") as file:
                file.seek(self._begin)
                return file.read(min(MAX_LOG_BYTES, self._end - self._begin)).decode(errors="replace").splitlines()
        except OSError:
            return []

    def _size(self) -> int | None:
        try:
            return self._log.stat().st_size
        except OSError:
            return None


def with_estimated_acceptance(measured: Measured, arm: Arm, from_log: Acceptance | None) -> Measured:
    """`measured`, with acceptance put between its counters where they have none and `arm` speculates.

    from_log: what the engine makes of its log lines of the window, which is preferred to the gauge.
    """
    if measured.counters is None or arm.speculation is None:
        return measured
    before, after = measured.counters
    # some releases show that they speculate and count nothing of it
    if after.acceptance is not None and after.acceptance.num_steps:
        return measured
    found = from_log or _from_gauges(measured.gauges, arm.speculation)
    if found is None:
        return measured
    nothing = Acceptance(num_steps=0, num_rounds=0, num_drafted=0, num_accepted=0, source=found.source)
    return replace(measured, counters=(replace(before, acceptance=nothing), replace(after, acceptance=found)))


def _from_gauges(gauges: Sequence[float], speculation: Speculation) -> Acceptance | None:
    told = [gauge for gauge in gauges if 1.0 <= gauge <= speculation.num_draft_tokens + 1]
    if not told:
        return None
    num_steps = STEPS_PER_LOOK * len(told)
    return Acceptance(
        num_steps=num_steps,
        num_rounds=num_steps,
        # n-grams draft as many as were found, which nothing tells
        num_drafted=num_steps * speculation.num_draft_tokens if speculation.method == "eagle3" else 0,
        num_accepted=round(num_steps * (statistics.fmean(told) - 1.0)),
        exact_steps=False,
        source="gauge",
    )
