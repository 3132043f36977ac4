"""Which points of a plan's `curve` to measure in the next block. A pure function of the stored trials, as `stopping` is."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import replace

from breakeven.costs.cost_ratio import CostRatio, alike
from breakeven.costs.measured_surface import MeasuredSurface, half_width
from breakeven.costs.refining import first_points, middles
from breakeven.costs.surface import Cost
from breakeven.experiment.comparing import PAIR_ASSUMED_SD
from breakeven.experiment.cost_ratios import Costs, measure_costs
from breakeven.experiment.curve_plan import IDLE_ARM, CurvePlan, curve_arm, is_curve_arm
from breakeven.experiment.plan_schema import Plan
from breakeven.experiment.record import RunRecord
from breakeven.experiment.summary import RunSummary

__all__ = ["certain_points", "curve_points", "surface_of", "without_unmeasured"]


# where a single trial or broken ones allow no interval, the lower bound is as good as none
_NO_BOUND = 1e-9
# 95 % of the normal distribution: what to measure next is a guess, which needs no exact level
_Z = 1.96


def surface_of(run: RunSummary, costs: Costs, method: str) -> MeasuredSurface:
    """c wherever forced or fully drafting arms of `method` measured it in closed loop."""
    measured = {}
    for (found, num_drafts, label), cost in costs.pooled.items():
        batch = run.load(label).concurrency
        if found != method or batch is None or not math.isfinite(cost.log.value):
            continue
        measured[batch, num_drafts] = _cost(cost)
    idle = {}
    for (found, label), cost in costs.idle.items():
        batch = run.load(label).concurrency
        if found == method and batch is not None and math.isfinite(cost.log.value):
            idle[batch] = _cost(cost)
    return MeasuredSurface(measured=measured, idle=idle)


def _cost(ratio: CostRatio) -> Cost:
    value, low, high = math.exp(ratio.log.value), ratio.log.low, ratio.log.high
    return Cost(
        value=value,
        low=math.exp(low) if math.isfinite(low) else value * _NO_BOUND,
        high=math.exp(high) if math.isfinite(high) else math.inf,
    )


def curve_points(record: RunRecord, curve: CurvePlan) -> list[tuple[str, str]]:
    """(arm, load label) of every point of the curve that another block of launches should measure.

    A point that was begun goes on until it has `min_launches` blocks and then until its interval is narrow enough or its launches
    are spent. The arm that accepts few drafts is measured with the most drafts at the first and the last load, until it is plain
    that c is the same there, and everywhere once it disagrees.
    """
    run = RunSummary(record)
    costs = measure_costs(run)
    surface = surface_of(run, costs, curve.method)
    first, most = first_points(curve.num_draft_tokens), max(curve.num_draft_tokens)
    loads = [load for load in record.loads if load.concurrency is not None]
    spread = _spread(costs, curve.method)
    points = []
    for load in loads:
        batch = load.concurrency
        assert batch is not None
        wanted = {*first, *(k for k in surface.drafts(batch) if k in curve.num_draft_tokens)}
        if all(k in surface.drafts(batch) for k in first):
            blocks = min(costs.pooled[curve.method, k, load.label].log.num_blocks for k in surface.drafts(batch))
            wanted |= middles(surface, batch, curve.num_draft_tokens, curve.precision, _Z * spread / math.sqrt(blocks))
        if curve.idle:
            resting = surface.idle.get(batch)
            if _goes_on(run, costs, IDLE_ARM, load.label, None if resting is None else half_width(resting), curve.precision):
                points.append((IDLE_ARM, load.label))
        for k in sorted(wanted):
            checked = k == most and load in (loads[0], loads[-1])
            for low in (False, True) if checked or _depends_on_acceptance(costs, curve) else (False,):
                arm = curve_arm(k, low=low)
                if low and alike(*_both_ways(costs, k, load.label), spread=spread, enough_blocks=record.min_launches):
                    continue
                cost = surface.measured.get((batch, k))
                if _goes_on(run, costs, arm, load.label, None if cost is None else half_width(cost), curve.precision):
                    points.append((arm, load.label))
    return points


def certain_points(plan: Plan) -> list[tuple[str, str]]:
    """(arm, load label) of what every block of a plan with a curve measures at first: its arms, and the curve's ends."""
    assert plan.curve is not None
    arms = {curve_arm(k) for k in first_points(plan.curve.num_draft_tokens)}
    arms |= {name for name in plan.arm_plans if not is_curve_arm(name)}
    if plan.curve.idle:
        arms.add(IDLE_ARM)
    loads = [load.label for load in plan.loads()]
    check = curve_arm(max(plan.curve.num_draft_tokens), low=True)
    return [(arm, load) for arm in sorted(arms) for load in loads] + [
        (check, load) for load in dict.fromkeys((loads[0], loads[-1]))
    ]


def without_unmeasured(record: RunRecord) -> RunRecord:
    """`record` without the curve's arms that were never launched: they were not needed, which is no failure of theirs."""
    tried = {trial.arm for trial in record.trials} | set(record.failures)
    return replace(record, arms=[arm for arm in record.arms if arm.name in tried or not is_curve_arm(arm.name)])


def _goes_on(run: RunSummary, costs: Costs, arm: str, load: str, half_width: float | None, precision: float) -> bool:
    record = run.record
    launches = run.num_launches(arm)
    if launches >= record.max_launches:
        return False
    num_blocks = len(costs.own.get((arm, load), ()))
    if num_blocks < record.min_launches:
        # launches that gave nothing that counts are not repeated for ever
        return num_blocks > 0 or launches < record.min_launches
    return half_width is None or half_width > precision


def _spread(costs: Costs, method: str) -> float:
    """s.d. of the log c of one block, by all points of the curve together; as assumed until some point has two blocks.

    Good for choosing what to measure. Intervals rest on each point's own.
    """
    logs = [cost.log for (found, _, _), cost in costs.pooled.items() if found == method]
    squares = [log.spread**2 for log in logs if log.num_blocks > 1 and math.isfinite(log.spread)]
    return math.sqrt(statistics.fmean(squares)) if squares else PAIR_ASSUMED_SD


def _both_ways(costs: Costs, k: int, load: str) -> tuple[Mapping[int, list[float]], Mapping[int, list[float]]]:
    """The log c, by block, of the two arms with `k` drafts that accept half and few of them."""
    return costs.own.get((curve_arm(k), load), {}), costs.own.get((curve_arm(k, low=True), load), {})


def _depends_on_acceptance(costs: Costs, curve: CurvePlan) -> bool:
    most = max(curve.num_draft_tokens)
    return any(cost.disagreeing for (method, k, _), cost in costs.pooled.items() if method == curve.method and k == most)
