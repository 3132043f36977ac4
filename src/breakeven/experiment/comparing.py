"""One arm against the baseline at one load point: the computation that both the verdict and the decision to go on rest on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from breakeven.experiment.admission import unequal_admission
from breakeven.experiment.objective import Objective
from breakeven.experiment.summary import RunSummary, speed_measure
from breakeven.stats.decision import Outcome, decide
from breakeven.stats.intervals import ASSUMED_LAUNCH_SD, Estimate, block_interval
from breakeven.stats.spending import nominal_alpha

__all__ = ["PAIR_ASSUMED_SD", "Compared", "compare", "log_ratio_of"]

# two launches, each with a speed of its own
PAIR_ASSUMED_SD = 2**0.5 * ASSUMED_LAUNCH_SD


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """`log_ratio` is that of speeds, arm over baseline (see `speed_measure`). `not_comparable` says why the terms were unequal."""

    arm: str
    load: str
    log_ratio: Estimate
    outcome: Outcome
    not_comparable: str | None


def log_ratio_of(blocks: Sequence[Sequence[float]], min_launches: int, max_launches: int) -> Estimate:
    """The log ratio, at the level that this look of a plan of min_launches..max_launches may use.

    `blocks` holds the log ratio of every pair of trials, block by block.
    """
    return block_interval(blocks, assumed_sd=PAIR_ASSUMED_SD, alpha=nominal_alpha(len(blocks), min_launches, max_launches))


def compare(run: RunSummary, arm: str, load: str, objective: Objective | None = None) -> Compared:
    """Speed of `arm` over the baseline's by `objective` (default: the run's), and its outcome at this look."""
    record = run.record
    blocks = run.paired(arm, record.baseline, load, speed_measure(run.load(load), objective or record.objective))
    # probes are there for what rounds cost: nothing is decided about them, so they stop at the first look
    last_look = record.min_launches if run.arm(arm).probe else record.max_launches
    log_ratio = log_ratio_of(list(blocks.values()), record.min_launches, last_look)
    not_comparable = unequal_admission(run, arm, load)
    outcome = "undecided" if not_comparable else decide(log_ratio, record.threshold)
    return Compared(arm=arm, load=load, log_ratio=log_ratio, outcome=outcome, not_comparable=not_comparable)
