"""A verdict on figures that somebody reported: `judge_reported(path)` reads a table and returns the one result type."""

from __future__ import annotations

from pathlib import Path

from breakeven.errors import ReportedError
from breakeven.printed.figures import PrintedFigure
from breakeven.verdict.reported.admission import cap_of
from breakeven.verdict.reported.arms import LoadKey, Point, ReportedArm
from breakeven.verdict.reported.case import Case, study
from breakeven.verdict.reported.conclusions import conclusions
from breakeven.verdict.reported.deciding import decide
from breakeven.verdict.reported.files import load_table
from breakeven.verdict.reported.findings import findings
from breakeven.verdict.reported.missing import missing_fields
from breakeven.verdict.reported.schema import ReportedTable
from breakeven.verdict.result import (
    AcceptanceSummary,
    ArmInfo,
    BestOfArm,
    BreakEvenPoint,
    Cell,
    Comparison,
    Interval,
    Load,
    Result,
)

__all__ = ["judge_reported", "judge_table"]


def judge_reported(path: Path) -> Result:
    """Read `path` and judge it. Raises ReportedError for a table that cannot be read or contradicts itself."""
    table = load_table(path)
    try:
        return judge_table(table, title=path.stem)
    except ReportedError as error:
        raise ReportedError(f"{path}: {error}") from None


def judge_table(table: ReportedTable, *, title: str = "reported figures") -> Result:
    """A result of kind "reported": every interval is open, because reported figures carry no raw samples."""
    case = study(table)
    decision = decide(case)
    baselines = list(dict.fromkeys(pair.baseline.name for pair in case.pairs)) or [arm.name for arm in case.plain]
    loads = sorted({point.load for arm in case.arms for point in arm.points}, key=lambda load: load.order)
    return Result(
        kind="reported",
        name=table.name or title,
        headline=decision.headline,
        decision=decision.decision,
        what_would_change_it=decision.what_would_change_it,
        baseline=baselines[0] if len(baselines) == 1 else None,
        threshold=table.threshold,
        arms=tuple(_arm_info(arm, case) for arm in case.arms),
        loads=tuple(Load(label=load.label, concurrency=load.concurrency) for load in loads),
        cells=tuple(_cell(case, arm, point) for arm in case.arms for point in arm.points),
        comparisons=(*_compared(case), *_predicted(case)),
        break_even=tuple(
            BreakEvenPoint(
                load=cost.load.label,
                num_draft_tokens=_drafted(case, cost.arm) or 0,
                method=case.method_label(cost.arm),
                cost_ratio=Interval(estimate=cost.value),
                basis=f"{cost.arm.name}: {cost.text}",
            )
            for cost in case.costs
        ),
        own_best=_own_best(case),
        conclusions=conclusions(case),
        findings=(*findings(case), *missing_fields(case)),
        next_measurements=decision.next_measurements,
        provenance=_provenance(table),
    )


def _interval(figure: PrintedFigure | None) -> Interval | None:
    return None if figure is None else Interval(estimate=figure.value)


def _drafted(case: Case, arm: ReportedArm) -> int | None:
    reading = case.reading(arm)
    inferred = reading.overall.shape if reading is not None else None
    return arm.shape.num_drafted or (inferred.num_drafted if inferred is not None else None)


def _arm_info(arm: ReportedArm, case: Case) -> ArmInfo:
    cap = cap_of(arm)
    config = f"steps-topk-drafts {arm.config}" if "-" in arm.config else ""
    return ArmInfo(
        name=arm.name,
        engine=arm.engine or "not reported",
        version=arm.version_text,
        method=case.method_label(arm),
        num_draft_tokens=_drafted(case, arm) if arm.is_speculative else None,
        drafter=arm.drafter,
        max_running_requests=None if cap.is_assumed else cap.number,
        is_baseline=not arm.is_speculative,
        notes="; ".join(part for part in (config, f"running requests: {cap.text}", arm.notes) if part),
    )


def _cell(case: Case, arm: ReportedArm, point: Point) -> Cell:
    acceptance = _acceptance(case, arm, point.load)
    speed = point.request_speed.value if point.request_speed is not None else None
    plain_length = 1.0 if not arm.is_speculative else None
    length = acceptance.accept_length.estimate if acceptance is not None else plain_length
    return Cell(
        arm=arm.name,
        load=point.load.label,
        throughput=_interval(point.throughput),
        request_speed=_interval(point.request_speed),
        tpot_s=None if speed is None else 1.0 / speed,
        round_s=None if speed is None or length is None else length / speed,
        num_running=cap_of(arm).admitted(point.load.concurrency) if point.load.concurrency is not None else None,
        acceptance=acceptance,
    )


def _acceptance(case: Case, arm: ReportedArm, load: LoadKey) -> AcceptanceSummary | None:
    reading = case.reading(arm)
    length = reading.accept_length(load) if reading is not None else None
    if reading is None or length is None:
        return None
    at_load = reading.at(load)
    return AcceptanceSummary(
        accept_length=Interval(estimate=length.estimate),
        per_round_length=length.estimate if at_load.is_upper_bound else None,
        draft_acceptance=at_load.draft_acceptance,
        drafted_share=arm.drafted_share,
        source="reported",
        exact=not at_load.is_upper_bound,
    )


def _compared(case: Case) -> list[Comparison]:
    return [
        Comparison(
            arm=pair.arm.name,
            baseline=pair.baseline.name,
            load=pair.load.label,
            ratio=Interval(estimate=pair.ratio),
            outcome=pair.outcome,
            why=f"{pair.measure}: {pair.why}",
            basis="reported",
        )
        for pair in case.pairs
    ]


def _predicted(case: Case) -> list[Comparison]:
    return [
        Comparison(
            arm=prediction.arm.name,
            baseline=prediction.baseline,
            load=prediction.load.label,
            ratio=Interval(estimate=prediction.ratio),
            outcome=prediction.outcome,
            why=prediction.why,
            predicted=Interval(estimate=prediction.ratio),
            basis="predicted",
        )
        for prediction in case.predictions
    ]


def _own_best(case: Case) -> tuple[BestOfArm, ...]:
    best = []
    for arm in case.arms:
        points = [point for point in arm.points if point.throughput is not None]
        if not points:
            continue
        top = max(points, key=lambda point: point.throughput.value if point.throughput is not None else 0.0)
        assert top.throughput is not None
        cap = cap_of(arm)
        running = cap.admitted(top.load.concurrency) if top.load.concurrency is not None else None
        note = "" if top.load.concurrency is not None else "concurrency not reported"
        if cap.number is not None:
            note = "; ".join(part for part in (note, f"running requests: {cap.text}") if part)
        best.append(
            BestOfArm(
                arm=arm.name,
                load=top.load.label,
                throughput=Interval(estimate=top.throughput.value),
                num_running=running,
                note=note,
            )
        )
    return tuple(best)


def _provenance(table: ReportedTable) -> dict[str, str]:
    facts = {
        "figures": "as reported; no raw samples, so no intervals",
        "reported by": table.source,
        "hardware": table.hardware,
        "target": table.target.name,
        "target's model_type": table.target.model_type,
        "target's quantization": table.target.quantization,
        "target's weights": f"{table.target.weights_gb} GB" if table.target.weights_gb is not None else None,
        "notes on the target": table.target.notes,
    }
    return {key: value for key, value in facts.items() if value}
