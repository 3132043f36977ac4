"""A speedup that was not measured from those of the same target on the same machine, engine and load.

The cost of a round belongs to the deployment and the drafter's shape, so what other data sets (or another drafter of that
shape) show of it, c = AL / speedup, holds for this accept length too. Two things keep that from being exact, and both are seen
in any table of several rows: throughput includes prefill, which speculation does not shorten, so that c seems to rise with the
accept length; and tables put rows of other settings under one name. So rows whose plain speed is far from this one's are left
out, and where three or more remain, log c may rise with log AL (Theil-Sen, held between none and proportional, and shrunk
because few points make slopes). Measured on published tables: docs/predict.md.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Neighbour", "cost_from", "fitting"]

# plain speeds further apart than this are another setting (other limits, images, contexts), not another data set
SAME_SETTING = 1.6
SHRUNK_TO = 0.7
MIN_FOR_SLOPE = 3
# accept lengths nearer to each other than 2 % say nothing of a slope
_MIN_STEP = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """One measured row: accept length, speedup, and the plain arm's speed in whatever unit, None where not known."""

    name: str
    accept_length: float
    speedup: float
    plain_speed: float | None = None

    @property
    def cost(self) -> float:
        return self.accept_length / self.speedup


def fitting(neighbours: Sequence[Neighbour], plain_speed: float | None) -> tuple[Neighbour, ...]:
    """Those of the same setting by plain speed; all of them where that leaves none, or where no speed is known."""
    if plain_speed is None:
        return tuple(neighbours)
    near = tuple(
        row for row in neighbours if row.plain_speed is None or 1.0 / SAME_SETTING < row.plain_speed / plain_speed < SAME_SETTING
    )
    return near or tuple(neighbours)


def cost_from(neighbours: Sequence[Neighbour], accept_length: float, plain_speed: float | None = None) -> float:
    """c at an accept length, from at least one measured row.

    Raises:
        ValueError: there is no row.
    """
    if not neighbours:
        raise ValueError("a cost needs at least one measured row of the same setting")
    used = fitting(neighbours, plain_speed)
    costs = [math.log(row.cost) for row in used]
    if len(used) < MIN_FOR_SLOPE:
        return math.exp(statistics.median(costs))
    lengths = [math.log(row.accept_length) for row in used]
    slopes = [
        (one[1] - other[1]) / (one[0] - other[0])
        for one, other in itertools.combinations(zip(lengths, costs, strict=True), 2)
        if abs(one[0] - other[0]) > _MIN_STEP
    ]
    slope = SHRUNK_TO * min(max(statistics.median(slopes), 0.0), 1.0) if slopes else 0.0
    intercept = statistics.median(cost - slope * length for length, cost in zip(lengths, costs, strict=True))
    return math.exp(intercept + slope * math.log(accept_length))
