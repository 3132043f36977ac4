"""Cost ratios from compared arms or as reported, and what they say of arms at loads where their own speed was not reported."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from breakeven.printed.figures import Bounds
from breakeven.verdict.reported.arms import LoadKey, ReportedArm
from breakeven.verdict.reported.baselines import PLAIN_NOT_IN_TABLE, baseline_for
from breakeven.verdict.reported.comparing import IMPOSSIBLE_BELOW, Pair
from breakeven.verdict.reported.likeness import alike
from breakeven.verdict.reported.readings import ArmReading
from breakeven.verdict.reported.without_interval import outcome_without_interval
from breakeven.verdict.result import Outcome

__all__ = ["CostRatio", "Prediction", "cost_ratios", "predict"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRatio:
    """c at one load for one shape of drafter. `text` says what it was computed from."""

    arm: ReportedArm
    load: LoadKey
    value: float
    is_own: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What the identity AL / c gives for an arm at a load where it was not measured."""

    arm: ReportedArm
    baseline: str
    load: LoadKey
    ratio: float
    accept_length: Bounds
    cost: CostRatio
    outcome: Outcome
    why: str


def cost_ratios(pairs: tuple[Pair, ...], readings: tuple[ArmReading, ...]) -> tuple[CostRatio, ...]:
    """Break-even accept lengths: AL over the measured ratio where arms were compared fairly, elsewhere those that were reported."""
    found = [
        CostRatio(
            arm=pair.arm,
            load=pair.load,
            value=pair.cost,
            is_own=True,
            text=f"accept length {pair.accept_length.estimate:.2f} over a speedup of {pair.ratio:.2f}x",
        )
        for pair in pairs
        if pair.is_fair and pair.cost is not None and pair.accept_length is not None
    ]
    measured = {(cost.arm.name, cost.load) for cost in found}
    for reading in readings:
        found += [
            CostRatio(arm=reading.arm, load=point.load, value=point.cost_ratio.value, is_own=False, text="cost ratio as reported")
            for point in reading.arm.points
            if point.cost_ratio is not None
            and point.cost_ratio.value >= IMPOSSIBLE_BELOW
            and (reading.arm.name, point.load) not in measured
        ]
    return tuple(found)


def predict(
    readings: tuple[ArmReading, ...],
    costs: tuple[CostRatio, ...],
    pairs: tuple[Pair, ...],
    arms: tuple[ReportedArm, ...],
    threshold: float,
) -> tuple[Prediction, ...]:
    """AL / c for arms at loads where their own speed was not reported but the cost of their shape is known."""
    measured = {(pair.arm.name, pair.load) for pair in pairs}
    found = []
    for reading in readings:
        for load in dict.fromkeys(cost.load for cost in costs):
            length = reading.accept_length(load)
            if length is None or (reading.arm.name, load) in measured or reading.is_at_floor or reading.at(load).is_upper_bound:
                continue
            here = [cost for cost in costs if cost.load == load]
            own = [cost for cost in here if cost.arm.name == reading.arm.name]
            like = [cost for cost in here if alike(cost.arm, reading.arm)]
            cost = _middle(own or like)
            if cost is None:
                continue
            ratio = length.estimate / cost.value
            outcome, why = outcome_without_interval(ratio, threshold)
            baseline = baseline_for(reading.arm, arms)
            found.append(
                Prediction(
                    arm=reading.arm,
                    baseline=baseline.name if baseline is not None else PLAIN_NOT_IN_TABLE,
                    load=load,
                    ratio=ratio,
                    accept_length=length,
                    cost=cost,
                    outcome=outcome,
                    why=f"predicted, not measured: accept length {length.estimate:.2f} over cost ratio {cost.value:.2f}; {why}",
                )
            )
    return tuple(found)


def _middle(costs: list[CostRatio]) -> CostRatio | None:
    if not costs:
        return None
    middle = median(cost.value for cost in costs)
    return min(costs, key=lambda cost: abs(cost.value - middle))
