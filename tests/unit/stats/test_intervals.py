from __future__ import annotations

import math
import statistics

import pytest
from scipy import stats

from breakeven.stats.intervals import block_interval


def test_t_interval_over_block_medians() -> None:
    blocks = [[0.10, 0.12, 0.40], [0.05], [0.20, 0.22]]
    medians = [0.12, 0.05, 0.21]
    estimate = block_interval(blocks, assumed_sd=0.1)
    low, high = stats.t.interval(0.95, df=2, loc=statistics.fmean(medians), scale=stats.sem(medians))
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((statistics.fmean(medians), low, high))
    assert estimate.spread == pytest.approx(statistics.stdev(medians))
    assert not estimate.assumed


def test_more_trials_of_the_same_launches_buy_no_certainty() -> None:
    few = block_interval([[0.1], [0.2], [0.15]], assumed_sd=0.1)
    many = block_interval([[0.1] * 50, [0.2] * 50, [0.15] * 50], assumed_sd=0.1)
    assert (few.low, few.high) == pytest.approx((many.low, many.high))


def test_two_blocks_have_one_degree_of_freedom() -> None:
    estimate = block_interval([[0.0], [0.1]], assumed_sd=0.1)
    assert estimate.high - estimate.value == pytest.approx(stats.t.ppf(0.975, 1) * 0.05)


def test_one_block_assumes_how_launches_differ() -> None:
    estimate = block_interval([[0.2]], assumed_sd=0.1)
    assert estimate.assumed
    assert estimate.spread == 0.1
    assert (estimate.low, estimate.high) == pytest.approx((0.2 - 0.196, 0.2 + 0.196), abs=1e-3)


def test_the_spread_of_the_only_launchs_trials_widens_it() -> None:
    calm = block_interval([[0.2, 0.2, 0.2]], assumed_sd=0.1)
    wild = block_interval([[-0.4, 0.2, 0.8]], assumed_sd=0.1)
    assert calm.high - calm.low == pytest.approx(2 * 0.196, abs=1e-3)
    # the trials alone: t with 2 degrees of freedom
    alone = stats.t.ppf(0.975, 2) * 0.6 / math.sqrt(3)
    assert 0.8 * alone < wild.high - wild.value < 1.05 * math.hypot(alone, 0.196)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_no_number_leaves_nothing_to_use(bad: float) -> None:
    for blocks in ([[0.1], [0.2], [bad]], [[0.1, bad, 0.1], [0.2]]):
        assert not block_interval(blocks, assumed_sd=0.1).usable


def test_no_data_is_no_estimate() -> None:
    assert not block_interval([], assumed_sd=0.1).usable
    assert block_interval([[], [0.1], []], assumed_sd=0.1).num_blocks == 1
