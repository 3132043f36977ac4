"""Leaving out and predicting: what each way of predicting from a table was off by, wherever the table knows the answer.

Every row that can be predicted from others is, in each way that its neighbours allow: from other data sets of the very same
configuration (from every choice of one, of two, and from all), from another drafter of the same shape on the same deployment, and
from other numbers of drafts of the same drafter on the same data set. Errors are log ratios, predicted over measured.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from breakeven.costs.acceptance_curve import AcceptanceCurve
from breakeven.costs.neighbours import Neighbour, cost_from
from breakeven.costs.prediction_error import PredictionError
from breakeven.costs.round_line import RoundLine
from breakeven.costs.table import Shape, TableRow

__all__ = ["LeftOut", "as_neighbour", "coverage", "impossible", "leave_out", "other_drafters", "summary"]

# choices of one or two known data sets that are tried for a row; all of them where there are fewer
MAX_CHOICES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """One row predicted without it: `kind` as in `prediction_error.KINDS`, `error` the log of predicted over measured speedup."""

    kind: str
    row: TableRow
    predicted: float
    error: float


def impossible(rows: Iterable[TableRow]) -> tuple[TableRow, ...]:
    """Rows whose figures cannot all be true: c below what any round can cost, more accepted than drafted, figures at odds."""
    return tuple(row for row in rows if row.why_impossible)


def leave_out(rows: Sequence[TableRow]) -> tuple[LeftOut, ...]:
    """All predictions that the possible rows with accept length and speedup allow."""
    void = {row.number for row in impossible(rows)}
    known = [row for row in rows if row.number not in void and row.cost is not None]
    return (*_data_sets(known), *_drafters(known), *_numbers_of_drafts(known))


def summary(found: Iterable[LeftOut], kind: str, what: str) -> PredictionError:
    """Median and ninth decile of the absolute errors of a kind, as relative errors.

    Raises:
        ValueError: no prediction of that kind.
    """
    of_kind = [one for one in found if one.kind == kind]
    if not of_kind:
        raise ValueError(f"no prediction from {kind} in this table")
    errors = sorted(abs(one.error) for one in of_kind)
    return PredictionError(
        what=what,
        half=math.expm1(_quantile(errors, 0.5)),
        tenth=math.expm1(_quantile(errors, 0.9)),
        num=len(of_kind),
        num_targets=len({one.row.target for one in of_kind}),
    )


def coverage(found: Iterable[LeftOut], kind: str) -> float:
    """Mean over targets of the share of a target's predictions that the error bar of all other targets holds; NaN with one target.

    Unlike a quantile of all errors, a target with many rows does not set the bar that it is judged by.
    """
    by_target: dict[str, list[float]] = defaultdict(list)
    for one in found:
        if one.kind == kind:
            by_target[one.row.target].append(abs(one.error))
    held = []
    for target, errors in by_target.items():
        others = sorted(error for other, values in by_target.items() if other != target for error in values)
        if others:
            bar = _quantile(others, 0.9)
            held.append(sum(error <= bar for error in errors) / len(errors))
    return sum(held) / len(held) if held else math.nan


def as_neighbour(row: TableRow) -> Neighbour:
    assert row.accept_length is not None
    assert row.speedup is not None
    return Neighbour(
        name=row.dataset, accept_length=row.accept_length.estimate, speedup=row.speedup.estimate, plain_speed=row.plain_speed
    )


def _data_sets(rows: Sequence[TableRow]) -> Iterable[LeftOut]:
    groups: dict[tuple[object, ...], list[TableRow]] = defaultdict(list)
    for row in rows:
        groups[row.setup, row.deployment, row.drafter, row.shape].append(row)
    chance = random.Random(0)
    for row in rows:
        others = [other for other in groups[row.setup, row.deployment, row.drafter, row.shape] if other.dataset != row.dataset]
        for size, kind in ((1, "one data set"), (2, "two data sets")):
            choices = list(itertools.combinations(others, size))
            for choice in choices if len(choices) <= MAX_CHOICES else chance.sample(choices, MAX_CHOICES):
                yield _left_out(kind, row, choice)
        if len(others) >= 3:
            yield _left_out("three or more data sets", row, others)


def _drafters(rows: Sequence[TableRow]) -> Iterable[LeftOut]:
    for row in rows:
        same_method, other_method = other_drafters(row, rows)
        if same_method:
            yield _left_out("another drafter", row, same_method)
        if other_method:
            yield _left_out("another method", row, other_method)


def other_drafters(row: TableRow, known: Sequence[TableRow]) -> tuple[list[TableRow], list[TableRow]]:
    """Rows of other drafters of the same known shape on the same deployment: of the same method, and of another one.

    A drafter of another method has other layers, so that its rounds cost something else.
    """
    if row.shape == Shape():
        return [], []
    others = [
        other
        for other in known
        if other.drafter != row.drafter and other.shape == row.shape and other.machine == row.machine and other.has_context_of(row)
    ]
    return [other for other in others if other.method == row.method], [other for other in others if other.method != row.method]


def _numbers_of_drafts(rows: Sequence[TableRow]) -> Iterable[LeftOut]:
    groups: dict[tuple[object, ...], list[TableRow]] = defaultdict(list)
    for row in rows:
        if row.shape.is_chain:
            groups[row.deployment, row.drafter, row.dataset].append(row)
    for group in groups.values():
        by_drafts = {row.shape.steps: row for row in group}
        for drafts, row in by_drafts.items():
            fewer = {k: other for k, other in by_drafts.items() if k != drafts}
            if len(fewer) < 2 or row.speedup is None:
                continue
            predicted = predict_drafts(fewer, drafts)
            if predicted is not None:
                error = math.log(predicted / row.speedup.estimate)
                yield LeftOut(kind="other numbers of drafts", row=row, predicted=predicted, error=error)


def predict_drafts(known: dict[int, TableRow], num_drafted: int) -> float | None:
    """Speedup at another number of drafts, accept length and round time both from the others; None where the lengths contradict."""
    lengths = {k: row.accept_length.estimate for k, row in known.items() if row.accept_length is not None}
    costs = {k: row.cost.estimate for k, row in known.items() if row.cost is not None}
    try:
        curve = AcceptanceCurve.from_lengths(lengths)
    except ValueError:
        return None
    return curve.length(num_drafted).value / RoundLine.of(costs).at(num_drafted, error=0.0).value


def _left_out(kind: str, row: TableRow, others: Sequence[TableRow]) -> LeftOut:
    assert row.accept_length is not None
    assert row.speedup is not None
    length = row.accept_length.estimate
    predicted = length / cost_from([as_neighbour(other) for other in others], length, row.plain_speed)
    return LeftOut(kind=kind, row=row, predicted=predicted, error=math.log(predicted / row.speedup.estimate))


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Linear between order statistics."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
