from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from breakeven.stats.decision import decide, launches_to_decide
from breakeven.stats.intervals import Estimate, block_interval


def estimate(low: float, high: float, *, num_blocks: int = 4, spread: float = 0.05) -> Estimate:
    """From bounds given as ratios."""
    logs = math.log(low), math.log(high)
    return Estimate(value=sum(logs) / 2, low=logs[0], high=logs[1], alpha=0.05, num_blocks=num_blocks, spread=spread)


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (1.031, 1.2, "pays"),
        (1.029, 1.2, "undecided"),
        (0.8, 0.969, "slower"),
        (0.8, 0.971, "undecided"),
        (0.971, 1.029, "no useful difference"),
        (0.969, 1.029, "undecided"),
        (0.9, 1.1, "undecided"),
    ],
)
def test_four_outcomes(low: float, high: float, outcome: str) -> None:
    assert decide(estimate(low, high), 0.03) == outcome


@given(st.floats(allow_nan=True, allow_infinity=True), st.floats(allow_nan=True, allow_infinity=True), st.floats(0, 2))
def test_a_yes_or_no_needs_a_finite_interval_on_its_side(low: float, high: float, threshold: float) -> None:
    outcome = decide(Estimate(value=low, low=low, high=high, alpha=0.05, num_blocks=3, spread=0.1), threshold)
    if not (math.isfinite(low) and math.isfinite(high)):
        assert outcome == "undecided"
    if outcome == "pays":
        assert low > math.log1p(threshold)
    if outcome == "slower":
        assert high < math.log1p(-threshold)


def test_further_launches_decide_about_as_often_as_said() -> None:
    rng = np.random.default_rng(1)
    pilot = Estimate(value=0.08, low=-0.1, high=0.3, alpha=0.05, num_blocks=3, spread=0.05)
    further = launches_to_decide(pilot, 0.03)
    assert further is not None
    plans = rng.normal(0.08, 0.05, (1000, 3 + further))
    decided = sum(decide(block_interval([[x] for x in plan], assumed_sd=0.1), 0.03) == "pays" for plan in plans.tolist())
    assert 0.75 < decided / 1000 < 0.95


def test_nothing_further_where_it_is_decided_and_none_where_it_is_hopeless() -> None:
    assert launches_to_decide(estimate(1.1, 1.2), 0.03) == 0
    assert launches_to_decide(estimate(0.93, 1.15, spread=0.2), 0.03) is None  # centre next to 1.03
    nothing = Estimate(value=math.nan, low=math.nan, high=math.nan, alpha=0.05, num_blocks=0, spread=math.nan)
    assert launches_to_decide(nothing, 0.03) is None
