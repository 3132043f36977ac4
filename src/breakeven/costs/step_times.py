"""Step times by the number of tokens in a step, with cliffs found instead of smoothed over.

A forward over more tokens takes longer, but never by more than the tokens grow: weights are read once, and beyond that the work
is proportional. Between two measured points whose times grow faster than their tokens, or far faster than on both sides of
them, something else changed, nearly always the end of the captured CUDA graphs. Such a gap is a cliff: nobody knows on which
side of it a point in it lies, so both sides, prolonged, bound it and the dear side is the value. Elsewhere time is a straight
line between neighbours, and the lines of the neighbouring stretches, prolonged, bound how far it can bend. More tokens cannot take
less either: where times fall, the most that fewer tokens took is told (`highest`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

__all__ = ["Cliff", "StepTime", "StepTimes"]

# times growing this much faster than tokens are a cliff; measurement noise of small steps stays below
CLIFF_EXCESS = 1.10
# a stretch this many times as steep as both of its neighbours, by this share of its time, is one as well
STEEPER = 1.5
STEP_EXCESS = 0.25
# beyond the last point by more than this factor nothing is said
FURTHEST = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cliff:
    """Between `below` and `above` tokens a step takes `factor` times as long."""

    below: int
    above: int
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Seconds with bounds. `cliff` is the one that lies at or before these tokens and was climbed over, None below all of them.

    peak: (tokens, seconds) of a smaller step that took longer, None where none did.
    """

    value: float
    low: float
    high: float
    cliff: Cliff | None = None
    is_beside_cliff: bool = False
    is_extrapolated: bool = False
    peak: tuple[int, float] | None = None

    @property
    def highest(self) -> float:
        return self.high if self.peak is None else max(self.high, self.peak[1])


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Points (tokens, seconds), tokens rising."""

    points: tuple[tuple[int, float], ...]

    @classmethod
    def of(cls, times: Mapping[int, float]) -> StepTimes:
        """Raises ValueError: no point, tokens below 1, or times that are not positive and finite."""
        if not times:
            raise ValueError("no step times were given; expected times by number of tokens")
        for tokens, time in times.items():
            if tokens < 1 or not math.isfinite(time) or time <= 0.0:
                raise ValueError(f"{tokens} tokens: {time}; expected at least one token and a positive time")
        return cls(tuple(sorted(times.items())))

    @property
    def cliffs(self) -> tuple[Cliff, ...]:
        found = []
        for index, ((below, low), (above, high)) in enumerate(zip(self.points, self.points[1:], strict=False)):
            if high / low > CLIFF_EXCESS * above / below or self._is_step(index):
                found.append(Cliff(below=below, above=above, factor=high / low))
        return tuple(found)

    def _is_step(self, index: int) -> bool:
        """A stretch far steeper than both beside it: time may bend upwards once, where work outgrows reading, but not bend back."""
        if not 0 < index < len(self.points) - 2:
            return False
        before, here, after = (self._rise(at) for at in (index - 1, index, index + 1))
        (below, low), (above, _) = self.points[index], self.points[index + 1]
        usual = max(before, after, 0.0)
        return here > STEEPER * usual and (here - usual) * (above - below) > STEP_EXCESS * low

    def _rise(self, index: int) -> float:
        """Seconds for each token more, between a point and the next."""
        (left, low), (right, high) = self.points[index], self.points[index + 1]
        return (high - low) / (right - left)

    @property
    def fewest_tokens(self) -> int:
        return self.points[0][0]

    @property
    def most_tokens(self) -> int:
        return self.points[-1][0]

    def at(self, tokens: int) -> StepTime:
        """Raises ValueError: further than twice the largest step measured, or a number below 1."""
        found = self._at(tokens)
        peak = max((point for point in self.points if point[0] < tokens), key=lambda point: (point[1], point[0]), default=None)
        if peak is None or peak[1] <= found.value:
            return found
        return replace(found, peak=peak)

    def _at(self, tokens: int) -> StepTime:
        first, last = self.points[0], self.points[-1]
        if tokens < 1 or tokens > FURTHEST * last[0]:
            raise ValueError(
                f"a step of {tokens} tokens; step times are known from {first[0]} to {last[0]} tokens: measure further"
            )
        if tokens <= first[0]:
            # fewer tokens cannot take longer, nor less time than proportionally
            return StepTime(value=first[1], low=first[1] * tokens / first[0], high=first[1], is_extrapolated=tokens < first[0])
        climbed = [cliff for cliff in self.cliffs if cliff.above <= tokens]
        for index, (upper, time) in enumerate(self.points):
            if upper == tokens:
                return StepTime(value=time, low=time, high=time, cliff=climbed[-1] if climbed else None)
            if upper > tokens:
                return self._between(index - 1, tokens, climbed[-1] if climbed else None)
        value = last[1] * (1.0 + max(self._slope(len(self.points) - 2), 0.0) * (tokens - last[0]) / last[1])
        high = last[1] * tokens / last[0]
        return StepTime(
            value=min(value, high), low=last[1], high=high, cliff=climbed[-1] if climbed else None, is_extrapolated=True
        )

    def _between(self, index: int, tokens: int, climbed: Cliff | None) -> StepTime:
        (left, low), (right, high) = self.points[index], self.points[index + 1]
        before, after = self._line(index - 1, tokens), self._line(index + 1, tokens)
        cliff = next((cliff for cliff in self.cliffs if cliff.below == left), None)
        if cliff is not None:
            cheap = min(max(before if before is not None else low, low), high)
            dear = min(max(after if after is not None else high, high * tokens / right), high)
            return StepTime(value=dear, low=min(cheap, dear), high=high, cliff=cliff, is_beside_cliff=True)
        value = low + (high - low) * (tokens - left) / (right - left)
        floor, ceiling = min(low, high), max(low, high)
        bounds = [min(max(bound, floor), ceiling) for bound in (before, after) if bound is not None]
        return StepTime(value=value, low=min((value, *bounds)), high=max((value, *bounds)), cliff=climbed)

    def _line(self, index: int, tokens: int) -> float | None:
        """The stretch from point `index` to the next, prolonged to `tokens`; None where there is none or it is a cliff."""
        if not 0 <= index < len(self.points) - 1 or any(cliff.below == self.points[index][0] for cliff in self.cliffs):
            return None
        return self.points[index][1] + self._slope(index) * (tokens - self.points[index][0])

    def _slope(self, index: int) -> float:
        if index < 0 or any(cliff.below == self.points[index][0] for cliff in self.cliffs):
            return 0.0
        return self._rise(index)
