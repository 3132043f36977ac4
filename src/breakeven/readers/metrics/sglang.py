"""Acceptance from SGLang's gauges, of the last interval, or where two scrapes have them from its counts of verify calls."""

from __future__ import annotations

import math

from breakeven.findings import Finding
from breakeven.printed.definitions import draft_shape
from breakeven.printed.figures import PrintedFigure
from breakeven.printed.formulas import DraftShape
from breakeven.printed.reading import read_printed
from breakeven.printed.result import Candidate
from breakeven.printed.result import Reading as PrintedReading
from breakeven.readers.dumps import Window
from breakeven.readers.effects import Level
from breakeven.readers.figures import known
from breakeven.readers.findings.curve import floor
from breakeven.readers.findings.ranks import odd_rank
from breakeven.readers.reading import AcceptanceFound, FormulaReading, FormulaStatus
from breakeven.versions import Version

__all__ = ["acceptance_from_gauges"]


def acceptance_from_gauges(
    window: Window, version: Version | None, draft_tokens: int | None
) -> tuple[AcceptanceFound | None, list[Finding]]:
    """What the gauges mean, and what is odd in them; nothing where speculation is off.

    version, draft_tokens: what the user says, as the meaning of the rate depends on them.
    """
    lengths = [value for value in window.gauge("sglang:spec_accept_length") if value > 0]
    rates = [value for value in window.gauge("sglang:spec_accept_rate") if value > 0]
    if not lengths and not rates:
        return None, []
    tokens = draft_tokens or int(max(window.gauge("sglang:spec_num_draft_tokens"), default=0)) or None
    steps = int(max(window.gauge("sglang:spec_num_steps"), default=0)) or None
    shape = draft_shape("sglang", steps=steps, topk=1 if steps and tokens == steps + 1 else None, draft_tokens=tokens)
    reading = read_printed(engine="sglang", shape=shape, length=_gauge(lengths), rate=_gauge(rates), version=version)
    findings = _unsettled(reading, rates)
    length = reading.accept_length.estimate if reading.accept_length is not None else math.nan
    if math.isfinite(length) and (found := floor(length, 1000.0, "gauge of the last interval")) is not None:
        findings.append(found)
    by_rank = {str(rank): Level(mean=value, error=0.0, rounds=1.0, num_lines=1) for rank, value in enumerate(lengths)}
    if (odd := odd_rank(by_rank)) is not None:
        findings.append(odd)
    verified = window.total("sglang:spec_verify_calls")
    emitted = window.total("sglang:generation_tokens") - window.total("sglang:num_requests")
    is_counted = window.is_difference and 0 < verified <= emitted
    if is_counted:
        length = emitted / verified
    drafts = reading.shape.num_drafted if reading.shape else None
    return AcceptanceFound(
        accept_length=known(length),
        mean_of_lines=known(sum(lengths) / len(lengths)) if lengths else None,
        draft_acceptance=known((length - 1.0) / drafts) if drafts and reading.status == "settled" else None,
        num_drafted=drafts,
        rounds=known(verified),
        basis="counters" if is_counted else "gauges: the last interval only",
        formula_status=_status(reading, version),
        formulas=tuple(_formula(candidate) for candidate in reading.candidates[:12]),
    ), findings


def _status(reading: PrintedReading, version: Version | None) -> FormulaStatus:
    if reading.status == "settled":
        return "release" if version else "inferred"
    return "not printed" if reading.status == "nothing printed" else reading.status


def _unsettled(reading: PrintedReading, rates: list[float]) -> list[Finding]:
    if reading.status == "ambiguous":
        return [
            Finding(
                code="rate-ambiguous",
                severity="warning",
                confidence="high",
                title="The accept rate has several possible meanings here; none is assumed.",
                evidence=_alternatives(reading, rates),
                remedy="Any of these settles it: the release (--engine-version), the number of draft tokens (--draft-tokens) where "
                "it is not in the dump, or the gauge sglang:spec_accept_length beside the rate.",
            )
        ]
    if reading.status == "contradictory":
        return [
            Finding(
                code="rate-contradicts-length",
                severity="warning",
                confidence="medium",
                title="Accept length and rate do not belong together.",
                evidence=(reading.doubt,),
                remedy="Gauges of several engines were averaged, or scraped between two updates: scrape again.",
            )
        ]
    return []


def _alternatives(reading: PrintedReading, rates: list[float]) -> tuple[str, ...]:
    """All meanings; where the number of drafts is not known either, for three drafts a round, as an example."""
    if reading.candidates:
        return tuple(_candidate_text(candidate) for candidate in reading.candidates[:6])
    example = read_printed(
        engine="sglang", shape=DraftShape(num_drafted=3, num_steps=3, is_chain=True), length=None, rate=_gauge(rates)
    )
    return tuple(f"with 4 draft tokens, for example: {_candidate_text(candidate)}" for candidate in example.candidates)


def _gauge(values: list[float]) -> PrintedFigure | None:
    """A gauge is exact for one engine; a mean over several fits no formula exactly, so it is taken as rounded."""
    return PrintedFigure(sum(values) / len(values), 0.005) if values else None


def _candidate_text(candidate: Candidate) -> str:
    rate = candidate.definition.rate
    acceptance = candidate.draft_acceptance
    return (
        f"{rate.value if rate else 'no rate'} ({candidate.definition.releases}): accept length "
        f"{candidate.accept_length.estimate:.2f}"
        + (f", draft acceptance {acceptance * 100:.0f} %" if acceptance is not None else "")
    )


def _formula(candidate: Candidate) -> FormulaReading:
    return FormulaReading(
        formula=candidate.definition.rate.value if candidate.definition.rate else "no rate",
        releases=candidate.definition.releases,
        num_drafted=candidate.shape.num_drafted,
        accept_length=known(candidate.accept_length.estimate),
        draft_acceptance=candidate.draft_acceptance,
    )
