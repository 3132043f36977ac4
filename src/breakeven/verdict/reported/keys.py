"""The keys of a reported table as Markdown, for docs/reported.md: `python -m breakeven.verdict.reported.keys` prints them."""

from __future__ import annotations

import sys

from pydantic import BaseModel

from breakeven.verdict.reported.schema import PointFields, ReportedRow, ReportedTable, TargetFacts

__all__ = ["keys_markdown"]


def keys_markdown() -> str:
    """A table for each part of the file: key and meaning."""
    of_points = set(PointFields.model_fields)
    parts = (
        ("The file", ReportedTable, set[str]()),
        ("`target`", TargetFacts, set[str]()),
        ("A row (and, but for `arm` and `points`, `defaults`)", ReportedRow, of_points),
        ("A row or one of its `points`", PointFields, set[str]()),
    )
    return "\n".join(_part(title, model, without) for title, model, without in parts)


def _part(title: str, model: type[BaseModel], without: set[str]) -> str:
    lines = [f"### {title}", "", "| key | meaning |", "| --- | --- |"]
    lines += [f"| `{key}` | {field.description} |" for key, field in model.model_fields.items() if key not in without]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(keys_markdown())
