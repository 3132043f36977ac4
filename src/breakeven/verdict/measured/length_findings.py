"""Accept lengths that are not what they should be: not as forced, not the same at every load, or only estimated."""

from __future__ import annotations

from breakeven.findings import Finding
from breakeven.verdict.measured.accept_length import SOURCES
from breakeven.verdict.measured.case import Case
from breakeven.verdict.measured.wording import figure

__all__ = ["length_findings"]

_LENGTH_TOLERANCE = 0.03


def length_findings(case: Case) -> list[Finding]:
    return [*_forced_missed(case), *_varies_with_load(case), *_estimated(case)]


def _forced_missed(case: Case) -> list[Finding]:
    found = []
    for (name, load), length in case.lengths.items():
        speculation = case.run.arm(name).speculation
        ordered = speculation.forced_accept_length if speculation else None
        if ordered is not None and abs(length.value / ordered - 1) > _LENGTH_TOLERANCE:
            found.append(
                Finding(
                    code="forced-length-not-met",
                    severity="warning",
                    confidence="high",
                    title=f"{name} has accept length {length.value:.2f} at {load}, not the {ordered:g} it was told to have",
                    evidence=("counters of the server",),
                    remedy="Its cost ratio uses the measured length. Short answers cut rounds off: use longer or fixed ones.",
                )
            )
    return found


def _varies_with_load(case: Case) -> list[Finding]:
    found = []
    for arm in case.candidates:
        here = [(load, length) for (name, load), length in case.lengths.items() if name == arm.name and length.num_samples > 1]
        # with a schedule it is to change
        if len(here) < 2 or (arm.speculation is not None and arm.speculation.schedule):
            continue
        low_load, low = min(here, key=lambda item: item[1].value)
        high_load, high = max(here, key=lambda item: item[1].value)
        apart = low.interval.high is not None and high.interval.low is not None and low.interval.high < high.interval.low
        if apart and high.value / low.value > 1 + _LENGTH_TOLERANCE:
            found.append(
                Finding(
                    code="accept-length-changes-with-load",
                    severity="warning",
                    confidence="medium",
                    title=f"The accept length of {arm.name} changes with load",
                    evidence=(f"{figure(low.interval)} at {low_load}, {figure(high.interval)} at {high_load}",),
                    remedy=(
                        "With the same prompts it must not. Compare another attention backend, and a run without captured graphs;"
                        " if the loads drew different prompts, lengthen the windows."
                    ),
                )
            )
    return found


def _estimated(case: Case) -> list[Finding]:
    found = {(arm, length.counts.source) for (arm, _), length in case.lengths.items() if length.counts.source in ("log", "gauge")}
    return [
        Finding(
            code="accept-length-estimated",
            severity="info",
            confidence="high",
            title=f"The accept length of {arm} is an estimate: its server counts no acceptance",
            evidence=(f"read from {SOURCES[source]}",),
            remedy="Speedups do not rest on it, cost ratios do. For counts, use a release that has them (SGLang 0.5.15 and later).",
        )
        for arm, source in sorted(found)
    ]
