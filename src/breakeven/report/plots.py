"""The report's pictures as data: Plotly figures (the page's theme supplies their colours), each with the same figures as a table.

Nothing is computed here but where a mark goes; every value comes from the result. An arm looks the same in every picture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from breakeven.report.break_even_traces import (
    cliff_trace,
    curve_trace,
    lengths_by_drafts,
    points_by_load,
    points_by_shape,
    shape_name,
)
from breakeven.report.lookup import Lookup
from breakeven.report.text import MISSING, accept_length, interval, levels, percent, plain, tokens_a_round
from breakeven.report.traces import MAX_LEGEND_NAME, Look, top_of_axis, trace
from breakeven.verdict.result import AcceptanceSummary, ArmInfo, Cell, Interval, Result

__all__ = ["Plot", "View", "plots_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One Plotly figure; `key` names it in the page."""

    key: str
    label: str
    figure: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A picture of one or several views (the first is shown), and its figures as a table for whoever cannot see it."""

    title: str
    unit: str
    caption: str
    views: tuple[View, ...]
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def plots_of(result: Result) -> list[Plot]:
    """The pictures this result has data for, in reading order."""
    lookup = Lookup(result)
    candidates = (
        _by_load(lookup, "throughput", "Throughput", "tok/s, whole server", lambda cell: cell.throughput),
        _by_load(lookup, "request-speed", "Speed of one request", "tok/s, one request", lambda cell: cell.request_speed),
        _break_even(lookup),
        _by_position(lookup),
    )
    return [plot for plot in candidates if plot is not None]


def _by_load(lookup: Lookup, key: str, title: str, unit: str, value_of: Callable[[Cell], Interval | None]) -> Plot | None:
    places, x_axis = _load_axis(lookup.result)
    traces, rows = [], []
    shown: list[Interval] = []
    for look, arm in _looks(lookup.result):
        points = [(cell.load, value) for cell in _cells(lookup.result, arm, places) if (value := value_of(cell)) is not None]
        if not points:
            continue
        values = [value for _, value in points]
        traces.append(trace(plain(arm.name, MAX_LEGEND_NAME), [places[load] for load, _ in points], values, look))
        rows += [(plain(arm.name, 60), plain(load, 60), interval(value)) for load, value in points]
        shown += values
    if not traces:
        return None
    return Plot(
        title=title,
        unit=unit,
        caption=_caption(lookup, shown),
        views=(_view(key, title, traces, x_axis, {"range": [0, top_of_axis(shown)]}),),
        header=("Arm", "Load", unit),
        rows=tuple(rows),
    )


def _break_even(lookup: Lookup) -> Plot | None:
    """c against load, and on it the accept length of every drafter, in the colour of the curve that it must stay above."""
    result = lookup.result
    places, x_axis = _load_axis(result)
    traces, rows = [], []
    shown: list[Interval] = []
    colours = {shape: colour for colour, shape in enumerate(lookup.shapes_with_lines)}
    for shape, colour in colours.items():
        points = points_by_shape(lookup, shape, list(places))
        name = f"break-even, {shape_name(shape)}"
        traces.append(curve_trace(name, [places[point.load] for point, _ in points], points, colour))
        rows += [
            (name, plain(point.load, 60), tokens_a_round(point.cost_ratio), plain(point.basis, 200), MISSING) for point, _ in points
        ]
        shown += [point.cost_ratio for point, _ in points]
    if not traces:
        return None
    for look, arm in _looks(result):
        if arm.is_baseline or arm.is_probe:
            continue
        found = [(cell.load, cell.acceptance) for cell in _cells(result, arm, places) if cell.acceptance]
        if not found:
            continue
        name = f"accept length, {plain(arm.name, MAX_LEGEND_NAME)}"
        # a schedule belongs to no one curve
        colour = len(colours) if arm.schedule else colours.get((arm.method, arm.num_draft_tokens or 0), len(colours))
        lengths = [acceptance.accept_length for _, acceptance in found]
        dotted = Look(colour=colour, symbol=look.symbol + len(colours), dash="dot", hollow=True)
        traces.append(trace(name, [places[load] for load, _ in found], lengths, dotted))
        rows += [
            (name, plain(load, 60), accept_length(acceptance), plain(acceptance.source, 80), lookup.side(arm.name, load) or MISSING)
            for load, acceptance in found
        ]
        shown += lengths
    if result.cliffs:
        at_load = [(places[c.load], c.cost_before, places[c.load], c.cost_after) for c in result.cliffs]
        traces.append(cliff_trace(at_load))
        rows += [
            (f"cliff, {plain(c.method, 40)} k={c.drafts_before} to {c.drafts_after}", plain(c.load, 60),
             f"{c.cost_before:.2f} to {c.cost_after:.2f}", plain(c.text, 400), MISSING)
            for c in result.cliffs
        ]  # fmt: skip
    y_axis = {"range": [0, top_of_axis(shown)]}
    return Plot(
        title="Break-even accept length",
        unit="tokens a round",
        caption=f"A drafter pays at a load where its accept length (dotted) lies above the break-even curve of its shape (solid,"
        f" same colour). {_surface_words(result)}{_caption(lookup, shown, probes=False)}",
        views=(
            _view("break-even", "By load" if len(colours) > 1 else "Break-even accept length", traces, x_axis, y_axis),
            *_by_drafts(lookup, y_axis),
        ),
        header=("What", "Load", "Tokens a round", "From", "Against its break-even"),
        rows=tuple(rows),
    )


def _surface_words(result: Result) -> str:
    words = ""
    if result.break_even_between:
        words += "Hollow marks on solid lines are read off between measured numbers of drafts; nothing is read between loads. "
    if result.cliffs:
        words += "Thick dots mark a cliff: " + " ".join(f"{plain(cliff.text, 400)}." for cliff in result.cliffs) + " "
    return words


def _by_drafts(lookup: Lookup, y_axis: dict[str, Any]) -> Iterator[View]:
    """c against the number of drafts, a line a load: one picture for every method with several numbers of drafts."""
    result = lookup.result
    loads = [load.label for load in result.loads]
    symbols = {arm.name: len(loads) + place for place, arm in enumerate(result.arms)}
    methods = dict.fromkeys(method for method, _ in lookup.shapes_with_lines)
    for place, method in enumerate(methods):
        numbers = [num_drafts for found, num_drafts in lookup.shapes_with_lines if found == method and num_drafts]
        if len(numbers) < 2:
            continue
        traces = []
        for colour, load in enumerate(loads):
            points = points_by_load(result, method, load)
            if points:
                xs = [float(point.num_draft_tokens) for point, _ in points]
                traces.append(curve_trace(f"break-even at {plain(load, 60)}", xs, points, colour))
        traces += [shown for shown, _ in lengths_by_drafts(result, method, symbols)]
        steps = [
            (float(c.drafts_before), c.cost_before, float(c.drafts_after), c.cost_after)
            for c in result.cliffs
            if c.method == method
        ]
        if steps:
            traces.append(cliff_trace(steps))
        x_axis = {"title": {"text": "drafts a round"}, "tickvals": numbers, "ticktext": [str(number) for number in numbers]}
        label = "By number of drafts" if len(methods) == 1 else f"By number of drafts, {plain(method, 40)}"
        yield _view(f"break-even-by-drafts-{place}", label, traces, x_axis, y_axis)


def _by_position(lookup: Lookup) -> Plot | None:
    """Joint and conditional acceptance by position, each arm at the first load point that has counts."""
    joint, conditional, rows = [], [], []
    for look, arm in _looks(lookup.result):
        found = _first_with_positions(lookup.result, arm)
        if found is None or arm.is_probe:
            continue
        load, acceptance = found
        name = plain(f"{arm.name} at {load}", MAX_LEGEND_NAME + 10)
        positions = [float(position) for position in range(1, len(acceptance.joint) + 1)]
        joint.append(trace(name, positions, [Interval(estimate=share) for share in acceptance.joint], look))
        known = [(x, share) for x, share in zip(positions, acceptance.conditional, strict=False) if share is not None]
        conditional.append(trace(name, [x for x, _ in known], [Interval(estimate=share) for _, share in known], look))
        rows += [(name, f"{position:.0f}", *shares) for position, shares in zip(positions, _shares(acceptance), strict=True)]
    if not joint:
        return None
    x_axis = {"title": {"text": "draft, by its place in the round"}, "dtick": 1}
    y_axis = {"range": [0, 1.05], "tickformat": ".0%"}
    views = [_view("joint", "This draft and all before it", joint, x_axis, y_axis)]
    if any(points["x"] for points in conditional):
        views.append(_view("conditional", "This draft, if all before it were", conditional, x_axis, y_axis))
    return Plot(
        title="Acceptance by position",
        unit="share of rounds",
        caption="At each arm's first load point that has counts: acceptance should not depend on load.",
        views=tuple(views),
        header=("Arm", "Draft", "Accepted with all before it", "Accepted if all before it were"),
        rows=tuple(rows),
    )


def _first_with_positions(result: Result, arm: ArmInfo) -> tuple[str, AcceptanceSummary] | None:
    for cell in result.cells:
        if cell.arm == arm.name and cell.acceptance is not None and cell.acceptance.joint:
            return cell.load, cell.acceptance
    return None


def _shares(acceptance: AcceptanceSummary) -> Iterator[tuple[str, str]]:
    """(joint, conditional) as text for each position."""
    for place, share in enumerate(acceptance.joint):
        yield percent(share), percent(acceptance.conditional[place] if place < len(acceptance.conditional) else None)


def _view(key: str, label: str, traces: list[dict[str, Any]], x_axis: dict[str, Any], y_axis: dict[str, Any]) -> View:
    return View(key=key, label=label, figure={"data": traces, "layout": {"xaxis": x_axis, "yaxis": y_axis}})


def _caption(lookup: Lookup, values: Sequence[Interval], *, probes: bool = True) -> str:
    parts = ["Reported figures carry no intervals."] if lookup.result.kind == "reported" else []
    if level := levels(values):
        parts.append(f"Bars are {level} intervals.")
    if probes and any(lookup.is_probe(arm.name) for arm in lookup.result.arms):
        parts.append("Hollow marks on thin lines are probes, which accept drafts to order.")
    return " ".join(parts)


def _load_axis(result: Result) -> tuple[dict[str, float], dict[str, Any]]:
    """Where each load point stands, and the axis. Concurrencies on a logarithmic one with a tick each; anything else in order."""
    if result.loads and all(load.concurrency for load in result.loads):
        places = {load.label: float(load.concurrency or 1) for load in sorted(result.loads, key=lambda load: load.concurrency or 1)}
        ticks = sorted(set(places.values()))
        axis = {"type": "log", "tickvals": ticks, "ticktext": [f"{value:g}" for value in ticks]}
        return places, axis | {"title": {"text": "requests under way"}}
    places = {load.label: float(place) for place, load in enumerate(result.loads)}
    axis = {"tickvals": list(places.values()), "ticktext": [plain(label, 24) for label in places]}
    return places, axis | {"range": [-0.5, len(places) - 0.5]}


def _looks(result: Result) -> Iterator[tuple[Look, ArmInfo]]:
    for index, arm in enumerate(result.arms):
        probe = arm.is_probe
        width = 1 if probe else 3 if arm.is_baseline else 2
        yield Look(colour=index, symbol=index, width=width, hollow=probe), arm


def _cells(result: Result, arm: ArmInfo, places: dict[str, float]) -> list[Cell]:
    """The arm's cells from the lowest load to the highest."""
    return sorted(
        (cell for cell in result.cells if cell.arm == arm.name and cell.load in places), key=lambda cell: places[cell.load]
    )
