"""Rows of a reported table gathered into arms: defaults filled in, and rows of one name put together."""

from __future__ import annotations

from typing import Any

from breakeven.errors import ReportedError
from breakeven.verdict.reported.arms import ReportedArm, short_config
from breakeven.verdict.reported.cells import Cap
from breakeven.verdict.reported.load_points import NumberedRow, common_acceptance, points_of
from breakeven.verdict.reported.schema import ReportedRow, ReportedTable
from breakeven.verdict.reported.spellings import engine_and_release, means_plain, method_named
from breakeven.versions import Version

__all__ = ["arms_of"]

_SHAPE = ("steps", "topk", "draft_tokens")
_ACCEPTANCE_AND_COST = ("accept_length", "accept_rate", "accept_by_position", "cost_ratio", "speedup")
# What an arm without speculation has none of, whatever its row carries.
_OF_SPECULATION = ("drafter", *_SHAPE, "accept_length", "accept_rate", "accept_by_position")
# What all rows of one arm must agree on.
_CONFIGURATION = (
    "engine",
    "version",
    "drafter",
    "method",
    *_SHAPE,
    "figures_from",
    "bonus",
    "drafted_share",
    "max_running_requests",
    "tensor_parallel",
    "hardware",
    "quantization",
)


def arms_of(table: ReportedTable) -> tuple[ReportedArm, ...]:
    """The arms in the order of the table.

    Raises:
        ReportedError: two rows of one arm contradict each other, or give two figures for one load point.
    """
    grouped: dict[str, list[NumberedRow]] = {}
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
    for key in _SHAPE:
        fields[key] = fields[key] or None
    engine, version = engine_and_release(fields["engine"], fields["version"])
    return {**fields, "engine": engine, "version": version}


def _is_speculative(fields: dict[str, Any]) -> bool:
    drafter, method = (fields.get(key) for key in ("drafter", "method"))
    said = [word for word in (drafter, method) if word]
    if any(means_plain(word) for word in said):
        return False
    hints = (*_SHAPE, *_ACCEPTANCE_AND_COST)
    points = fields.get("points", ())
    return bool(said) or any(fields.get(key) is not None for key in hints) or any(point.accept_length for point in points)


def _made_up_name(fields: dict[str, Any]) -> str:
    shape = short_config(*(fields.get(key) for key in _SHAPE))
    words = [fields["engine"] or "engine", fields.get("version")]
    words += [fields.get("drafter") or fields.get("method"), shape] if _is_speculative(fields) else ["base"]
    return " ".join(word for word in words if word)


def _arm(name: str, rows: list[NumberedRow]) -> ReportedArm:
    merged: dict[str, Any] = {key: _agreed(name, key, rows) for key in _CONFIGURATION}
    merged["points"] = tuple(point for _, fields in rows for point in fields.get("points", ()))
    for key in _ACCEPTANCE_AND_COST:
        merged[key] = next((fields[key] for _, fields in rows if fields.get(key) is not None), None)
    is_speculative = _is_speculative(merged)
    method = method_named(merged["method"], merged["drafter"], name) or (merged["method"] or "speculative").lower()
    version_text: str | None = merged["version"]
    try:
        version = Version.parse(version_text) if version_text else None
    except ValueError:
        version = None
    points = points_of(name, rows)
    merged["accept_length"], merged["accept_rate"] = common_acceptance(rows, points)
    positions = merged["accept_by_position"]
    if positions is not None and merged["steps"] is None and merged["draft_tokens"] is None:
        # acceptance by position is told of chains, and of every draft of them
        merged["steps"], merged["topk"] = len(positions), 1
    if not is_speculative:
        merged |= dict.fromkeys(_OF_SPECULATION)
    return ReportedArm(
        name=name,
        engine=merged["engine"] or "",
        version=version,
        version_text=version_text,
        is_speculative=is_speculative,
        method=method if is_speculative else "plain",
        drafter=merged["drafter"],
        steps=merged["steps"],
        topk=merged["topk"],
        draft_tokens=merged["draft_tokens"],
        surface=merged["figures_from"] or "log",
        surface_is_assumed=merged["figures_from"] is None,
        bonus=merged["bonus"],
        drafted_share=merged["drafted_share"].value if merged["drafted_share"] else None,
        cap=merged["max_running_requests"],
        tensor_parallel=merged["tensor_parallel"],
        hardware=merged["hardware"],
        quantization=merged["quantization"],
        notes="; ".join(dict.fromkeys(fields["notes"] for _, fields in rows if fields.get("notes"))),
        accept_length=merged["accept_length"],
        accept_rate=merged["accept_rate"],
        by_position=merged["accept_by_position"],
        points=points,
        is_idle=is_speculative and any(fields["is_idle"] for _, fields in rows),
    )


def _agreed(name: str, key: str, rows: list[NumberedRow]) -> Any:
    """What the rows say of the arm's configuration, which is one."""
    given = [(number, fields[key]) for number, fields in rows if fields.get(key) is not None and fields[key] != ""]
    for number, value in given[1:]:
        if value != given[0][1]:
            clash = f"{_plain(given[0][1])} and {_plain(value)}"
            raise ReportedError(
                f"rows {given[0][0]} and {number} are both arm {name!r} but differ in {key} ({clash}); name them apart"
            )
    return given[0][1] if given else None


def _plain(value: Any) -> str:
    if isinstance(value, Cap):
        return "default" if value.is_default else str(value.number or "none")
    return str(value)
