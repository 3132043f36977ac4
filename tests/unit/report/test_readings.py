"""What `read` prints first of a log is not the figure that flatters."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from breakeven.readers.reading import AcceptanceFound, Comparison, Reading, ReadResult
from breakeven.report.readings import render_readings


@pytest.mark.parametrize(("share", "is_told"), [(0.29, True), (0.99, False), (None, False)])
def test_the_length_over_all_steps_stands_beside_that_over_drafted_ones(share: float | None, is_told: bool) -> None:
    found = AcceptanceFound(
        accept_length=2.5,
        per_step=1.43,
        drafted_share=share,
        basis="counters",
        formula_status="not needed",
    )
    reading = Reading(source="a.prom", kind="scrape", engine="vllm", version=None, num_lines=0, acceptance=found)
    console = Console(file=io.StringIO(), width=120)
    render_readings(ReadResult(readings=(reading,)), console)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert ("over all decode steps about 1.43: 29 % of them carried drafts" in printed) == is_told


def test_logs_with_nothing_in_common_are_said_to_have_nothing() -> None:
    """A table of headings alone looked like output that was lost."""
    console = Console(file=io.StringIO(), width=120)
    render_readings(ReadResult(readings=(), comparisons=(Comparison(first="a", second="b", differences=()),)), console)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert "nothing to compare" in printed
    assert "speedup" not in printed
