"""Decode attention, grouped heads and latent ones, with one query row a request or several."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field

from breakeven.costs.kernels.library import Library
from breakeven.costs.kernels.times import MILLI, Axis, KernelTime, MissingKernel

__all__ = ["Attention", "LatentAttention"]


@dataclass(frozen=True, slots=True)
class Attention:
    """Decode attention with grouped heads over a bfloat16 cache: one query row a request, or several by counting them as heads."""

    library: Library
    _axes: dict[tuple[int, int, int], tuple[dict[int, dict[int, Axis]], str] | None] = field(default_factory=dict)

    def at(
        self, *, batch: int, queries: int, context: int, heads: int, kv_heads: int, head_dim: int, window: int = 0
    ) -> KernelTime:
        """`queries` rows of each of `batch` requests over `context` cached tokens; heads are those of one GPU.

        Rows of one request read the same keys and values, so they cost what as many more query heads on the same key/value heads
        cost. Where that many heads were not measured, the bounds are one row a request and as many requests. Key/value heads that
        were not measured are fewer of as many times more requests, and a window that was not is a context of its length.

        Raises MissingKernel: not measured with these heads.
        """
        found = self._of(kv_heads, head_dim, window)
        if found is None and window:
            context, found = min(context, window), self._of(kv_heads, head_dim, 0)
        while found is None and kv_heads > 1:
            parts = next(count for count in range(2, kv_heads + 1) if kv_heads % count == 0)
            batch, heads, kv_heads = parts * batch, -(-heads // parts), kv_heads // parts
            found = self._of(kv_heads, head_dim, 0)
        if found is None:
            raise MissingKernel(f"decode attention with key/value heads of {head_dim} on {self.library.system}")
        by_heads, source = found
        return _several_rows(by_heads, source, batch=batch, queries=queries, context=context, heads=heads)

    def _of(self, kv_heads: int, head_dim: int, window: int) -> tuple[dict[int, dict[int, Axis]], str] | None:
        key = (kv_heads, head_dim, window)
        if key not in self._axes:
            equal = {"num_key_value_heads": kv_heads, "head_dim": head_dim, "kv_cache_dtype": "bfloat16"}
            columns, table = ("num_heads", "batch_size", "step", "latency"), "generation_attention_perf"
            found = self.library.rows("attention", table, columns, **equal, window_size=window)
            if found is None and window == 0:
                # older tables have no column of windows
                found = self.library.rows("attention", table, columns, **equal)
            self._axes[key] = (_by_heads(found[0]), found[1]) if found is not None else None
        return self._axes[key]


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Decode attention over a latent cache (MLA) without its projections."""

    library: Library
    _axes: dict[str, tuple[dict[int, dict[int, Axis]], str]] = field(default_factory=dict)

    def at(self, *, batch: int, queries: int, context: int, heads: int) -> KernelTime:
        """As `Attention.at`. Raises MissingKernel: no table of it for this system."""
        if "rows" not in self._axes:
            found = self.library.rows(
                "mla", "generation_mla_perf", ("num_heads", "batch_size", "step", "latency"), kv_cache_dtype="bfloat16"
            )
            if found is None:
                raise MissingKernel(f"decode attention over a latent cache on {self.library.system}")
            rows, source = found
            self._axes["rows"] = (_by_heads(rows), source)
        by_heads, source = self._axes["rows"]
        return _several_rows(by_heads, source, batch=batch, queries=queries, context=context, heads=heads)


def _by_heads(rows: object) -> dict[int, dict[int, Axis]]:
    times: dict[int, dict[int, dict[float, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:  # type: ignore[attr-defined]
        by_context = times[row["num_heads"]][row["batch_size"]]
        context, latency = row["step"] + 1, row["latency"] * MILLI
        by_context[context] = min(latency, by_context.get(context, math.inf))
    return {heads: {batch: Axis.of(by_context) for batch, by_context in by_batch.items()} for heads, by_batch in times.items()}


def _several_rows(
    by_heads: dict[int, dict[int, Axis]], source: str, *, batch: int, queries: int, context: int, heads: int
) -> KernelTime:
    def at(num_heads: float, num_requests: float) -> float:
        axis = {}
        for measured, by_batch in by_heads.items():
            axis[float(measured)] = Axis.of({float(b): line.at(context) for b, line in by_batch.items()}).at(num_requests)
        return Axis.of(axis).at(num_heads)

    one = at(heads, batch)
    if queries == 1:
        return KernelTime.exactly(one, source)
    apart = max(at(heads, batch * queries), one)
    if heads * queries <= max(by_heads):
        value = max(at(heads * queries, batch), one)
    else:
        most = max(by_heads)
        value = max(at(most, batch) * heads * queries / most, one)
    return KernelTime(min(value, apart), one, max(apart, value), source)
