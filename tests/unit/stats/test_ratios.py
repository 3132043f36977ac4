from __future__ import annotations

import math

import numpy as np
import pytest

from breakeven.stats.ratios import clustered_ratio, clustered_ratio_difference


def test_a_ratio_of_sums_weighs_clusters_by_their_denominators():
    estimate = clustered_ratio([1, 30], [10, 60])
    assert estimate.value == pytest.approx(31 / 70)
    assert estimate.low < estimate.value < estimate.high
    assert estimate.num_blocks == 2


def test_equal_denominators_give_the_t_interval_of_the_means():
    generator = np.random.default_rng(1)
    values = generator.normal(2.0, 0.4, size=12)
    estimate = clustered_ratio(list(values * 5), [5.0] * 12)
    half = 2.200985 * values.std(ddof=1) / math.sqrt(12)  # t with 11 degrees of freedom, 97.5 %
    assert estimate.value == pytest.approx(values.mean())
    assert estimate.high - estimate.value == pytest.approx(half, rel=1e-6)


def test_the_interval_covers_what_it_says_where_rounds_of_a_prompt_resemble_each_other():
    generator = np.random.default_rng(7)
    covered = 0
    for _ in range(600):
        chances = generator.beta(2, 2, size=40)
        rounds = generator.integers(20, 80, size=40)
        accepted = generator.binomial(rounds, chances)
        estimate = clustered_ratio(accepted.tolist(), rounds.tolist())
        covered += estimate.low <= 0.5 <= estimate.high
    # an interval that took rounds for independent would cover about 40 %
    assert 0.92 <= covered / 600 <= 0.975


def test_pairing_removes_what_makes_a_prompt_easy_for_both():
    generator = np.random.default_rng(3)
    easy = generator.uniform(0.1, 0.9, size=30)
    rounds = [50] * 30
    first = [50 * (chance + 0.02 + generator.normal(0, 0.005)) for chance in easy]
    second = [50 * chance for chance in easy]
    difference = clustered_ratio_difference(first, rounds, second, rounds)
    assert 0.0 < difference.low < 0.02 < difference.high < 0.03
    alone = clustered_ratio(first, rounds)
    assert alone.high - alone.low > 10 * (difference.high - difference.low)


@pytest.mark.parametrize(
    ("numerators", "denominators"), [([], []), ([3], [4]), ([0, 0, 0], [5, 6, 7]), ([5, 10, 15], [1, 2, 3]), ([0, 0], [0, 0])]
)
def test_without_any_spread_there_is_no_interval(numerators, denominators):
    estimate = clustered_ratio(numerators, denominators)
    assert not estimate.usable
    assert math.isnan(estimate.low)
    assert math.isnan(estimate.high)


def test_clusters_without_a_denominator_are_left_out():
    with_empty, without = clustered_ratio([3, 0, 9], [4, 0, 20]), clustered_ratio([3, 9], [4, 20])
    assert (with_empty.value, with_empty.low, with_empty.num_blocks) == (without.value, without.low, 2)


def test_a_difference_needs_the_same_clusters():
    with pytest.raises(ValueError, match="3 clusters against 2"):
        clustered_ratio_difference([1, 2, 3], [4, 4, 4], [1, 2], [4, 4])
