"""Reading a CSV of speedups by the names of its columns (`table_columns.py`); other columns are left alone, and named.

What people write is read where it can mean one thing only: columns apart by commas, semicolons or tabs, "1.74x", "+85 %", times per
token instead of speeds, a rate whose meaning the engine's release settles. A row that contradicts itself is kept with the reason.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from breakeven.costs.table import Shape, TableRow
from breakeven.costs.table_columns import Columns, bonus_included, is_plain, is_unknown, named_columns
from breakeven.errors import ReportedError
from breakeven.inputs.text import read_text
from breakeven.printed.definitions import draft_shape
from breakeven.printed.figures import Bounds, PrintedFigure
from breakeven.printed.reading import read_printed
from breakeven.versions import Version

__all__ = ["columns_left_alone", "is_speedup_table", "read_speedups"]

MAX_BYTES = 5_000_000
MAX_ROWS = 20_000
EXPECTED = "a table of speedups; split a larger one by target"

_FIGURES = {
    *("steps", "topk", "draft_tokens", "context", "concurrency", "accept_length", "accept_rate", "speedup"),
    *("plain", "speculative", "plain_time", "speculative_time"),
}
_NEEDED = ({"speedup"}, {"plain", "speculative"}, {"plain_time", "speculative_time"})

# a reported ratio and that of the speeds beside it may differ by this much beyond their digits: averages over prompts do
RATIO_SLACK = 0.02
_SPEED_WORDS = re.compile(r"/\s*s\b|/\s*sec|per second|\btps\b|\b1(000)?\s*/")
_TIME_WORDS = re.compile(r"\b(ms|us|µs|s|sec|seconds?|milliseconds?|tpot|itl|latency)\b")


def is_speedup_table(path: Path) -> bool:
    """A CSV whose first line names a column of speedups, or of speculative speeds or times beside plain ones."""
    if path.suffix.lower() != ".csv":
        return False
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            line = file.readline(10_000)
    except OSError as error:
        raise ReportedError(f"{path} cannot be read: {error.strerror or error}") from None
    try:
        chosen = named_columns(cell.strip().strip('"') for cell in line.split(_delimiter(line))).chosen
    except ValueError:
        return True  # one of ours, to be refused with the reason
    return any(key in chosen for key in ("speedup", "speculative", "speculative_time"))


def columns_left_alone(path: Path) -> tuple[str, ...]:
    """The columns of a CSV of speedups that nothing is read from.

    Raises:
        ReportedError: it cannot be read.
    """
    text = read_text(path, max_bytes=MAX_BYTES, expected=EXPECTED, error=ReportedError)
    line = text.partition("\n")[0]
    return _columns(path, next(csv.reader([line], delimiter=_delimiter(line)), ())).left_alone


def read_speedups(path: Path) -> tuple[TableRow, ...]:
    """Read a CSV of speedups. Rows that are plain decoding only are left out.

    Raises:
        ReportedError: unreadable, too large, without the columns that are needed, or a cell that is no number: with its row.
    """
    text = read_text(path, max_bytes=MAX_BYTES, expected=EXPECTED, error=ReportedError)
    reader = csv.DictReader(io.StringIO(text), delimiter=_delimiter(text.partition("\n")[0]), strict=True)
    try:
        lines = list(reader)
    except csv.Error as error:
        raise ReportedError(f"{path}, line {reader.line_num}: {error}") from None
    if len(lines) > MAX_ROWS:
        raise ReportedError(f"{path} has {len(lines)} rows; at most {MAX_ROWS} are read: split it by target")
    names = [name or "" for name in reader.fieldnames or ()]
    chosen = _columns(path, names).chosen
    if not any(needed <= chosen.keys() for needed in _NEEDED):
        raise ReportedError(f"{path}: no column speedup, nor plain_tok_s and speculative_tok_s; found {', '.join(names) or 'none'}")
    rows = []
    for number, line in enumerate(lines, start=1):
        cells = {key: (line.get(column) or "").strip() for key, column in chosen.items()}
        cells |= {key: "" for key in _FIGURES & cells.keys() if is_unknown(cells[key])}
        row = _row(f"{path}, row {number}", number, cells)
        if row is not None:
            rows.append(row)
    return tuple(rows)


def _delimiter(line: str) -> str:
    return max(",;\t", key=line.count)


def _columns(path: Path, names: Iterable[str]) -> Columns:
    try:
        return named_columns(names)
    except ValueError as error:
        raise ReportedError(f"{path}: {error}") from None


def _row(where: str, number: int, cells: Mapping[str, str]) -> TableRow | None:
    def figure(key: str) -> PrintedFigure | None:
        return _figure(where, key, cells.get(key, ""))

    def count(key: str) -> int:
        found = figure(key)
        return int(found.value) if found is not None else 0

    printed = _figure(where, "speedup", cells.get("speedup", ""), PrintedFigure.parse_ratio)
    ratio = printed.bounds if printed is not None else None
    plain, speculative, is_time = figure("plain"), figure("speculative"), _is_time(cells.get("unit", ""))
    unit = cells.get("unit", "")
    if speculative is None and (speculative := figure("speculative_time")) is not None:
        plain, is_time, unit = figure("plain_time"), True, "ms a token"
    if speculative is None and ratio is None and not (cells.get("accept_length") or cells.get("accept_rate")):
        return None
    engine, _, release = cells.get("engine", "").partition(" ")
    shape = _shape(engine.lower(), count("steps"), count("topk"), count("draft_tokens"))
    length, refused = _accept_length(where, cells, figure("accept_length"), engine.lower(), release)
    measured = _quotient(plain, speculative, is_time=is_time)
    if measured is not None and ratio is not None and _apart(measured, ratio):
        refused = (
            f"its speedup is {ratio.estimate:g}, but its two {'times' if is_time else 'speeds'} give {measured.estimate:.2f}; "
            "one of the three figures is wrong"
        )
    if (measured or ratio) is not None and not is_plain(cells.get("baseline", "")):
        refused = (
            f"its speedup is over {cells['baseline'][:40]!a} and not over plain decoding, so it says nothing of what a round costs"
        )
    context = figure("context")
    return TableRow(
        number=number,
        setup=cells.get("setup", ""),
        target=cells.get("target", ""),
        where=(*(cells.get(key, "") for key in ("quantization", "hardware", "engine", "parallel", "gpus")), unit),
        method=cells.get("method", ""),
        drafter=cells.get("drafter", ""),
        shape=shape,
        dataset=cells.get("dataset", ""),
        concurrency=cells.get("concurrency", ""),
        context=context.value if context is not None else None,
        accept_length=length,
        speedup=measured or ratio,
        plain_speed=_speed(plain, unit, is_time=is_time),
        refused=refused,
    )


def _figure(where: str, key: str, text: str, read: Callable[[str], PrintedFigure] = PrintedFigure.parse) -> PrintedFigure | None:
    if not text:
        return None
    try:
        found = read(text)
    except ValueError as error:
        raise ReportedError(f"{where}, {key}: {text[:40]!a} {error}") from None
    if found.value <= 0.0:
        raise ReportedError(f"{where}, {key}: {text[:40]!a} must be above zero; leave the cell empty if not known")
    return found


def _is_time(unit: str) -> bool:
    """Whether less is faster: milliseconds a token and the like, but not "1000/TPOT", which somebody turned round already."""
    text = unit.lower()
    return _TIME_WORDS.search(text) is not None and _SPEED_WORDS.search(text) is None


def _speed(plain: PrintedFigure | None, unit: str, *, is_time: bool) -> float | None:
    """Tokens/s of one request where a time is one a token; None where it may be a whole request's."""
    if plain is None or not is_time:
        return plain.value if plain is not None else None
    is_per_token = re.search(r"tpot|itl|tok", unit.lower()) is not None
    return 1000.0 / plain.value if is_per_token and "ms" in unit.lower() else None


def _quotient(plain: PrintedFigure | None, speculative: PrintedFigure | None, *, is_time: bool) -> Bounds | None:
    """From the two figures where both are there, which have more digits than their ratio."""
    if plain is None or speculative is None:
        return None
    above, below = (plain, speculative) if is_time else (speculative, plain)
    return Bounds(
        above.value / below.value,
        (above.value - above.half_width) / (below.value + below.half_width),
        (above.value + above.half_width) / max(below.value - below.half_width, 1e-9),
    )


def _apart(one: Bounds, other: Bounds) -> bool:
    slack = RATIO_SLACK * one.estimate
    return one.low - slack > other.high or other.low > one.high + slack


def _shape(engine: str, steps: int, topk: int, draft_tokens: int) -> Shape:
    """As reported; what the engine's own flags leave of it, such as vLLM's number of drafts alone, is filled in for chains."""
    if not (steps and topk):
        known = draft_shape(engine, steps=steps or None, topk=topk or None, draft_tokens=draft_tokens or None)
        if known.is_chain and known.num_drafted:
            return Shape(known.num_drafted, 1, draft_tokens or known.num_drafted)
    return Shape(steps, topk, draft_tokens)


def _accept_length(
    where: str, cells: Mapping[str, str], length: PrintedFigure | None, engine: str, release: str
) -> tuple[Bounds | None, str]:
    """The accept length, read from a rate where only that is there; and why the row cannot be used, if so."""
    if length is not None:
        try:
            more = 0.0 if bonus_included(cells.get("bonus", "")) else 1.0
        except ValueError as error:
            raise ReportedError(f"{where}, bonus: {cells['bonus'][:40]!a}; {error}") from None
        low, high = length.bounds.low + more, length.bounds.high + more
        if high < 1.0:
            raise ReportedError(
                f"{where}: accept length {length}; it counts the bonus token, so it cannot be below 1; where it is left out, say "
                "so in a column bonus: excluded"
            )
        return Bounds(length.value + more, max(low, 1.0), high), ""
    rate = _figure(where, "accept_rate", cells.get("accept_rate", ""))
    if rate is None:
        return None, ""
    if rate.value > 1.0:
        raise ReportedError(f"{where}, accept_rate: {rate} is more than all of the drafts; write 0.42 or 42 %")
    try:
        version = Version.parse(release) if release else None
    except ValueError:
        version = None
    steps, topk, drafts = (_whole(cells.get(key, "")) for key in ("steps", "topk", "draft_tokens"))
    reading = read_printed(
        engine=engine,
        shape=draft_shape(engine, steps=steps, topk=topk, draft_tokens=drafts),
        length=None,
        rate=rate,
        version=version,
        method=cells.get("method", "").lower(),
    )
    if reading.is_trusted and reading.accept_length is not None and not reading.is_upper_bound:
        return reading.accept_length, ""
    lengths = sorted({f"{candidate.accept_length.estimate:.2f}" for candidate in reading.candidates})
    ways = f"it may be accept length {' or '.join(lengths[:4])}" if lengths else reading.doubt or "its meaning is not known"
    return None, f"accept rate {rate}: {ways}; give accept_length, or the engine with its release and the number of drafts"


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and 0 < int(text) < 10_000 else None
