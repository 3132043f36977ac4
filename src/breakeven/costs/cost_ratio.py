"""c, the price of a round: several arms' measurements of it put together, or found to disagree.

Forced arms with the same number of drafts ought to show the same c whatever length they are forced to, because the engine verifies
the same rows. Where they do not, c depends on what is accepted (finished requests leave at other times, memory traffic differs),
and the pooled interval is widened to hold every arm's own estimate.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from breakeven.stats.intervals import Estimate, block_interval

__all__ = ["DISAGREEMENT", "IMPOSSIBLE_BELOW", "CostRatio", "alike", "is_impossible", "pool"]

# a round verifies more than a plain step does, so it cannot be cheaper; 3 % is left to measurement
IMPOSSIBLE_BELOW = 0.97
# relative difference between arms below which a dependence on the accepted length is of no interest, and the level of its test:
# there are many pairs to look at
DISAGREEMENT = 0.05
_PAIR_ALPHA = 0.01
# one-sided 95 % of the normal distribution, for each of the two tests that show arms alike
_ALIKE_QUANTILE = 1.645


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRatio:
    """Log c with its interval. `blocks` holds the log c of every block's trials, `arms` each arm's own estimate.

    `disagreeing` names two arms whose c differ beyond noise, None where there is none.
    """

    log: Estimate
    blocks: Mapping[int, Sequence[float]]
    arms: Mapping[str, Estimate]
    disagreeing: tuple[str, str] | None


def pool(by_arm: Mapping[str, Mapping[int, Sequence[float]]], *, assumed_sd: float) -> CostRatio:
    """One c from the log c of several arms, each by block. A block counts with the median over the trials of all arms in it.

    Raises:
        ValueError: there is no arm.
    """
    if not by_arm:
        raise ValueError("a cost ratio needs at least one arm")
    blocks: dict[int, list[float]] = {}
    for values_by_block in by_arm.values():
        for block, values in values_by_block.items():
            blocks.setdefault(block, []).extend(values)
    log = block_interval(list(blocks.values()), assumed_sd=assumed_sd)
    arms = {name: block_interval(list(values.values()), assumed_sd=assumed_sd) for name, values in by_arm.items()}
    disagreeing = _disagreeing(by_arm, assumed_sd)
    if disagreeing:
        own = [estimate.value for estimate in arms.values()]
        log = Estimate(
            value=log.value,
            low=min(log.low, *own),
            high=max(log.high, *own),
            alpha=log.alpha,
            num_blocks=log.num_blocks,
            spread=log.spread,
            assumed=log.assumed,
        )
    return CostRatio(log=log, blocks=blocks, arms=arms, disagreeing=disagreeing)


def is_impossible(log_cost: Estimate) -> bool:
    """The whole interval lies where no round can be: the baseline, or the accept length, is not what it seems."""
    return log_cost.usable and log_cost.high < math.log(IMPOSSIBLE_BELOW)


def alike(one: Mapping[int, Sequence[float]], other: Mapping[int, Sequence[float]], *, spread: float, enough_blocks: int) -> bool:
    """Whether two arms' log c, by block, differ by less than `DISAGREEMENT`: shown so, or seen so in `enough_blocks`.

    Shown, from two blocks on: two one-sided tests at 5 % (Schuirmann, J. Pharmacokin. Biopharm. 15, 1987). The s.d. of a difference
    is `spread`, the one that many points show together, or the pair's own where that is larger.
    """
    differences = _differences(one, other)
    if not differences or not all(math.isfinite(value) for value in differences):
        return False
    apart, error = abs(statistics.fmean(differences)), 0.0
    if len(differences) < enough_blocks:
        if len(differences) < 2:
            return False
        error = max(spread, statistics.stdev(differences)) / math.sqrt(len(differences))
    return apart + _ALIKE_QUANTILE * error < math.log1p(DISAGREEMENT)


def _differences(one: Mapping[int, Sequence[float]], other: Mapping[int, Sequence[float]]) -> list[float]:
    return [statistics.median(one[block]) - statistics.median(other[block]) for block in sorted(one.keys() & other.keys())]


def _disagreeing(by_arm: Mapping[str, Mapping[int, Sequence[float]]], assumed_sd: float) -> tuple[str, str] | None:
    """The two arms that differ most, if that is beyond noise; compared block by block, where the baseline cancels."""
    worst, found = math.log1p(DISAGREEMENT), None
    for one, other in itertools.combinations(by_arm, 2):
        differences = [[value] for value in _differences(by_arm[one], by_arm[other])]
        difference = block_interval(differences, assumed_sd=assumed_sd, alpha=_PAIR_ALPHA)
        if difference.usable and difference.low * difference.high > 0 and abs(difference.value) > worst:
            worst, found = abs(difference.value), (one, other)
    return found
