"""What every source of round costs offers, measured or predicted: c(B, k) with its interval and the kind of knowledge behind it.

A `CostSurface` is asked for one batch size and one number of drafts at a time. What stands behind it may be a fit of forced
acceptance on this deployment, a curve of step times, published figures of the same setup, or kernel tables; whoever turns accept
lengths into speedups needs not know which, but prints the kind, because each kind errs by its own amount (docs/predict.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Cost", "CostSurface", "UnknownCost"]

ROUNDING = 1.0 + 1e-9


class UnknownCost(ValueError):
    """Raised where a surface has nothing to go by at this batch size and number of drafts; the message says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """c, the round time in plain steps, known to lie in [low, high] as surely as its kind of prediction says.

    doubts: what makes this figure less than it seems (a cliff beside it, extrapolation), each with what to do about it.
    """

    value: float
    low: float
    high: float
    doubts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # bounds worked out another way than the value may differ from it in the last digits
        if not (math.isfinite(self.value) and 0.0 < self.low <= self.value * ROUNDING and self.value <= self.high * ROUNDING):
            raise ValueError(f"c = {self.value} in [{self.low}, {self.high}]: expected 0 < low <= value <= high")


class CostSurface(Protocol):
    """`kind` is a key of `prediction_error.KINDS`, or "measured" for a surface of this deployment."""

    @property
    def kind(self) -> str: ...

    def cost(self, batch: int, num_drafted: int) -> Cost:
        """c at `batch` running requests with `num_drafted` drafts a round; exactly 1 for none.

        Raises:
            UnknownCost: nothing known reaches there.
        """
        ...
