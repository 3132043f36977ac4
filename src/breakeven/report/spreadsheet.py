"""The result as CSV: one row an arm and load point, plain numbers, for whoever wants to plot or join them."""

from __future__ import annotations

import csv
import io

from breakeven.report.lookup import Lookup
from breakeven.report.text import plain
from breakeven.verdict.result import Interval, Result

__all__ = ["render_csv"]

COLUMNS = (
    "load", "concurrency", "rate_per_s", "arm", "engine", "version", "method", "num_draft_tokens", "forced_accept_length",
    "is_baseline", "num_launches", "num_trials", "num_voided", "tokens_per_s", "tokens_per_s_low", "tokens_per_s_high",
    "request_tokens_per_s", "request_tokens_per_s_low", "request_tokens_per_s_high", "ttft_p50_s", "ttft_p95_s", "tpot_s",
    "round_s", "num_running", "accept_length", "accept_length_low", "accept_length_high", "draft_acceptance", "drafted_share",
    "break_even", "break_even_low", "break_even_high", "speedup", "speedup_low", "speedup_high", "level", "basis", "outcome",
    "predicted_speedup", "predicted_speedup_low", "predicted_speedup_high",
)  # fmt: skip
# In place of an outcome: neither an arm that accepts to order nor one that changes the output is to be run.
PROBE = "probe"
DIFFERS = "output differs"
# A spreadsheet takes a cell that begins so for a formula; some take the full-width forms too, and skip white space before them.
FORMULA_STARTS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")


def render_csv(result: Result) -> str:
    """RFC 4180 with a header row; empty where a figure is missing."""
    output = io.StringIO()
    writer = csv.writer(output)
    writer.writerow(COLUMNS)
    lookup = Lookup(result)
    loads = {load.label: load for load in result.loads}
    for cell in (cell for _, cells in lookup.cells_by_load() for cell in cells):
        arm, load, comparison = lookup.arms.get(cell.arm), loads.get(cell.load), lookup.comparison(cell.arm, cell.load)
        point = lookup.break_even(cell.arm, cell.load)
        acceptance = cell.acceptance
        writer.writerow(
            [
                _text(cell.load),
                load and load.concurrency,
                load and load.rate_per_s,
                _text(cell.arm),
                arm and _text(arm.engine),
                arm and arm.version and _text(arm.version),
                arm and _text(arm.method),
                arm and (arm.drafts_at(load.concurrency) if load and load.concurrency else arm.num_draft_tokens),
                arm and arm.forced_accept_length,
                "yes" if arm and arm.is_baseline else "no",
                cell.num_launches,
                cell.num_trials,
                cell.num_voided,
                *_bounds(cell.throughput),
                *_bounds(cell.request_speed),
                cell.ttft_p50_s,
                cell.ttft_p95_s,
                cell.tpot_s,
                cell.round_s,
                cell.num_running,
                *_bounds(acceptance.accept_length if acceptance else None),
                acceptance and acceptance.draft_acceptance,
                acceptance and acceptance.drafted_share,
                *_bounds(point.cost_ratio if point else None),
                *_bounds(comparison.ratio if comparison else None),
                comparison and comparison.ratio.level,
                comparison and comparison.basis,
                comparison and (comparison.outcome or (PROBE if lookup.is_probe(cell.arm) else DIFFERS)),
                *_bounds(comparison.predicted if comparison else None),
            ]
        )
    return output.getvalue()


def _bounds(value: Interval | None) -> tuple[float | None, float | None, float | None]:
    return (value.estimate, value.low, value.high) if value else (None, None, None)


def _text(text: str) -> str:
    shown = plain(text)
    return f"'{shown}" if shown.lstrip().startswith(FORMULA_STARTS) else shown
