"""The report's pictures as data: one `Plot` each, a Plotly figure without colours of its own (the page's theme supplies them).

Nothing is computed here but where a mark goes; every value comes from the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from breakeven.report.text import accept_length, interval, plain, quantity
from breakeven.verdict.result import ArmInfo, Cell, Interval, Result

__all__ = ["Plot", "plots_of"]

# Okabe and Ito's colour-blind-safe palette without black and yellow, which vanish on a dark or a light page.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
SYMBOLS = (
    "circle",
    "square",
    "diamond",
    "triangle-up",
    "cross",
    "x",
    "star",
    "hexagon",
    "triangle-down",
    "bowtie",
    "pentagon",
    "hourglass",
)
DASHES = ("solid", "dash", "dot", "dashdot")
MAX_LEGEND_NAME = 28


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """`figure` goes to Plotly; `header` and `rows` are the same figures as a table, for whoever cannot see the picture."""

    key: str
    title: str
    caption: str
    figure: dict[str, Any]
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def plots_of(result: Result) -> list[Plot]:
    """The pictures this result has data for, in reading order."""
    candidates = (
        _by_load(result, "throughput", "Throughput", "tok/s, whole server", lambda cell: cell.throughput),
        _by_load(
            result,
            "request-speed",
            "Speed of one request",
            "Output tokens per second of one request",
            lambda cell: cell.request_speed,
        ),
        _break_even(result),
        _per_position(result),
    )
    return [plot for plot in candidates if plot is not None]


def _by_load(result: Result, key: str, title: str, axis: str, value_of: Callable[[Cell], Interval | None]) -> Plot | None:
    axis_values, ticks, axis_title = _load_axis(result)
    traces, rows = [], []
    shown: list[Interval] = []
    for index, arm in enumerate(result.arms):
        points = [
            (axis_values[cell.load], value, cell)
            for cell in result.cells
            if cell.arm == arm.name and cell.load in axis_values and (value := value_of(cell)) is not None
        ]
        if points:
            points.sort(key=lambda point: point[0])
            traces.append(_line(arm, index, [x for x, _, _ in points], [value for _, value, _ in points]))
            rows += [(plain(arm.name, 60), plain(cell.load, 20), interval(value)) for _, value, cell in points]
            shown += [value for _, value, _ in points]
    if not traces:
        return None
    layout = {"xaxis": {"title": {"text": axis_title}, **ticks}, "yaxis": {"title": {"text": axis}, "range": [0, _top(shown)]}}
    return Plot(
        key=key,
        title=title,
        caption=_caption(result),
        figure={"data": traces, "layout": layout},
        header=("arm", "load", axis),
        rows=tuple(rows),
    )


def _break_even(result: Result) -> Plot | None:
    """c against load, and on it the accept length of every drafter: above its curve it pays, below it costs."""
    axis_values, ticks, axis_title = _load_axis(result)
    traces: list[dict[str, Any]] = []
    rows = []
    shapes = sorted({(point.method, point.num_draft_tokens) for point in result.break_even})
    for index, (method, num_drafts) in enumerate(shapes):
        points = [
            point
            for point in result.break_even
            if (point.method, point.num_draft_tokens) == (method, num_drafts) and point.load in axis_values
        ]
        points.sort(key=lambda point: axis_values[point.load])
        name = f"break-even, {plain(method, 20)} k={num_drafts}"
        trace = _trace(name, index, [axis_values[point.load] for point in points], [point.cost_ratio for point in points])
        trace["line"] |= {"width": 3}
        traces.append(trace)
        rows += [(name, plain(point.load, 20), interval(point.cost_ratio)) for point in points]
    if not traces:
        return None
    for index, arm in enumerate(result.arms):
        if arm.is_baseline or arm.forced_accept_length is not None:
            continue
        cells = [cell for cell in result.cells if cell.arm == arm.name and cell.acceptance and cell.load in axis_values]
        if cells:
            cells.sort(key=lambda cell: axis_values[cell.load])
            lengths = [cell.acceptance.accept_length for cell in cells if cell.acceptance]
            trace = _trace(
                f"accept length, {plain(arm.name, MAX_LEGEND_NAME)}",
                index + len(shapes),
                [axis_values[cell.load] for cell in cells],
                lengths,
            )
            trace["line"] |= {"dash": "dot"}
            traces.append(trace)
            rows += [
                (f"accept length, {plain(arm.name, 60)}", plain(cell.load, 20), accept_length(cell.acceptance)) for cell in cells
            ]
    layout = {
        "xaxis": {"title": {"text": axis_title}, **ticks},
        "yaxis": {"title": {"text": "Tokens per round"}, "rangemode": "normal"},
    }
    return Plot(
        key="break-even",
        title="Break-even accept length",
        caption="A drafter pays at a load where its accept length (dotted) lies above the break-even curve of its shape (solid).",
        figure={"data": traces, "layout": layout},
        header=("what", "load", "tokens per round"),
        rows=tuple(rows),
    )


def _per_position(result: Result) -> Plot | None:
    traces, rows = [], []
    for index, arm in enumerate(result.arms):
        if arm.forced_accept_length is not None:
            continue
        cells = [cell for cell in result.cells if cell.arm == arm.name and cell.acceptance and cell.acceptance.joint]
        if not cells or cells[0].acceptance is None:
            continue
        cell, joint = cells[0], cells[0].acceptance.joint
        name = f"{plain(arm.name, MAX_LEGEND_NAME)} at {plain(cell.load, 20)}"
        traces.append(
            {
                "type": "bar",
                "name": name,
                "x": [f"draft {position}" for position in range(1, len(joint) + 1)],
                "y": list(joint),
                "marker": {"color": COLOURS[index % len(COLOURS)]},
                "hovertemplate": "%{x}: %{y:.3f}<extra>%{fullData.name}</extra>",
            }
        )
        rows += [(plain(arm.name, 60), f"draft {position}", quantity(share)) for position, share in enumerate(joint, start=1)]
    if not traces:
        return None
    layout = {
        "barmode": "group",
        "xaxis": {"title": {"text": "Position in the round"}},
        "yaxis": {"title": {"text": "Accepted up to here"}, "range": [0, 1]},
    }
    return Plot(
        key="per-position",
        title="Acceptance by position",
        caption="Share of rounds in which this draft and all before it were accepted, at each arm's first load point.",
        figure={"data": traces, "layout": layout},
        header=("arm", "position", "share"),
        rows=tuple(rows),
    )


def _caption(result: Result) -> str:
    bars = "Bars are 95 % intervals over launches." if result.kind == "measured" else "Reported figures: no intervals."
    forced = any(arm.forced_accept_length is not None for arm in result.arms)
    return bars + (" Hollow marks are arms forced to accept: probes of cost, not drafters." if forced else "")


def _load_axis(result: Result) -> tuple[dict[str, float], dict[str, Any], str]:
    """Where each load point stands. Concurrencies on a logarithmic axis with a tick each; anything else in order."""
    closed = [load for load in result.loads if load.concurrency is not None]
    if closed and len(closed) == len(result.loads):
        values = {load.label: float(load.concurrency or 1) for load in closed}
        ticks = {
            "type": "log",
            "tickvals": sorted(set(values.values())),
            "ticktext": [f"{value:g}" for value in sorted(set(values.values()))],
        }
        return values, ticks, "Requests under way"
    order = {load.label: float(place) for place, load in enumerate(result.loads)}
    return order, {"tickvals": list(order.values()), "ticktext": [plain(label, 24) for label in order]}, "Load point"


def _line(arm: ArmInfo, index: int, xs: Sequence[float], values: Sequence[Interval]) -> dict[str, Any]:
    trace = _trace(plain(arm.name, MAX_LEGEND_NAME), index, xs, values)
    if arm.is_baseline:
        trace["line"] |= {"width": 3}
    if arm.forced_accept_length is not None:
        trace["marker"] |= {"symbol": f"{SYMBOLS[index % len(SYMBOLS)]}-open"}
        trace["line"] |= {"dash": "dash", "width": 1}
    return trace


def _trace(name: str, index: int, xs: Sequence[float], values: Sequence[Interval]) -> dict[str, Any]:
    colour = COLOURS[index % len(COLOURS)]
    highs = [_distance(value.high, value.estimate) for value in values]
    lows = [_distance(value.estimate, value.low) for value in values]
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": list(xs),
        "y": [value.estimate for value in values],
        "line": {"color": colour, "width": 2, "dash": DASHES[index // len(COLOURS) % len(DASHES)]},
        "marker": {"color": colour, "symbol": SYMBOLS[index % len(SYMBOLS)], "size": 9},
        "hovertemplate": "%{y:.4g}<extra>%{fullData.name}</extra>",
    }
    if any(bound is not None for bound in (*highs, *lows)):
        trace["error_y"] = {"type": "data", "symmetric": False, "array": highs, "arrayminus": lows, "thickness": 1.5, "width": 4}
    return trace


def _distance(upper: float | None, lower: float | None) -> float | None:
    """The length of half an error bar, None where that side has no bound (JSON knows no infinity)."""
    if upper is None or lower is None or not math.isfinite(upper - lower):
        return None
    return upper - lower


def _top(values: Sequence[Interval]) -> float:
    """Where the vertical axis ends: a very wide interval runs off the picture rather than flattening everything else."""
    highest = max(value.estimate for value in values)
    return max(min(value.high or value.estimate, 1.5 * highest) for value in values) * 1.05
