"""The result as Markdown for an issue or a wiki page: nothing in it can become markup that the writer did not mean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from breakeven.report.lookup import Lookup
from breakeven.report.text import (
    MISSING,
    accept_length,
    interval,
    levels,
    outcome,
    plain,
    simulated,
    speedup,
    tokens_a_round,
    two_digits,
)
from breakeven.verdict.result import Result

__all__ = ["render_markdown"]

# What CommonMark or GitHub gives a meaning to inside a line or a table cell, mentions (@), references (#) and bare addresses
# included. An underscore between two letters or digits means nothing there.
INSIDE = r"[\\`*\[\]<>#|~$&@]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|:(?=//)|(?<=www)\."
SPECIAL_IN_CELL = re.compile(INSIDE)
# And what would begin a list or a rule if it came first in a line.
SPECIAL = re.compile(rf"{INSIDE}|^[-+=]|(?<=^\d)[.)]|(?<=^\d\d)[.)]")


def render_markdown(result: Result) -> str:
    """One Markdown document, headings from level 2, tables in GitHub's dialect."""
    lines = [f"## {_safe(result.headline, 600)}", "", _safe(result.decision, 1000), ""]
    if result.kind == "reported":
        lines += ["*Reported figures: no raw samples, so no intervals.*", ""]
    if invented := simulated(result):
        lines += [f"*{_safe(invented, 1000)}*", ""]
    lookup = Lookup(result)
    rows = []
    for load, cells in lookup.cells_by_load():
        for cell in cells:
            comparison, point = lookup.comparison(cell.arm, load), lookup.break_even(cell.arm, load)
            rows.append(
                (
                    _safe(load, 60),
                    _safe(cell.arm, 80),
                    interval(cell.throughput),
                    interval(cell.request_speed),
                    speedup(comparison.ratio) if comparison else MISSING,
                    outcome(lookup, cell.arm, load),
                    accept_length(cell.acceptance),
                    two_digits(point.cost_ratio.estimate) if point else MISSING,
                )
            )
    header = ("load", "arm", "tok/s", "tok/s a request", "speedup", "outcome", "accept length", "break-even")
    lines += _table(header, rows)
    if level := levels(item.ratio for item in result.comparisons):
        lines += ["", f"Brackets are intervals over launches of a server; those of the speedups cover {level}."]
    if any(lookup.is_probe(arm.name) for arm in result.arms):
        lines += [
            "",
            "A probe accepts drafts to order, or never drafts: it shows what that costs and is no arm to run.",
        ]
    if result.break_even:
        lines += ["", "### Break-even accept length", ""]
        lines += _table(
            ("load", "drafts a round", "break-even", "measured with"),
            [
                (
                    _safe(point.load, 60),
                    f"{point.num_draft_tokens or MISSING} {_safe(point.method, 40)}",
                    tokens_a_round(point.cost_ratio),
                    _safe(point.basis, 200),
                )
                for point in (*result.break_even, *result.break_even_between)
            ],
        )
        lines += _list("Cliffs", ([cliff.text] for cliff in result.cliffs))
    if result.standings:
        lines += ["", "### Drafters against their break-even", ""]
        lines += _table(
            ("load", "arm", "drafts a round", "accept length", "break-even", "stands", "why"),
            [
                (
                    _safe(item.load, 60),
                    _cell(item.arm, 80),
                    f"{item.num_draft_tokens}",
                    tokens_a_round(item.accept_length),
                    tokens_a_round(item.break_even) + (" (read off)" if item.read_off else ""),
                    item.side,
                    _cell(item.why),
                )
                for item in result.standings
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
        lines += _table(("what", "value"), [(_cell(key, 80), _cell(value)) for key, value in result.provenance.items()])
        lines += ["", "</details>"]
    return "\n".join(lines) + "\n"


def _safe(text: str, limit: int = 400) -> str:
    return SPECIAL.sub(lambda found: f"\\{found.group()}", plain(text, limit))


def _cell(text: str, limit: int = 400) -> str:
    """Text that other text of its table row precedes: it begins no line."""
    return SPECIAL_IN_CELL.sub(lambda found: f"\\{found.group()}", plain(text, limit))


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
