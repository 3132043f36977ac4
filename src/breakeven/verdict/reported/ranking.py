"""The arms by speed as reported, and whether the first of them may be chosen by that."""

from __future__ import annotations

from collections.abc import Sequence

from breakeven.doctor.public_figures import LAUNCH_DRIFT
from breakeven.units import format_ratio
from breakeven.verdict.reported.arms import LoadKey, Point, ReportedArm
from breakeven.verdict.reported.case import Case, listed, speed, speed_unit, spoken_speed, unlike_in
from breakeven.verdict.result import Conclusion

__all__ = ["ranking"]

ARMS_TOLD = 8


def ranking(case: Case) -> list[Conclusion]:
    load, ranked = case.ranking()
    if load is None or len(ranked) < 2:
        return []
    top, best = ranked[0]
    unit = speed_unit(best)
    shown = ", ".join(f"{arm.name} {spoken_speed(point)}" for arm, point in ranked[:ARMS_TOLD])
    more = f" and {len(ranked) - ARMS_TOLD} more" if len(ranked) > ARMS_TOLD else ""
    return [
        Conclusion(
            text=f"As reported, fastest first at {load.label}: {shown}{more} {unit}. {_choice(case, top.name, load)}",
            evidence=(f"{top.name}: {spoken_speed(best)} {unit} at {load.label}, as reported, no interval",),
        )
    ]


def _choice(case: Case, top: str, load: LoadKey) -> str:
    if any(pair.is_impossible for pair in case.pairs if pair.load == load):
        return "These figures cannot all be right, so nothing should be chosen by them."
    ranked = case.ranking()[1]
    unlike = unlike_in(ranked)
    if unlike == "hardware":
        return "They did not run on the same hardware, so the first is not the best by that alone."
    if unlike == "GPUs":
        return f"They are not split alike, so the first is not the best by that alone{_per_gpu(ranked)}."
    if unlike:
        return "They do not serve the same weights, so the first is not the best by that alone."
    if top in {reading.arm.name for reading in case.floored}:
        return "The first of them has a drafter that brings it nothing."
    undecided = case.unproven_lead(top, load)
    if undecided is not None:
        lead = f"{format_ratio(undecided.ratio)} is undecided"
        return f"That does not show that {top} is faster than {undecided.baseline.name}: {lead}."
    near = [arm.name for arm, point in ranked[1:] if speed(ranked[0][1]) < speed(point) * (1.0 + LAUNCH_DRIFT[0])]
    if near:
        drift = f"the {LAUNCH_DRIFT[0] * 100:.0f} % by which launches of one thing differ"
        return f"Of these arms {top} is the one to run there; {listed(near)} within {drift}, so their order is not shown."
    return f"Of these arms {top} is the one to run there."


def _per_gpu(ranked: Sequence[tuple[ReportedArm, Point]]) -> str:
    """Tokens/s a GPU, if each arm is one replica; empty where a split or a throughput is missing."""
    shares = [
        (point.throughput.value / arm.tensor_parallel, arm.name)
        for arm, point in ranked
        if point.throughput is not None and arm.tensor_parallel is not None
    ]
    if len(shares) < len(ranked):
        return ""
    shown = ", ".join(f"{name} {rate:.4g}" for rate, name in sorted(shares, reverse=True)[:ARMS_TOLD])
    return f": for each GPU of a replica {shown} tok/s"
