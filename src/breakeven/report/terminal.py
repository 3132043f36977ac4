"""The result on a terminal: the verdict first, then the figures, then why and what next."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from breakeven.report.text import MISSING, OUTCOME_MARKS, accept_length, interval, plain, speedup
from breakeven.verdict.result import Comparison, Result

__all__ = ["render_terminal"]

STYLES = {"pays": "bold green", "slower": "bold red", "no useful difference": "bold", "undecided": "bold yellow"}
SEVERITIES = {"error": "bold red", "warning": "bold yellow", "info": "bold"}


def render_terminal(result: Result, console: Console) -> None:
    """Print `result`. Every string is shown as text, never as markup."""
    console.print()
    console.print(Text(plain(result.headline, 600), style="bold"))
    console.print(Text(plain(result.decision, 1000)))
    if result.kind == "reported":
        console.print(Text("These are reported figures: there are no raw samples, so there are no intervals.", style="italic"))
    console.print()
    console.print(_table(result, console.width))
    if result.break_even:
        console.print(_break_even(result))
    _section(console, "Conclusions", (_with_evidence(item.text, item.evidence) for item in result.conclusions))
    if result.findings:
        console.print(Text("Findings", style="bold underline"))
        for finding in result.findings:
            line = Text(f"{finding.severity} ", style=SEVERITIES[finding.severity])
            line.append(plain(finding.title, 600), style="default")
            line.append(f" ({finding.code}, confidence {finding.confidence})", style="dim")
            console.print(Padding(line, (0, 0, 0, 2)))
            for text in (*finding.evidence, finding.remedy and f"Do: {finding.remedy}"):
                if text:
                    console.print(Padding(Text(plain(text, 600)), (0, 0, 0, 6)))
        console.print()
    _section(console, "What would change this", (Text(plain(text, 600)) for text in result.what_would_change_it))
    _section(console, "Measure next, cheapest first", (Text(plain(text, 600)) for text in result.next_measurements))
    if result.voided:
        console.print(Text(f"{len(result.voided)} trials do not count:", style="bold"))
        for voided in result.voided[:10]:
            where = f"{plain(voided.arm, 40)} at {plain(voided.load, 20)}, launch {plain(voided.launch, 40)}: "
            console.print(Padding(Text(where + plain("; ".join(voided.reasons), 300)), (0, 0, 0, 2)))
        if len(result.voided) > 10:
            console.print(Padding(Text(f"and {len(result.voided) - 10} more (all are in the report)"), (0, 0, 0, 2)))
        console.print()


def _table(result: Result, width: int) -> Table:
    """One row an arm and load point. Narrow terminals get the columns that carry the verdict."""
    wide = width >= 110
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False, padding=(0, 2, 0, 0))
    table.add_column("load", overflow="fold", max_width=24)
    table.add_column("arm", overflow="fold", max_width=28)
    table.add_column("tok/s", justify="right", no_wrap=wide)
    if wide:
        table.add_column("tok/s a request", justify="right", no_wrap=True)
    table.add_column("speedup", justify="right", no_wrap=wide)
    table.add_column("accept length", justify="right", no_wrap=wide)
    table.add_column("outcome", no_wrap=wide)
    comparisons = {(item.arm, item.load): item for item in result.comparisons}
    for load in result.loads:
        first = True
        for cell in (cell for cell in result.cells if cell.load == load.label):
            comparison = comparisons.get((cell.arm, cell.load))
            columns = [Text(plain(load.label, 60) if first else ""), Text(plain(cell.arm, 60)), Text(interval(cell.throughput))]
            if wide:
                columns.append(Text(interval(cell.request_speed)))
            columns += [
                Text(speedup(comparison.ratio) if comparison else MISSING),
                Text(accept_length(cell.acceptance)),
                _outcome(comparison, is_baseline=cell.arm == result.baseline),
            ]
            table.add_row(*columns)
            first = False
        table.add_section()
    return table


def _outcome(comparison: Comparison | None, *, is_baseline: bool) -> Text:
    if comparison is None:
        return Text("baseline" if is_baseline else MISSING, style="dim")
    text = Text(f"{OUTCOME_MARKS[comparison.outcome]} {comparison.outcome}", style=STYLES[comparison.outcome])
    if comparison.basis == "predicted":
        text.append(" (predicted)", style="dim")
    return text


def _break_even(result: Result) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False, padding=(0, 2, 0, 0))
    table.add_column("load", no_wrap=True)
    table.add_column("break-even accept length", no_wrap=True)
    table.add_column("measured with", overflow="fold")
    for point in result.break_even:
        what = f"{point.num_draft_tokens} drafts a round ({plain(point.method, 20)}); {plain(point.basis, 200)}"
        ratio = point.cost_ratio
        bounds = f" [{ratio.low:.2f}, {ratio.high:.2f}]" if ratio.low is not None and ratio.high is not None else ""
        table.add_row(Text(plain(point.load, 20)), Text(f"{ratio.estimate:.2f}{bounds}"), Text(what))
    return table


def _with_evidence(text: str, evidence: Iterable[str]) -> Text:
    line = Text(plain(text, 1000))
    for fact in evidence:
        line.append(f"\n  {plain(fact, 400)}", style="dim")
    return line


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
