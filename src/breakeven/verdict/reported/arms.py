"""Rows of a reported table gathered into arms with load points: defaults filled in, engines and methods named alike."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from breakeven.errors import ReportedError
from breakeven.printed.definitions import Surface, draft_shape
from breakeven.printed.figures import PrintedFigure
from breakeven.printed.formulas import DraftShape
from breakeven.verdict.reported.schema import Cap, PointFields, ReportedRow, ReportedTable
from breakeven.versions import Version

__all__ = ["LoadKey", "Point", "ReportedArm", "arms_of"]

_PLAIN_WORDS = frozenset({"none", "plain", "base", "baseline", "no", "off", "vanilla", "autoregressive", "no drafter", "without"})
# Spellings of the methods, with everything but letters and digits left out.
_METHODS = {
    "ngram": "ngram",
    "promptlookup": "ngram",
    "suffix": "suffix",
    "eagle31": "eagle3",
    "eagle3": "eagle3",
    "eagle": "eagle",
    "nextn": "mtp",
    "mtp": "mtp",
    "draftmodel": "draft_model",
    "standalone": "draft_model",
    "dflash": "dflash",
    "medusa": "medusa",
}
_ENGINES = {
    "trtllm": "tensorrt-llm",
    "tensorrtllm": "tensorrt-llm",
    "llamacpp": "llama.cpp",
    "llamaserver": "llama.cpp",
    "sgl": "sglang",
}

_CONFIGURATION = (
    "engine",
    "version",
    "drafter",
    "method",
    "steps",
    "topk",
    "draft_tokens",
    "figures_from",
    "bonus",
    "drafted_share",
    "max_running_requests",
    "tensor_parallel",
    "hardware",
    "quantization",
)
_CONDITIONS = ("temperature", "prefix_caching", "warm_up", "statistic")
_SWITCHES = {
    **dict.fromkeys(("true", "yes", "on", "enabled", "with"), "on"),
    **dict.fromkeys(("false", "no", "off", "disabled", "none", "without"), "off"),
}
_POINT_FIGURES = ("throughput_tok_s", "request_speed_tok_s", "tpot_ms", "cost_ratio", "speedup")


@dataclass(frozen=True, slots=True, order=True)
class LoadKey:
    """A load point: equal keys are compared. `concurrency` is None where it was not reported; `is_peak` marks a best figure."""

    concurrency: int | None
    workload: str = ""
    is_peak: bool = False

    @property
    def label(self) -> str:
        where = "peak (concurrency not reported)" if self.is_peak else "unreported concurrency"
        load = where if self.concurrency is None else f"c={self.concurrency}"
        return f"{load} ({self.workload})" if self.workload else load

    @property
    def order(self) -> tuple[str, bool, int]:
        return self.workload, self.concurrency is None, self.concurrency or 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What was reported of one arm at one load; speeds in output tokens/s."""

    load: LoadKey
    throughput: PrintedFigure | None = None
    request_speed: PrintedFigure | None = None
    accept_length: PrintedFigure | None = None
    accept_rate: PrintedFigure | None = None
    by_position: tuple[PrintedFigure, ...] | None = None
    cost_ratio: PrintedFigure | None = None
    speedup: PrintedFigure | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    conditions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedArm:
    """One configuration. `accept_length` and `accept_rate` stand for all loads that have none of their own.

    is_idle: its drafter is loaded and drafts nothing (0 drafts), so it says what loading one costs and nothing of speculation.
    """

    name: str
    engine: str
    version: Version | None
    version_text: str | None
    is_speculative: bool
    method: str
    drafter: str | None
    steps: int | None
    topk: int | None
    draft_tokens: int | None
    surface: Surface
    surface_is_assumed: bool
    bonus: str | None
    drafted_share: float | None
    cap: Cap | None
    tensor_parallel: int | None
    hardware: str | None
    quantization: str | None
    notes: str
    accept_length: PrintedFigure | None
    accept_rate: PrintedFigure | None
    by_position: tuple[PrintedFigure, ...] | None
    points: tuple[Point, ...]
    is_idle: bool = False

    @property
    def shape(self) -> DraftShape:
        shape = draft_shape(self.engine, steps=self.steps, topk=self.topk, draft_tokens=self.draft_tokens)
        # Medusa's heads make a tree; vLLM alone verifies its best path
        return replace(shape, is_chain=False, num_steps=None) if self.method == "medusa" and self.engine != "vllm" else shape

    @property
    def config(self) -> str:
        """Steps, top-k and the draft tokens flag as SGLang's users write them, "3-1-4"; else drafts a round, "k=3"; or nothing."""
        is_bare_flag = self.steps is None and self.topk is None
        return _config(self.steps, self.topk, self.shape.num_drafted if is_bare_flag else self.draft_tokens)

    def point(self, load: LoadKey) -> Point | None:
        return next((point for point in self.points if point.load == load), None)


def _config(steps: int | None, topk: int | None, draft_tokens: int | None) -> str:
    if steps is None and topk is None:
        return "" if draft_tokens is None else f"k={draft_tokens}"
    return "-".join("?" if part is None else str(part) for part in (steps, topk, draft_tokens))


def arms_of(table: ReportedTable) -> tuple[ReportedArm, ...]:
    """The arms in the order of the table.

    Raises:
        ReportedError: two rows of one arm contradict each other, or give two figures for one load point.
    """
    grouped: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for number, row in enumerate(table.rows, start=1):
        fields = _with_defaults(row, table)
        grouped.setdefault(fields.get("arm") or _made_up_name(fields), []).append((number, fields))
    return tuple(_arm(name, rows) for name, rows in grouped.items())


def _with_defaults(row: ReportedRow, table: ReportedTable) -> dict[str, Any]:
    fields = {name: getattr(table.defaults, name) for name in type(table.defaults).model_fields}
    fields |= {name: value for name in ReportedRow.model_fields if (value := getattr(row, name)) is not None}
    fields["settings"] = {**table.defaults.settings, **row.settings}
    fields["quantization"] = fields["quantization"] or table.target.quantization
    fields["hardware"] = fields["hardware"] or table.hardware
    fields["is_idle"] = 0 in (fields["steps"], fields["draft_tokens"])
    for key in ("steps", "topk", "draft_tokens"):
        fields[key] = fields[key] or None
    engine, version = _engine(fields["engine"], fields["version"])
    return {**fields, "engine": engine, "version": version}


def _engine(text: str | None, version: str | None) -> tuple[str, str | None]:
    """`"SGLang 0.5.9"` is sglang, release 0.5.9; a release given on its own has the last word."""
    words = re.fullmatch(r"(?P<name>.*?)(?:[\s=v:-]+(?P<version>\d[\w.+]*))?", (text or "").strip(), re.DOTALL)
    name = words["name"].strip().lower() if words else ""
    return _ENGINES.get(re.sub(r"[^a-z0-9]", "", name), name), version or (words["version"] if words else None)


def _is_speculative(fields: dict[str, Any]) -> bool:
    drafter, method = (fields.get(key) for key in ("drafter", "method"))
    said = [word.lower() for word in (drafter, method) if word]
    if any(word in _PLAIN_WORDS for word in said):
        return False
    hints = ("steps", "topk", "draft_tokens", "accept_length", "accept_rate", "accept_by_position", "cost_ratio", "speedup")
    points = [*fields.get("points", ())]
    return bool(said) or any(fields.get(key) is not None for key in hints) or any(point.accept_length for point in points)


def _method(fields: dict[str, Any]) -> str:
    for text in (fields.get("method"), fields.get("drafter"), fields.get("arm")):
        squeezed = re.sub(r"[^a-z0-9]", "", (text or "").lower())
        for spelling, method in _METHODS.items():
            if spelling in squeezed:
                return method
    return (fields.get("method") or "speculative").lower()


def _made_up_name(fields: dict[str, Any]) -> str:
    shape = _config(*(fields.get(key) for key in ("steps", "topk", "draft_tokens")))
    words = [fields["engine"] or "engine", fields.get("version")]
    words += [fields.get("drafter") or fields.get("method"), shape] if _is_speculative(fields) else ["base"]
    return " ".join(word for word in words if word)


def _arm(name: str, rows: list[tuple[int, dict[str, Any]]]) -> ReportedArm:
    merged: dict[str, Any] = {"arm": name}
    for key in _CONFIGURATION:
        given = [(number, fields[key]) for number, fields in rows if fields.get(key) is not None and fields[key] != ""]
        for number, value in given[1:]:
            if value != given[0][1]:
                clash = f"{_plain(given[0][1])} and {_plain(value)}"
                raise ReportedError(
                    f"rows {given[0][0]} and {number} are both arm {name!r} but differ in {key} ({clash}); name them apart"
                )
        merged[key] = given[0][1] if given else None
    merged["points"] = tuple(point for _, fields in rows for point in fields.get("points", ()))
    for key in ("accept_length", "accept_rate", "accept_by_position", "cost_ratio", "speedup"):
        merged[key] = next((fields[key] for _, fields in rows if fields.get(key) is not None), None)
    is_speculative = _is_speculative(merged)
    version_text: str | None = merged["version"]
    try:
        version = Version.parse(version_text) if version_text else None
    except ValueError:
        version = None
    points = _points(name, rows)
    positions = next((fields["accept_by_position"] for _, fields in rows if fields.get("accept_by_position")), None)
    if positions is not None and merged["steps"] is None and merged["draft_tokens"] is None:
        # acceptance by position is told of chains, and of every draft of them
        merged["steps"], merged["topk"] = len(positions), 1
    length, rate = _common_acceptance(rows, points)
    return ReportedArm(
        name=name,
        engine=merged["engine"] or "",
        version=version,
        version_text=version_text,
        is_speculative=is_speculative,
        method=_method(merged) if is_speculative else "plain",
        drafter=merged["drafter"] if is_speculative else None,
        steps=merged["steps"] if is_speculative else None,
        topk=merged["topk"] if is_speculative else None,
        draft_tokens=merged["draft_tokens"] if is_speculative else None,
        surface=merged["figures_from"] or "log",
        surface_is_assumed=merged["figures_from"] is None,
        bonus=merged["bonus"],
        drafted_share=merged["drafted_share"].value if merged["drafted_share"] else None,
        cap=merged["max_running_requests"],
        tensor_parallel=merged["tensor_parallel"],
        hardware=merged["hardware"],
        quantization=merged["quantization"],
        notes="; ".join(dict.fromkeys(fields["notes"] for _, fields in rows if fields.get("notes"))),
        accept_length=length if is_speculative else None,
        accept_rate=rate if is_speculative else None,
        by_position=positions if is_speculative else None,
        points=points,
        is_idle=is_speculative and any(fields["is_idle"] for _, fields in rows),
    )


def _plain(value: Any) -> str:
    if isinstance(value, Cap):
        return "default" if value.is_default else str(value.number or "none")
    return str(value)


def _points(name: str, rows: list[tuple[int, dict[str, Any]]]) -> tuple[Point, ...]:
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
    return tuple(sorted((key, _SWITCHES.get(value.lower(), value)) for key, value in found.items()))


def _merged(name: str, number: int, before: Point | None, point: Point) -> Point:
    if before is None:
        return point
    changes: dict[str, Any] = {}
    for key in ("throughput", "request_speed", "accept_length", "accept_rate", "cost_ratio", "speedup"):
        old, new = getattr(before, key), getattr(point, key)
        if old is not None and new is not None and old.value != new.value:
            raise ReportedError(
                f"row {number}: arm {name!r} has two figures for {key.replace('_', ' ')} at {point.load.label} ({old} and {new}); "
                "one row stands for one load point: keep one, name the arms apart, or give several runs of it as a list"
            )
        if new is not None:
            changes[key] = new
    return replace(before, **changes)


def _common_acceptance(
    rows: list[tuple[int, dict[str, Any]]], points: tuple[Point, ...]
) -> tuple[PrintedFigure | None, PrintedFigure | None]:
    """Length and rate that stand for the whole arm: the first printed pair, else the first of either."""
    pairs = [(fields.get("accept_length"), fields.get("accept_rate")) for _, fields in rows]
    pairs += [(point.accept_length, point.accept_rate) for point in points]
    printed = [pair for pair in pairs if pair != (None, None)]
    return max(printed, key=lambda pair: (pair[0] is not None) + (pair[1] is not None), default=(None, None))
