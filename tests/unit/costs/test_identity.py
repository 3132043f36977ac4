from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from breakeven.costs.identity import accept_length_for, request_speedup


def test_a_request_timed_by_hand() -> None:
    # plain: 2 s of prefill, 80 steps of 0.1 s. With rounds of 0.15 s that yield 2 tokens: 2 s and 40 rounds, 8 s in all
    assert request_speedup(2.0, 1.5, prefill_share=0.2) == pytest.approx(10 / 8)


def test_without_prefill_it_is_accept_length_over_cost() -> None:
    assert request_speedup(2.4, 1.6, 0.0) == pytest.approx(1.5)


def test_break_even_is_the_cost_ratio_whatever_the_prefill() -> None:
    for share in (0.0, 0.3, 0.9):
        assert accept_length_for(1.0, 1.7, share) == pytest.approx(1.7)


@given(st.floats(1.01, 3.0), st.floats(1.0, 5.0), st.floats(0.0, 0.9))
def test_the_two_directions_undo_each_other(speedup: float, cost: float, share: float) -> None:
    length = accept_length_for(speedup, cost, share)
    if math.isfinite(length):
        assert request_speedup(length, cost, share) == pytest.approx(speedup)
    else:
        assert speedup >= 1 / share
