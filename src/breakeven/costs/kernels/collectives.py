"""Sums over the GPUs of one node."""

from __future__ import annotations

from dataclasses import dataclass, field

from breakeven.costs.kernels.library import Library
from breakeven.costs.kernels.times import MILLI, Axis, KernelTime, MissingKernel

__all__ = ["AllReduce"]


@dataclass(frozen=True, slots=True)
class AllReduce:
    """Sums over the GPUs of one node, inside CUDA graphs where those were timed. The tables count elements, of bfloat16."""

    library: Library
    _axes: dict[int, tuple[Axis, str]] = field(default_factory=dict)

    def at(self, elements: int, num_gpus: int) -> KernelTime:
        """Raises MissingKernel: not measured over so many GPUs."""
        if num_gpus == 1:
            return KernelTime.exactly(0.0, "one GPU")
        if num_gpus not in self._axes:
            found = self.library.rows(
                "comm",
                "custom_allreduce_perf",
                ("message_size", "backend", "latency"),
                num_gpus=num_gpus,
                allreduce_dtype="bfloat16",
            )
            if found is None:
                raise MissingKernel(f"all-reduce over {num_gpus} GPUs on {self.library.system}")
            rows, source = found
            graphs = [row for row in rows if str(row["backend"]).endswith("graph")]
            self._axes[num_gpus] = (Axis.of({row["message_size"]: row["latency"] * MILLI for row in graphs or rows}), source)
        axis, source = self._axes[num_gpus]
        return KernelTime.exactly(axis.at(elements), source)
