"""An arm held against the server without speculation: accept length, speedup and the cost of a round that they imply.

cost = accept length / speedup, in plain steps. It comes from a run (paired by launch) or from two logs of which one has no drafts,
at equal running batches (one launch each, so its interval is wide).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from breakeven.doctor.evidence import Evidence
from breakeven.engines.base import Arm
from breakeven.experiment.summary import RunSummary
from breakeven.loadgen.samples import LoadPoint
from breakeven.readers.reading import Comparison, ReadResult
from breakeven.stats.intervals import block_interval

__all__ = ["WORKS", "Against", "Range", "against_baseline", "dear_rounds"]

# An accept length from which on the drafter does its part.
WORKS = 1.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """An estimate with its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """running: requests at once; num_drafted: drafts a round. cost: of a round, in plain steps."""

    where: str
    running: float | None
    num_drafted: int | None
    accept_length: float
    speedup: Range
    cost: Range
    num_launches: int

    def __str__(self) -> str:
        launches = f"{self.num_launches} launch{'es' if self.num_launches > 1 else ''} each"
        cost = f"a round costs {self.cost} plain steps"
        return f"{self.where}: accept length {self.accept_length:.2f}, speedup {self.speedup}, {cost}, {launches}"


def against_baseline(evidence: Evidence) -> tuple[Against, ...]:
    return (
        *(_of_run(evidence.run) if evidence.run is not None else ()),
        *(_of_logs(evidence.readings) if evidence.readings else ()),
    )


def dear_rounds(evidence: Evidence) -> tuple[Against, ...]:
    """Those whose drafts are accepted and which are slower than plain serving all the same, with their whole interval."""
    return tuple(one for one in against_baseline(evidence) if one.accept_length >= WORKS and one.speedup.high < 1)


def _of_run(run: RunSummary) -> Iterator[Against]:
    from breakeven.experiment.comparing import PAIR_ASSUMED_SD
    from breakeven.experiment.cost_ratios import measure_costs
    from breakeven.experiment.summary import speed_measure

    for (name, label), blocks in measure_costs(run).own.items():
        arm, load = run.arm(name), run.load(label)
        counts = [one for launch in run.acceptance_by_launch(name, label) for one in launch]
        if arm.forced or not counts:
            continue
        paired = run.paired(name, run.record.baseline, label, speed_measure(load))
        speedup = block_interval(list(paired.values()), assumed_sd=PAIR_ASSUMED_SD)
        cost = block_interval(list(blocks.values()), assumed_sd=PAIR_ASSUMED_SD)
        if not (speedup.usable and cost.usable):
            continue
        yield Against(
            where=f"{name} at {label}",
            running=float(load.concurrency) if load.concurrency is not None else None,
            num_drafted=_drafts(arm, load),
            accept_length=sum(counts[1:], start=counts[0]).accept_length,
            speedup=Range(value=math.exp(speedup.value), low=math.exp(speedup.low), high=math.exp(speedup.high)),
            cost=Range(value=math.exp(cost.value), low=math.exp(cost.low), high=math.exp(cost.high)),
            num_launches=run.num_launches(name, label),
        )


def _drafts(arm: Arm, load: LoadPoint) -> int | None:
    """Drafts a round at this load; None where a schedule follows a batch that is not known."""
    if arm.speculation is None or (arm.speculation.schedule and load.concurrency is None):
        return None
    return arm.speculation.drafts_at(load.concurrency or 0)


def _of_logs(readings: ReadResult) -> Iterator[Against]:
    lengths = {one.source: one.acceptance for one in readings.readings}
    for comparison in readings.comparisons:
        yield from _of_comparison(comparison, lengths.get(comparison.first), lengths.get(comparison.second))


def _of_comparison(comparison: Comparison, first: object, second: object) -> Iterator[Against]:
    from breakeven.readers.reading import AcceptanceFound
    from breakeven.readers.speedup import SHARE_CALLED_FLATTERED

    speculative = [one for one in (first, second) if isinstance(one, AcceptanceFound)]
    if len(speculative) != 1:
        return
    found = speculative[0]
    # where many steps carry no drafts, the length of those that do is not what a step emits
    is_flattered = found.drafted_share is not None and found.drafted_share < SHARE_CALLED_FLATTERED
    if (length := found.per_step if is_flattered else found.accept_length) is None:
        return
    inverted = isinstance(first, AcceptanceFound)
    for one in comparison.differences:
        if one.running is None or one.speedup is None or not one.speedup_low or not one.speedup_high:
            continue
        low, high = (1 / one.speedup_high, 1 / one.speedup_low) if inverted else (one.speedup_low, one.speedup_high)
        speedup = Range(value=1 / one.speedup if inverted else one.speedup, low=low, high=high)
        yield Against(
            where=f"{comparison.first} and {comparison.second} at {one.running:.0f} running",
            running=one.running,
            num_drafted=found.num_drafted,
            accept_length=length,
            speedup=speedup,
            cost=Range(value=length / speedup.value, low=length / speedup.high, high=length / speedup.low),
            num_launches=1,
        )
