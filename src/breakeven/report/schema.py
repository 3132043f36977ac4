"""Documents the JSON result from its type: `python -m breakeven.report.schema > docs/result-schema.md`."""

from __future__ import annotations

import sys
from typing import Any

from breakeven.verdict.result import SCHEMA_VERSION, Result

__all__ = ["schema_markdown"]

INTRODUCTION = f"""\
# The result as JSON, schema version {SCHEMA_VERSION}

What `breakeven bench --json`, `breakeven verdict --json` and `breakeven report --format json` print. Generated from
`breakeven/verdict/result.py` by `python -m breakeven.report.schema`; do not edit by hand.

Times are seconds, speeds tokens per second, ratios plain numbers. A field whose figure does not exist is `null`. A reader should
refuse a `schema_version` it does not know: fields are only removed or change their meaning with a new version.
"""


def schema_markdown() -> str:
    """One section a type, the outermost first."""
    schema = Result.model_json_schema()
    sections = [INTRODUCTION, _section("Result", schema)]
    sections += [_section(name, definition) for name, definition in sorted(schema["$defs"].items())]
    return "\n".join(sections)


def _section(name: str, definition: dict[str, Any]) -> str:
    lines = [f"## {name}", ""]
    if description := definition.get("description"):
        lines += [" ".join(description.split()), ""]
    lines += ["| field | type | meaning |", "| --- | --- | --- |"]
    for field, details in definition["properties"].items():
        lines.append(f"| `{field}` | {_type(details)} | {details.get('description', '').replace('|', '&#124;')} |")
    return "\n".join(lines) + "\n"


def _type(details: dict[str, Any]) -> str:
    if reference := details.get("$ref"):
        name = reference.rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if options := details.get("anyOf"):
        return " or ".join(_type(option) for option in options)
    if values := details.get("enum"):
        return ", ".join(f"`{value}`" for value in values)
    if "const" in details:
        return f"`{details['const']}`"
    if details.get("type") == "array":
        # a tuple of fixed length names the type of each place
        return f"list of {_type(details.get('items') or next(iter(details.get('prefixItems', [{}]))))}"
    if details.get("type") == "object":
        return "table of text"
    return str(details.get("type", "any"))


if __name__ == "__main__":
    sys.stdout.write(schema_markdown())
