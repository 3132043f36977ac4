"""Where one further launch is expected to fall, given those that were seen."""

from __future__ import annotations

import math

from scipy.special import ndtri, stdtrit

from breakeven.stats.intervals import Estimate

__all__ = ["further_block"]


def further_block(estimate: Estimate) -> tuple[float, float]:
    """Low and high of one more block, at the estimate's coverage: mean -+ t(n - 1) s sqrt(1 + 1/n).

    Wider than the interval of the mean, which says where the average of many lies and nothing about the next one. (The prediction
    interval for a normal sample: Hahn & Meeker, Statistical Intervals, 1991, section 4.7.) Where s is assumed it is taken as known.
    NaN where the estimate is not usable.
    """
    if not estimate.usable:
        return math.nan, math.nan
    if estimate.assumed:
        quantile = -float(ndtri(estimate.alpha / 2))
    else:
        quantile = float(stdtrit(estimate.num_blocks - 1, 1.0 - estimate.alpha / 2))
    half_width = quantile * estimate.spread * math.sqrt(1.0 + 1.0 / estimate.num_blocks)
    return estimate.value - half_width, estimate.value + half_width
