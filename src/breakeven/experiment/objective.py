"""What a deployment is judged by: tokens of the whole server, the speed of one request, or answers that came in time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Objective", "ObjectiveName"]

ObjectiveName = Literal["throughput", "request-speed", "goodput"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """`ttft_s` and `tpot_s` bound the first token and the mean time of each later one; goodput counts answers within both."""

    name: ObjectiveName = "throughput"
    ttft_s: float | None = None
    tpot_s: float | None = None

    def __post_init__(self) -> None:
        if self.name == "goodput" and not self.has_limits:
            raise ValueError("goodput needs a limit: ttft_s, tpot_s or both")

    @property
    def has_limits(self) -> bool:
        return self.ttft_s is not None or self.tpot_s is not None

    @property
    def limits(self) -> str:
        """ "first token within 0.5 s and 0.05 s a token"."""
        told = [] if self.ttft_s is None else [f"first token within {self.ttft_s:g} s"]
        told += [] if self.tpot_s is None else [f"{self.tpot_s:g} s a token at most"]
        return " and ".join(told)

    @property
    def text(self) -> str:
        return f"goodput ({self.limits})" if self.name == "goodput" else self.name.replace("-", " ")

    def others(self) -> tuple[Objective, ...]:
        """The objectives that the same samples can be judged by too."""
        names: list[ObjectiveName] = ["throughput", "request-speed"]
        if self.has_limits:
            names.append("goodput")
        return tuple(Objective(name=name, ttft_s=self.ttft_s, tpot_s=self.tpot_s) for name in names if name != self.name)
