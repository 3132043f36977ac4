"""Dense products by their shape and precision."""

from __future__ import annotations

import bisect
import math
from collections import defaultdict
from dataclasses import dataclass, field

from breakeven.costs.kernels.library import Library
from breakeven.costs.kernels.times import LAUNCH_S, MILLI, WEIGHT_BYTES, Axis, KernelTime, MissingKernel

__all__ = ["Gemm"]


@dataclass(frozen=True, slots=True)
class Gemm:
    """Dense products [m, k] x [k, n]. Between the measured n and k times go with the bytes of the weight."""

    library: Library
    _tables: dict[str, tuple[dict[tuple[int, int], Axis], str]] = field(default_factory=dict)

    def at(self, m: int, n: int, k: int, precision: str) -> KernelTime:
        """Raises MissingKernel: no rows of this precision, and bfloat16 rows do not stand in for it."""
        notes: tuple[str, ...] = ()
        measured = precision
        if not self._of(precision):
            # weight-only products read fewer bytes and multiply in bfloat16: time of the bytes at few rows, of the work at many
            if precision not in {"int4_wo", "w4a16_mxfp4", "fp8_block"} or not self._of("bfloat16"):
                raise MissingKernel(f"dense products in {precision} on {self.library.system}")
            measured = "bfloat16"
            notes = (f"no measured rows in {precision}: bfloat16 rows scaled by bytes",)
        axes, source = self._tables[measured]
        floor = n * k * WEIGHT_BYTES[precision] / self.library.hardware.read_bytes_s
        value = self._between(axes, m, n, k)
        if measured == precision:
            return KernelTime(value, value, value, source, notes).not_below(floor)
        few = self._between(axes, 1, n, k)
        value = max(few * WEIGHT_BYTES[precision] / WEIGHT_BYTES["bfloat16"], 3e-6) + max(value - few, 0.0)
        return KernelTime(value, 0.8 * value, 1.5 * value, source, notes).not_below(floor)

    def _of(self, precision: str) -> bool:
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
            self._tables[precision] = ({shape: Axis.of(by_m) for shape, by_m in times.items()}, source)
        return True

    def _between(self, axes: dict[tuple[int, int], Axis], m: int, n: int, k: int) -> float:
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
