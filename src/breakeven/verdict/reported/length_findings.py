"""Accept lengths that depend on what they must not: load, split, backend; and those that their own positions contradict.

Which drafts are accepted follows from the text alone. Arms that draft alike on the same prompts accept alike, however many requests
run, over however many GPUs, with whichever kernels.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from breakeven.findings import Finding
from breakeven.printed.figures import Bounds, PrintedFigure
from breakeven.verdict.reported.arms import LoadKey, ReportedArm
from breakeven.verdict.reported.case import Case, listed
from breakeven.verdict.reported.likeness import same, unlike
from breakeven.verdict.reported.readings import ArmReading, length_of_positions

__all__ = ["length_findings"]

# Differences up to this share are noise.
LENGTH_NOISE = 0.05
# Printed positions and lengths are averages over slightly different lines.
POSITION_SLACK = 0.03
# What may move acceptance a little (other weights, other releases' kernels), told beside the difference.
_NAMED = ("version_text", "hardware", "tensor_parallel", "quantization")


def length_findings(case: Case) -> list[Finding]:
    return [*_length_moves_with_load(case), *_alike_arms_differ(case), *_positions_at_odds(case)]


def _length_moves_with_load(case: Case) -> list[Finding]:
    found = []
    for reading in case.readings:
        lengths = [
            (own.accept_length.estimate, load)
            for load, own in reading.by_load.items()
            if own.accept_length is not None and own.is_trusted and load.concurrency is not None
        ]
        for workload in dict.fromkeys(load.workload for _, load in lengths):
            same = [(length, load) for length, load in lengths if load.workload == workload]
            low, high = min(same), max(same)
            if len(same) > 1 and high[0] / low[0] > 1.0 + LENGTH_NOISE:
                found.append(
                    Finding(
                        code="accept-length-changes-with-load",
                        severity="warning",
                        confidence="medium",
                        title=f"The accept length of {reading.arm.name} changes with load",
                        evidence=(f"{high[0]:.2f} at {high[1].label}, {low[0]:.2f} at {low[1].label}",),
                        remedy="On the same prompts it must not: try another attention backend, no graphs, or the same prompts.",
                    )
                )
    return found[:5]


def _alike_arms_differ(case: Case) -> Iterator[Finding]:
    """Arms that draft alike and should accept alike, each at the lengths of its own workload."""
    groups: dict[tuple[object, ...], list[tuple[float, ArmReading, LoadKey | None]]] = defaultdict(list)
    for reading in case.readings:
        if reading.is_at_floor or not reading.arm.shape.num_drafted:
            continue
        for load, length, conditions in _lengths(reading):
            arm = reading.arm
            workload = load.workload if load is not None else ""
            drafts = (arm.engine, (arm.drafter or "").lower(), arm.method, arm.shape, arm.topk, workload)
            groups[drafts, dict(conditions).get("temperature")].append((length, reading, load))
    for found in groups.values():
        (low, lower, _), (high, upper, _) = min(found, key=lambda one: one[0]), max(found, key=lambda one: one[0])
        if lower.arm.name == upper.arm.name or high / low <= 1.0 + LENGTH_NOISE:
            continue
        differing = _differing(lower, upper)
        fewer = (high - low) / (high - 1.0) if high > 1.0 else 0.0
        yield Finding(
            code="accept-lengths-differ",
            severity="warning",
            confidence="medium",
            title=f"{lower.arm.name} and {upper.arm.name} draft alike and accept {low:.2f} against {high:.2f}",
            evidence=(
                f"accepted drafts a round: {low - 1.0:.2f} against {high - 1.0:.2f}, {fewer * 100:.0f} % fewer",
                f"reported to differ in {differing}" if differing else "no difference between them was reported but their names",
            ),
            remedy="On the same prompts they must accept alike: how a model is split, batched or computed is not in the text. Look "
            f"at what {lower.arm.name} does otherwise (data-parallel attention, attention backend, graphs, cache reuse, release), "
            "or say that the prompts, sampling or weights were others.",
        )


def _lengths(reading: ArmReading) -> Iterator[tuple[LoadKey | None, float, tuple[tuple[str, str], ...]]]:
    if not reading.by_load:
        length = reading.accept_length()
        workloads = {point.load.workload for point in reading.arm.points}
        if length is not None and len(workloads) <= 1:
            point = reading.arm.points[0] if reading.arm.points else None
            yield (point.load if point is not None else None), length.estimate, (point.conditions if point is not None else ())
    for load in reading.by_load:
        length, point = reading.accept_length(load), reading.arm.point(load)
        if length is not None and point is not None:
            yield load, length.estimate, point.conditions


def _differing(lower: ArmReading, upper: ArmReading) -> str:
    told = []
    one, other = lower.arm, upper.arm
    if one.points and other.points and (conditions := unlike(one.points[0], other.points[0])):
        told.append(conditions)
    for key in _NAMED:
        mine, theirs = getattr(one, key), getattr(other, key)
        if not same(mine, theirs):
            told.append(f"{key.removesuffix('_text').replace('_', ' ')} ({mine} against {theirs})")
    return listed(told)


def _positions_at_odds(case: Case) -> Iterator[Finding]:
    for reading in case.readings:
        arm = reading.arm
        given = [(arm.name, arm.by_position, reading.accept_length())]
        given += [
            (f"{arm.name} at {point.load.label}", point.by_position, reading.accept_length(point.load)) for point in arm.points
        ]
        told = ((where, at_odds) for where, positions, length in given if positions and (at_odds := _odd(arm, positions, length)))
        where, at_odds = next(told, ("", ""))
        if at_odds:
            yield Finding(
                code="positions-contradict-length",
                severity="warning",
                confidence="high",
                title=f"Acceptance by position and the rest of what was reported of {where} do not go together",
                evidence=(at_odds,),
                remedy="Give the share of rounds that accepted so far, one for each draft; shares given those before are other "
                "figures, and steps without drafts are in no position.",
            )


def _odd(arm: ReportedArm, positions: tuple[PrintedFigure, ...], length: Bounds | None) -> str:
    drafts, summed = arm.shape.num_drafted, length_of_positions(positions)
    if drafts is not None and len(positions) != drafts:
        return f"{len(positions)} positions for {drafts} drafts a round"
    if length is not None and abs(length.estimate - summed.value) > summed.half_width + POSITION_SLACK:
        return f"1 plus its positions is {summed.value:.2f}, its accept length {length.estimate:.2f}"
    return ""
