"""A prediction from any cost surface: c at every batch and number of drafts, and what a drafter would make of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from breakeven.costs.acceptance_curve import AcceptanceCurve, Length
from breakeven.costs.payoff import Advice, BatchChoice, Expected, payoff
from breakeven.costs.prediction_error import PredictionError
from breakeven.costs.surface import Cost, CostSurface, UnknownCost
from breakeven.verdict.predicted.result import (
    AcceptanceNeeded,
    BatchPrediction,
    ErrorBar,
    Position,
    PredictedPoint,
    Range,
    Unpredicted,
)

__all__ = ["batch_predictions", "error_bar", "headline", "with_error", "with_times"]


class _Widened:
    """A surface whose intervals also hold the error that its kind of prediction was found to have."""

    def __init__(self, surface: CostSurface, error: PredictionError) -> None:
        self._surface, self._error = surface, error

    @property
    def kind(self) -> str:
        return self._surface.kind

    def cost(self, batch: int, num_drafted: int) -> Cost:
        known = self._surface.cost(batch, num_drafted)
        if num_drafted == 0:
            return known
        # what the parts leave open and what such predictions were off by describe the same error, so the wider one counts
        factor = 1.0 + self._error.tenth
        return Cost(
            value=known.value,
            # a round verifies more than a plain step does: no error makes it cheaper
            low=max(min(known.low, known.value / factor), min(1.0, known.value)),
            high=max(known.high, known.value * factor),
            doubts=known.doubts,
        )


def with_error(surface: CostSurface, error: PredictionError) -> CostSurface:
    return _Widened(surface, error)


def batch_predictions(
    surface: CostSurface, acceptance: AcceptanceCurve | None, batches: Sequence[int], drafts: Sequence[int], *, threshold: float
) -> tuple[tuple[BatchPrediction, ...], tuple[Unpredicted, ...]]:
    """Every batch with its numbers of drafts; and the points that the surface does not reach, with the reason."""
    if acceptance is None:
        return _costs_only(surface, batches, drafts)
    found, unknown = [], []
    for choice in payoff(surface, acceptance, batches, drafts, threshold=threshold):
        unknown += [_unknown(choice.batch, num_drafted, reason) for num_drafted, reason in choice.unknown]
        if choice.rows:
            found.append(_batch(choice))
    return tuple(found), _grouped(unknown)


def with_times(batch: BatchPrediction, plain_s: float | None) -> BatchPrediction:
    """The same with the seconds of a plain step, and of a round as c of them; as it is where those are not known."""
    if plain_s is None:
        return batch
    points = tuple(point.model_copy(update={"round_s": point.cost.value * plain_s}) for point in batch.points)
    return batch.model_copy(update={"plain_s": plain_s, "points": points})


def headline(batches: Iterable[BatchPrediction], threshold: float) -> str:
    """The prediction in one sentence."""
    found = list(batches)
    judged = [(batch, point) for batch in found for point in batch.points if point.outcome is not None]
    if not found:
        return "Nothing could be predicted; the reasons are below."
    if not judged:
        dear = max((point.cost.value, batch.batch, point.num_draft_tokens) for batch in found for point in batch.points)
        cheap = min((point.cost.value, batch.batch, point.num_draft_tokens) for batch in found for point in batch.points)
        ask = "Give --accept to see what a drafter makes of it."
        low = f"{cheap[0]:.2f} (B={cheap[1]}, k={cheap[2]})"
        span = low if cheap == dear else f"{low} to {dear[0]:.2f} (B={dear[1]}, k={dear[2]})"
        return f"Predicted break-even accept length: {span}. {ask}"
    pays = [batch.batch for batch in found if any(point.outcome == "pays" for point in batch.points)]
    slower = [batch.batch for batch in found if all(point.outcome == "slower" for point in batch.points)]
    other = [batch.batch for batch in found if batch.batch not in pays and batch.batch not in slower]
    parts = []
    for batches_of, words in ((pays, "it pays"), (slower, "it is slower whatever the number of drafts"), (other, "undecided")):
        if batches_of:
            parts.append(f"{words} at B = {', '.join(map(str, batches_of))}")
    text = "; ".join(parts)
    return f"Predicted, not measured: {text} (threshold {threshold * 100:.0f} %)."


def error_bar(error: PredictionError) -> ErrorBar:
    return ErrorBar(what=error.what, half=error.half, tenth=error.tenth, num=error.num, num_targets=error.num_targets)


def _costs_only(
    surface: CostSurface, batches: Sequence[int], drafts: Sequence[int]
) -> tuple[tuple[BatchPrediction, ...], tuple[Unpredicted, ...]]:
    found, unknown = [], []
    for batch in batches:
        points = []
        for num_drafted in drafts:
            try:
                cost = surface.cost(batch, num_drafted)
            except UnknownCost as missing:
                unknown.append(_unknown(batch, num_drafted, str(missing)))
                continue
            points.append(PredictedPoint(num_draft_tokens=num_drafted, cost=_range(cost), doubts=cost.doubts))
        if points:
            found.append(BatchPrediction(batch=batch, points=tuple(points)))
    return tuple(found), _grouped(unknown)


def _unknown(batch: int, num_drafted: int, reason: str) -> Unpredicted:
    return Unpredicted(label=f"B={batch}, k={num_drafted}", reason=reason)


def _grouped(unknown: Sequence[Unpredicted]) -> tuple[Unpredicted, ...]:
    """One entry a reason: a missing kernel is missing at every batch."""
    labels: dict[str, list[str]] = {}
    for entry in unknown:
        labels.setdefault(entry.reason, []).append(entry.label)
    return tuple(
        Unpredicted(label=names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}", reason=reason)
        for reason, names in labels.items()
    )


def _batch(choice: BatchChoice) -> BatchPrediction:
    return BatchPrediction(
        batch=choice.batch,
        points=tuple(_point(row) for row in choice.rows),
        best=choice.best.num_drafted if choice.best is not None else None,
        level=choice.level,
        needed=_needed(choice.advice) if choice.advice is not None else None,
    )


def _point(row: Expected) -> PredictedPoint:
    return PredictedPoint(
        num_draft_tokens=row.num_drafted,
        cost=_range(row.cost),
        accept_length=_range(row.length),
        speedup=Range(value=row.speedup, low=row.low, high=row.high),
        outcome=row.outcome,
        doubts=row.cost.doubts,
    )


def _range(known: Cost | Length) -> Range:
    return Range(value=known.value, low=known.low, high=known.high)


def _needed(advice: Advice) -> AcceptanceNeeded:
    return AcceptanceNeeded(
        num_draft_tokens=advice.num_drafted,
        accept_length=advice.length,
        break_even=advice.break_even,
        needed=advice.needed,
        positions=tuple(
            Position(position=lever.position, now=lever.now, needed=lever.needed, gain_per_point=lever.gain)
            for lever in advice.levers
            if math.isfinite(lever.gain)
        ),
        everywhere=advice.everywhere,
    )
