"""Speedups that a table lacks, predicted from the rows it has, each with the error bar of the way it was predicted.

In order of how far such predictions were off: other data sets of the same configuration where there are three, another number of
drafts of the same drafter on the same data set, another drafter of the same shape, then one or two data sets.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from breakeven.costs.acceptance_curve import AcceptanceCurve, Length
from breakeven.costs.cost_ratio import IMPOSSIBLE_BELOW
from breakeven.costs.neighbours import cost_from, fitting
from breakeven.costs.payoff import Outcome, outcome_of
from breakeven.costs.prediction_error import KINDS, PredictionError, data_set_error
from breakeven.costs.round_line import RoundLine
from breakeven.costs.surface import Cost
from breakeven.costs.table import TableRow
from breakeven.costs.validation import as_neighbour, impossible, other_drafters
from breakeven.printed.figures import Bounds

__all__ = ["Asked", "TablePrediction", "predict_table"]


# what cannot be predicted, and why
Missing = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a user wants of a table besides the rows without a speedup: an accept length, or another number of drafts."""

    accept_length: Bounds | None = None
    plain_speed: float | None = None
    num_drafted: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePrediction:
    """speedup in [low, high] of `label`; `evidence` are the rows it rests on, `error` how such predictions were off elsewhere."""

    label: str
    accept_length: Length
    cost: Cost
    speedup: float
    low: float
    high: float
    plain_speed: float | None
    outcome: Outcome
    error: PredictionError
    evidence: tuple[str, ...]
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    label: str
    row: TableRow
    length: Length


def predict_table(
    rows: Sequence[TableRow], asked: Asked, *, threshold: float
) -> tuple[tuple[TablePrediction, ...], tuple[TableRow, ...], tuple[Missing, ...]]:
    """Predictions; the rows left out as impossible; and what could not be predicted, with the reason."""
    void = impossible(rows)
    void_numbers = {row.number for row in void}
    known = [row for row in rows if row.number not in void_numbers and row.cost is not None]
    found: list[TablePrediction] = []
    missing: list[Missing] = []
    for wanted in _wanted(rows, known, asked):
        prediction = _predict(wanted, known, threshold)
        if prediction is None:
            missing.append((wanted.label, f"{_nothing_near(wanted.row, known)}; measure one data set there"))
        else:
            found.append(prediction)
    longest = max((row.shape.longest or 0 for row in known), default=0)
    length = asked.accept_length
    if length is not None and not any(row.shape.longest is None or length.estimate <= row.shape.longest for row in known):
        missing.append((f"accept length {length.estimate:g}", f"above {longest}, the most that any shape in the table can give"))
    for num_drafted in asked.num_drafted:
        found += _more_drafts(rows, known, num_drafted, threshold, missing)
    return tuple(found), void, tuple(missing)


def _wanted(rows: Sequence[TableRow], known: Sequence[TableRow], asked: Asked) -> Iterable[_Wanted]:
    for row in rows:
        if row.speedup is None and row.accept_length is not None:
            yield _Wanted(label=row.label, row=row, length=_length(row.accept_length))
    if asked.accept_length is None:
        return
    length = _length(asked.accept_length)
    seen: list[TableRow] = []
    for row in known:
        if not any(_configuration(other) == _configuration(row) and other.has_context_of(row) for other in seen):
            seen.append(row)
            if row.shape.longest is not None and length.value > row.shape.longest:
                continue
            template = TableRow(
                number=-1,
                setup=row.setup,
                target=row.target,
                where=row.where,
                method=row.method,
                drafter=row.drafter,
                shape=row.shape,
                dataset="",
                concurrency=row.concurrency,
                accept_length=None,
                speedup=None,
                plain_speed=asked.plain_speed,
                context=row.context,
            )
            context = f", context {row.context:g}" if row.context is not None else ""
            yield _Wanted(label=f"{template.label}{context}, accept length {length.value:g}", row=template, length=length)


def _predict(wanted: _Wanted, known: Sequence[TableRow], threshold: float) -> TablePrediction | None:
    row = wanted.row
    # an accept length that was asked for has no data set of its own, so every measured one counts
    is_asked = row.number < 0
    same = [
        other
        for other in known
        if _configuration(other) == _configuration(row) and other.has_context_of(row) and (is_asked or other.dataset != row.dataset)
    ]
    near = [other for other in same if as_neighbour(other) in fitting([as_neighbour(o) for o in same], row.plain_speed)]
    if len(near) >= 3:
        return _from_rows(wanted, near, data_set_error(len(near)), threshold)
    by_drafts = _by_drafts(row, known)
    if len(by_drafts) >= 2 and row.shape.num_drafted is not None:
        return _from_line(wanted.label, wanted.length, by_drafts, row.shape.num_drafted, row.plain_speed, threshold)
    same_method, other_method = other_drafters(row, known)
    if same_method:
        return _from_rows(wanted, [*near, *same_method], KINDS["another drafter"], threshold)
    if near:
        return _from_rows(wanted, near, data_set_error(len(near)), threshold)
    return _from_rows(wanted, other_method, KINDS["another method"], threshold) if other_method else None


def _nothing_near(row: TableRow, known: Sequence[TableRow]) -> str:
    """Why no row stands in: where only the load or the context differs, that is told, because c changes with both."""
    same = [other for other in known if _but_load(other) == _but_load(row)]
    loads = sorted({other.concurrency for other in same} - {row.concurrency}, key=lambda load: (len(load), load))
    if any(other.concurrency == row.concurrency and not other.has_context_of(row) for other in same):
        return "measured only at other contexts, and the cost of a round changes with context"
    if loads and all(other.concurrency != row.concurrency for other in same):
        return f"measured only at concurrency {', '.join(loads)}, and the cost of a round changes with load"
    return "no measured row of the same deployment to predict it from"


def _but_load(row: TableRow) -> tuple[object, ...]:
    return row.setup, row.target, row.where, row.method, row.drafter, row.shape


def _configuration(row: TableRow) -> tuple[object, ...]:
    return row.setup, row.deployment, row.drafter, row.shape


def _from_rows(wanted: _Wanted, others: Sequence[TableRow], error: PredictionError, threshold: float) -> TablePrediction:
    length = wanted.length.value
    neighbours = [as_neighbour(other) for other in others]
    cost = cost_from(neighbours, length, wanted.row.plain_speed)
    # where the rows themselves lie further apart than such rows usually do, the usual error bar is too kind
    apart = [abs(math.log(row.cost / cost_from(neighbours, row.accept_length, wanted.row.plain_speed))) for row in neighbours]
    half = max(math.log1p(error.tenth), max(apart))
    doubts = []
    lengths = [row.accept_length for row in neighbours]
    if not 0.9 * min(lengths) <= length <= 1.1 * max(lengths):
        measured = f"{min(lengths):.2f}" + (f" to {max(lengths):.2f}" if max(lengths) > min(lengths) else " alone")
        doubts.append(f"its accept length lies outside those measured ({measured})")
    if max(apart) > math.log1p(error.tenth):
        odd = others[apart.index(max(apart))]
        doubts.append(
            "the measured rows disagree more than such rows usually do, so the interval holds them all; furthest from the others "
            f"is row {odd.number} ({odd.label}), c {neighbours[apart.index(max(apart))].cost:.2f}"
        )
    return _prediction(
        wanted.label,
        wanted.length,
        cost,
        half,
        error,
        tuple(other.label for other in others),
        doubts,
        wanted.row.plain_speed,
        threshold,
    )


def _series(row: TableRow) -> tuple[object, ...]:
    """What rows share that differ in the number of drafts alone."""
    return row.deployment, row.drafter, row.dataset, row.context


def _by_drafts(row: TableRow, known: Sequence[TableRow]) -> dict[int, TableRow]:
    """Measured chains like this row but for their number of drafts, by that number."""
    return {
        other.shape.steps: other
        for other in known
        if other.shape.is_chain and _series(other) == _series(row) and other.shape.steps != row.shape.steps
    }


def _more_drafts(
    rows: Sequence[TableRow], known: Sequence[TableRow], num_drafted: int, threshold: float, missing: list[Missing]
) -> Iterable[TablePrediction]:
    groups: dict[tuple[object, ...], dict[int, TableRow]] = {}
    for row in known:
        if row.shape.is_chain:
            groups.setdefault(_series(row), {})[row.shape.steps] = row
    if not groups:
        missing.append(
            (f"k={num_drafted}", "no chain of known length in the table; give steps and topk 1, or draft_tokens for vLLM")
        )
    # rows that have their own accept length are predicted with that one
    own = {_series(row) for row in rows if row.shape.num_drafted == num_drafted and row.accept_length is not None}
    for series, by_drafts in groups.items():
        first = next(iter(by_drafts.values()))
        name = " / ".join(part for part in (first.target, first.drafter, f"k={num_drafted}", first.dataset) if part)
        if num_drafted in by_drafts or (series in own and len(by_drafts) > 1):
            continue
        if len(by_drafts) < 2:
            missing.append((name, f"rows with one number of drafts only ({min(by_drafts)}); a second one shows what a draft costs"))
            continue
        try:
            curve = AcceptanceCurve.from_lengths(
                {k: row.accept_length.estimate for k, row in by_drafts.items() if row.accept_length is not None}
            )
        except ValueError as error:
            missing.append((name, str(error)))
            continue
        label = name + (f" at c={first.concurrency}" if first.concurrency else "")
        yield _from_line(label, curve.length(num_drafted), by_drafts, num_drafted, first.plain_speed, threshold)


def _from_line(
    label: str,
    length: Length,
    by_drafts: Mapping[int, TableRow],
    num_drafted: int,
    plain_speed: float | None,
    threshold: float,
) -> TablePrediction:
    """c read off the line through rows of other numbers of drafts."""
    error = KINDS["other numbers of drafts"]
    line = RoundLine.of({k: row.cost.estimate for k, row in by_drafts.items() if row.cost is not None})
    time = line.at(num_drafted, error=error.tenth)
    doubts = [f"beyond the numbers of drafts measured ({min(by_drafts)} to {max(by_drafts)})"] if time.is_outside else []
    return _prediction(
        label,
        length,
        time.value,
        math.log(time.high / time.value),
        error,
        tuple(row.label for row in by_drafts.values()),
        doubts,
        plain_speed,
        threshold,
    )


def _prediction(
    label: str,
    length: Length,
    cost: float,
    half: float,
    error: PredictionError,
    evidence: tuple[str, ...],
    doubts: Sequence[str],
    plain_speed: float | None,
    threshold: float,
) -> TablePrediction:
    # no error makes a round cheaper than a plain step
    least = min(max(cost * math.exp(-half), IMPOSSIBLE_BELOW), cost)
    speedup = length.value / cost
    low = speedup * math.exp(-math.hypot(half, math.log(length.value / length.low)))
    high = min(speedup * math.exp(math.hypot(half, math.log(length.high / length.value))), length.high / IMPOSSIBLE_BELOW)
    high = max(high, speedup)
    return TablePrediction(
        label=label,
        accept_length=length,
        cost=Cost(value=cost, low=least, high=cost * math.exp(half)),
        speedup=speedup,
        low=low,
        high=high,
        plain_speed=plain_speed,
        outcome=outcome_of(low, high, threshold),
        error=error,
        evidence=evidence,
        doubts=tuple(doubts),
    )


def _length(bounds: Bounds) -> Length:
    return Length(value=bounds.estimate, low=bounds.low, high=bounds.high)
