"""The result as CSV: one row an arm and load point, plain numbers, for whoever wants to plot or join them."""

from __future__ import annotations

import csv
import io

from breakeven.report.text import plain
from breakeven.verdict.result import Interval, Result

__all__ = ["render_csv"]

COLUMNS = (
    "load", "concurrency", "rate_per_s", "arm", "engine", "method", "num_draft_tokens", "num_launches", "num_trials",
    "num_voided", "tokens_per_s", "tokens_per_s_low", "tokens_per_s_high", "request_tokens_per_s", "ttft_p50_s",
    "ttft_p95_s", "tpot_s", "round_s", "num_running", "accept_length", "accept_length_low", "accept_length_high",
    "draft_acceptance", "drafted_share", "speedup", "speedup_low", "speedup_high", "basis", "outcome", "predicted_speedup",
)  # fmt: skip
# A spreadsheet takes a cell that begins so for a formula.
FORMULA_STARTS = ("=", "+", "-", "@")


def render_csv(result: Result) -> str:
    """RFC 4180 with a header row; empty where a figure is missing."""
    output = io.StringIO()
    writer = csv.writer(output)
    writer.writerow(COLUMNS)
    arms = {arm.name: arm for arm in result.arms}
    loads = {load.label: load for load in result.loads}
    comparisons = {(item.arm, item.load): item for item in result.comparisons}
    for cell in result.cells:
        arm, load, comparison = arms.get(cell.arm), loads.get(cell.load), comparisons.get((cell.arm, cell.load))
        acceptance = cell.acceptance
        writer.writerow(
            [
                _text(cell.load),
                load and load.concurrency,
                load and load.rate_per_s,
                _text(cell.arm),
                arm and _text(arm.engine),
                arm and _text(arm.method),
                arm and arm.num_draft_tokens,
                cell.num_launches,
                cell.num_trials,
                cell.num_voided,
                *_bounds(cell.throughput),
                cell.request_speed and cell.request_speed.estimate,
                cell.ttft_p50_s,
                cell.ttft_p95_s,
                cell.tpot_s,
                cell.round_s,
                cell.num_running,
                *_bounds(acceptance.accept_length if acceptance else None),
                acceptance and acceptance.draft_acceptance,
                acceptance and acceptance.drafted_share,
                *_bounds(comparison.ratio if comparison else None),
                comparison and comparison.basis,
                comparison and comparison.outcome,
                comparison and comparison.predicted and comparison.predicted.estimate,
            ]
        )
    return output.getvalue()


def _bounds(value: Interval | None) -> tuple[float | None, float | None, float | None]:
    return (value.estimate, value.low, value.high) if value else (None, None, None)


def _text(text: str) -> str:
    shown = plain(text)
    return f"'{shown}" if shown.startswith(FORMULA_STARTS) else shown
