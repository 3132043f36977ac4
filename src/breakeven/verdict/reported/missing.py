"""Fields that were not reported, and what each would settle: the price of leaving it out, said once for all arms that lack it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from breakeven.findings import Finding
from breakeven.printed.definitions import METHODS_THAT_SKIP_STEPS, rate_has_changed
from breakeven.verdict.reported.admission import cap_of
from breakeven.verdict.reported.arms import ReportedArm
from breakeven.verdict.reported.case import Case, listed

__all__ = ["missing_fields"]


@dataclass(frozen=True, slots=True)
class _Ask:
    field: str
    settles: str
    lacks: Callable[[Case, ReportedArm], bool]


def _version_matters(case: Case, arm: ReportedArm) -> bool:
    reading = case.reading(arm)
    prints_a_rate = reading is not None and reading.rate is not None and rate_has_changed(arm.engine)
    return bool(arm.engine) and arm.version_text is None and (prints_a_rate or _cap_matters(case, arm))


def _draft_tokens_unknown(case: Case, arm: ReportedArm) -> bool:
    reading = case.reading(arm)
    inferred = reading.overall.shape if reading is not None else None
    return (
        arm.is_speculative
        and not arm.is_idle
        and arm.method not in METHODS_THAT_SKIP_STEPS
        and arm.shape.num_drafted is None
        and (inferred is None or inferred.num_drafted is None)
    )


def _no_acceptance(case: Case, arm: ReportedArm) -> bool:
    reading = case.reading(arm)
    is_silent = reading is not None and reading.overall.status == "nothing printed" and not reading.by_load
    return is_silent and not arm.is_idle


def _no_length(case: Case, arm: ReportedArm) -> bool:
    reading = case.reading(arm)
    return reading is not None and reading.length is None and reading.rate is not None and not reading.overall.is_trusted


def _no_concurrency(_: Case, arm: ReportedArm) -> bool:
    return any(point.load.concurrency is None for point in arm.points)


def _no_speed(_: Case, arm: ReportedArm) -> bool:
    """At some load that the table gives for this arm, or at all."""
    return any(point.throughput is None and point.request_speed is None and point.speedup is None for point in arm.points) or (
        not arm.points
    )


def _cap_matters(case: Case, arm: ReportedArm) -> bool:
    doubtful = [pair for pair in case.pairs if pair.admission.is_equal is None]
    return cap_of(arm).is_assumed and any(arm in (pair.arm, pair.baseline) for pair in doubtful)


def _split_unknown(_: Case, arm: ReportedArm) -> bool:
    return arm.tensor_parallel is None and bool(arm.points)


def _weights_unknown(_: Case, arm: ReportedArm) -> bool:
    return arm.quantization is None and bool(arm.points)


def _no_single_stream(case: Case, arm: ReportedArm) -> bool:
    has_points = bool(arm.points) and bool(case.readings)
    return has_points and all(point.load.concurrency is None for point in arm.points)


_ASKS = (
    _Ask("draft_tokens", "it turns a rate into an accept length, and says how much a round drafts", _draft_tokens_unknown),
    _Ask("accept_length", "with the speed it gives the cost of a round, and so the break-even", _no_acceptance),
    _Ask("accept_length", "printed beside the rate it tells which definition the rate follows", _no_length),
    _Ask("throughput_tok_s", "without a speed an arm cannot be compared", _no_speed),
    _Ask("engine", "figures of two engines are not compared, and each prints its own rate", lambda _, arm: not arm.engine),
    _Ask("version", "it fixes what the printed rate means and which defaults the engine has", _version_matters),
    _Ask("concurrency", "it shows whether arms were compared at equal load", _no_concurrency),
    _Ask("max_running_requests", "it shows whether arms admitted the same number of requests", _cap_matters),
    _Ask(
        "single_stream_tok_s",
        "with one request no limit on admission matters, so it gives the cost of a round there",
        _no_single_stream,
    ),
    _Ask("tensor_parallel", "it confirms that arms were split alike", _split_unknown),
    _Ask("quantization", "it confirms that arms served the same weights", _weights_unknown),
)


def missing_fields(case: Case) -> tuple[Finding, ...]:
    """One note a field, most telling first."""
    found = []
    for ask in _ASKS:
        lacking = [arm.name for arm in case.arms if ask.lacks(case, arm)]
        if lacking:
            found.append(
                Finding(
                    code=f"missing-{ask.field.replace('_', '-')}",
                    severity="info",
                    confidence="high",
                    title=f"Not reported: {ask.field} ({listed(lacking)})",
                    remedy=f"Report {ask.field}: {ask.settles}.",
                )
            )
    return tuple(found)
