"""Kernel times between the measured ones. Times are seconds; the tables have milliseconds.

Along an axis that is measured finely (tokens, batch, context) times are straight lines on log scales between neighbours, flat
below the first point and proportional beyond the last. Where a table holds weights that stay in the GPU's cache from one
repetition of the benchmark to the next, its small rows are faster than memory can be read; in a model with hundreds of layers
they never stay there. So no kernel is taken to be faster than reading its bytes once.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass

__all__ = ["LAUNCH_S", "MILLI", "WEIGHT_BYTES", "Axis", "KernelTime", "MissingKernel"]

MILLI = 1e-3
# the least a launched kernel takes inside a captured graph
LAUNCH_S = 2e-6
# bytes of a weight, with the scales that go with it
WEIGHT_BYTES = {
    "bfloat16": 2.0,
    "fp8": 1.0,
    "fp8_block": 1.0,
    "nvfp4": 0.5625,
    "int4_wo": 0.5625,
    "w4a16_mxfp4": 0.53125,
}


class MissingKernel(ValueError):
    """No table has this kernel; the message says which one was looked for."""


@dataclass(frozen=True, slots=True)
class KernelTime:
    """Seconds of one launch, with bounds, and what they were read from."""

    value: float
    low: float
    high: float
    source: str
    notes: tuple[str, ...] = ()

    @classmethod
    def exactly(cls, seconds: float, source: str) -> KernelTime:
        return cls(seconds, seconds, seconds, source)

    def times(self, count: float) -> KernelTime:
        return KernelTime(self.value * count, self.low * count, self.high * count, self.source, self.notes)

    def not_below(self, seconds: float) -> KernelTime:
        if self.low >= seconds:
            return self
        note = "raised to the time of reading its weights once"
        notes = (*self.notes, note) if self.value < seconds and note not in self.notes else self.notes
        return KernelTime(max(self.value, seconds), max(self.low, seconds), max(self.high, seconds), self.source, notes)


@dataclass(frozen=True, slots=True)
class Axis:
    """Seconds by a rising quantity."""

    points: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, times: dict[float, float]) -> Axis:
        return cls(tuple(sorted(times.items())))

    def at(self, x: float) -> float:
        xs = [point[0] for point in self.points]
        if x <= xs[0]:
            return self.points[0][1]
        if x >= xs[-1]:
            return self.points[-1][1] * x / xs[-1]
        right = bisect.bisect_left(xs, x)
        (x0, y0), (x1, y1) = self.points[right - 1], self.points[right]
        share = math.log(x / x0) / math.log(x1 / x0)
        return y0 * math.exp(share * math.log(y1 / y0))
