"""Ratios of sums, such as accepted tokens per round, whose unit of replication is a cluster (a prompt, all its rounds together).

Rounds of one answer resemble each other, so they are no draws of their own. The ratio r = sum(y) / sum(x) is linearised about its
value (Cochran, Sampling Techniques, 3rd ed., 6.3 and 9A.1): with residuals e_i = y_i - r x_i over n clusters,

    variance = n / (n - 1) * sum(e_i ** 2) / sum(x) ** 2

and the interval is Student's with n - 1 degrees of freedom. Two ratios over the same clusters are compared through the difference
of their linear terms, so what makes a prompt easy for both cancels out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy.special import stdtrit

from breakeven.stats.intervals import Estimate
from breakeven.stats.spending import ALPHA

__all__ = ["clustered_ratio", "clustered_ratio_difference"]


def clustered_ratio(numerators: Sequence[float], denominators: Sequence[float], *, alpha: float = ALPHA) -> Estimate:
    """sum(numerators) / sum(denominators), an interval with it; element i of both belongs to cluster i.

    Clusters without a denominator say nothing and are left out. One cluster, or clusters that are all alike to the last digit (a
    drafter that never has a draft accepted), show no spread: then `low` and `high` are NaN, since a width of zero would be a lie.
    """
    terms, ratio = _linear_terms(numerators, denominators)
    return _estimate(ratio, [term for term in terms if term is not None], alpha)


def clustered_ratio_difference(
    numerators: Sequence[float],
    denominators: Sequence[float],
    other_numerators: Sequence[float],
    other_denominators: Sequence[float],
    *,
    alpha: float = ALPHA,
) -> Estimate:
    """The first ratio minus the other; cluster i is the same one in both.

    Raises:
        ValueError: the two are not over the same number of clusters.
    """
    if len(denominators) != len(other_denominators):
        raise ValueError(f"{len(denominators)} clusters against {len(other_denominators)}; a paired difference needs the same ones")
    terms, ratio = _linear_terms(numerators, denominators)
    other_terms, other_ratio = _linear_terms(other_numerators, other_denominators)
    paired = [
        (term or 0.0) - (other or 0.0) for term, other in zip(terms, other_terms, strict=True) if (term, other) != (None, None)
    ]
    return _estimate(ratio - other_ratio, paired, alpha)


def _linear_terms(numerators: Sequence[float], denominators: Sequence[float]) -> tuple[list[float | None], float]:
    total = math.fsum(denominators)
    if not total > 0:
        return [None] * len(denominators), math.nan
    ratio = math.fsum(numerators) / total
    return [(y - ratio * x) / total if x else None for y, x in zip(numerators, denominators, strict=True)], ratio


def _estimate(value: float, terms: Sequence[float], alpha: float) -> Estimate:
    n = len(terms)
    low = high = spread = math.nan
    if n > 1 and math.isfinite(value):
        # as the s.d. that one cluster's own ratio would have: the mean over n of them varies by spread / sqrt(n)
        spread = n * math.sqrt(math.fsum(term * term for term in terms) / (n - 1))
        half_width = float(stdtrit(n - 1, 1.0 - alpha / 2)) * spread / math.sqrt(n)
        # rounding alone leaves some 1e-17
        if spread > 1e-12 * max(1.0, abs(value)):
            low, high = value - half_width, value + half_width
    return Estimate(value=value, low=low, high=high, alpha=alpha, num_blocks=n, spread=spread)
