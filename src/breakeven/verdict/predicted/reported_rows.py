"""Rows of a reported table (docs/reported.md) as rows of speedups: lengths read by release, speedups only where arms compare."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from breakeven.costs.table import Shape, TableRow
from breakeven.costs.table_file import columns_left_alone, is_speedup_table, read_speedups
from breakeven.printed.figures import Bounds, PrintedFigure
from breakeven.verdict.reported.baselines import baseline_for
from breakeven.verdict.reported.case import Case, study
from breakeven.verdict.reported.comparing import Pair
from breakeven.verdict.reported.files import load_table

__all__ = ["load_rows"]

SHOWN = 12


def load_rows(path: Path) -> tuple[str, tuple[TableRow, ...], float, tuple[str, ...]]:
    """Title, rows, threshold and what was taken for granted, of a table of speedups (CSV) or of a reported table.

    Raises:
        ReportedError: the file is neither, or something in it is refused.
    """
    if is_speedup_table(path):
        rows = read_speedups(path)
        return path.stem, rows, 0.03, _taken_for_granted(path, rows)
    table = load_table(path)
    return table.name or path.stem, _rows(study(table)), table.threshold, ()


def _taken_for_granted(path: Path, rows: Sequence[TableRow]) -> tuple[str, ...]:
    notes = []
    if not any(row.concurrency for row in rows):
        notes.append("No row says its load (concurrency): they are taken to be of one, since the cost of a round changes with it")
    if left := columns_left_alone(path):
        shown = ", ".join(name[:40] for name in left[:SHOWN]) + (f" and {len(left) - SHOWN} more" if len(left) > SHOWN else "")
        notes.append(f"Columns left alone: {shown}")
    return tuple(notes)


def _rows(case: Case) -> tuple[TableRow, ...]:
    # arms that admitted different numbers of requests say nothing of c; impossible pairs are left out by rule, further on
    pairs = {
        (pair.arm.name, pair.load): pair
        for pair in case.pairs
        if pair.admission.is_equal is not False and not pair.is_tainted and not pair.unlike and not pair.contradiction
    }
    rows: list[TableRow] = []
    for reading in case.readings:
        arm, shape = reading.arm, reading.arm.shape
        for point in arm.points:
            is_own = any((point.throughput, point.request_speed, point.speedup, point.accept_length, point.accept_rate))
            if point.load.concurrency is None or (not is_own and len(arm.points) > 1):
                continue
            pair = pairs.get((arm.name, point.load))
            length = reading.accept_length(point.load)
            baseline = pair.baseline if pair is not None else baseline_for(arm, case.arms)
            plain = baseline.point(point.load) if baseline is not None else None
            speed = (plain.throughput or plain.request_speed) if plain is not None else None
            rows.append(
                TableRow(
                    number=len(rows) + 1,
                    setup="",
                    target=case.table.target.name or "",
                    where=(
                        arm.quantization or "",
                        arm.hardware or "",
                        " ".join(filter(None, (arm.engine, arm.version_text))),
                        str(arm.tensor_parallel or ""),
                        "",
                        "",
                    ),
                    method=arm.method,
                    drafter=arm.drafter or arm.name,
                    shape=_shape(shape.num_drafted, shape.num_steps, shape.is_chain, arm.topk),
                    dataset=point.load.workload,
                    concurrency=str(point.load.concurrency),
                    accept_length=length,
                    speedup=_speedup(pair, point.load.concurrency) or _from_cost(length, point.cost_ratio),
                    plain_speed=speed.value if speed is not None else None,
                    context=point.input_tokens,
                )
            )
    return tuple(rows)


def _shape(num_drafted: int | None, num_steps: int | None, is_chain: bool | None, topk: int | None) -> Shape:
    if is_chain and num_drafted:
        return Shape(num_drafted, 1, num_drafted)
    return Shape(num_steps or 0, topk or 0, num_drafted or 0)


def _from_cost(length: Bounds | None, cost: PrintedFigure | None) -> Bounds | None:
    """A cost ratio that was measured (forced acceptance) says as much as a speedup."""
    if length is None or cost is None or cost.value <= cost.half_width:
        return None
    low, high = length.low / (cost.value + cost.half_width), length.high / (cost.value - cost.half_width)
    return Bounds(length.estimate / cost.value, low, high)


def _speedup(pair: Pair | None, concurrency: int) -> Bounds | None:
    if pair is None:
        return None
    mine, plain = pair.arm.point(pair.load), pair.baseline.point(pair.load)
    if plain is None and mine is not None and mine.speedup is not None:
        return mine.speedup.bounds
    figures = [point.throughput or point.request_speed for point in (mine, plain) if point is not None]
    if len(figures) == 2 and figures[0] is not None and figures[1] is not None and concurrency:
        low = (figures[0].value - figures[0].half_width) / (figures[1].value + figures[1].half_width)
        high = (figures[0].value + figures[0].half_width) / max(figures[1].value - figures[1].half_width, 1e-9)
        if low <= pair.ratio <= high:
            return Bounds(pair.ratio, low, high)
    return Bounds(pair.ratio, pair.ratio, pair.ratio)
