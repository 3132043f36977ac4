"""The break-even points of a run, as the result shows them."""

from __future__ import annotations

import math

from breakeven.experiment.cost_ratios import Costs
from breakeven.experiment.summary import RunSummary
from breakeven.verdict.measured.wording import interval_of_log, listed
from breakeven.verdict.result import BreakEvenPoint

__all__ = ["break_even_points"]


def break_even_points(run: RunSummary, costs: Costs) -> tuple[BreakEvenPoint, ...]:
    points = []
    for (method, num_drafts, load), cost in costs.pooled.items():
        if not math.isfinite(cost.log.value):
            continue
        arms = listed(cost.arms)
        if any(run.arm(name).forced for name in cost.arms):
            basis = f"forced acceptance: {arms}"
        else:
            basis = f"real acceptance, as no arm with these drafts is forced: {arms}"
        if cost.disagreeing:
            basis += "; they differ, so the interval holds each one's own estimate"
        points.append(
            BreakEvenPoint(load=load, num_draft_tokens=num_drafts, method=method, cost_ratio=interval_of_log(cost.log), basis=basis)
        )
    return tuple(points)
