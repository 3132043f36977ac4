"""What `breakeven read` found, on a terminal: figures, a line through time, cuts, then what is odd."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from breakeven.findings import Finding
from breakeven.readers.reading import AcceptanceFound, Comparison, Cut, Reading, ReadResult
from breakeven.readers.speedup import SHARE_CALLED_FLATTERED
from breakeven.report.text import MISSING, percent, plain, quantity
from breakeven.units import format_duration

__all__ = ["render_readings", "sparkline", "status_line"]

_SEVERITIES = {"error": "bold red", "warning": "bold yellow", "info": "bold"}
_BARS = "▁▂▃▄▅▆▇█"
_CUT_TITLES = {"running": "running batch", "time": "time", "context": "tokens a request"}
MAX_CUTS = 10
MAX_EVIDENCE = 8
# Fewer lines than this are seen whole in the series.
MIN_LINES_TO_CUT = 24


def render_readings(result: ReadResult, console: Console) -> None:
    """Print `result`. Every string from a file is shown as text, never as markup, without control characters."""
    for reading in result.readings:
        _reading(reading, console)
    for comparison in result.comparisons:
        _comparison(comparison, console)
    if result.findings:
        console.print()
        console.print(Text("All files", style="bold underline"))
        _findings(result.findings, console)


def status_line(reading: Reading) -> str:
    """The last part of the series in one line, for following a log."""
    last = reading.points[-1] if reading.points else None
    if last is None:
        return "no interval yet"
    whole = reading.acceptance
    length = f"accept length {_two(last.accept_length)} (all {_two(whole.accept_length)})" if whole else "no drafts"
    return (
        f"{quantity(last.time_s)} s  {length}  acceptance {_percent(last.draft_acceptance)}  running {quantity(last.running)}  "
        f"queued {quantity(last.queued)}  {quantity(last.throughput)} tok/s"
    )


def sparkline(values: Sequence[float | None]) -> str:
    """One character a value between the least and the largest; a space where there is none."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return ""
    low, high = min(known), max(known)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((value - low) * scale)] if value is not None and math.isfinite(value) else " " for value in values)


def _reading(reading: Reading, console: Console) -> None:
    console.print()
    part = f", part {reading.part}" if reading.part > 1 else ""
    release = f" {reading.version}" if reading.version else ", release not named"
    span = f", {format_duration(reading.duration_s)}" if reading.duration_s else ""
    counted = {
        "log": f"{reading.num_lines} lines",
        "replies": f"{reading.num_lines} replies" if reading.num_lines else "server info",
    }
    lines = f": {counted.get(reading.kind, reading.kind)}{span}"
    console.print(Text(plain(f"{reading.source}{part}{lines}, {reading.engine}{release}"), style="bold"))
    if reading.acceptance is None:
        console.print(Text("  No drafts: speculation is off, or nothing was decoded."))
    else:
        _acceptance(reading.acceptance, console)
    load = []
    if reading.running is not None:
        load.append(
            f"running {quantity(reading.running)}" + (f" (most {quantity(reading.max_running)})" if reading.max_running else "")
        )
    if reading.queued is not None:
        load.append(f"queued {quantity(reading.queued)}")
    if reading.throughput is not None:
        load.append(
            f"{quantity(reading.throughput)} tok/s" + (f" over {reading.num_engines} engines" if reading.num_engines > 1 else "")
        )
    if reading.throughput_per_request is not None:
        load.append(f"{quantity(reading.throughput_per_request)} tok/s a request")
    if load:
        console.print(Text("  " + ", ".join(load)))
    for reason in reading.excluded:
        console.print(Text(f"  left out: {plain(reason)}", style="dim"))
    _series(reading, console)
    for by in ("running", "context", "time"):
        _cuts([cut for cut in reading.cuts if cut.by == by], by, console)
    _findings(reading.findings, console)


def _acceptance(found: AcceptanceFound, console: Console) -> None:
    spread = f" ± {found.uncertainty:.2f}" if found.uncertainty is not None else ""
    line = Text("  accept length ")
    line.append(f"{_two(found.accept_length)}{spread}", style="bold")
    if found.draft_acceptance is not None:
        line.append(", draft acceptance ")
        line.append(_percent(found.draft_acceptance), style="bold")
    if found.num_drafted:
        line.append(
            f" of {found.num_drafted} drafts a round" if found.draft_acceptance is not None else f", {found.num_drafted} drafts"
        )
    line.append(f"  ({found.basis})", style="dim")
    console.print(line)
    if found.drafted_share is not None and found.drafted_share < SHARE_CALLED_FLATTERED and found.per_step is not None:
        share = _percent(found.drafted_share)
        console.print(Text(f"  over all decode steps about {_two(found.per_step)}: {share} of them carried drafts", style="bold"))
    if (
        found.mean_of_lines is not None
        and found.accept_length is not None
        and abs(found.mean_of_lines - found.accept_length) >= 0.01
    ):
        console.print(Text(f"  plain mean of the lines {found.mean_of_lines:.2f}", style="dim"))
    if found.formulas and found.formula_status in {"release", "inferred"}:
        how = "by its release" if found.formula_status == "release" else "inferred from the printed pairs"
        formula = found.formulas[0]
        console.print(Text(f"  printed rate = {formula.formula} ({plain(formula.releases)}), {how}", style="dim"))
    if found.formula_status == "ambiguous":
        for formula in found.formulas:
            text = (
                f"  perhaps {formula.formula}, {formula.num_drafted} drafts a round ({plain(formula.releases)}): accept length "
                f"{_two(formula.accept_length)}, draft acceptance {_percent(formula.draft_acceptance)}"
            )
            console.print(Text(text))
    if found.as_printed and found.formula_status == "not needed":
        rates = "; ".join(f"{plain(releases)} {rate:.2f}" for releases, rate in found.as_printed.items() if "sglang" in releases)
        console.print(Text(f"  the same as an accept rate: {rates}", style="dim"))
    if found.joint:
        shown = ", ".join(f"{rate:.3f}" for rate in found.joint[:16])
        console.print(Text(f"  accepted up to position: {shown}{', ...' if len(found.joint) > 16 else ''}"))
        given = ", ".join(MISSING if rate is None else f"{rate:.2f}" for rate in found.conditional[:16])
        console.print(Text(f"  given those before:      {given}{', ...' if len(found.conditional) > 16 else ''}", style="dim"))


def _series(reading: Reading, console: Console) -> None:
    if len(reading.points) < 3:
        return
    for title, values in (
        ("accept length", [point.accept_length for point in reading.points]),
        ("running", [point.running for point in reading.points]),
        ("queued", [point.queued for point in reading.points]),
        ("tok/s", [point.throughput for point in reading.points]),
    ):
        known = [value for value in values if value is not None]
        if known and max(known) > 0:
            console.print(Text(f"  {title:<14}{sparkline(values)}  {quantity(min(known))} to {quantity(max(known))}", style="cyan"))


def _cuts(cuts: Sequence[Cut], by: str, console: Console) -> None:
    if len(cuts) < 2 or (by != "running" and sum(cut.num_lines for cut in cuts) < MIN_LINES_TO_CUT):
        return
    table = Table(box=None, show_header=True, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for title in (_CUT_TITLES[by], "lines", "accept length", "tok/s", "a request"):
        table.add_column(title, justify="right", no_wrap=True)
    for cut in cuts[:MAX_CUTS]:
        low, high = (format_duration(cut.low), format_duration(cut.high)) if by == "time" else (f"{cut.low:.0f}", f"{cut.high:.0f}")
        spread = f" ± {cut.uncertainty:.2f}" if cut.uncertainty is not None else ""
        table.add_row(
            low if low == high else f"{low} to {high}",
            str(cut.num_lines),
            f"{_two(cut.accept_length)}{spread}",
            quantity(cut.throughput),
            quantity(cut.throughput_per_request),
        )
    console.print(Padding(table, (0, 0, 0, 2)))


def _comparison(comparison: Comparison, console: Console) -> None:
    console.print()
    console.print(Text(plain(f"{comparison.second} against {comparison.first}"), style="bold"))
    table = Table(box=None, show_header=True, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("running batch", "accept length", "difference", "tok/s", "speedup"):
        table.add_column(title, justify="right", no_wrap=True)
    for one in comparison.differences:
        lengths = one.accept_lengths
        speedup = MISSING if one.speedup is None else f"{one.speedup:.2f}x [{one.speedup_low:.2f}, {one.speedup_high:.2f}]"
        table.add_row(
            "all lines" if one.running is None else f"{one.running:.0f}",
            MISSING if lengths is None else f"{lengths[0]:.2f}, {lengths[1]:.2f}",
            MISSING if lengths is None else f"{lengths[1] - lengths[0]:+.2f} {one.judgement}",
            MISSING if one.throughputs is None else f"{quantity(one.throughputs[0])}, {quantity(one.throughputs[1])}",
            speedup,
        )
    if comparison.differences:
        console.print(Padding(table, (0, 0, 0, 2)))
    else:
        console.print(Text("  nothing to compare: not both have accept lengths, and no running batch is in both"))
    if comparison.settings:
        console.print(Text("  launched differently: " + plain("; ".join(comparison.settings), 600), style="dim"))
    _findings(comparison.findings, console)


def _findings(findings: Sequence[Finding], console: Console) -> None:
    for finding in findings:
        line = Text(f"{finding.severity}: ", style=_SEVERITIES[finding.severity])
        line.append(plain(finding.title, 600), style="not bold default")
        line.append(f" ({plain(finding.code, 80)}, confidence {finding.confidence})", style="not bold default dim")
        for fact in finding.evidence[:MAX_EVIDENCE]:
            line.append(f"\n  {plain(fact, 400)}", style="not bold default dim")
        if finding.remedy:
            line.append(f"\nDo: {plain(finding.remedy, 1000)}", style="not bold default")
        grid = Table.grid(padding=(0, 1))
        grid.add_row(Text("•"), line)
        console.print(Padding(grid, (0, 0, 0, 2)))


def _two(value: float | None) -> str:
    return MISSING if value is None else f"{value:.2f}"


def _percent(share: float | None) -> str:
    """Whole percents, with decimals where they say something."""
    if share is None:
        return MISSING
    return percent(share) if share >= 0.095 or share == 0 else f"{share * 100:.1f} %"
