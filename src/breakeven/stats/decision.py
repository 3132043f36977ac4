"""From an interval to one of four outcomes, and how many more launches would decide where it does not."""

from __future__ import annotations

import math
from typing import Literal

from scipy.special import stdtrit

from breakeven.stats.intervals import Estimate

__all__ = ["MAX_FURTHER_LAUNCHES", "Outcome", "decide", "launches_to_decide"]

Outcome = Literal["pays", "slower", "no useful difference", "undecided"]

# beyond this many further launches the answer is "not worth it": the difference lies within the noise of the threshold
MAX_FURTHER_LAUNCHES = 100
_POWER = 0.8


def decide(log_ratio: Estimate, threshold: float) -> Outcome:
    """pays: the whole interval above 1 + threshold; slower: below 1 - threshold; no useful difference: inside the two.

    An interval that could not be computed is undecided.
    """
    lower, upper = _bounds(threshold)
    if not log_ratio.usable:
        return "undecided"
    if log_ratio.low > upper:
        return "pays"
    if log_ratio.high < lower:
        return "slower"
    if log_ratio.low >= lower and log_ratio.high <= upper:
        return "no useful difference"
    return "undecided"


def launches_to_decide(log_ratio: Estimate, threshold: float) -> int | None:
    """Further launches an arm that would decide with probability 0.8 if the estimate and the spread seen so far were the truth.

    With n launches in all the interval reaches t_(n-1) s / sqrt(n) to each side and its centre wanders by s / sqrt(n), so n must
    satisfy (t_(1-alpha/2, n-1) + t_(0.8, n-1)) s / sqrt(n) <= distance to the nearest bound. None where more than
    MAX_FURTHER_LAUNCHES would be needed, or where nothing can be said.
    """
    if not log_ratio.usable:
        return None
    if decide(log_ratio, threshold) != "undecided":
        return 0
    margin = min(abs(log_ratio.value - bound) for bound in _bounds(threshold))
    for further in range(1, MAX_FURTHER_LAUNCHES + 1):
        num_blocks = log_ratio.num_blocks + further
        quantiles = stdtrit(num_blocks - 1, 1.0 - log_ratio.alpha / 2) + stdtrit(num_blocks - 1, _POWER)
        if float(quantiles) * log_ratio.spread / math.sqrt(num_blocks) <= margin:
            return further
    return None


def _bounds(threshold: float) -> tuple[float, float]:
    return (math.log1p(-threshold) if threshold < 1 else -math.inf), math.log1p(threshold)
