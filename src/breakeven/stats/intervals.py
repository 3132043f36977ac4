"""Intervals whose unit of replication is the launch of a server.

Trials of one launch share its speed, so they are repeats of one draw, not draws of their own: a block (launches that are compared
with each other) counts once, however many trials it holds. Its value is the median of its trials, so that one trial that was slow
altogether does not move it. Values are logarithms wherever ratios are meant.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import ndtri, stdtrit

from breakeven.stats.spending import ALPHA

__all__ = ["ASSUMED_LAUNCH_SD", "Estimate", "block_interval"]

# s.d. of the log speed of one launch, assumed where there is one launch and so no telling: launches of the same thing were seen to
# differ by 10 to 30 % from end to end, which 10 % as an s.d. covers (docs/statistics.md)
ASSUMED_LAUNCH_SD = 0.10


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean over blocks with its interval of coverage 1 - alpha.

    `low` and `high` are NaN where the data allow no interval. `spread` is the s.d. of block values, or the one assumed instead
    (`assumed`) where there is a single block.
    """

    value: float
    low: float
    high: float
    alpha: float
    num_blocks: int
    spread: float
    assumed: bool = False

    @property
    def usable(self) -> bool:
        return math.isfinite(self.value) and math.isfinite(self.low) and math.isfinite(self.high)


def block_interval(blocks: Sequence[Sequence[float]], *, assumed_sd: float, alpha: float = ALPHA) -> Estimate:
    """Student's t interval over block medians; `blocks` holds the trial values of each block.

    One block cannot show how blocks differ. Its interval then rests on `assumed_sd`, the s.d. that blocks are taken to have, and on
    the spread of its own trials, put together by Welch and Satterthwaite: near-normal where the assumption dominates, a t interval
    over the trials where they do.

    A value that is not finite leaves the estimate unusable rather than dropping out, because trials without a figure are seldom
    missing by chance.
    """
    medians = [statistics.median(block) for block in blocks if block]
    num_blocks = len(medians)
    if not medians or not all(math.isfinite(value) for block in blocks for value in block):
        return Estimate(value=math.nan, low=math.nan, high=math.nan, alpha=alpha, num_blocks=num_blocks, spread=math.nan)
    mean = statistics.fmean(medians)
    if num_blocks == 1:
        (trials,) = (block for block in blocks if block)
        half_width = _half_width_of_one_block(trials, assumed_sd, alpha)
        spread = assumed_sd
    else:
        spread = statistics.stdev(medians)
        half_width = float(stdtrit(num_blocks - 1, 1.0 - alpha / 2)) * spread / math.sqrt(num_blocks)
    return Estimate(
        value=mean,
        low=mean - half_width,
        high=mean + half_width,
        alpha=alpha,
        num_blocks=num_blocks,
        spread=spread,
        assumed=num_blocks == 1,
    )


def _half_width_of_one_block(trials: Sequence[float], assumed_sd: float, alpha: float) -> float:
    trial_variance = statistics.variance(trials) / len(trials) if len(trials) > 1 else 0.0
    variance = assumed_sd**2 + trial_variance
    if trial_variance == 0.0:
        return -float(ndtri(alpha / 2)) * math.sqrt(variance)
    degrees = variance**2 * (len(trials) - 1) / trial_variance**2
    return float(stdtrit(degrees, 1.0 - alpha / 2)) * math.sqrt(variance)
