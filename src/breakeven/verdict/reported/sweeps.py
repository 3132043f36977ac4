"""Conclusions from rows that differ in one thing: how much a round drafts, or how many requests run."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from breakeven.units import format_ratio
from breakeven.verdict.reported.arms import LoadKey, Point, ReportedArm
from breakeven.verdict.reported.case import Case, listed
from breakeven.verdict.reported.comparing import Pair
from breakeven.verdict.reported.wording import share
from breakeven.verdict.result import Conclusion

__all__ = ["saturation", "sweeps"]

MIN_CONFIGS = 3
# A server that gains less than this from all the concurrency above a point has stopped growing there.
STOPPED_GROWING = 0.10


def sweeps(case: Case) -> list[Conclusion]:
    """Several shapes of one drafter at one load: which is best, what more drafts bring and cost."""
    groups: dict[tuple[str, str, str, LoadKey], list[Pair]] = defaultdict(list)
    for pair in case.telling_pairs:
        groups[pair.arm.engine, (pair.arm.drafter or "").lower(), pair.arm.method, pair.load].append(pair)
    found = []
    for pairs in groups.values():
        if len({pair.arm.config or pair.arm.name for pair in pairs}) >= MIN_CONFIGS:
            found += [_best(pairs, case.table.threshold), *_what_more_costs(pairs), *_cost_of_a_draft(pairs)]
    return found


def _name(pair: Pair) -> str:
    return pair.arm.config or pair.arm.name


def _best(pairs: list[Pair], threshold: float) -> Conclusion:
    ordered = sorted(pairs, key=lambda pair: pair.ratio, reverse=True)
    best = ordered[0]
    level = [pair for pair in ordered[1:] if pair.ratio > best.ratio * (1.0 - threshold)]
    text = f"{_who(best)} at {best.load.label}: the best of {len(ordered)} shapes is {_name(best)}, {format_ratio(best.ratio)}"
    if level:
        text += f"; {listed(_name(pair) for pair in level)} within {share(threshold)} of it"
    return Conclusion(text=f"{text}.", evidence=tuple(f"{_name(pair)}: {format_ratio(pair.ratio)}" for pair in ordered[:8]))


def _who(pair: Pair) -> str:
    return pair.arm.drafter or pair.arm.method


def _what_more_costs(pairs: list[Pair]) -> list[Conclusion]:
    known = [
        (pair.accept_length.estimate, pair.cost, pair) for pair in pairs if pair.accept_length is not None and pair.cost is not None
    ]
    if len(known) < MIN_CONFIGS:
        return []
    known.sort(key=lambda entry: entry[0])
    (low, low_cost, narrow), (high, high_cost, wide) = known[0], known[-1]
    best = max(pair.ratio for _, _, pair in known)
    evidence = tuple(f"{_name(pair)}: accept length {length:.2f}, cost ratio {cost:.2f}" for length, cost, pair in known[:8])
    lengths = f"accept length rises from {low:.2f} to {high:.2f}"
    span = f"from {_name(narrow)} to {_name(wide)} {lengths} and the cost ratio from {low_cost:.2f} to {high_cost:.2f}"
    if best < 1.0:
        text = (
            f"More steps or a wider tree do not help at {wide.load.label}: {span}; cost rises about as fast, no shape breaks even."
        )
    elif wide.ratio < best:
        text = f"Beyond the best shape more drafts cost more than they bring at {wide.load.label}: {span}."
    else:
        text = f"More drafts still pay at {wide.load.label}: {span}; try more."
    return [Conclusion(text=text, evidence=evidence)]


def _cost_of_a_draft(pairs: list[Pair]) -> list[Conclusion]:
    """Round time = AL / speed of one request, a straight line in the number of drafts as long as a round is bound by weights."""
    rounds = []
    for pair in pairs:
        point, shape = pair.arm.point(pair.load), pair.arm.shape
        if (
            point is not None
            and point.request_speed is not None
            and pair.accept_length is not None
            and shape.is_chain
            and shape.num_drafted
        ):
            rounds.append((shape.num_drafted, 1000.0 * pair.accept_length.estimate / point.request_speed.value))
    if len({drafts for drafts, _ in rounds}) < MIN_CONFIGS:
        return []
    drafts, times_ms = np.array(sorted(rounds)).T
    slope_ms = float(np.polyfit(drafts, times_ms, 1)[0])
    shown = ", ".join(f"{time_ms:.1f}" for time_ms in times_ms)
    return [
        Conclusion(
            text=f"{_who(pairs[0])} at {pairs[0].load.label}: a draft more adds about {slope_ms:.1f} ms to a round.",
            evidence=(f"round times {shown} ms for {', '.join(f'{d:.0f}' for d in drafts)} drafts",),
        )
    ]


def saturation(case: Case) -> list[Conclusion]:
    """Where a plain server stops growing: above that, queueing or a limit is measured, not the cost of a step."""
    found = []
    for arm in case.plain:
        for workload in dict.fromkeys(point.load.workload for point in arm.points):
            points = [
                point for point in arm.points if point.load.workload == workload and point.load.concurrency and point.throughput
            ]
            conclusion = _stops_growing(arm, sorted(points, key=lambda point: point.load.order))
            if conclusion is not None:
                found.append(conclusion)
    return found


def _stops_growing(arm: ReportedArm, points: list[Point]) -> Conclusion | None:
    speeds = [point.throughput.value for point in points if point.throughput is not None]
    for index in range(len(points) - 1):
        more = max(speeds[index + 1 :]) / speeds[index]
        here, last = points[index].load.concurrency or 0, points[-1].load.concurrency or 0
        if more < 1.0 + STOPPED_GROWING and last >= 2 * here and index > 0:
            following = points[index + 1].load.concurrency
            return Conclusion(
                text=(
                    f"{arm.name} hardly grows beyond concurrency {here} to {following}: a scheduler limit or saturation. Results "
                    "above it say little about speculation."
                ),
                evidence=(", ".join(f"{point.throughput} tok/s at {point.load.label}" for point in points[index:]),),
            )
    return None
