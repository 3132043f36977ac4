"""Figures that cannot be true together: rounds cheaper than a step, speedups that are not those of the speeds beside them."""

from __future__ import annotations

import math

from breakeven.doctor.public_figures import LAUNCH_DRIFT
from breakeven.findings import Finding
from breakeven.units import format_ratio
from breakeven.verdict.reported.case import Case, listed
from breakeven.verdict.reported.comparing import IMPOSSIBLE_BELOW

__all__ = ["impossible_figures"]

# Requests that ended early and were replaced within a window explain some percent.
MORE_THAN_ITS_REQUESTS = 1.2


def impossible_figures(case: Case) -> list[Finding]:
    return [*_impossible(case), *_contradicted(case), *_more_than_its_requests(case), *_speeds_disagree(case)]


def _impossible(case: Case) -> list[Finding]:
    broken = [pair for pair in case.pairs if pair.is_impossible]
    claimed = [
        f"{reading.arm.name} at {point.load.label}: cost ratio {point.cost_ratio}"
        for reading in case.readings
        for point in reading.arm.points
        if point.cost_ratio is not None and point.cost_ratio.value < IMPOSSIBLE_BELOW
    ]
    found = []
    if claimed:
        found.append(
            Finding(
                code="impossible-cost-ratio",
                severity="error",
                confidence="high",
                title="A reported cost ratio is below what any round can cost",
                evidence=tuple(claimed[:6]),
                remedy="Not used. It is round time over plain step time: was it given upside down, or as a speedup?",
            )
        )
    if broken:
        found.append(
            Finding(
                code="impossible-cost-ratio",
                severity="error",
                confidence="high",
                title=f"The speedup of {listed(p.arm.name for p in broken)} is more than the accept length allows",
                evidence=tuple(f"{pair.arm.name} at {pair.load.label}: {pair.why}" for pair in broken[:6]),
                remedy=(
                    f"A round cannot cost less than a plain step (limit {IMPOSSIBLE_BELOW}). Measure the baseline again; look at "
                    "what differs: captured graphs, running requests, quantization, prompts, accept length from other traffic."
                ),
            )
        )
    return found


def _contradicted(case: Case) -> list[Finding]:
    return [
        Finding(
            code="speedup-contradicts-speeds",
            severity="error",
            confidence="high",
            title=f"The reported speedup of {pair.arm.name} is not that of its speeds",
            evidence=(f"{pair.arm.name} at {pair.load.label}: {pair.contradiction}",),
            remedy="One of the three figures is wrong, or of another load: nothing is concluded from them.",
        )
        for pair in case.pairs
        if pair.contradiction
    ][:6]


def _more_than_its_requests(case: Case) -> list[Finding]:
    """A server that is said to emit more than its requests together: then the speed of one is not a mean by token."""
    odd = [
        (arm, point, point.load.concurrency * point.request_speed.value)
        for arm in case.arms
        for point in arm.points
        if point.throughput is not None
        and point.request_speed is not None
        and point.load.concurrency is not None
        and point.throughput.value > MORE_THAN_ITS_REQUESTS * point.load.concurrency * point.request_speed.value
    ]
    if not odd:
        return []
    return [
        Finding(
            code="more-than-its-requests",
            severity="error",
            confidence="high",
            title=f"{listed(arm.name for arm, _, _ in odd)} would emit more than all requests together",
            evidence=tuple(
                f"{arm.name} at {point.load.label}: {point.throughput} tok/s reported, {point.load.concurrency} requests at "
                f"{point.request_speed.value:.4g} tok/s make {together:.0f}"
                for arm, point, together in odd[:6]
                if point.request_speed is not None
            ),
            remedy="The time a token is none: with speculation the time between chunks (ITL) covers several tokens, and a p99 is "
            "no mean. Give (end - first token) / (tokens - 1), or leave it out; or the concurrency is not the one reported.",
        )
    ]


def _speeds_disagree(case: Case) -> list[Finding]:
    """Throughput and the speed of one request that do not move alike, as they do where as many requests run in both arms."""
    apart = [
        pair
        for pair in case.pairs
        if pair.other_ratio is not None and abs(math.log(pair.other_ratio / pair.ratio)) > math.log(1.0 + LAUNCH_DRIFT[0])
    ]
    if not apart:
        return []
    return [
        Finding(
            code="speeds-disagree",
            severity="warning",
            confidence="medium",
            title="Throughput and the speed of a request tell different stories",
            evidence=tuple(
                f"{pair.arm.name} at {pair.load.label}: throughput {format_ratio(pair.ratio)}, speed of one request "
                f"{format_ratio(pair.other_ratio or 0.0)}"
                for pair in apart[:6]
            ),
            remedy=(
                "Throughput decides here. With as many requests running both move alike; where they do not, first tokens, waiting "
                "or the number that ran lie between. Decide what counts, and measure how many ran."
            ),
        )
    ]
