"""A prediction from a table of measured rows: the rows that lack a speedup, an accept length asked for, other numbers of drafts."""

from __future__ import annotations

from pathlib import Path

from breakeven.costs.table_predictions import Asked, TablePrediction, predict_table
from breakeven.verdict.predicted.reported_rows import load_rows
from breakeven.verdict.predicted.result import Prediction, Range, Row, Unpredicted
from breakeven.verdict.predicted.surfaces import error_bar

__all__ = ["predict_from_table"]


def predict_from_table(path: Path, asked: Asked, *, threshold: float | None) -> Prediction:
    """Raises ReportedError: the table cannot be read."""
    title, rows, own_threshold, notes = load_rows(path)
    limit = own_threshold if threshold is None else threshold
    found, void, missing = predict_table(rows, asked, threshold=limit)
    left_out = {row.number for row in void}
    known = sum(1 for row in rows if row.cost is not None and row.number not in left_out)
    return Prediction(
        kind="measured rows",
        title=f"{title}: {known} of {len(rows)} rows measured",
        headline=_headline(found, known, len(missing)),
        threshold=limit,
        rows=tuple(_row(one) for one in found),
        left_out=tuple(
            Unpredicted(
                label=f"row {row.number} ({row.label})",
                reason=row.why_impossible,
            )
            for row in void
        ),
        unpredicted=tuple(Unpredicted(label=label, reason=reason) for label, reason in missing),
        notes=notes,
        next_measurements=_next(found),
    )


def _headline(found: tuple[TablePrediction, ...], known: int, num_missing: int) -> str:
    if not known:
        return "Nothing can be predicted: no row has both an accept length and a speedup against plain decoding at the same load."
    if not found:
        if num_missing:
            return "Nothing that was asked for can be predicted; the reasons are below."
        return (
            "Every row has its speedup; ask for an accept length (--accept 2.4) or other numbers of drafts (--num-draft-tokens 7)."
        )
    counts: dict[str, int] = {}
    for one in found:
        counts[one.outcome] = counts.get(one.outcome, 0) + 1
    told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    return f"Predicted, not measured: {len(found)} speedup{'s' if len(found) > 1 else ''}: {told}."


def _row(one: TablePrediction) -> Row:
    return Row(
        label=one.label,
        accept_length=Range(value=one.accept_length.value, low=one.accept_length.low, high=one.accept_length.high),
        cost=Range(value=one.cost.value, low=one.cost.low, high=one.cost.high),
        speedup=Range(value=one.speedup, low=one.low, high=one.high),
        speed=None
        if one.plain_speed is None
        else Range(value=one.speedup * one.plain_speed, low=one.low * one.plain_speed, high=one.high * one.plain_speed),
        outcome=one.outcome,
        error=error_bar(one.error),
        evidence=one.evidence,
        doubts=one.doubts,
    )


def _next(found: tuple[TablePrediction, ...]) -> tuple[str, ...]:
    open_ones = [one for one in found if one.outcome == "undecided"]
    if not open_ones:
        return ()
    nearest = min(open_ones, key=lambda one: abs(one.speedup - 1.0))
    return (f"Measure {nearest.label}: predicted {nearest.speedup:.2f}x, which the error bar does not decide.",)
