"""Terminal, Markdown, CSV and JSON: the same figures, and hostile strings without effect."""

from __future__ import annotations

import csv
import io
import json

import pytest
from rich.console import Console

from breakeven.report.html import render_html
from breakeven.report.lookup import Lookup
from breakeven.report.markdown import render_markdown
from breakeven.report.spreadsheet import render_csv
from breakeven.report.terminal import render_terminal
from breakeven.report.text import MISSING, interval, levels, outcome, plain, quantity, speedup
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
    for words in ("Conclusions", "Measure next", "dead drafter", "1 trial does not count"):
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
    assert columns == {3, 5, 8, 9}
    assert "<img" not in text.replace("\\<", "")
    assert "@here" not in text.replace("\\@", "")
    assert "http://" not in text


def test_markdown_tells_what_is_read_off_and_where_drafters_stand(curve: Result) -> None:
    text = render_markdown(curve)
    assert "| c=4 | 4 eagle3 | 1.40 [1.33, 1.47] | read off |" in text
    assert "### Cliffs" in text
    assert "| c=1 | arm 1 | 3 | 1.60 [1.58, 1.62] | 1.30 [1.2" in text
    assert "| above | 1.6 over 1.3 |" in text


def test_markdown_reads_well_as_plain_text(laptop: Result) -> None:
    """Escapes stand only where something would become markup."""
    step = "1. lower top_p, not _this_"
    text = render_markdown(laptop.model_copy(update={"provenance": {"env.MY_CACHE": "0.1.0"}, "next_measurements": (step,)}))
    assert "| env.MY_CACHE | 0.1.0 |" in text
    assert "- 1\\. lower top_p, not \\_this\\_" in text


def test_markdown_shows_every_outcome(laptop: Result) -> None:
    text = render_markdown(laptop)
    for comparison in laptop.comparisons:
        assert f"{comparison.ratio.estimate:.2f}x" in text
    assert "▼ slower" in text


def test_csv_has_the_bare_figures(laptop: Result) -> None:
    rows = list(csv.DictReader(io.StringIO(render_csv(laptop))))
    assert len(rows) == len(laptop.cells)
    first = laptop.comparisons[0]
    assert len({len(row) for row in rows}) == 1
    row = next(row for row in rows if row["arm"] == first.arm and row["load"] == first.load)
    assert float(row["speedup"]) == first.ratio.estimate
    assert row["outcome"] == first.outcome
    assert first.predicted is not None
    bounds = [float(row[f"predicted_speedup{end}"]) for end in ("", "_low", "_high")]
    assert bounds == [first.predicted.estimate, first.predicted.low, first.predicted.high]
    forced = {arm.name for arm in laptop.arms if arm.forced_accept_length is not None}
    assert forced
    assert {row["outcome"] for row in rows if row["arm"] in forced} == {"probe"}
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


def test_levels_say_what_intervals_claim() -> None:
    bounded = {"estimate": 1.0, "low": 0.9, "high": 1.1}
    assert levels([]) == ""
    assert levels([Interval(estimate=1.0, level=0.5), None]) == ""
    assert levels([Interval(**bounded, level=0.95)]) == "95 %"
    assert levels([Interval(**bounded, level=0.9824), Interval(**bounded, level=0.95)]) == "95 to 98.2 %"


def test_plain_bounds_towers_of_combining_marks_and_names_astral_characters() -> None:
    assert plain("e\u0301") == "e\u0301"
    assert plain("e" + "\u0301" * 5) == "e" + "\u0301" * 3 + "\\u0301" * 2
    assert plain("a\U000e0041") == "a\\U000e0041"


def predicted_only(result: Result) -> Result:
    """The figures of arm 2 at c=4 are not measured; its ratio there is a prediction."""
    cells = tuple(cell for cell in result.cells if (cell.arm, cell.load) != ("arm 2", "c=4"))
    comparisons = tuple(
        item.model_copy(update={"basis": "predicted", "outcome": "undecided"})
        if (item.arm, item.load) == ("arm 2", "c=4")
        else item
        for item in result.comparisons
    )
    return result.model_copy(update={"cells": cells, "comparisons": comparisons})


def test_a_prediction_has_a_row_although_nothing_was_measured(laptop: Result) -> None:
    result = predicted_only(laptop)
    ratio = next(item.ratio for item in result.comparisons if item.basis == "predicted")
    (row,) = [line for line in on_terminal(result, 160).splitlines() if "predicted" in line]
    assert "arm 2" in row
    assert speedup(ratio) in row
    assert "? undecided (predicted)" in render_markdown(result)
    rows = list(csv.DictReader(io.StringIO(render_csv(result))))
    assert [(row["arm"], row["load"], row["tokens_per_s"]) for row in rows if row["basis"] == "predicted"] == [("arm 2", "c=4", "")]


def test_forced_arms_are_probes_whatever_their_ratio(laptop: Result) -> None:
    comparisons = tuple(item.model_copy(update={"outcome": "pays"}) for item in laptop.comparisons)
    result = laptop.model_copy(update={"comparisons": comparisons})
    forced = [arm.name for arm in result.arms if arm.forced_accept_length is not None]
    assert forced
    for text in (on_terminal(result, 120), render_markdown(result)):
        rows = [line for line in text.splitlines() if "x [" in line and any(name in line for name in forced)]
        assert len(rows) == len(forced) * len(result.loads)
        assert all("probe" in row and "pays" not in row for row in rows)


def test_terminal_tells_the_break_even_of_each_load(laptop: Result) -> None:
    lines = on_terminal(laptop, 80).splitlines()
    assert "c=4   break-even accept length: 1.30 [1.23, 1.37] for eagle3, 3 drafts" in [line.rstrip() for line in lines]
    wide = on_terminal(laptop, 120)
    assert "break-even" in next(line for line in wide.splitlines() if "tok/s a request" in line)


def test_terminal_tells_every_break_even_with_its_interval_and_the_cliffs(curve: Result) -> None:
    shown = on_terminal(curve, 200)
    line = next(line for line in shown.splitlines() if line.startswith("c=4 "))
    assert line.count(" for eagle3") > 1
    assert line.count(" for eagle3") == line.count("] for eagle3")
    assert curve.cliffs[0].text[:60] in " ".join(shown.split())


def test_terminal_is_short_where_evidence_is_long(laptop: Result) -> None:
    conclusion = laptop.conclusions[0].model_copy(update={"evidence": tuple(f"fact {index}" for index in range(40))})
    shown = on_terminal(laptop.model_copy(update={"conclusions": (conclusion,)}), 100)
    assert "fact 5" in shown
    assert "fact 6" not in shown
    assert "the rest is in the report" in shown


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "＝", " =", "\t="])
def test_csv_guards_every_formula_start(laptop: Result, start: str) -> None:
    name = f"{start}cmd()"
    arms = tuple(arm.model_copy(update={"name": name}) for arm in laptop.arms[:1])
    cells = tuple(cell.model_copy(update={"arm": name}) for cell in laptop.cells[:1])
    (row,) = csv.DictReader(io.StringIO(render_csv(laptop.model_copy(update={"arms": arms, "cells": cells, "comparisons": ()}))))
    assert row["arm"].startswith("'")


def test_each_engine_has_its_own_baseline(laptop: Result) -> None:
    """A reported table of two engines has no one baseline; an arm that others were compared with still is one."""
    first = laptop.comparisons[0]
    lookup = Lookup(laptop.model_copy(update={"baseline": None, "comparisons": (first,)}))
    assert outcome(lookup, first.baseline, first.load) == "baseline"
    assert outcome(lookup, first.baseline, "another load") == MISSING


def test_invented_figures_are_never_shown_as_measured(laptop: Result) -> None:
    """An arm of the fake engine, all of them or one, is said in every format that people read."""
    for real in (on_terminal(laptop, 200), render_markdown(laptop), render_html(laptop)):
        assert "imulated" not in real
    every = laptop.model_copy(update={"arms": tuple(arm.model_copy(update={"engine": "fake"}) for arm in laptop.arms)})
    for shown in (on_terminal(every, 200), render_markdown(every), render_html(every)):
        assert "Simulated, not measured: engine fake draws these figures" in shown
    one = laptop.model_copy(update={"arms": (*laptop.arms[:-1], laptop.arms[-1].model_copy(update={"engine": "fake"}))})
    assert f"Simulated, not measured: {laptop.arms[-1].name}. Engine fake" in on_terminal(one, 200)
