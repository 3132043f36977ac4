"""From accept length to speedup: a drafter's acceptance on a cost surface, the best number of drafts by batch, and what is missing.

The accept length and the cost of a round are known apart from each other, so their relative errors add in quadrature.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from breakeven.costs.acceptance_curve import AcceptanceCurve, Length, Lever
from breakeven.costs.surface import Cost, CostSurface, UnknownCost

__all__ = ["Advice", "BatchChoice", "Expected", "Outcome", "expected_speedup", "payoff", "required"]

Outcome = Literal["pays", "slower", "no useful difference", "undecided"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The predicted decode speedup at one batch and number of drafts, with the accept length and the cost it comes from."""

    batch: int
    num_drafted: int
    length: Length
    cost: Cost
    speedup: float
    low: float
    high: float
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What a drafter needs with `num_drafted` drafts for the whole interval to pay: accept length `needed`, now `length`.

    levers: one position's conditional acceptance alone, best first; everywhere: added to all of them, None where no chain of
    conditional acceptances up to 0.95 reaches it.
    """

    num_drafted: int
    length: float
    break_even: float
    needed: float
    levers: tuple[Lever, ...]
    everywhere: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchChoice:
    """One batch size: every number of drafts, the best of them, and advice where none surely pays.

    best: None where no number of drafts has a value above 1, so that plain decoding is the choice.
    level: numbers of drafts whose interval reaches the best one's value, so that nothing tells them apart.
    """

    batch: int
    rows: tuple[Expected, ...]
    best: Expected | None
    level: tuple[int, ...]
    advice: Advice | None
    unknown: tuple[tuple[int, str], ...]


def expected_speedup(length: Length, cost: Cost, *, batch: int, num_drafted: int, threshold: float) -> Expected:
    """AL / c with the relative half-widths of both in quadrature on the log scale."""
    value = length.value / cost.value
    down = math.hypot(math.log(length.value / length.low), math.log(cost.high / cost.value))
    up = math.hypot(math.log(length.high / length.value), math.log(cost.value / cost.low))
    low, high = value * math.exp(-down), value * math.exp(up)
    return Expected(
        batch=batch,
        num_drafted=num_drafted,
        length=length,
        cost=cost,
        speedup=value,
        low=low,
        high=high,
        outcome=outcome_of(low, high, threshold),
    )


def outcome_of(low: float, high: float, threshold: float) -> Outcome:
    """The four outcomes of an interval; NaN is undecided."""
    if low > 1.0 + threshold:
        return "pays"
    if high < 1.0 - threshold:
        return "slower"
    if low >= 1.0 - threshold and high <= 1.0 + threshold:
        return "no useful difference"
    return "undecided"


def required(cost: Cost, threshold: float) -> float:
    """The accept length at which even the dear end of c pays by more than the threshold."""
    return cost.high * (1.0 + threshold)


def payoff(
    surface: CostSurface, acceptance: AcceptanceCurve, batches: Iterable[int], drafts: Sequence[int], *, threshold: float
) -> tuple[BatchChoice, ...]:
    """Predicted speedup of a drafter at every batch and number of drafts that the surface reaches."""
    return tuple(_choice(surface, acceptance, batch, drafts, threshold) for batch in batches)


def _choice(surface: CostSurface, acceptance: AcceptanceCurve, batch: int, drafts: Sequence[int], threshold: float) -> BatchChoice:
    rows, unknown = [], []
    for num_drafted in drafts:
        try:
            cost = surface.cost(batch, num_drafted)
        except UnknownCost as missing:
            unknown.append((num_drafted, str(missing)))
            continue
        rows.append(
            expected_speedup(acceptance.length(num_drafted), cost, batch=batch, num_drafted=num_drafted, threshold=threshold)
        )
    best = max(rows, key=lambda row: row.speedup, default=None)
    worth = best if best is not None and best.speedup > 1.0 else None
    level = tuple(
        row.num_drafted for row in rows if worth is not None and row is not worth and row.speedup > worth.speedup * (1 - threshold)
    )
    advice = None
    if best is not None and not any(row.outcome == "pays" for row in rows):
        # the number of drafts that asks least of a drafter in relation to what this one has
        # and of those one that k drafts can reach, where there is one
        reachable = [row for row in rows if required(row.cost, threshold) <= row.num_drafted + 1] or rows
        nearest = min(reachable, key=lambda row: required(row.cost, threshold) / row.length.value)
        advice = _advice(acceptance, nearest, threshold)
    return BatchChoice(batch=batch, rows=tuple(rows), best=worth, level=level, advice=advice, unknown=tuple(unknown))


def _advice(acceptance: AcceptanceCurve, row: Expected, threshold: float) -> Advice:
    # what is needed is needed of all drafts of the round, those beyond the measured positions included
    needed, prolonged = required(row.cost, threshold), acceptance.prolonged(row.num_drafted)
    return Advice(
        num_drafted=row.num_drafted,
        length=row.length.value,
        break_even=row.cost.value,
        needed=needed,
        levers=prolonged.levers(row.num_drafted, needed),
        everywhere=prolonged.lifted_everywhere(row.num_drafted, needed),
    )
