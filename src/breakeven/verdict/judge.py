"""From a run to its verdict. Reports render what is returned here and compute nothing."""

from __future__ import annotations

from breakeven.experiment.curving import without_unmeasured
from breakeven.experiment.record import RunRecord
from breakeven.verdict.measured.case import study
from breakeven.verdict.measured.cells import arm_infos, cells, loads, own_best, voided_trials
from breakeven.verdict.measured.comparisons import comparisons
from breakeven.verdict.measured.conclusions import conclusions
from breakeven.verdict.measured.costs import break_even_points
from breakeven.verdict.measured.deciding import decide
from breakeven.verdict.measured.findings import findings
from breakeven.verdict.measured.next_steps import next_measurements
from breakeven.verdict.measured.standing import cliffs, points_between, standings
from breakeven.verdict.result import Result

__all__ = ["judge"]


def judge(record: RunRecord) -> Result:
    """Everything that a run's trials say, and what they leave open. Pure: the same trials give the same result.

    A comparison without enough data, or whose computation fails, is undecided, or absent with a finding that says why: never a yes.
    """
    case = study(without_unmeasured(record))
    decision = decide(case)
    table = cells(case)
    compared = comparisons(case)
    points = break_even_points(case.run, case.costs)
    best = own_best(case, table)
    return Result(
        kind="measured",
        name=record.name,
        headline=decision.headline,
        decision=decision.decision,
        what_would_change_it=decision.what_would_change_it,
        baseline=record.baseline,
        threshold=record.threshold,
        objective=record.objective.text,
        arms=arm_infos(case),
        loads=loads(case),
        cells=table,
        comparisons=compared,
        break_even=points,
        break_even_between=points_between(case),
        cliffs=cliffs(case),
        standings=standings(case),
        own_best=best,
        conclusions=conclusions(case, table, compared, points, best),
        findings=findings(case),
        next_measurements=next_measurements(case, compared),
        voided=voided_trials(case),
        provenance=dict(record.provenance),
    )
