from __future__ import annotations

import math

import pytest

from breakeven.costs.cost_ratio import is_impossible, pool
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
