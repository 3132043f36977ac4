"""The load points of an arm from its rows: each figure at the load it was reported of, and what stands for the whole arm."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from breakeven.errors import ReportedError
from breakeven.printed.figures import PrintedFigure
from breakeven.verdict.reported.arms import LoadKey, Point
from breakeven.verdict.reported.schema import PointFields
from breakeven.verdict.reported.spellings import switch

__all__ = ["NumberedRow", "common_acceptance", "points_of"]

_CONDITIONS = ("temperature", "prefix_caching", "warm_up", "statistic")
_POINT_FIGURES = ("throughput_tok_s", "request_speed_tok_s", "tpot_ms", "cost_ratio", "speedup")
_FIGURES = tuple(field.name for field in dataclasses.fields(Point) if field.name not in {"load", "conditions"})
# The number of a row in its table, and its fields with the defaults filled in.
NumberedRow = tuple[int, dict[str, Any]]


def points_of(name: str, rows: list[NumberedRow]) -> tuple[Point, ...]:
    """The points of the arm of that name, by workload and concurrency.

    Raises:
        ReportedError: rows give two figures for one load point.
    """
    found: dict[LoadKey, Point] = {}
    for number, fields in rows:
        for point in (*_points_of_row(fields), *(_point(inner, fields) for inner in fields.get("points", ()))):
            found[point.load] = _merged(name, number, found.get(point.load), point)
    return tuple(sorted(found.values(), key=lambda point: point.load.order))


def _points_of_row(fields: dict[str, Any]) -> Iterable[Point]:
    row = PointFields.model_construct(**{key: fields.get(key) for key in PointFields.model_fields})
    workload = fields.get("workload") or ""
    peak = fields.get("peak_tok_s")
    if peak is not None and fields.get("concurrency") is not None and fields.get("throughput_tok_s") is None:
        row, peak = row.model_copy(update={"throughput_tok_s": peak}), None
    if any(getattr(row, key) is not None for key in _POINT_FIGURES) or fields.get("concurrency") is not None:
        yield _point(row, fields)
    if fields.get("single_stream_tok_s") is not None:
        yield Point(load=LoadKey(1, workload), request_speed=fields["single_stream_tok_s"], conditions=_conditions(row, fields))
    if peak is not None:
        load = LoadKey(None, workload, is_peak=True)
        yield Point(load=load, throughput=peak, conditions=_conditions(row, fields))


def _point(point: PointFields, fields: dict[str, Any]) -> Point:
    speed = point.request_speed_tok_s
    if speed is None and point.tpot_ms is not None:
        per_token = point.tpot_ms
        runs = tuple(1000.0 / value for value in per_token.runs)
        speed = PrintedFigure(1000.0 / per_token.value, 1000.0 * per_token.half_width / per_token.value**2, runs=runs)
    return Point(
        load=LoadKey(point.concurrency, point.workload or fields.get("workload") or ""),
        throughput=point.throughput_tok_s,
        request_speed=speed,
        accept_length=point.accept_length,
        accept_rate=point.accept_rate,
        by_position=point.accept_by_position,
        cost_ratio=point.cost_ratio,
        speedup=point.speedup,
        input_tokens=point.input_tokens or fields.get("input_tokens"),
        output_tokens=point.output_tokens or fields.get("output_tokens"),
        conditions=_conditions(point, fields),
    )


def _conditions(point: PointFields, fields: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    named = {key: getattr(point, key) or fields.get(key) for key in _CONDITIONS}
    found = {**(fields.get("settings") or {}), **(point.settings or {}), **{key: value for key, value in named.items() if value}}
    return tuple(sorted((key, switch(value)) for key, value in found.items()))


def _merged(name: str, number: int, before: Point | None, point: Point) -> Point:
    if before is None:
        return point
    changes: dict[str, Any] = {}
    for key in _FIGURES:
        old, new = getattr(before, key), getattr(point, key)
        if old is not None and new is not None and _digits_aside(old) != _digits_aside(new):
            raise _two(name, number, point, key, _shown(old), _shown(new))
        if new is not None:
            changes[key] = new
    under = dict(before.conditions)
    for condition, value in point.conditions:
        if (old := under.setdefault(condition, value)) != value:
            raise _two(name, number, point, condition, old, value)
    return dataclasses.replace(before, **changes, conditions=tuple(sorted(under.items())))


def _two(name: str, number: int, point: Point, key: str, old: str, new: str) -> ReportedError:
    what = "two figures for" if key in _FIGURES else "two settings of"
    return ReportedError(
        f"row {number}: arm {name!r} has {what} {key.replace('_', ' ')} at {point.load.label} ({old} and {new}); "
        "one row stands for one load point: keep one, name the arms apart, or give several runs of it as a list"
    )


def _digits_aside(given: Any) -> Any:
    """1.5 and 1.50 are one figure."""
    if isinstance(given, tuple):
        return tuple(_digits_aside(one) for one in given)
    return given.value if isinstance(given, PrintedFigure) else given


def _shown(given: Any) -> str:
    return ", ".join(str(one) for one in given) if isinstance(given, tuple) else str(given)


def common_acceptance(rows: list[NumberedRow], points: tuple[Point, ...]) -> tuple[PrintedFigure | None, PrintedFigure | None]:
    """Length and rate that stand for the whole arm: the first printed pair, else the first of either."""
    pairs = [(fields.get("accept_length"), fields.get("accept_rate")) for _, fields in rows]
    pairs += [(point.accept_length, point.accept_rate) for point in points]
    printed = [pair for pair in pairs if pair != (None, None)]
    return max(printed, key=lambda pair: (pair[0] is not None) + (pair[1] is not None), default=(None, None))
