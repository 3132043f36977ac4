"""What is odd about a run, most serious first."""

from __future__ import annotations

from breakeven.findings import Finding, worst_first
from breakeven.verdict.measured.case import Case
from breakeven.verdict.measured.cost_findings import cost_findings, impossible_baselines
from breakeven.verdict.measured.fairness import fairness_findings
from breakeven.verdict.measured.floor import floor_findings
from breakeven.verdict.measured.in_time import out_of_time
from breakeven.verdict.measured.length_findings import length_findings
from breakeven.verdict.measured.missing import missing_findings
from breakeven.verdict.measured.schedules import schedule_findings
from breakeven.verdict.measured.standing import hidden_padding

__all__ = ["findings"]


def findings(case: Case) -> tuple[Finding, ...]:
    return worst_first(
        [
            *impossible_baselines(case),
            *floor_findings(case),
            *length_findings(case),
            *cost_findings(case),
            *hidden_padding(case),
            *schedule_findings(case),
            *out_of_time(case),
            *missing_findings(case),
            *fairness_findings(case),
        ]
    )
