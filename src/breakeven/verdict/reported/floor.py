"""Drafters at the ends of the scale: nothing accepted, next to nothing, or everything; what it is a sign of, what to check."""

from __future__ import annotations

from collections import defaultdict

from breakeven.doctor.checklist import static_checks
from breakeven.doctor.public_figures import public_accept_length, quantization_loss
from breakeven.findings import Finding
from breakeven.printed.definitions import METHODS_THAT_SKIP_STEPS
from breakeven.verdict.reported.case import Case, listed
from breakeven.verdict.reported.readings import ArmReading
from breakeven.verdict.reported.wording import printed, share

__all__ = ["floor_findings", "why_not_quantization"]


def floor_findings(case: Case) -> list[Finding]:
    return [*_floor(case), *_near_floor(case), *_ceiling(case)]


def _floor(case: Case) -> list[Finding]:
    by_method: dict[str, list[ArmReading]] = defaultdict(list)
    for reading in case.floored:
        by_method[reading.arm.method].append(reading)
    return [_floor_of(case, method, readings) for method, readings in by_method.items()]


def _floor_of(case: Case, method: str, readings: list[ArmReading]) -> Finding:
    evidence = [f"{reading.arm.name}: {printed(reading)}" for reading in readings[:5]]
    is_trained = method not in METHODS_THAT_SKIP_STEPS
    if is_trained:
        evidence.append("a weak drafter still gets some drafts right; exactly none is how a drafter looks that is wired wrongly")
        evidence += why_not_quantization(case, readings[0])
    checks = static_checks(method)
    return Finding(
        code="accept-length-at-floor",
        severity="error",
        confidence="high",
        title=f"No draft was ever accepted: {listed(r.arm.name for r in readings)} at accept length 1.00",
        evidence=tuple(evidence),
        remedy=f"Check in this order{', before training again' if is_trained else ''}: {'; '.join(checks)}.",
    )


def why_not_quantization(case: Case, reading: ArmReading) -> list[str]:
    """Public measurements that speak against blaming the target's quantization, as far as target and quantization are known."""
    lines = []
    quantization = reading.arm.quantization
    loss = quantization_loss(quantization)
    if loss is not None:
        lines.append(
            f"quantization ({quantization}) does not explain it: {loss.kind} costs {loss.low * 100:.0f} to {share(loss.high)} of "
            f"accepted tokens in public measurements, never all ({loss.source})"
        )
    public = public_accept_length(case.table.target.name, reading.arm.shape.num_drafted)
    if public is not None:
        lines.append(
            f"public heads reach {public.low:.1f} to {public.high:.1f} on {case.table.target.name} with {public.num_drafted} "
            f"drafts ({public.source})"
        )
    return lines


def _near_floor(case: Case) -> list[Finding]:
    near = [reading for reading in case.readings if reading.is_near_floor]
    if not near:
        return []
    return [
        Finding(
            code="accept-length-near-floor",
            severity="warning",
            confidence="medium",
            title=f"Next to nothing is accepted: {listed(r.arm.name for r in near)}",
            evidence=tuple(f"{reading.arm.name}: {printed(reading)}" for reading in near[:5]),
            remedy=f"Check first, as for a drafter that gets nothing right: {'; '.join(static_checks(near[0].arm.method))}.",
        )
    ]


def _ceiling(case: Case) -> list[Finding]:
    full = [reading for reading in case.readings if reading.is_at_ceiling]
    if not full:
        return []
    return [
        Finding(
            code="accept-length-at-ceiling",
            severity="warning",
            confidence="medium",
            title=f"Every draft was accepted: {listed(r.arm.name for r in full)}",
            evidence=tuple(f"{reading.arm.name}: {printed(reading)}" for reading in full[:5]),
            remedy="Read the output: degenerate text, NaN logits, copied prompts or forced acceptance look like this.",
        )
    ]
