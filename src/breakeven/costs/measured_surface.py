"""The break-even accept length c(B, k) over batches and numbers of drafts, from the points of it that were measured.

What was measured is kept as it is. Between two measured numbers of drafts at the same batch, c is taken to lie on the line through
them, because each draft adds one step of the drafter and one row to verify (facts of a chain; docs/curve.md). The line is not
believed beyond evidence:

- More drafts never make a round cheaper, so c between two neighbours lies between their bounds. Where no third point has tested
  the line, that bracket is the interval.
- Where a stretch has a measured point beyond either of its ends, that end's distance from the line of its own neighbours tells how
  large a jump the stretch could hide, and the interval is widened by it.
- A jump (a batch that no longer fits a recorded graph) shows as such a distance, so it widens intervals until more points are
  measured around it; it is never smoothed over.

Between batches nothing is interpolated: c rises and falls with the batch, and no bound is known.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

from breakeven.costs.surface import Cost, UnknownCost

__all__ = ["Jump", "MeasuredSurface", "half_width"]

# A stretch is a jump where c surely rises by this share of itself, and per draft by this many times as much as elsewhere there.
_JUMP_RISE = 0.2
_JUMP_SLOPES = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Jump:
    """c rises from `cost_before` to `cost_after` between two neighbouring numbers of drafts by more than further drafts explain."""

    batch: int
    before: int
    after: int
    cost_before: float
    cost_after: float


def half_width(cost: Cost) -> float:
    """Half the width of the interval of c, relative to c."""
    return (cost.high - cost.low) / (2.0 * cost.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSurface:
    """`measured` maps (requests running, drafts a round) to the c measured there. No drafts cost nothing: c(B, 0) is 1.

    idle: what a step costs with speculation loaded and not used, by batch, where that was measured. It is no c(B, 0): plain
    decoding without a drafter stays the other choice.
    """

    measured: Mapping[tuple[int, int], Cost]
    idle: Mapping[int, Cost] = field(default_factory=dict)
    kind = "measured"

    @property
    def batches(self) -> tuple[int, ...]:
        return tuple(sorted({batch for batch, _ in self.measured}))

    def drafts(self, batch: int) -> tuple[int, ...]:
        """Numbers of drafts that were measured at `batch`, ascending."""
        return tuple(sorted(k for b, k in self.measured if b == batch))

    def cost(self, batch: int, num_drafted: int) -> Cost:
        """c at a measured batch, measured or read between two neighbours.

        Raises:
            UnknownCost: the batch was not measured, or the number of drafts lies beyond those that were.
        """
        if batch not in self.batches:
            near = ", ".join(map(str, self.batches)) or "none"
            raise UnknownCost(
                f"nothing was measured at {batch} running requests (measured: {near}), and c is not read between batches"
            )
        if num_drafted == 0:
            return Cost(value=1.0, low=1.0, high=1.0)
        found = self.measured.get((batch, num_drafted))
        if found is not None:
            return found
        neighbours = self.neighbours(batch, num_drafted)
        if neighbours is None:
            there = ", ".join(map(str, self.drafts(batch)))
            raise UnknownCost(f"{num_drafted} drafts lie beyond those measured at {batch} running requests ({there})")
        return self._between(batch, num_drafted, *neighbours)

    def neighbours(self, batch: int, num_draft_tokens: int) -> tuple[int, int] | None:
        """The measured numbers of drafts next below and next above."""
        below = [k for k in self.drafts(batch) if k < num_draft_tokens]
        above = [k for k in self.drafts(batch) if k > num_draft_tokens]
        return (below[-1], above[0]) if below and above else None

    def hidden_jump(self, batch: int, before: int, after: int) -> float | None:
        """The largest jump of c that could lie between two neighbouring measured points unseen; None where nothing tests it.

        A jump J somewhere between `before` and `after` moves an end that has a further neighbour off the line through its two
        neighbours by J times the share of that line on the other side. Each end that has one so gives an upper bound (noise is
        part of it, which errs towards wider intervals), and both must hold.
        """
        bounds = []
        for left, centre, right in _triples(self.drafts(batch)):
            if (left, centre) == (before, after) or (centre, right) == (before, after):
                other_side = right - centre if centre == after else centre - left
                line = _line(self.measured[batch, left], self.measured[batch, right], left, right, centre)
                bounds.append(abs(self.measured[batch, centre].value - line) * (right - left) / other_side)
        return min(bounds, default=None)

    def jumps(self) -> tuple[Jump, ...]:
        """Stretches that are no line: their rise, even from the upper bound before to the lower bound after, stands out.

        Compared with the gentlest other stretch at the same batch, so a batch with two measured points shows none.
        """
        found = []
        for batch in self.batches:
            stretches = list(itertools.pairwise(self.drafts(batch)))
            for before, after in stretches:
                first, second = self.measured[batch, before], self.measured[batch, after]
                others = [self._slope(batch, *stretch) for stretch in stretches if stretch != (before, after)]
                if not others:
                    continue
                sure = second.low - first.high
                if sure > _JUMP_RISE * first.value and sure / (after - before) > _JUMP_SLOPES * max(min(others), 0.0):
                    found.append(Jump(batch=batch, before=before, after=after, cost_before=first.value, cost_after=second.value))
        return tuple(found)

    def _slope(self, batch: int, before: int, after: int) -> float:
        return (self.measured[batch, after].value - self.measured[batch, before].value) / (after - before)

    def _between(self, batch: int, k: int, before: int, after: int) -> Cost:
        lower, upper = self.measured[batch, before], self.measured[batch, after]
        value = _line(lower, upper, before, after, k)
        bracket_low, bracket_high = min(lower.low, value), max(upper.high, value)
        jump = self.hidden_jump(batch, before, after)
        if jump is None:
            return Cost(value=value, low=bracket_low, high=bracket_high)
        share = (k - before) / (after - before)
        # where the jump lies is not known: before k it lifts c above the line by what is left of the line, after k the reverse
        low = lower.low + share * (upper.low - lower.low) - share * jump
        high = lower.high + share * (upper.high - lower.high) + (1.0 - share) * jump
        return Cost(value=value, low=max(low, bracket_low), high=min(high, bracket_high))


def _line(lower: Cost, upper: Cost, before: int, after: int, k: int) -> float:
    return lower.value + (upper.value - lower.value) * (k - before) / (after - before)


def _triples(drafts: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Every inner number of drafts with its neighbours on either side."""
    return [(before, k, after) for (before, k), (_, after) in itertools.pairwise(itertools.pairwise(drafts))]
