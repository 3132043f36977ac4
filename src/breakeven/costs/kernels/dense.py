"""Dense products by their shape and precision."""

from __future__ import annotations

import bisect
import math
import statistics
from collections import defaultdict
from dataclasses import dataclass, field

from breakeven.costs.kernels.library import Library
from breakeven.costs.kernels.times import LAUNCH_S, MILLI, WEIGHT_BYTES, Axis, KernelTime, MissingKernel

__all__ = ["Gemm"]

# Quantized weights are fewer bytes than bfloat16's, so their products take no longer but for some work around them. Rows that take
# this many times as long have timed something else: launches that were not captured, or a fallback that nobody would serve with.
IMPLAUSIBLE = 2.0
# rows of a shape that take this much longer than more rows of it do are a slip of the benchmark: padding would be cheaper
SLIP = 1.25
_FEW_ROWS = 64
# weights of these sizes tell: smaller products are all launches, larger ones hide a slow launch
_TELLING_SIZES = (4_000_000, 64_000_000)


@dataclass(frozen=True, slots=True)
class Gemm:
    """Dense products [m, k] x [k, n]. Between the measured n and k times go with the bytes of the weight."""

    library: Library
    _tables: dict[str, tuple[dict[tuple[int, int], Axis], str]] = field(default_factory=dict)
    _implausible: dict[str, bool] = field(default_factory=dict)

    def at(self, m: int, n: int, k: int, precision: str) -> KernelTime:
        """Raises MissingKernel: no rows of this precision, and bfloat16 rows do not stand in for it."""
        notes: tuple[str, ...] = ()
        measured = precision
        if not self._of(precision):
            # weight-only products read fewer bytes and multiply in bfloat16: time of the bytes at few rows, of the work at many
            if precision not in {"int4_wo", "w4a16_mxfp4", "fp8_block"} and not self._implausible.get(precision):
                raise MissingKernel(f"dense products in {precision} on {self.library.system}")
            if not self._of("bfloat16"):
                raise MissingKernel(f"dense products in {precision} on {self.library.system}")
            measured = "bfloat16"
            notes = (f"no measured rows in {precision}{self._why_none(precision)}: bfloat16 rows scaled by bytes",)
        axes, source = self._tables[measured]
        floor = n * k * WEIGHT_BYTES[precision] / self.library.hardware.read_bytes_s
        value = self._between(axes, m, n, k)
        if measured == precision:
            return KernelTime(value, value, value, source, notes).not_below(floor)
        few = self._between(axes, 1, n, k)
        value = max(few * WEIGHT_BYTES[precision] / WEIGHT_BYTES["bfloat16"], 3e-6) + max(value - few, 0.0)
        high = max(1.5 * value, self._between(axes, m, n, k) if self._implausible.get(precision) else 0.0)
        return KernelTime(value, 0.8 * value, high, source, notes).not_below(floor)

    def _why_none(self, precision: str) -> str:
        return " that can be kernels of it (they take longer than bfloat16 ones)" if self._implausible.get(precision) else ""

    def _of(self, precision: str) -> bool:
        """Whether there are rows of this precision that can be what they say."""
        if not self._read(precision):
            return False
        if precision not in self._implausible:
            self._implausible[precision] = precision != "bfloat16" and self._read("bfloat16") and self._slower(precision)
        return not self._implausible[precision]

    def _slower(self, precision: str) -> bool:
        """Whether few rows take far longer than bfloat16 ones of the same shape, at most shapes."""
        own, plain = self._tables[precision][0], self._tables["bfloat16"][0]
        telling = [shape for shape in own if _TELLING_SIZES[0] <= shape[0] * shape[1] <= _TELLING_SIZES[1]] or list(own)
        ratios = [
            seconds / self._between(plain, m, *shape) for shape in telling for m, seconds in own[shape].points if m <= _FEW_ROWS
        ]
        return bool(ratios) and statistics.median(ratios) > IMPLAUSIBLE

    def _read(self, precision: str) -> bool:
        if precision not in self._tables:
            found = self.library.rows("gemm", "gemm_perf", ("m", "n", "k", "latency"), gemm_dtype=precision)
            if found is None:
                return False
            rows, source = found
            times: dict[tuple[int, int], dict[float, float]] = defaultdict(dict)
            for row in rows:
                shape, latency = times[row["n"], row["k"]], row["latency"] * MILLI
                # several kernels may have been timed; engines take the fastest that applies
                shape[row["m"]] = min(latency, shape.get(row["m"], math.inf))
            # bfloat16 rows have no slips beyond their own jitter
            mend = _without_slips if precision != "bfloat16" else dict[float, float]
            self._tables[precision] = ({shape: Axis.of(mend(by_m)) for shape, by_m in times.items()}, source)
        return True

    def _between(self, axes: dict[tuple[int, int], Axis], m: float, n: int, k: int) -> float:
        if (n, k) in axes:
            return axes[n, k].at(m)
        # the four measured shapes around it, weighted by distance on log scales; sizes beyond the grid scale with the weight
        ns, ks = sorted({shape[0] for shape in axes}), sorted({shape[1] for shape in axes})
        total, weights = 0.0, 0.0
        for n0, share_n in _around(ns, n):
            for k0, share_k in _around(ks, k):
                axis = axes.get((n0, k0))
                if axis is None:
                    continue
                scale = (n * k) / (n0 * k0)
                # launch latency does not scale; what is above it does
                weight = share_n * share_k
                total += weight * math.log(_scaled(axis.at(m), scale))
                weights += weight
        if weights == 0.0:
            nearest = min(axes, key=lambda shape: abs(math.log(shape[0] * shape[1] / (n * k))))
            return _scaled(axes[nearest].at(m), n * k / (nearest[0] * nearest[1]))
        return math.exp(total / weights)


def _without_slips(by_m: dict[float, float]) -> dict[float, float]:
    """No number of rows takes far longer than a larger one does."""
    found, least = {}, math.inf
    for m in sorted(by_m, reverse=True):
        found[m] = least if by_m[m] > SLIP * least else by_m[m]
        least = min(least, found[m])
    return found


def _scaled(seconds: float, scale: float) -> float:
    return min(seconds, LAUNCH_S) + max(seconds - LAUNCH_S, 0.0) * scale


def _around(grid: list[int], x: int) -> list[tuple[int, float]]:
    if x <= grid[0]:
        return [(grid[0], 1.0)]
    if x >= grid[-1]:
        return [(grid[-1], 1.0)]
    right = bisect.bisect_left(grid, x)
    if grid[right] == x:
        return [(x, 1.0)]
    share = math.log(x / grid[right - 1]) / math.log(grid[right] / grid[right - 1])
    return [(grid[right - 1], 1.0 - share), (grid[right], share)]
