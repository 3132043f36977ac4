"""Costs of a round that cannot be, that disagree, or that do not explain the speed that was measured."""

from __future__ import annotations

from breakeven.costs.cost_ratio import IMPOSSIBLE_BELOW
from breakeven.findings import Finding
from breakeven.verdict.measured.case import Case
from breakeven.verdict.measured.prediction import GAP_ALPHA
from breakeven.verdict.measured.wording import figure, figure_of_log, interval_of_log, listed, percent

__all__ = ["cost_findings", "impossible_baselines"]


def cost_findings(case: Case) -> list[Finding]:
    return [*_costs_disagree(case), *_gaps(case)]


def impossible_baselines(case: Case) -> list[Finding]:
    return [
        Finding(
            code="impossible-cost-ratio",
            severity="error",
            confidence="high",
            title=f"A round would cost less than a plain step at {load}: the baseline there does not count",
            evidence=tuple(f"{arm}: c = {figure_of_log(case.own_cost(arm, load))}, limit {IMPOSSIBLE_BELOW}" for arm in arms),
            remedy=(
                "Look for what slows plain decoding only: graphs not captured, another process on the machine, fewer threads, other"
                " flags. Measure it again."
            ),
        )
        for load, arms in case.impossible.items()
    ]


def _costs_disagree(case: Case) -> list[Finding]:
    found = []
    for (_, num_drafts, load), cost in case.costs.pooled.items():
        if cost.disagreeing:
            lengths = [
                f"{name}: c = {figure_of_log(cost.arms[name])}"
                + (f" at accept length {case.lengths[name, load].value:.2f}" if (name, load) in case.lengths else "")
                for name in cost.disagreeing
            ]
            found.append(
                Finding(
                    code="cost-ratios-disagree",
                    severity="warning",
                    confidence="medium",
                    title=f"What a round with {num_drafts} drafts costs at {load} depends on how many are accepted",
                    evidence=tuple(lengths),
                    remedy=(
                        "Read the break-even length from the arm whose length lies nearest to it; force one more length there if it"
                        " matters."
                    ),
                )
            )
    return found


def _gaps(case: Case) -> list[Finding]:
    found = []
    for (name, load), prediction in case.predictions.items():
        if prediction.agrees or prediction.log_gap is None or case.compared[name, load].not_comparable:
            continue
        gap = interval_of_log(prediction.log_gap)
        side = "faster" if gap.estimate > 1 else "slower"
        found.append(
            Finding(
                code="measured-differs-from-predicted",
                severity="warning",
                confidence="high" if prediction.causes else "medium",
                title=f"{name} at {load} is {percent(abs(gap.estimate - 1))} {side} than accept length and round cost predict",
                evidence=(
                    f"measured over predicted: {figure(gap)} at {percent(1 - GAP_ALPHA)}; c from {listed(prediction.sources)}",
                    *prediction.causes,
                ),
                remedy=(
                    "Each cause above is measured: remove the largest and measure again."
                    if prediction.causes
                    else "Nothing measured here explains it: profile one round of this arm and of a forced one."
                ),
            )
        )
    return found
