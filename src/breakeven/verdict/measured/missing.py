"""What a run lacks: arms that could not be served, trials that are missing or do not count, launches, counters."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection

from breakeven.experiment.curve_plan import is_curve_arm
from breakeven.findings import Finding
from breakeven.units import plural
from breakeven.verdict.measured.case import Case
from breakeven.verdict.measured.wording import listed, percent

__all__ = ["missing_findings"]

# share of a run's trials that may be voided before the ones left may differ from them in more than luck
_MANY_VOIDED = 0.25
_MEANINGS = {
    "client_bottleneck": "the load client, not the server, set the pace: run it on a faster or idler machine",
    "degenerate_output": "answers were loops or empty: read them; NaN logits or a wrong chat template look like this",
    "errors": "requests failed: read the server's log in the run folder",
    "foreign_traffic": "somebody else used the server: give the run a server of its own",
    "no_tokens": "requests were taken and no token came back: see the list of trials for what came, and the log of the server",
    "preempted": "the KV cache was too small for the load: lower it or give the cache more memory",
    "queued": "requests waited for admission: raise max_running_requests on every arm, or lower the load",
    "server_died": "the server died: read its log in the run folder",
    "too_few_tokens": "too few tokens arrived to measure: lengthen window_s, of the load point or of trial",
    "too_many_tokens": "answers were longer than asked for: the server ignores max_tokens or counts wrong",
    "unsteady": "the load was not steady when the window began: lengthen the warm-up, or lower the load",
}


def missing_findings(case: Case) -> list[Finding]:
    return [
        *_failures(case),
        *_not_measured(case),
        *_voided(case),
        *_interrupted(case),
        *_few_launches(case),
        *_no_counters(case),
    ]


def _failures(case: Case) -> list[Finding]:
    return [
        Finding(
            code="arm-not-served",
            severity="error",
            confidence="high",
            title=f"{name} could not be served",
            evidence=(reason,),
            remedy="Nothing is said about it. Mend it and run the plan again: finished trials are kept.",
        )
        for name, reason in case.record.failures.items()
    ]


def _not_measured(case: Case) -> list[Finding]:
    missing: dict[str, list[str]] = defaultdict(list)
    for arm in case.record.arms:
        if arm.name == case.record.baseline or arm.name in case.record.failures:
            continue
        for load in case.loads:
            # the points of a curve are chosen: one that was never tried was not needed
            chosen_away = is_curve_arm(arm.name) and not case.run.num_tried(arm.name, load)
            if (arm.name, load) not in case.compared and not chosen_away:
                missing[arm.name].append(load)
    return [
        Finding(
            code="nothing-to-compare",
            severity="warning",
            confidence="high",
            title=f"{name} has no trials that count beside the baseline's at {listed(loads)}",
            evidence=tuple(
                f"{load}: {_counts(case, name, load)}; {case.record.baseline}: {_counts(case, case.record.baseline, load)}"
                for load in loads
            ),
            remedy="Run the plan again: what is missing is measured, finished trials are kept.",
        )
        for name, loads in missing.items()
    ]


def _counts(case: Case, arm: str, load: str) -> str:
    return f"{plural(len(case.run.trials(arm, load)), 'trial')} of {arm} count, {case.run.num_voided(arm, load)} voided"


def _voided(case: Case) -> list[Finding]:
    voided = [trial for trial in case.record.trials if trial.voids]
    if not voided:
        return []
    share = len(voided) / len(case.record.trials)
    codes = Counter(void.code for trial in voided for void in trial.voids)
    return [
        Finding(
            code="trials-voided",
            severity="warning" if share >= _MANY_VOIDED else "info",
            confidence="high",
            title=f"{len(voided)} of {plural(len(case.record.trials), 'trial')} do not count ({percent(share)})",
            evidence=tuple(f"{count} x {code}: {_MEANINGS.get(code, 'see their list')}" for code, count in codes.most_common()),
            remedy=_about_voids(codes),
        )
    ]


def _about_voids(codes: Collection[str]) -> str:
    told = "What mends each kind stands beside it; the trials are kept in the run and listed with their figures."
    if "too_few_tokens" in codes:
        told += (
            " A window with too few tokens is mostly a slow one, so the speeds that are left may flatter an arm: measure again with"
            " a longer window_s, of the load point or of trial, under another --name."
        )
    return told


def _interrupted(case: Case) -> list[Finding]:
    if not case.record.interrupted:
        return []
    return [
        Finding(
            code="run-interrupted",
            severity="warning",
            confidence="high",
            title="The plan has not been carried out to its end",
            evidence=(f"{plural(len(case.record.trials), 'trial')} so far",),
            remedy="The same bench command goes on where it stopped.",
        )
    ]


def _few_launches(case: Case) -> list[Finding]:
    single = [place for place, compared in case.compared.items() if compared.log_ratio.num_blocks == 1]
    if not single:
        return []
    names = dict.fromkeys(arm for arm, _ in single)
    remedy = "Set launches.min to 3 or more: the intervals then rest on what was seen, and are usually much narrower."
    if any(case.run.arm(name).url is not None for name in (*names, case.record.baseline)):
        remedy = (
            "A server that is attached by url counts as one launch, however often its arm is measured. Give the arm a `command`"
            " that starts it (or an engine that Breakeven launches) in place of the url, and three launches or more."
        )
    return [
        Finding(
            code="one-launch",
            severity="warning",
            confidence="high",
            title="One launch an arm cannot tell what speculation does from what a launch does",
            evidence=(
                f"compared over a single launch each: {listed(names)}",
                "launches of the very same server differ by 10 to 30 % (docs/statistics.md); the intervals assume an s.d. of 10 %",
            ),
            remedy=remedy,
        )
    ]


def _no_counters(case: Case) -> list[Finding]:
    blind = [
        arm.name
        for arm in case.record.arms
        if (trials := [trial for load in case.loads for trial in case.run.trials(arm.name, load)])
        and all(trial.counters is None for trial in trials)
    ]
    if not blind:
        return []
    return [
        Finding(
            code="no-server-counters",
            severity="warning",
            confidence="high",
            title=f"No counters from {listed(blind)}: admission, queueing, foreign traffic and acceptance are unknown there",
            evidence=("no metrics URL answered",),
            remedy="Give metrics_urls of every replica.",
        )
    ]
