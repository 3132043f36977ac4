"""The break-even accept length c(B, k) over batches and numbers of drafts, from the points of it that were measured.

What was measured is kept as it is. Between two measured numbers of drafts at the same batch, c is taken to lie on the line through
them, because each draft adds one step of the drafter and one row to verify (facts of a chain; docs/curve.md). The line is not
believed beyond evidence:

- More drafts never make a round cheaper, so c between two neighbours lies between their bounds. Where no third point has tested
  the line, that bracket is the interval.
- Where there are further points at the same batch, c may have one jump (a batch that no longer fits a recorded graph), or bend one
  way throughout (experts that more tokens wake, arithmetic that begins to cost more than memory). The interval holds every such
  curve through the measured points (`MeasuredSurface.shapes`), and their noise.
- A jump makes a stretch steeper than the others, so it widens the interval there until more points are measured around it; it is
  never smoothed over. What two jumps of the same size would do in two stretches at once is not covered.

Between batches nothing is interpolated: c rises and falls with the batch, and no bound is known.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from breakeven.costs.surface import Cost, UnknownCost
from breakeven.units import plural

__all__ = ["Jump", "MeasuredSurface", "half_width"]

# A stretch is a jump where c surely rises by this share of itself, and per draft by this many times as much as elsewhere there.
_JUMP_RISE = 0.2
_JUMP_SLOPES = 3.0
_ROUNDING = 1e-9
# Of an interval of c about half the variance comes from the plain launches, which points at one batch share.
_OWN_VARIANCE = 0.5
# The noise of a jump of which nothing is seen counts by half: it is put together from three points or more, whose spreads together
# are known better than the Student quantiles of each assume (with three launches each 0.57 times as long), and c can be off at one
# edge only. It counts in full where as large a jump as that is seen.
_JUMP_NOISE = 0.5


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
                f"nothing was measured at {plural(batch, 'running request')} (measured: {near}), and c is not read between batches"
            )
        if num_drafted == 0:
            return Cost(value=1.0, low=1.0, high=1.0)
        found = self.measured.get((batch, num_drafted))
        if found is not None:
            return found
        neighbours = self.neighbours(batch, num_drafted)
        if neighbours is None:
            there = ", ".join(map(str, self.drafts(batch)))
            asked = "1 draft lies" if num_drafted == 1 else f"{num_drafted} drafts lie"
            raise UnknownCost(f"{asked} beyond those measured at {plural(batch, 'running request')} ({there})")
        return self._between(batch, num_drafted, *neighbours)

    def hides_padding(self, batch: int) -> bool:
        """Whether each measured number of drafts has twice the tokens a request of the one before.

        An engine that pads its batches to powers of two then shows a line, above which c between the points lies.
        """
        tokens = [k + 1 for k in self.drafts(batch)]
        return len(tokens) > 2 and all(after == 2 * before for before, after in itertools.pairwise(tokens))

    def neighbours(self, batch: int, num_draft_tokens: int) -> tuple[int, int] | None:
        """The measured numbers of drafts next below and next above."""
        below = [k for k in self.drafts(batch) if k < num_draft_tokens]
        above = [k for k in self.drafts(batch) if k > num_draft_tokens]
        return (below[-1], above[0]) if below and above else None

    def hidden_jump(self, batch: int, before: int, after: int) -> float | None:
        """The jump of c that could lie between two neighbouring measured points unseen; None where nothing tests it.

        On a line with one jump, every stretch without it rises by the same for each draft, so the jump is what this stretch rises
        by beyond that. It is compared with the stretch most like it, because the steepest other may be the one with the jump; where
        that is the steeper of the two, there is none here.
        """
        compared = self._most_alike(batch, before, after)
        return None if compared is None else max(0.0, compared[1] * (after - before))

    def shapes(self, batch: int, num_draft_tokens: int) -> tuple[float, float] | None:
        """The lowest and the highest c that a line with one jump, or a curve bent one way, could have at a number not measured.

        None where no third point tests the stretch it lies in. The measured values are taken as they are: noise is no part of this.

        A jump before `num_draft_tokens` puts c on a line that ends at the upper neighbour, one after it on a line that begins at
        the lower. A curve that flattens lies above the line between the neighbours and below every other stretch carried on to
        here; one that steepens, the reverse. A bend that the measured points rule out is left out.
        """
        neighbours = self.neighbours(batch, num_draft_tokens)
        jump = None if neighbours is None else self.hidden_jump(batch, *neighbours)
        if neighbours is None or jump is None:
            return None
        before, after = neighbours
        lower, upper = self.measured[batch, before].value, self.measured[batch, after].value
        share = (num_draft_tokens - before) / (after - before)
        line = lower + share * (upper - lower)
        carried_on = [
            lower + slope * (num_draft_tokens - before) if stretch[1] <= before else upper - slope * (after - num_draft_tokens)
            for stretch, slope in self._others(batch, before, after)
        ]
        flattens, steepens = self._bends(batch)
        low = min(line - share * jump, max(carried_on) if steepens else line)
        high = max(line + (1.0 - share) * jump, min(carried_on) if flattens else line)
        return max(low, min(lower, line)), min(high, max(upper, line))

    def jumps(self) -> tuple[Jump, ...]:
        """Stretches that are no line: their rise, even from the upper bound before to the lower bound after, stands out.

        Compared with the gentlest other stretch at the same batch, so a batch with two measured points shows none.
        """
        found = []
        for batch in self.batches:
            stretches = list(itertools.pairwise(self.drafts(batch)))
            for before, after in stretches:
                first, second = self.measured[batch, before], self.measured[batch, after]
                others = [slope for _, slope in self._others(batch, before, after)]
                if not others:
                    continue
                sure = second.low - first.high
                if sure > _JUMP_RISE * first.value and sure / (after - before) > _JUMP_SLOPES * max(min(others), 0.0):
                    found.append(Jump(batch=batch, before=before, after=after, cost_before=first.value, cost_after=second.value))
        return tuple(found)

    def _slope(self, batch: int, before: int, after: int) -> float:
        return (self.measured[batch, after].value - self.measured[batch, before].value) / (after - before)

    def _others(self, batch: int, before: int, after: int) -> list[tuple[tuple[int, int], float]]:
        """Every other stretch at this batch, with what c rises by there for each draft."""
        stretches = itertools.pairwise(self.drafts(batch))
        return [(stretch, self._slope(batch, *stretch)) for stretch in stretches if stretch != (before, after)]

    def _most_alike(self, batch: int, before: int, after: int) -> tuple[tuple[int, int], float] | None:
        """The other stretch whose steepness is nearest to this one's, and by how much this one is steeper."""
        own = self._slope(batch, before, after)
        steeper = [(stretch, own - slope) for stretch, slope in self._others(batch, before, after)]
        return min(steeper, key=lambda found: abs(found[1]), default=None)

    def _bends(self, batch: int) -> tuple[bool, bool]:
        """Whether c could flatten throughout with more drafts, and whether it could steepen throughout, as far as noise tells."""
        flattens = steepens = True
        for left, centre, right in _triples(self.drafts(batch)):
            share = (centre - left) / (right - left)
            off = self.measured[batch, centre].value - _line(
                self.measured[batch, left], self.measured[batch, right], left, right, centre
            )
            noise = self._own_noise(batch, {left: share - 1.0, centre: 1.0, right: -share})
            noise += _ROUNDING * self.measured[batch, centre].value
            flattens, steepens = flattens and off > -noise, steepens and off < noise
        return flattens, steepens

    def _own_noise(self, batch: int, weights: Mapping[int, float]) -> float:
        """Half width of a weighted sum of c at one batch by what each point's own launches do, the shared plain ones left out."""
        return math.sqrt(_OWN_VARIANCE) * math.hypot(*(weight * _reach(self.measured[batch, k]) for k, weight in weights.items()))

    def _jump_noise(self, batch: int, before: int, after: int) -> float:
        """Half width of `hidden_jump` before it is cut off at zero."""
        compared = self._most_alike(batch, before, after)
        assert compared is not None
        (first, second), _ = compared
        length = (after - before) / (second - first)
        weights = {before: -1.0, after: 1.0}
        for k, weight in ((first, length), (second, -length)):
            weights[k] = weights.get(k, 0.0) + weight
        return self._own_noise(batch, weights)

    def _between(self, batch: int, k: int, before: int, after: int) -> Cost:
        lower, upper = self.measured[batch, before], self.measured[batch, after]
        value = _line(lower, upper, before, after, k)
        bracket_low, bracket_high = min(lower.low, value), max(upper.high, value)
        shapes = self.shapes(batch, k)
        if shapes is None:
            return Cost(value=value, low=bracket_low, high=bracket_high)
        share = (k - before) / (after - before)
        shared = math.sqrt(1.0 - _OWN_VARIANCE) * ((1.0 - share) * _reach(lower) + share * _reach(upper))
        noise = math.hypot(shared, self._own_noise(batch, {before: 1.0 - share, after: share}))
        jump, jump_noise = self.hidden_jump(batch, before, after), self._jump_noise(batch, before, after)
        if jump_noise:
            jump_noise *= _JUMP_NOISE + (1.0 - _JUMP_NOISE) * min(1.0, (jump or 0.0) / jump_noise)
        # where the jump lies is not known: before k it lifts c above the line by what is left of the line, after k the reverse
        low = shapes[0] - math.hypot(noise, share * jump_noise)
        high = shapes[1] + math.hypot(noise, (1.0 - share) * jump_noise)
        return Cost(value=value, low=max(low, bracket_low), high=min(high, bracket_high))


def _reach(cost: Cost) -> float:
    return (cost.high - cost.low) / 2.0


def _line(lower: Cost, upper: Cost, before: int, after: int, k: int) -> float:
    return lower.value + (upper.value - lower.value) * (k - before) / (after - before)


def _triples(drafts: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Every inner number of drafts with its neighbours on either side."""
    return [(before, k, after) for (before, k), (_, after) in itertools.pairwise(itertools.pairwise(drafts))]
