"""Reading a reported table from YAML, JSON, CSV or Markdown; everything that is wrong with it is said at once, by row and key."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from breakeven.errors import ReportedError
from breakeven.inputs.text import read_text
from breakeven.verdict.reported.nearest_key import nearest_key
from breakeven.verdict.reported.schema import PointFields, ReportedRow, ReportedTable, SharedFields, TargetFacts

__all__ = ["load_table"]

# YAML in pure Python reads about 100 kB a second, and a table of hundreds of arms is nobody's to read.
MAX_BYTES = 500_000
MAX_ROWS = 1000
MAX_PROBLEMS_SHOWN = 12
# Columns of a flat table that stand for one setting each.
SETTINGS = "settings."


def load_table(path: Path) -> ReportedTable:
    """Read `path` (.yaml, .yml, .json, .csv or .md).

    Raises:
        ReportedError: the file cannot be read, is of another kind, or something in it is refused: each problem with its row.
    """
    text = _read(path)
    suffix = path.suffix.lower()
    if suffix == ".csv":
        document: Any = _flat_document(path, _csv_lines(path, text))
    elif suffix in {".md", ".markdown"}:
        document = _flat_document(path, _markdown_lines(text))
    elif suffix in {".yaml", ".yml", ".json"}:
        document = _json_document(path, text) if suffix == ".json" else _yaml_document(path, text)
    else:
        raise ReportedError(f"{path}: a reported table ends in .yaml, .yml, .json, .csv or .md")
    try:
        return ReportedTable.model_validate(document)
    except ValidationError as error:
        found = error.errors(include_url=False)
        # rows that are refused do not count for pydantic, which then also finds too few of them
        own = [problem for problem in found if problem["type"] != "too_short"] or found
        problems = [_explain(problem, document) for problem in own]
        more = f"\n  and {len(problems) - MAX_PROBLEMS_SHOWN} more" if len(problems) > MAX_PROBLEMS_SHOWN else ""
        shown = "".join(f"\n  {problem}" for problem in problems[:MAX_PROBLEMS_SHOWN])
        raise ReportedError(f"{path} cannot be judged as it stands:{shown}{more}") from None


def _read(path: Path) -> str:
    expected = f"a row for each arm and load, at most {MAX_ROWS}; split a larger table by target or workload"
    text = read_text(path, max_bytes=MAX_BYTES, expected=expected, error=ReportedError)
    return text.replace("\r\n", "\n").replace("\r", "\n")


class _TextLoader(yaml.BaseLoader):
    """Every scalar stays text (1.00 keeps its zeros), a key given twice is refused, anchors are not part of the format."""

    def compose_node(self, parent: Any, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("anchors and aliases are not used here: write the value out")
        node: yaml.Node | None = super().compose_node(parent, index)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key must be a plain word", key.start_mark)
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is given twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def _yaml_document(path: Path, text: str) -> Any:
    try:
        document = yaml.load(text, Loader=_TextLoader)  # noqa: S506 - a BaseLoader builds nothing but text, lists and mappings
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        raise ReportedError(f"{path}{where}: {problem}") from None
    except RecursionError:
        raise ReportedError(f"{path} is nested too deeply for a table") from None
    return _with_rows(path, document)


def _too_many_rows(path: Path, num_rows: int) -> ReportedError:
    return ReportedError(f"{path} has {num_rows} rows; at most {MAX_ROWS} are read: split it by target or workload")


def _json_document(path: Path, text: str) -> Any:
    """As the YAML: numbers stay text with their digits, a key given twice is refused, null is a key left out."""

    def mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        twice = sorted({key for key, _ in pairs if [name for name, _ in pairs].count(key) > 1})
        if twice:
            raise ReportedError(f"{path}: {twice[0]!a} is given twice")
        return {key: value for key, value in pairs if value is not None}

    try:
        document = json.loads(text, parse_float=str, parse_int=str, parse_constant=str, object_pairs_hook=mapping)
    except json.JSONDecodeError as error:
        raise ReportedError(f"{path}, line {error.lineno}: {error.msg}") from None
    except RecursionError:
        raise ReportedError(f"{path} is nested too deeply for a table") from None
    return _with_rows(path, document)


def _with_rows(path: Path, document: Any) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise ReportedError(f"{path} must be a mapping with a key 'rows'; see docs/reported.md for an example")
    rows = document.get("rows")
    num_rows = len(rows) if isinstance(rows, list) else 0
    if num_rows > MAX_ROWS:
        raise _too_many_rows(path, num_rows)
    return document


def _markdown_lines(text: str) -> list[list[str]]:
    """Cells of the first table in the text, without its line of dashes and without bold and code marks."""
    lines: list[list[str]] = []
    for line in text.split("\n"):
        stripped = line.strip()
        if stripped.startswith("|"):
            cells = [cell.strip().strip("*`").strip() for cell in stripped.strip("|").split("|")]
            if not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
                lines.append(cells)
        elif lines:
            break
    return lines


def _csv_lines(path: Path, text: str) -> list[list[str]]:
    named_in = next((line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")), "")
    delimiter = max(",;\t", key=named_in.count)
    reader = csv.reader(io.StringIO(text), delimiter=delimiter, strict=True)
    try:
        return [line for line in reader if any(cell.strip() for cell in line) and not line[0].lstrip().startswith("#")]
    except csv.Error as error:
        raise ReportedError(f"{path}, line {reader.line_num}: {error}") from None


def _flat_document(path: Path, lines: list[list[str]]) -> dict[str, Any]:
    """One row for each arm and load point; a cell left empty repeats what another row of the same arm says."""
    if len(lines) < 2:
        raise ReportedError(f"{path} needs a line of column names and at least one row")
    if len(lines) - 1 > MAX_ROWS:
        raise _too_many_rows(path, len(lines) - 1)
    header = [re.sub(r"[\s/()_-]+", "_", cell.lower()).strip("_") for cell in lines[0]]
    twice = sorted({name for name in header if name and header.count(name) > 1})
    if twice:
        raise ReportedError(f"{path}: column {', '.join(twice)} is given twice")
    rows: list[dict[str, Any]] = []
    table: dict[str, Any] = {"name": path.stem, "rows": rows}
    for number, line in enumerate(lines[1:], start=1):
        if len(line) > len(header):
            raise ReportedError(f"{path}, row {number}: {len(line)} cells, but {len(header)} columns are named")
        named: dict[str, Any] = {key: cell.strip() for key, cell in zip(header, line, strict=False) if cell.strip()}
        if settings := {key: named.pop(key) for key in tuple(named) if key.startswith(SETTINGS)}:
            named["settings"] = {key.removeprefix(SETTINGS): value for key, value in settings.items()}
        for key, inside in (("target", "name"), ("model", "name"), ("model_type", "model_type")):
            _shared(table.setdefault("target", {}), inside, named.pop(key, None), path, number)
        if "arm" in header and "arm" not in named:
            raise ReportedError(f"{path}, row {number}: no arm; write merged cells out, an empty one says nothing")
        rows.append(named)
    return table


def _shared(into: dict[str, Any], key: str, value: str | None, path: Path, number: int) -> None:
    if value is not None and into.setdefault(key, value) != value:
        raise ReportedError(f"{path}, row {number}: {key} {value!r} differs from {into[key]!r}; one table is about one target")


def _explain(problem: Any, document: Any) -> str:
    location = tuple(problem["loc"])
    where, key = _place(location, document), str(location[-1]) if location else "the file"
    if location and isinstance(location[-1], int):
        return f"{where}must be a mapping of keys to values"
    match problem["type"]:
        case "extra_forbidden":
            return f"{where}{key!r} is not a key here{nearest_key(key, _known_keys(location))}"
        case "missing":
            return f"{where}{key!r} is missing"
        case "value_error":
            return f"{where}{key}: {problem['ctx']['error']}"
        case "too_short":
            return f"{where}{key}: at least one row is needed"
        case "literal_error":
            return f"{where}{key}: must be {problem['ctx']['expected']}"
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"{where}{key}: must be a mapping of keys to values"
        case "tuple_type":
            return f"{where}{key}: must be a list"
        case _:
            return f"{where}{key}: {problem['msg']}"


def _place(location: tuple[Any, ...], document: Any) -> str:
    if len(location) >= 2 and location[0] == "rows" and isinstance(location[1], int):
        row = document["rows"][location[1]]
        name = row.get("arm") if isinstance(row, dict) else None
        point = (
            f", point {location[3] + 1}" if len(location) > 3 and location[2] == "points" and isinstance(location[3], int) else ""
        )
        shown = "".join(character for character in str(name or "")[:60] if character.isprintable())
        return f"row {location[1] + 1}{f' ({shown})' if shown else ''}{point}: "
    return f"{location[0]}: " if len(location) > 1 else ""


def _known_keys(location: tuple[Any, ...]) -> Iterable[str]:
    model: type[BaseModel] = ReportedTable
    if "points" in location[:-1]:
        model = PointFields
    elif len(location) > 1 and location[0] in {"rows", "defaults"}:
        model = ReportedRow if location[0] == "rows" else SharedFields
    elif location[0] == "target" and len(location) > 1:
        model = TargetFacts
    return model.model_fields
