from __future__ import annotations

import json
import re

from breakeven.report.html import render_html
from breakeven.verdict.result import Result

MAX_PAGE_BYTES = 2_000_000


def without_scripts(page: str) -> str:
    return re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)


def figures_of(page: str) -> dict[str, dict[str, object]]:
    found = re.search(r"<script>const FIGURES = (\{.*?\});</script>", page, flags=re.DOTALL)
    assert found is not None
    figures: dict[str, dict[str, object]] = json.loads(found.group(1))
    return figures


def test_page_is_small_and_refers_to_nothing_outside(wide: Result) -> None:
    page = render_html(wide)
    assert len(page.encode()) < MAX_PAGE_BYTES
    body = without_scripts(page)
    assert not re.search(r"""(?:src|href|action)\s*=|url\(|@import""", body)
    assert "default-src 'none'" in body


def test_every_section_and_figure_is_there(laptop: Result) -> None:
    body = without_scripts(render_html(laptop))
    for heading in (
        "Figures",
        "Pictures",
        "Two views of fairness",
        "Break-even accept length",
        "Conclusions",
        "Findings",
        "Provenance",
    ):
        assert f">{heading}</h2>" in body
    assert "1.05x [1.00, 1.10]" not in body.split("</header>")[0]
    for comparison in laptop.comparisons:
        assert f"{comparison.ratio.estimate:.2f}x [" in body
    assert "dead drafter" in body
    assert "check d2t" in body


def test_plots_carry_every_arm_once_and_intervals(wide: Result) -> None:
    figures = figures_of(render_html(wide))
    assert set(figures) == {"throughput", "request-speed", "break-even", "per-position"}
    traces = figures["throughput"]["data"]
    assert isinstance(traces, list)
    assert [trace["name"] for trace in traces] == [arm.name for arm in wide.arms]
    looks = {(trace["marker"]["color"], trace["marker"]["symbol"]) for trace in traces}
    assert len(looks) == len(wide.arms)
    cell = next(cell for cell in wide.cells if cell.arm == "arm 2" and cell.load == "c=8")
    assert cell.throughput is not None
    assert cell.throughput.high is not None
    place = traces[2]["x"].index(8.0)
    assert traces[2]["y"][place] == cell.throughput.estimate
    assert abs(traces[2]["error_y"]["array"][place] - (cell.throughput.high - cell.throughput.estimate)) < 1e-9


def test_hostile_text_stays_text(hostile: Result) -> None:
    page = render_html(hostile)
    assert page.count("</script>") == 3
    assert "<img" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert "\\u202e" in page
    assert len(page.encode()) < MAX_PAGE_BYTES


def test_a_result_without_figures_needs_no_script(laptop: Result) -> None:
    bare = laptop.model_copy(update={"cells": (), "comparisons": (), "break_even": ()})
    page = render_html(bare)
    assert "<script" not in page
    assert "script-src &#39;none&#39;" in page or "script-src 'none'" in page


def test_infinite_bounds_do_not_reach_the_figures(laptop: Result) -> None:
    cell = laptop.cells[0]
    assert cell.throughput is not None
    endless = cell.model_copy(update={"throughput": cell.throughput.model_copy(update={"high": float("inf")})})
    page = render_html(laptop.model_copy(update={"cells": (endless, *laptop.cells[1:])}))
    traces = figures_of(page)["throughput"]["data"]
    assert isinstance(traces, list)
    assert traces[0]["error_y"]["array"][0] is None
