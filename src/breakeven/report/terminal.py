"""The result on a terminal: the verdict first, then the figures by load point, then why and what next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from breakeven.report.lookup import Lookup
from breakeven.report.text import (
    MISSING,
    accept_length,
    interval,
    levels,
    outcome,
    plain,
    quantity,
    simulated,
    speedup,
    tokens_a_round,
    two_digits,
)
from breakeven.verdict.result import Cell, Result

__all__ = ["render_terminal"]

STYLES = {"pays": "bold green", "slower": "bold red", "no useful difference": "bold", "undecided": "bold yellow"}
SEVERITIES = {"error": "bold red", "warning": "bold yellow", "info": "bold"}
# From this width on, every figure has a column of its own.
WIDE = 112
MAX_NAME = 40
MAX_EVIDENCE = 6
MAX_VOIDED = 10


def render_terminal(result: Result, console: Console) -> None:
    """Print `result`. Every string is shown as text, never as markup."""
    console.print()
    console.print(Text(plain(result.headline, 600), style="bold"))
    console.print(Text(plain(result.decision, 1000)))
    if result.kind == "reported":
        console.print(Text("These are reported figures: there are no raw samples, so there are no intervals.", style="italic"))
    if invented := simulated(result):
        console.print(Text(invented, style="italic"))
    _figures(Lookup(result), console)
    _section(console, "Cliffs", (Text(plain(cliff.text, 400)) for cliff in result.cliffs))
    _section(console, "Conclusions", (_with_evidence(item.text, item.evidence) for item in result.conclusions))
    _findings(result, console)
    _section(console, "What would change this", (Text(plain(text, 600)) for text in result.what_would_change_it))
    _section(console, "Measure next, cheapest first", (Text(plain(text, 600)) for text in result.next_measurements))
    if result.voided:
        count = "1 trial does" if len(result.voided) == 1 else f"{len(result.voided)} trials do"
        lines = []
        for voided in result.voided[:MAX_VOIDED]:
            where = f"{plain(voided.arm, 40)} at {plain(voided.load, 60)}, launch {plain(voided.launch, 40)}: "
            lines.append(Text(where + plain("; ".join(voided.reasons), 300)))
        if len(result.voided) > MAX_VOIDED:
            lines.append(Text("the others are in the report", style="dim"))
        _section(console, f"{count} not count", lines)


def _figures(lookup: Lookup, console: Console) -> None:
    """A table for each load point; columns stand below each other. Narrow terminals get the columns that carry the verdict."""
    wide = console.width >= WIDE
    titles = ["arm", "tok/s", "tok/s a request", "speedup", "outcome", "accept length", "break-even"]
    if not wide:
        titles = ["arm", "tok/s", "speedup", "outcome", "length"]
    blocks = [(load, [_row(lookup, cell, wide=wide) for cell in cells]) for load, cells in lookup.cells_by_load()]
    widths = _widths(titles, [row for _, rows in blocks for row in rows])
    for place, (load, rows) in enumerate(blocks):
        console.print()
        console.print(_load_line(lookup, load))
        table = Table(box=None, show_header=place == 0, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
        for title, width in zip(titles, widths, strict=True):
            if title == "arm":
                table.add_column(title, overflow="fold", min_width=min(width, 20), max_width=min(width, 28))
            elif title == "outcome":
                table.add_column(title, min_width=min(width, 11))
            else:
                table.add_column(title, justify="right", min_width=width, no_wrap=True)
        for row in rows:
            table.add_row(*row)
        console.print(Padding(table, (0, 0, 0, 2)))
    console.print()
    _legend(lookup, console, wide=wide)


def _row(lookup: Lookup, cell: Cell, *, wide: bool) -> list[Text]:
    comparison = lookup.comparison(cell.arm, cell.load)
    word = comparison.outcome if comparison and not lookup.is_probe(cell.arm) else None
    verdict = Text(outcome(lookup, cell.arm, cell.load), style=STYLES[word] if word else "dim")
    name, ratio = Text(plain(cell.arm, MAX_NAME)), Text(speedup(comparison.ratio) if comparison else MISSING)
    if not wide:
        throughput = quantity(cell.throughput.estimate if cell.throughput else None)
        length = two_digits(cell.acceptance.accept_length.estimate) if cell.acceptance else MISSING
        return [name, Text(throughput), ratio, verdict, Text(length)]
    point = lookup.break_even(cell.arm, cell.load)
    return [
        name,
        Text(interval(cell.throughput)),
        Text(interval(cell.request_speed)),
        ratio,
        verdict,
        Text(accept_length(cell.acceptance)),
        Text(two_digits(point.cost_ratio.estimate) if point else MISSING),
    ]


def _widths(titles: Sequence[str], rows: Sequence[Sequence[Text]]) -> list[int]:
    return [max([cell_len(title), *(cell_len(row[place].plain) for row in rows)]) for place, title in enumerate(titles)]


def _load_line(lookup: Lookup, load: str) -> Text:
    """The load point with what breaking even takes there, for each shape of drafter."""
    line = Text(plain(load, 60), style="bold")
    points = [(shape, point) for shape in lookup.shapes if (point := lookup.break_even_of(shape, load)) is not None]
    for place, ((method, num_drafts), point) in enumerate(points):
        line.append("   break-even accept length: " if place == 0 else "; ", style="default")
        # 0 where a reported table does not say how many
        drafts = {0: "", 1: ", 1 draft"}.get(num_drafts, f", {num_drafts} drafts")
        line.append(f"{tokens_a_round(point.cost_ratio)} for {plain(method, 40)}{drafts}", style="not bold")
    return line


def _legend(lookup: Lookup, console: Console, *, wide: bool) -> None:
    result = lookup.result
    notes = []
    if level := levels(item.ratio for item in result.comparisons):
        notes.append(f"Brackets: {level} intervals over launches of a server.")
    if any(lookup.is_probe(arm.name) for arm in result.arms):
        notes.append("A probe accepts drafts to order, or never drafts: it shows what that costs and is no arm to run.")
    if not wide and any(cell.throughput and cell.throughput.low is not None for cell in result.cells):
        notes.append(f"A terminal of {WIDE} columns and the report show every interval.")
    if notes:
        console.print(Text(" ".join(notes), style="dim"))


def _findings(result: Result, console: Console) -> None:
    lines = []
    for finding in result.findings:
        line = Text(f"{finding.severity}: ", style=SEVERITIES[finding.severity])
        line.append(plain(finding.title, 600), style="not bold default")
        line.append(f" ({plain(finding.code, 80)}, confidence {finding.confidence})", style="not bold default dim")
        line.append_text(_evidence(finding.evidence))
        if finding.remedy:
            line.append(f"\nDo: {plain(finding.remedy, 1000)}", style="not bold default")
        lines.append(line)
    _section(console, "Findings", lines)


def _with_evidence(text: str, evidence: Sequence[str]) -> Text:
    return Text(plain(text, 1000)).append_text(_evidence(evidence))


def _evidence(evidence: Sequence[str]) -> Text:
    shown = [plain(fact, 400) for fact in evidence[:MAX_EVIDENCE]]
    if len(evidence) > MAX_EVIDENCE:
        shown.append("the rest is in the report")
    return Text("".join(f"\n  {fact}" for fact in shown), style="not bold default dim")


def _section(console: Console, title: str, lines: Iterable[Text]) -> None:
    shown = list(lines)
    if not shown:
        return
    console.print()
    console.print(Text(title, style="bold underline"))
    for line in shown:
        grid = Table.grid(padding=(0, 1))
        grid.add_row(Text("•"), line)
        console.print(Padding(grid, (0, 0, 0, 2)))
