"""Rows of published speedups: who measured what where, with the intervals that their printed digits leave.

A table of speedups has one row for each configuration and data set: accept length, plain and speculative speed or their ratio.
It is read from CSV by the names of its columns; other columns are left alone. `docs/predict.md` lists the names.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from breakeven.errors import ReportedError
from breakeven.printed.figures import Bounds, PrintedFigure

__all__ = ["Shape", "TableRow", "is_speedup_table", "read_speedups"]

MAX_BYTES = 5_000_000
MAX_ROWS = 20_000

# what columns are called, first the name used here
_COLUMNS = {
    "setup": ("setup", "setup_id"),
    "target": ("target", "model"),
    "quantization": ("quantization", "target_quant", "quant"),
    "hardware": ("hardware", "gpu"),
    "parallel": ("tensor_parallel", "tp", "num_gpus"),
    "engine": ("engine",),
    "drafter": ("drafter",),
    "method": ("method",),
    "steps": ("steps", "num_steps"),
    "topk": ("topk",),
    "draft_tokens": ("draft_tokens",),
    "dataset": ("workload", "dataset"),
    "concurrency": ("concurrency", "batch_size"),
    "accept_length": ("accept_length", "accept_len", "al"),
    "plain": ("plain_tok_s", "base_tok_s"),
    "speculative": ("speculative_tok_s", "spec_tok_s"),
    "speedup": ("speedup",),
    "unit": ("unit",),
}


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """How much is drafted a round; a part that was not reported is 0, which is never equal to a known one by accident."""

    steps: int = 0
    topk: int = 0
    draft_tokens: int = 0

    @property
    def is_chain(self) -> bool:
        return self.topk == 1 and self.steps > 0

    @property
    def num_drafted(self) -> int | None:
        """Drafts of a chain; None for trees and where it is not known."""
        return self.steps if self.is_chain else None

    @property
    def longest(self) -> int | None:
        """The accept length if every draft on the deepest path is accepted."""
        return self.steps + 1 if self.steps else None

    def __str__(self) -> str:
        if self == Shape():
            return "shape not reported"
        return f"k={self.steps}" if self.is_chain else f"{self.steps or '?'}-{self.topk or '?'}-{self.draft_tokens or '?'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """`speedup` None where it is to be predicted; `accept_length` None where it was not reported."""

    number: int
    setup: str
    target: str
    where: tuple[str, ...]
    method: str
    drafter: str
    shape: Shape
    dataset: str
    concurrency: str
    accept_length: Bounds | None
    speedup: Bounds | None
    plain_speed: float | None

    @property
    def machine(self) -> tuple[str, ...]:
        """Target, precision, hardware, engine, tensor parallel size, unit and load: what c belongs to besides the drafter."""
        return (self.target, *self.where, self.concurrency)

    @property
    def deployment(self) -> tuple[str, ...]:
        return (*self.machine, self.method)

    @property
    def cost(self) -> Bounds | None:
        """c = AL / speedup with what rounding leaves of it."""
        if self.accept_length is None or self.speedup is None:
            return None
        return Bounds(
            self.accept_length.estimate / self.speedup.estimate,
            self.accept_length.low / self.speedup.high,
            self.accept_length.high / self.speedup.low,
        )

    @property
    def highest_cost(self) -> float | None:
        """The most c can be: from the accept length, or, where that is not known, from the most that this shape can accept."""
        if self.speedup is None:
            return None
        cost = self.cost
        if cost is not None:
            return cost.high
        return self.shape.longest / self.speedup.low if self.shape.longest is not None else None

    @property
    def label(self) -> str:
        load = f" at c={self.concurrency}" if self.concurrency else ""
        return " / ".join(part for part in (self.target, self.drafter, str(self.shape), self.dataset) if part) + load


def is_speedup_table(path: Path) -> bool:
    """A CSV whose first line names a column of speedups, or of speculative speeds beside plain ones."""
    if path.suffix.lower() != ".csv":
        return False
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            head = {cell.strip().lower() for cell in file.readline(10_000).split(",")}
    except OSError as error:
        raise ReportedError(f"{path} cannot be read: {error.strerror or error}") from None
    return bool(head & set(_COLUMNS["speedup"] + _COLUMNS["speculative"]))


def read_speedups(path: Path) -> tuple[TableRow, ...]:
    """Read a CSV of speedups. Rows that are plain decoding only are left out.

    Raises:
        ReportedError: unreadable, too large, without the columns that are needed, or a cell that is no number: with its row.
    """
    reader = csv.DictReader(io.StringIO(_text(path)), strict=True)
    try:
        lines = list(reader)
    except csv.Error as error:
        raise ReportedError(f"{path}, line {reader.line_num}: {error}") from None
    if len(lines) > MAX_ROWS:
        raise ReportedError(f"{path} has {len(lines)} rows; at most {MAX_ROWS} are read: split it by target")
    present = {(name or "").strip().lower(): name for name in reader.fieldnames or ()}
    chosen = {key: present[name] for key, names in _COLUMNS.items() if (name := _first(names, present)) is not None}
    if "speedup" not in chosen and not {"plain", "speculative"} <= chosen.keys():
        raise ReportedError(
            f"{path}: no column speedup, nor plain_tok_s and speculative_tok_s; found {', '.join(present) or 'none'}"
        )
    rows = []
    for number, line in enumerate(lines, start=1):
        cells = {key: (line.get(column) or "").strip() for key, column in chosen.items()}
        row = _row(path, number, cells)
        if row is not None:
            rows.append(row)
    return tuple(rows)


def _first(names: tuple[str, ...], present: Mapping[str, str]) -> str | None:
    return next((name for name in names if name in present), None)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ReportedError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(content) > MAX_BYTES:
        raise ReportedError(f"{path} is larger than {MAX_BYTES // 1_000_000} MB; split it by target")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ReportedError(f"{path} is not UTF-8 text; save it as UTF-8") from None


def _row(path: Path, number: int, cells: Mapping[str, str]) -> TableRow | None:
    def figure(key: str) -> PrintedFigure | None:
        text = cells.get(key, "")
        if not text:
            return None
        try:
            found = PrintedFigure.parse(text)
        except ValueError as error:
            raise ReportedError(f"{path}, row {number}, {key}: {text[:40]!a} {error}") from None
        if found.value <= 0.0:
            raise ReportedError(f"{path}, row {number}, {key}: {text[:40]!a} must be above zero; leave the cell empty if not known")
        return found

    def count(key: str) -> int:
        found = figure(key)
        return int(found.value) if found is not None else 0

    plain, speculative, ratio = figure("plain"), figure("speculative"), figure("speedup")
    if speculative is None and ratio is None and not cells.get("accept_length"):
        return None
    length = figure("accept_length")
    if length is not None and length.bounds.high < 1.0:
        raise ReportedError(f"{path}, row {number}: accept length {length}; it counts the bonus token, so it cannot be below 1")
    return TableRow(
        number=number,
        setup=cells.get("setup", ""),
        target=cells.get("target", ""),
        where=tuple(cells.get(key, "") for key in ("quantization", "hardware", "engine", "parallel", "unit")),
        method=cells.get("method", ""),
        drafter=cells.get("drafter", ""),
        shape=Shape(count("steps"), count("topk"), count("draft_tokens")),
        dataset=cells.get("dataset", ""),
        concurrency=cells.get("concurrency", ""),
        accept_length=Bounds(length.value, max(length.bounds.low, 1.0), length.bounds.high) if length is not None else None,
        speedup=_speedup(plain, speculative, ratio),
        plain_speed=plain.value if plain is not None else None,
    )


def _speedup(plain: PrintedFigure | None, speculative: PrintedFigure | None, ratio: PrintedFigure | None) -> Bounds | None:
    """From the two speeds where both are there, which have more digits than their ratio."""
    if plain is not None and speculative is not None:
        return Bounds(
            speculative.value / plain.value,
            (speculative.value - speculative.half_width) / (plain.value + plain.half_width),
            (speculative.value + speculative.half_width) / max(plain.value - plain.half_width, 1e-9),
        )
    return ratio.bounds if ratio is not None else None
