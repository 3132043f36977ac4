"""Terminal, Markdown, CSV and JSON: the same figures, and hostile strings without effect."""

from __future__ import annotations

import csv
import io
import json

import pytest
from rich.console import Console

from breakeven.report.markdown import render_markdown
from breakeven.report.spreadsheet import render_csv
from breakeven.report.terminal import render_terminal
from breakeven.report.text import interval, plain, quantity, speedup
from breakeven.verdict.result import Interval, Result


def on_terminal(result: Result, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    render_terminal(result, console)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_terminal_leads_with_the_verdict_and_fits(laptop: Result, width: int) -> None:
    shown = on_terminal(laptop, width)
    lines = shown.strip().splitlines()
    assert lines[0].startswith("Speculation pays")
    assert max(map(len, lines)) <= width
    for words in ("Conclusions", "Measure next", "dead drafter", "1 trials do not count"):
        assert words in shown


def test_terminal_shows_names_as_text(hostile: Result) -> None:
    shown = on_terminal(hostile, 120)
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "[x](http" in shown.replace("\n", "").replace(" ", "")


def test_markdown_tables_have_equal_columns(hostile: Result) -> None:
    text = render_markdown(hostile)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    columns = {row.replace("\\|", "").count("|") for row in rows}
    assert columns == {3, 5, 8}
    assert "<img" not in text.replace("\\<", "")
    assert "@here" not in text.replace("\\@", "")


def test_markdown_shows_every_outcome(laptop: Result) -> None:
    text = render_markdown(laptop)
    for comparison in laptop.comparisons:
        assert f"{comparison.ratio.estimate:.2f}x" in text
    assert "▼ slower" in text


def test_csv_has_the_bare_figures(laptop: Result) -> None:
    rows = list(csv.DictReader(io.StringIO(render_csv(laptop))))
    assert len(rows) == len(laptop.cells)
    first = laptop.comparisons[0]
    row = next(row for row in rows if row["arm"] == first.arm and row["load"] == first.load)
    assert float(row["speedup"]) == first.ratio.estimate
    assert row["outcome"] == first.outcome
    assert rows[0]["speedup"] == ""


def test_csv_cells_are_no_formulas(laptop: Result) -> None:
    arms = tuple(arm.model_copy(update={"name": "=1+1"}) for arm in laptop.arms[:1])
    cells = tuple(cell.model_copy(update={"arm": "=1+1"}) for cell in laptop.cells[:1])
    text = render_csv(laptop.model_copy(update={"arms": arms, "cells": cells, "comparisons": ()}))
    assert ",'=1+1," in text


def test_json_round_trip(laptop: Result) -> None:
    assert Result.model_validate_json(laptop.model_dump_json()) == laptop
    assert json.loads(laptop.model_dump_json())["schema_version"] == 1


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.01234, "0.0123"), (4.0, "4.00"), (17900.4, "17 900"), (0.0, "0"), (None, "–"), (float("nan"), "–")],
)
def test_quantities(value: float | None, shown: str) -> None:
    assert quantity(value) == shown


def test_intervals() -> None:
    assert interval(Interval(estimate=20.0, low=18.0, high=22.5)) == "20.0 [18.0, 22.5]"
    assert interval(Interval(estimate=20.0)) == "20.0"
    assert speedup(Interval(estimate=1.3, low=0.2, high=float("inf"))) == "1.30x [0.20, ∞]"


def test_plain_makes_control_characters_visible_and_cuts() -> None:
    assert plain("a\x1b[31m\u202eb\nc") == "a\\u001b[31m\\u202eb c"
    assert plain("x" * 50, limit=10) == "x" * 9 + "…"
