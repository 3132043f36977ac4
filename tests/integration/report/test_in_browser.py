"""The report opened in a real browser: plots drawn, nothing fetched, readable on a phone, in the dark and on paper."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.integration
EXAMPLES = Path(__file__).parents[3] / "examples"
PLOTS = "[...document.querySelectorAll('[data-plot]')]"
ALL_DRAWN = f"{PLOTS}.length > 0 && {PLOTS}.every(plot => plot.dataset.drawn)"


@pytest.fixture
def report(tmp_path: Path, run_cli: Callable[..., str]) -> Path:
    out = tmp_path / "report.html"
    run_cli("report", str(EXAMPLES / "kimi-k2.5-blackwell" / "reported.yaml"), "--out", str(out))
    return out


async def test_plots_are_drawn_and_nothing_is_fetched(page: Any, report: Path) -> None:
    await page.open(report)
    await page.wait_until(ALL_DRAWN)
    marks = f"{PLOTS}.map(plot => plot.querySelectorAll('.scatterlayer .point, .barlayer .point').length)"
    drawn = await page.evaluate(marks)
    assert len(drawn) >= 3
    assert all(count > 0 for count in drawn)
    fetched = [event["request"]["url"] for event in page.of("Network.requestWillBeSent")]
    assert [url for url in fetched if not url.startswith("data:")] == [report.as_uri()]
    assert page.of("Runtime.exceptionThrown") == []
    assert page.of("Audits.issueAdded") == []
    assert [entry for entry in page.of("Log.entryAdded") if entry["entry"]["level"] == "error"] == []


@pytest.mark.parametrize("width", [390, 1280])
async def test_nothing_sticks_out_of_the_page(page: Any, report: Path, width: int) -> None:
    await page.open(report, width=width)
    await page.wait_until(ALL_DRAWN)
    assert await page.evaluate("document.documentElement.scrollWidth") <= width


async def test_dark_mode_reaches_text_and_plots(page: Any, report: Path) -> None:
    await page.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    await page.open(report)
    await page.wait_until(ALL_DRAWN)
    assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 28)"
    assert await page.evaluate("getComputedStyle(document.querySelector('[data-plot] .xtitle')).fill") == "rgb(230, 233, 237)"


async def test_prints_to_pdf(page: Any, report: Path) -> None:
    await page.open(report)
    await page.wait_until(ALL_DRAWN)
    printed = base64.b64decode((await page.send("Page.printToPDF"))["data"])
    assert printed.startswith(b"%PDF")
    assert len(printed) > 20_000
