from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtri

from breakeven.stats.spending import ALPHA, SMALL_SAMPLE_CORRECTION, nominal_alpha, nominal_alphas, spent_alpha


def test_one_look_has_the_whole_level() -> None:
    assert nominal_alphas(3, 3) == (ALPHA,)
    assert nominal_alpha(3, 3, 3) == ALPHA
    assert nominal_alpha(2, 3, 3) == ALPHA  # a plan of one look that lost a block to voided trials still looks once


@pytest.mark.parametrize(("first", "last"), [(3, 8), (2, 6), (5, 20)])
def test_looks_at_a_brownian_motion_spend_what_was_planned(first: int, last: int) -> None:
    rng = np.random.default_rng(0)
    means = rng.standard_normal((60_000, last)).cumsum(axis=1) / np.sqrt(np.arange(1, last + 1))
    crossed = np.zeros(len(means), dtype=bool)
    for num_blocks, level in zip(range(first, last + 1), nominal_alphas(first, last), strict=True):
        crossed |= np.abs(means[:, num_blocks - 1]) > -ndtri(level * SMALL_SAMPLE_CORRECTION / 2)
        planned = spent_alpha(num_blocks / last)
        assert crossed.mean() == pytest.approx(planned, abs=4 * math.sqrt(planned / len(means)))


def test_first_look_of_a_plan_is_its_own_share() -> None:
    assert nominal_alphas(3, 8)[0] == pytest.approx(spent_alpha(3 / 8) / SMALL_SAMPLE_CORRECTION, rel=1e-6)


def test_before_the_first_and_after_the_last_look() -> None:
    assert nominal_alpha(2, 3, 8) == pytest.approx(spent_alpha(2 / 8) / SMALL_SAMPLE_CORRECTION)
    assert nominal_alpha(9, 3, 8) == nominal_alphas(3, 8)[-1]


def test_looks_must_be_in_order() -> None:
    with pytest.raises(ValueError, match=r"found 4\.\.3"):
        nominal_alphas(4, 3)
