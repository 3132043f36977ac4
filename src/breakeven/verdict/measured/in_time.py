"""Arms whose answers all missed the limits of the plan: goodput is zero there, and a ratio with zero says nothing."""

from __future__ import annotations

import math
import statistics

from breakeven.experiment.summary import LogGoodput
from breakeven.findings import Finding
from breakeven.loadgen.measures import share_within
from breakeven.units import plural
from breakeven.verdict.measured.case import Case
from breakeven.verdict.measured.wording import listed, percent

__all__ = ["out_of_time"]


def out_of_time(case: Case) -> list[Finding]:
    """One finding a load point where some window of an arm or of the baseline has nothing within the limits."""
    objective = case.record.objective
    if objective.name != "goodput":
        return []
    measure = LogGoodput(objective)
    names = [case.record.baseline, *(arm.name for arm in case.candidates)]
    found = []
    for load in case.loads:
        late = {
            name: (num_late, len(trials))
            for name in names
            if (trials := case.run.trials(name, load))
            and (num_late := sum(not math.isfinite(case.run.figure(measure, trial)) for trial in trials))
        }
        if not late:
            continue
        told = listed(f"{name} in {num_late} of {plural(tried, 'window')}" for name, (num_late, tried) in late.items())
        found.append(
            Finding(
                code="goodput-zero",
                severity="warning",
                confidence="high",
                title=f"At {load} no token came within the limits ({objective.limits}): {told}. No ratio follows from that",
                evidence=tuple(
                    f"{name}: {percent(share)} of its tokens within the limits"
                    for name in names
                    if (share := _share(case, name, load)) is not None
                ),
                remedy="Loosen the limits, lower the load, or judge by throughput or request-speed; where the limits are binding, "
                "run the arm that keeps them",
            )
        )
    return found


def _share(case: Case, arm: str, load: str) -> float | None:
    objective = case.record.objective
    shares = [share_within(trial, objective.ttft_s, objective.tpot_s) for trial in case.run.trials(arm, load)]
    shares = [share for share in shares if math.isfinite(share)]
    return statistics.fmean(shares) if shares else None
