"""c from trials: what a round of each speculative arm costs in plain steps, block by block."""

from __future__ import annotations

import math
import statistics
from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from breakeven.costs.cost_ratio import CostRatio, pool
from breakeven.engines.base import Arm
from breakeven.experiment.admission import unequal_admission
from breakeven.experiment.comparing import PAIR_ASSUMED_SD
from breakeven.experiment.summary import RunSummary, log_decode_time_per_token
from breakeven.loadgen.samples import LoadPoint

__all__ = ["FULLY_DRAFTED", "Costs", "measure_costs"]

# below this share of steps that carry drafts, a mean step is a mixture of rounds and plain steps and no figure for a round
FULLY_DRAFTED = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """`own` is (arm, load) -> block -> log of (decode time per token x accept length) over the plain decode time per token.

    `pooled` is (method, drafts a round, load) -> the c of forced arms, or of real ones where none is forced. `idle` is (method,
    load) -> what a step costs with speculation loaded and not used, in plain steps.
    """

    own: Mapping[tuple[str, str], Mapping[int, list[float]]]
    pooled: Mapping[tuple[str, int, str], CostRatio]
    idle: Mapping[tuple[str, str], CostRatio] = field(default_factory=dict)

    def without_loads(self, loads: Container[str]) -> Costs:
        """The same without the pooled c of `loads`, where the baseline does not count; each arm's own stays, as evidence."""
        pooled = {key: cost for key, cost in self.pooled.items() if key[-1] not in loads}
        idle = {key: cost for key, cost in self.idle.items() if key[-1] not in loads}
        return Costs(own=self.own, pooled=pooled, idle=idle)

    def for_arm(self, arm: Arm, load: LoadPoint) -> CostRatio | None:
        """The c that applies to `arm`, whoever measured it."""
        if arm.speculation is None or load.concurrency is None:
            return None
        return self.pooled.get((arm.speculation.method, arm.speculation.drafts_at(load.concurrency), load.label))


def measure_costs(run: RunSummary) -> Costs:
    """c of every speculative arm at every load point where its trials, the baseline's and accept lengths exist.

    An arm that ran other numbers of requests than the baseline is left out, and so are open loops, where a faster server runs
    fewer: such a c would be that of two different batches.
    """
    own: dict[tuple[str, str], dict[int, list[float]]] = {}
    groups: dict[tuple[str, int, str], dict[str, dict[int, list[float]]]] = {}
    idle: dict[tuple[str, str], CostRatio] = {}
    for load in run.record.loads:
        for arm in run.record.arms:
            if arm.speculation is None or arm.name == run.record.baseline or load.concurrency is None:
                continue
            blocks = _log_costs(run, arm, load.label)
            if not blocks or unequal_admission(run, arm.name, load.label):
                continue
            own[arm.name, load.label] = blocks
            if arm.idle:
                idle[str(arm.speculation.method), load.label] = pool({arm.name: blocks}, assumed_sd=PAIR_ASSUMED_SD)
            # with a schedule rounds differ wherever the batch does, so such an arm is evidence of itself alone
            elif not arm.speculation.schedule and _drafts_every_step(run, arm, load.label):
                key = str(arm.speculation.method), arm.speculation.num_draft_tokens, load.label
                groups.setdefault(key, {})[arm.name] = blocks
    pooled: dict[tuple[str, int, str], CostRatio] = {}
    for key, by_arm in groups.items():
        forced = {name: blocks for name, blocks in by_arm.items() if run.arm(name).forced}
        pooled[key] = pool(forced or by_arm, assumed_sd=PAIR_ASSUMED_SD)
    return Costs(own=own, pooled=pooled, idle=idle)


def _log_costs(run: RunSummary, arm: Arm, load: str) -> dict[int, list[float]]:
    costs = {}
    for block, log_times in run.paired(arm.name, run.record.baseline, load, log_decode_time_per_token).items():
        counts = run.acceptance_of_block(arm.name, load, block)
        if arm.idle:
            # engines that count only steps with drafts have counted nothing; every step yields one token
            length = 1.0
        elif counts is not None:
            length = counts.accept_length
        elif arm.speculation is not None and arm.speculation.forced_accept_length is not None:
            length = arm.speculation.forced_accept_length
        else:
            continue
        costs[block] = [log_time + math.log(length) for log_time in log_times]
    return costs


def _drafts_every_step(run: RunSummary, arm: Arm, load: str) -> bool:
    shares = [counts.drafted_share for launch in run.acceptance_by_launch(arm.name, load) for counts in launch]
    if not shares:
        return arm.forced
    return statistics.fmean(shares) >= FULLY_DRAFTED
