"""Sign test, exact bounds of shares and survival, against figures worked out by hand or by brute force."""

from __future__ import annotations

import itertools
import math

import pytest

from breakeven.stats.departures import kaplan_meier, share_lower, share_upper, sign_test


def test_sign_test_counts_coins() -> None:
    for more, fewer in [(7, 0), (6, 1), (3, 3), (0, 5)]:
        thrown = more + fewer
        brute = sum(sum(coins) >= more for coins in itertools.product((0, 1), repeat=thrown)) / 2**thrown
        assert sign_test(more, fewer) == pytest.approx(brute)
    assert sign_test(0, 0) == 1.0
    assert sign_test(6, 0) > 0.01 > sign_test(7, 0)


def test_bounds_of_a_share() -> None:
    # with nothing seen in n the bound is 1 - alpha^(1/n)
    assert share_upper(0, 29, 0.05) == pytest.approx(1 - 0.05 ** (1 / 29))
    assert share_lower(29, 29, 0.05) == pytest.approx(0.05 ** (1 / 29))
    assert share_upper(5, 5, 0.05) == 1.0
    assert (share_upper(0, 0, 0.05), share_lower(0, 0, 0.05)) == (1.0, 0.0)
    for count, total in [(1, 10), (4, 9), (30, 64)]:
        upper = share_upper(count, total, 0.05)
        lower = share_lower(count, total, 0.05)
        tail = sum(math.comb(total, k) * upper**k * (1 - upper) ** (total - k) for k in range(count + 1))
        head = sum(math.comb(total, k) * lower**k * (1 - lower) ** (total - k) for k in range(count, total + 1))
        assert (tail, head) == (pytest.approx(0.05), pytest.approx(0.05))


def test_survival_counts_those_still_watched() -> None:
    # four texts: one parts at 2, one ends undivided after 3, one parts at 3, one never parts
    departures, lengths = [2, None, 3, None], [3, 3, 4, 10]
    assert kaplan_meier(departures, lengths, [2, 3, 4, 10]) == (
        1.0,
        pytest.approx(3 / 4),
        pytest.approx(3 / 4 * 1 / 2),
        pytest.approx(3 / 8),
    )
    assert kaplan_meier([], [], [5]) == (1.0,)
