from __future__ import annotations

import math

import pytest

from breakeven.costs.cost_ratio import alike, is_impossible, pool
from breakeven.stats.intervals import block_interval


def blocks(*values: float) -> dict[int, list[float]]:
    return {block: [math.log(value)] for block, value in enumerate(values)}


def test_arms_that_agree_are_pooled_by_block() -> None:
    cost = pool({"low": blocks(1.30, 1.34, 1.28), "high": blocks(1.31, 1.33, 1.29)}, assumed_sd=0.14)
    assert cost.disagreeing is None
    assert cost.log.num_blocks == 3  # two arms in one block share its baseline: still one draw
    assert math.exp(cost.log.value) == pytest.approx(1.308, abs=0.001)


def test_arms_that_differ_beyond_noise_are_named_and_both_lie_inside() -> None:
    cost = pool(
        {"low": blocks(1.30, 1.31, 1.29), "high": blocks(1.60, 1.62, 1.59), "mid": blocks(1.4, 1.42, 1.39)}, assumed_sd=0.14
    )
    assert cost.disagreeing == ("low", "high")
    assert cost.log.low <= math.log(1.31)
    assert cost.log.high >= math.log(1.59)


def test_a_small_or_a_noisy_difference_is_no_disagreement() -> None:
    assert pool({"a": blocks(1.300, 1.301, 1.299), "b": blocks(1.350, 1.351, 1.349)}, assumed_sd=0.14).disagreeing is None
    assert pool({"a": blocks(1.2, 1.5, 1.3), "b": blocks(1.6, 1.4, 1.5)}, assumed_sd=0.14).disagreeing is None
    assert pool({"a": blocks(1.3), "b": blocks(1.6)}, assumed_sd=0.14).disagreeing is None  # one launch each


def test_a_cost_wholly_below_one_is_impossible() -> None:
    assert is_impossible(block_interval([[math.log(value)] for value in (0.90, 0.91, 0.89)], assumed_sd=0.14))
    assert not is_impossible(block_interval([[math.log(value)] for value in (0.97, 0.98, 0.96)], assumed_sd=0.14))
    assert not is_impossible(block_interval([[math.log(0.9)], [math.nan]], assumed_sd=0.14))


def test_no_arm_no_cost() -> None:
    with pytest.raises(ValueError, match="at least one arm"):
        pool({}, assumed_sd=0.14)


def test_arms_are_alike_once_their_difference_is_surely_small() -> None:
    half = {0: [0.50], 1: [0.52], 2: [0.48]}
    low = {0: [0.51], 1: [0.52], 2: [0.49]}
    two = [{block: values[block] for block in (0, 1)} for values in (half, low)]
    assert alike(*two, spread=0.01, enough_blocks=3)
    # a noisy curve shows nothing in two blocks; in as many as were asked for, a small difference is let go
    assert not alike(*two, spread=0.05, enough_blocks=3)
    assert alike(half, low, spread=0.05, enough_blocks=3)


def test_arms_that_seem_to_differ_are_not_alike_however_often_they_were_measured() -> None:
    half, low = ({block: [value + 0.01 * block] for block in range(5)} for value in (0.5, 0.57))
    assert not alike(half, low, spread=0.01, enough_blocks=3)


def test_one_block_or_none_in_common_or_a_broken_one_shows_no_likeness() -> None:
    assert not alike({0: [0.5]}, {0: [0.5]}, spread=0.001, enough_blocks=3)
    assert not alike({0: [0.5], 1: [0.5]}, {2: [0.5], 3: [0.5]}, spread=0.001, enough_blocks=1)
    assert not alike({0: [0.5], 1: [math.inf]}, {0: [0.5], 1: [0.5]}, spread=0.001, enough_blocks=1)


def test_a_pair_noisier_than_the_rest_needs_more_blocks() -> None:
    assert not alike({0: [0.5], 1: [0.6]}, {0: [0.6], 1: [0.5]}, spread=0.01, enough_blocks=3)
