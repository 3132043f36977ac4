"""The result as Markdown for an issue or a wiki page: nothing in it can become markup that the writer did not mean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from breakeven.report.text import MISSING, OUTCOME_MARKS, accept_length, interval, plain, speedup
from breakeven.verdict.result import Result

__all__ = ["render_markdown"]

# What CommonMark or GitHub gives a meaning to inside a line or a table cell, mentions (@) and references (#) included; and what
# would begin a list or a rule if it came first.
SPECIAL = re.compile(r"[\\`*_\[\]<>#|~$&@]|^[-+=]|(?<=^\d)[.)]|(?<=^\d\d)[.)]")


def render_markdown(result: Result) -> str:
    """One Markdown document, headings from level 2, tables in GitHub's dialect."""
    lines = [f"## {_safe(result.headline, 600)}", "", _safe(result.decision, 1000), ""]
    if result.kind == "reported":
        lines += ["*Reported figures: no raw samples, so no intervals.*", ""]
    comparisons = {(item.arm, item.load): item for item in result.comparisons}
    rows = []
    order = {load.label: place for place, load in enumerate(result.loads)}
    for cell in sorted(result.cells, key=lambda cell: order.get(cell.load, len(order))):
        comparison = comparisons.get((cell.arm, cell.load))
        outcome = "baseline" if cell.arm == result.baseline else MISSING
        if comparison is not None:
            outcome = f"{OUTCOME_MARKS[comparison.outcome]} {comparison.outcome}"
            outcome += " (predicted)" if comparison.basis == "predicted" else ""
        rows.append(
            (
                _safe(cell.load, 60),
                _safe(cell.arm, 80),
                interval(cell.throughput),
                interval(cell.request_speed),
                speedup(comparison.ratio) if comparison else MISSING,
                accept_length(cell.acceptance),
                outcome,
            )
        )
    lines += _table(("load", "arm", "tok/s", "tok/s a request", "speedup", "accept length", "outcome"), rows)
    if result.break_even:
        lines += ["", "### Break-even accept length", ""]
        lines += _table(
            ("load", "drafts a round", "break-even", "measured with"),
            [
                (
                    _safe(point.load, 60),
                    f"{point.num_draft_tokens} {_safe(point.method, 20)}",
                    interval(point.cost_ratio),
                    _safe(point.basis, 200),
                )
                for point in result.break_even
            ],
        )
    if result.own_best:
        lines += ["", "### Each arm at its own best", ""]
        lines += _table(
            ("arm", "load", "tok/s", "what this hides"),
            [(_safe(best.arm, 80), _safe(best.load, 60), interval(best.throughput), _safe(best.note)) for best in result.own_best],
        )
    lines += _list("Conclusions", ([item.text, *item.evidence] for item in result.conclusions))
    lines += _list(
        "Findings",
        (
            [f"{finding.severity}: {finding.title} ({finding.code}, confidence {finding.confidence})", *finding.evidence]
            + ([f"Do: {finding.remedy}"] if finding.remedy else [])
            for finding in result.findings
        ),
    )
    lines += _list("What would change this", ([text] for text in result.what_would_change_it))
    lines += _list("Measure next, cheapest first", ([text] for text in result.next_measurements))
    lines += _list(
        "Trials that do not count",
        ([f"{voided.arm} at {voided.load}, launch {voided.launch}: {'; '.join(voided.reasons)}"] for voided in result.voided),
    )
    if result.provenance:
        lines += ["", "<details><summary>Provenance</summary>", ""]
        lines += _table(("what", "value"), [(_safe(key, 80), _safe(value)) for key, value in result.provenance.items()])
        lines += ["", "</details>"]
    return "\n".join(lines) + "\n"


def _safe(text: str, limit: int = 400) -> str:
    return SPECIAL.sub(lambda found: f"\\{found.group()}", plain(text, limit))


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def _list(title: str, items: Iterable[Sequence[str]]) -> list[str]:
    """A bulleted list; the first string of each item is the point, the others are indented below it."""
    lines = []
    for first, *others in items:
        lines.append(f"- {_safe(first, 1000)}")
        lines += [f"  - {_safe(other, 600)}" for other in others]
    return ["", f"### {title}", "", *lines] if lines else []
