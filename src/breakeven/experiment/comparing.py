"""One arm against the baseline at one load point: the computation that both the verdict and the decision to go on rest on."""

from __future__ import annotations

from dataclasses import dataclass

from breakeven.experiment.admission import unequal_admission
from breakeven.experiment.summary import RunSummary, log_throughput
from breakeven.stats.decision import Outcome, decide
from breakeven.stats.intervals import ASSUMED_LAUNCH_SD, Estimate, block_interval
from breakeven.stats.spending import nominal_alpha

__all__ = ["PAIR_ASSUMED_SD", "Compared", "compare"]

# two launches, each with a speed of its own
PAIR_ASSUMED_SD = 2**0.5 * ASSUMED_LAUNCH_SD


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """`log_ratio` is that of throughputs, arm over baseline. `not_comparable` says why the two were not on equal terms."""

    arm: str
    load: str
    log_ratio: Estimate
    outcome: Outcome
    not_comparable: str | None


def compare(run: RunSummary, arm: str, load: str) -> Compared:
    """The ratio at the level that this look of the plan may use, and its outcome."""
    record = run.record
    blocks = run.paired(arm, record.baseline, load, log_throughput)
    alpha = nominal_alpha(len(blocks), record.min_launches, record.max_launches)
    log_ratio = block_interval(list(blocks.values()), assumed_sd=PAIR_ASSUMED_SD, alpha=alpha)
    not_comparable = unequal_admission(run, arm, load)
    outcome = "undecided" if not_comparable else decide(log_ratio, record.threshold)
    return Compared(arm=arm, load=load, log_ratio=log_ratio, outcome=outcome, not_comparable=not_comparable)
