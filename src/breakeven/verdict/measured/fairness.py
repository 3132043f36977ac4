"""How fair a run's comparisons are: admission, limits, lengths of answers, speculation that is not declared, sampling."""

from __future__ import annotations

from collections import Counter, defaultdict

from breakeven.engines.base import Arm
from breakeven.engines.resolved import resolved_findings
from breakeven.experiment.admission import mean_running, mean_waiting
from breakeven.findings import Finding
from breakeven.units import plural
from breakeven.verdict.measured.case import Case
from breakeven.verdict.measured.wording import listed

__all__ = ["fairness_findings"]


def fairness_findings(case: Case) -> list[Finding]:
    return [
        *_unequal(case),
        *_queueing(case),
        *_caps(case),
        *_resolved(case),
        *_lengths_not_fixed(case),
        *_undeclared(case),
        *_greedy(case),
    ]


def _unequal(case: Case) -> list[Finding]:
    by_arm: dict[str, list[str]] = defaultdict(list)
    for (arm, load), compared in case.compared.items():
        if compared.not_comparable:
            by_arm[arm].append(f"{load}: {compared.not_comparable}")
    return [
        Finding(
            code="unequal-admission",
            severity="error",
            confidence="high",
            title=f"{arm} and {case.record.baseline} did not run the same number of requests",
            evidence=tuple(reasons),
            remedy="These comparisons do not count. Give both arms the same limits and enough cache memory, then measure again.",
        )
        for arm, reasons in by_arm.items()
    ]


def _queueing(case: Case) -> list[Finding]:
    waiting = {
        (arm.name, load): mean
        for load in case.loads
        for arm in case.record.arms
        if (mean := mean_waiting(case.run.trials(arm.name, load))) is not None and mean >= 0.5
    }
    if not waiting:
        return []
    return [
        Finding(
            code="requests-queued",
            severity="warning",
            confidence="high",
            title="Requests waited for admission",
            evidence=tuple(
                f"{arm} at {load}: {mean:.1f} waiting, {mean_running(case.run.trials(arm, load)) or 0:.1f} running, on average"
                for (arm, load), mean in waiting.items()
            ),
            remedy="Speedups then mix decoding with queueing. Raise max_running_requests on every arm, or lower the load.",
        )
    ]


def _caps(case: Case) -> list[Finding]:
    """Unequal limits that did not bind: no comparison is void, but the arms differ in more than speculation."""
    launched: list[Arm] = [arm for arm in case.record.arms if arm.url is None]
    caps = Counter(arm.max_running_requests for arm in launched)
    if len(caps) < 2 or any(compared.not_comparable for compared in case.compared.values()):
        return []
    return [
        Finding(
            code="unequal-limits",
            severity="warning",
            confidence="high",
            title="Arms have different max_running_requests",
            evidence=tuple(f"{arm.name}: {arm.max_running_requests}" for arm in launched),
            remedy="No load reached them, so the comparisons stand. Set the same number before going to higher load.",
        )
    ]


def _resolved(case: Case) -> list[Finding]:
    return [
        finding
        for arm in case.record.arms
        if arm.name in case.record.facts
        for finding in resolved_findings(arm, case.record.facts[arm.name])
    ]


def _lengths_not_fixed(case: Case) -> list[Finding]:
    if not case.forced or all(load.fixed_length for load in case.record.loads):
        return []
    return [
        Finding(
            code="lengths-not-fixed",
            severity="warning",
            confidence="high",
            title="Forced arms write junk that ends anywhere, so their answers are not as long as those of the other arms",
            evidence=(f"forced: {listed(arm.name for arm in case.forced)}; answers may end before max_tokens",),
            remedy="Set workload.fixed_length: true, so that every arm writes answers of the same length.",
        )
    ]


def _undeclared(case: Case) -> list[Finding]:
    """Servers that draft though their arm does not say so, mostly attached ones. Such a baseline spoils every comparison."""
    found = []
    for arm in case.record.arms:
        num_rounds = sum(
            counts.num_rounds
            for load in case.loads
            for launch in case.run.acceptance_by_launch(arm.name, load)
            for counts in launch
        )
        if arm.speculation is None and num_rounds:
            is_baseline = arm.name == case.record.baseline
            found.append(
                Finding(
                    code="undeclared-speculation",
                    severity="error" if is_baseline else "warning",
                    confidence="high",
                    title=f"{arm.name} speculates, though the plan does not say so",
                    evidence=(f"its server counted {plural(num_rounds, 'round')} with drafts",),
                    remedy=(
                        "Serve the baseline without speculation: it is what the others are compared with."
                        if is_baseline
                        else f"Describe it under speculation in arm {arm.name}: its accept length and cost are worked out then."
                    ),
                )
            )
    return found


def _greedy(case: Case) -> list[Finding]:
    measured = any(not case.run.arm(arm).forced for arm, _ in case.lengths)
    if not measured or any(load.temperature > 0 for load in case.record.loads):
        return []
    return [
        Finding(
            code="greedy-acceptance",
            severity="info",
            confidence="high",
            title="Accept lengths are those of greedy decoding, which flatters drafters where the traffic samples",
            evidence=("temperature 0 at every load point",),
            remedy="If your traffic samples, set its temperature and top_p in the plan and measure again.",
        )
    ]
