"""The report in a real browser: plots are drawn and legible, nothing is fetched, hostile text does nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.integration

every_report = pytest.mark.parametrize("opened", ["laptop", "wide", "surface", "reported", "hostile"], indirect=True)
laptop_report = pytest.mark.parametrize("opened", ["laptop"], indirect=True)

PLOTS = """[...document.querySelectorAll("[data-plot]")].map((place) => {
  const box = (selector) => { const found = place.querySelector(selector); return found && found.getBoundingClientRect(); };
  const legend = box(".legend"), axis = box(".xtitle"), whole = place.querySelector(".main-svg").getBoundingClientRect();
  return {
    key: place.dataset.plot, drawn: place.dataset.drawn || "",
    lines: [...place.querySelectorAll(".scatterlayer .js-line")].filter((line) => line.getBBox().width > 0).length,
    marks: place.querySelectorAll(".scatterlayer .point").length,
    bars: place.querySelectorAll(".errorbar path").length,
    legendBelowAxis: !axis || legend.top >= axis.bottom - 1, legendInside: legend.bottom <= whole.bottom + 1,
    ink: getComputedStyle(place.querySelector(".xtick text")).fill, width: whole.width,
  };
})"""
INK = "(() => { const probe = document.createElement('i'); probe.style.color = 'var(--ink)'; document.body.append(probe);"
INK += " const shown = getComputedStyle(probe).color; probe.remove(); return shown; })()"


@every_report
@pytest.mark.parametrize(
    ("width", "dark", "phone"), [(1280, False, False), (1280, True, False), (390, False, True)], ids=["desktop", "dark", "phone"]
)
async def test_plots_are_drawn_and_nothing_is_fetched(page: Any, opened: Path, width: int, dark: bool, phone: bool) -> None:
    await page.go(opened, width=width, dark=dark, phone=phone)
    plots = {plot["key"]: plot for plot in await page.evaluate(PLOTS)}
    assert set(plots) >= {"throughput", "request-speed", "break-even"}
    is_measured = "joint" in plots  # reported figures have no counts by position, and no intervals
    ink = await page.evaluate(INK)
    for plot in plots.values():
        assert plot["drawn"] == "yes"
        assert plot["marks"] >= 2
        assert plot["lines"] > 0 or not is_measured
        assert (plot["bars"] > 0) == (is_measured and plot["key"] != "joint")
        assert plot["legendBelowAxis"], plot
        assert plot["legendInside"], plot
        assert plot["ink"] == ink
        assert 300 <= plot["width"] <= width
    assert await page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.requests == [opened.absolute().as_uri()]
    assert page.complaints == []
    assert await page.evaluate("typeof window.pwned") == "undefined"


@laptop_report
async def test_nothing_can_be_fetched_or_run_even_if_markup_got_in(page: Any, opened: Path) -> None:
    await page.go(opened)
    violated = await page.evaluate("""new Promise((done) => {
      const seen = [];
      document.addEventListener("securitypolicyviolation", (event) => {
        if (seen.push(event.effectiveDirective) === 2) done(seen);
      });
      const image = new Image(); image.src = "http://127.0.0.1:9/x"; document.body.append(image);
      const script = document.createElement("script"); script.textContent = "window.pwned = 1"; document.body.append(script);
    })""")
    assert sorted(violated) == ["img-src", "script-src-elem"]
    assert await page.evaluate("typeof window.pwned") == "undefined"


@laptop_report
async def test_conditional_acceptance_is_one_key_press_away(page: Any, opened: Path) -> None:
    await page.go(opened)
    joint = await page.evaluate("document.querySelector('[data-plot=joint]').data[0].y")
    await page.evaluate("document.querySelector('button[data-view=conditional]').focus()")
    for kind in ("keyDown", "keyUp"):
        await page.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r")
    conditional = await page.evaluate("document.querySelector('[data-plot=conditional]').data[0].y")
    assert conditional[0] == joint[0]
    assert conditional[1] == pytest.approx(joint[1] / joint[0])
    pressed = await page.evaluate("[...document.querySelectorAll('button[data-view]')].map((b) => b.getAttribute('aria-pressed'))")
    assert pressed == ["false", "true"]


@pytest.mark.parametrize("opened", ["surface"], indirect=True)
async def test_the_surface_is_seen_by_load_and_by_number_of_drafts(page: Any, opened: Path) -> None:
    await page.go(opened)
    names = "document.querySelector('[data-plot^=break-even]').data.map((line) => line.name)"
    assert "accept length, drafter" in await page.evaluate(names)
    await page.evaluate("document.querySelector('button[data-view=break-even-by-drafts-0]').click()")
    by_drafts = await page.evaluate(names)
    assert by_drafts[:3] == ["break-even at c=1", "break-even at c=8", "break-even at c=64"]
    assert by_drafts[-1] == "cliff"
    (plot,) = [plot for plot in await page.evaluate(PLOTS) if plot["key"] == "break-even-by-drafts-0"]
    assert plot["drawn"] == "yes"
    assert plot["lines"] == 4
    # drafts 1, 3, 4, 6 measured and 2, 5 read off, at three loads; the drafter's marks; both ends of the cliff
    assert plot["marks"] == 3 * 6 + 3 + 2
    assert plot["legendBelowAxis"]
    assert page.complaints == []


@laptop_report
async def test_a_dark_page_prints_in_dark_ink_on_paper(page: Any, opened: Path) -> None:
    await page.go(opened, dark=True)
    light, dark = "rgb(27, 31, 36)", "rgb(230, 233, 237)"
    inks = "[...document.querySelectorAll('.xtick text')].map((text) => getComputedStyle(text).fill)"
    assert set(await page.evaluate(inks)) == {dark}
    await page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert set(await page.evaluate(inks)) == {light}
    await page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert set(await page.evaluate(inks)) == {dark}


@pytest.mark.parametrize(("opened", "most_pages"), [("laptop", 8), ("wide", 20)], indirect=["opened"])
async def test_the_printed_report_is_short(page: Any, opened: Path, most_pages: int) -> None:
    await page.go(opened)
    num_pages = len(re.findall(rb"/Type\s*/Page\b", await page.pdf()))
    assert 2 <= num_pages <= most_pages
