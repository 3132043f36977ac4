from __future__ import annotations

from itertools import islice, pairwise

import numpy as np
import pytest
from scipy import stats

from breakeven.loadgen.arrivals import poisson_times, staggered_tokens


def test_gaps_are_exponential() -> None:
    times = list(islice(poisson_times(4.0, seed=3), 5000))
    gaps = [later - earlier for earlier, later in pairwise([0.0, *times])]
    assert stats.kstest(gaps, stats.expon(scale=0.25).cdf).pvalue > 0.01
    # Counts a second: a Poisson process has variance equal to the mean
    counts = np.bincount(np.floor(times).astype(int))[:-1]
    assert np.mean(counts) == pytest.approx(4.0, rel=0.06)
    assert np.var(counts) / np.mean(counts) == pytest.approx(1.0, abs=0.15)


def test_same_seed_same_times() -> None:
    first, again, other = (list(islice(poisson_times(4.0, seed=seed), 50)) for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_first_answers_end_at_evenly_spread_stages() -> None:
    assert [staggered_tokens(slot, 4, 128) for slot in range(4)] == [32, 64, 96, 128]
    assert staggered_tokens(0, 1, 128) == 128
    assert staggered_tokens(0, 256, 16) == 1
