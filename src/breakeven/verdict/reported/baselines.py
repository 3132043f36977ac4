"""Which plain arms of a table a speculative arm is held against."""

from __future__ import annotations

from dataclasses import replace

from breakeven.verdict.reported.arms import ReportedArm
from breakeven.verdict.reported.likeness import same, same_setting

__all__ = ["PLAIN_NOT_IN_TABLE", "baseline_for", "baselines_for", "plain_behind"]

PLAIN_NOT_IN_TABLE = "plain decoding (not in the table)"


def baselines_for(arm: ReportedArm, arms: tuple[ReportedArm, ...]) -> tuple[ReportedArm, ...]:
    """The plain arms of the same engine that differ in nothing reported; the one sharing most loads first."""
    like = [
        plain
        for plain in arms
        if not plain.is_speculative and plain.engine == arm.engine and same_setting(plain, arm) and same(plain.version, arm.version)
    ]
    loads = {point.load for point in arm.points}
    return tuple(sorted(like, key=lambda plain: -len(loads & {point.load for point in plain.points})))


def baseline_for(arm: ReportedArm, arms: tuple[ReportedArm, ...]) -> ReportedArm | None:
    """The first of `baselines_for`; None where no plain arm is like this one."""
    return next(iter(baselines_for(arm, arms)), None)


def plain_behind(arm: ReportedArm) -> ReportedArm:
    """The plain arm behind a speedup that was reported without its speed: like this one in all that is known."""
    return replace(
        arm,
        name=PLAIN_NOT_IN_TABLE,
        is_speculative=False,
        method="plain",
        drafter=None,
        cap=arm.cap if arm.cap is not None and not arm.cap.is_default else None,
        accept_length=None,
        accept_rate=None,
        points=(),
    )
