from __future__ import annotations

import math

import numpy as np
import pytest

from breakeven.stats.further import further_block
from breakeven.stats.intervals import block_interval


def test_known_figures() -> None:
    low, high = further_block(block_interval([[1.0], [2.0], [3.0]], assumed_sd=0.1))
    # mean 2, s 1, t(0.975, 2) = 4.302653, sqrt(4/3)
    assert (low, high) == pytest.approx((2 - 4.302653 * math.sqrt(4 / 3), 2 + 4.302653 * math.sqrt(4 / 3)), abs=1e-5)


def test_one_launch_rests_on_the_assumed_spread() -> None:
    low, high = further_block(block_interval([[1.0]], assumed_sd=0.1))
    assert (low, high) == pytest.approx((1 - 1.959964 * 0.1 * math.sqrt(2), 1 + 1.959964 * 0.1 * math.sqrt(2)), abs=1e-6)


def test_covers_the_next_one_as_often_as_it_claims() -> None:
    draws = np.random.default_rng(0).normal(size=(2000, 5))
    inside = 0
    for *seen, further in draws:
        low, high = further_block(block_interval([[value] for value in seen], assumed_sd=0.1))
        inside += low <= further <= high
    assert 0.93 < inside / len(draws) < 0.97


def test_nothing_follows_from_nothing() -> None:
    assert all(map(math.isnan, further_block(block_interval([], assumed_sd=0.1))))
