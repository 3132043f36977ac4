"""Anomalies as findings: each states what it saw and what to do, and says nothing where noise would explain it."""

from __future__ import annotations

from breakeven.findings import Finding, worst_first
from breakeven.readers.findings.changes import changes
from breakeven.readers.findings.curve import curve
from breakeven.readers.findings.load import load
from breakeven.readers.findings.printed import printed
from breakeven.readers.findings.ranks import ranks
from breakeven.readers.study import Study

__all__ = ["findings_of"]


def findings_of(one: Study) -> tuple[Finding, ...]:
    """Everything odd about a section of a log, the worst first."""
    odd = ranks(one)
    return worst_first([*curve(one), *((odd,) if odd is not None else ()), *changes(one), *load(one), *printed(one)])
