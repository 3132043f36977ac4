"""The break-even surface of a run as its report shows it: points read off lines, cliffs, and where each drafter stands to it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from breakeven.costs.measured_surface import Jump, MeasuredSurface
from breakeven.costs.surface import Cost, UnknownCost
from breakeven.experiment.cost_ratios import FULLY_DRAFTED
from breakeven.experiment.curving import surface_of
from breakeven.experiment.scheduled_acceptance import off_schedule
from breakeven.findings import Finding
from breakeven.verdict.measured.case import Case
from breakeven.verdict.measured.wording import figure, listed, percent
from breakeven.verdict.predicted.measured_run import PADDING_HIDDEN, jump_text
from breakeven.verdict.result import BreakEvenPoint, Cliff, Interval, Side, Standing

__all__ = ["cliffs", "hidden_padding", "points_between", "standings"]


def points_between(case: Case) -> tuple[BreakEvenPoint, ...]:
    """c of every number of drafts that lies between measured ones, load by load."""
    return tuple(
        _read_off(method, surface, load, batch, k)
        for method, surface in _surfaces(case).items()
        for load, batch in _closed_loads(case)
        if (drafts := surface.drafts(batch))
        for k in range(drafts[0] + 1, drafts[-1])
        if k not in drafts
    )


def cliffs(case: Case) -> tuple[Cliff, ...]:
    labels = {batch: load for load, batch in _closed_loads(case)}
    return tuple(
        _cliff(method, labels[jump.batch], jump) for method, surface in _surfaces(case).items() for jump in surface.jumps()
    )


def hidden_padding(case: Case) -> Iterator[Finding]:
    for method, surface in _surfaces(case).items():
        batches = [batch for batch in surface.batches if surface.hides_padding(batch)]
        if batches:
            drafts = surface.drafts(batches[0])
            yield Finding(
                code="padding-would-not-show",
                severity="info",
                confidence="medium",
                title=f"Break-even lengths of {method} between measured numbers of drafts may be too low",
                evidence=(f"{listed(map(str, drafts))} drafts were measured: {PADDING_HIDDEN}",),
                remedy=f"Where they matter, measure a number of drafts between {drafts[-2]} and {drafts[-1]} too (docs/curve.md).",
            )


def standings(case: Case) -> tuple[Standing, ...]:
    """Every arm that drafts for real against the c of its own number of drafts, wherever its accept length was counted."""
    surfaces = _surfaces(case)
    found = []
    for arm in case.candidates:
        if arm.speculation is None:
            continue
        surface = surfaces.get(arm.speculation.method)
        for load, batch in _closed_loads(case):
            length = case.lengths.get((arm.name, load))
            if length is None or surface is None:
                continue
            k = arm.speculation.drafts_at(batch)
            if k == 0:
                continue
            side: Side
            cost: Interval | None
            try:
                cost = _interval(surface.cost(batch, k))
            except UnknownCost as missing:
                side, why, cost = "cannot be told", str(missing), None
            else:
                side, why = _side(length.interval, cost, length.counts.drafted_share)
                if reason := off_schedule(length.counts, arm, case.run.load(load)):
                    side, why = "cannot be told", reason
            found.append(
                Standing(
                    arm=arm.name,
                    load=load,
                    num_draft_tokens=k,
                    method=arm.speculation.method,
                    accept_length=length.interval,
                    break_even=cost,
                    read_off=cost is not None and (batch, k) not in surface.measured,
                    side=side,
                    why=why,
                )
            )
    return tuple(found)


def _side(length: Interval, cost: Interval, drafted_share: float) -> tuple[Side, str]:
    """Only intervals that do not touch tell. Where an arm does not draft at every step, its mean step is no round."""
    told = f"accept length {figure(length)}, break-even {figure(cost)}"
    if drafted_share < FULLY_DRAFTED:
        return (
            "cannot be told",
            f"{told}, but it drafts at {percent(drafted_share)} of steps, and the others cost less than a round",
        )
    if length.low is not None and cost.high is not None and length.low > cost.high:
        return "above", told
    if length.high is not None and cost.low is not None and length.high < cost.low:
        return "below", told
    return "cannot be told", f"{told}: the intervals overlap or are open"


def _read_off(method: str, surface: MeasuredSurface, load: str, batch: int, k: int) -> BreakEvenPoint:
    return BreakEvenPoint(
        load=load,
        num_draft_tokens=k,
        method=method,
        cost_ratio=_interval(surface.cost(batch, k)),
        basis=f"read off the line between {listed(map(str, surface.neighbours(batch, k) or ()))} drafts"
        + (f"; {PADDING_HIDDEN}" if surface.hides_padding(batch) else ""),
    )


def _surfaces(case: Case) -> dict[str, MeasuredSurface]:
    """By method, in the order of arms; loads whose baseline cannot be right are left out."""
    methods = dict.fromkeys(arm.speculation.method for arm in case.record.arms if arm.speculation is not None)
    found = {method: surface_of(case.run, case.costs, method) for method in methods}
    return {method: surface for method, surface in found.items() if surface.measured}


def _closed_loads(case: Case) -> Iterator[tuple[str, int]]:
    return ((load.label, load.concurrency) for load in case.record.loads if load.concurrency is not None)


def _interval(cost: Cost) -> Interval:
    """Open, on both sides, where the data allow no upper bound."""
    if not math.isfinite(cost.high):
        return Interval(estimate=cost.value)
    return Interval(estimate=cost.value, low=cost.low, high=cost.high)


def _cliff(method: str, load: str, jump: Jump) -> Cliff:
    return Cliff(
        load=load,
        method=method,
        drafts_before=jump.before,
        drafts_after=jump.after,
        cost_before=jump.cost_before,
        cost_after=jump.cost_after,
        text=jump_text(jump),
    )
