"""What keeps two arms from being compared, or makes their comparison odd: admission, requests, runs, baselines."""

from __future__ import annotations

from collections import defaultdict

from breakeven.engines.version_facts import admission_flag
from breakeven.findings import Finding
from breakeven.units import format_ratio
from breakeven.verdict.reported.case import Case, listed
from breakeven.verdict.reported.likeness import is_of_lengths

__all__ = ["comparison_findings"]


def comparison_findings(case: Case) -> list[Finding]:
    return [
        *_admission(case),
        *_unlike_requests(case),
        *_half_reported(case),
        *_runs_apart(case),
        *_no_baseline(case),
        *_idle(case),
    ]


def _admission(case: Case) -> list[Finding]:
    unequal: dict[str, list[str]] = defaultdict(list)
    doubtful: dict[str, list[str]] = defaultdict(list)
    for pair in case.pairs:
        if pair.admission.is_equal is False:
            unequal[pair.admission.text].append(f"{pair.arm.name} at {pair.load.label}")
        elif pair.admission.is_equal is None and pair.admission.text.startswith("running requests"):
            doubtful[pair.admission.text].append(f"{pair.arm.name} at {pair.load.label}")
    found = []
    for known, groups in ((True, unequal), (False, doubtful)):
        if groups:
            engines = listed(admission_flag(pair.arm.engine) for pair in case.pairs if pair.admission.text in groups)
            found.append(
                Finding(
                    code="unequal-admission",
                    severity="error" if known else "warning",
                    confidence="high" if known else "medium",
                    title=(
                        "Arms ran at different admitted concurrency"
                        if known
                        else "Arms probably ran at different admitted concurrency"
                    ),
                    evidence=tuple(f"{listed(where)}: {text}" for text, where in list(groups.items())[:6]),
                    remedy=f"Measure the arms again with the same {engines}, at the same stated concurrency.",
                )
            )
    return found


def _unlike_requests(case: Case) -> list[Finding]:
    unlike: dict[str, list[str]] = defaultdict(list)
    for pair in case.pairs:
        if pair.unlike:
            unlike[pair.unlike].append(f"{pair.arm.name} at {pair.load.label}")
    if not unlike:
        return []
    lengths = all(is_of_lengths(how) for how in unlike)
    return [
        Finding(
            code="unequal-requests",
            severity="error",
            confidence="high",
            title="Arms were measured with requests of different lengths"
            if lengths
            else "Arms were measured under different conditions",
            evidence=tuple(f"{listed(where)}: {how}" for how, where in list(unlike.items())[:6]),
            remedy="Measure the arms again on the same prompts with the same number of output tokens (ignore_eos and max_tokens)."
            if lengths
            else "Measure the arms again, alike in all but speculation: prompts, sampling, caches, warm-up and the statistic.",
        )
    ]


def _half_reported(case: Case) -> list[Finding]:
    """Conditions that one of two compared arms names and the other does not."""
    odd: dict[str, list[str]] = defaultdict(list)
    for pair in case.pairs:
        mine, plain = pair.arm.point(pair.load), pair.baseline.point(pair.load)
        if mine is None or plain is None:
            continue
        for one, other, arm in ((mine, plain, pair.arm), (plain, mine, pair.baseline)):
            for name in dict(one.conditions).keys() - dict(other.conditions).keys():
                odd[name.replace("_", " ")].append(arm.name)
    return [
        Finding(
            code="condition-of-one-arm",
            severity="warning",
            confidence="medium",
            title=f"Only one of the arms compared says its {name}",
            evidence=(f"{listed(arms)} alone",),
            remedy=f"Report the {name} of both: unless it was the same, their ratio shows that difference too.",
        )
        for name, arms in sorted(odd.items())
    ]


def _runs_apart(case: Case) -> list[Finding]:
    apart = [pair for pair in case.pairs if pair.runs_apart]
    if not apart:
        return []
    return [
        Finding(
            code="runs-too-far-apart",
            severity="warning",
            confidence="high",
            title=f"The runs of {listed(pair.arm.name for pair in apart)} differ too much for a verdict",
            evidence=tuple(f"{pair.arm.name} at {pair.load.label}: {pair.runs_apart}" for pair in apart[:6]),
            remedy="More runs of both arms, each on a fresh launch, taking turns.",
        )
    ]


def _no_baseline(case: Case) -> list[Finding]:
    lonely: dict[str, list[str]] = defaultdict(list)
    for reading in case.readings:
        arm = reading.arm
        if not arm.points or arm not in case.without_baseline:
            continue
        same_engine = [plain for plain in case.plain if plain.engine == arm.engine]
        if not case.plain:
            lonely["no arm decodes plainly"].append(arm.name)
        elif not same_engine:
            lonely[f"no plain arm on {arm.engine or 'the same engine'}"].append(arm.name)
        else:
            other = same_engine[0]
            named = (
                ("hardware", "hardware"),
                ("tensor_parallel", "tensor parallel"),
                ("quantization", "quantization"),
                ("version", "release"),
            )
            differing = [
                f"{words} ({getattr(arm, key)} against {getattr(other, key)})"
                for key, words in named
                if None not in (getattr(arm, key), getattr(other, key)) and getattr(arm, key) != getattr(other, key)
            ]
            lonely[f"{other.name} differs in {listed(differing)}"].append(arm.name)
    return [
        Finding(
            code="no-like-baseline",
            severity="warning",
            confidence="high",
            title=f"Nothing to compare with: {listed(names)}",
            evidence=(reason,),
            remedy="Measure plain decoding on the same engine, release, split and weights.",
        )
        for reason, names in lonely.items()
    ]


def _idle(case: Case) -> list[Finding]:
    idle = [reading.arm.name for reading in case.readings if reading.arm.is_idle]
    if not idle:
        return []
    cost = [f"{pair.arm.name} {format_ratio(pair.ratio)} at {pair.load.label}" for pair in case.pairs if pair.arm.name in idle]
    return [
        Finding(
            code="drafts-nothing",
            severity="info",
            confidence="high",
            title=f"Loads a drafter and drafts nothing: {listed(idle)}",
            evidence=tuple(cost[:6]),
            remedy="That is what a loaded drafter costs while it rests; it says nothing of speculation, for or against.",
        )
    ]
