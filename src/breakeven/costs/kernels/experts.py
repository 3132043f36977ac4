"""The routed experts of a layer, by the number of tokens."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field

from breakeven.costs.kernels.library import Library
from breakeven.costs.kernels.times import MILLI, Axis, MissingKernel

__all__ = ["Moe"]


@dataclass(frozen=True, slots=True)
class Moe:
    """The routed experts of one layer: both products, activation and the sum over experts, as one measured kernel."""

    library: Library
    _axes: dict[tuple[object, ...], tuple[dict[str, Axis], str]] = field(default_factory=dict)

    def by_tokens(
        self, *, hidden: int, intermediate: int, top_k: int, num_experts: int, precision: str, tensor_parallel: int
    ) -> tuple[dict[str, Axis], str]:
        """Seconds by tokens, for each distribution of tokens over experts that was measured ("balanced", "power_law_1.01", ...).

        Raises MissingKernel: this shape was not measured.
        """
        shape = (hidden, intermediate, top_k, num_experts, precision, tensor_parallel)
        if shape not in self._axes:
            found = self.library.rows(
                "moe",
                "moe_perf",
                ("num_tokens", "distribution", "latency"),
                hidden_size=hidden,
                inter_size=intermediate,
                topk=top_k,
                num_experts=num_experts,
                moe_dtype=precision,
                moe_tp_size=tensor_parallel,
                moe_ep_size=1,
            )
            if found is None:
                raise MissingKernel(
                    f"{num_experts} experts of {hidden} x {intermediate}, {top_k} a token, {precision}, split over "
                    f"{tensor_parallel} on {self.library.system}"
                )
            rows, source = found
            times: dict[str, dict[float, float]] = defaultdict(dict)
            for row in rows:
                by_tokens, latency = times[row["distribution"]], row["latency"] * MILLI
                by_tokens[row["num_tokens"]] = min(latency, by_tokens.get(row["num_tokens"], math.inf))
            self._axes[shape] = ({name: Axis.of(by_tokens) for name, by_tokens in times.items()}, source)
        return self._axes[shape]
