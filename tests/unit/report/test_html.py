from __future__ import annotations

import hashlib
import itertools
import json
import re
from importlib.resources import files

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
        "Verdict by arm and load, in two views of fairness",
        "Pictures",
        "Conclusions",
        "Findings",
        "What next",
        "All figures",
        "Break-even accept length by load",
        "Trials that do not count",
        "Provenance",
    ):
        assert f">{heading}</h2>" in body
    for comparison in laptop.comparisons:
        assert f"{comparison.ratio.estimate:.2f}x [" in body
    for words in ("dead drafter", "check d2t", "launch b0", "two cores", "It pays", "a longer accept length"):
        assert words in body


def glance_rows(page: str) -> dict[str, str]:
    """Arm -> its row of the first table."""
    table = page.partition('<table class="glance">')[2].partition("</table>")[0]
    rows = re.findall(r"<tr[^>]*>\s*<th scope=\"row\">(.*?)</tr>", table, flags=re.DOTALL)
    return {re.sub("<.*", "", row, flags=re.DOTALL).strip(): row for row in rows}


def test_both_views_of_fairness_stand_side_by_side(laptop: Result) -> None:
    rows = glance_rows(render_html(laptop))
    assert list(rows) == [arm.name for arm in laptop.arms]
    for comparison in laptop.comparisons:
        assert f"{comparison.ratio.estimate:.2f}x" in rows[comparison.arm]
    for best in laptop.own_best:
        assert f"at {best.load}" in rows[best.arm]


def test_outcomes_have_a_mark_and_a_word_and_probes_have_none(laptop: Result) -> None:
    rows = glance_rows(render_html(laptop))
    slower = next(item for item in laptop.comparisons if item.outcome == "slower")
    assert 'aria-label="slower:">▼</span>' in rows[slower.arm]
    for arm in laptop.arms:
        if arm.forced_accept_length is not None:
            assert "aria-label" not in rows[arm.name]
            assert f"forced to {arm.forced_accept_length:.2f}" in rows[arm.name]


def test_headings_tables_and_pictures_can_be_read_aloud(wide: Result) -> None:
    body = without_scripts(render_html(wide))
    levels = [int(level) for level in re.findall(r"<h([1-6])", body)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later - earlier <= 1 for earlier, later in itertools.pairwise(levels))
    assert not re.findall(r"<th(?! scope=|ead)[^>]*>", body)
    pictures = re.findall(r'<div class="plot"[^>]*>', body)
    assert len(pictures) == 4
    assert all('role="img"' in picture and 'aria-label="' in picture for picture in pictures)
    assert body.count("as a table</summary>") == len(pictures)
    identities = re.findall(r' id="([^"]+)"', body)
    assert len(set(identities)) == len(identities)
    assert set(re.findall(r'aria-labelledby="([^"]+)"', body)) <= set(identities)


def test_plots_carry_every_arm_once_and_intervals(wide: Result) -> None:
    figures = figures_of(render_html(wide))
    assert set(figures) == {"throughput", "request-speed", "break-even", "joint", "conditional"}
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


def test_an_arm_looks_the_same_in_every_picture(wide: Result) -> None:
    figures = figures_of(render_html(wide))
    looks: dict[str, set[str]] = {}
    for key in ("throughput", "request-speed", "joint"):
        traces = figures[key]["data"]
        assert isinstance(traces, list)
        for trace in traces:
            name = trace["name"].partition(" at c=")[0]
            looks.setdefault(name, set()).add(f"{trace['line']['color']} {trace['line']['dash']} {trace['marker']['symbol']}")
    assert all(len(seen) == 1 for seen in looks.values())


def test_accept_length_has_the_colour_of_the_curve_it_must_stay_above(laptop: Result) -> None:
    traces = figures_of(render_html(laptop))["break-even"]["data"]
    assert isinstance(traces, list)
    curve, *lengths = traces
    assert curve["name"] == "break-even, eagle3 k=3"
    assert [trace["name"] for trace in lengths] == ["accept length, arm 1", "accept length, arm 2"]
    assert {trace["line"]["color"] for trace in lengths} == {curve["line"]["color"]}
    assert {trace["line"]["dash"] for trace in lengths} == {"dot"}


def test_points_that_were_not_measured_are_hollow_and_cliffs_are_marked(curve: Result) -> None:
    figures = figures_of(render_html(curve))
    by_load = {trace["name"]: trace for trace in figures["break-even"]["data"]}  # type: ignore[attr-defined]
    assert list(by_load)[:5] == [f"break-even, eagle3 k={k}" for k in (1, 2, 3, 4, 5)]
    assert all(symbol.endswith("-open") for symbol in by_load["break-even, eagle3 k=4"]["marker"]["symbol"])
    assert not by_load["break-even, eagle3 k=5"]["marker"]["symbol"].endswith("-open")
    assert by_load["cliff"]["x"][:2] == [4.0, 4.0]
    assert by_load["cliff"]["y"][:2] == [1.3, 1.5]


def test_the_surface_is_shown_by_number_of_drafts_too_with_each_drafter_at_its_own(curve: Result) -> None:
    figures = figures_of(render_html(curve))
    traces = {trace["name"]: trace for trace in figures["break-even-by-drafts-0"]["data"]}  # type: ignore[attr-defined]
    assert set(traces) == {"break-even at c=1", "break-even at c=4", "accept length, arm 1", "cliff"}
    line = traces["break-even at c=1"]
    assert line["x"] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert [symbol.endswith("-open") for symbol in line["marker"]["symbol"]] == [False, True, False, True, False]
    assert traces["accept length, arm 1"]["x"] == [3.0, 3.0]
    assert traces["accept length, arm 1"]["mode"] == "markers"
    assert traces["cliff"]["x"][:2] == [3.0, 5.0]


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


def test_the_plotting_library_is_the_published_file() -> None:
    assets = files("breakeven.report") / "assets"
    digest = hashlib.sha256((assets / "plotly-basic.min.js").read_bytes()).hexdigest()
    assert digest in (assets / "README.md").read_text(encoding="utf-8")
