"""What is odd about the reported figures: each with its evidence and what to do about it."""

from __future__ import annotations

import math
from collections import defaultdict

from breakeven.doctor.public_figures import LAUNCH_DRIFT
from breakeven.findings import Finding, worst_first
from breakeven.verdict.reported.case import Case, listed
from breakeven.verdict.reported.comparison_findings import comparison_findings
from breakeven.verdict.reported.floor import floor_findings
from breakeven.verdict.reported.impossible_figures import impossible_figures
from breakeven.verdict.reported.length_findings import length_findings
from breakeven.verdict.reported.likeness import alike
from breakeven.verdict.reported.wording import meanings, printed

__all__ = ["findings"]


def findings(case: Case) -> tuple[Finding, ...]:
    """Errors first, then warnings, then notes."""
    found = [
        *floor_findings(case),
        *_contradictions(case),
        *impossible_figures(case),
        *comparison_findings(case),
        *_ambiguous(case),
        *_below_one(case),
        *_costs_disagree(case),
        *length_findings(case),
        *_only_drafted_steps(case),
        *_unkept_drafts(case),
        *_releases(case),
        *_flags(case),
    ]
    return worst_first(found)


def _contradictions(case: Case) -> list[Finding]:
    return [
        Finding(
            code="printed-figures-contradict",
            severity="error",
            confidence="high",
            title=f"The printed figures of {reading.arm.name} cannot all be right",
            evidence=(reading.overall.doubt,),
            remedy="Until that is settled the accept length of this arm is not used.",
        )
        for reading in case.readings
        if reading.overall.status == "contradictory"
    ]


def _ambiguous(case: Case) -> list[Finding]:
    found = []
    for reading in case.readings:
        overall = reading.overall
        if overall.status != "ambiguous":
            continue
        lengths = [f"{length:.2f} if {condition}" for length, condition in meanings(overall.candidates)]
        if len(lengths) > 1:
            title = f"What was printed for {reading.arm.name} has several meanings"
            evidence = (f"{printed(reading)}: accept length {listed(lengths)}",)
        else:
            title = f"What was printed for {reading.arm.name} cannot be turned into an accept length"
            evidence = (f"{printed(reading)}{f': only known for one meaning, {lengths[0]}' if lengths else ''}",)
        found.append(
            Finding(
                code="accept-rate-ambiguous",
                severity="warning",
                confidence="high",
                title=title,
                evidence=evidence,
                remedy=f"Any of these would settle it: {listed(overall.settle_by)}.",
            )
        )
    return found


def _below_one(case: Case) -> list[Finding]:
    """Lengths that only a release which leaves the bonus out can have printed, no release being named."""
    short = [
        r
        for r in case.readings
        if r.length is not None and r.length.bounds.high < 1.0 and r.overall.is_trusted and not r.arm.version
    ]
    return [
        Finding(
            code="accept-length-without-bonus",
            severity="warning",
            confidence="medium",
            title=f"An accept length below 1 leaves the bonus token out: {reading.arm.name}",
            evidence=(f"{printed(reading)}; read as printed by {reading.overall.candidates[0].definition.releases}",),
            remedy="Report the release. If the figure is a share of drafts, it belongs into accept_rate.",
        )
        for reading in short
    ]


def _costs_disagree(case: Case) -> list[Finding]:
    found = []
    for cost in case.costs:
        point = cost.arm.point(cost.load)
        claimed = point.cost_ratio if point is not None and cost.is_own else None
        if claimed is not None and abs(math.log(claimed.value / cost.value)) > math.log(1.0 + LAUNCH_DRIFT[0]):
            found.append(
                Finding(
                    code="cost-ratios-disagree",
                    severity="warning",
                    confidence="medium",
                    title=f"The reported cost ratio of {cost.arm.name} is not what its speed and accept length give",
                    evidence=(f"reported {claimed} at {cost.load.label}, against {cost.value:.2f}: {cost.text}",),
                    remedy="The latter is used. Was the reported one measured at another load, release or shape of drafter?",
                )
            )
    for index, cost in enumerate(case.costs):
        for other in case.costs[index + 1 :]:
            if cost.load != other.load or not alike(cost.arm, other.arm) or cost.arm.drafter == other.arm.drafter:
                continue
            low, high = sorted((cost.value, other.value))
            if high / low > 1.0 + LAUNCH_DRIFT[1]:
                found.append(
                    Finding(
                        code="cost-ratios-disagree",
                        severity="warning",
                        confidence="medium",
                        title=f"{cost.arm.name} and {other.arm.name} should cost the same a round and do not",
                        evidence=(f"cost ratio {cost.value:.2f} ({cost.text}) against {other.value:.2f} ({other.text})",),
                        remedy="Look for what else differs: the size of the drafter, captured graphs, the release, the prompts.",
                    )
                )
    return found[:3]


def _only_drafted_steps(case: Case) -> list[Finding]:
    bounded = [reading for reading in case.readings if reading.overall.is_upper_bound and reading.overall.skips_steps]
    if not bounded:
        return []
    return [
        Finding(
            code="counts-only-drafted-steps",
            severity="warning",
            confidence="high",
            title=f"The accept length of {listed(r.arm.name for r in bounded)} leaves out steps without drafts",
            evidence=tuple(
                f"{r.arm.name}: {printed(r)} by {r.arm.engine}, whose length counts only steps that carried drafts; "
                f"{r.arm.method} drafting skips steps"
                for r in bounded[:5]
            ),
            remedy="Taken as an upper bound. drafted_share (steps with drafts / all decode steps) would give tokens per step.",
        )
    ]


def _unkept_drafts(case: Case) -> list[Finding]:
    """Rates without a length, by releases whose older engine counts drafts that no step kept."""
    counted = [
        r for r in case.readings if r.length is None and any(meant.definition.rate_is_bound for meant in r.overall.candidates)
    ]
    if not counted:
        return []
    return [
        Finding(
            code="rate-counts-unkept-drafts",
            severity="warning",
            confidence="high",
            title=f"The accept rate of {listed(r.arm.name for r in counted)} may count drafts that no step kept",
            evidence=tuple(
                f"{r.arm.name}: {printed(r)} by {r.arm.engine} {r.arm.version}, whose engine before V1 also counts drafts that are "
                "right after a wrong one"
                for r in counted[:5]
            ),
            remedy="Taken as an upper bound. The log's counts give the accept length: emitted tokens / (draft tokens / number of "
            "speculative tokens).",
        )
    ]


def _releases(case: Case) -> list[Finding]:
    found = [
        Finding(
            code="arms-of-different-releases",
            severity="warning",
            confidence="medium",
            title="Arms of one engine were printed by different releases",
            evidence=(clash,),
            remedy="Report the release of each arm.",
        )
        for clash in case.clashes
    ]
    doubts: dict[str, list[str]] = defaultdict(list)
    for reading in case.readings:
        if reading.overall.status == "settled" and reading.overall.doubt:
            doubts[reading.overall.doubt].append(reading.arm.name)
    for arm in case.arms:
        if arm.version is None and arm.version_text is not None:
            doubts[f"{arm.version_text!r} is not a release number such as 0.5.10"].append(arm.name)
    found += [
        Finding(
            code="release-unverified",
            severity="info",
            confidence="high",
            title=f"What this release prints was not checked: {listed(names)}",
            evidence=(doubt,),
            remedy="Compare accept length, rate and draft tokens on one log line.",
        )
        for doubt, names in doubts.items()
    ]
    return found


def _flags(case: Case) -> list[Finding]:
    odd = [
        arm
        for arm in case.arms
        if arm.engine == "sglang" and arm.topk == 1 and arm.steps is not None and arm.draft_tokens not in {None, arm.steps + 1}
    ]
    digits = [r for r in case.readings if r.length is not None and r.length.half_width >= 0.5 and r.rate is None]
    found = []
    if odd:
        found.append(
            Finding(
                code="draft-tokens-follow-steps",
                severity="info",
                confidence="high",
                title=f"With topk 1 the engine drafts steps, not draft_tokens: {listed(arm.name for arm in odd)}",
                evidence=tuple(f"{arm.name}: {arm.config}, read as {arm.shape.num_drafted} drafts a round" for arm in odd[:5]),
                remedy="Take the number from the resolved arguments in the server's log.",
            )
        )
    if digits:
        found.append(
            Finding(
                code="accept-length-without-decimals",
                severity="warning",
                confidence="high",
                title=f"An accept length without decimals says little: {listed(r.arm.name for r in digits)}",
                evidence=tuple(f"{r.arm.name}: {r.length} may be anything within a half" for r in digits[:5]),
                remedy="Give it as printed, with two decimals (a spreadsheet may have cut 1.00 to 1).",
            )
        )
    return found
