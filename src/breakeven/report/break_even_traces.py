"""The lines of the break-even picture: c measured and read off, cliffs, and the accept lengths that stand above or below.

Measured points have filled marks with intervals; points read off a line between numbers of drafts are hollow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from breakeven.report.lookup import Lookup
from breakeven.report.text import plain
from breakeven.report.traces import MAX_LEGEND_NAME, Look, trace
from breakeven.verdict.result import BreakEvenPoint, Interval, Result

__all__ = ["cliff_trace", "curve_trace", "lengths_by_drafts", "points_by_load", "points_by_shape", "shape_name"]

CLIFF_COLOUR = "#D55E00"

Shape = tuple[str, int]
Known = tuple[BreakEvenPoint, bool]


def shape_name(shape: Shape) -> str:
    """ "eagle3 k=3"; the method alone where the number of drafts was not reported."""
    method, num_drafts = shape
    return f"{plain(method, 40)}{f' k={num_drafts}' if num_drafts else ''}"


def points_by_shape(lookup: Lookup, shape: Shape, loads: Sequence[str]) -> list[Known]:
    """The points of one number of drafts in the order of `loads`, each with whether it was measured."""
    found = {(point.load): (point, measured) for point, measured in _points(lookup.result) if shape_of(point) == shape}
    return [found[load] for load in loads if load in found]


def points_by_load(result: Result, method: str, load: str) -> list[Known]:
    """The points of one load in the order of drafts. Those with an unknown number of drafts are left out."""
    found = [(p, measured) for p, measured in _points(result) if (p.method, p.load) == (method, load) and p.num_draft_tokens]
    return sorted(found, key=lambda known: known[0].num_draft_tokens)


def shape_of(point: BreakEvenPoint) -> Shape:
    return point.method, point.num_draft_tokens


def curve_trace(name: str, xs: Sequence[float], points: Sequence[Known], colour: int) -> dict[str, Any]:
    """A solid line through points of c, hollow marks where they were not measured."""
    look = Look(colour=colour, symbol=colour, width=3)
    shown = trace(name, xs, [point.cost_ratio for point, _ in points], look)
    if not all(measured for _, measured in points):
        symbol = shown["marker"]["symbol"]
        shown["marker"]["symbol"] = [symbol if measured else f"{symbol}-open" for _, measured in points]
        shown["text"] = ["measured" if measured else "read off a line" for _, measured in points]
        shown["hovertemplate"] = "%{y:.4g} (%{text})<extra>%{fullData.name}</extra>"
    return shown


def cliff_trace(stretches: Sequence[tuple[float, float, float, float]]) -> dict[str, Any]:
    """Every cliff as (x before, c before, x after, c after), in one look that no curve has."""
    gaps: list[tuple[float | None, float | None]] = []
    for x_before, before, x_after, after in stretches:
        gaps += [(x_before, before), (x_after, after), (None, None)]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": "cliff",
        "x": [x for x, _ in gaps],
        "y": [y for _, y in gaps],
        "line": {"color": CLIFF_COLOUR, "width": 7, "dash": "dot"},
        "marker": {"color": CLIFF_COLOUR, "symbol": "x-thin-open", "size": 14, "line": {"width": 3}},
        "opacity": 0.7,
        "hovertemplate": "%{y:.4g}<extra>cliff</extra>",
    }


def lengths_by_drafts(result: Result, method: str, symbols: Mapping[str, int]) -> Iterator[tuple[dict[str, Any], list[Interval]]]:
    """Each drafter as marks at its own number of drafts, one a load: they should lie on each other."""
    for arm in dict.fromkeys(item.arm for item in result.standings if item.method == method):
        mine = [item for item in result.standings if item.arm == arm]
        lengths = [item.accept_length for item in mine]
        look = Look(colour=symbols[arm], symbol=symbols[arm], hollow=True)
        name = f"accept length, {plain(arm, MAX_LEGEND_NAME)}"
        shown = trace(name, [float(item.num_draft_tokens) for item in mine], lengths, look)
        shown["mode"] = "markers"
        shown["marker"]["size"] = 13
        yield shown, lengths


def _points(result: Result) -> Iterator[Known]:
    yield from ((point, True) for point in result.break_even)
    yield from ((point, False) for point in result.break_even_between)
