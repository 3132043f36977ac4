"""Round time as a straight line in the number of drafts, for a number of drafts that was not measured at this load.

Each draft of a chain is one more forward of the drafter and one more row to verify, so rounds grow by the same amount a draft as
long as the step is bound by its weights. The interval is the t interval of the fit's own residuals, together with what such lines
were off by on published tables: a fit through two or three points knows little of its own error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from scipy.special import stdtrit

__all__ = ["RoundLine", "RoundTime"]

ALPHA = 0.10


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTime:
    """Seconds, or plain steps, whatever the line was fitted to. is_outside: beyond the measured numbers of drafts."""

    value: float
    low: float
    high: float
    is_outside: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundLine:
    """round(k) = fixed + k each. `residual_sd` None with two points, which a line always fits."""

    fixed: float
    each: float
    drafts: tuple[int, ...]
    residual_sd: float | None

    @classmethod
    def of(cls, rounds: Mapping[int, float]) -> RoundLine:
        """Least squares on round times by number of drafts.

        Raises:
            ValueError: fewer than two numbers of drafts, or times that are not positive.
        """
        if len(rounds) < 2:
            raise ValueError(f"round times of {len(rounds)} numbers of drafts; expected at least two, to see what a draft costs")
        if any(not math.isfinite(time) or time <= 0.0 for time in rounds.values()):
            raise ValueError("round times must be positive")
        drafts = tuple(sorted(rounds))
        count, mean = len(drafts), sum(drafts) / len(drafts)
        average = sum(rounds.values()) / count
        spread = sum((k - mean) ** 2 for k in drafts)
        # a draft is work: noise may say otherwise, but not be prolonged
        each = max(sum((k - mean) * (rounds[k] - average) for k in drafts) / spread, 0.0)
        fixed = average - each * mean
        residuals = sum((rounds[k] - fixed - each * k) ** 2 for k in drafts)
        return cls(fixed=fixed, each=each, drafts=drafts, residual_sd=math.sqrt(residuals / (count - 2)) if count > 2 else None)

    def at(self, num_drafted: int, *, error: float) -> RoundTime:
        """`error`: the relative error such predictions were found to have; the fit's own t interval is added in quadrature."""
        value = self.fixed + self.each * num_drafted
        own = 0.0
        if self.residual_sd is not None:
            count, mean = len(self.drafts), sum(self.drafts) / len(self.drafts)
            spread = sum((k - mean) ** 2 for k in self.drafts)
            leverage = 1.0 + 1.0 / count + (num_drafted - mean) ** 2 / spread
            own = float(stdtrit(count - 2, 1.0 - ALPHA / 2)) * self.residual_sd * math.sqrt(leverage)
        half = math.hypot(own / value, math.log1p(error))
        is_outside = not self.drafts[0] <= num_drafted <= self.drafts[-1]
        return RoundTime(value=value, low=value * math.exp(-half), high=value * math.exp(half), is_outside=is_outside)
